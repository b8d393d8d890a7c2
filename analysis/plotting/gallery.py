"""A gallery: pictures where they are asked for, in a notebook, instead of in files."""

import io
from collections.abc import Iterable

import matplotlib
from matplotlib.figure import Figure

from analysis.plotting import picture
from analysis.plotting.picture import Picture, Skipped

DPI = 150  # of the pixels,
ACROSS = 100  # and so many of a page to the inch


def show(pictures: Iterable[Picture | Skipped]) -> None:
    """Shows pictures below the cell of a notebook, and a line about each that could not be drawn.

    Args:
      pictures: drawn here if they are yielded, in the look they have in files.
    """
    from IPython.display import display  # there wherever there are notebooks, and nowhere else

    with matplotlib.rc_context(picture.SETTINGS):
        for made in pictures:
            if isinstance(made, Skipped):
                print(f"not drawn: {made}")
                continue
            width = round(made.figure.get_figwidth() * ACROSS)
            shown = {"image/png": png(made.figure), "text/plain": " · ".join(made.names)}
            display(shown, raw=True, metadata={"image/png": {"width": width}})


def png(figure: Figure) -> bytes:
    """A figure as a picture of pixels."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()
