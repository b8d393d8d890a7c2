"""Regimes of a curve of steps to target over batch size: the critical batch size with an honest 90 % interval.

The model is ln S = m + ln(1 + (B*/B)^a) / a: perfect scaling S = S_min B*/B at small B, a plateau S_min = e^m at
large B and between them a knee of sharpness a. With a = 1 it is the hyperbola of McCandlish et al. 2018, arXiv
1812.06162, eq. 2.11; the three regimes are those of Shallue et al. 2018, arXiv 1811.03600, section 4.1. The critical
batch size B* = E_min / S_min is where the line of perfect scaling meets the plateau, whatever the sharpness. Its
interval is a profile likelihood with an F quantile; the free sharpness keeps it honest when the true curve is no
hyperbola.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import fdtri

Verdict = Literal["identified", "at_least", "at_most", "not_identified"]

FEWEST_BATCH_SIZES = 5
LEVEL = 0.90
OCTAVE = float(np.log(2))
OCTAVES_SEARCHED = 6  # how far beyond the data B* is looked for
OCTAVES_BELIEVED = 4  # how far beyond the data B* may lie where regimes are given probabilities
WITHIN = 1.2  # a regime reaches as far as the curve stays within 20 % of its limit
COARSEST = 2.0  # a wider evaluation interval at the largest batch size says nothing about a plateau
NEGLIGIBLE = 1e-3  # residuals below 0.1 % are no evidence of precision: steps are whole numbers
REGIMES = ("perfect scaling", "diminishing returns", "maximal data parallelism")


class Profile(NamedTuple):
    """The model on a grid of A sharpnesses and G critical batch sizes. All float64.

    Attributes:
      ln_critical: [G], ln of B* in examples, evenly spaced.
      sharpness: [A], evenly spaced in its logarithm.
      ln_floor: [A, G], the best m, ln of S_min in steps.
      misfit: [A, G], weighted residual sum of squares of ln steps times exp((ln a)^2 / (n - 1)), the prior
        ln a ~ N(0, 1); the objective is Q = (n - 1) ln misfit.
    """

    ln_critical: np.ndarray
    sharpness: np.ndarray
    ln_floor: np.ndarray
    misfit: np.ndarray


class Fit(NamedTuple):
    """What a curve of n batch sizes says about its regimes.

    Attributes:
      s_min: the plateau, steps; NaN if the curve shows none.
      critical_batch_size: examples; NaN if the best one is at the edge of what was searched.
      low, high: ends of its 90 % interval, examples; NaN where open. Each end alone is a 95 % bound.
      sharpness: a; 1 is a hyperbola, more is a sharper knee.
      verdict: identified, at_least (low), at_most (high) or not_identified.
      plateau_seen: whether evaluations at the largest batch size were close enough together to see one.
      caveats: what kept the verdict from being better.
      batch_size, ln_steps: [n], the data, sorted by batch size.
      best: (ln B*, a, m) of the fitted curve.
      profile: the grid behind it.
      bound: the largest ``profile.misfit`` inside the 90 % region.
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
    best: tuple[float, float, float]
    profile: Profile
    bound: float

    @property
    def e_min(self) -> float:
        """The fewest examples that reach the target: batch size times steps where scaling is perfect."""
        ln_critical, _, floor = self.best
        return float(np.exp(ln_critical + floor))


