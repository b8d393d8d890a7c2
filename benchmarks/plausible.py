"""Plausible trials: synthetic ones of all 35 workloads of Shallue et al. 2018, that reach the targets of every figure.

Steps to a target follow the three regimes: of the workloads of Figure 1 with about the published fewest examples and
steps, of the others near those. A trial needs the more, the further its effective learning rate is from the best one,
which grows with the batch size up to the critical one; too large a rate diverges. None of it was measured.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

STATUSES = ("COMPLETE", "INCOMPLETE", "INFEASIBLE")
LASTS = {"COMPLETE": 1.0, "INCOMPLETE": 0.6, "INFEASIBLE": 0.1}  # share of the budget a trial takes, on average
SMOOTHINGS = (0.0, 0.01, 0.1)
DECADES = {"learning_rate": 2.5, "momentum": 1.5}  # that the search spans
SAFE = 4.0  # how far the best effective learning rate is below those that diverge


class LearningCurve(NamedTuple):
    """The learning of a workload: a target, the fewest examples and steps to it, errors at the start and at the end."""

    column: str
    target: float
    examples: float
    steps: float
    first: float
    last: float


# By data set and model, the longest prefix counts.
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
# A plainer optimizer: how many times the examples, and how many times the steps.
OPTIMIZERS = {"nesterov_momentum": (1.0, 1.0), "momentum": (1.05, 1.3), "sgd": (1.2, 6.0)}
POWER = 0.45  # errors fall to their end as steps to the minus this


class PlausibleTrials(NamedTuple):
    """The trials of a study, n in all, with m measurements.

    Attributes:
      status: [n], one of ``STATUSES``.
      metaparameters: by name, float64[n]; NaN where a trial has none.
      rows: int[n], measurements of each trial.
      step: int[m].
      columns: by the archive's name of a column, float64[m], decimals of few digits.
    """

    status: np.ndarray
    metaparameters: Mapping[str, np.ndarray]
    rows: np.ndarray
    step: np.ndarray
    columns: Mapping[str, np.ndarray]


def curve(path: str) -> LearningCurve:
    """The learning curve of the workload of a study; ``path`` is DATASET/MODEL/OPTIMIZER/BATCH_SIZE."""
    workload, optimizer = path.rsplit("/", 2)[:2]
    own = CURVES[max((prefix for prefix in CURVES if workload.startswith(prefix)), key=len)]
    more, longer = OPTIMIZERS[optimizer]
    words = hashlib.sha256(workload.encode()).digest()
    varied = (1.0, 1.0) if workload.endswith(("base", "resnet_50", "resnet_8")) else tuple(b / 255 + 0.5 for b in words)
    return own._replace(examples=own.examples * more * varied[0], steps=own.steps * longer * varied[1])


def least_steps(path: str) -> float:
    """Steps that the best trial of a study needs to its workload's target."""
    own, batch_size = curve(path), int(path.rpartition("/")[2])
    return own.examples / batch_size + own.steps


def train_steps(path: str) -> int:
    """The budget of a study: four times what the best trial needs; long where errors within budgets are looked at."""
    batch_size = int(path.rpartition("/")[2])
    steps = 4 * least_steps(path)
    if path.startswith("solution_quality"):
        steps = max(steps, 5e6 / math.sqrt(batch_size))
    if path.startswith(("lm1b/transformer_base", "lm1b/transformer_narrow")):
        steps = max(steps, 1.2e6 / math.sqrt(batch_size / 16))
    return math.ceil(max(steps, 1000))


def parameter_configs(path: str) -> dict[str, dict[str, Any]]:
    """The search space of a study as study.json words it."""
    optimizer = path.split("/")[-2]
    configs: dict[str, dict[str, Any]] = {
        "learning_rate": {"type": "DOUBLE", "min_value": 1e-6, "max_value": 1e3, "scale": "LOG_SCALE"}
    }
    if optimizer != "sgd":
        configs["momentum"] = {"type": "DOUBLE", "min_value": 0.9, "max_value": 0.9999, "scale": "REVERSE_LOG_SCALE"}
    if _smooths(path):
        configs["label_smoothing"] = {"type": "DISCRETE", "feasible_points": list(SMOOTHINGS), "scale": ""}
    return configs


