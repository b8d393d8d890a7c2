"""Panels that show the trials of a curve: success rates, endings, metaparameters and reruns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy import special

from analysis.fitting.confirmations import middle
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import draw, grid, ticks, tuning
from analysis.plotting.draw import INK, Look, symbol
from analysis.plotting.grid import Panel
from analysis.trials import metaparameters, trials
from analysis.trials.trials import StudyTrials
from results.plans.kinds import along
from results.store import Commit

STYLE = draw.SELECTED
CHOSE: Look = {"linestyle": "none", "marker": "_", "markersize": 9, "markeredgewidth": 1.4, "color": INK}
MOST_QUANTITIES = 3
ACROSS, SMALL = 34, 8.0  # characters per line and font size in points of an empty panel
WIDE = 20.0  # ratios beyond this factor are written as powers
ENDS: dict[str, Look] = {
    "complete": {"facecolor": "#0072B2", "hatch": "", "edgecolor": "white"},
    "infeasible": {"facecolor": "#D55E00", "hatch": "////", "edgecolor": "white"},
    "pruned": {"facecolor": "#BBBBBB", "hatch": "....", "edgecolor": "white"},
    "other incomplete": {"facecolor": "#CC79A7", "hatch": "xxxx", "edgecolor": "white"},
    "missing": {"facecolor": "white", "hatch": "", "edgecolor": INK},
}


class CurveTrials(NamedTuple):
    """A curve with the trials of its studies.

    Attributes:
      one: the curve, with its fits and commits.
      studies: trials of each study, sorted by batch size.
    """

    one: CurveFits
    studies: Sequence[StudyTrials]


def tuning_panels(curve_trials: CurveTrials) -> list[Panel]:
    """Returns panels of the best trial's metaparameters against batch size."""
    space = curve_trials.studies[-1].study.search.space
    quantities_known = metaparameters.quantities(curve_trials.one.curve.tuned, space)
    quantities = tuning.shared_quantities(curve_trials.one, quantities_known)
    return [
        tuning.panel(f"best {quantity.label}", curve_trials.one, quantity) for quantity in quantities[:MOST_QUANTITIES]
    ]


def success_panel(curve_trials: CurveTrials) -> Panel:
    """Returns the panel with the fraction of trials that reached the target, and its interval."""
    title = "share of trials that reached"
    if curve_trials.one.curve.pruned:
        return grid.empty(title, "pruned: final results of losing trials are not known", across=ACROSS, size=SMALL)
    sizes, shares = [], []
    for study in curve_trials.studies:
        rows = study.rows_in_k
        reached = int((rows["outcome"] == trials.REACHED).sum())
        undecided = int((rows["outcome"] == trials.UNDECIDED).sum())
        if len(rows):
            sizes.append(along(study.study))
            shares.append((reached / len(rows), *share_interval(reached, undecided, len(rows))))

    def onto(ax: Axes) -> None:
        middle, low, high = np.array(shares).T
        draw.batch_size_axis(ax, sizes, unit=curve_trials.one.curve.unit)
        ax.vlines(sizes, low, high, color=STYLE.color, alpha=0.35, linewidth=3.2, zorder=2)
        ax.plot(sizes, middle, color=STYLE.color, marker=STYLE.marker, markersize=4.2, linewidth=1, zorder=3)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")

    return Panel(f"{title} (90 %)", onto)


def share_interval(reached: int, undecided: int, n: int) -> tuple[float, float]:
    """Returns a 90 % interval (Clopper and Pearson 1934) for the success probability. Each end is a 95 % bound.

    Args:
      reached: number of trials that reached the target.
      undecided: number of trials with unknown outcome. They count as failures for the lower end, and as successes for
        the upper end.
      n: total number of trials.
    """
    possible = reached + undecided
    low = special.betaincinv(reached, n - reached + 1, 0.05) if reached else 0.0
    high = special.betaincinv(possible + 1, n - possible, 0.95) if possible < n else 1.0
    return float(low), float(high)


def ledger_panel(curve_trials: CurveTrials) -> Panel:
    """Returns the panel that shows how trials ended: planned = complete + infeasible + incomplete + missing."""
    endings: dict[int, np.ndarray] = {}
    for commit in curve_trials.one.curve.workload.commits:
        size = along(commit.study)
        endings[size] = endings.get(size, np.zeros(len(ENDS), int)) + _endings(commit)
    sizes = sorted(endings)
    counts = np.array([endings[size] for size in sizes])
    styles = {name: style for i, (name, style) in enumerate(ENDS.items()) if counts[:, i].any()}

    def onto(ax: Axes) -> None:
        draw.batch_size_axis(ax, sizes, unit=curve_trials.one.curve.unit)
        base = np.zeros(len(sizes))
        left, width = np.array(sizes) / 2**0.36, np.array(sizes) * (2**0.36 - 2**-0.36)
        for name, style in styles.items():
            count = counts[:, list(ENDS).index(name)]
            ax.bar(left, count, width, base, align="edge", linewidth=0.5, zorder=3, **style)
            base += count
        ax.set_ylim(0, base.max() * 1.02)
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_ylabel("trials")

    legend = [Patch(label=name, **style) for name, style in styles.items()]
    return Panel(f"endings of {counts.sum():,} planned trials", onto, legend)


def _endings(commit: Commit) -> np.ndarray:
    ledger = commit.ledger
    incomplete = ledger.time_limit + ledger.lost + ledger.failed + ledger.unstated
    return np.array([ledger.complete, ledger.infeasible, ledger.pruned, incomplete, ledger.missing])


def confirmation_panel(curve_trials: CurveTrials) -> Panel:
    """Returns the panel with ratios of rerun to selected steps. Includes the reruns used to choose the trial."""
    confirmations = curve_trials.one.confirmations
    if not confirmations:
        recorded = curve_trials.one.curve.workload.recorded
        remedy = "Imported runs have no repeats." if recorded else "Use confirm=6."
        why = f"no trial of this target was rerun with fresh seeds. {remedy}"
        return grid.empty("confirmed over selected steps", why, across=ACROSS, size=SMALL)

    def onto(ax: Axes) -> None:
        rows = [
            (
                float(study.batch_size),
                max(study.least[0], 0.5) / steps,
                middle(study.median) / steps,
                study.most[1] / steps,
            )
            for study, steps in ((confirmation, middle(confirmation.selected)) for confirmation in confirmations)
        ]
        chose = [
            (study.batch_size, middle(study.choosing) / middle(study.selected))
            for study in confirmations
            if study.choosing
        ]
        ends = [end for row in rows for end in row[1:]] + [ratio for _, ratio in chose]
        draw.batch_size_axis(ax, [row[0] for row in rows], unit=curve_trials.one.curve.unit)
        ax.axhline(1, color=draw.SELECTED.color, linewidth=1.2, zorder=1.5)
        farthest = max([2.0, *(max(end, 1 / end) * 1.2 for end in ends if np.isfinite(end))])
        ticks.in_powers_of_two(ax.yaxis, (1 / farthest, farthest), compact=farthest > WIDE)
        if chose:
            ax.plot(*zip(*chose, strict=True), **CHOSE)
        draw.markers_with_bars(ax, rows, draw.CONFIRMED)
        ax.set_ylabel("steps / selected steps")

    legend: list[Artist] = [draw.legend_entry(draw.CONFIRMED._replace(line=(0, ())), "confirmed: median, range")]
    if any(study.choosing for study in confirmations):
        legend.append(symbol(label="median that chose it", **CHOSE))
    return Panel("confirmed over selected steps", onto, legend)


PANELS = (success_panel, ledger_panel, confirmation_panel)
