"""Checks the assumptions of a fit. Each check reports the observed value and an outcome.

The shape of the curve and the search are checked in shapes.py, because doubts about them change the verdict.
"""

import numpy as np

from analysis import text
from analysis.fitting import profiles, regimes
from analysis.fitting.curves import Points
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import Fit
from analysis.fitting.samples import SHARED, Sample
from analysis.fitting.shapes import Check, CheckOutcome
from results import tables

FEWEST = 6  # minimum batch sizes for judging residuals
ROOM = 2.0  # octaves of batch sizes beyond the knee; with fewer, it is identified half of the time
FINE = 1.25  # factor between evaluations
CHANCE = 0.05
DRAWS = 1000
ASSUMPTIONS = {
    "slope": "-1 at small batch sizes",
    "plateau": "a slope of 0 at large batch sizes",
    "knee": "the same sharpness on both sides",
    "residuals": "no pattern across batch sizes",
    "batch sizes": f"at least {FEWEST}, covering at least {ROOM:g} octaves on each side of the knee",
    "perfect scaling": "visible at the smallest batch sizes, which determine its line",
    "trials": "the same number at every batch size",
    "points": "separate points of the search for every batch size",
    "search": "equally hard at every batch size",
    "space": "the best trials are not at an end of their search space",
    "evaluations": "close together at the largest batch size",
}
OF_TRIALS = ("points", "search", "space")  # judged from trials that ran to the end
FINDINGS = {  # the reason for a doubt about each of these
    "slope": "doubling a small batch size does not halve the steps",
    "plateau": "steps do not level off at large batch sizes",
    "knee": "it is sharper on one side than on the other",
    "residuals": "errors of neighbouring points agree more than luck explains",
    "batch sizes": f"there are fewer than {FEWEST}, or they span under {ROOM:g} octaves on a side of the knee",
    "perfect scaling": f"no measured batch size is on its line with a probability of {regimes.SHOWN:.0%} or more. Try "
    "smaller ones",
    "trials": "one batch size had more than double the trials of another",
    "points": "batch sizes tried the same metaparameters and so share their luck",
    "search": "good metaparameters are harder to find at some batch sizes, which shifts the critical batch size",
    "space": "the best trials cluster at one end of a searched range. Better ones may lie beyond it",
    "evaluations": f"those at the largest batch size are more than a factor of {FINE:g} apart",
}
PRUNED = "pruned, so all trials but the best are cut short (pruning=off avoids this)"


def check(fit: Fit, points: Points) -> tuple[Check, ...]:
    """Checks each of ``ASSUMPTIONS``, in order, for the ``fit`` of ``points``."""
    slope, plateau, knee, search = fit.shape.checks
    candidates = (
        slope,
        plateau,
        knee,
        Check("residuals", *_residuals(fit)),
        Check("batch sizes", *_batch_sizes(fit)),
        Check("perfect scaling", *_perfect_scaling(fit)),
        Check("trials", *_trials(points.trial_counts)),
        Check("points", *_points(points.sample)),
        search,
        Check("space", *_space(points)),
        Check("evaluations", *_evaluations(fit, points)),
    )
    pruned = points.trials is not None and points.sample is None
    return tuple(
        candidate._replace(seen=PRUNED)
        if pruned and candidate.assumption in OF_TRIALS and candidate.outcome == "cannot tell"
        else candidate
        for candidate in candidates
    )


def _residuals(fit: Fit) -> tuple[str, CheckOutcome]:
    """Compares the correlation between neighbouring residuals with that of pure noise around a fitted curve."""
    n = len(fit.batch_size)
    root = np.sqrt(fit.weights)
    words = f"{np.sqrt(np.mean((root * fit.residuals) ** 2)):.1%} of steps (rms)"
    if n < FEWEST:
        return words, "cannot tell"
    if np.abs(fit.residuals).max() < profiles.NEGLIGIBLE:
        return words, "pass"
    directions, _ = np.linalg.qr(root[:, None] * profiles.slopes(np.log(fit.batch_size), fit.best))
    noise = np.random.default_rng(0).standard_normal((DRAWS, n))
    noise -= noise @ directions @ directions.T
    chance = float(np.mean(_neighbours(noise) >= _neighbours(root * fit.residuals)))
    words += f", chance of such similar neighbours: {chance:.0%}"
    return words, "doubt" if chance < CHANCE else "pass"


