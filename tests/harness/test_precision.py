"""Precision: every task trains in bfloat16, to other numbers, and what is kept is float32."""

import jax
import numpy as np
import pytest

from harness import engine, programs, search
from harness.programs_key import programs_key
from harness.run import Settings
from sweeps import overrides, planning
from tests.harness.test_mesh import OFFLINE

QUICK = ("digits_fc", "noisy_quadratic")


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
