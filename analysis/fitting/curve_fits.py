"""Pairs: the curves of a store, each fitted as it was selected and, where repeats report, as it was confirmed.

By k, they tell how the critical batch size moves with the number of trials that every point is the best of. A minimum
falls as the search grows, and more where fewer trials reach the target. The first k trials of each study are a search
of k of their own, so that studies whose losing trials were not cut short tell of every k up to their number; pruned
ones tell of that number alone.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import workload_studies
from analysis.columns import PAIRS as COLUMNS
from analysis.fitting import confirmations, curves, fits, regimes
from analysis.fitting.confirmations import Confirmed
from analysis.fitting.curves import Curve, Points, TrialFilter
from analysis.fitting.fits import PointsFit
from analysis.trials import steps, trials
from analysis.workload_studies import WorkloadStudies
from results.bad_input import BadInput
from results.durable import Folder, located
from results.plans.study import Target, decimal, digest
from results.rules.answers import MINIMUM, Rule

SELECTED, CONFIRMED = ANSWERS = ("selected", "confirmed")
MOVED = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "selected": "critical batch size, if identified",
    "confirmed": "critical batch size, if identified",
    "octaves": "from the one to the other, in factors of two",
    "inside": "whether the confirmed one is in the 90 % interval of the selected one",
}
FEWEST_TRIALS = 8  # trials; fewer are hardly a search


class CurveFits(NamedTuple):
    """A curve with its fits.

    Attributes:
      curve: a workload over batch sizes, and a target.
      selected: points and their fit, as the search selected them.
      trials: those that its points are the best of, by batch size, without those at which the target was met at the
        start; rows as in ``trials.trials``. Of several studies at one batch size, of all.
      missed: batch sizes at which none reached the target, and the most steps that one took there.
      confirmations: studies whose answer was confirmed, by batch size.
      confirmed: the fit of what was confirmed; None if nothing was.
      label: what a legend calls it.
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
        """True if there is any point."""
        return len(self.selected.points.batch_size) > 0

    @property
    def why_nothing(self) -> str:
        """Why there is no point."""
        return self.selected.points.refusal or "no trial reached the target at any batch size"

    @property
    def best(self) -> dict[int, pd.Series]:
        """The trial with the fewest steps at every batch size; of equals the one with the smallest number."""
        best = {}
        for size, rows in self.trials.items():
            reached = rows[rows["outcome"] == trials.REACHED]
            if len(reached):
                best[size] = reached.sort_values(["steps_high", "trial"]).iloc[0]
        return best

    def steps_at(self, batch_size: int) -> float:
        """Steps to target as selected, the middle of their interval; NaN where there is no point."""
        points = self.selected.points
        position = np.flatnonzero(points.batch_size == batch_size)
        middle = (regimes.from_zero(points.low) + points.high) / 2
        return float(middle[position[0]]) if len(position) else math.nan


@located
def of_store(folder: Folder, request: tuple[str, float] | None = None) -> list[CurveFits]:
    """The curves of a store with their fits; ``request``: metric and value of a target other than the studies' own."""
    return [of_curve(curve) for curve in curves.of_store(*steps.load(folder, request))]


def of_workload(
    workload: WorkloadStudies, target: Target, rule: Rule = MINIMUM, kept: TrialFilter | None = None, label: str = ""
) -> CurveFits:
    """The curve of a workload with its fits; see ``curves.of_workload``. ``label`` is for a legend."""
    return of_curve(curves.of_workload(workload, target, rule, kept))._replace(label=label)


def of_curve(curve: Curve) -> CurveFits:
    """A curve with both of its fits."""
    repeated = curve.exact and not curve.split and not curve.rule.strict
    again = confirmations.of_commits(curve.workload.commits, curve.target) if repeated else []
    selected = fits.of_curve(curve)
    return CurveFits(
        curve,
        selected,
        _taken(curve, selected.points),
        dict(zip(*curves.misses(curve, selected.points), strict=True)),
        again,
        fits.of_points(confirmations.points(again), curve.distinction) if again else None,
    )


def _taken(curve: Curve, points: Points) -> dict[int, pd.DataFrame]:
    """The trials that points are the best of, by batch size."""
    ids = curve.trials.groupby("study")["trial"]
    ids_by_study = {name: set(own if curve.pruned else own[: points.trials]) for name, own in ids}
    by_size: dict[int, list[pd.DataFrame]] = {}
    at_start = curves.met_at_start(curve)
    for one, rows in curve.trials_by_rule:
        size = one.study.batch_size or 0
        if size not in at_start:
            by_size.setdefault(size, []).append(rows[rows["trial"].isin(ids_by_study.get(one.study.name, set()))])
    return {size: pd.concat(rows, ignore_index=True) for size, rows in by_size.items()}


def comparable_groups(fitted: Sequence[CurveFits], *leaving: str) -> list[tuple[tuple[str, ...], list[CurveFits]]]:
    """Curves of one data set, model and target whose studies agree in all of their plans but the fields ``leaving``.

    Returns:
      Of each group its name (data set, model, metric, value, and what tells it from groups that look alike, if there
      are any) and its curves.
    """
    shared: dict[str, dict[str, object]] = {}
    groups: dict[tuple[str, ...], dict[str, list[CurveFits]]] = {}
    for one in fitted:
        rest = {field: value for field, value in one.curve.shared.items() if field not in leaving}
        shared[digest(rest)] = rest
        names = (one.curve.dataset, one.curve.model, one.curve.target.metric, decimal(one.curve.target.value))
        groups.setdefault(names, {}).setdefault(digest(rest), []).append(one)
    return [
        ((*names, *([words] if words else [])), members)
        for names, own in groups.items()
        for key, members in own.items()
        for words in [workload_studies.distinction(key, {other: shared[other] for other in own})]
    ]


