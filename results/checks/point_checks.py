"""Checks a release's points: compares rows with the tables, and checks that fits are consistent."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from results import bounds
from results.aliases import Fields
from results.catalog import point_rows
from results.catalog.contents import KEYS, POINTS
from results.catalog.point_rows import Row
from results.checks.faults import Findings, brief
from results.durable import Folder
from results.grouping import grouped
from results.plans.points import EXTENTS, FITS, OF_CURVES
from results.plans.study import decimal

VERDICTS = {
    "identified": (True, True),
    "at_least": (True, None),
    "at_most": (None, True),
    "not_identified": (None, None),
    None: (None, None),
}
OF_A_CURVE = ("kind", "source", "dataset", "model", "optimizer", "target_metric", "target_value")


def check(path: Folder, rows: Iterable[Row]) -> Findings:
    """Checks points.parquet. Fits are checked for consistency, but not recomputed.

    Args:
      path: points.parquet.
      rows: the rows derived from the tables.
    """
    findings = Findings(path)
    try:
        with path.open("rb") as stream:
            stored = bounds.Parquet(stream).read()
        derived = point_rows.table(rows)
        for fault in _wrong_rows(stored, derived) or [*_other_values(stored, derived), *_wrong_fits(stored)]:
            findings.fault(path, fault)
    except Exception as error:  # reading an untrusted file can raise any exception
        findings.fault(path, f"cannot be read ({brief(error)})")
    return findings


def _wrong_rows(stored: pa.Table, derived: pa.Table) -> list[str]:
    """Returns the first difference in columns or keys, or an empty list."""
    if not stored.schema.equals(derived.schema):
        return ["has unexpected columns"]
    keys, wanted = (
        list(zip(*(table[name].to_pylist() for name in KEYS[POINTS]), strict=True)) for table in (stored, derived)
    )
    if keys == wanted:
        return []
    if len(set(keys)) < len(keys):
        return ["has a study twice with the same target"]
    if missing := set(wanted) - set(keys):
        study, metric, value = min(missing, key=str)
        target = f" at {metric} {decimal(value)}" if metric else ""
        return [f"lacks {study}{target}" if any(study == key[0] for key in keys) else f"lacks the study {study}"]
    if extra := set(keys) - set(wanted):
        study = min(extra, key=str)[0]
        is_known = any(study == key[0] for key in wanted)
        return [f"has a wrong target of {study}" if is_known else f"has the unknown study {study}"]
    return ["is not sorted by study and target"]


def _other_values(stored: pa.Table, derived: pa.Table) -> Iterator[str]:
    """Yields, for each column, the first value that contradicts the tables."""
    for name in stored.column_names:
        if name in OF_CURVES or stored[name].equals(derived[name]):
            continue
        pairs = zip(stored["study"].to_pylist(), stored[name].to_pylist(), derived[name].to_pylist(), strict=True)
        for study in (study for study, a, b in pairs if a != b and (a == a or b == b)):  # NaN is NaN
            yield f"has a {name} of {study} that contradicts its tables"
            break


def _wrong_fits(stored: pa.Table) -> Iterator[str]:
    """Yields impossible fits, which vary along a curve or contradict themselves."""
    rows = stored.select([*KEYS[POINTS], *OF_A_CURVE[:5], "confirmed_trial", *sorted(OF_CURVES)]).to_pylist()
    by_curve = grouped(rows, lambda row: row["curve"])
    for row in by_curve.pop(None, ()):
        if _is_fitted(row):
            yield f"has a fit of {row['study']}, which is not on a curve"
    for curve, members in by_curve.items():
        for name in (*OF_A_CURVE, *sorted(OF_CURVES)):
            if len({row[name] for row in members}) > 1:
                yield f"has different values of {name} on the curve {curve}"
                break
        else:
            yield from (f"has {fault} of the curve {curve}" for fault in _wrong_curve(curve, members))


def _wrong_curve(curve: str, members: Sequence[Row]) -> Iterator[str]:
    first = members[0]
    if not curve.startswith(" · ".join(first[name] for name in ("dataset", "model", "optimizer"))):
        yield "points of another workload"
    if first["target_metric"] is None:
        if _is_fitted(first):
            yield "a fit without a target"
        return
    if not curve.endswith(f" · {first['target_metric']} ≤ {decimal(first['target_value'])}"):
        yield "points of another target"
    if first["verdict"] is None:
        yield "no verdict"
    if (first["confirmed_verdict"] is None) != all(row["confirmed_trial"] is None for row in members):
        yield "a confirmed verdict without repeats, or repeats without a confirmed verdict"
    for names in FITS.values():
        yield from _wrong_fit(*(first[name] for name in names))
    for prefix, answers in EXTENTS.items():
        for names in answers:
            if (first[names[-1]] is None) != (first[f"{prefix}verdict"] is None):
                yield f"a {names[-1]} without a verdict of the fit, or the other way round"
            yield from _wrong_extent(names[0], *(first[name] for name in names))


def _wrong_fit(value: Any, low: Any, high: Any, verdict: Any, doubts: Any) -> Iterator[str]:
    if verdict not in VERDICTS:
        yield f"the unknown verdict {str(verdict)[:40]}"
        return
    if (value is None) == (verdict == "identified"):
        yield "a critical batch size that contradicts its verdict"
    ends = VERDICTS[verdict]
    if any(is_required and end is None for is_required, end in zip(ends, (low, high), strict=True)):
        yield "an interval that contradicts its verdict"
    order = [end for end in (low, value, high) if end is not None]
    if not all(0 < end < float("inf") for end in order) or order != sorted(order):
        yield "an interval without its critical batch size"
    if verdict is None and (order or doubts is not None):
        yield "an interval without a verdict"


def _wrong_extent(name: str, best: Any, low: Any, high: Any, verdict: Any) -> Iterator[str]:
    if verdict not in VERDICTS:
        yield f"the unknown verdict {str(verdict)[:40]}"
        return
    ends = VERDICTS[verdict]
    if any((end is None) != (has is None) for has, end in zip(ends, (low, high), strict=True)):
        yield f"an interval of {name} that contradicts its verdict"
    order = [end for end in (low, high) if end is not None]
    if not all(0 < end < float("inf") for end in [*order, best or 1]) or order != sorted(order):
        yield f"an impossible interval of {name}"


def _is_fitted(row: Fields) -> bool:
    return any(row[name] is not None for name in OF_CURVES - {"curve"})
