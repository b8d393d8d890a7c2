"""Forest plots: the batch size up to which doubling pays off, one row per published workload."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from analysis import text
from analysis.fitting.extents import Extent
from analysis.payoff import answers, subjects
from analysis.payoff.answers import Answer
from analysis.plotting import draw, picture, ticks
from analysis.plotting.draw import GRID, INK, Look, symbol
from analysis.plotting.picture import Picture, Pictures
from results.papers import published_numbers

SOURCE = "shallue2018"
TITLE = "Up to which batch size does doubling still pay off?"
GOAL = "Each doubling up to this batch size trains at least {gain:g} % faster. "
GOAL += "Curves of Shallue et al. 2018, 90 % intervals."
ACROSS, PER_ROW = 9.0, 0.42  # inches
LEFT, RIGHT, MARGIN = 0.275, 0.795, 0.025  # positions of the axes and of all text, as fractions of the width
SMALLEST, LARGEST = 2**7.4, 2**16.9  # ends of the axis
KNOWN, BOUND = draw.STYLES[0], draw.STYLES[1]
FAINT = "#6F6F6F"


class Row(NamedTuple):
    """One row of a forest plot.

    Attributes:
      label, target: names of the workload and its target.
      answer: batch size with its interval, or a lower bound.
      largest: largest batch size at which the target was reached.
      in_doubt: whether the data contradict an assumption about the search.
    """

    label: str
    target: str
    answer: Extent
    largest: float
    in_doubt: bool = False

    @property
    def place(self) -> float:
        """The batch size by which rows are sorted: the estimate, or the bound."""
        return self.answer.low if self.answer.verdict == "at_least" else self.answer.best


def of_paper() -> Pictures:
    """Yields one picture of all workloads published in the paper, sorted by batch size. The largest is at the top."""
    computed = answers.answers(subjects.of_paper(SOURCE))
    yield Picture((SOURCE,), _picture(rows(computed), computed[0].gain))


def rows(computed: Sequence[Answer]) -> list[Row]:
    """Returns the rows, sorted by increasing batch size. Answers without a lower end are omitted."""
    points = published_numbers.points(SOURCE)
    titles = dict(zip(zip(points["dataset"], points["model"], strict=True), points["panel"], strict=True))
    made = []
    for answer in computed:
        names, curve = answer.subject.names, answer.subject.curve
        if answer.pays.verdict not in ("identified", "at_least") or curve is None:
            continue
        metric = str(names["target_metric"]).removeprefix("validation_").replace("_", " ")
        largest = float(curve.points.batch_size.max())
        target = f"{metric} ≤ {names['target_value']:g}"
        in_doubt = bool(curve.search_doubts)
        made.append(Row(titles[names["dataset"], names["model"]], target, answer.pays, largest, in_doubt))
    return sorted(made, key=lambda row: row.place)


def _picture(drawn: Sequence[Row], gain: float) -> Any:
    high = 1.6 + PER_ROW * len(drawn)
    figure, (ax,) = picture.panels(TITLE, GOAL.format(gain=100 * gain), (1,), across=ACROSS, below=high - 4.6)
    for line in figure.texts:
        line.set_x(MARGIN)
    ax.set_position((LEFT, 0.86 / high, RIGHT - LEFT, 1 - 1.5 / high))
    ticks.in_powers_of_two(ax.xaxis, (SMALLEST, LARGEST))
    ax.set(ylim=(-0.6, len(drawn) - 0.4), yticks=[])
    ax.set_xlabel("batch size (examples)", fontsize=10)
    ax.tick_params(axis="x", labelsize=9)
    ax.grid(**GRID | {"axis": "x"})
    ax.spines["left"].set_visible(False)
    for y, row in enumerate(drawn):
        _draw(ax, y, row)
    handles = [
        symbol(color=KNOWN.color, marker="o", markersize=6.5, linewidth=3.5, label="estimate, 90 % interval"),
        symbol(color=BOUND.color, marker=">", markersize=8, linewidth=3.5, label="at least"),
        symbol(
            color=INK,
            marker="|",
            markersize=11,
            linewidth=0,
            label="largest batch size with a published result",
        ),
    ]
    if any(row.in_doubt for row in drawn):
        hollow: Look = {"marker": "o", "markersize": 6.5, "markerfacecolor": "white", "linestyle": draw.IN_DOUBT}
        handles.append(symbol(color=KNOWN.color, linewidth=2.5, label="in doubt", **hollow))
    figure.legend(
        handles=handles, ncols=len(handles), loc="lower left", bbox_to_anchor=(LEFT - 0.01, 0.0), fontsize=9.5
    )
    return figure


def _draw(ax: Axes, y: float, row: Row) -> None:
    """Draws one row: names on the left, an interval or an arrow, and the numbers on the right."""
    answer = row.answer
    left = (MARGIN - LEFT) / (RIGHT - LEFT)  # position of the names, as a fraction of the axes
    beside = ax.get_yaxis_transform()
    ax.text(left, y + 0.17, row.label, transform=beside, va="center", fontsize=10.5, color=INK)
    ax.text(left, y - 0.21, row.target, transform=beside, va="center", fontsize=8.5, color=FAINT)
    words = text.with_doubt(text.bound(*answer), answer.verdict, in_doubt=row.in_doubt)
    ax.text(1.02, y, words, transform=beside, va="center", fontsize=10, color=INK)
    line: Look = {"linewidth": 3.5, "linestyle": "solid"}
    if row.in_doubt:
        line = {"linewidth": 2.5, "linestyle": draw.IN_DOUBT}
    ax.plot([row.largest], [y], marker="|", markersize=11, color=INK, zorder=4)
    if answer.verdict == "at_least":
        arrow = {"arrowstyle": "-|>,head_width=0.3,head_length=0.6", "shrinkA": 0, "shrinkB": 0, "color": BOUND.color}
        ax.annotate("", (LARGEST, y), (answer.low, y), arrowprops=arrow | {"capstyle": "butt"} | line, zorder=3)
    else:
        ax.plot([answer.low, answer.high], [y, y], color=KNOWN.color, solid_capstyle="butt", zorder=3, **line)
        edge, face = (KNOWN.color, "white") if row.in_doubt else ("white", KNOWN.color)
        ax.plot([answer.best], [y], marker="o", markersize=6.5, markerfacecolor=face, markeredgecolor=edge, zorder=4)