def trials(path: str, counts: Sequence[int], evaluations: int, rng: np.random.Generator) -> PlausibleTrials:
    """Trials of a study.

    Args:
      path: DATASET/MODEL/OPTIMIZER/BATCH_SIZE.
      counts: trials by status, as ``STATUSES``.
      evaluations: measurements of a COMPLETE trial, about.
      rng: of the numbers.
    """
    metaparameters, status, need = _outcomes(path, counts, rng)
    shares = np.array([LASTS[s] for s in status]) * np.where(
        status == "COMPLETE", 1, rng.uniform(0.2, 1.8, len(status))
    )
    budget = train_steps(path)
    shape = np.linspace(0, 1, evaluations + 1) ** 1.5  # evaluations become rarer as a trial goes on
    grid = np.unique(np.ceil(budget * shape)).astype(np.int64)  # from step 0
    rows = np.clip(np.rint(shares * len(grid)).astype(int), 1, len(grid))
    trial = np.repeat(np.arange(len(rows)), rows)
    step = grid[np.arange(len(trial)) - np.repeat(np.cumsum(rows) - rows, rows)]
    smoothing = np.nan_to_num(metaparameters.get("label_smoothing", np.zeros(len(rows))))
    columns = _columns(curve(path), step / need[trial], smoothing[trial], rng)
    return PlausibleTrials(status, metaparameters, rows, step, columns)


def _outcomes(
    path: str, counts: Sequence[int], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Metaparameters, status and steps to the workload's target of every trial."""
    n, own, batch_size = sum(counts), curve(path), int(path.rpartition("/")[2])
    ln_rate, ln_gain = (np.log(10) * DECADES[name] * rng.random(n) for name in DECADES)
    with_momentum = "momentum" in parameter_configs(path)
    ln_effective = ln_rate + ln_gain * with_momentum
    diverges = np.argsort(np.argsort(ln_effective + rng.normal(0, 0.4, n))) >= n - counts[2]
    edge = ln_effective[diverges].min() if diverges.any() else ln_effective.max()
    off = (ln_effective - edge + np.log(SAFE)) / 2
    # The best effective learning rate grows like the batch size's root or so, until that is critical.
    critical = own.examples / own.steps
    best = 0.1 * min(batch_size, critical) ** 0.7
    ln_rate += np.log(best * SAFE) - edge + (np.log(10) if with_momentum else 0)
    metaparameters = {"learning_rate": np.exp(ln_rate - (np.log(10) if with_momentum else 0))}
    if with_momentum:
        metaparameters["momentum"] = 1 - np.exp(-ln_gain) / 10
        metaparameters["learning_rate"] /= 10
    if _smooths(path):
        metaparameters["label_smoothing"] = rng.choice(SMOOTHINGS, n) if batch_size < 65536 else np.full(n, np.nan)
    others = rng.permutation(np.repeat(STATUSES[:2], counts[:2]))
    status = np.full(n, STATUSES[2], object)
    status[~diverges] = others
    need = least_steps(path) * np.exp(0.8 * off**2 + np.abs(rng.normal(0, 0.35, n)))
    return metaparameters, status, need


def _columns(
    own: LearningCurve, progress: np.ndarray, smoothing: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Errors that come down to the target at ``progress`` = 1, as the archive has them."""
    columns: dict[str, np.ndarray] = {}
    last = own.last * (1 + 0.1 * (0.1 - smoothing))
    fall = (own.target - last) * np.maximum(progress, 1e-9) ** -POWER
    for split, gap in (("train", 0.97), ("val", 1.0), ("test", 1.01)):
        error = gap * (last + fall) * (1 + rng.normal(0, 0.002, len(progress)))
        error = np.minimum(error, own.first)
        precise = 6 if own.column == "cross_entropy_error" else 5
        name = f"{split}/{own.column}"
        columns[name] = np.round(1 - error if own.column == "average_precision" else error, precise)
        if own.column != "cross_entropy_error":
            columns[f"{split}/cross_entropy_error"] = np.round(error * 4, 5)
    return columns


def _smooths(path: str) -> bool:
    return path.startswith(("imagenet/resnet_50", "imagenet_subsets"))
