"""Regimes of a curve of steps to target against batch size: the critical batch size with a reliable 90 % interval.

The model is ln S = m + ln(1 + (B*/B)^a) / a: perfect scaling S = S_min B*/B at small B, a plateau S_min = e^m at large
B, and a knee of sharpness a between them. With a = 1, the model is the hyperbola of McCandlish et al. 2018, arXiv
1812.06162, eq. 2.11. The three regimes follow Shallue et al. 2018, arXiv 1811.03600, section 4.1. At the critical batch
size B* = E_min / S_min, the perfect-scaling line meets the plateau, for any sharpness. Its interval is a
profile-likelihood interval with an F quantile. A model error is added in quadrature. If the data contradict the shape,
the verdict changes (see shapes, verdicts).
"""

from typing import NamedTuple

import numpy as np

from analysis.fitting import FEWEST_BATCH_SIZES, shapes, verdicts
from analysis.fitting.profiles import (
    NEGLIGIBLE,
    OCTAVE,
    Profile,
    excess,
    floors,
    half_width,
    influence,
    interval,
    profile,
)
from analysis.fitting.shapes import ShapeChecks, TrialEvidence
from analysis.text import Verdict
from results import definitions

OCTAVES_BELIEVED = 4  # octaves beyond the data in which B* may lie, for the probabilities of regimes
WITHIN = 1.2  # within a regime, the curve stays within 20 % of its limit
SHOWN = 0.8  # minimum probability for naming a regime
COARSEST = 2.0  # a larger evaluation interval at the largest batch size cannot show a plateau
REGIMES = tuple(definitions.REGIMES)


class Fit(NamedTuple):
    """The model fitted to a curve with n batch sizes.

    Attributes:
      s_min: steps at the plateau, or NaN if the curve does not show a plateau.
      critical_batch_size: critical batch size in examples, or NaN if the best value is at an end of the search range.
      low, high: ends of the 90 % interval in examples, or NaN if open or not reported. Each end is a 95 % bound.
      sharpness: the sharpness a, which is 1 for a hyperbola and larger for a sharper knee.
      verdict: identified, at_least (low), at_most (high) or not_identified.
      plateau_seen: whether evaluations at the largest batch size were frequent enough to detect a plateau.
      caveats: reasons for a weaker verdict.
      batch_size, ln_steps, weights: [n], the data, sorted by batch size. Weights have mean 1.
      best: parameters (ln B*, a, m) of the fitted curve.
      profile: the misfits on the grid that was searched.
      bound: largest ``profile.misfit`` inside the 90 % region.
      rounding: ln of the ratio between the steps of successive evaluations at the largest batch size.
      data_ends: ends of the interval without the model error, in examples, or NaN if open.
      model_error: error due to the fitted shape, in octaves, at the end with the larger error.
      shape: results of the checks of the shape.
    """

    s_min: float
    critical_batch_size: float
    low: float
    high: float
    sharpness: float
    verdict: Verdict
    plateau_seen: bool
    caveats: tuple[str, ...]
    batch_size: np.ndarray
    ln_steps: np.ndarray
    weights: np.ndarray
    best: tuple[float, float, float]
    profile: Profile
    bound: float
    rounding: float
    data_ends: tuple[float, float]
    model_error: float
    shape: ShapeChecks

    @property
    def allowed(self) -> tuple[np.ndarray, np.ndarray]:
        """The parameters ln B* and a of the curves inside the 90 % region, float64[curves] each."""
        a, g = np.nonzero(self.profile.misfit <= self.bound)
        return self.profile.ln_critical[g], self.profile.sharpness[a]

    @property
    def e_min(self) -> float:
        """The fewest examples that reach the target: batch size times steps under perfect scaling."""
        ln_critical, _, floor = self.best
        return float(np.exp(ln_critical + floor))

    @property
    def residuals(self) -> np.ndarray:
        """Residuals of ln steps from the fitted curve, [n]."""
        return self.ln_steps - np.log(curve(self, self.batch_size))


