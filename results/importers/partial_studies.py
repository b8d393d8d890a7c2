"""Studies of Shallue et al. 2018 while their archive is being read, and batches of trials to store."""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from results import store
from results.aliases import StringMap
from results.durable import Folder
from results.importers import curves_csv, recording, shallue2018_format
from results.importers.shallue2018_format import METRICS, TrialMetadata
from results.plans import schema
from results.plans.recorded import Recorded
from results.storage import claims

_LOST = TrialMetadata("INCOMPLETE", None, {})
_REASONS = {"INCOMPLETE": "unstated"}


class Batch(NamedTuple):
    """Trials to store.

    Attributes:
      study: the trials' study.
      seen: ids of all trials of the study found so far.
      outcomes: metadata of each trial in the batch, except lost trials.
      curves: text of measurements.csv, by trial. Trials without this file are absent.
      lost: trials without usable files.
      last: whether to make the study visible after this batch.
      about: values of the studies table, by column.
    """

    study: Recorded
    seen: frozenset[int]
    outcomes: Mapping[int, TrialMetadata]
    curves: Mapping[int, bytes]
    lost: frozenset[int]
    last: bool
    about: StringMap


class Stored(NamedTuple):
    """The result of storing a batch.

    Attributes:
      trials, rows: number of new trials and measurements.
      broken: reason for each unreadable measurements file, by trial. These trials are stored as lost.
      repeated: number of dropped rows that repeat a step, by trial.
      left_out: columns that were not imported.
    """

    trials: int
    rows: int
    broken: Mapping[int, str]
    repeated: Mapping[int, int]
    left_out: frozenset[str]


@dataclasses.dataclass
class PartialStudy:
    """The state of a study while the archive is being read.

    Attributes:
      path: path of the study below the top-level folder.
      recorded: the plan, or None until study.json has been read.
      refused: whether the study cannot be imported.
      at_the_end: whether the study has been committed. If so, it is committed again only at the end of the archive.
      done: trials that were passed to the store or were already in it.
      outcomes, curves: metadata and curves of other trials.
      statuses: status of every trial whose metadata.json has been read.
      measured: trials whose measurements.csv has been read.
      put_off: trials whose curves were postponed to the second pass.
      lost: trials without usable files.
      text, waiting, paired: bytes of all curves read so far, of the curves in ``curves``, and of the curves in
        ``curves`` that have metadata.
      visible: whether the study was committed and no trial has been stored or lost since.
      writing: the last batch being stored.
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
        """Returns the ids of all trials found so far."""
        return frozenset(self.statuses.keys() | self.measured | self.lost)

    @property
    def ready(self) -> int:
        """Returns the curve bytes of trials that can be stored now."""
        return self.paired if self.recorded else 0

    @property
    def whole(self) -> bool:
        """Returns whether the files of all trials found so far have been read. If so, the study has probably ended."""
        if abs(len(self.statuses) - len(self.measured)) > len(self.lost):
            return False
        if not self.statuses or self.recorded is None or self.refused or self.put_off:
            return False
        return self.statuses.keys() | self.lost == self.measured | self.lost

    def counts(self) -> tuple[int, int, int]:
        """Returns the numbers of complete, incomplete (or lost) and infeasible trials."""
        statuses = collections.Counter(status for trial, status in self.statuses.items() if trial not in self.lost)
        return statuses["COMPLETE"], statuses["INCOMPLETE"] + len(self.lost), statuses["INFEASIBLE"]

    def take_outcome(self, trial: int, outcome: TrialMetadata) -> None:
        """Adds the metadata of a trial."""
        self.outcomes[trial] = outcome
        self.paired += len(self.curves.get(trial, b""))

    def take_curve(self, trial: int, text: bytes) -> None:
        """Adds the curve of a trial."""
        self.curves[trial] = text
        self.text += len(text)
        self.waiting += len(text)
        if trial in self.outcomes:
            self.paired += len(text)

    def drop(self, trials: Iterable[int], *, outcomes: bool = True) -> None:
        """Drops the curves of trials. If ``outcomes`` is true, drops their metadata too."""
        for trial in list(trials):
            text = self.curves.pop(trial, b"")
            self.waiting -= len(text)
            if trial in self.outcomes:
                self.paired -= len(text)
            if outcomes:
                self.outcomes.pop(trial, None)


def save(folder: Folder, batch: Batch) -> Stored:
    """Stores the new trials of a batch as one part.

    Raises:
      TakenOver: another process claimed the study in the meantime.
      OSError: the store cannot be written.
    """
    name = batch.study.name
    with store.claim(folder, name) as claim:
        new = batch.outcomes.keys() - claim.settled
        curves = curves_csv.parse({trial: batch.curves[trial] for trial in new & batch.curves.keys()}, METRICS.get)
        lost = (batch.lost | curves.broken.keys()) - claim.settled
        fresh = new - lost
        lost -= _lost_trials(claim) if lost else set()
        study = dataclasses.replace(batch.study, trials=len(batch.seen | claim.settled))
        if fresh or lost or (batch.last and not claim.visible):
            store.ask(folder, study)  # before writing the part, because every part must belong to a request
        if fresh or lost:
            claim.write(
                {
                    "studies": recording.studies(batch.study, batch.about),
                    "trials": _trials(
                        batch.study, {trial: batch.outcomes[trial] for trial in new & (fresh | lost)}, lost
                    ),
                    "measurements": _measurements(batch.study, shallue2018_format.as_errors(curves.table)),
                }
            )
        if batch.last and not claim.visible:
            claim.commit(study)
    return Stored(len(fresh), len(curves.table), curves.broken, curves.repeated, curves.left_out)


def _lost_trials(claim: claims.Claim) -> set[int]:
    """Returns the trials already stored as lost. Storing them as lost again would not add information."""
    trials = claim.tables().trials
    return set(trials.loc[trials["reason"] == "lost", "trial"]) if len(trials) else set()


def _trials(study: Recorded, outcomes: Mapping[int, TrialMetadata], lost: Collection[int]) -> pa.Table:
    rows = []
    for trial in sorted(outcomes.keys() | lost):
        outcome = outcomes.get(trial, _LOST)
        status, steps, _ = _LOST if trial in lost else outcome
        reason = "lost" if trial in lost else _REASONS.get(status)
        row = {"trial": trial, "status": status, "reason": reason, "steps": steps}
        rows.append({**row, **outcome.metaparameters})
    return recording.build(schema.TRIALS, study, dict(sorted(recording.as_columns(rows).items())))


def _measurements(study: Recorded, curves: pa.Table) -> pa.Table:
    columns = {name: curves[name] for name in curves.column_names}
    name_field = next(pa.field(c.name, c.type) for c in schema.MEASUREMENTS if c.name == "study")
    columns["study"] = schema.constant(name_field, study.name, len(curves))
    metrics = [name for name in curves.column_names if name not in ("trial", "step")]
    return schema.build(schema.MEASUREMENTS, columns, dict.fromkeys(metrics, pa.float64()))
