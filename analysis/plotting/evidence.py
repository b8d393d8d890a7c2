"""Evidence: panels on what the trials of a curve say beside its fit."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.fitting import line as lines
from analysis.fitting.confirmations import middle
from analysis.fitting.pairs import Fitted
from analysis.plotting import draw, ticks, tuning
from analysis.plotting.draw import INK
from analysis.trials import best_of, metaparameters, trials
from analysis.trials.trials import StudyTrials
from results.storage.commits import Commit

STYLE = draw.SELECTED
CHOSE: dict[str, Any] = {"linestyle": "none", "marker": "_", "markersize": 9, "markeredgewidth": 1.4, "color": INK}
MOST_QUANTITIES = 3
WIDE = 20.0  # a factor beyond which ratios are shown as powers
ENDS = {
    "complete": ("#0072B2", ""),
    "infeasible": ("#D55E00", "////"),
    "pruned": ("#BBBBBB", "...."),
    "other incomplete": ("#CC79A7", "xxxx"),
    "missing": ("white", ""),
}


class Panel(NamedTuple):
    """One of the small pairs of axes: its title, what draws on it, and what its legend shows."""

    title: str
    draw: Callable[[Axes], None]
    legend: Sequence[Artist] = ()


class Evidence(NamedTuple):
    """What a page is drawn from.

    Attributes:
      one: the curve, its fit and its commits.
      studies: trials of each of its studies, by batch size.
    """

    one: Fitted
    studies: Sequence[StudyTrials]


def tuned(page: Evidence) -> list[Panel]:
    """Metaparameters of the best trial against batch size."""
    line = lines.of("", page.one.commits, page.one.curve.target)
    space = page.studies[-1].study.space
    quantities = tuning.present(line, metaparameters.quantities(line.tuned, space))
    drawn = [tuning.panel(f"best {quantity.label}", line, quantity) for quantity in quantities]
    return [Panel(*panel) for panel in drawn[:MOST_QUANTITIES]]


def success(page: Evidence) -> Panel:
    """The share of trials that reached the target, with its interval."""
    title = "share of trials that reached"
    if page.one.curve.pruned:
        return _absent(title, "pruned: what losing trials would have come to is not known")
    sizes, shares = [], []
    for study in page.studies:
        rows = study.counting
        reached = int((rows["outcome"] == trials.REACHED).sum())
        undecided = int((rows["outcome"] == trials.UNDECIDED).sum())
        if len(rows):
            sizes.append(study.study.batch_size or 0)
            shares.append((reached / len(rows), *best_of.share(reached, undecided, len(rows))))

    def onto(ax: Axes) -> None:
        middle, low, high = np.array(shares).T
        _across(ax, sizes)
        ax.vlines(sizes, low, high, color=STYLE.color, alpha=0.35, linewidth=3.2, zorder=2)
        ax.plot(sizes, middle, color=STYLE.color, marker=STYLE.marker, markersize=4.2, linewidth=1, zorder=3)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")

    return Panel(f"{title} (90 %)", onto)


def ledger(page: Evidence) -> Panel:
    """planned = complete + infeasible + incomplete + missing, at every batch size."""
    counted: dict[int, np.ndarray] = {}
    for commit in page.one.commits:
        size = commit.study.batch_size or 0
        counted[size] = counted.get(size, np.zeros(len(ENDS), int)) + _ended(commit)
    sizes = sorted(counted)
    counts = np.array([counted[size] for size in sizes])
    there = [i for i in range(len(ENDS)) if counts[:, i].any()]

    def onto(ax: Axes) -> None:
        _across(ax, sizes)
        base = np.zeros(len(sizes))
        left, width = np.array(sizes) / 2**0.36, np.array(sizes) * (2**0.36 - 2**-0.36)
        for i, (color, hatch) in enumerate(ENDS.values()):
            if i not in there:
                continue
            bars: dict[str, Any] = {
                "facecolor": color,
                "hatch": hatch,
                "edgecolor": INK if color == "white" else "white",
            }
            ax.bar(left, counts[:, i], width, base, align="edge", linewidth=0.5, zorder=3, **bars)
            base += counts[:, i]
        ax.set_ylim(0, base.max() * 1.02)
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_ylabel("trials")

    legend = [
        Patch(facecolor=color, hatch=hatch, edgecolor=INK if color == "white" else "white", label=name)
        for i, (name, (color, hatch)) in enumerate(ENDS.items())
        if i in there
    ]
    return Panel(f"how {counts.sum():,} planned trials ended", onto, legend)


def _ended(commit: Commit) -> np.ndarray:
    ledger = commit.ledger
    others = ledger.time_limit + ledger.lost + ledger.failed + ledger.unstated
    return np.array([ledger.complete, ledger.infeasible, ledger.pruned, others, ledger.missing])


def confirmed(page: Evidence) -> Panel:
    """What fresh seeds took over what was selected; of a chosen trial also the repeats that chose it."""
    again = page.one.again
    if not again:
        why = "no trial of this target was run again on fresh seeds; ask for it with confirm=6"
        return _absent("confirmed over selected steps", why)

    def onto(ax: Axes) -> None:
        rows = [
            (float(one.batch_size), max(one.least[0], 0.5) / steps, middle(one.median) / steps, one.most[1] / steps)
            for one, steps in ((each, middle(each.selected)) for each in again)
        ]
        chose = [(one.batch_size, middle(one.choosing) / middle(one.selected)) for one in again if one.choosing]
        ends = [end for row in rows for end in row[1:]] + [ratio for _, ratio in chose]
        _across(ax, [row[0] for row in rows])
        ax.axhline(1, color=draw.SELECTED.color, linewidth=1.2, zorder=1.5)
        ax.set_yscale("log", base=2)
        farthest = max([2.0, *(max(end, 1 / end) * 1.2 for end in ends if np.isfinite(end))])
        ax.set_ylim(1 / farthest, farthest)
        ticks.in_powers_of_two(ax.yaxis, ax.get_ylim(), compact=farthest > WIDE)
        ax.plot(*zip(*chose, strict=True), **CHOSE) if chose else None
        draw.repeated(ax, rows, draw.CONFIRMED)
        ax.set_ylabel("steps / selected steps")

    legend: list[Artist] = [draw.entry(draw.CONFIRMED._replace(line=(0, ())), "confirmed: median, range")]
    legend += [Line2D([], [], label="median that chose", **CHOSE)] if any(one.choosing for one in again) else []
    return Panel("confirmed over selected steps", onto, legend)


def _absent(title: str, why: str) -> Panel:
    def onto(ax: Axes) -> None:
        ax.set_axis_off()
        words = textwrap.fill(why, 34)
        ax.text(0.5, 0.5, words, ha="center", va="center", fontsize=8, color="#777777", transform=ax.transAxes)

    return Panel(title, onto)


def _across(ax: Axes, sizes: Sequence[float]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 2**0.6, max(sizes) * 2**0.6)
    ticks.in_powers_of_two(ax.xaxis, ax.get_xlim(), compact=True)
    ax.set_xlabel("batch size (examples)")
    ax.grid(**draw.GRID)
