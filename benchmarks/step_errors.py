"""Errors of predicted step times for rows left out of the fit: by chip generation, by model family, and with an anchor.

An error is log₂ of the ratio of predicted to published seconds. Steps of the same model on the same chip generation are
similar, so their errors are correlated. The fit therefore assumes one error shared by all steps of a series, plus a
smaller error for each step.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.published_steps import GPU, PublishedStep, arrays, flops
from results.costs import step_model
from results.costs.hardware import CORES, peak
from results.costs.step_constants import CONSTANTS
from results.costs.step_model import Constants, Terms
from results.grouping import grouped

Form = Callable[[np.ndarray, Terms], np.ndarray]  # seconds of steps from positive constants
Predictor = Callable[[list[PublishedStep]], np.ndarray]  # seconds of steps
Fitting = Callable[[list[PublishedStep]], Predictor]
OWN, SHARED = 0.06, 0.2  # standard deviations of the error of a step, and of the error that a series shares, log₂
WEIGHT = 0.3  # of the starting values: a constant that is e times as large costs as much as this many deviations
ROUNDS = 8  # of a fixed-point iteration that converges quickly, because links between nodes take little time
START = (0.8, 2.0, 5.0, 0.025)  # of the constants on TPUs
FAMILIES = (  # start of a model's name, and its family
    ("llama3", "llama 3"),
    ("llama4", "llama 4"),
    ("llama2", "llama 2"),
    ("gemma", "gemma"),
    ("gpt3", "gpt 3"),
    ("mi", "mistral"),
    ("MaxText", "maxtext v4"),
)


def form(constants: np.ndarray, terms: Terms) -> np.ndarray:
    """Returns the seconds of steps on TPUs, given the four constants that they depend on."""
    products, attention, activations, slices = map(float, constants)
    return np.asarray(step_model.parts(terms, Constants(products, attention, activations, slices, 1.0)).step)


def family(step: PublishedStep) -> str:
    """Returns the model family of a step."""
    for start, name in FAMILIES:
        if step.model.startswith(start):
            return name
    return step.model.split("-")[0] if step.source == "tpu-recipes" else step.source


def generation(step: PublishedStep) -> str:
    """Returns the chip generation of a step."""
    return step.chip


def fit(steps: Sequence[PublishedStep], start: Sequence[float] = START, by: Form = form) -> np.ndarray:
    """Returns the positive constants for which a form agrees best with published steps.

    Args:
      steps: steps on TPUs.
      start: initial values of the constants.
      by: the form.
    """
    from scipy.optimize import least_squares  # slow to import

    terms, published = arrays(steps), np.log2([step.seconds for step in steps])
    series = _series(steps)

    def residuals(logs: np.ndarray) -> np.ndarray:
        agreement = _whitened(np.log2(by(np.exp(logs), terms)) - published, series)
        return np.concatenate([agreement, WEIGHT * (logs - np.log(start))])

    return np.asarray(np.exp(least_squares(residuals, np.log(start), loss="soft_l1", bounds=(-12.0, 5.0)).x))


def series_of(published: PublishedStep) -> tuple[object, ...]:
    """Returns the name of a series of steps that differ only in the number of chips."""
    step = published.step
    return (
        published.source,
        published.model,
        published.chip,
        step.precision,
        step.kept,
        step.length,
        step.batch_size / published.chips,
    )


def predicted(steps: Sequence[PublishedStep]) -> np.ndarray:
    """Returns the predicted seconds of several steps."""
    return np.asarray(step_model.parts(arrays(steps), CONSTANTS).step)


def _series(steps: Sequence[PublishedStep]) -> list[np.ndarray]:
    names = [(step.model, step.chip, step.step.precision) for step in steps]
    return [np.array(rows) for rows in grouped(range(len(steps)), lambda i: names[i]).values()]


def _whitened(errors: np.ndarray, series: Sequence[np.ndarray]) -> np.ndarray:
    """Transforms the errors so that they are uncorrelated and have a standard deviation of one."""
    result = []
    for rows in series:
        mean = errors[rows].mean()
        result.append((errors[rows] - mean) / OWN)
        result.append([mean * math.sqrt(len(rows)) / math.hypot(OWN, SHARED * math.sqrt(len(rows)))])
    return np.concatenate(result)


def fit_gpus(steps: Sequence[PublishedStep], attention: float) -> float:
    """Returns the fraction of peak FLOPs that matmuls reach on GPUs, as a mean over series of steps."""
    terms, series = arrays(steps), _series(steps)
    reached = 1.0
    for _ in range(ROUNDS):
        seconds = step_model.parts(terms, Constants(1.0, attention, 0.0, 0.0, reached)).step
        ratios = np.log2(seconds / np.array([step.seconds for step in steps]))
        reached *= float(2 ** np.mean([ratios[rows].mean() for rows in series]))
    return reached


def errors(steps: Sequence[PublishedStep], constants: Constants) -> np.ndarray:
    """Returns log₂ of the ratio of predicted to published seconds."""
    seconds = step_model.parts(arrays(steps), constants).step
    return np.asarray(np.log2(seconds / np.array([step.seconds for step in steps])))


def left_out(
    steps: Sequence[PublishedStep],
    group_of: Callable[[PublishedStep], str],
    fitted: Fitting,
) -> np.ndarray:
    """Returns the error of each step if it is predicted from a fit without the steps of its group.

    Args:
      steps: all steps.
      group_of: function that returns the group of a step.
      fitted: function that fits some steps, and returns a function that predicts the seconds of other steps.
    """
    result = np.full(len(steps), np.nan)
    for rows in grouped(range(len(steps)), lambda i: group_of(steps[i])).values():
        outside = [steps[i] for i in range(len(steps)) if i not in set(rows)]
        inside = [steps[i] for i in rows]
        result[rows] = np.log2(fitted(outside)(inside) / np.array([step.seconds for step in inside]))
    return result


def by_form(
    by: Form = form, start: Sequence[float] = START, trained: Callable[[PublishedStep], bool] | None = None
) -> Fitting:
    """Returns a function for ``left_out`` that fits a form to the steps selected by ``trained``."""

    def fitted(outside: list[PublishedStep]) -> Predictor:
        fitted_constants = fit([step for step in outside if trained is None or trained(step)], start, by)
        return lambda inside: by(fitted_constants, arrays(inside))

    return fitted


def of_gpus(attention: float) -> Fitting:
    """Returns a function for ``left_out`` that fits the GPU constant."""

    def fitted(outside: list[PublishedStep]) -> Predictor:
        fitted_constants = Constants(1.0, attention, 0.0, 0.0, fit_gpus(outside, attention))
        return lambda inside: np.asarray(step_model.parts(arrays(inside), fitted_constants).step)

    return fitted


def ideal_seconds(steps: Sequence[PublishedStep]) -> np.ndarray:
    """Returns the seconds that the model FLOPs take at peak: three passes with causal attention, no recomputation."""
    result = []
    for step in steps:
        tokens = step.step.length * step.step.batch_size
        rate = peak(step.step.row, step.step.precision) * step.chips * CORES.get(step.chip, 1)
        result.append(tokens * flops(step.step.decoder, step.step.length, causal=True) / rate)
    return np.array(result)


def half_of_peak(_: list[PublishedStep]) -> Predictor:
    """Returns the predictor *peak × 0.5*, which has no fitted constants."""
    return lambda inside: 2 * ideal_seconds(inside)


def one_efficiency(outside: list[PublishedStep]) -> Predictor:
    """Returns the predictor that scales the seconds at peak by a single factor: the median over other steps."""
    scale = float(np.median(np.array([step.seconds for step in outside]) / ideal_seconds(outside)))
    return lambda inside: scale * ideal_seconds(inside)


def anchored(steps: Sequence[PublishedStep], errors_of_steps: np.ndarray) -> np.ndarray:
    """Returns the errors of all steps, with each other step of the same generation used as the anchor."""
    pairs = [
        (i, j) for i, step in enumerate(steps) for j, anchor in enumerate(steps) if i != j and step.chip == anchor.chip
    ]
    return np.array([errors_of_steps[i] - errors_of_steps[j] for i, j in pairs])


class Ratios(NamedTuple):
    """Errors of time ratios between chip counts, in log₂: for the predictions, and if speed per chip were constant."""

    predicted: np.ndarray
    no_change: np.ndarray


def ratios(steps: Sequence[PublishedStep], errors_of_steps: np.ndarray, *, every: bool = False) -> Ratios:
    """Returns errors of the change in seconds between two chip counts of a series with constant work per chip.

    Args:
      steps: all steps.
      errors_of_steps: errors of the steps.
      every: whether to use all pairs in a series, instead of only neighbouring chip counts.
    """
    predicted, unchanged = [], []
    for rows in grouped(range(len(steps)), lambda i: series_of(steps[i])).values():
        for i in rows:
            larger = [j for j in rows if steps[j].chips > steps[i].chips]
            following = min((steps[j].chips for j in larger), default=0)
            for j in larger:
                if every or steps[j].chips == following:
                    predicted.append(errors_of_steps[j] - errors_of_steps[i])
                    unchanged.append(math.log2(steps[j].seconds / steps[i].seconds))
    return Ratios(np.array(predicted), np.array(unchanged))


class Summary(NamedTuple):
    """Median and 90 % quantile of the absolute errors, in log₂, and the number of rows."""

    median: float
    p90: float
    rows: int

    def __str__(self) -> str:
        return f"{self.median:.3f} / {self.p90:.3f}"


def summary(values: np.ndarray) -> Summary:
    """Summarizes errors."""
    sizes = np.abs(values)
    return Summary(float(np.median(sizes)), float(np.quantile(sizes, 0.9)), len(sizes))


def constants(steps: Sequence[PublishedStep], trained: Callable[[PublishedStep], bool]) -> Constants:
    """Returns the constants fitted to all steps on GPUs and to the steps on TPUs selected by ``trained``."""
    on_tpus = fit([step for step in steps if trained(step)])
    on_gpus = fit_gpus([step for step in steps if step.subset == GPU], float(on_tpus[1]))
    products, attention, activations, slices = map(float, on_tpus)
    return Constants(products, attention, activations, slices, on_gpus)
