"""Best errors against batch size, a line for every budget or for every group of trials."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from analysis.plotting import draw, ticks
from analysis.plotting.grid import Panel
from analysis.text import as_quality
from analysis.trials.trials import BestErrors

SHADE, HATCH = "#BBBBBB", "////"
LOGARITHMIC = 4.0  # a panel that spans a larger factor than this has a logarithmic scale


class Errors(NamedTuple):
    """A line: the best errors at every batch size that has one, sorted.

    Attributes:
      label: of a legend.
      batch_size: float64[n], examples.
      error: float64[n].
    """

    label: str
    batch_size: np.ndarray
    error: np.ndarray


def lowest_errors(bests: Sequence[BestErrors], labels: Sequence[str]) -> list[Errors]:
    """A line for every budget within which any study measured something.

    Args:
      bests: of studies, by batch size; several at one batch size count together.
      labels: of the budgets.
    """
    lines = []
    for i, label in enumerate(labels):
        lowest: dict[int, float] = {}
        for one in bests:
            if np.isfinite(one.errors[i]):
                lowest[one.batch_size] = min(one.errors[i], lowest.get(one.batch_size, np.inf))
        if lowest:
            sizes = sorted(lowest)
            lines.append(Errors(label, np.array(sizes, np.float64), np.array([lowest[size] for size in sizes])))
    return lines


def panel(title: str, metric: str, members: Sequence[Errors], *, ordered: bool, stop: float | None = None) -> Panel:
    """The lines of a metric.

    Args:
      title: of the panel.
      metric: an error.
      members: lines.
      ordered: what tells them apart is a number.
      stop: the target at which trials stopped: how far below it an error is says nothing.
    """
    styles = draw.styles_of(len(members), ordered=ordered)
    name = as_quality(metric, 0.0)[0]

    def onto(ax: Axes) -> None:
        sizes = np.concatenate([one.batch_size for one in members])
        errors = np.concatenate([_as_shown(metric, one.error) for one in members])
        ax.set_xscale("log", base=2)
        ax.set_xlim(sizes.min() / 2**0.6, sizes.max() * 2**0.6)
        ticks.in_powers_of_two(ax.xaxis, ax.get_xlim(), compact=True)
        if errors.min() > 0 and errors.max() / errors.min() > LOGARITHMIC:
            ax.set_yscale("log")
            ticks.in_decades(ax.yaxis, (errors.min(), errors.max()))
        else:
            ax.yaxis.set_major_locator(MaxNLocator(6))
            ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        for one, style in zip(members, styles, strict=True):
            ax.plot(
                one.batch_size,
                _as_shown(metric, one.error),
                color=style.color,
                marker=style.marker,
                linestyle=style.line,
                linewidth=1.2,
                markersize=4.2,
                markeredgecolor="white",
                markeredgewidth=0.4,
                zorder=3,
            )
        if stop is not None:
            _stop(ax, float(_as_shown(metric, np.array(stop))), is_error=name == metric)
        ax.set_xlabel("batch size (examples)")
        ax.set_ylabel(f"best {name.replace('_', ' ')}")
        ax.grid(**draw.GRID)

    entries = [draw.legend_entry(style, one.label) for one, style in zip(members, styles, strict=True)]
    return Panel(title, onto, entries if len(members) > 1 else ())


def symbols(stop: float | None) -> list[Artist]:
    """The legend of all panels; ``stop`` as in ``panel``."""
    if stop is None:
        return []
    label = "beyond the target, at which trials stopped: how far says nothing"
    return [Patch(facecolor="white", edgecolor=SHADE, hatch=HATCH, linewidth=0, label=label)]


def _stop(ax: Axes, target: float, is_error: bool) -> None:
    """Shades errors beyond the target, to which trials did not go on."""
    low, high = ax.get_ylim()
    if low < target < high:
        ax.axhspan(
            *((low, target) if is_error else (target, high)),
            facecolor="white",
            edgecolor=SHADE,
            hatch=HATCH,
            linewidth=0,
            zorder=0.8,
            alpha=0.7,
        )
        ax.set_ylim(low, high)


def _as_shown(metric: str, error: np.ndarray) -> np.ndarray:
    return error if as_quality(metric, 0.0)[0] == metric else 1 - error
