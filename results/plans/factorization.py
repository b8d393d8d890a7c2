"""Factorization: the plan of a ``cores`` study, which runs implicit ALS on a matrix of links with several cores."""

import dataclasses
from typing import ClassVar

from results.aliases import Fields
from results.als import OPTIONS, Als
from results.bad_input import BadInput
from results.plans.plan import Labels, Plan, Search
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, check_int
from results.plans.trial_request import MOST_TRIALS

METAPARAMETERS = ("unobserved_weight", "norm_penalty")  # α and λ of ALX


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factorization(Als, Plan):
    """The trials of one factorization on a number of cores. The fields are exactly those that determine the results.

    The solver options are in ``results.als.Als``. This class adds the data, the cores and the search.

    The objective is the same as in ALX (Mehta et al. 2021, arXiv 2112.02194): squared error 1 − score on the observed
    links, α · score² on all pairs, and a ridge.

    Attributes:
      dataset: name of the ratings.
      dataset_version: hash of the ratings.
      dataset_options: options for generated data, or empty for other data.
      cores: number of devices that share the tables and the work.
      space: ranges of ``METAPARAMETERS``.
      seed: seed of the search and of every trial.
      trials: number of requested trials. Not part of the identity: a larger request adds only the new trials.
      comparable: Major.Minor version of the software. Results from different versions are not comparable.
      digits: number of hex digits of the plan's hash in the study's name. Not part of the identity.
    """

    dataset: str
    dataset_version: str
    dataset_options: Fields
    cores: int
    space: SearchSpace
    seed: int
    trials: int
    comparable: str = COMPARABLE
    digits: int = DIGITS[-1]

    kind = "cores"
    OMITTED_AT: ClassVar = {
        "evaluate_every": 1,
        "evaluation_rows": None,
        "fold_in_ridge": None,
    }
    # The stream depends only on the data, search, seed and ridge, so all cores and solvers share trials.
    NOT_IN_STREAM = frozenset({*OPTIONS, "cores"} - {"ridge"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("dim", "cg_steps", "cores", "epochs", "evaluate_every"):
            check_int(field, getattr(self, field), 1, MOST_STEPS)
        check_int("trials", self.trials, 1, MOST_TRIALS)
        if self.evaluation_rows is not None:
            check_int("evaluation_rows", self.evaluation_rows, 2, MOST_STEPS)
        check_int("seed", self.seed, 0)
        if sorted(self.space) != sorted(METAPARAMETERS):
            raise BadInput(f"a factorization tunes {' and '.join(METAPARAMETERS)}, not {', '.join(sorted(self.space))}")
        for name in self.space:
            smallest = (
                self.space[name].at(0.0) if self.space[name].scale != "DISCRETE" else min(self.space[name].values)
            )
            if not smallest > 0:
                raise BadInput(f"{name} must be above 0, not {smallest:g}")

    @property
    def slug(self) -> str:
        """The readable part of the study's name."""
        return f"{self.dataset}-als-{self.solver}-d{self.dim}-c{self.cores}"

    @property
    def devices(self) -> int:
        """The number of devices on which the study is measured."""
        return self.cores

    @property
    def labels(self) -> Labels:
        """The study's names in tables. The model name includes the size, as in matrix_factorization_64."""
        return Labels(self.dataset, f"matrix_factorization_{self.dim}", "als")

    @property
    def search(self) -> Search:
        """The search settings for the study's trials."""
        return Search(self.space, stop="target")

    @property
    def budget_steps(self) -> int:
        """The maximum number of steps per trial: one per epoch."""
        return self.epochs
