"""Points of a store: the answer of each study for each of its targets, with the fit of the study's curve."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from analysis import kind_views, text, workload_studies
from analysis.cores import core_counts, measured_factorizations
from analysis.cores.core_counts import CoreCurve
from analysis.fitting import curve_fits, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.extents import UNKNOWN
from analysis.fitting.fits import PointsFit
from results.catalog import point_rows
from results.catalog.point_rows import Row, finite
from results.plans.points import EXTENTS, FITS
from results.plans.study import Target, decimal
from results.store import TABLES, Commit, Piece, read_table


def table(commits: Sequence[Commit]) -> pa.Table:
    """Returns the points of studies, sorted by study and target. Columns are ``POINTS``, then metaparameters.

    Args:
      commits: the studies, sorted by name.

    Raises:
      BadInput: a table is damaged.
    """
    by_target: dict[Target | None, list[tuple[Commit, Row]]] = {}
    for commit in commits:
        tables = Piece(*(read_table(commit, name) for name in TABLES))
        for row in point_rows.of_study(commit, commit.study, tables):
            metric = row.get("target_metric")
            by_target.setdefault(metric and Target(metric, row["target_value"]), []).append((commit, row))
    on_cores = _core_curves(commits)
    rows = []
    for target, members in by_target.items():
        fitted = _fits([commit for commit, _ in members], target) if target else {}
        for commit, row in members:
            of_curve = fitted.get(commit.name) or {"curve": on_cores.get(commit.name)}
            rows.append(row | of_curve)
    return point_rows.table(rows)


def _fits(commits: Sequence[Commit], target: Target) -> dict[str, Row]:
    """Returns the fit of the curve of each study, by study name."""
    drawn = kind_views.drawn_as(kind_views.BATCH, commits)
    measured = [commit for commit in drawn if target.metric in commit.metrics]
    by_study: dict[str, Row] = {}
    for workload in workload_studies.group(measured):
        row = _of_curve(curve_fits.of_workload(workload, target))
        by_study |= {commit.name: row for commit in workload.commits}
    return by_study


def _of_curve(fitted: CurveFits) -> Row:
    target = fitted.curve.target
    row = {"curve": f"{fitted.curve.workload.title} · {target.metric} ≤ {decimal(target.value)}"}
    row |= dict(_of_fit("", fitted.selected))
    return row | (dict(_of_fit("confirmed_", fitted.confirmed)) if fitted.confirmed else {})


def _of_fit(prefix: str, points_fit: PointsFit) -> Iterator[tuple[str, Any]]:
    fit = points_fit.fit
    identified = points_fit.verdict == "identified"
    values = (
        finite(fit.critical_batch_size) if fit and identified else None,
        finite(fit.low) if fit else None,
        finite(fit.high) if fit else None,
        points_fit.verdict,
        ", ".join(points_fit.doubts) or None,
    )
    yield from zip(FITS[prefix], values, strict=True)
    for names, extent in zip(EXTENTS[prefix], fits.extents_of(points_fit.points) or (UNKNOWN, UNKNOWN), strict=True):
        yield from zip(
            names, (finite(extent.best), finite(extent.low), finite(extent.high), extent.verdict), strict=True
        )


def _core_curves(commits: Sequence[Commit]) -> dict[str, str]:
    """Returns the curve over cores of each factorization, by study name."""
    curves = core_counts.curves(measured_factorizations.of_commits(commits))
    return {member.study.name: _title(curve) for curve in curves for member in curve.members}


def _title(curve: CoreCurve) -> str:
    study = curve.representative.study
    words = (study.solver, study.table_dtype, curve.distinction, curve.representative.device)
    return text.joined(*study.labels, *words)
