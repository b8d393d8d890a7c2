"""Assumptions: what a fit takes for granted, each with the number that was seen and whether it bears it out."""

from typing import Literal, NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import profiles
from analysis.fitting.curves import Points
from analysis.fitting.profiles import OCTAVE, interval
from analysis.fitting.regimes import Fit
from analysis.fitting.samples import SHARED, Sample

Outcome = Literal["pass", "doubt", "cannot tell"]

ASSUMPTIONS = {
    "slope": "-1 at small batch sizes",
    "plateau": "a slope of 0 at large ones",
    "residuals": "without a pattern along batch sizes",
    "batch sizes": "enough of them, on both sides of the knee",
    "trials": "equally many at every batch size",
    "points": "of the search: every batch size has its own",
    "search": "half of the trials tell the same",
    "space": "the best trials are inside their search space",
    "evaluations": "close together at the largest batch size",
}
LEVEL = 0.95  # of the intervals of slopes
TOLERATED = 0.2  # of a slope: an interval must reach no farther from what is assumed to bear it out
TILTS = np.linspace(-0.3, 0.3, 13)  # of slopes, that are tried
BESIDE_KNEE = 3  # batch sizes on a side of the knee, fewer than which say nothing of the slope there
FEWEST = 6  # batch sizes; with fewer no number is left to judge the shape by
ROOM = 2.0  # octaves of batch sizes beyond the knee; with less it is identified half of the time
FINE = 1.25  # factor between evaluations
CHANCE = 0.05
DRAWS = 1000


class Check(NamedTuple):
    """One of ``ASSUMPTIONS`` by name, what was seen in words, and whether it bears it out."""

    assumption: str
    seen: str
    outcome: Outcome


def of(fit: Fit, points: Points, shift: float) -> tuple[Check, ...]:
    """What the data say of ``ASSUMPTIONS``, in their order.

    Args:
      fit: of ``points``.
      points: of n batch sizes.
      shift: octaves from the critical batch size of all trials to that of half of them; NaN if unknown.
    """
    return (
        Check("slope", *_slope(fit)),
        Check("plateau", *_plateau(fit)),
        Check("residuals", *_residuals(fit)),
        Check("batch sizes", *_batch_sizes(fit)),
        Check("trials", *_trials(points.counts)),
        Check("points", *_points(points.sample)),
        Check("search", *_search(fit, shift)),
        Check("space", *_space(points)),
        Check("evaluations", *_evaluations(fit, points)),
    )


def _slope(fit: Fit) -> tuple[str, Outcome]:
    """A curve of slope -s is s times one of slope -1: ln steps over s are fitted as usual."""
    scales = 1 + TILTS
    tilted = fit.ln_steps / scales[:, None]
    return _tilt(fit, tilted, scales, below=True)


def _plateau(fit: Fit) -> tuple[str, Outcome]:
    """A curve of slope -1, then -p, is (1 - p) times one with a plateau, and p times a line of slope -1."""
    scales = 1 - TILTS
    tilted = (fit.ln_steps + TILTS[:, None] * np.log(fit.batch_size)) / scales[:, None]
    return _tilt(fit, tilted, scales, below=False)


def _tilt(fit: Fit, tilted: np.ndarray, scales: np.ndarray, below: bool) -> tuple[str, Outcome]:
    """Judges a slope by the misfit of ``tilted`` data [t, n], each of which has one of ``TILTS`` taken out."""
    n, past = len(fit.batch_size), fit.best[0] - np.log(fit.batch_size)
    beside = int(np.sum(past > 0) if below else np.sum(past < 0))
    if n < FEWEST or beside < BESIDE_KNEE:
        return f"{beside} of {n} batch sizes {'below' if below else 'above'} the knee", "cannot tell"
    curves, prior = _near(fit)
    misfit = profiles.misfits(curves, curves**2, tilted, np.broadcast_to(fit.weights, tilted.shape)) * prior
    misfit = misfit.min(axis=1) * scales**2
    best, ends, _ = interval(TILTS, misfit, n, LEVEL, estimated=4)
    slopes = sorted(np.array([best, *ends]) * -1 - (1 if below else 0))
    told = f"{slopes[1]:.2f} [{_end(slopes[0])}, {_end(slopes[2])}]"
    if ends[0] > 0 or ends[1] < 0:
        return told, "doubt"
    return told, "pass" if np.abs(ends).max() <= TOLERATED else "cannot tell"


