"""Batches: trials of one study of Shallue et al. 2018 on their way from the archive's text into a store."""

import dataclasses
from collections.abc import Mapping
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
