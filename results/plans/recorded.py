"""Recorded: the plan of a study that was measured and published by others."""

import dataclasses
import re
from collections.abc import Iterable
from typing import ClassVar

from results.aliases import Fields
from results.bad_input import BadInput, check_choice
from results.grouping import grouped
from results.plans.plan import Labels, Plan, Search
from results.plans.search_space import SearchSpace
from results.plans.study import DIGITS, MOST_STEPS, Target, check_int
from results.plans.trial_request import MOST_TRIALS

# Units of a batch size, one of which each study has.
EXAMPLES, SEQUENCES, TOKENS = UNITS = ("examples", "sequences", "tokens")
RUNS = "runs"  # source of runs that users imported from their own logs
SOURCE_LISTS = "source_lists"  # trials column: number of source lists that contain the run
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,79}")


@dataclasses.dataclass(frozen=True)
class Recorded(Plan):
    """A study that was measured and published by others, as described by its source.

    Attributes:
      source: shallue2018, mlperf-rcp, algoperf, or runs (for your own runs).
      dataset, model, optimizer: names in the source. ``/`` is allowed.
      batch_size: global batch size, in ``unit``.
      space: ranges of the metaparameters, or empty if the source does not report them.
      details: other plain JSON data that identify the study or are needed to interpret it.
      unit: unit of the batch size, one of ``UNITS``. The plan omits the unit if it is ``examples``.
      sequence_length: tokens per sequence, for units that have sequences.
      targets: targets that you specified for your own runs. The targets of published studies are in ``details``.
      trials: number of trials in the source. Not part of the identity.
      digits: number of hex digits of the plan's hash in the study's name. Not part of the identity.
    """

    source: str
    dataset: str
    model: str
    optimizer: str
    batch_size: int
    space: SearchSpace
    details: Fields
    trials: int
    digits: int = DIGITS[-1]
    unit: str = UNITS[0]
    sequence_length: int | None = None
    targets: tuple[Target, ...] = ()

    OMITTED_AT: ClassVar = {"unit": UNITS[0], "sequence_length": None, "targets": []}
    kind = "recorded"
    budget_steps = MOST_STEPS  # the source may not report it

    def __post_init__(self) -> None:
        for field in ("source", "dataset", "model", "optimizer"):
            if not _NAME.fullmatch(getattr(self, field)):
                raise BadInput(
                    f"{field} must be a name of letters, digits, _ . + - and /, not {getattr(self, field)!r}"
                )
        check_int("batch_size", self.batch_size, 1, MOST_STEPS)
        check_int("trials", self.trials, 0, MOST_TRIALS)
        check_choice("unit", self.unit, UNITS)
        if self.sequence_length is not None:
            check_int("sequence_length", self.sequence_length, 1, MOST_STEPS)

    @property
    def slug(self) -> str:
        """The readable part of the study's name."""
        words = f"{self.dataset}-{self.model}-{self.optimizer}".replace("/", "-")
        return f"{words}-b{self.batch_size}"

    @property
    def batch_unit(self) -> tuple[str, int | None]:
        """The unit of the batch size, and the tokens per sequence, if they are known."""
        return self.unit, self.sequence_length

    @property
    def labels(self) -> Labels:
        """The study's names in tables."""
        return Labels(self.dataset, self.model, self.optimizer)

    @property
    def search(self) -> Search:
        """The search settings for the study's trials."""
        return Search(self.space, self.targets, stop="target")


def same_runs(studies: Iterable[Recorded]) -> list[list[str]]:
    """Groups the names of studies from one source that report identical runs."""
    identified = [study for study in studies if isinstance(study.details.get("runs"), str)]
    by_runs = grouped(identified, lambda one: (one.source, one.dataset, one.model, one.batch_size, one.details["runs"]))
    return [[study.name for study in group] for group in by_runs.values() if len(group) > 1]