def _neighbours(residuals: np.ndarray) -> np.ndarray:
    """Returns the correlation between neighbouring residuals [..., n]."""
    return (residuals[..., 1:] * residuals[..., :-1]).sum(axis=-1) / (residuals**2).sum(axis=-1)


def _batch_sizes(fit: Fit) -> tuple[str, CheckOutcome]:
    octaves = np.log(fit.batch_size) / OCTAVE
    words = f"{len(octaves)} over {np.ptp(octaves):.3g} octaves"
    room = float(min(fit.best[0] / OCTAVE - octaves[0], octaves[-1] - fit.best[0] / OCTAVE))
    where = f"the knee {abs(room):.1f} octaves {'inside' if room > 0 else 'outside'} them"
    if np.isnan(fit.critical_batch_size):
        where = "no knee"
    return f"{words}, {where}", "pass" if len(octaves) >= FEWEST and room >= ROOM else "doubt"


def _perfect_scaling(fit: Fit) -> tuple[str, CheckOutcome]:
    """Checks that the curve comes close to the perfect-scaling line. If it does not, the line is extrapolated."""
    shares, n = regimes.probabilities(fit, fit.batch_size)[0], len(fit.batch_size)
    count = int((shares >= regimes.SHOWN).sum())
    if count:
        return f"at {count} of {n} batch sizes", "pass"
    best = int(shares.argmax())
    return f"at 0 of {n} batch sizes, {shares[best]:.0%} likely at batch size {fit.batch_size[best]:g}", "doubt"


def _trials(trial_counts: np.ndarray | None) -> tuple[str, CheckOutcome]:
    if trial_counts is None:
        return "points without trials", "cannot tell"
    fewest, largest = int(trial_counts.min()), int(trial_counts.max())
    if fewest == largest:
        return f"{largest} each", "pass"
    # A batch size with many more trials either had a different search, or the others lost trials.
    return f"{fewest} to {largest}, of which the first {fewest} count", "doubt" if largest > 2 * fewest else "pass"


def _points(sample: Sample | None) -> tuple[str, CheckOutcome]:
    if sample is None or np.isnan(sample.repeated):
        return "unknown, or not a search", "cannot tell"
    words = f"{sample.repeated:.0%} also tried at another batch size"
    if sample.common >= SHARED:
        words += f", {sample.common:.0%} at all of them (allowed for)"
    return words, "doubt" if sample.repeated > 0 else "pass"


def _space(points: Points) -> tuple[str, CheckOutcome]:
    edges = [(size, ends) for size, ends in zip(points.batch_size, points.at_edge, strict=False) if ends is not None]
    if not edges:
        return "unknown", "cannot tell"
    crowded = [f"{size:g} ({', '.join(map(str, ends))})" for size, ends in edges if ends]
    if not crowded:
        return f"{len(edges)} of {len(points.batch_size)} batch sizes", "pass"
    return f"at an end at batch size {text.first_few(crowded)}", "doubt"


def _evaluations(fit: Fit, points: Points) -> tuple[str, CheckOutcome]:
    if (points.low == points.high).all():
        return "steps without intervals", "cannot tell"
    factor = float(np.exp(fit.rounding))
    return f"a factor {factor:.3g} apart", "pass" if factor <= FINE else "doubt"


def listing(checks: tuple[Check, ...]) -> str:
    """Formats the checks as text, one per line."""
    rows = [[check.outcome, f"{check.assumption}: {ASSUMPTIONS[check.assumption]}", check.seen] for check in checks]
    return tables.table(header := ["", "assumed", "seen"], rows, left=header, prose=header[1:])
