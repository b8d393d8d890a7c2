"""Checks of the points of a release: what its tables tell, row by row, and fits that may be those of curves."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from results import bounds
from results.catalog import point_rows
from results.catalog.contents import KEYS, POINTS
from results.catalog.point_rows import Row
from results.checks.faults import Findings, brief
from results.durable import Folder
from results.plans.points import FITS, OF_CURVES
from results.plans.study import decimal

VERDICTS = {
    "identified": (True, True),
    "at_least": (True, None),
    "at_most": (None, True),
    "not_identified": (None, None),
}
OF_A_CURVE = ("kind", "source", "dataset", "model", "optimizer", "target_metric", "target_value")


def check(path: Folder, rows: Iterable[Row]) -> Findings:
    """Compares points.parquet with what the tables beside it tell, ``rows``; fits are not repeated, but looked at."""
    findings = Findings(path)
    try:
        with path.open("rb") as stream:
            told = bounds.Parquet(stream, bounds.allowed(stream.seek(0, os.SEEK_END))).read()
        right = point_rows.table(rows)
        for what in _wrong_rows(told, right) or [*_other_values(told, right), *_wrong_fits(told)]:
            findings.fault(path, what)
    except Exception as error:  # an untrusted file can raise anything in its reader
        findings.fault(path, f"cannot be read ({brief(error)})")
    return findings


def _wrong_rows(told: pa.Table, right: pa.Table) -> list[str]:
    """Why these are not the rows that there must be, in their order; empty if they are."""
    if [(field.name, field.type) for field in told.schema] != [(field.name, field.type) for field in right.schema]:
        return ["has other columns than points have"]
    keys, wanted = (
        list(zip(*(each[name].to_pylist() for name in KEYS[POINTS]), strict=True)) for each in (told, right)
    )
    if keys == wanted:
        return []
    if len(set(keys)) < len(keys):
        return ["has a study twice with the same target"]
    studies = {study for study, *_ in wanted}
    for study, metric, value in sorted(set(wanted) - set(keys), key=str)[:1]:
        at = f" at {metric} {decimal(value)}" if metric else ""
        return [f"lacks {study}{at}" if any(study == key[0] for key in keys) else f"lacks the study {study}"]
    for study, *_ in sorted(set(keys) - set(wanted), key=str)[:1]:
        return [f"has another target of {study}" if study in studies else f"has the study {study}, which is not there"]
    return ["is not sorted by study and target"]


def _other_values(told: pa.Table, right: pa.Table) -> Iterator[str]:
    """What is another value than the tables tell, of every column the first."""
    for name in told.column_names:
        if name in OF_CURVES or told[name].equals(right[name]):
            continue
        pairs = zip(told["study"].to_pylist(), told[name].to_pylist(), right[name].to_pylist(), strict=True)
        for study in (study for study, a, b in pairs if a != b and (a == a or b == b)):  # NaN is NaN
            yield f"has another {name} of {study} than its tables"
            break


def _wrong_fits(told: pa.Table) -> Iterator[str]:
    """What no fit can be: one that differs along its curve, or whose parts contradict each other."""
    rows = told.select([*KEYS[POINTS], *OF_A_CURVE[:5], "reached", "confirmed_trial", *sorted(OF_CURVES)]).to_pylist()
    by_curve: dict[str, list[Row]] = {}
    for row in rows:
        if row["curve"] is None:
            yield from (f"has a fit of {row['study']}, which is on no curve" for _ in [0] if _is_fitted(row))
        else:
            by_curve.setdefault(row["curve"], []).append(row)
    for curve, members in by_curve.items():
        for name in (*OF_A_CURVE, *sorted(OF_CURVES)):
            if len({row[name] for row in members}) > 1:
                yield f"has different values of {name} on the curve {curve}"
                break
        else:
            yield from (f"has {what} of the curve {curve}" for what in _wrong_curve(curve, members))


def _wrong_curve(curve: str, members: Sequence[Row]) -> Iterator[str]:
    first = members[0]
    if not curve.startswith(" · ".join(first[name] for name in ("dataset", "model", "optimizer"))):
        yield "points of another workload"
    if first["target_metric"] is None:
        yield from ("a fit without a target" for _ in [0] if _is_fitted(first))
        return
    if not curve.endswith(f" · {first['target_metric']} ≤ {decimal(first['target_value'])}"):
        yield "points of another target"
    if first["verdict"] is None:
        yield "no verdict"
    if (first["confirmed_verdict"] is None) != all(row["confirmed_trial"] is None for row in members):
        yield "a confirmed verdict and no repeats, or repeats and no verdict"
    for names in FITS.values():
        yield from _wrong_fit(*(first[name] for name in names))


def _wrong_fit(value: Any, low: Any, high: Any, verdict: Any, doubts: Any) -> Iterator[str]:
    if verdict not in {*VERDICTS, None}:
        yield f"the unknown verdict {str(verdict)[:40]}"
        return
    if (value is None) == (verdict == "identified"):
        yield "a critical batch size that is not identified, or none that is"
    ends = VERDICTS.get(verdict, (None, None))
    if any(there and end is None for there, end in zip(ends, (low, high), strict=True)):
        yield "an interval that does not go with its verdict"
    order = [end for end in (low, value, high) if end is not None]
    if not all(0 < end < float("inf") for end in order) or order != sorted(order):
        yield "an interval that its critical batch size is not in"
    if verdict is None and (order or doubts is not None):
        yield "an interval without a verdict"


def _is_fitted(row: Mapping[str, Any]) -> bool:
    return any(row[name] is not None for name in OF_CURVES - {"curve"})
