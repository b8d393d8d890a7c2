"""What the engine promises, for every task: it runs as its YAML says, learns, and no trial depends on others.

Tasks train in bfloat16 too, and every workload of Shallue et al. 2018 in its tiny form, in seconds on a CPU.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from harness.run import Settings
from harness.runners import engine
from harness.step import programs
from harness.step.programs_key import programs_key
from harness.trials import search
from results.bad_input import BadInput
from sweeps import choices, overrides, planning
from tests.harness.test_mesh import OFFLINE
from workloads import registry
from workloads.workload import Examples, Splits

SIDES = {"mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
QUICK = ("digits_fc",)
# Each family of models learns in workloads/test_models, too; all workloads are slow.
FAMILIES = {"lm1b/lstm/nesterov_momentum"}
TINY = [*dict.fromkeys(name.removeprefix("tiny/") for name in choices.united("tiny/all"))]


def images(shape: tuple[int, ...]) -> Splits:
    """Forty bytes-valued images of two classes, bright and dark, in the form of a downloaded data set."""
    labels = np.arange(40, dtype=np.int32) % 2
    noise = np.random.default_rng(0).integers(0, 60, (40, *shape))
    examples = Examples((noise + 150 * labels.reshape(-1, 1, 1, 1)).astype(np.uint8), labels)
    return Splits(examples, examples, examples)


LEARNING = ("digits_fc", "table")
# Of the others the tiny ones are trained below, and all of their size is lowered in test_tpu.py.
NETWORKS = [name for name in choices.tasks("batch") if "/" not in name]
TASKS = [pytest.param(t, marks=[] if t in LEARNING else [pytest.mark.slow]) for t in NETWORKS]


@pytest.mark.parametrize("task", TASKS)
def test_trial_learns_and_is_the_same_alone_to_the_bit(
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


@pytest.mark.parametrize("task", [pytest.param(t, marks=[] if t in QUICK else [pytest.mark.slow]) for t in OFFLINE])
def test_a_task_learns_in_bfloat16_and_keeps_float32(task: str) -> None:
    rate = "optimizer.space.learning_rate={scale: LOG, low: 0.01, high: 0.05}"
    line = [f"task={task}", "optimizer=sgd", "batch_size=16", "trials=2", "pruning=off", "task.targets=[]", rate]
    line += ["task.budget={steps: 20, epochs: null, examples: null, at_least_steps: null}", "task.evaluation_share=1"]
    losses = {}
    for precision in ("float32", "bfloat16"):
        (study,) = planning.request(overrides.command_line([*line, f"precision={precision}"])).studies
        record = engine.run(study, search.draw(study, range(2)), Settings(lanes=2))
        losses[precision] = record.metrics["validation_loss"][record.trial == 0]
        assert losses[precision].dtype == np.float32 and losses[precision][-1] < losses[precision][0]
        workload = programs.workload_of(programs_key(study))
        params, _ = jax.eval_shape(workload.init, jax.random.key(0))
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    assert not np.array_equal(losses["float32"], losses["bfloat16"])


@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[] if name in FAMILIES else [pytest.mark.slow]) for name in TINY]
)
def test_loss_falls(workload: str, streamed_data: Path, tmp_path: Path) -> None:
    budget = "task.budget={steps: 120, epochs: null, examples: null, at_least_steps: null}"
    line = [f"+experiment=tiny/{workload}", "batch_size=16", "trials=2", budget, "-m", f"store={tmp_path}"]
    (study,) = planning.request(overrides.command_line(line)).studies
    record = engine.run(study, search.draw(study, range(study.trials)), Settings())
    losses = record.metrics["validation_loss"]
    first, last = (losses[record.step == at] for at in (record.step.min(), study.budget_steps))
    share = 0.95 if "resnet_8" in workload or "vgg" in workload else 0.8  # these two gain 8 to 10 % in 120 steps
    assert np.nanmin(last) < share * np.median(first), (first, last)


def test_workloads_that_are_quick_are_among_the_tiny_ones() -> None:
    assert set(TINY) > FAMILIES
