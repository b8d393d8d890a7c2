"""ToyStudy: a kind of study with a batch size and targets that is about neither: its plan, its runs and its tables."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import MISSING

from harness.kinds import Job
from harness.run import TRAINING, Record, RunProgress
from harness.trials.scheduler import TrialOutcome
from results import store
from results.bad_input import BadInput
from results.durable import Folder
from results.plans import kinds
from results.plans.plan import Labels, Plan, Search
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, check_int
from results.plans.trial_request import MOST_TRIALS
from results.storage.commits import read_table
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


COLUMNS = {"study": "name of the study", "width": "width of the toy", "plays": "how often it was played"}


class MeasuredToy(NamedTuple):
    """A toy that has run."""

    study: ToyStudy
    plays: int


def load(folder: Folder) -> list[MeasuredToy]:
    """The toys of a store that have run, by width and batch size."""
    commits = kinds.of_kind(store.catalogue(folder), "toy")
    found = [MeasuredToy(one.study, max(read_table(one, "measurements")["plays"].to_pylist())) for one in commits]
    return sorted(found, key=lambda one: kinds.place(one.study))


def table(toys: Sequence[MeasuredToy]) -> pd.DataFrame:
    """A row per study."""
    return pd.DataFrame([(one.study.name, one.study.width, one.plays) for one in toys], columns=list(COLUMNS))


def as_text(toys: Sequence[MeasuredToy]) -> str:
    """The table for a reader."""
    return table(toys).to_string()


def remarks(toys: Sequence[MeasuredToy]) -> list[str]:
    """Notes on the table."""
    return [f"{len(toys)} toys were played"]


def absent(folder: Folder) -> BadInput:
    """The error for a store without toys."""
    return BadInput(f"no toy in {folder}")


def drawn(toys: Sequence[MeasuredToy]) -> Iterator[Any]:
    """One picture."""
    from analysis.plotting import picture

    figure, ax = picture.axes("toys", "plays")
    ax.plot([one.study.width for one in toys], [one.plays for one in toys])
    yield picture.Picture(("all",), figure)


def words(toys: Sequence[MeasuredToy]) -> list[str]:
    """By which the search finds toys."""
    return [one.study.slug for one in toys]


def section(toys: Sequence[tuple[int, MeasuredToy]], charts_before: int) -> tuple[Any, list[Any]]:
    """The section on toys, which has no charts."""
    from analysis.report.charts import chart_section
    from analysis.report.markup import row, table as html_table

    rows = [row([one.study.name, f"{one.plays:,}"], data_groups=str(number)) for number, one in toys]
    own = html_table("Toys", ("study", "plays"), rows)
    return chart_section("toys", "Toys", toys, charts_before, [], [], own, "How often toys were played."), []
