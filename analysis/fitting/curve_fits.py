"""Fits of a store's curves: the selected estimate of each curve and, if there are repeats, the confirmed one.

Fits by k show how the critical batch size depends on the number of trials per point. The minimum decreases as the
search grows. It decreases faster if fewer trials reach the target. The first k trials of each study form a search of k
trials. Studies without pruning therefore have a fit for every k up to their number of trials. Pruned studies have a fit
only for the full number.
"""

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import workload_studies
from analysis.columns import PAIRS as COLUMNS
from analysis.fitting import confirmations, curves, fit_tables, fits, regimes
from analysis.fitting.confirmations import Confirmed
from analysis.fitting.curves import Curve, Points, TrialFilter
from analysis.fitting.fits import PointsFit
from analysis.trials import steps_to_target, trials
from analysis.workload_studies import WorkloadStudies
from results import progress
from results.aliases import Strings
from results.bad_input import BadInput
from results.durable import Folder
from results.located import located
from results.plans.kinds import along
from results.plans.study import Target, TargetRequest, decimal
from results.printing import Report
from results.rules.answers import MINIMUM, Rule

SELECTED, CONFIRMED = ANSWERS = ("selected", "confirmed")
MOVED = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "selected": "critical batch size, if identified",
    "confirmed": "critical batch size, if identified",
    "octaves": "shift from selected to confirmed, in factors of two",
    "inside": "whether the confirmed one is in the 90 % interval of the selected one",
}
FEWEST_TRIALS = 8  # fewer are hardly a search


class CurveFits(NamedTuple):
    """A curve with its fits.

    Attributes:
      curve: a workload at several batch sizes, with a target.
      selected: the points selected by the search, with their fit.
      trials: the trials from which each point was selected, by batch size, over all studies at that batch size. Rows
        have the format of ``trials.trials``. Batch sizes that met the target at the start are omitted.
      missed: batch sizes at which no trial reached the target, each with the largest number of steps of any trial.
      confirmations: studies that have a confirmed answer, by batch size.
      confirmed: fit of the confirmed answers, or None if there are no repeats.
      label: name in a legend.
    """

    curve: Curve
    selected: PointsFit
    trials: Mapping[int, pd.DataFrame] = MappingProxyType({})
    missed: Mapping[float, float] = MappingProxyType({})
    confirmations: Sequence[Confirmed] = ()
    confirmed: PointsFit | None = None
    label: str = ""

    @property
    def drawable(self) -> bool:
        """Whether there are any points."""
        return len(self.selected.points.batch_size) > 0

    @property
    def why_nothing(self) -> str:
        """The reason why there are no points."""
        return self.selected.points.refusal or "no trial reached the target at any batch size"

    @property
    def best(self) -> dict[int, pd.Series]:
        """The trial with the fewest steps at each batch size (the smallest number on ties)."""
        best = {}
        for size, rows in self.trials.items():
            reached = rows[rows["outcome"] == trials.REACHED]
            if len(reached):
                best[size] = reached.sort_values(["steps_high", "trial"]).iloc[0]
        return best

    def steps_at(self, batch_size: int, *, evaluated: bool = False) -> float:
        """Returns the selected steps to target at a batch size, or NaN if there is no point.

        They are the midpoint of the interval or, with ``evaluated``, its end: the first evaluated step.
        """
        points = self.selected.points
        position = np.flatnonzero(points.batch_size == batch_size)
        steps = points.high if evaluated else (regimes.from_zero(points.low) + points.high) / 2
        return float(steps[position[0]]) if len(position) else math.nan


@located
def of_store(folder: Folder, request: TargetRequest = None, report: Report | None = None) -> list[CurveFits]:
    """Returns a store's curves with their fits.

    Args:
      folder: folder of the store.
      request: target (metric, value) to use instead of the studies' own.
      report: called with progress lines.
    """
    began = time.monotonic()
    return of_curves(curves.of_store(*steps_to_target.load(folder, request)), report, began)


def of_curves(
    curves_of_store: Sequence[Curve], report: Report | None = None, began: float | None = None
) -> list[CurveFits]:
    """Returns curves with their fits. See ``progress.track`` for ``report`` and ``began``."""
    return [of_curve(curve) for curve in progress.track(curves_of_store, "fit", " curves", report, began)]


def of_workload(
    workload: WorkloadStudies, target: Target, rule: Rule = MINIMUM, kept: TrialFilter | None = None, label: str = ""
) -> CurveFits:
    """Returns a workload's curve with its fits. See ``curves.of_workload``. ``label`` appears in a legend."""
    return of_curve(curves.of_workload(workload, target, rule, kept))._replace(label=label)


def of_curve(curve: Curve) -> CurveFits:
    """Returns a curve with both of its fits."""
    repeated = curve.exact and not curve.split and not curve.rule.strict
    confirmed = confirmations.of_commits(curve.workload.commits, curve.target) if repeated else []
    selected = fits.of_curve(curve)
    return CurveFits(
        curve,
        selected,
        _taken(curve, selected.points),
        dict(zip(*curves.misses(curve, selected.points), strict=True)),
        confirmed,
        fits.of_points(confirmations.points(confirmed), curve.distinction) if confirmed else None,
    )


def _taken(curve: Curve, points: Points) -> dict[int, pd.DataFrame]:
    """Returns the trials from which each point was selected, by batch size."""
    ids = curve.trials.groupby("study")["trial"]
    ids_by_study = {name: set(trial_ids if curve.pruned else trial_ids[: points.trials]) for name, trial_ids in ids}
    by_size: dict[int, list[pd.DataFrame]] = {}
    at_start = curves.met_at_start(curve)
    for study, rows in curve.trials_by_rule:
        size = along(study.study)
        if size not in at_start:
            by_size.setdefault(size, []).append(rows[rows["trial"].isin(ids_by_study.get(study.study.name, set()))])
    return {size: pd.concat(rows, ignore_index=True) for size, rows in by_size.items()}


