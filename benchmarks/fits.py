"""Is a fit fast? The target for a complete fit is 100 ms.

    python benchmarks/fits.py [--json FILE] [--smoke]

A complete fit computes points, weights, *pays up to* and *efficient up to* by both methods, the trials that halve them,
the critical batch size with its confidence interval, verdict and checks, the band and the regimes. Curves have 100
trials at each of 6, 9, 11 and 13 batch sizes, like curves from a store. Each curve is fitted at new batch sizes, for
which grids of curves must be computed, and again at the same batch sizes. The simulations of `analysis coverage`, in
which thousands of curves share a few grids, are also timed.
"""

import statistics

import numpy as np
import pandas as pd
from report import BenchmarkReport, open_report, seconds

from analysis.fitting import curves, fit_coverage, fits, regimes, simulation
from analysis.fitting.curves import Curve
from analysis.workload_studies import WorkloadStudies
from results.plans.study import Target

TRIALS = 100
CURVES = 15
MILLISECONDS = 100.0  # for a complete fit
DATASETS = 50


def synthetic_curve(batch_size: np.ndarray, seed: int) -> Curve:
    """Draws a curve with its knee in the middle. Evaluation steps grow by 1.1×, and each trial gives one point."""
    rng = np.random.default_rng(seed)
    fewest = 200 * (1 + np.sqrt(batch_size[0] * batch_size[-1]) / batch_size)
    steps = fewest[:, None] * np.exp(np.abs(rng.normal(0, 0.7, (len(batch_size), TRIALS))))
    evaluation = np.floor(np.log(steps) / np.log(1.1))
    trials = pd.DataFrame(
        {
            "study": np.repeat([f"b{size:g}" for size in batch_size], TRIALS),
            "batch_size": np.repeat(batch_size, TRIALS),
            "trial": np.tile(np.arange(TRIALS), len(batch_size)),
            "steps_low": (1.1**evaluation).ravel(),
            "steps_high": (1.1 ** (evaluation + 1)).ravel(),
            "point": list(map(tuple, rng.random((steps.size, 2)).tolist())),
        }
    )
    sizes = tuple(batch_size.astype(int).tolist())
    return Curve(WorkloadStudies("data", "model", "sgd", "", ()), Target("test_error", 0.1), trials, sizes, False, True)


def whole_fit(curve: Curve) -> None:
    """Runs the complete analysis of a curve, and computes the data for its figure."""
    points_fit = fits.of_points(curves.points(curve))
    assert points_fit.fit is not None and points_fit.checks and np.isfinite(points_fit.shift)
    assert points_fit.extents is not None and fits.extents_of(points_fit.points, assume_nothing=True) is not None
    assert fits.narrowed(points_fit.points) is not None
    sizes = np.geomspace(curve.batch_sizes[0], curve.batch_sizes[-1], 200)
    regimes.band(points_fit.fit, sizes)
    regimes.probabilities(points_fit.fit, sizes)


def main(report: BenchmarkReport) -> None:
    """Adds all figures for fits to a report."""
    count, datasets = (1, 1) if report.smoke else (CURVES, DATASETS)
    whole_fit(synthetic_curve(simulation.SIZES[6], 0))  # imports and one-time setup
    for n, sizes in sorted(simulation.SIZES.items()):
        samples = [synthetic_curve(sizes * (2 + i), seed=i) for i in range(count)]
        # Every curve is fitted twice in a row: with a new grid of curves, and with the same grid.
        durations = [[1e3 * seconds(lambda c=c: whole_fit(c)) for _ in range(2)] for c in samples]
        new, repeated = map(statistics.median, zip(*durations, strict=True))
        report.add(f"fit with everything, {n} new batch sizes: median", new, "ms")
        report.add(f"fit with everything, {n} batch sizes again: median", repeated, "ms")
        report.add(f"{MILLISECONDS:g} ms / fit, {n} new batch sizes", MILLISECONDS / new, "×", 1)
    scenarios = [
        scenario for scenario in simulation.scenarios() if scenario.knee == "middle" and scenario.shape == "sharp"
    ]
    duration = seconds(lambda: fit_coverage.run(datasets, 0, lambda line: None, scenarios))
    rate = datasets * len(scenarios) / duration
    report.add("simulated and fitted by `analysis coverage`", rate, "1/s")


if __name__ == "__main__":
    with open_report(__doc__) as report:
        main(report)
