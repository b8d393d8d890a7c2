"""Workloads with their targets and results, and functions that describe them on the page."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text, workload_studies
from analysis.figures import paper_lines, requests
from analysis.figures.requests import FigureRequest
from analysis.fitting import curve_fits, regimes
from analysis.fitting.confirmations import Confirmed, middle
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from analysis.plotting.ticks import Ends
from analysis.trials import rerun_targets, trials
from analysis.workload_studies import WorkloadStudies
from results.aliases import OnCount
from results.bad_input import number_of
from results.durable import Folder
from results.plans.kinds import along
from results.plans.study import METRICS, RERUNS, Target, TargetRequest
from results.store import Commit, read_table

SHORTFALL = "validation_shortfall"  # becomes 0, which serves as the target, once a benchmark's own target is met
MOST_METAPARAMETERS = 10
UNCLEAR = "unclear"
REGIMES = (*regimes.REGIMES, UNCLEAR)


class WorkloadRow(NamedTuple):
    """A row of the page: a workload and, if it has a target, its curve.

    Attributes:
      workload: the studies.
      fitted: the curve with its fits, or None if there is no target.
      metric: error to show, or None if there are no measurements.
      best: lowest error by batch size. If there is a target, only for batch sizes at which it was missed.
    """

    workload: WorkloadStudies
    fitted: CurveFits | None
    metric: str | None
    best: Mapping[int, float]

    @property
    def kind(self) -> str:
        return self.workload.commits[0].kind

    @property
    def sizes(self) -> list[int]:
        """Batch sizes, sorted."""
        return sorted({along(commit.study) for commit in self.workload.commits})

    @property
    def target_text(self) -> str:
        """Target as text."""
        return self.fitted.curve.target_text if self.fitted else "no target"

    @property
    def series(self) -> str:
        """Name of the series within its panel."""
        workload = self.workload
        return f"{workload.optimizer} ({workload.distinction})" if workload.distinction else workload.optimizer


def read_goals(folder: Folder, target: TargetRequest = None, move: OnCount = lambda _: None) -> list[WorkloadRow]:
    """Reads all batch-size workloads, once per target.

    Args:
      folder: folder of the store or release.
      target: target to use instead of the studies' own.
      move: called with the number of studies read so far.
    """
    goals, done = [], 0
    workloads = workload_studies.of_store(folder)
    reachable = rerun_targets.of_workloads(workloads) if target == RERUNS else {}
    for workload in workloads:
        if target == RERUNS:
            wanted = [own_target for own_target, members in reachable.items() if workload in members]
        else:
            wanted = _targets(workload, target)
        goals += [_with_target(workload, own_target) for own_target in wanted] or [_without(workload)]
        done += len(workload.commits)
        move(done)
    return goals


def answers(goal: WorkloadRow) -> list[tuple[str, PointsFit]]:
    """Returns the selected fit and, if there are reruns, the confirmed one, each with its name."""
    return curve_fits.answers(goal.fitted) if goal.fitted else []


def reason(goal: WorkloadRow, points_fit: PointsFit) -> str:
    """Returns the reason for a verdict. Omits distinguishing fields of the workload, which are shown elsewhere."""
    return points_fit.reason.removeprefix(f"{goal.workload.distinction}; ")


def extent(points_fit: PointsFit, ends: Ends) -> tuple[float, float | None, float] | None:
    """Returns the lower end, best value and upper end of *pays up to*, as positions on a logarithmic axis.

    Args:
      points_fit: a fit.
      ends: batch sizes at positions 0 and 1.

    Returns:
      The positions, or None if both ends are open. The best value is None if it is beyond the data.
    """
    pays = points_fit.pays
    if pays.verdict == "not_identified":
        return None

    def share(size: float, otherwise: float) -> float:
        position = math.log(size / ends[0]) / math.log(ends[1] / ends[0]) if math.isfinite(size) else otherwise
        return min(1.0, max(0.0, position))

    return share(pays.low, 0.0), share(pays.best, 0.0) if math.isfinite(pays.best) else None, share(pays.high, 1.0)


def pays(goal: WorkloadRow) -> str:
    """Returns the selected *pays up to*, such as ``96 [64, 210]``, or an empty string if there is no curve."""
    fitted = goal.fitted
    return fitted.selected.extents_in_words[0] if fitted and fitted.drawable else ""


def regimes_in_words(points_fit: PointsFit) -> list[tuple[int, str]]:
    """Describes the regimes of the measured batch sizes, such as ``perfect scaling 1 … 16``. Empty without a fit.

    Returns:
      The index in ``REGIMES`` and a description of each run of batch sizes.
    """
    fit = points_fit.fit
    if not fit:
        return []
    named = zip(fit.batch_size.tolist(), regimes.names(fit, fit.batch_size).tolist(), strict=True)
    runs = []
    for name, sizes_of_regime in itertools.groupby(named, key=lambda pair: pair[1]):
        regime = regime_index(name)
        span = text.span([size for size, _ in sizes_of_regime], " … ")
        runs.append((regime, f"{REGIMES[regime]} {span}"))
    return runs


def regime_index(name: str) -> int:
    """Returns the index of a regime in ``REGIMES``."""
    return REGIMES.index(name if name in REGIMES else UNCLEAR)


def shortcomings(goal: WorkloadRow) -> list[str]:
    """Returns a line for each batch size at which the target was missed, with the lowest error."""
    fitted = goal.fitted
    if fitted is None:
        return []
    words = []
    for size, budget in sorted(fitted.missed.items()):
        miss = f"not reached at batch size {size:,.0f} within {budget:,.0f} steps"
        words.append(miss + (f": best {_error(goal, int(size))}" if int(size) in goal.best else ""))
    if not fitted.drawable and fitted.selected.points.refusal:
        words.append(f"no curve: {fitted.selected.points.refusal}")
    return words


def best_in_words(goal: WorkloadRow) -> str:
    """Describes the lowest error of a workload without a target. Empty for other workloads."""
    if goal.fitted or not goal.best:
        return ""
    size = min(goal.best, key=lambda batch_size: goal.best[batch_size])
    return f"best {_error(goal, size)} at batch size {size:,}"


def describe_selected(goal: WorkloadRow, size: int) -> list[tuple[str, str]]:
    """Returns the selected answer at a batch size, as name-value pairs."""
    assert goal.fitted is not None
    fitted, points = goal.fitted, goal.fitted.selected.points
    places = np.flatnonzero(points.batch_size == size)
    commits = [commit for commit in goal.workload.commits if along(commit.study) == size]
    facts = [("batch size", f"{size:,} {goal.workload.unit}")]
    if len(places):
        facts.append(("steps to target", _interval(float(points.low[places[0]]), float(points.high[places[0]]))))
    else:
        facts.append(("steps to target", f"more than {fitted.missed[size]:,.0f}: not reached within the budget"))
        if size in goal.best:
            facts.append(("best error", _error(goal, size)))
    best = fitted.best.get(size)
    if best is not None:
        trial = f"{int(best['trial'])}, the best of {points.trials}"
        facts += [("trial", trial), *_metaparameters(best)]
    facts += [
        (curve_fits.CONFIRMED, _again(confirmation))
        for confirmation in fitted.confirmations
        if confirmation.batch_size == size
    ]
    return [*facts, *(("study", commit.name) for commit in commits)]


def describe_confirmed(goal: WorkloadRow, confirmation: Confirmed) -> list[tuple[str, str]]:
    """Returns the confirmed answer at a batch size, as name-value pairs."""
    which = (
        "the best of the search" if confirmation.chosen == confirmation.best else "chosen among the best of the search"
    )
    facts = [
        ("batch size", f"{confirmation.batch_size:,} {goal.workload.unit}"),
        (curve_fits.CONFIRMED, _again(confirmation)),
        ("trial", f"{confirmation.chosen}, {which}"),
    ]
    if confirmation.choosing:
        facts.append(("median that chose it", _steps(confirmation.choosing)))
    return [*facts, (curve_fits.SELECTED, _interval(*confirmation.selected)), ("study", confirmation.study)]


def _targets(workload: WorkloadStudies, target: tuple[str, float] | None) -> list[Target]:
    if target:
        return requests.targets(workload, FigureRequest("steps", metric=target[0], values=target[1:]))
    own_targets = requests.targets(workload, FigureRequest("steps"))
    short = any(SHORTFALL in commit.metrics for commit in workload.commits)
    return own_targets or ([Target(SHORTFALL, 0.0)] if short else [])


def _with_target(workload: WorkloadStudies, target: Target) -> WorkloadRow:
    fitted = curve_fits.of_workload(workload, target)
    best: dict[int, float] = {}
    for commit in workload.commits:
        size = along(commit.study)
        if size in fitted.missed:
            _lowest(best, commit, target.metric, fitted.trials[size]["trial"].tolist())
    return WorkloadRow(workload, fitted, target.metric, best)


def _without(workload: WorkloadStudies) -> WorkloadRow:
    measured = {metric for commit in workload.commits for metric in commit.metrics if metric in METRICS}
    of_paper = paper_lines.metrics(workload.dataset, workload.model, workload.optimizer)
    ranked = [metric for metric in [*of_paper, *sorted(measured, key=_precedence)] if metric in measured]
    best: dict[int, float] = {}
    for commit in workload.commits if ranked else ():
        _lowest(best, commit, ranked[0], read_table(commit, "trials")["trial"].to_pylist())
    return WorkloadRow(workload, None, ranked[0] if ranked else None, best)


def _precedence(metric: str) -> tuple[int, bool, int]:
    split = ("validation", "test", "train").index(metric.partition("_")[0])
    return split, metric.endswith("_loss"), METRICS.index(metric)


def _lowest(best: dict[int, float], commit: Commit, metric: str, trial_ids: Sequence[int]) -> None:
    size = along(commit.study)
    error = float(trials.best_within(commit, metric, trial_ids, [math.inf]).errors[0])
    if math.isfinite(error):
        best[size] = min(error, best.get(size, math.inf))


def _error(goal: WorkloadRow, size: int) -> str:
    assert goal.metric is not None
    metric, value = text.as_quality(goal.metric, goal.best[size])
    return f"{metric.replace('_', ' ')} {value:.4g}"


def _interval(low: float, high: float) -> str:
    return f"at most {high:,.0f}" if low <= 0 else f"more than {low:,.0f}, at most {high:,.0f}"


def _metaparameters(best: pd.Series) -> list[tuple[str, str]]:
    names = [str(name) for name in best.index if name not in trials.COLUMNS]
    finite = [name for name in names if math.isfinite(best[name])]
    return [(name.replace("_", " "), f"{best[name]:.4g}") for name in finite[:MOST_METAPARAMETERS]]


def _again(confirmation: Confirmed) -> str:
    seeds = number_of(confirmation.repeats, "fresh seed")
    if not confirmation.reached:
        return f"{seeds} did not reach the target"
    steps = f"median {_steps(confirmation.median)}"
    largest = f"{confirmation.most[1]:,.0f}" if math.isfinite(confirmation.most[1]) else "never"
    return f"{steps}, {confirmation.least[1]:,.0f} … {largest}; {confirmation.reached} of {seeds} reached"


def _steps(ends: Ends) -> str:
    return f"{middle(ends):,.0f} steps" if math.isfinite(ends[1]) else "never reached"
