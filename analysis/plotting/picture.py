"""Pictures: figures with a two-line title, which are written to files or shown in a notebook."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from analysis import output
from analysis.plotting import draw

PNG_DPI = 200
SMALLEST = 4.0  # minimum font size in points
CHARACTERS_ACROSS = 88  # characters in the title's second line at full size
LINE = 0.155  # height of each further line under the title, in inches
LONGEST = 180  # maximum characters of a file name without its suffix. File systems allow 255 bytes.
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "scaling-limits",  # makes files reproducible
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": draw.INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
NOTEBOOK_DPI = 150  # pixels per inch of a picture
ACROSS = 100  # CSS pixels per inch of a page


class Picture(NamedTuple):
    """A figure, with the ``names`` from which its file name is formed."""

    names: tuple[str, ...]
    figure: Figure


class Skipped(NamedTuple):
    """An item that could not be drawn, with the reason."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


Pictures = Iterator[Picture | Skipped]


def blank(across: float, down: float) -> Figure:
    """Returns an empty figure of a size in inches."""
    figure = Figure(figsize=(across, down), dpi=PNG_DPI)
    FigureCanvasAgg(figure)
    return figure


def axes(title: str, goal: str, *, strips: int = 0, beside: bool = False, below: float = 0) -> tuple[Figure, Axes]:
    """Returns a figure with one pair of axes under its title.

    Args:
      title, goal: the title and the lines under it.
      strips: number of strips of regimes above the axes.
      beside: whether to leave room for text next to the axes.
      below: room below the axes, in inches.
    """
    width, down = 9.0 if beside else 6.4, 4.6 + below + LINE * goal.count("\n")
    figure = blank(width, down)
    narrower = 6.4 / width
    bottom, height = (0.115 * 4.6 + below) / down, (0.755 - 0.055 * strips) * 4.6 / down
    ax = figure.add_axes((0.115 * narrower, bottom, 0.865 * narrower, height))
    _write_title(figure, title, goal, CHARACTERS_ACROSS)
    return figure, ax


def panels(
    title: str, goal: str, widths: Sequence[float], *, across: float = 0, below: float = 0
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with side-by-side axes under a two-line title.

    Args:
      title, goal: lines of the title.
      widths: relative widths of the axes.
      across: width of the figure in inches, or 0 to choose it automatically.
      below: room below the axes, in inches.
    """
    count, down = len(widths), 4.6 + below
    across = across or (6.4 if count == 1 else 9.0)
    figure = blank(across, down)
    left, gap = 0.115 * 6.4 / across, 0.105
    room = (0.98 - left - gap * (count - 1)) / sum(widths)
    starts = [left + sum(widths[:i]) * room + i * gap for i in range(count)]
    bottom, height = (0.115 * 4.6 + below) / down, 0.735 * 4.6 / down
    made = [figure.add_axes((start, bottom, width * room, height)) for start, width in zip(starts, widths, strict=True)]
    _write_title(figure, title, goal, CHARACTERS_ACROSS * across / 6.4)
    return figure, made


def add_to_title(figure: Figure, words: str) -> None:
    """Adds words to the first line of a figure's title."""
    title = figure.texts[0]
    title.set_text(f"{title.get_text()} · {words}")
    keep_inside(title)


def _write_title(figure: Figure, title: str, goal: str, room: float) -> None:
    """Writes the title and the lines under it. Lines of more than ``room`` characters use a smaller font."""
    left = 0.115 * 6.4 / figure.get_figwidth()
    down = figure.get_figheight()
    last = 0.4692 + LINE * goal.count("\n")
    lines = ((0.253, title, 11.0, "bold", 0.7 * room), (last, goal, 9.0, "normal", room))
    for line, words, size, weight, fits in lines:
        fitting = min(size, size * fits / max(1, *map(len, words.split("\n"))))
        written = figure.text(left, 1 - line / down, words, fontsize=fitting, fontweight=weight, color=draw.INK)
        keep_inside(written)


def keep_inside(words: Text | Legend) -> None:
    """Shrinks text until it fits within its figure or has the minimum size."""
    texts = [words] if isinstance(words, Text) else words.get_texts()
    size = texts[0].get_fontsize()
    assert isinstance(size, float)
    while words.get_window_extent().x1 > words.figure.bbox.width and size > SMALLEST:
        size *= 0.98
        for text in texts:
            text.set_fontsize(size)


def slug(names: Sequence[str]) -> str:
    """Returns a file name formed from ``names``, without a suffix. It is short enough for all file systems."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", name) for name in names)[:LONGEST]


def unique_stem(stem: str, taken: set[str]) -> str:
    """Returns ``stem``, with a number appended if it is already ``taken``, and adds the result to ``taken``."""
    unique, number = stem, 1
    while unique in taken:
        number += 1
        unique = f"{stem}-{number}"
    taken.add(unique)
    return unique


def write(path: Path, figure: Figure) -> Path:
    """Writes a picture in the format given by the file's suffix. Raises BadInput if it cannot be written."""
    picture = io.BytesIO()
    if path.suffix == ".svg":
        figure.savefig(picture, format="svg", metadata={"Date": None})
    else:
        figure.savefig(picture, format="png", dpi=PNG_DPI)
    output.write(path, picture.getvalue(), "DIR")
    return path


def show(pictures: Iterable[Picture | Skipped]) -> None:
    """Shows pictures in a notebook, and prints a line for each picture that could not be drawn.

    Args:
      pictures: pictures to show. A generator is run with the same settings as for files.
    """
    from IPython.display import display  # installed only with notebooks

    with matplotlib.rc_context(SETTINGS):
        for item in pictures:
            if isinstance(item, Skipped):
                print(f"not drawn: {item}")
                continue
            png = io.BytesIO()
            item.figure.savefig(png, format="png", dpi=NOTEBOOK_DPI)
            data = {"image/png": png.getvalue(), "text/plain": " · ".join(item.names)}
            display(data, raw=True, metadata={"image/png": {"width": round(item.figure.get_figwidth() * ACROSS)}})
