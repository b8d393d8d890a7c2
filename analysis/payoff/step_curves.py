"""Step curves: every curve of steps to target over batch size that the data leave possible, as its fit tells.

They are those of the 90 % region of ``fitting.regimes``, each with the heights that the points allow it, and copies
moved to the ends of the interval of the critical batch size, whose model error the region lacks. The most and the least
of a number among them are the ends of its 90 % interval.
"""

from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import profiles
from analysis.fitting.regimes import Fit

LOWER, UPPER = ("identified", "at_least"), ("identified", "at_most")  # verdicts that state a lower end, an upper one


class StepCurves(NamedTuple):
    """Curves ln S = height + ln(1 + (B*/B)^a) / a, the fitted one first. All float64[c].

    Attributes:
      ln_critical, sharpness: ln B* in examples, and a.
      ln_height: ln steps of its plateau.
      slack: how far ln steps may lie above or below.
    """

    ln_critical: np.ndarray
    sharpness: np.ndarray
    ln_height: np.ndarray
    slack: np.ndarray

    def ln_steps(self, batch_size: np.ndarray) -> np.ndarray:
        """ln steps to target at ``batch_size`` [b], examples: float64[c, b]."""
        below = self.ln_critical[:, None] - np.log(batch_size)
        return self.ln_height[:, None] + profiles.excess(below, self.sharpness[:, None])


class LastDoubling(NamedTuple):
    """The number that the last doubling which pays off leads to, with its 90 % interval.

    Attributes:
      best: by the best curve and times; NaN unless identified.
      low, high: its ends; NaN where they are not stated.
      verdict: identified, at_least (low), at_most (high) or not_identified.
    """

    best: float
    low: float
    high: float
    verdict: text.Verdict

    def in_words(self) -> str:
        """Such as ``64 [32, 128]``, ``at least 64`` or ``not identified``."""
        return text.statement(self.verdict, *map(_count, (self.best, self.low, self.high)))


NOTHING = LastDoubling(float("nan"), float("nan"), float("nan"), "not_identified")


def of_fit(fit: Fit) -> StepCurves:
    """The curves that a fit leaves possible."""
    ln_batch = np.log(fit.batch_size)
    n = len(ln_batch)
    a, g = np.nonzero(fit.profile.misfit <= fit.bound)
    ln_critical, sharpness = fit.profile.ln_critical[g], fit.profile.sharpness[a]
    moves = [0.0]
    if len(ln_critical):
        moves += [min(0.0, np.log(fit.low) - ln_critical.min()) if np.isfinite(fit.low) else 0.0]
        moves += [max(0.0, np.log(fit.high) - ln_critical.max()) if np.isfinite(fit.high) else 0.0]
    every = np.concatenate([[fit.best[0]], *(ln_critical + move for move in dict.fromkeys(moves))])
    shapes = np.concatenate([[fit.best[1]], *(sharpness for _ in dict.fromkeys(moves))])
    ln_height, misfit = profiles.floors(ln_batch, fit.ln_steps, fit.weights, every, shapes)
    # The misfit of a curve grows by n slack² times its prior if the curve is moved up or down by slack.
    room = np.maximum(fit.bound - misfit, 0)
    return StepCurves(every, shapes, ln_height, np.sqrt(room / (n * profiles.prior(shapes, n))))


def last_batch_size(fit: Fit, gain: float) -> LastDoubling:
    """The batch size that the last doubling of the batch leads to which still saves steps enough.

    No hardware is in it: of devices whose seconds per step stay what they are while batch and devices are doubled
    together, doublings pay off up to this batch size. Nothing beyond the batch sizes of the curve is claimed.

    Args:
      fit: of the curve.
      gain: by which a doubling has to make it faster, as a share; in (0, 1).
    """
    ends = last_doublings(of_fit(fit), gain)
    first, last = float(fit.batch_size[0]), float(fit.batch_size[-1])
    low, high = float(ends.min()), float(ends.max())
    verdict = text.verdict(
        fit.verdict in LOWER and low >= first * (1 - 1e-9), fit.verdict in UPPER and high <= last * (1 + 1e-9)
    )
    return stated(LastDoubling(float(ends[0]), min(low, last), max(high, first), verdict))


def last_doublings(curves: StepCurves, gain: float) -> np.ndarray:
    """Where doublings of the batch cease to make it faster by ``gain``: the larger batch size of the last, float64[c].

    With u = (B*/B)^a the doubling from B gains ln(1 + u) / a − ln(1 + u / 2^a) / a, which is ln(1 + gain) at
    u = (r − 1) / (1 − r / 2^a), where r = (1 + gain)^a.
    """
    a = curves.sharpness
    ratio = (1 + gain) ** a
    below_knee = np.log((ratio - 1) / (1 - ratio / 2**a)) / a  # ln(B*/B)
    return np.asarray(2 * np.exp(curves.ln_critical - below_knee))


def stated(found: LastDoubling) -> LastDoubling:
    """An answer without the numbers that its verdict does not state."""
    return LastDoubling(
        found.best if found.verdict == "identified" else float("nan"),
        found.low if found.verdict in LOWER else float("nan"),
        found.high if found.verdict in UPPER else float("nan"),
        found.verdict,
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else text.number(value)
