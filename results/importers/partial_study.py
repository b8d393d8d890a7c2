"""A partially read study of Shallue et al. 2018: its trials so far, and those that still wait to be stored."""

import collections
import dataclasses
from collections.abc import Iterable
from concurrent.futures import Future

from results.importers.batches import Stored
from results.importers.shallue2018_format import TrialMetadata
from results.plans.recorded import Recorded


@dataclasses.dataclass
class PartialStudy:
    """The state of a study while its archive is read.

    Attributes:
      recorded: what it is; None until its study.json has come.
      refused: it cannot be imported.
      at_the_end: it is committed when the archive has ended and not before, because it already was once.
      done: trials that were handed to the store, or were there before.
      outcomes, curves: of trials not yet done.
      statuses: of all trials whose metadata.json has come.
      measured: trials whose measurements.csv has come.
      put_off: trials whose curves are to be read in another pass.
      lost: trials of which there is nothing to be had.
      text, waiting, paired: bytes of all curves that were read, of those in ``curves``, and of those among them whose
        outcome has come.
      visible: it was committed, and nothing was handed over or lost since.
      writing: the last batch on its way into the store.
    """

    path: str
    recorded: Recorded | None = None
    refused: bool = False
    at_the_end: bool = False
    done: set[int] = dataclasses.field(default_factory=set)
    outcomes: dict[int, TrialMetadata] = dataclasses.field(default_factory=dict)
    curves: dict[int, bytes] = dataclasses.field(default_factory=dict)
    statuses: dict[int, str] = dataclasses.field(default_factory=dict)
    measured: set[int] = dataclasses.field(default_factory=set)
    put_off: set[int] = dataclasses.field(default_factory=set)
    lost: set[int] = dataclasses.field(default_factory=set)
    text: int = 0
    waiting: int = 0
    paired: int = 0
    visible: bool = False
    writing: Future[Stored] | None = None

    @property
    def seen(self) -> frozenset[int]:
        """Ids of all its trials so far."""
        return frozenset(self.statuses.keys() | self.measured | self.lost)

    @property
    def ready(self) -> int:
        """Bytes of the curves of trials that can be stored now."""
        return self.paired if self.recorded else 0

    @property
    def whole(self) -> bool:
        """Whether nothing is known to be missing, so that the study may well have ended."""
        if abs(len(self.statuses) - len(self.measured)) > len(self.lost):
            return False
        if not self.statuses or self.recorded is None or self.refused or self.put_off:
            return False
        return self.statuses.keys() | self.lost == self.measured | self.lost

    def counts(self) -> tuple[int, int, int]:
        """Trials that are complete, incomplete or lost, and infeasible."""
        statuses = collections.Counter(status for trial, status in self.statuses.items() if trial not in self.lost)
        return statuses["COMPLETE"], statuses["INCOMPLETE"] + len(self.lost), statuses["INFEASIBLE"]

    def take_outcome(self, trial: int, outcome: TrialMetadata) -> None:
        """Takes how a trial went."""
        self.outcomes[trial] = outcome
        self.paired += len(self.curves.get(trial, b""))

    def take_curve(self, trial: int, text: bytes) -> None:
        """Takes the curve of a trial."""
        self.curves[trial] = text
        self.text += len(text)
        self.waiting += len(text)
        self.paired += len(text) if trial in self.outcomes else 0

    def drop(self, trials: Iterable[int], *, outcomes: bool = True) -> None:
        """Drops the curves of trials, and their outcomes if nothing is to come of them any more."""
        for trial in list(trials):
            text = self.curves.pop(trial, b"")
            self.waiting -= len(text)
            self.paired -= len(text) if trial in self.outcomes else 0
            if outcomes:
                self.outcomes.pop(trial, None)
