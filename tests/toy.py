"""ToyStudy: a kind of study that has a batch size and targets, and is about neither; how it is asked for, and run."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from omegaconf import MISSING

from harness.kinds import Job
from harness.run import TRAINING, Record, RunProgress
from harness.trials.scheduler import TrialOutcome
from results.plans.plan import Labels, Plan, Search
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, check_int
from results.plans.trial_request import MOST_TRIALS
from sweeps.configured_study import ConfiguredStudy, ranges


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

    def __post_init__(self) -> None:
        for field in ("batch_size", "width", "budget_steps"):
            check_int(field, getattr(self, field), 1, MOST_STEPS)
        check_int("trials", self.trials, 1, MOST_TRIALS)
        check_int("seed", self.seed, 0)

    @property
    def slug(self) -> str:
        """The readable part of its name."""
        return f"toy-w{self.width}-b{self.batch_size}"

    @property
    def labels(self) -> Labels:
        """Its names in tables."""
        return Labels(self.dataset, "quadratic_1.0", "sgd")

    @property
    def search(self) -> Search:
        """The search of its trials."""
        return Search(self.space, self.targets)


@dataclasses.dataclass
class ToyConfig:
    width: int = MISSING
    learning_rate: Any = MISSING
    loss: float = MISSING
    plays: int = MISSING


@dataclasses.dataclass
class Keys:
    """What a toy takes beside what every study does."""

    toy: ToyConfig | None = None
    batch_size: int = MISSING


def read(config: Mapping[str, Any]) -> ConfiguredStudy[ToyStudy]:
    """The toy that a configuration asks for."""
    toy = config["toy"]
    return ConfiguredStudy(
        ToyStudy(
            dataset="noise",
            batch_size=config["batch_size"],
            width=toy["width"],
            space=SearchSpace.from_plan(ranges({"learning_rate": toy["learning_rate"]})),
            targets=(Target("validation_loss", toy["loss"]),),
            budget_steps=toy["plays"],
            seed=config["seed"],
            trials=config["trials"] or 2,
        )
    )


def run(job: Job) -> Mapping[int, TrialOutcome]:
    """Runs all trials at once: a loss that falls with every step, and what playing took."""
    steps = np.arange(1, job.study.budget_steps + 1, dtype=np.int32)
    ended = {trial.id: TrialOutcome("COMPLETE", None, len(steps)) for trial in job.trials}
    rates = np.repeat([trial.metaparameters["learning_rate"] for trial in job.trials], len(steps))
    step = np.tile(steps, len(job.trials))
    record = Record(
        trials=job.trials,
        outcomes=ended,
        trial=np.repeat(np.array(list(ended), np.int32), len(steps)),
        step=step,
        metrics={"validation_loss": np.exp(-rates * step).astype(np.float32), "plays": step * job.study.width},
        compile_seconds=0.0,
        train_seconds=1.0,
        evaluate_seconds=1.0,
        run_seconds=2.0,
        trial_steps=len(step),
        steps_per_epoch=None,
    )
    job.on_finished(record)
    job.on_progress(RunProgress(TRAINING, {len(steps): len(ended)}, {}, len(step), 1.0, 2.0))
    return ended
