"""Photographs as examples: decoded, cropped, resized and, in training, augmented, without TensorFlow."""

import io
import math
from typing import Any

import numpy as np

from workloads.streams import Draws

SIDE = 224  # pixels of an example
KEPT = 0.875  # of the shorter side of a photograph, in an evaluation
AREA = (0.08, 1.0)  # of a photograph that is seen in training
RATIO = (3 / 4, 4 / 3)  # of its width to its height
TRIES = 10  # to find such a box
Box = tuple[float, float, float, float]  # left, top, right, bottom


def example(encoded: bytes, draws: Draws | None, side: int = SIDE) -> np.ndarray:
    """A photograph as uint8[side, side, 3].

    In training a random box of it, flipped or not (Szegedy et al. 2015, arXiv 1409.4842); in an evaluation a square
    in its middle. JPEG is decoded at the smallest of libjpeg's scales that has as many pixels as are needed.

    Args:
      encoded: in any format of Pillow's; read as RGB.
      draws: of the example; None in an evaluation.
    """
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as photograph:
        box = middle(*photograph.size) if draws is None else random_box(*photograph.size, draws)
        flipped = draws is not None and draws.uniform() < 0.5
        scaled, box = _drafted(photograph, box, side)
        resized = scaled.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box)
    pixels = np.asarray(resized)
    return np.ascontiguousarray(pixels[:, ::-1]) if flipped else pixels


def middle(width: int, height: int) -> Box:
    """The square in the middle of an image, of ``KEPT`` of its shorter side."""
    size = KEPT * min(width, height)
    left, top = (width - size) / 2, (height - size) / 2
    return left, top, left + size, top + size


def random_box(width: int, height: int, draws: Draws) -> Box:
    """A box of an image of a random area, ratio and place; the middle of the image if ``TRIES`` of them do not fit."""
    for _ in range(TRIES):
        area = width * height * (AREA[0] + (AREA[1] - AREA[0]) * draws.uniform())
        ratio = math.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * draws.uniform())
        own_width, own_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        across, down = draws.uniform(), draws.uniform()
        if 0 < own_width <= width and 0 < own_height <= height:
            left = math.floor(across * (width - own_width + 1))
            top = math.floor(down * (height - own_height + 1))
            return left, top, left + own_width, top + own_height
    return middle(width, height)


def _drafted(photograph: Any, box: Box, side: int) -> tuple[Any, Box]:
    """A photograph to be decoded at a fraction of its size, if it is JPEG, and the box in it."""
    width, height = photograph.size
    across, down = side / (box[2] - box[0]), side / (box[3] - box[1])
    photograph.draft("RGB", (math.ceil(width * across), math.ceil(height * down)))
    scaled_width, scaled_height = photograph.size
    x, y = scaled_width / width, scaled_height / height
    return photograph, (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
