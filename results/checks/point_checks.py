"""Checks of the points of a release: every study and target once, with the answer that its tables give."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from results.checks.faults import Findings, brief
from results.durable import Folder
from results.plans.points import POINTS
from results.plans.study import Target
from results.reading import overview

NAMING = ("kind", "dataset", "model", "optimizer", "batch_size")


def check(path: Folder) -> Findings:
    """Compares points.parquet with what the release beside it answers, from its envelopes; fits are not repeated."""
    findings = Findings(path)
    try:
        with path.open("rb") as stream:
            table = pq.read_table(stream)
        columns = [(field.name, field.type) for field in table.schema][: len(POINTS)]
        if columns != [(column.name, column.type) for column in POINTS]:
            findings.fault(path, "has other columns than points have")
            return findings
        for what in _wrong(table.to_pylist(), overview.survey(path.parent)):
            findings.fault(path, what)
    except Exception as error:  # an untrusted file can raise anything in its reader
        findings.fault(path, f"cannot be read ({brief(error)})")
    return findings


def _wrong(rows: list[dict[str, Any]], held: overview.Overview) -> Iterator[str]:
    points = {(row["study"], row["target_metric"], row["target_value"]): row for row in rows}
    if len(points) < len(rows):
        yield "has a study twice with the same target"
    for name in sorted(held.descriptions.keys() ^ {study for study, *_ in points})[:1]:
        yield f"lacks the study {name}" if name in held.descriptions else f"has the study {name}, which is not there"
        return
    wanted = {(name, *own) for name, about in held.descriptions.items() for own in about.targets}
    for study, metric, value in sorted(wanted - points.keys())[:1]:
        yield f"lacks {study} at {metric} {value:g}"
    by_target: dict[Target, list[str]] = {}
    for study, metric, value in points:
        if metric is not None:
            by_target.setdefault(Target(metric, value), []).append(study)
    for target, names in by_target.items():
        answers = held.answers(target, set(names))
        for name in names:
            row, answer = points[name, target.metric, target.value], answers.get(name)
            told = (row["steps_low"], row["steps_high"], row["trial"]) if row["reached"] else None
            if told != (None if answer is None else tuple(answer)):
                yield f"has another answer of {name} at {target.metric} {target.value:g} than its tables"
    yield from _misnamed(points, held)


def _misnamed(points: Mapping[Any, Mapping[str, Any]], held: overview.Overview) -> Iterator[str]:
    for (study, *_), row in points.items():
        for column in NAMING:
            if row[column] != getattr(held.descriptions[study], column):
                yield f"has another {column} of {study} than its plan"
                return
