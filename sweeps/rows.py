"""Rows: the three tables of a part, from what a run measured and where."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from harness import cores, engine
from harness.frontier import Ended
from results import confirmation, schema
from results.batch_study import BatchStudy
from results.factorization import Factorization
from results.study import Trial
from workloads import registry

Record = engine.Record | cores.Record
_COSTS = {column.name: column.type for column in schema.COSTS}


def tables(
    study: BatchStudy | Factorization,
    trials: Sequence[Trial],
    record: Record | None,
    about: dict[str, Any],
    ended: Mapping[int, Ended] | None = None,
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
        "role": [confirmation.role(trial.id) for trial in by_id],
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
    kinds = {name: _COSTS.get(name, pa.float32()) for name in metrics}
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in study_row.items()}, {}),
        "trials": schema.build(schema.TRIALS, trial_rows, dict.fromkeys(study.space, pa.float64())),
        "measurements": schema.build(schema.MEASUREMENTS, measured | metrics, kinds),
    }


def _study_columns(study: BatchStudy | Factorization) -> dict[str, Any]:
    columns = {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.model_label,
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "budget_steps": study.budget_steps,
        "pruning": study.pruning,
        "planned_trials": study.trials,
        "plan": study.plan_json,
    }
    if isinstance(study, Factorization):
        return columns
    return columns | {"evaluation_ratio": study.evaluation_ratio, "evaluation_spacing": study.evaluation_spacing}


def _timing_columns(study: BatchStudy | Factorization, record: Record) -> dict[str, Any]:
    seconds_per_step = record.train_seconds / record.trial_steps if record.trial_steps else None
    columns: dict[str, Any] = {
        "compile_seconds": record.compile_seconds,
        "run_seconds": record.run_seconds,
        "train_seconds": record.train_seconds,
        "evaluate_seconds": record.evaluate_seconds,
        "trial_steps": record.trial_steps,
        "seconds_per_step": seconds_per_step,
        "seconds_per_epoch": _epoch_seconds(study, seconds_per_step),
    }
    if isinstance(record, engine.Record):
        columns |= {"lanes": record.lanes, "lane_strategy": record.lane_strategy}
    return columns


def _epoch_seconds(study: BatchStudy | Factorization, seconds_per_step: float | None) -> float | None:
    if isinstance(study, Factorization):
        return seconds_per_step
    examples = registry.DATASETS[study.dataset].train_examples
    return None if seconds_per_step is None or examples is None else seconds_per_step * examples / study.batch_size
