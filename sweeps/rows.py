"""Builds the three tables of a stored part from the record and the provenance of a run."""

import pyarrow as pa

from harness.run import Record
from results.aliases import Row
from results.plans import plan_columns, schema
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.rules import confirmation

_OF_PLAN = ("evaluation_ratio", "evaluation_spacing")  # columns of `studies` from some plans only
_OF_RECORD = (
    *("compile_seconds", "run_seconds", "train_seconds", "evaluate_seconds", "trial_steps"),
    *("lanes", "lane_strategy", "shards", "microbatches", "mesh", "layout"),
)


def tables(study: Plan, record: Record, about: Row) -> dict[str, pa.Table]:
    """Returns the three tables of a stored part, for ``results.storage.claims.Claim.write``.

    Args:
      study: plan of the study.
      record: finished trials.
      about: columns with the provenance of the run.
    """
    by_id = sorted(record.trials, key=lambda trial: trial.id)
    outcomes = [record.outcomes[trial.id] for trial in by_id]
    trial_rows = {
        "study": [study.name for _ in by_id],
        "trial": [trial.id for trial in by_id],
        "role": [confirmation.role(trial.id) for trial in by_id],
        "seed": [trial.seed for trial in by_id],
    }
    trial_rows |= {name: [getattr(outcome, name) for outcome in outcomes] for name in ("status", "reason", "steps")}
    trial_rows |= {name: [trial.metaparameters[name] for trial in by_id] for name in study.search.space}
    measured = {"study": [study.name for _ in record.trial], "trial": record.trial, "step": record.step}
    study_row = about | _study_columns(study) | _timing_columns(record)
    types = {column.name: column.type for column in KINDS[study.kind].columns}
    kinds = {name: types.get(name, pa.float32()) for name in record.metrics}
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in study_row.items()}, {}),
        "trials": schema.build(schema.TRIALS, trial_rows, dict.fromkeys(study.search.space, pa.float64())),
        "measurements": schema.build(schema.MEASUREMENTS, measured | record.metrics, kinds),
    }


def _study_columns(study: Plan) -> Row:
    plan = study.plan()
    if plan.get("evaluation_spacings"):  # evaluations do not follow from the ratio and the spacing
        plan |= dict.fromkeys(_OF_PLAN)
    about = {"study": study.name, "planned_trials": study.trials, "budget_steps": study.budget_steps}
    about |= {"pruning": study.search.pruning, "plan": study.plan_json}
    return about | plan_columns.names(study) | {name: plan.get(name) for name in _OF_PLAN}


def _timing_columns(record: Record) -> Row:
    seconds = record.train_seconds
    steps = record.trial_steps
    per_epoch = record.steps_per_epoch
    per_step = seconds / steps if seconds is not None and steps else None
    return {name: getattr(record, name) for name in _OF_RECORD} | {
        "seconds_per_step": per_step,
        "seconds_per_epoch": None if per_step is None or per_epoch is None else per_step * per_epoch,
    }