def fit(batch_size: np.ndarray, low: np.ndarray, high: np.ndarray, weights: np.ndarray | None = None) -> Fit:
    """Fits the model to the steps to target at n >= 5 batch sizes, in any order.

    Args:
      batch_size: [n], examples, all different.
      low, high: [n], the steps to target lie in (low, high]; equal where they are known exactly. A low of 0 counts as
        0.5.
      weights: [n], relative weights of ln steps; None weighs all alike. The noise is judged from the residuals.
    """
    if len(batch_size) < FEWEST_BATCH_SIZES:
        raise ValueError(f"a fit needs {FEWEST_BATCH_SIZES} batch sizes, not {len(batch_size)}")
    order = np.argsort(batch_size)
    batch_size, high = np.asarray(batch_size, np.float64)[order], np.asarray(high, np.float64)[order]
    low = from_zero(np.asarray(low, np.float64)[order])
    weights = np.ones(len(order)) if weights is None else np.asarray(weights, np.float64)[order]
    ln_batch, ln_steps = np.log(batch_size), np.log((low + high) / 2)

    grid = profile(batch_size, ln_steps, weights)
    ln_best, ends, bound = _interval(grid, len(order))
    rounding = float(np.log(high[-1] / low[-1]))
    ends = ln_best + np.array([-1.0, 1.0]) * np.hypot(ends - ln_best, rounding / 2)
    plateau_seen = rounding <= np.log(COARSEST) + 1e-9
    verdict, caveats = _verdict(ends, ln_batch, plateau_seen)
    if not plateau_seen:
        caveats = (
            f"the evaluation interval at batch size {batch_size[-1]:g} spans a factor {np.exp(rounding):.3g}, "
            "too coarse to see a plateau: evaluate more often",
            *caveats,
        )

    misfit, ln_floor = _evaluate(ln_batch, ln_steps, weights, grid.sharpness, np.array([ln_best]))
    row = int(np.argmin(misfit[:, 0]))
    sharpness, floor = float(grid.sharpness[row]), float(ln_floor[row, 0])
    edges = grid.ln_critical[[0, -1]]
    critical, low_end, high_end = np.exp(np.where(np.isfinite([ln_best, *ends]), [ln_best, *ends], np.nan))
    return Fit(
        s_min=float(np.exp(floor)) if ln_best < edges[1] else float("nan"),
        critical_batch_size=float(critical) if edges[0] < ln_best < edges[1] else float("nan"),
        low=float(low_end),
        high=float(high_end),
        sharpness=sharpness,
        verdict=verdict,
        plateau_seen=plateau_seen,
        caveats=caveats,
        batch_size=batch_size,
        ln_steps=ln_steps,
        best=(ln_best, sharpness, floor),
        profile=grid,
        bound=bound,
    )


def from_zero(low: np.ndarray) -> np.ndarray:
    """Lower ends of steps to target with a finite logarithm: before the first evaluation 0 counts as 0.5."""
    return np.where(low == 0, 0.5, low)


def profile(batch_size: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, per_octave: int = 16) -> Profile:
    """The misfit for B* from 6 octaves below the data to 6 above, and a from 0.35 to 5 in 5 % steps.

    Args:
      batch_size, ln_steps, weights: [n]; weights of mean 1.
      per_octave: points of the grid of ln B* per factor of two.
    """
    ln_batch = np.log(batch_size)
    octaves = np.ptp(ln_batch) / OCTAVE + 2 * OCTAVES_SEARCHED
    points = np.arange(int(octaves * per_octave + 1e-6) + 1)
    ln_critical = ln_batch.min() + OCTAVE * (points / per_octave - OCTAVES_SEARCHED)
    sharpness = np.exp(np.arange(np.log(0.35), np.log(5), 0.05))
    misfit, ln_floor = _evaluate(ln_batch, ln_steps, weights, sharpness, ln_critical)
    return Profile(ln_critical, sharpness, ln_floor, misfit)


def curve(fit: Fit, batch_size: np.ndarray) -> np.ndarray:
    """Steps to target of the fitted curve at ``batch_size``; float64 of its shape."""
    ln_critical, sharpness, floor = fit.best
    return np.exp(floor + _excess(ln_critical - np.log(batch_size), sharpness))


