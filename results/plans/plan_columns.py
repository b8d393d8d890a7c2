"""Columns of the studies table that are derived from the plan each time the table is read or written."""

import json
from collections.abc import Mapping

from results.aliases import Fields, Json
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.recorded import SEQUENCES, UNITS
from results.plans.schema import read_columns
from results.plans.study import METRICS, Target

OWN = "scaling-limits"  # source of studies measured by this software

COLUMNS = read_columns("plan", units=f"{', '.join(UNITS[:-1])} or {UNITS[-1]}")


def unit_in_words(study: Plan) -> str:
    """Returns the unit of a study's batch size, such as ``sequences of 1,024 tokens``, or "" without a batch size."""
    unit, length = study.batch_unit
    return f"{unit} of {length:,} tokens" if unit == SEQUENCES and length else unit or ""


def names(study: Plan) -> Json:
    """Returns the names that a study has in all tables, and its batch size if it has one."""
    return study.labels._asdict() | {"batch_size": study.plan().get("batch_size")}


def columns(study: Plan) -> Fields:
    """Returns the values of ``COLUMNS`` for a study."""
    plan = study.plan()
    unit, sequence_length = study.batch_unit
    first = next(iter(targets(study)), None)
    return {
        "kind": study.kind,
        "source": plan.get("source", OWN),
        "target_metric": first and first.metric,
        "target_value": first and first.value,
        "schedule": plan.get("schedule"),
        "dataset_version": plan.get("dataset_version"),
        "space": json.dumps(plan["space"], sort_keys=True),
        "unit": unit,
        "sequence_length": sequence_length,
    }


def targets(study: Plan) -> list[Target]:
    """Returns the targets of a study: its own, or those in its source. MLPerf's target is a shortfall of 0."""
    plan, goals = study.plan(), study.search.targets
    if goals or not KINDS[study.kind].recorded:
        return list(goals)
    stated = plan["details"].get("targets")
    if isinstance(stated, Mapping):
        return [Target(name, value) for name, value in sorted(stated.items()) if name in METRICS]
    return [Target("validation_shortfall", 0.0)] if plan["source"] == "mlperf-rcp" else []