def answers(one: CurveFits) -> list[tuple[str, PointsFit]]:
    """The fits of a curve by name: selected, and confirmed if anything was."""
    return [(SELECTED, one.selected), *([(CONFIRMED, one.confirmed)] if one.confirmed else [])]


def rows(fitted: Sequence[CurveFits]) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Names of curves and ``COLUMNS``, a row for every fit of each curve, with the fits."""
    answer_rows = [
        (one.curve, of, one.selected.points.trials, points_fit) for one in fitted for of, points_fit in answers(one)
    ]
    return naming([row[:3] for row in answer_rows]), [points_fit for *_, points_fit in answer_rows]


@located
def table(folder: Folder, request: tuple[str, float] | None = None) -> pd.DataFrame:
    """The fits of a store, a row for every answer of each curve: its name, ``COLUMNS``, then ``fits.COLUMNS``."""
    return fits.table(*rows(of_store(folder, request)))


def naming(curves: Sequence[tuple[Curve, str, int | None]]) -> pd.DataFrame:
    """Names of curves, the kind of their points and the number of trials, a row each."""
    columns = ["dataset", "model", "optimizer", "target_metric", "target_value", *COLUMNS]
    values: list[tuple[Any, ...]] = [
        (c.dataset, c.model, c.optimizer, c.target.metric, c.target.value, of, k) for c, of, k in curves
    ]
    return pd.DataFrame(values, columns=columns).astype({"trials_per_point": "Int64"})


def moves(fitted: Sequence[CurveFits]) -> pd.DataFrame:
    """A row of ``MOVED`` for every curve of which anything was confirmed; empty where a knee is not identified."""
    table = []
    for one in fitted:
        if one.confirmed is None:
            continue
        before, after = (critical_batch_size(points_fit) for points_fit in (one.selected, one.confirmed))
        fit, octaves = one.selected.fit, float(np.log2(after / before))
        inside = bool(fit.low <= after <= fit.high) if fit and np.isfinite(octaves) else None
        table.append((one.curve.dataset, one.curve.model, one.curve.optimizer, before, after, octaves, inside))
    return pd.DataFrame(table, columns=list(MOVED))


def critical_batch_size(points_fit: PointsFit) -> float:
    """The critical batch size, examples; NaN unless it is identified."""
    return points_fit.fit.critical_batch_size if points_fit.fit and points_fit.verdict == "identified" else float("nan")


class AtK(NamedTuple):
    """The fit of a curve whose points are the best of k trials each."""

    one: CurveFits
    k: int
    selected: PointsFit


def trial_numbers(one: CurveFits) -> list[int]:
    """Powers of two that a curve tells of, from ``FEWEST`` on, and how many trials it has."""
    count = one.selected.points.trials or 0
    if one.curve.pruned or count < FEWEST_TRIALS:
        return [count] if count else []
    powers = [2**i for i in range(FEWEST_TRIALS.bit_length() - 1, count.bit_length()) if 2**i < count]
    return [*powers, count]


def refit_by_k(curves: Sequence[CurveFits], ks: Sequence[int] = ()) -> list[AtK]:
    """Every curve by k, sorted by k within a curve.

    Args:
      curves: curves.
      ks: numbers of trials; those at which a curve cannot be fitted are left out. Empty: those of ``numbers``.
    """
    return [
        AtK(one, k, one.selected if k == one.selected.points.trials else fits.of_curve(first_trials(one.curve, k)))
        for one in curves
        for k in sorted(set(ks or trial_numbers(one)))
        if _tells_of(one, k)
    ]


def rows_by_k(curves: Sequence[CurveFits], ks: Sequence[int]) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Names of curves and numbers of trials, a row for every k of each curve, with the fits.

    Raises:
      BadInput: no curve tells of any number of trials that is asked for.
    """
    refits = refit_by_k(curves, ks)
    if not refits:
        available = sorted({k for one in curves for k in trial_numbers(one)})
        wanted, there_are = (", ".join(map(str, each)) for each in (ks, available))
        raise BadInput(f"no curve can be fitted at the best of {wanted} trials; available: {there_are or 'none'}")
    return naming([(at.one.curve, SELECTED, at.k) for at in refits]), [at.selected for at in refits]


def notes_by_k(curves: Sequence[CurveFits], ks: Sequence[int]) -> list[str]:
    """A note that names the requested numbers of trials that no curve has."""
    missing = [k for k in sorted(set(ks)) if not any(_tells_of(one, k) for one in curves)]
    return [f"no curve can be fitted at the best of {', '.join(map(str, missing))} trials"] if missing else []


def table_by_k(refits: Sequence[AtK]) -> pd.DataFrame:
    """Critical batch sizes in words: a row for every curve, a column for every k."""
    groups = comparable_groups([at.one for at in refits], "optimizer", "targets", "pruning")
    apart = {one.curve.key: " ".join(names[4:]) for names, members in groups for one in members}
    names = naming([(at.one.curve, SELECTED, at.k) for at in refits])
    names["words"] = [fits.critical_in_words(at.selected) for at in refits]
    names["estimate"] = [apart[at.one.curve.key] for at in refits]
    keys = ["dataset", "model", "optimizer", "target_value", *(["estimate"] if names["estimate"].any() else [])]
    return names.pivot_table(index=keys, columns="trials_per_point", values="words", aggfunc=", ".join, sort=False)


def first_trials(curve: Curve, k: int) -> Curve:
    """The curve of the first k trials of each study, of those that count."""
    return curve._replace(trials=curve.trials[curve.trials.groupby("study").cumcount() < k])


def _tells_of(one: CurveFits, k: int) -> bool:
    count = one.selected.points.trials or 0
    return k == count or (k < count and not one.curve.pruned)