def comparable_groups(fitted: Sequence[CurveFits], *leaving: str) -> list[tuple[Strings, list[CurveFits]]]:
    """Groups curves with the same data set, model and target if their plans agree in all fields except ``leaving``.

    Returns:
      The name of each group (data set, model, metric, value, and any fields that distinguish it from similar groups)
      and its curves.
    """

    def names(curve: CurveFits) -> Strings:
        return curve.curve.dataset, curve.curve.model, curve.curve.target.metric, decimal(curve.curve.target.value)

    def shared(line: CurveFits) -> dict[str, object]:
        return {field: value for field, value in line.curve.shared.items() if field not in leaving}

    groups = workload_studies.alike(fitted, names, shared)
    return [(tuple(filter(None, (*names(group.members[0]), group.distinction))), group.members) for group in groups]


def answers(curve: CurveFits) -> list[tuple[str, PointsFit]]:
    """Returns the fits of a curve by name: ``selected``, and ``confirmed`` if it exists."""
    selected = (SELECTED, curve.selected)
    return [selected, (CONFIRMED, curve.confirmed)] if curve.confirmed else [selected]


def rows(fitted: Sequence[CurveFits]) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Returns a table with one row for each fit of each curve (names and ``COLUMNS``), and the fits."""
    names, points_fits = [], []
    for curve in fitted:
        for estimate, points_fit in answers(curve):
            names.append((curve.curve, estimate, curve.selected.points.trials))
            points_fits.append(points_fit)
    return naming(names), points_fits


@located
def table(folder: Folder, request: TargetRequest = None) -> pd.DataFrame:
    """Returns a table with one row for each fit of each curve in a store: name, ``COLUMNS``, then ``fits.COLUMNS``."""
    return fit_tables.table(*rows(of_store(folder, request)))


def naming(curves: Sequence[tuple[Curve, str, int | None]]) -> pd.DataFrame:
    """Returns a table with one row per fit: the curve's name, the estimate and the number of trials per point."""
    columns = ["dataset", "model", "optimizer", "target_metric", "target_value", "unit", *COLUMNS]
    values = [
        (c.dataset, c.model, c.optimizer, c.target.metric, c.target.value, c.unit, curve, k) for c, curve, k in curves
    ]
    return pd.DataFrame(values, columns=columns).astype({"trials_per_point": "Int64"})


def moves(fitted: Sequence[CurveFits]) -> pd.DataFrame:
    """Returns one row of ``MOVED`` per curve with a confirmed fit. Cells are empty if a knee is not identified."""
    table = []
    for curve in fitted:
        if curve.confirmed is None:
            continue
        before, after = (critical_batch_size(points_fit) for points_fit in (curve.selected, curve.confirmed))
        fit, octaves = curve.selected.fit, float(np.log2(after / before))
        inside = bool(fit.low <= after <= fit.high) if fit and np.isfinite(octaves) else None
        table.append((curve.curve.dataset, curve.curve.model, curve.curve.optimizer, before, after, octaves, inside))
    return pd.DataFrame(table, columns=list(MOVED))


def critical_batch_size(points_fit: PointsFit) -> float:
    """Returns the critical batch size in examples, or NaN unless it is identified."""
    return points_fit.fit.critical_batch_size if points_fit.fit and points_fit.verdict == "identified" else float("nan")


def trial_numbers(curve: CurveFits) -> list[int]:
    """Returns the powers of two from ``FEWEST_TRIALS`` up to a curve's number of trials, and the number itself."""
    count = curve.selected.points.trials or 0
    if curve.curve.pruned or count < FEWEST_TRIALS:
        return [count] if count else []
    powers = [2**i for i in range(FEWEST_TRIALS.bit_length() - 1, count.bit_length()) if 2**i < count]
    return [*powers, count]


def rows_by_k(
    curves: Sequence[CurveFits], ks: Sequence[int], report: Report | None = None
) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Returns a table of names and numbers of trials, one row for each k of each curve, sorted by k, and the fits.

    Numbers at which a curve cannot be fitted are skipped. ``report`` is called with progress lines.

    Raises:
      BadInput: no curve can be fitted at any requested number of trials.
    """
    wanted = [(curve, k) for curve in curves for k in sorted(set(ks)) if _has(curve, k)]
    if not wanted:
        available = sorted({k for curve in curves for k in trial_numbers(curve)})
        missing, choices = (", ".join(map(str, numbers)) for numbers in (ks, available))
        raise BadInput(f"no curve can be fitted at the best of {missing} trials. Available: {choices or 'none'}.")
    fitted = [
        curve.selected if k == curve.selected.points.trials else fits.of_curve(first_trials(curve.curve, k))
        for curve, k in progress.track(wanted, "fit by number of trials", " curves", report)
    ]
    return naming([(curve.curve, SELECTED, k) for curve, k in wanted]), fitted


def notes_by_k(curves: Sequence[CurveFits], ks: Sequence[int]) -> list[str]:
    """Returns a note on requested numbers of trials that are not available for any curve."""
    missing = [k for k in sorted(set(ks)) if not any(_has(curve, k) for curve in curves)]
    return [f"no curve can be fitted at the best of {', '.join(map(str, missing))} trials"] if missing else []


def first_trials(curve: Curve, k: int) -> Curve:
    """Returns the curve obtained from the first k trials that count in each study."""
    return curve._replace(trials=curve.trials[curve.trials.groupby("study").cumcount() < k])


def _has(curve: CurveFits, k: int) -> bool:
    count = curve.selected.points.trials or 0
    return k == count or (k < count and not curve.curve.pruned)
