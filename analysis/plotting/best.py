"""Best errors against batch size. There is one line per budget or group of trials."""

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
LOGARITHMIC = 4.0  # panels that span a larger factor have a logarithmic scale


class Errors(NamedTuple):
    """A line in a panel: the best error at each batch size, sorted by batch size.

    Attributes:
      label: label in the legend.
      batch_size: float64[n], examples.
      error: float64[n].
    """

    label: str
    batch_size: np.ndarray
    error: np.ndarray


def lowest_errors(bests: Sequence[BestErrors], labels: Sequence[str]) -> list[Errors]:
    """Returns one line for each budget with a measurement.

    Args:
      bests: best errors of studies. Studies with the same batch size are combined.
      labels: labels of the budgets.
    """
    lines = []
    for i, label in enumerate(labels):
        lowest: dict[int, float] = {}
        for study in bests:
            if np.isfinite(study.errors[i]):
                lowest[study.batch_size] = min(study.errors[i], lowest.get(study.batch_size, np.inf))
        if lowest:
            sizes = sorted(lowest)
            lines.append(Errors(label, np.array(sizes, np.float64), np.array([lowest[size] for size in sizes])))
    return lines


def panel(title: str, metric: str, members: Sequence[Errors], *, ordered: bool, stop: float | None = None) -> Panel:
    """Returns the panel of a metric.

    Args:
      title: title of the panel.
      metric: error to show.
      members: lines to draw.
      ordered: whether the lines differ in a number, such as a budget.
      stop: target at which trials stopped. Differences below it are not meaningful.
    """
    styles = draw.styles_of(len(members), ordered=ordered)
    name = as_quality(metric, 0.0)[0]

    def onto(ax: Axes) -> None:
        draw.batch_size_axis(ax, np.concatenate([line.batch_size for line in members]))
        errors = np.concatenate([_as_shown(metric, line.error) for line in members])
        if errors.min() > 0 and errors.max() / errors.min() > LOGARITHMIC:
            ticks.in_decades(ax.yaxis, (errors.min(), errors.max()))
            ax.set_autoscaley_on(True)  # adds margins
        else:
            ax.yaxis.set_major_locator(MaxNLocator(6))
            ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        for line, style in zip(members, styles, strict=True):
            ax.plot(
                line.batch_size,
                _as_shown(metric, line.error),
                linewidth=1.2,
                markersize=4.2,
                markeredgecolor="white",
                markeredgewidth=0.4,
                zorder=3,
                **style.look,
            )
        if stop is not None:
            _stop(ax, float(_as_shown(metric, np.array(stop))), is_error=name == metric)
        ax.set_ylabel(f"best {name.replace('_', ' ')}")

    entries = [draw.legend_entry(style, line.label) for line, style in zip(members, styles, strict=True)]
    return Panel(title, onto, entries if len(members) > 1 else ())


def symbols(stop: float | None) -> list[Artist]:
    """Returns the shared legend of all panels. See ``panel`` for ``stop``."""
    if stop is None:
        return []
    label = "beyond the target, at which trials stopped (not comparable)"
    return [Patch(facecolor="white", edgecolor=SHADE, hatch=HATCH, linewidth=0, label=label)]


def _stop(ax: Axes, target: float, is_error: bool) -> None:
    """Shades errors beyond the target at which trials stopped."""
    low, high = ax.get_ylim()
    if low < target < high:
        first, last = (low, target) if is_error else (target, high)
        ax.axhspan(first, last, facecolor="white", edgecolor=SHADE, hatch=HATCH, linewidth=0, zorder=0.8, alpha=0.7)
        ax.set_ylim(low, high)


def _as_shown(metric: str, error: np.ndarray) -> np.ndarray:
    return error if as_quality(metric, 0.0)[0] == metric else 1 - error
