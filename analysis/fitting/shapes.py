"""Shapes: tests the fitted shape against alternative shapes that would invalidate the fit.

The noise is estimated from the trials. The best of a third of the trials scatters less around the curve than the best
of all trials, and its jackknife variance gives an absolute scale. If the trials are unknown, the noise is estimated
from the residuals. At the significance levels below, fewer than 5 % of curves with the fitted shape fail any check.
docs/statistics/experiments.md lists the alternatives.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from analysis.fitting import shape_alternatives
from analysis.fitting.profiles import NEGLIGIBLE, OCTAVE
from analysis.fitting.shape_alternatives import BENDS, Bend, Bent

CheckOutcome = Literal["pass", "doubt", "cannot tell"]

FEWEST = 7  # minimum batch sizes for judging the shape
BESIDE_KNEE = 3  # minimum batch sizes on one side of the knee for judging the shape there
ROOM = 2.5  # minimum octaves of batch sizes on that side
SHRINKS = 0.7  # ratio of the variance for the best of a third to the jackknife variance for the best of half
KNOWN = 20  # degrees of freedom of that variance
# Probability of such a size below 0, and above it. Steps are not expected to fall faster than examples double.
LEVELS: dict[Bend, tuple[float, float]] = {"slope": (0.012, 0.002), "plateau": (0.001, 0.001), "knee": (0.01, 0.01)}
TOLERATED: dict[Bend, float] = {"slope": 0.2, "plateau": 0.2, "knee": float(np.log(4))}  # a wider interval is no pass
HARDER = 0.005  # probability of such a clear decrease in the fraction of good trials with batch size
MATTERS = -0.1  # minimum shift of the knee in octaves, when using half of the trials, for this to matter
BOUND = 0.95  # confidence level of a lower end and of printed intervals


class Check(NamedTuple):
    """The name of an assumption, a description of the evidence, and the outcome."""

    assumption: str
    seen: str
    outcome: CheckOutcome


class TrialEvidence(NamedTuple):
    """Evidence from all k trials, rather than only the best, at each of n batch sizes, for d data sets.

    Attributes:
      third, half: float64[d, n], expected ln steps of the best of a third and of half of the trials.
      variance: float64[d], variance of ln steps for the best of half, averaged over batch sizes, or NaN if unknown.
      near: int[d, n], number of trials that needed at most twice the steps of the best.
      trials: number of trials k.
    """

    third: np.ndarray
    half: np.ndarray
    variance: np.ndarray
    near: np.ndarray
    trials: int


class ShapeChecks(NamedTuple):
    """Results of the checks of a curve's shape.

    Attributes:
      checks: slope, plateau, knee and search, in this order.
      ln_low: smallest of the 95 % lower bounds on ln B* from the curve and from the ``BENDS`` that can be judged. A
        positive ``shift`` lowers the bound from the curve.
      shift: octaves by which the critical batch size changes if only half of the trials are used, or NaN if unknown.
    """

    checks: tuple[Check, ...]
    ln_low: float
    shift: float

    @property
    def doubts(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.outcome == "doubt"]


def sides(ln_best: float, ln_batch: np.ndarray) -> tuple[bool, bool]:
    """Returns whether there are enough batch sizes to judge the shape on each side of the knee (below, above)."""
    ln_below_knee = ln_best - ln_batch
    enough = [
        np.sum(beside > 0) >= BESIDE_KNEE and beside.max() > ROOM * OCTAVE for beside in (ln_below_knee, -ln_below_knee)
    ]
    return bool(enough[0] and len(ln_batch) >= FEWEST), bool(enough[1] and len(ln_batch) >= FEWEST)


def _judgeable_bends(ln_best: float, ln_batch: np.ndarray) -> list[bool]:
    """Returns, for each of ``BENDS``, whether it can be judged."""
    judgeable_below, judgeable_above = sides(ln_best, ln_batch)
    return [
        {"slope": judgeable_below, "plateau": judgeable_above}.get(bend, judgeable_below and judgeable_above)
        for bend in BENDS
    ]


def check(
    ln_batch: np.ndarray,
    ln_steps: np.ndarray,
    weights: np.ndarray,
    best: np.ndarray,
    ends: np.ndarray,
    evidence: TrialEvidence | None,
) -> list[ShapeChecks]:
    """Checks the shapes of d data sets at the same batch sizes.

    Args:
      ln_batch: [n], sorted.
      ln_steps, weights: [d, n], data and weights. Weights have mean 1.
      best: [d, 2], ln B* and a of the fitted curves.
      ends: [d, 2], ends of the intervals of ln B*, infinite if open.
      evidence: evidence from the trials, or None if they are unknown.
    """
    start = np.stack([best[:, 0], np.log(best[:, 1])], axis=1)
    is_known = np.zeros(len(best), bool) if evidence is None else np.isfinite(evidence.variance)
    # If trials are known, the best of a third replaces the best of all, because it scatters less.
    variance = np.zeros(len(best))
    if evidence is not None:
        variance[is_known] = SHRINKS * evidence.variance[is_known]
        ln_steps = np.where(is_known[:, None], evidence.third, ln_steps)
        weights = np.where(is_known[:, None], 1.0, weights)
    bent = _bent(ln_batch, ln_steps, weights, start, variance)
    can_judge = np.array([_judgeable_bends(where, ln_batch) for where in best[:, 0]])  # [d, bends]
    bend_checks = [
        _bend_checks(bend, bent[bend], can_judge[:, i], best[:, 0], ln_batch) for i, bend in enumerate(BENDS)
    ]
    searches = _searches(ln_batch, best[:, 0], ends, start, evidence)
    # A lower bound must hold for every bend that can be judged.
    lows = np.stack(
        [
            bent_curve.bent.ln_critical - stdtrit(bent_curve.freedom, BOUND) * bent_curve.errors[:, 0]
            for bent_curve in bent.values()
        ]
    )
    low = np.where(can_judge, lows.T, np.inf).min(axis=1)
    return [
        ShapeChecks((*checks, search), float(min(bound, end - max(np.nan_to_num(shift), 0) * OCTAVE)), shift)
        for *checks, (search, shift), bound, end in zip(*bend_checks, searches, low, ends[:, 0], strict=True)
    ]


class _FittedBend(NamedTuple):
    """An alternative fit to d data sets: curve, standard errors [d, 2] of ln B* and size, t, degrees of freedom."""

    bent: Bent
    errors: np.ndarray
    t: np.ndarray
    freedom: np.ndarray


def _bent(
    ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, start: np.ndarray, variance: np.ndarray
) -> dict[Bend, _FittedBend]:
    """Fits all alternatives to d data sets. ``variance`` [d] is that of ln steps. If it is 0, residuals are used."""
    n, minimum = len(ln_batch), NEGLIGIBLE**2
    # Noise from the trials if known, and otherwise from the residuals.
    residual = shape_alternatives.squares(ln_batch, ln_steps, weights, start) / max(n - 3, 1)
    noise = np.maximum(np.where(variance > 0, variance, residual), minimum)
    plain = shape_alternatives.fit("straight", ln_batch, ln_steps, weights, start, noise)
    start = np.stack([plain.ln_critical, np.log(plain.sharpness)], axis=1)
    trusted = np.where(variance > 0, KNOWN, 0)
    freedom = np.maximum(trusted + n - 4, 1)
    fits_of_bends: dict[Bend, _FittedBend] = {}
    for bend in BENDS:
        bent_curve = shape_alternatives.fit(bend, ln_batch, ln_steps, weights, start, noise)
        # The known variance and the residuals combined, each weighted by its degrees of freedom.
        scale = np.sqrt(np.maximum((trusted * variance + bent_curve.squares) / freedom, minimum))
        t = np.sign(bent_curve.size) * np.sqrt(np.maximum(plain.misfit - bent_curve.misfit, 0)) / scale
        fits_of_bends[bend] = _FittedBend(bent_curve, bent_curve.spread * scale[:, None], t, freedom)
    return fits_of_bends


def _bend_checks(
    bend: Bend, fitted: _FittedBend, can_judge: np.ndarray, ln_best: np.ndarray, ln_batch: np.ndarray
) -> list[Check]:
    """Checks that an alternative has size 0. ``can_judge`` [d] marks those of the d data sets that can be judged."""
    lower_level, upper_level = LEVELS[bend]
    doubted = fitted.t < -stdtrit(fitted.freedom, 1 - lower_level)
    doubted |= fitted.t > stdtrit(fitted.freedom, 1 - upper_level)
    half_widths = stdtrit(fitted.freedom, (1 + BOUND) / 2) * fitted.errors[:, 1]
    checks = []
    for i, where in enumerate(ln_best):
        if not can_judge[i]:
            checks.append(Check(bend, _too_few(bend, where, ln_batch), "cannot tell"))
            continue
        size = fitted.bent.size[i] + np.array([0, -1, 1]) * half_widths[i]
        borne_out: CheckOutcome = "pass" if np.abs(size).max() <= TOLERATED[bend] else "cannot tell"
        checks.append(Check(bend, _words(bend, size), "doubt" if doubted[i] else borne_out))
    return checks


def _words(bend: Bend, size: np.ndarray) -> str:
    """Formats an alternative's best size and the ends of its interval, as a slope or as a ratio of sharpnesses."""
    if bend == "knee":
        best, low, high = np.exp(np.clip(size, -10, 10))
        return f"a factor {best:.2g} [{low:.2g}, {high:.2g}] sharper towards perfect scaling"
    best, low, high = np.sort(-1 - size)[[1, 0, 2]] if bend == "slope" else size
    return f"{best:.2f} [{low:.2f}, {high:.2f}]"


