"""Simulated searches: trials at several batch sizes, with a given critical batch size."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.fitting.profiles import OCTAVE, excess
from results.plans.batch_study import evaluation_steps

TRIALS = 32
# A curve is a weighted mean of knees, each with a weight, octaves above B* and a sharpness. Weights sum to 1 and
# weighted octaves to 0, so that perfect scaling meets the plateau at B*. The last two are outside the fitted family.
SHAPES = {
    "hyperbola": ((1.0, 0.0, 1.0),),
    "soft": ((1.0, 0.0, 0.6),),
    "sharp": ((1.0, 0.0, 3.0),),
    "two steps": ((0.5, -1.5, 2.0), (0.5, 1.5, 2.0)),
    # Within 0.4 % of gradient descent on the quadratic of Zhang et al. 2019, arXiv 1907.04164, in 100 dimensions with
    # the best constant rate, to a loss of 0.1.
    "noisy quadratic": ((0.446, -0.746, 2.02), (0.554, 0.746 * 0.446 / 0.554, 0.914)),
}
# Sharp towards perfect scaling and slow to reach its plateau. It strains the assumptions and is reported separately.
LOPSIDED = "lopsided"
ALL_SHAPES = {**SHAPES, LOPSIDED: ((0.6, -0.4, 3.0), (0.4, 0.6, 1.0))}
# Batch sizes by their number: 12, 8, 10 and 10 octaves from 1 on. The last one is for curves beyond the assumptions.
SIZES = {13: 2.0 ** np.arange(13), 9: 2.0 ** np.arange(9), 6: 4.0 ** np.arange(6), 11: 2.0 ** np.arange(11)}
DENSE = 21  # the 10 octaves of 11 batch sizes in steps of half an octave


class Noise(NamedTuple):
    """A search. At distance d from the optimum, trials need exp(steepness d^2 + spread z) times the fewest steps."""

    steepness: float
    spread: float
    trials: int = TRIALS


NOISES = {"low": Noise(2.0, 0.03), "high": Noise(8.0, 0.15)}
# Searches of 64 trials by their luck, the standard deviation of ln steps of the best of 32, as the jackknife sees it.
LUCKS = {
    "luck 0.04": Noise(4.22, 0.03, 64),
    "luck 0.08": Noise(9.0, 0.07, 64),
    "luck 0.14": Noise(14.8, 0.15, 64),
    "luck 0.22": Noise(27.7, 0.15, 64),
    "luck 0.30": Noise(40.0, 0.15, 64),
}
GRIDS = ("ratio 1.1", "plateau / 8")  # evaluations at steps that grow by a constant ratio, or at equal distances
INSIDE = ("middle", "2 octaves inside", "1 octave inside", "2 octaves above the smallest")
ABSENT = ("absent: perfect scaling", "absent: plateau")
KNEES = (*INSIDE, "2 octaves beyond", *ABSENT)
# The search points: separate for each batch size, or shared by all, with or without the fit's knowledge.
POINTS = ("own", "shared", "shared unawares")
SEARCH_BUDGET = 20.0  # multiple of the fewest steps; slower trials do not reach
DIVERGED = 1 / 8  # fraction of the trials that diverge
_RATIO, _SHARE = 1.1, 8
_STANDARD = (13, 9, 6)  # batch sizes
_LONGEST = 10**8


class Beyond(NamedTuple):
    """A curve or a search that violates an assumption of the fit.

    Attributes:
      breaks: the check that must detect the violation.
      curve: function that returns ln S / S_min at ln(B*/B).
      harder: ratio of the steepness at the largest batch size to that at the smallest.
    """

    breaks: str
    curve: Callable[[np.ndarray], np.ndarray]
    harder: float = 1.0


def _hyperbola(ln_below_knee: np.ndarray) -> np.ndarray:
    return excess(ln_below_knee, 1.0)


def _sum(ln_below_knee: np.ndarray, knees: Sequence[tuple[float, float, float]]) -> np.ndarray:
    return np.sum([weight * excess(ln_below_knee + octaves * OCTAVE, a) for weight, octaves, a in knees], axis=0)


def _tilted(ln_below_knee: np.ndarray, per_octave: float) -> np.ndarray:
    """Returns a hyperbola whose steps change by a factor per octave beyond four critical batch sizes."""
    return _hyperbola(ln_below_knee) + np.log(per_octave) / OCTAVE * np.maximum(-ln_below_knee - 2 * OCTAVE, 0)


def _two_rates(ln_below_knee: np.ndarray, plateau: float, perfect: float) -> np.ndarray:
    """Returns a knee that approaches the plateau like (B*/B)^plateau and perfect scaling like (B/B*)^perfect."""
    moved = ln_below_knee + 1 / perfect - 1 / plateau
    flat = perfect / plateau / (plateau + perfect) * np.exp(plateau * np.minimum(moved, 0))
    steep = plateau / perfect / (plateau + perfect) * np.exp(-perfect * np.maximum(moved, 0))
    return np.where(moved < 0, flat, ln_below_knee + steep)


# For a slope of -s at small batch sizes, its line meets the plateau at B*.
BEYOND = {
    "slope -0.85": Beyond("slope", lambda ln_below_knee: 0.85 * _hyperbola(ln_below_knee)),
    "plateau rises 12 %": Beyond("plateau", lambda ln_below_knee: _tilted(ln_below_knee, 1.12)),
    "knee 4 x sharper to its plateau": Beyond("knee", lambda ln_below_knee: _two_rates(ln_below_knee, 2.4, 0.6)),
    "knee 4 x sharper to perfect scaling": Beyond("knee", lambda ln_below_knee: _two_rates(ln_below_knee, 0.6, 2.4)),
    "harder search": Beyond("search", _hyperbola, 16.0),
    # No choice was based on these.
    "slope -0.92": Beyond("slope", lambda ln_below_knee: 0.92 * _hyperbola(ln_below_knee)),
    "slope -0.85, sharp": Beyond("slope", lambda ln_below_knee: 0.85 * excess(ln_below_knee, 2.0)),
    "plateau falls 12 %": Beyond("plateau", lambda ln_below_knee: _tilted(ln_below_knee, 1 / 1.12)),
    "knee 2 x sharper to its plateau": Beyond("knee", lambda ln_below_knee: _two_rates(ln_below_knee, 1.7, 0.85)),
    # Within 0.4 % of gradient descent as above, in 10 dimensions.
    "noisy quadratic, 10 dimensions": Beyond(
        "knee", lambda ln_below_knee: _sum(ln_below_knee, ((0.266, -0.635, 2.48), (0.734, 0.23, 1.11)))
    ),
    "slightly harder search": Beyond("search", _hyperbola, 4.0),
}
CHOSEN_ON = tuple(BEYOND)[:5]
# Curves without a knee that the fit describes, or whose answer is a close call.
HARD_TO_ANSWER = {
    "power law, slope -0.9": lambda ln_below_knee: 0.9 * ln_below_knee,
    "plateau falls 6 %": lambda ln_below_knee: _tilted(ln_below_knee, 1 / 1.06),
    "plateau falls 25 %": lambda ln_below_knee: _tilted(ln_below_knee, 1 / 1.25),
}


class Scenario(NamedTuple):
    """A simulated case, given by keys of the tables above."""

    knee: str
    shape: str
    sizes: int
    noise: str
    grid: str
    points: str = POINTS[0]

    @property
    def batch_size(self) -> np.ndarray:
        """float64[n], sorted."""
        return 2.0 ** (np.arange(DENSE) / 2) if self.sizes == DENSE else SIZES[self.sizes]


class Searches(NamedTuple):
    """d data sets of a scenario.

    Attributes:
      critical: float64[d], true critical batch sizes, infinite or 0 without a knee.
      ln_least: float64[d, n], the true curve: ln of the fewest steps.
      low, high: float64[d, n, k], bounds on the steps to target of trials, which lie in (low, high]. NaN if not
        reached.
      ln_rerun: float64[d, n, k], median ln steps of each trial over seeds.
    """

    critical: np.ndarray
    ln_least: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ln_rerun: np.ndarray


def scenarios() -> list[Scenario]:
    """Returns all scenarios. Scenarios without a knee have only one shape, and those in ``BEYOND`` come last."""
    knees = [(knee, shape) for knee in KNEES for shape in ALL_SHAPES if knee not in ABSENT or shape == "hyperbola"]
    own_points = itertools.product(knees, _STANDARD, NOISES, GRIDS)
    shared = itertools.product(POINTS[1:], INSIDE[:2], SHAPES, _STANDARD, NOISES)
    return [
        *(Scenario(knee, shape, sizes, noise, grid) for (knee, shape), sizes, noise, grid in own_points),
        *(Scenario(knee, shape, sizes, noise, GRIDS[0], points) for points, knee, shape, sizes, noise in shared),
        *(Scenario(INSIDE[0], shape, 11, noise, GRIDS[0]) for shape in BEYOND for noise in NOISES),
    ]


def draw(scenario: Scenario, datasets: int, rng: np.random.Generator, times: int = 1) -> Searches:
    """Simulates the trials of a scenario, with its number of trials multiplied by ``times``.

    Search points are uniform on a square, and the optimum drifts across it with batch size. If all trials would miss
    the target, which can happen in hard searches, the trial with the fewest steps reaches it.
    """
    ln_batch = np.log(scenario.batch_size)
    n = len(ln_batch)
    ln_critical = _ln_critical(scenario.knee, ln_batch, datasets, rng)
    ln_floor = np.log(rng.uniform(300, 600, (datasets, 1)))
    ln_least = ln_floor + _curve(scenario, ln_critical[:, None] - ln_batch, ln_batch)  # [d, n]

    least_steepness, spread, trials = (NOISES | LUCKS)[scenario.noise]
    trials *= times
    points = rng.random((datasets, n if scenario.points == POINTS[0] else 1, trials, 2))
    optimum = np.stack([np.linspace(0.4, 0.6, n), np.full(n, 0.5)], axis=1)
    distance = ((points - optimum[:, None]) ** 2).sum(axis=-1)  # [d, n, k]
    harder = BEYOND[scenario.shape].harder if scenario.shape in BEYOND else 1.0
    steepness = least_steepness * harder ** np.linspace(0, 1, n)[:, None]  # [n, 1]
    tuning = steepness * distance
    luck = tuning + spread * rng.standard_normal((datasets, n, trials))
    diverged = np.broadcast_to(rng.random(points.shape[:-1]) < DIVERGED, luck.shape)
    missed = diverged | (luck > np.log(SEARCH_BUDGET))
    luckiest = luck == luck.min(axis=2, keepdims=True)
    luck = np.where(missed & ~(missed.all(axis=2, keepdims=True) & luckiest), np.nan, luck)
    low, high = _evaluated(np.exp(ln_least[..., None] + luck), scenario.grid, np.exp(ln_floor)[..., None])
    return Searches(np.exp(ln_critical), ln_least, low, high, ln_least[..., None] + tuning)


def _ln_critical(knee: str, ln_batch: np.ndarray, datasets: int, rng: np.random.Generator) -> np.ndarray:
    if knee in ABSENT:
        return np.full(datasets, np.inf if knee == ABSENT[0] else -np.inf)
    positions = {
        "middle": ln_batch[[0, -1]].mean(),
        "2 octaves inside": ln_batch[-1] - 2 * OCTAVE,
        "1 octave inside": ln_batch[-1] - OCTAVE,
        "2 octaves above the smallest": ln_batch[0] + 2 * OCTAVE,
        "2 octaves beyond": ln_batch[-1] + 2 * OCTAVE,
    }[knee]
    # A small shift, so that no position between two batch sizes is preferred.
    return positions + OCTAVE * rng.uniform(-0.25, 0.25, datasets)


def _curve(scenario: Scenario, ln_below_knee: np.ndarray, ln_batch: np.ndarray) -> np.ndarray:
    """Returns ln S / S_min at ``ln_below_knee`` = ln(B*/B)."""
    if scenario.knee == ABSENT[0]:
        return np.broadcast_to(ln_batch[-1] - ln_batch, ln_below_knee.shape)
    if scenario.knee == ABSENT[1]:
        return np.zeros(ln_below_knee.shape)
    if scenario.shape in BEYOND:
        return BEYOND[scenario.shape].curve(ln_below_knee)
    if scenario.shape in HARD_TO_ANSWER:
        return HARD_TO_ANSWER[scenario.shape](ln_below_knee)
    return _sum(ln_below_knee, ALL_SHAPES[scenario.shape])


def _evaluated(steps: np.ndarray, grid: str, plateau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the evaluations before and after ``steps``. NaN values stay NaN."""
    if grid == GRIDS[0]:
        evaluation_step = np.concatenate([[0], evaluation_steps(_LONGEST, _RATIO), [np.nan]])
        after = np.searchsorted(evaluation_step[:-1], np.where(np.isnan(steps), _LONGEST * 2, steps))
        return np.where(np.isnan(steps), np.nan, evaluation_step[after - 1]), evaluation_step[after]
    spacing = plateau / _SHARE
    return np.floor(steps / spacing) * spacing, np.floor(steps / spacing + 1) * spacing