def band(fit: Fit, batch_size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The envelope of all curves (B*, a) inside the 90 % region.

    Args:
      batch_size: [p], examples.

    Returns:
      The fewest and the most steps to target, float64[p] each.
    """
    a, g = np.nonzero(fit.profile.misfit <= fit.bound)
    past = fit.profile.ln_critical[g, None] - np.log(batch_size)  # [curves, p]
    ln_steps = fit.profile.ln_floor[a, g, None] + _excess(past, fit.profile.sharpness[a, None])
    best = np.log(curve(fit, batch_size))
    return np.exp(np.minimum(ln_steps.min(axis=0), best)), np.exp(np.maximum(ln_steps.max(axis=0), best))


def probabilities(fit: Fit, batch_size: np.ndarray) -> np.ndarray:
    """How probable each of ``REGIMES`` is at ``batch_size`` [p]: float64[3, p], each column sums to 1.

    Perfect scaling is where B S <= 1.2 E_min, maximal data parallelism where S <= 1.2 S_min, the rest diminishing
    returns. The weights are exp(-Q/2) over (B*, a) with B* within 4 octaves of the data.
    """
    ln_batch = np.log(fit.batch_size)
    reach = OCTAVES_BELIEVED * OCTAVE + 1e-9
    believed = (fit.profile.ln_critical >= ln_batch[0] - reach) & (fit.profile.ln_critical <= ln_batch[-1] + reach)
    n = len(ln_batch)
    misfit = np.maximum(fit.profile.misfit[:, believed], n * NEGLIGIBLE**2)
    weight = (misfit / misfit.min()) ** (-(n - 1) / 2)  # [A, G]
    past = fit.profile.ln_critical[believed, None] - np.log(batch_size)  # [G, p]
    sharpness = fit.profile.sharpness[:, None, None]
    perfect = _excess(-past, sharpness) <= np.log(WITHIN)  # [A, G, p]: ln (B S / E_min) against ln 1.2
    maximal = ~perfect & (_excess(past, sharpness) <= np.log(WITHIN))
    first, last = (np.einsum("ag,agp->p", weight, regime) / weight.sum() for regime in (perfect, maximal))
    return np.stack([first, np.maximum(1 - first - last, 0), last])


def _excess(past: np.ndarray, sharpness: np.ndarray | float) -> np.ndarray:
    """ln (S / S_min) = ln(1 + e^(a x)) / a where x = ln(B*/B), without overflow."""
    power = np.asarray(np.exp(-sharpness * np.abs(past)))
    power += 1
    np.log(power, out=power)
    power /= sharpness
    power += np.maximum(past, 0)
    return power


def _evaluate(
    ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, sharpness: np.ndarray, ln_critical: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Misfit [A, G] and best m [A, G]; see Profile."""
    weights = weights / weights.mean()
    residuals = ln_steps - _excess(ln_critical[:, None] - ln_batch, sharpness[:, None, None])  # [A, G, n]
    ln_floor = residuals @ weights / weights.sum()
    residuals -= ln_floor[..., None]
    prior = np.exp(np.log(sharpness) ** 2 / (len(ln_batch) - 1))
    return np.square(residuals, out=residuals) @ weights * prior[:, None], ln_floor


def _interval(grid: Profile, n: int) -> tuple[float, np.ndarray, float]:
    """Best ln B*, the two ends of its interval (infinite where open), and the largest misfit inside it.

    Q - Q_min <= (n - 1) ln(1 + F / (n - 3)) is misfit <= misfit_min (1 + F / (n - 3)). Near its minimum the misfit is a
    parabola in ln B* even where the data are exact and Q has a spike: minimum and ends are interpolated on the misfit.
    """
    x, misfit = grid.ln_critical, grid.misfit.min(axis=0)
    i = int(np.argmin(misfit))
    best, least = x[i], misfit[i]
    if 0 < i < len(x) - 1:
        before, after = misfit[i - 1] - least, misfit[i + 1] - least
        if before + after > 0:
            best += (x[1] - x[0]) * (before - after) / (2 * (before + after))
            least -= (before - after) ** 2 / (8 * (before + after))
    least = max(least, n * NEGLIGIBLE**2)
    bound = least * (1 + fdtri(1, n - 3, LEVEL) / (n - 3))
    inside = np.flatnonzero(misfit <= bound)
    first, last = (int(inside[0]), int(inside[-1])) if len(inside) else (i, i)
    height = np.sqrt(np.maximum(misfit - least, 0))  # straight on either side of a parabola's minimum
    edge = np.sqrt(bound - least)
    low = np.interp(edge, height[[first, first - 1]], x[[first, first - 1]]) if first > 0 else -np.inf
    high = np.interp(edge, height[[last, last + 1]], x[[last, last + 1]]) if last < len(x) - 1 else np.inf
    return float(best), np.array([min(low, best), max(high, best)]), float(bound)


def _verdict(ends: np.ndarray, ln_batch: np.ndarray, plateau_seen: bool) -> tuple[Verdict, tuple[str, ...]]:
    """What the interval proves, and in which direction it proves nothing."""
    # An end on the smallest or largest batch size counts as inside; rounding of logarithms must not decide it.
    above, below = ends[0] >= ln_batch[0] - 1e-9, ends[1] <= ln_batch[-1] + 1e-9
    caveats: tuple[str, ...] = () if below else ("the interval reaches past the largest batch size",)
    caveats += () if above else ("the interval reaches past the smallest batch size",)
    if above and below and plateau_seen:
        return "identified", caveats
    if above:
        return "at_least", caveats
    if below and plateau_seen:
        return "at_most", caveats
    return "not_identified", caveats
