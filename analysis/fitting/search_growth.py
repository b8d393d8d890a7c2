"""Growth: the exponent with which the best trials' learning rate grows with batch size, and two rules of thumb.

By the linear rule, the learning rate is proportional to the batch size. By the square-root rule, it is proportional to
the square root of the batch size. Trials that needed at most ``NEARLY`` times the fewest steps at a batch size count as
nearly as good as the best. The geometric mean of their rates is less noisy than the best trial's rate. The exponent is
the least-squares slope of the logarithm of this mean against the logarithm of the batch size. Its interval is a
Student's t interval from the residuals.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from analysis.fitting import curve_fits, regimes
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.profiles import LEVEL
from analysis.trials import metaparameters, trials
from analysis.trials.metaparameters import Quantity

FEWEST = 4  # minimum number of batch sizes
NEARLY = 1.25  # maximum ratio to the fewest steps for trials that are nearly as good
POWERS = {"linear rule": 1.0, "square-root rule": 0.5}  # power of the batch size in rules of thumb
COLUMNS = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "rate": "the learning rate, or the effective one, learning rate / (1 − momentum)",
    "batch_sizes": "number of batch sizes with a trial at the target",
    "power": "power of the batch size: 1 is the linear rule, 0.5 the square-root rule",
    "power_low": "its 90 % interval ...",
    "power_high": "... each end by itself is a 95 % bound",
    "agrees_with": "the rules of thumb inside the interval",
}


class Growth(NamedTuple):
    """The exponent with its 90 % interval, and the n batch sizes that it was estimated from."""

    power: float
    low: float
    high: float
    batch_size: np.ndarray

    @property
    def agrees_with(self) -> list[str]:
        """The rules of thumb whose exponents lie inside the interval."""
        return [name for name, power in POWERS.items() if self.low <= power <= self.high]


def estimate(one: CurveFits, quantity: Quantity, up_to: float = math.inf) -> Growth | None:
    """Estimates how a quantity of a workload's best trials grows. Returns None for fewer than four batch sizes.

    Args:
      one: the workload.
      quantity: a rate.
      up_to: largest batch size to use, such as the critical batch size.
    """
    usable = one.selected.points.usable().batch_size  # at others, it is unknown which trials needed the fewest steps
    sizes = [size for size in sorted(one.trials) if size <= up_to and size in usable]
    rates = {size: value for size in sizes if (value := _best(one, size, quantity))}
    if len(rates) < FEWEST:
        return None
    ln_batch, ln_rate = np.log(list(rates)), np.log(list(rates.values()))
    across = ln_batch - ln_batch.mean()
    power = float(across @ ln_rate / (across @ across))
    residuals = ln_rate - ln_rate.mean() - power * across
    free = len(rates) - 2
    error = math.sqrt(residuals @ residuals / free / (across @ across))
    half = float(stdtrit(free, 1 - (1 - LEVEL) / 2)) * error
    return Growth(power, power - half, power + half, np.array(list(rates), np.float64))


def table(fitted: Sequence[CurveFits], *, up_to_critical: bool = False) -> pd.DataFrame:
    """Returns one row of ``COLUMNS`` for each rate of each workload. Cells are empty if there is no estimate.

    Args:
      fitted: workloads.
      up_to_critical: whether to use only batch sizes up to the critical batch size. If it is not identified, all batch
        sizes are used.
    """
    rows = []
    for one in fitted:
        critical = curve_fits.critical_batch_size(one.selected) if up_to_critical else math.nan
        for quantity in _rates(one):
            grown = estimate(one, quantity, math.inf if math.isnan(critical) else critical)
            power = (grown.power, grown.low, grown.high) if grown else (math.nan,) * 3
            agreeing = (", ".join(grown.agrees_with) or "neither") if grown else ""
            count = len(grown.batch_size) if grown else 0
            rows.append((*one.curve.workload[:3], quantity.label, count, *power, agreeing))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rates(one: CurveFits) -> list[Quantity]:
    quantities = [metaparameters.metaparameter(metaparameters.LEARNING_RATE, log=True)]
    if metaparameters.MOMENTUM in one.curve.tuned:
        quantities.append(metaparameters.effective_learning_rate())
    return quantities


def _best(one: CurveFits, batch_size: int, quantity: Quantity) -> float | None:
    """Returns the geometric mean over trials nearly as good as the best, or None if no trial reached the target."""
    rows = one.trials[batch_size]
    rows = rows[rows["outcome"] == trials.REACHED]
    if not len(rows):
        return None
    steps = (regimes.from_zero(rows["steps_low"].to_numpy()) + rows["steps_high"].to_numpy()) / 2
    values = quantity.values(rows[steps <= NEARLY * steps.min()])
    return float(np.exp(np.log(values).mean()))
