"""What plans say, as columns of the table of studies: derived from the plan wherever the table is read or written."""

import json
from typing import Any

import pyarrow as pa

from results.plans.plan import Plan
from results.plans.schema import Column

OWN = "scaling-limits"  # the source of what this software measured itself

TOLD = (
    Column("kind", pa.string(), "batch (over batch sizes), cores (over cores) or recorded (measured by others)"),
    Column("source", pa.string(), "who measured it: scaling-limits, or a source of published studies"),
    Column("target_metric", pa.string(), "metric of its first target; null if it has none. All of them are in plan"),
    Column("target_value", pa.float64(), "value of its first target: reached at or below it"),
    Column("schedule", pa.string(), "how the learning rate decays: constant, linear or cosine; null if none is known"),
    Column("dataset_version", pa.string(), "which data these are; null where their name says it, or nobody does"),
    Column("space", pa.string(), "the ranges that metaparameters were drawn from, JSON"),
)


def columns(study: Plan) -> dict[str, Any]:
    """The values of ``TOLD`` of a study."""
    plan = study.plan()
    first = study.targets[0] if study.targets else None
    return {
        "kind": study.kind,
        "source": study.source or OWN,
        "target_metric": first and first.metric,
        "target_value": first and first.value,
        "schedule": plan.get("schedule"),
        "dataset_version": plan.get("dataset_version"),
        "space": json.dumps(plan["space"], sort_keys=True),
    }