def _near(fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Curves [n, c] with knees close together around that of ``fit``, and farther apart up to 6 octaves from it."""
    octaves = np.unique(np.concatenate([np.linspace(-6, 6, 49), np.linspace(-1, 1, 33)]))
    past = fit.best[0] + OCTAVE * octaves[:, None] - np.log(fit.batch_size)  # [g, n]
    curves = profiles.excess(past, fit.profile.sharpness[:, None, None])
    prior = np.repeat(profiles.prior(fit.profile.sharpness, len(fit.batch_size)), len(octaves))
    return np.ascontiguousarray(curves.reshape(len(prior), -1).T), prior


def _end(slope: float) -> str:
    return f"{slope:.2f}" if np.isfinite(slope) else ".."


def _residuals(fit: Fit) -> tuple[str, Outcome]:
    """Neighbours that err alike: their correlation, against what luck alone leaves of it once the curve is fitted."""
    n = len(fit.batch_size)
    root = np.sqrt(fit.weights)
    told = f"{np.sqrt(np.mean((root * fit.residuals) ** 2)):.1%} of steps (rms)"
    if n < FEWEST:
        return told, "cannot tell"
    if np.abs(fit.residuals).max() < profiles.NEGLIGIBLE:
        return told, "pass"
    directions, _ = np.linalg.qr(root[:, None] * profiles.slopes(np.log(fit.batch_size), fit.best))
    noise = np.random.default_rng(0).standard_normal((DRAWS, n))
    noise -= noise @ directions @ directions.T
    chance = float(np.mean(_neighbours(noise) >= _neighbours(root * fit.residuals)))
    told += f", neighbours as alike by luck: {chance:.0%}"
    return told, "doubt" if chance < CHANCE else "pass"


def _neighbours(residuals: np.ndarray) -> np.ndarray:
    """Correlation of neighbours, of residuals [..., n]."""
    return (residuals[..., 1:] * residuals[..., :-1]).sum(axis=-1) / (residuals**2).sum(axis=-1)


def _batch_sizes(fit: Fit) -> tuple[str, Outcome]:
    octaves = np.log(fit.batch_size) / OCTAVE
    told = f"{len(octaves)} over {np.ptp(octaves):.3g} octaves"
    room = float(min(fit.best[0] / OCTAVE - octaves[0], octaves[-1] - fit.best[0] / OCTAVE))
    where = f"the knee {room:.1f} inside" if room > 0 else f"the knee {-room:.1f} outside"
    where = "no knee" if np.isnan(fit.critical_batch_size) else where
    return f"{told}, {where}", "pass" if len(octaves) >= FEWEST and room >= ROOM else "doubt"


def _trials(counts: np.ndarray | None) -> tuple[str, Outcome]:
    if counts is None:
        return "points without trials", "cannot tell"
    fewest, most = int(counts.min()), int(counts.max())
    if fewest == most:
        return f"{most} each", "pass"
    # Whoever had many more trials than it counts with was given another search, or others lost theirs.
    return f"{fewest} to {most}, of which the first {fewest} count", "doubt" if most > 2 * fewest else "pass"


def _points(sample: Sample | None) -> tuple[str, Outcome]:
    if sample is None or np.isnan(sample.repeated):
        return "not known, or not a search", "cannot tell"
    told = f"{sample.repeated:.0%} also tried at another batch size"
    if sample.common >= SHARED:
        told += f", {sample.common:.0%} at all: allowed for"
    return told, "doubt" if sample.repeated > 0 else "pass"


def _search(fit: Fit, shift: float) -> tuple[str, Outcome]:
    if np.isnan(shift):
        return "half of the trials cannot be taken", "cannot tell"
    ln_half = fit.best[0] + shift * OCTAVE
    # An open end is NaN, and nothing is beyond it.
    outside = np.log(fit.low) > ln_half or np.log(fit.high) < ln_half
    return f"{shift:+.2f} octaves", "doubt" if outside else "pass"


def _space(points: Points) -> tuple[str, Outcome]:
    told = [(size, found) for size, found in zip(points.batch_size, points.at_edge, strict=False) if found is not None]
    if not told:
        return "not known", "cannot tell"
    crowded = [f"{size:g} ({', '.join(map(str, found))})" for size, found in told if found]
    if not crowded:
        return f"{len(told)} of {len(points.batch_size)} batch sizes", "pass"
    return f"at an end at batch size {text.some(crowded)}", "doubt"


def _evaluations(fit: Fit, points: Points) -> tuple[str, Outcome]:
    if (points.low == points.high).all():
        return "steps without intervals", "cannot tell"
    factor = float(np.exp(fit.rounding))
    return f"a factor {factor:.3g} apart", "pass" if factor <= FINE else "doubt"


def listing(checks: tuple[Check, ...]) -> str:
    """The checks for a reader, a line each."""
    rows = [[check.outcome, f"{check.assumption}: {ASSUMPTIONS[check.assumption]}", check.seen] for check in checks]
    return text.aligned(header := ["", "assumed", "seen"], rows, left=header)