def fit(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    weights: np.ndarray | None = None,
    left_out: np.ndarray | None = None,
    evidence: TrialEvidence | None = None,
) -> Fit:
    """Fits the model to the steps to target at n >= 5 batch sizes, in any order.

    Args:
      batch_size: [n], batch sizes in examples, all different.
      low, high: [n], bounds on the steps to target, which lie in (low, high]. They are equal if the steps are exact. A
        low of 0 counts as 0.5.
      weights: [n], relative weights of ln steps, or None for equal weights. The noise is estimated from the residuals.
      left_out: [n, k], ln steps without point i, from ``weights.without_each``. Only if all batch sizes share the
        points of their search.
      evidence: evidence from the trials, from ``samples.evidence``. If None, the shape is judged only by the residuals.
    """
    order = np.argsort(batch_size)
    weights = np.ones(len(order)) if weights is None else weights
    low, high, weights = (np.asarray(values, np.float64)[order][None] for values in (low, high, weights))
    without = None if left_out is None else left_out[order][None]
    if evidence is not None:
        third, half, near = (values[:, order] for values in (evidence.third, evidence.half, evidence.near))
        evidence = evidence._replace(third=third, half=half, near=near)
    return fit_each(np.asarray(batch_size)[order], low, high, weights, without, evidence)[0]


def fit_each(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    weights: np.ndarray,
    left_out: np.ndarray | None = None,
    evidence: TrialEvidence | None = None,
) -> list[Fit]:
    """Fits d data sets at the same n sorted batch sizes. All arguments except the first have a leading dimension d."""
    if len(batch_size) < FEWEST_BATCH_SIZES:
        raise ValueError(f"a fit needs {FEWEST_BATCH_SIZES} batch sizes, not {len(batch_size)}")
    batch_size, low = np.asarray(batch_size, np.float64), from_zero(low)
    weights = weights / weights.mean(axis=1, keepdims=True)
    ln_steps, ln_batch = np.log((low + high) / 2), np.log(batch_size)
    rounding = np.log(high[:, -1] / low[:, -1])
    without = [None] * len(low) if left_out is None else left_out
    knees = [
        _knee(ln_batch, *dataset)
        for dataset in zip(ln_steps, weights, rounding, without, profile(batch_size, ln_steps, weights), strict=True)
    ]
    best, ends = np.array([knee.best[:2] for knee in knees]), np.array([knee.ends for knee in knees])
    shape_checks = shapes.check(ln_batch, ln_steps, weights, best, ends, evidence)
    return [
        _fit(batch_size, *dataset) for dataset in zip(ln_steps, weights, rounding, knees, shape_checks, strict=True)
    ]


class _Knee(NamedTuple):
    """The best (ln B*, a, m), the intervals of ln B* with and without the model error, and their sources.

    The ends of each interval are [2], infinite if open.
    """

    best: tuple[float, float, float]
    data_ends: np.ndarray
    ends: np.ndarray
    model_error: np.ndarray
    profile: Profile
    bound: float


def _knee(
    ln_batch: np.ndarray,
    ln_steps: np.ndarray,
    weights: np.ndarray,
    rounding: float,
    left_out: np.ndarray | None,
    grid: Profile,
) -> _Knee:
    """Returns the knee of a curve. Evaluations at the largest batch size are ``rounding`` apart, in ln steps."""
    ln_best, ends, bound = interval(grid.ln_critical, grid.misfit.min(axis=0), len(ln_batch))
    ln_floor, misfit = floors(ln_batch, ln_steps, weights, np.full(len(grid.sharpness), ln_best), grid.sharpness)
    row = int(np.argmin(misfit))
    best = (ln_best, float(grid.sharpness[row]), float(ln_floor[row]))
    # Luck shared by all batch sizes does not show up in residuals.
    if left_out is not None:
        half = half_width(influence(ln_batch, ln_steps, weights, best), left_out)
        ends = np.array([min(ends[0], ln_best - half), max(ends[1], ln_best + half)])
    # Rounding and model error are independent of the noise, so widths add in quadrature.
    outwards = np.array([-1.0, 1.0])
    widths = np.hypot(ends - ln_best, rounding / 2)
    error = verdicts.model_error(ln_best, widths, ln_batch)
    return _Knee(best, ln_best + outwards * widths, ln_best + outwards * np.hypot(widths, error), error, grid, bound)


def _fit(
    batch_size: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, rounding: float, knee: _Knee, shape: ShapeChecks
) -> Fit:
    """Returns the fit of a curve with this knee, including its verdict."""
    ln_best, sharpness, ln_floor = knee.best
    plateau_seen = bool(rounding <= np.log(COARSEST) + 1e-9)
    claim = verdicts.decide(knee.data_ends, knee.ends, np.log(batch_size), plateau_seen, shape)
    coarse = (
        f"the evaluation interval at batch size {batch_size[-1]:g} spans a factor {np.exp(rounding):.3g}, "
        "too coarse to see a plateau: evaluate more often"
    )
    first, last = knee.profile.ln_critical[[0, -1]]
    # From here on, open ends are NaN.
    numbers = np.array([ln_best, *claim.ends, *knee.data_ends])
    critical, low, high, *data_ends = np.exp(np.where(np.isfinite(numbers), numbers, np.nan)).tolist()
    return Fit(
        s_min=float(np.exp(ln_floor)) if ln_best < last else float("nan"),
        critical_batch_size=critical if first < ln_best < last else float("nan"),
        low=low,
        high=high,
        sharpness=sharpness,
        verdict=claim.verdict,
        plateau_seen=plateau_seen,
        caveats=claim.caveats if plateau_seen else (coarse, *claim.caveats),
        batch_size=batch_size,
        ln_steps=ln_steps,
        weights=weights,
        best=knee.best,
        profile=knee.profile,
        bound=knee.bound,
        rounding=float(rounding),
        data_ends=(data_ends[0], data_ends[1]),
        model_error=float(knee.model_error.max() / OCTAVE),
        shape=shape,
    )


