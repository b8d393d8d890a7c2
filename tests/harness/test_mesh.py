"""A batch over shards and microbatches: gradients of one step, and what the compiled programs exchange."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import overrides

ROOT = Path(__file__).parents[2]
OFFLINE = ("digits_fc", "digits_cnn", "pydoc_transformer", "pydoc_lstm", "noisy_quadratic")
TINY = tuple(
    f"tiny/{name}"
    for name in ("fully_connected", "simple_cnn", "resnet_basic", "vgg", "lstm_projected", "transformer_decoder")
)
NORMALIZED = ("tiny/resnet", "tiny/resnet_tags")  # over neighbours: test_divided_networks
SMOOTH = ("pydoc_transformer", "pydoc_lstm")
FEW = {"digits_fc": ("2x1", "4x2", "8x3"), "digits_cnn": ("8x1",), "pydoc_transformer": ("2x4",)}
ALL = tuple(f"{shards}x{microbatches}" for shards in (1, 2, 4, 8) for microbatches in (1, 2, 3, 4))[1:]
CASES = [
    *(pytest.param(task, divisions, id=task) for task, divisions in FEW.items()),
    *(pytest.param(task, ALL, marks=pytest.mark.slow, id=f"{task}-all") for task in OFFLINE),
    *(pytest.param(task, ("2x1", "8x3"), marks=pytest.mark.slow, id=task) for task in TINY),
]


def program(module: str, *words: str) -> dict:
    """What a program prints on eight emulated devices."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", f"tests.harness.{module}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("task", "divisions"), CASES)
def test_gradients_of_one_step_are_those_of_one_device(task: str, divisions: tuple[str, ...]) -> None:
    differences = program("divided", task, "0", *divisions)
    assert differences.keys() == set(divisions)
    assert max(differences.values()) <= 1e-6, differences


@pytest.mark.parametrize(
    "task", ["noisy_quadratic", *(pytest.param(task, marks=pytest.mark.slow, id=task) for task in SMOOTH)]
)
def test_forty_steps_of_a_smooth_network_are_those_of_one_device(task: str) -> None:
    differences = program("divided", task, "40", "2x1", "4x2", "8x3")
    assert max(differences.values()) <= 1e-6, differences


def test_every_task_without_a_download_is_divided() -> None:
    elsewhere = ("mnist", "fashion", "cifar", "shallue2018/", "table")
    there = {task for task in overrides.tasks("batch") if not task.startswith(elsewhere)}
    assert there == {*OFFLINE, *TINY, *NORMALIZED}


@pytest.mark.parametrize(
    "task", ["digits_fc", pytest.param("pydoc_transformer", marks=pytest.mark.slow, id="pydoc_transformer")]
)
def test_shards_exchange_one_sum_a_step_and_nothing_else(task: str) -> None:
    exchanged = program("exchanged", task, "8x1", "8x2")
    assert exchanged.keys() == {"8x1", "8x2"}
    for found in exchanged.values():
        assert found["collectives"] == {"all-reduce": 1}
        assert 0.9 < found["computed / wanted"] <= 1.05
