"""Draws trials whose learning curves are like those of Shallue et al. 2018.

Trials of all 35 workloads reach the targets of every published figure. The steps to a target follow the three regimes.
For the workloads of Figure 1, the fewest examples and the fewest steps are close to the published values. The other
workloads are similar. The further the effective learning rate of a trial is from the best rate, the more steps the
trial needs. The best rate grows with the batch size up to the critical batch size. Trials with larger rates diverge.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

STATUSES = ("COMPLETE", "INCOMPLETE", "INFEASIBLE")
LASTS = {"COMPLETE": 1.0, "INCOMPLETE": 0.6, "INFEASIBLE": 0.1}  # mean fraction of the budget that a trial uses
SMOOTHINGS = (0.0, 0.01, 0.1)
DECADES = {"learning_rate": 2.5, "momentum": 1.5}  # width of the search space
SAFE = 4.0  # rate above which trials diverge, relative to the best effective learning rate


class LearningCurve(NamedTuple):
    """A learning curve: a target, the fewest examples and steps to reach the target, and the first and last error."""

    column: str
    target: float
    examples: float
    steps: float
    first: float
    last: float


# By data set and model. The longest matching prefix counts.
CURVES = {
    "mnist/simple_cnn": LearningCurve("classification_error", 0.01, 63e3, 145, 0.9, 0.005),
    "mnist/fc": LearningCurve("classification_error", 0.03, 40e3, 110, 0.9, 0.018),
    "mnist_subsets": LearningCurve("classification_error", 0.02, 40e3, 90, 0.9, 0.012),
    "solution_quality/mnist": LearningCurve("classification_error", 0.01, 63e3, 145, 0.9, 0.0055),
    "solution_quality/fashion_mnist": LearningCurve("classification_error", 0.1, 46e3, 150, 0.9, 0.062),
    "fashion_mnist": LearningCurve("classification_error", 0.1, 46e3, 150, 0.9, 0.075),
    "cifar_10": LearningCurve("classification_error", 0.3, 210e3, 750, 0.9, 0.2),
    "imagenet/resnet_50": LearningCurve("classification_error", 0.25, 83e6, 6400, 0.999, 0.225),
    "imagenet/vgg_11": LearningCurve("classification_error", 0.35, 52e6, 14e3, 0.999, 0.3),
    "imagenet_subsets": LearningCurve("classification_error", 0.3, 50e6, 7e3, 0.999, 0.26),
    "open_images_v4": LearningCurve("average_precision", 0.69, 50e6, 7300, 0.99, 0.64),
    "lm1b/lstm": LearningCurve("cross_entropy_error", 3.9, 16e6, 184e3, 10.4, 3.7),
    "lm1b/transformer": LearningCurve("cross_entropy_error", 3.9, 8.8e6, 10.5e3, 10.4, 3.5),
    "lm1b/transformer_shallow": LearningCurve("cross_entropy_error", 3.9, 12e6, 16e3, 10.4, 3.55),
    "lm1b/transformer_narrow_and_shallow": LearningCurve("cross_entropy_error", 3.9, 40e6, 30e3, 10.4, 3.6),
    "common_crawl": LearningCurve("cross_entropy_error", 3.9, 21e6, 37e3, 10.4, 3.6),
}
# Examples and steps that an optimizer needs, relative to Nesterov momentum.
OPTIMIZERS = {"nesterov_momentum": (1.0, 1.0), "momentum": (1.05, 1.3), "sgd": (1.2, 6.0)}
POWER = 0.45  # errors approach the last one as a power law of the steps with this negative exponent


class PlausibleTrials(NamedTuple):
    """The trials of a study: n trials with m measurements in total.

    Attributes:
      status: [n], one of ``STATUSES``.
      metaparameters: float64[n] by name, NaN if a trial does not have the metaparameter.
      rows: int[n], number of measurements of each trial.
      step: int[m], step of each measurement.
      columns: float64[m] by name in the archive. Values are decimal numbers with few digits.
    """

    status: np.ndarray
    metaparameters: Mapping[str, np.ndarray]
    rows: np.ndarray
    step: np.ndarray
    columns: Mapping[str, np.ndarray]


def curve(path: str) -> LearningCurve:
    """Returns the learning curve of a study. ``path`` is DATASET/MODEL/OPTIMIZER/BATCH_SIZE."""
    workload, optimizer = path.rsplit("/", 2)[:2]
    learning_curve = CURVES[max((prefix for prefix in CURVES if workload.startswith(prefix)), key=len)]
    example_factor, longer = OPTIMIZERS[optimizer]
    words = hashlib.sha256(workload.encode()).digest()
    varied = (1.0, 1.0) if workload.endswith(("base", "resnet_50", "resnet_8")) else tuple(b / 255 + 0.5 for b in words)
    return learning_curve._replace(
        examples=learning_curve.examples * example_factor * varied[0], steps=learning_curve.steps * longer * varied[1]
    )


def least_steps(path: str) -> float:
    """Returns the steps that the best trial of a study needs to reach its target."""
    learning_curve, batch_size = curve(path), int(path.rpartition("/")[2])
    return learning_curve.examples / batch_size + learning_curve.steps


def train_steps(path: str) -> int:
    """Returns the budget of a study: four times the steps of the best trial, or more if a figure requires it."""
    batch_size = int(path.rpartition("/")[2])
    steps = 4 * least_steps(path)
    if path.startswith("solution_quality"):
        steps = max(steps, 5e6 / math.sqrt(batch_size))
    if path.startswith(("lm1b/transformer_base", "lm1b/transformer_narrow")):
        steps = max(steps, 1.2e6 / math.sqrt(batch_size / 16))
    return math.ceil(max(steps, 1000))


def parameter_configs(path: str) -> dict[str, dict[str, Any]]:
    """Returns the search space of a study in the format of study.json."""
    optimizer = path.split("/")[-2]
    configs: dict[str, dict[str, Any]] = {
        "learning_rate": {"type": "DOUBLE", "min_value": 1e-6, "max_value": 1e3, "scale": "LOG_SCALE"}
    }
    if optimizer != "sgd":
        configs["momentum"] = {"type": "DOUBLE", "min_value": 0.9, "max_value": 0.9999, "scale": "REVERSE_LOG_SCALE"}
    if _smooths(path):
        configs["label_smoothing"] = {"type": "DISCRETE", "feasible_points": list(SMOOTHINGS), "scale": ""}
    return configs


def plausible_trials(path: str, counts: Sequence[int], evaluations: int, rng: np.random.Generator) -> PlausibleTrials:
    """Draws the trials of a study.

    Args:
      path: DATASET/MODEL/OPTIMIZER/BATCH_SIZE.
      counts: number of trials by status, in the order of ``STATUSES``.
      evaluations: approximate number of measurements of a COMPLETE trial.
      rng: random number generator.
    """
    metaparameters, status, need = _outcomes(path, counts, rng)
    shares = np.array([LASTS[s] for s in status]) * np.where(
        status == "COMPLETE", 1, rng.uniform(0.2, 1.8, len(status))
    )
    budget = train_steps(path)
    shape = np.linspace(0, 1, evaluations + 1) ** 1.5  # evaluations become rarer over a trial
    grid = np.unique(np.ceil(budget * shape)).astype(np.int64)  # from step 0
    rows = np.clip(np.rint(shares * len(grid)).astype(int), 1, len(grid))
    trial = np.repeat(np.arange(len(rows)), rows)
    step = grid[np.arange(len(trial)) - np.repeat(np.cumsum(rows) - rows, rows)]
    smoothing = np.nan_to_num(metaparameters.get("label_smoothing", np.zeros(len(rows))))
    columns = _plausible_columns(curve(path), step / need[trial], smoothing[trial], rng)
    return PlausibleTrials(status, metaparameters, rows, step, columns)


def _outcomes(
    path: str, counts: Sequence[int], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns the metaparameters, the status and the steps to the target of all trials."""
    n, learning_curve, batch_size = sum(counts), curve(path), int(path.rpartition("/")[2])
    ln_rate, ln_gain = (np.log(10) * DECADES[name] * rng.random(n) for name in DECADES)
    with_momentum = "momentum" in parameter_configs(path)
    ln_effective = ln_rate + ln_gain * with_momentum
    diverges = np.argsort(np.argsort(ln_effective + rng.normal(0, 0.4, n))) >= n - counts[2]
    edge = ln_effective[diverges].min() if diverges.any() else ln_effective.max()
    off = (ln_effective - edge + np.log(SAFE)) / 2
    # The best effective learning rate grows like batch size ** 0.7 up to the critical batch size.
    critical = learning_curve.examples / learning_curve.steps
    best = 0.1 * min(batch_size, critical) ** 0.7
    ln_rate += np.log(best * SAFE) - edge + (np.log(10) if with_momentum else 0)
    metaparameters = {"learning_rate": np.exp(ln_rate - (np.log(10) if with_momentum else 0))}
    if with_momentum:
        metaparameters["momentum"] = 1 - np.exp(-ln_gain) / 10
        metaparameters["learning_rate"] /= 10
    if _smooths(path):
        metaparameters["label_smoothing"] = rng.choice(SMOOTHINGS, n) if batch_size < 65536 else np.full(n, np.nan)
    endings = rng.permutation(np.repeat(STATUSES[:2], counts[:2]))
    status = np.full(n, STATUSES[2], object)
    status[~diverges] = endings
    need = least_steps(path) * np.exp(0.8 * off**2 + np.abs(rng.normal(0, 0.35, n)))
    return metaparameters, status, need


def _plausible_columns(
    learning_curve: LearningCurve, progress: np.ndarray, smoothing: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Returns errors in the format of the archive, which reach the target at ``progress`` = 1."""
    columns: dict[str, np.ndarray] = {}
    last = learning_curve.last * (1 + 0.1 * (0.1 - smoothing))
    fall = (learning_curve.target - last) * np.maximum(progress, 1e-9) ** -POWER
    for split, gap in (("train", 0.97), ("val", 1.0), ("test", 1.01)):
        error = gap * (last + fall) * (1 + rng.normal(0, 0.002, len(progress)))
        error = np.minimum(error, learning_curve.first)
        precise = 6 if learning_curve.column == "cross_entropy_error" else 5
        name = f"{split}/{learning_curve.column}"
        columns[name] = np.round(1 - error if learning_curve.column == "average_precision" else error, precise)
        if learning_curve.column != "cross_entropy_error":
            columns[f"{split}/cross_entropy_error"] = np.round(error * 4, 5)
    return columns


def _smooths(path: str) -> bool:
    return path.startswith(("imagenet/resnet_50", "imagenet_subsets"))
