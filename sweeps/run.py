"""One study: finds what the store lacks of it, measures that, and publishes it."""

import collections
import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from harness import compile_cache, engine, provenance, search
from harness.engine import Record, Settings
from harness.frontier import Best, Ended
from results import answers, schema, store
from results.claims import Claim
from results.study import Study, Trial
from workloads import registry


class Summary(NamedTuple):
    """What became of a study: trials by status, and seconds spent."""

    study: str
    ran: int
    complete: int
    infeasible: int
    incomplete: int
    seconds: float


def run_study(
    folder: Path, study: Study, settings: Settings, on_progress: Callable[[int], None] = lambda settled: None
) -> Summary:
    """Runs the trials of ``study`` that the store at ``folder`` lacks; safe to repeat, and to run twice at once.

    Args:
      folder: of the store.
      study: what is asked for.
      settings: how to run it.
      on_progress: called with the number of trials settled so far.
    """
    began = time.perf_counter()
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    ended: dict[int, Ended] = {}
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim))
        if trials:
            compile_cache.enable()
            about = provenance.software() | provenance.device() | {"started_at": started_at}
            best = _best(study, claim) if study.pruning == "exact" else {}

            def write(part: Record) -> None:
                claim.write(tables(study, [t for t in trials if t.id in part.ended], part, about))

            ended = engine.run(study, trials, settings, best=best, on_progress=on_progress, on_finished=write).ended
        if not claim.visible:
            claim.commit(study)
    return _summary(study, ended, time.perf_counter() - began)


def record_failure(folder: Path, study: Study, reason: str) -> Summary:
    """Stores that the trials still missing ended as INCOMPLETE(``reason``: lost or failed). Starts no JAX."""
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim))
        ended = {trial.id: Ended("INCOMPLETE", reason, 0) for trial in trials}
        about = provenance.software() | {
            "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        }
        if trials:
            claim.write(tables(study, trials, None, about, ended))
        if not claim.visible:
            claim.commit(study)
    return _summary(study, ended, 0.0)


def tables(
    study: Study,
    trials: Sequence[Trial],
    record: Record | None,
    about: dict[str, Any],
    ended: dict[int, Ended] | None = None,
) -> dict[str, pa.Table]:
    """The three tables of a part, as ``results.claims.Claim.write`` takes them.

    Args:
      study, trials: what has finished.
      record: what it measured, or None if it failed.
      about: columns of provenance.
      ended: how the trials ended, where there is no record.
    """
    outcomes = ended if record is None else record.ended
    assert outcomes is not None
    by_id = sorted(trials, key=lambda trial: trial.id)
    trial_rows = {
        "study": [study.name] * len(by_id),
        "trial": [trial.id for trial in by_id],
        "seed": [trial.seed for trial in by_id],
        "status": [outcomes[trial.id].status for trial in by_id],
        "reason": [outcomes[trial.id].reason for trial in by_id],
        "steps": [outcomes[trial.id].steps for trial in by_id],
    } | {name: [trial.metaparameters[name] for trial in by_id] for name in study.space}
    measured: dict[str, Any] = {"study": [], "trial": [], "step": []}
    metrics: dict[str, Any] = {}
    if record is not None:
        metrics = record.metrics
        measured = {"study": [study.name] * len(record.trial), "trial": record.trial, "step": record.step}
    study_row = about | _study_columns(study)
    study_row |= _timing_columns(study, record) if record is not None else {}
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in study_row.items()}, {}),
        "trials": schema.build(schema.TRIALS, trial_rows, dict.fromkeys(study.space, pa.float64())),
        "measurements": schema.build(schema.MEASUREMENTS, measured | metrics, dict.fromkeys(metrics, pa.float32())),
    }


def _study_columns(study: Study) -> dict[str, Any]:
    return {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.model_label,
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "budget_steps": study.budget_steps,
        "evaluation_ratio": study.evaluation_ratio,
        "evaluation_spacing": study.evaluation_spacing,
        "pruning": study.pruning,
        "planned_trials": study.trials,
        "plan": study.plan_json,
    }


def _timing_columns(study: Study, record: Record) -> dict[str, Any]:
    seconds_per_step = record.train_seconds / record.trial_steps if record.trial_steps else None
    examples = registry.DATASETS[study.dataset].train_examples
    epoch = None
    if seconds_per_step is not None and examples is not None:
        epoch = seconds_per_step * examples / study.batch_size
    return {
        "lanes": record.lanes,
        "lane_strategy": record.lane_strategy,
        "compile_seconds": record.compile_seconds,
        "run_seconds": record.run_seconds,
        "train_seconds": record.train_seconds,
        "evaluate_seconds": record.evaluate_seconds,
        "trial_steps": record.trial_steps,
        "seconds_per_step": seconds_per_step,
        "seconds_per_epoch": epoch,
    }


def _missing(study: Study, claim: Claim) -> list[int]:
    return [i for i in range(study.trials) if i not in claim.settled]


def _best(study: Study, claim: Claim) -> Best:
    measurements = claim.tables().measurements
    best = {}
    for target in study.targets if len(measurements) else ():
        first = answers.intervals(measurements, target)
        if len(first):
            winner = first.sort_values(["steps_high", "trial"]).iloc[0]
            best[target] = (int(winner["steps_high"]), int(winner["trial"]))
    return best


def _summary(study: Study, ended: dict[int, Ended], seconds: float) -> Summary:
    count = collections.Counter(end.status for end in ended.values())
    return Summary(study.name, len(ended), count["COMPLETE"], count["INFEASIBLE"], count["INCOMPLETE"], seconds)
