"""A second implementation of extents, in plain NumPy and SciPy. It shares no code with the product.

It follows docs/statistics/method.md: the same sequence of random curves, but answers are searched on a dense grid of
batch sizes, misfits are sums of residuals, and constrained least squares are solved by sequential programming.
"""

import numpy as np
from scipy.optimize import minimize

CURVES = 150_000
LN2 = np.log(2)
PER_OCTAVE = 64


def curves(ln_batch):
    """ln steps of the 150,000 prior curves, float64[C, n]."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(0)))
    count = rng.integers(1, 4, CURVES)
    center = rng.uniform(ln_batch[0] - 3 * LN2, ln_batch[-1] + 3 * LN2, CURVES)
    away = rng.normal(0, 1.5, (CURVES, 3)) * LN2
    share = rng.exponential(1, (CURVES, 3))
    a = np.exp(rng.uniform(np.log(0.4), np.log(6), (CURVES, 3)))
    steepness = np.where(rng.random(CURVES) < 0.6, 1.0, 1 - rng.exponential(0.07, CURVES)).clip(0.3)
    tilt = np.where(rng.random(CURVES) < 0.7, rng.normal(0, 0.15, CURVES), 0)
    begins = center + rng.uniform(-1, 3, CURVES) * LN2
    share = np.where(count[:, None] > [0, 1, 2], share, 0)
    share = share / share.sum(axis=1)[:, None]
    knees = center[:, None] + away - np.sum(share * away, axis=1)[:, None]
    total = np.zeros((CURVES, len(ln_batch)))
    for j in range(3):
        total += share[:, j, None] * np.logaddexp(0, a[:, j, None] * (knees[:, j, None] - ln_batch)) / a[:, j, None]
    return steepness[:, None] * total + tilt[:, None] * np.maximum(0, ln_batch - begins[:, None])


def answers(ln_batch, ln_steps, gain=0.2):
    """ln of *pays up to* and of *efficient up to* of one curve or of many [c, n], infinite beyond the data."""
    ln_steps = np.atleast_2d(ln_steps)
    dense = np.linspace(ln_batch[0], ln_batch[-1], round((ln_batch[-1] - ln_batch[0]) / LN2 * PER_OCTAVE) + 1)
    pays, efficient = np.full(len(ln_steps), np.inf), np.full(len(ln_steps), np.inf)
    arrivals = dense[dense >= ln_batch[0] + LN2 - 1e-9]
    for i, one in enumerate(ln_steps):
        gained = np.interp(arrivals - LN2, ln_batch, one) - np.interp(arrivals, ln_batch, one)
        poor = np.flatnonzero(gained < np.log(1 + gain) - 1e-9)
        if len(poor):
            j = poor[0]
            pays[i] = ln_batch[0]
            if j > 0:
                pays[i] = np.interp(-np.log(1 + gain), -gained[j - 1 : j + 1], arrivals[j - 1 : j + 1])
        wasted = np.interp(dense, ln_batch, one) + dense - (one + ln_batch).min() - np.log(1.2)
        j = np.flatnonzero(wasted <= 1e-9)[-1]
        if j < len(dense) - 1:
            efficient[i] = np.interp(0, wasted[j : j + 2], dense[j : j + 2])
    return pays, efficient


def noise(ln_batch, low, high, variance):
    """Variance of ln steps at each batch size, from jackknife variances that are all known."""
    slope, height = np.polyfit(ln_batch, variance, 1)
    line = np.clip(height + slope * ln_batch, variance.mean() / 4, variance.mean() * 4)
    return 1.27**2 * line + np.log(high / low) ** 2 / 12 + 0.03**2


def averaged(ln_batch, low, high, variance, every, every_answer):
    """Weighted quantiles [2, 3] of both answers in ln B, with their margins, the low ones at most the largest B."""
    spread = noise(ln_batch, low, high, variance)
    above = np.log((low + high) / 2) - every
    above -= ((above / spread).sum(axis=1) / (1 / spread).sum())[:, None]
    misfit = (above**2 / spread).sum(axis=1)
    weight = np.exp(-(misfit - misfit.min()) / 2)
    result = []
    for own, outwards in zip(every_answer, (0.25, 0.2), strict=True):
        order = np.argsort(own)
        below = np.cumsum(weight[order]) / weight.sum()
        first, middle, last = (own[order][np.argmax(below >= q - 1e-12)] for q in (0.05, 0.5, 0.95))
        result.append((ln_batch[-1] if np.isinf(first) else first - 0.1 * LN2, middle, last + outwards * LN2))
    return np.array(result)


def convex_misfit(ln_batch, ln_steps, spread, row=None, limit=0.0):
    """Least misfit over convex curves with slopes from -1 to 0.3 and, optionally, ``row . ln_steps >= limit``."""
    gaps = np.diff(ln_batch)

    def slopes(s):
        return np.diff(s) / gaps

    conditions = [
        {"type": "ineq", "fun": lambda s: np.diff(slopes(s))},
        {"type": "ineq", "fun": lambda s: slopes(s) + 1},
        {"type": "ineq", "fun": lambda s: 0.3 - slopes(s)},
    ]
    if row is not None:
        conditions.append({"type": "ineq", "fun": lambda s: row @ s - limit})
    start = np.linspace(ln_steps[0], ln_steps[0] - 0.5 * (ln_batch[-1] - ln_batch[0]), len(ln_batch))
    found = minimize(
        lambda s: ((s - ln_steps) ** 2 / spread).sum(),
        start,
        jac=lambda s: 2 * (s - ln_steps) / spread,
        constraints=conditions,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-9},
    )
    return found.fun if found.success else np.inf
