"""Grids of panels under one title. Legends are placed below their panels, so they cannot cover data."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plotting.draw import INK, write_reason
from analysis.plotting.picture import blank, keep_inside

# Inches.
WIDTHS = {1: 5.4, 2: 4.2, 3: 3.3}  # width of a panel with its margins, by the number of columns
HEIGHTS = {1: 3.4, 2: 2.6, 3: 2.25}  # height of its axes
LEFT, RIGHT, ABOVE, BELOW, LINE, FOOT = 0.72, 0.14, 0.36, 0.52, 0.155, 0.06
CHARACTER, SWATCH = 0.060, 0.50  # widths in a legend: a character, and the symbol before the text
BOLD = 0.079  # width of a bold character in a panel's title
BETWEEN = 2  # minimum characters between a panel's title and its goal
TITLE, WORDS, SMALL = 12.0, 9.0, 7.8  # points


class Panel(NamedTuple):
    """One pair of axes in a grid.

    Attributes:
      title: title above the axes.
      draw: function that draws on the axes.
      legend: labelled artists to list below the axes.
      goal: target of all lines, shown at the right end of the title. Empty if targets differ or are in the title.
      heading: heading of the legend.
    """

    title: str
    draw: Callable[[Axes], None]
    legend: Sequence[Artist] = ()
    goal: str = ""
    heading: str = ""


def positions(panels: Sequence[Panel]) -> dict[tuple[int, int], Panel]:
    """Arranges panels in up to three columns. Returns them by (row, column)."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    return {divmod(i, columns): panel for i, panel in enumerate(panels)}


def empty(title: str, why: str, across: int = 38, size: float | None = None) -> Panel:
    """Returns an empty panel that shows the reason why it is empty.

    Args:
      title: title of the panel.
      why: reason to show.
      across: number of characters per line.
      size: font size in points.
    """

    def draw(ax: Axes) -> None:
        ax.set_axis_off()
        write_reason(ax, why, across, size)

    return Panel(title, draw)


def grid(
    title: str, goals: Sequence[str], panels: Mapping[tuple[int, int], Panel], symbols: Sequence[Artist] = ()
) -> Figure:
    """Returns a figure with panels by (row, column).

    Args:
      title, goals: lines of text above all panels.
      panels: panels in up to three columns.
      symbols: legend for all panels, under the title.
    """
    rows, columns = (1 + max(position[i] for position in panels) for i in (0, 1))
    width, height = WIDTHS[columns], HEIGHTS[columns]
    beneath = [
        max((_lines(panels[position], width) for position in panels if position[0] == row), default=0) * LINE
        for row in range(rows)
    ]
    across = columns * width + 0.1
    lines = [line for goal in goals for line in textwrap.wrap(goal, int((across - 0.2) / 0.0655))]
    head = 0.36 + 0.17 * len(lines)
    rows_of_legend, columns_of_legend = _rows(symbols, across)
    head += 0.19 * rows_of_legend + (0.08 if rows_of_legend else 0)
    down = head + rows * (ABOVE + height + BELOW) + sum(beneath) + 0.06 * sum(map(bool, beneath)) + FOOT
    figure = blank(across, down)
    _title(figure, title, lines, symbols, columns_of_legend, rows_of_legend)
    longest = max(len(panel.title) + (len(panel.goal) + BETWEEN if panel.goal else 0) for panel in panels.values())
    size = min(WORDS, WORDS * (width - LEFT) / (longest * BOLD))
    top = down - head
    for row in range(rows):
        top -= ABOVE
        for column in range(columns):
            if (row, column) in panels:
                box = (column * width + LEFT, top - height, width - LEFT - RIGHT, height)
                ax = figure.add_axes((box[0] / across, box[1] / down, box[2] / across, box[3] / down))
                _fill(ax, panels[row, column], width, size)
        top -= height + BELOW + beneath[row] + (0.06 if beneath[row] else 0)
    _share_labels(figure)
    return figure


def _title(
    figure: Figure, title: str, lines: Sequence[str], symbols: Sequence[Artist], columns: int, rows: int
) -> None:
    across, down = figure.get_size_inches()
    head = figure.text(LEFT / 2 / across, 1 - 0.28 / down, title, fontsize=TITLE, fontweight="bold", color=INK)
    keep_inside(head)
    for i, line in enumerate(lines):
        figure.text(LEFT / 2 / across, 1 - (0.47 + 0.17 * i) / down, line, fontsize=WORDS, color=INK)
    if symbols:
        figure.legend(
            handles=list(symbols),
            loc="upper left",
            bbox_to_anchor=(LEFT / 2 / across, 1 - (0.5 + 0.17 * len(lines) - 0.07) / down),
            ncols=columns,
            borderaxespad=0,
            borderpad=0.2,
            columnspacing=1.6,
            fontsize=SMALL + 0.4,
        )


def _fill(ax: Axes, panel: Panel, width: float, size: float) -> None:
    ax.set_title(panel.title, fontsize=size, fontweight="bold", color=INK, loc="left", pad=5, y=1.0)
    ax.set_title(panel.goal, fontsize=size - 1, color=INK, loc="right", pad=5, y=1.0)
    ax.tick_params(labelsize=SMALL)
    panel.draw(ax)
    figure, box = ax.get_figure(), ax.get_position()
    assert isinstance(figure, Figure)
    across, down = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    # Fixed positions align the labels and avoid a layout pass, which would double the time.
    ax.xaxis.set_label_coords(0.5, -0.27 / down)
    ax.yaxis.set_label_coords(-0.53 / across, 0.5)
    ax.xaxis.label.set(fontsize=WORDS - 0.6, verticalalignment="top")
    ax.yaxis.label.set_fontsize(WORDS - 0.6)
    if panel.legend:
        needed = max(len(str(entry.get_label())) for entry in panel.legend) * CHARACTER + SWATCH
        ax.legend(
            handles=list(panel.legend),
            title=panel.heading or None,
            title_fontsize=SMALL - 0.4,
            alignment="left",
            loc="upper left",
            bbox_to_anchor=(-0.3 / across, -(BELOW - 0.03) / down),
            ncols=_columns(panel.legend, width),
            fontsize=(SMALL - 0.4) * min(1.0, (width - LEFT / 2) / needed),
            borderaxespad=0,
            borderpad=0,
            columnspacing=1.2,
            handlelength=2.2,
            labelspacing=0.35,
        )


def _columns(legend: Sequence[Artist], width: float) -> int:
    longest = max(len(str(entry.get_label())) for entry in legend)
    return max(1, min(len(legend), int((width - 0.3) / (longest * CHARACTER + SWATCH))))


def _lines(panel: Panel, width: float) -> int:
    """Returns the number of lines that a panel's legend and its heading take."""
    if not panel.legend:
        return 0
    lines = math.ceil(len(panel.legend) / _columns(panel.legend, width))
    return lines + 1 if panel.heading else lines


def _rows(symbols: Sequence[Artist], across: float) -> tuple[int, int]:
    """Returns the numbers of rows and columns of the shared legend."""
    if not symbols:
        return 0, 0
    columns = _columns(symbols, across)
    return math.ceil(len(symbols) / columns), columns


def _share_labels(figure: Figure) -> None:
    """Removes the label of a vertical axis if the panel to its left has the same label."""
    labels: dict[float, str] = {}
    for ax in figure.axes:
        height = round(ax.get_position().y0, 4)
        if ax.get_ylabel() and labels.get(height) == ax.get_ylabel():
            ax.set_ylabel("")
        else:
            labels[height] = ax.get_ylabel()
