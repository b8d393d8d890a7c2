"""What the engine promises, for every task: it runs as its YAML says, learns, and no trial depends on others."""

from collections.abc import Callable

import numpy as np
import pytest

from harness import engine, programs, search
from harness.run import Settings
from results.bad_input import BadInput
from sweeps import overrides, planning
from workloads import registry
from workloads.workload import Examples, Splits

SIDES = {"mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


def images(shape: tuple[int, ...]) -> Splits:
    """Forty bytes-valued images of two classes, bright and dark, in the form of a downloaded data set."""
    labels = np.arange(40, dtype=np.int32) % 2
    noise = np.random.default_rng(0).integers(0, 60, (40, *shape))
    examples = Examples((noise + 150 * labels.reshape(-1, 1, 1, 1)).astype(np.uint8), labels)
    return Splits(examples, examples, examples)


SLOW = ("mnist_cnn", "fashion_mnist_cnn", "cifar10_cnn", "pydoc_transformer")
# Of the others tests/workloads/test_tiny.py trains the tiny ones, and all of their size is lowered in test_sizes.py.
NETWORKS = [name for name in overrides.tasks("batch") if "/" not in name]
TASKS = [pytest.param(t, marks=[pytest.mark.slow] if t in SLOW else []) for t in NETWORKS]


@pytest.mark.parametrize("task", TASKS)
def test_it_learns_and_a_trial_alone_is_the_trial_in_company_to_the_bit(
    task: str, choosing: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, shape in SIDES.items():
        row = registry.DATASETS[name]
        try:
            row.check()
        except BadInput:
            small = row._replace(load=lambda shape=shape: images(shape), shapes=None, check=lambda: None)
            small = small._replace(evaluation_examples=40)
            monkeypatch.setitem(registry.DATASETS, name, small)
    line = [
        *choosing(task),
        "optimizer=nesterov",
        "batch_size=8",
        "task.budget.steps=12",
        "pruning=off",
        "task.targets=[]",
    ]
    rates = "optimizer.space.learning_rate={scale: LOG, low: 0.01, high: 0.05}"
    request = planning.request(overrides.command_line([*line, rates, "task.evaluation_share=1"]))
    (study,) = request.studies
    source = request.sources.get(study.name)
    trials = search.draw(study, range(3))
    company, alone = (engine.run(study, some, Settings(lanes=3), source=source) for some in (trials, trials[2:]))
    programs.forget()  # which hold small data under the names of large ones
    assert alone.outcomes[2] == company.outcomes[2]
    for name, values in alone.metrics.items():
        assert np.array_equal(values.view(np.int32), company.metrics[name][company.trial == 2].view(np.int32))
    first, last = (company.metrics["validation_loss"][company.step == step] for step in (1, 12))
    assert np.nanmin(last) < np.min(first)
