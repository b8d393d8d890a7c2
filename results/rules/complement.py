"""The decimal complement 1 − q of a quality q in [0, 1], which keeps comparisons and is its own inverse."""

import numpy as np

_DECIMALS = 1e12  # more than anybody writes on purpose, and few enough that hardly a binary fraction is one by chance


def complement(values: np.ndarray) -> np.ndarray:
    """1 − q, and q again of 1 − q.

    In binary, 1 − 0.9 is not the double nearest to 0.1, so that strict comparisons would come out differently. Values
    of up to 12 decimals are therefore subtracted as decimals: q > t says the same as 1 − q < 1 − t, for every such t.
    Any other value is subtracted as it is, which is exact for a float32 written with all the digits of a double.

    Args:
      values: float64 of any shape.

    Returns:
      float64 of the same shape; NaN stays NaN.
    """
    whole = np.rint(values * _DECIMALS)
    return np.where(whole / _DECIMALS == values, (_DECIMALS - whole) / _DECIMALS, 1 - values)
