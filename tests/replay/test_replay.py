"""Every optimizer's numbers, measured by the engine in float32 and by another program in float64.

From the engine come a trial's initial parameters and the order of its examples, which are JAX's random numbers, and
nothing else: data, loss, gradient, update rule, decay, grid of evaluations and metrics are NumPy's, in this folder.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from harness.run import Settings
from harness.step import rng
from results import store
from sweeps import overrides, planning
from sweeps.study_run import run_study
from workloads import registry

from .network import Params, gradient, metrics
from .rules import RULES

WIDTHS = [16]
BATCH_SIZE, STEPS, RATIO, SHARE, EVALUATED = 64, 40, 1.3, 0.9, 386
# Far below what a wrong rule changes, and hundreds of times what rounding does to these trials (4e-7 at most).
TOLERANCE = 1e-4


class Asked(NamedTuple):
    """A trial: its decay, and all metaparameters its rule has beside weight decay."""

    schedule: str
    given: dict[str, float]


TRIALS = {
    "sgd": Asked("linear", {"learning_rate": 0.5}),
    "momentum": Asked("cosine", {"learning_rate": 0.1, "momentum": 0.8}),
    "nesterov": Asked("linear", {"learning_rate": 0.1, "momentum": 0.8}),
    "adam": Asked("cosine", {"learning_rate": 0.01, "b1": 0.8, "b2": 0.999, "eps": 1e-8}),
    "adamw": Asked("linear", {"learning_rate": 0.01, "b1": 0.8, "b2": 0.97, "eps": 1e-8}),
    "lars": Asked("cosine", {"learning_rate": 0.3, "momentum": 0.8, "trust_coefficient": 0.2}),
    "lamb": Asked("linear", {"learning_rate": 0.03, "b1": 0.8, "b2": 0.99, "eps": 1e-5}),
    "muon": Asked("cosine", {"learning_rate": 0.03, "beta": 0.8}),
    "schedule_free": Asked("linear", {"learning_rate": 2.0, "b1": 0.9}),
}
ALWAYS = {"weight_decay": 0.02, "label_smoothing": 0.1, "decay_fraction": 0.8, "end_learning_rate_factor": 0.1}


class Digits(NamedTuple):
    """Examples of a split: inputs float64[N, 64] in [0, 1], and labels int[N]."""

    inputs: np.ndarray
    labels: np.ndarray


def _digits(split: Any) -> Digits:
    """The images of a split from scikit-learn itself: which they are is the split's, what they are is not."""
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    where = {image.tobytes(): i for i, image in enumerate(bunch.images)}
    rows = [where[np.round(image[..., 0].astype(np.float64) * 16).tobytes()] for image in split.inputs]
    return Digits(bunch.images[rows].reshape(len(rows), -1) / 16, bunch.target[rows])


def _evaluation_steps() -> list[int]:
    """Growing by a factor, and rare enough that examples evaluated are no more than a share of all."""
    spacing = 2 * EVALUATED / BATCH_SIZE * (1 - SHARE) / SHARE
    steps = [0]
    while steps[-1] < STEPS:
        steps.append(min(STEPS, max(steps[-1] + 1, math.ceil(steps[-1] * RATIO), math.ceil(len(steps) * spacing))))
    return steps[1:]


def _decay(schedule: str, step: int) -> float:
    done = min(step / (ALWAYS["decay_fraction"] * STEPS), 1.0)
    left = 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return ALWAYS["end_learning_rate_factor"] + (1 - ALWAYS["end_learning_rate_factor"]) * left


def _from_the_engine(seed: int) -> tuple[Params, Iterator[np.ndarray], Any]:
    """A trial's initial parameters, the order of its examples epoch by epoch, and the splits they are of."""
    workload = registry.workload(registry.dataset("digits"), "fully_connected", {"widths": WIDTHS}, "sgd")
    init_key, data_key = rng.keys(np.uint32(seed))
    layers = workload.init(init_key)[0]["params"]
    params = {
        f"{i}.{name}": np.asarray(layers[f"Dense_{i}"][name], np.float64)
        for i in range(len(layers))
        for name in ("kernel", "bias")
    }
    splits = registry.dataset("digits").load()
    train = splits.train
    assert train is not None
    epochs = 1 + STEPS // (len(train.labels) // BATCH_SIZE)
    orders = (np.asarray(rng.epoch_order(data_key, np.int32(epoch), len(train.labels))) for epoch in range(epochs))
    return params, orders, splits


def _replayed(optimizer: str, told: Mapping[str, float], seed: int) -> list[dict[str, float]]:
    """What is measured of a trial, evaluation by evaluation."""
    params, orders, splits = _from_the_engine(seed)
    train, validation = _digits(splits.train), _digits(splits.validation)
    per_epoch = len(train.labels) // BATCH_SIZE
    visited = np.concatenate([order[: per_epoch * BATCH_SIZE] for order in orders])
    rule = RULES[optimizer](dict(params), told)
    trained, evaluated = next(rule)
    rows = []
    for step in range(STEPS):
        batch = visited[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        slope = gradient(trained, train.inputs[batch], train.labels[batch], told["label_smoothing"])
        trained, evaluated = rule.send((slope, told["learning_rate"] * _decay(TRIALS[optimizer].schedule, step)))
        if step + 1 in _evaluation_steps():
            row: dict[str, float] = {"step": step + 1}
            for split, examples in (("train", train), ("validation", validation)):
                measured = metrics(evaluated, examples.inputs[:EVALUATED], examples.labels[:EVALUATED])
                row |= {f"{split}_{kind}": value for kind, value in measured.items()}
            rows.append(row)
    return rows


def _run(folder: Path, optimizer: str) -> tuple[int, Mapping[str, float], list[dict[str, float]]]:
    """A study of one trial, measured and stored: the trial's seed, its metaparameters, its measurements."""
    asked = TRIALS[optimizer]
    line = [
        f"optimizer={optimizer}",
        f"batch_size={BATCH_SIZE}",
        "trials=1",
        "pruning=off",
        f"task.model.widths={WIDTHS}",
    ]
    line += ["task.targets=[]", f"+task.budget.steps={STEPS}", f"task.schedule={asked.schedule}"]
    line += [f"task.evaluation_ratio={RATIO}", f"task.evaluation_share={SHARE}"]
    asked_for = asked.given | ALWAYS
    line += [f"+task.space.{name}={value}" for name, value in asked_for.items()]
    (study,) = planning.request(overrides.command_line(line)).studies
    run_study(folder, study, Settings(lanes=1))
    tables = store.read(folder)
    (trial,) = tables.trials.to_dict("records")
    # Programs are told float32.
    told = {name: float(np.float32(trial[name])) for name in asked_for}
    return int(trial["seed"]), told, tables.measurements.drop(columns=["study", "trial"]).to_dict("records")


@pytest.mark.parametrize("optimizer", list(registry.OPTIMIZERS))
def test_another_program_in_float64_measures_the_same(optimizer: str, tmp_path: Path) -> None:
    seed, told, measured = _run(tmp_path, optimizer)
    replayed = _replayed(optimizer, told, seed)
    assert measured[-1]["validation_loss"] < 0.95 * measured[0]["validation_loss"]
    assert [row["step"] for row in measured] == _evaluation_steps()
    assert len(measured) == len(replayed) > 8
    for ours, theirs in zip(measured, replayed, strict=True):
        assert ours == pytest.approx(theirs, rel=TOLERANCE)
