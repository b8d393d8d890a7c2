"""The narrowing figure: expected widths of *pays up to* and *efficient up to* after more trials."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from analysis import text
from analysis.fitting import fits
from analysis.fitting.curve_fits import CurveFits, comparable_groups
from analysis.fitting.narrowing import MULTIPLES, halved_by
from analysis.plotting import draw, picture
from analysis.plotting.draw import Style
from analysis.plotting.picture import Picture, Pictures, Skipped

NAMES = ("pays up to", "efficient up to")
PER_ROW = 0.19  # inches of the legend for each line


def of_curves(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one picture per group of curves that differ only in their optimizer, with a panel for each answer.

    A line starts at the smallest multiple of the trials for which both ends are expected to lie inside the data.
    """
    for names, group in comparable_groups(curves, "optimizer", "targets"):
        title, goal = " · ".join(names[:2]), " · ".join([" ≤ ".join(names[2:4]), *names[4:]])
        all_widths = [(curve.curve.optimizer, fits.narrowed(curve.selected.points)) for curve in group]
        finite_widths = [
            (optimizer, widths) for optimizer, widths in all_widths if widths and np.isfinite(widths).any()
        ]
        if not finite_widths:
            yield Skipped(f"narrowing of {title}, {goal}", "no curve has two ends and 8 trials per batch size")
            continue
        heading = f"Width of the 90 % intervals after more trials · {title}"
        figure, panels = picture.panels(heading, goal, (1, 1), below=PER_ROW * len(finite_widths))
        styles = draw.styles_of(len(finite_widths), ordered=False)
        highest = max(np.nanmax(widths) for _, widths in finite_widths)
        for i, (ax, name) in enumerate(zip(panels, NAMES, strict=True)):
            _panel(ax, name, [(optimizer, widths[i]) for optimizer, widths in finite_widths], styles)
            ax.set_ylim(0, 1.08 * highest)
        yield Picture(names, figure)


def _panel(ax: Axes, name: str, lines: Sequence[tuple[str, np.ndarray]], styles: Sequence[Style]) -> None:
    """Draws the expected interval widths of each optimizer, float64[m], against ``MULTIPLES`` of the trials."""
    for (optimizer, octaves), style in zip(lines, styles, strict=True):
        if np.isnan(octaves).all():
            continue
        multiple = halved_by(octaves)
        words = "more than 32 ×" if np.isinf(multiple) else f"{text.number(multiple, 2)} ×"
        label = f"{optimizer}: open now" if np.isnan(multiple) else f"{optimizer}: halved by {words}"
        ax.plot(MULTIPLES, octaves, label=label, **style.look)
    ax.set_xscale("log", base=2)
    ax.set_xticks(MULTIPLES)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda multiple, _: f"{multiple:g} ×"))
    ax.minorticks_off()
    ax.set(xlabel="trials, with the same k per point", ylabel=f"width of {name} (octaves)")
    ax.grid(**draw.GRID)
    if ax.lines:
        ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13))
    else:
        draw.write_reason(ax, f"every interval of {name} keeps an open end", across=30)