def from_zero(low: np.ndarray) -> np.ndarray:
    """Returns lower ends of steps to target with finite logarithms: 0 (before the first evaluation) becomes 0.5."""
    return np.where(low == 0, 0.5, low)


def curve(fit: Fit, batch_size: np.ndarray) -> np.ndarray:
    """Returns the steps to target at ``batch_size`` according to the fitted curve, as float64 of the same shape."""
    ln_critical, sharpness, floor = fit.best
    return np.exp(floor + excess(ln_critical - np.log(batch_size), sharpness))


def band(fit: Fit, batch_size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the envelope of all curves (B*, a) inside the 90 % region.

    Args:
      batch_size: [p], examples.

    Returns:
      The fewest and the most steps to target, float64[p] each.
    """
    ln_critical, sharpness = fit.allowed
    ln_floor, _ = floors(np.log(fit.batch_size), fit.ln_steps, fit.weights, ln_critical, sharpness)
    ln_steps = ln_floor[:, None] + excess(ln_critical[:, None] - np.log(batch_size), sharpness[:, None])  # [curves, p]
    best = np.log(curve(fit, batch_size))
    return np.exp(np.minimum(ln_steps.min(axis=0), best)), np.exp(np.maximum(ln_steps.max(axis=0), best))


def probabilities(fit: Fit, batch_size: np.ndarray) -> np.ndarray:
    """Returns the probability of each of ``REGIMES`` at ``batch_size`` [p], as float64[3, p]. Columns sum to 1.

    Perfect scaling means B S <= 1.2 E_min, maximal data parallelism means S <= 1.2 S_min, and diminishing returns lie
    between. The weights are exp(-Q/2) over (B*, a) with B* within 4 octaves of the data.
    """
    ln_batch = np.log(fit.batch_size)
    margin = OCTAVES_BELIEVED * OCTAVE + 1e-9
    believed = (fit.profile.ln_critical >= ln_batch[0] - margin) & (fit.profile.ln_critical <= ln_batch[-1] + margin)
    n = len(ln_batch)
    # Data that fit exactly must not make one curve certain.
    misfit = np.maximum(fit.profile.misfit[:, believed], n * NEGLIGIBLE**2)
    weight = (misfit / misfit.min()) ** (-(n - 1) / 2)  # [A, G]
    # B S <= 1.2 E_min is ln(B*/B) >= t, and S <= 1.2 S_min is ln(B*/B) <= -t: sum the weights of such B*.
    sharpness, ln_critical = fit.profile.sharpness[:, None], fit.profile.ln_critical[believed]
    limit = -np.log(np.expm1(sharpness * np.log(WITHIN))) / sharpness  # t, [A, 1]
    up_to = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(weight, axis=1)], axis=1)  # [A, G + 1]
    curves_below = np.searchsorted(ln_critical, np.log(batch_size) + limit)  # [A, p]
    flat = np.minimum(np.searchsorted(ln_critical, np.log(batch_size) - limit, "right"), curves_below)
    rows = np.arange(len(weight))[:, None]
    total = up_to[:, -1].sum()
    first = (up_to[:, -1:] - up_to[rows, curves_below]).sum(axis=0) / total
    last = up_to[rows, flat].sum(axis=0) / total
    return np.stack([first, np.maximum(1 - first - last, 0), last])


def names(fit: Fit, batch_size: np.ndarray) -> np.ndarray:
    """Returns the name of the regime at each ``batch_size`` [p], or ``?`` if all are too improbable: str[p]."""
    shares = probabilities(fit, batch_size)
    names = np.where(shares.max(axis=0) >= SHOWN, np.array(REGIMES)[shares.argmax(axis=0)], "?")
    if not fit.plateau_seen:
        names[names == REGIMES[-1]] = "?"
    return names
