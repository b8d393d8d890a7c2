"""Studies of Shallue et al. 2018 as far as an archive was read, and batches of their trials on the way into a store."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import pyarrow as pa

from results import store
from results.durable import Folder
from results.importers import curves_csv, recording, shallue2018_format
from results.importers.shallue2018_format import TrialMetadata
from results.plans import schema
from results.plans.recorded import Recorded
from results.storage import claims


class Batch(NamedTuple):
    """Trials to store.

    Attributes:
      study: theirs.
      seen: ids of all its trials that the archive has shown so far.
      outcomes: by trial, of all trials in the batch that are not lost.
      curves: text of measurements.csv by trial; of a trial that is not here there is none.
      lost: trials of which there is nothing to be had.
      last: whether the study is to be made visible now.
    """

    study: Recorded
    seen: frozenset[int]
    outcomes: Mapping[int, TrialMetadata]
    curves: Mapping[int, bytes]
    lost: frozenset[int]
    last: bool


class Stored(NamedTuple):
    """The result of storing a batch.

    Attributes:
      trials, rows: how many of each were new.
      broken: trials whose measurements could not be read, and why; they are stored as lost.
      repeated: by trial, rows left out because their step was there already.
      left_out: columns that our tables have no place for.
    """

    trials: int
    rows: int
    broken: Mapping[int, str]
    repeated: Mapping[int, int]
    left_out: frozenset[str]


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


def save(folder: Folder, batch: Batch) -> Stored:
    """Stores the trials of a batch that the store lacks, as one part.

    Raises:
      TakenOver: another process took the study in the midst of it.
      OSError: the store cannot be written.
    """
    name = batch.study.name
    with store.claim(folder, name) as claim:
        new = {trial: outcome for trial, outcome in batch.outcomes.items() if trial not in claim.settled}
        curves = curves_csv.parse({t: batch.curves[t] for t in new if t in batch.curves}, shallue2018_format.metric)
        lost = (batch.lost | curves.broken.keys()) - claim.settled
        fresh = new.keys() - lost
        lost -= _lost_trials(claim) if lost else set()
        study = dataclasses.replace(batch.study, trials=len(batch.seen | claim.settled))
        if fresh or lost or (batch.last and not claim.visible):
            store.ask(folder, study)  # before there is a part, so that no moment finds one that nobody asked for
        if fresh or lost:
            outcomes = {trial: new[trial] for trial in new if trial in fresh or trial in lost}
            claim.write(_tables(batch.study, outcomes, lost, shallue2018_format.as_errors(curves.table)))
        if batch.last and not claim.visible:
            claim.commit(study)
    return Stored(len(fresh), len(curves.table), curves.broken, curves.repeated, curves.left_out)


def _lost_trials(claim: claims.Claim) -> set[int]:
    """Trials that are stored as lost; nothing new is known of them if they are lost again."""
    trials = claim.tables().trials
    return set(trials.loc[trials["reason"] == "lost", "trial"]) if len(trials) else set()


def _tables(
    study: Recorded, outcomes: Mapping[int, TrialMetadata], lost: frozenset[int] | set[int], curves: pa.Table
) -> dict[str, pa.Table]:
    return {
        "studies": recording.studies(study, {}),
        "trials": _trials(study, outcomes, lost),
        "measurements": _measurements(study, curves),
    }


def _trials(study: Recorded, outcomes: Mapping[int, TrialMetadata], lost: frozenset[int] | set[int]) -> pa.Table:
    ids = sorted(outcomes.keys() | lost)
    metadata = [outcomes.get(trial) for trial in ids]
    names = sorted({name for outcome in metadata if outcome for name in outcome.metaparameters})
    data: dict[str, Any] = {
        "study": [study.name] * len(ids),
        "trial": ids,
        "status": ["INCOMPLETE" if t in lost or o is None else o.status for t, o in zip(ids, metadata, strict=True)],
        "reason": [_reason(o, t in lost) for t, o in zip(ids, metadata, strict=True)],
        "steps": [None if t in lost or o is None else o.steps for t, o in zip(ids, metadata, strict=True)],
    }
    data |= {name: [o.metaparameters.get(name) if o else None for o in metadata] for name in names}
    return schema.build(schema.TRIALS, data, dict.fromkeys(names, pa.float64()))


def _reason(outcome: TrialMetadata | None, lost: bool) -> str | None:
    if lost or outcome is None:
        return "lost"
    return "unstated" if outcome.status == "INCOMPLETE" else None


def _measurements(study: Recorded, curves: pa.Table) -> pa.Table:
    columns = {name: curves[name] for name in curves.column_names}
    name_field = next(pa.field(c.name, c.type) for c in schema.MEASUREMENTS if c.name == "study")
    columns["study"] = schema.constant(name_field, study.name, len(curves))
    metrics = [name for name in curves.column_names if name not in ("trial", "step")]
    return schema.build(schema.MEASUREMENTS, columns, dict.fromkeys(metrics, pa.float64()))