def _too_few(bend: Bend, ln_best: float, ln_batch: np.ndarray) -> str:
    n, smaller, larger = len(ln_batch), int(np.sum(ln_batch < ln_best)), int(np.sum(ln_batch > ln_best))
    if n < FEWEST:
        return f"{n} batch sizes, but {FEWEST} are needed"
    counts = {"slope": f"{smaller} of {n} batch sizes below", "plateau": f"{larger} of {n} batch sizes above"}
    return counts.get(bend, f"{smaller} batch sizes below and {larger} above") + " the knee"


def _searches(
    ln_batch: np.ndarray, ln_best: np.ndarray, ends: np.ndarray, start: np.ndarray, evidence: TrialEvidence | None
) -> list[tuple[Check, float]]:
    """Checks that searches are equally hard at every batch size, for d data sets. Also returns the shifts."""
    if evidence is None:
        return [(Check("search", "no half of the trials to compare", "cannot tell"), float("nan"))] * len(ln_best)
    alike = np.ones_like(evidence.half)
    noise = np.maximum(np.nan_to_num(evidence.variance), NEGLIGIBLE**2)
    half = shape_alternatives.fit("straight", ln_batch, evidence.half, alike, start, noise).ln_critical
    shifts = (half - ln_best) / OCTAVE
    # Log odds, with half a trial added to both sides to keep them finite.
    share = np.log((evidence.near + 0.5) / (evidence.trials - evidence.near + 0.5))
    trend, error = _trend(ln_batch, share)
    harder = trend < -stdtrit(len(ln_batch) - 2, 1 - HARDER) * error
    checks = []
    for i, shift in enumerate(shifts):
        if not ln_batch[0] <= ln_best[i] <= ln_batch[-1]:
            checks.append((Check("search", "no knee among the batch sizes", "cannot tell"), float("nan")))
            continue
        inside = ends[i, 0] <= half[i] <= ends[i, 1]
        outcome: CheckOutcome = "doubt" if not inside or (harder[i] and shift < MATTERS) else "pass"
        first, last = evidence.near[i, [0, -1]]
        seen = f"half of the trials {shift:+.2f} octaves, {first} to {last} of {evidence.trials} within twice the best"
        checks.append((Check("search", seen, outcome), float(shift)))
    return checks


def _trend(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slopes of straight lines through y [d, n] over x [n], and their standard errors: [d] each."""
    centered = x - x.mean()
    slope = y @ centered / (centered @ centered)
    # The residuals determine the noise of the slope.
    rest = y - y.mean(axis=1, keepdims=True) - slope[:, None] * centered
    return slope, np.sqrt((rest**2).sum(axis=1) / (len(x) - 2) / (centered @ centered))
