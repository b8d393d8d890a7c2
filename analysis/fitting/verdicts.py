"""Verdicts: statements about a critical batch size, based on its interval and the checks of the curve's shape."""

from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import shapes
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.shapes import ShapeChecks
from analysis.text import Verdict

# The model error: this number of octaves or this multiple of the data's uncertainty, whichever is less. It is smaller
# if the shape can be judged on both sides of the knee.
OCTAVES = 0.35
TIMES_IF_CHECKED, TIMES_IF_UNCHECKED = 0.8, 1.3
FAILED = {
    "slope": "the slope at small batch sizes is not -1 but {}",
    "plateau": "the slope at large batch sizes is not 0 but {}",
    "knee": "the knee is not equally sharp on both sides but {}",
    "search": "the search is not equally hard at every batch size: {}",
}


class Statement(NamedTuple):
    """The verdict on a curve, with its interval.

    Attributes:
      verdict: identified, at_least, at_most or not_identified.
      ends: [2], ends of the interval of ln B*, infinite if open.
      caveats: reasons for a weaker verdict.
    """

    verdict: Verdict
    ends: np.ndarray
    caveats: tuple[str, ...]


def model_error(ln_best: float, widths: np.ndarray, ln_batch: np.ndarray) -> np.ndarray:
    """Returns the error due to the fitted shape at both ends of an interval, given their distances ``widths`` [2].

    Errors are logarithms of ratios. They are 0 at open ends.
    """
    times = TIMES_IF_CHECKED if all(shapes.sides(ln_best, ln_batch)) else TIMES_IF_UNCHECKED
    return np.where(np.isfinite(widths), np.minimum(OCTAVES * OCTAVE, times * widths), 0)


def decide(
    data_ends: np.ndarray, ends: np.ndarray, ln_batch: np.ndarray, plateau_seen: bool, shape: ShapeChecks
) -> Statement:
    """Selects the verdict that is supported by an interval of ln B* and by the shape checks.

    If a shape check fails, only a lower bound is reported, which also holds for the alternative curves.

    Args:
      data_ends: [2], ends without model error, which determine the verdict.
      ends: [2], ends of the reported interval, which include the model error.
      ln_batch: [n], sorted.
      plateau_seen: whether evaluations were frequent enough to detect a plateau.
      shape: checks of the curve's shape.
    """
    claim = _of_interval(data_ends, ends, ln_batch, plateau_seen)
    doubts = shape.doubts
    if not doubts:
        return claim
    low = min(shape.ln_low, ends[0])
    bounded = claim.verdict in ("identified", "at_least") and low >= ln_batch[0] - 1e-9
    stated = "no interval is reported, only a lower bound" if bounded else "no interval or bound is reported"
    caveats = tuple(f"{stated}: {FAILED[check.assumption].format(check.seen)}" for check in doubts)
    ends = np.array([low, np.inf]) if bounded else np.array([-np.inf, np.inf])
    return Statement("at_least" if bounded else "not_identified", ends, (*caveats, *claim.caveats))


def _of_interval(data_ends: np.ndarray, ends: np.ndarray, ln_batch: np.ndarray, plateau_seen: bool) -> Statement:
    # An end at the smallest or largest batch size counts as inside, regardless of rounding in the logarithms.
    low_inside, high_inside = data_ends[0] >= ln_batch[0] - 1e-9, data_ends[1] <= ln_batch[-1] + 1e-9
    caveats: tuple[str, ...] = () if high_inside else ("the interval reaches past the largest batch size",)
    caveats += () if low_inside else ("the interval reaches past the smallest batch size",)
    return Statement(text.verdict(bool(low_inside), bool(high_inside and plateau_seen)), ends, caveats)
