"""A gallery: pictures in a notebook instead of in files."""

import io
from collections.abc import Iterable

import matplotlib

from analysis.plotting import picture
from analysis.plotting.picture import Picture, Skipped

DPI = 150  # of the pixels,
ACROSS = 100  # and so many of a page to the inch


def show(pictures: Iterable[Picture | Skipped]) -> None:
    """Shows pictures below the cell of a notebook, and a line about each that could not be drawn.

    Args:
      pictures: drawn here if they are yielded, in the look they have in files.
    """
    from IPython.display import display  # installed wherever there are notebooks, and nowhere else

    with matplotlib.rc_context(picture.SETTINGS):
        for item in pictures:
            if isinstance(item, Skipped):
                print(f"not drawn: {item}")
                continue
            png = io.BytesIO()
            item.figure.savefig(png, format="png", dpi=DPI)
            data = {"image/png": png.getvalue(), "text/plain": " · ".join(item.names)}
            display(data, raw=True, metadata={"image/png": {"width": round(item.figure.get_figwidth() * ACROSS)}})
