"""ToyStudy: the plan of a kind that has a batch size and targets, and is about neither."""

import dataclasses
from typing import ClassVar

from results.plans.plan import Plan
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, whole
from results.plans.trial_request import MOST_TRIALS


@dataclasses.dataclass(frozen=True)
class ToyStudy(Plan):
    """Trials of a toy of one width; but for that it looks like a study of a network."""

    dataset: str
    batch_size: int
    width: int
    space: SearchSpace
    targets: tuple[Target, ...]
    budget_steps: int
    seed: int
    trials: int
    comparable: str = COMPARABLE
    digits: int = DIGITS[-1]

    kind: ClassVar[str] = "toy"
    optimizer: ClassVar[str] = "sgd"
    model_label: ClassVar[str] = "quadratic_1.0"
    pruning: ClassVar[str] = "off"
    stop: ClassVar[str] = "budget"
    ends_at: ClassVar[tuple[Target, ...]] = ()
    source: ClassVar[None] = None

    def __post_init__(self) -> None:
        for field in ("batch_size", "width", "budget_steps"):
            whole(field, getattr(self, field), 1, MOST_STEPS)
        whole("trials", self.trials, 1, MOST_TRIALS)
        whole("seed", self.seed, 0)

    @property
    def slug(self) -> str:
        """The readable part of its name."""
        return f"toy-w{self.width}-b{self.batch_size}"

    @property
    def most_evaluations(self) -> int:
        """Of a trial."""
        return self.budget_steps
