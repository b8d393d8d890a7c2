"""Trials that are divided over devices, by the real command: same answers, and a checkpoint of one layout is any's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from results import exit_codes, store
from results.bad_input import BadInput
from results.plans.study import Target
from results.rules import answers
from sweeps import overrides, planning

ROOT = Path(__file__).parents[2]
COMMON = ("trials=3", "pruning=off", "stop=budget", "launcher.workers=1")
LINE = ("task=digits_fc", "optimizer=momentum", *COMMON)
BOTH = ("mesh=data:2;model:2", "layout=inputs:data;mlp:model")
TENSORS = ("mesh=model:4", "layout=mlp:model")


def started(*words: str, line: tuple[str, ...] = LINE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sweeps", *line, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def run(*words: str, line: tuple[str, ...] = LINE) -> tuple[int, str]:
    """Exit code and messages of a sweep."""
    with started(*words, line=line) as sweep:
        _, err = sweep.communicate()
    return sweep.returncode, err


def measurements(folder: Path) -> np.ndarray:
    """Trial, step and metrics of the only study, one row each."""
    (name,) = store.names(folder)
    table = store.read(folder, name).measurements.sort_values(["trial", "step"])
    return np.asarray(table.drop(columns="study"), np.float64)


@pytest.mark.slow
def test_divided_trials_measure_what_whole_ones_do(tmp_path: Path) -> None:
    code, err = run(f"store={tmp_path}/whole")
    assert code == 0, err
    for number, words in enumerate((BOTH, TENSORS)):
        code, err = run(*words, f"store={tmp_path}/{number}")
        assert code == 0, err
        np.testing.assert_allclose(measurements(tmp_path / str(number)), measurements(tmp_path / "whole"), atol=1e-5)


@pytest.mark.slow
def test_divided_read_out_gives_the_answer_of_a_whole_one(tmp_path: Path) -> None:
    line = (
        *COMMON,
        "task=tiny/transformer_decoder",
        "+task.model.read_out=untied",
        "optimizer=adam",
        "batch_size=16",
        "task.space.learning_rate={scale:LOG,low:0.003,high:0.03}",
    )
    divided = ("mesh=data:2;model:2", "layout=embed:data;heads:model;mlp:model;vocab:model")
    target = Target("validation_loss", 3.4)
    found = []
    for name, more in {"whole": (), "divided": divided}.items():
        code, err = run(*more, f"store={tmp_path}/{name}", line=line)
        assert code == 0, err
        (study,) = store.names(tmp_path / name)
        table = store.read(tmp_path / name, study).measurements.sort_values(["trial", "step"])
        found.append(answers.of_frame(table, target).answer())
    assert found[0] == found[1] is not None
    divided_by, whole = (measurements(tmp_path / name) for name in ("divided", "whole"))
    exact = (whole[:, 0] < 2) | (whole[:, 1] <= 20)  # then rounding grows to 3e-4 in the trial with the largest rate
    np.testing.assert_allclose(divided_by[exact], whole[exact], atol=1e-5)
    np.testing.assert_allclose(divided_by, whole, rtol=1e-3)


@pytest.mark.slow
def test_a_trial_saved_under_one_layout_goes_on_under_another(tmp_path: Path) -> None:
    slow = ("task.budget.epochs=400", "checkpoint_seconds=0")
    with started(*slow, *BOTH, f"store={tmp_path}/divided") as sweep:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "divided").glob("*/checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        sweep.send_signal(signal.SIGTERM)
        assert sweep.wait(60) == exit_codes.PREEMPTED
    assert list((tmp_path / "divided").glob("*/checkpoint-*"))
    code, err = run(*slow, *TENSORS, f"store={tmp_path}/divided")
    assert code == 0, err
    code, err = run(*slow, f"store={tmp_path}/whole")
    assert code == 0, err
    steps = [store.read(tmp_path / name).studies["trial_steps"].tolist()[-1] for name in ("divided", "whole")]
    assert steps[0] < steps[1]  # it did not start again
    divided, whole = measurements(tmp_path / "divided"), measurements(tmp_path / "whole")
    assert divided.shape == whole.shape
    losses = [2, 4]
    early = whole[:, 1] <= 200
    np.testing.assert_allclose(divided[early][:, losses], whole[early][:, losses], atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("layout=mlp:model",), "layout=mlp:model needs a mesh"),
        (("mesh=data:2", "shards=4"), "shards=4 contradicts mesh=data:2"),
        (("mesh=trial:2",), "the axis trial is used for trials"),
        (("mesh=data:2", "layout=mlp:modle"), "the mesh has no axis 'modle'"),
        (("mesh=model:2", "layout=mpl:model"), "no tensor has an axis 'mpl'; did you mean 'mlp'?"),
        (("mesh=model:3", "layout=mlp:model"), "mlp=64 does not divide into 3 parts"),
        (("mesh=data:2", "layout=mlp:data"), "would both be split over 'data'"),
        (("mesh=model:2", "layout=inputs:model;mlp:model"), "would both be split over 'model'"),
        (("mesh=model:2", "layout=batch:model"), "batches are divided over the mesh axis data"),
        (("mesh=model:2", "layout=inputs:data"), "the mesh has no axis 'data'"),
        (("mesh=data:x",), "'x' is not a number of devices"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_before_anything_runs(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        planning.request(overrides.command_line([*LINE, *words, "store=none"]))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("task", ["digits_fc", "pydoc_transformer", "pydoc_lstm", "tiny/resnet"])
def test_an_unknown_axis_is_named_for_every_model(task: str) -> None:
    with pytest.raises(BadInput, match="no tensor has an axis 'foo'"):
        planning.request(overrides.command_line([f"task={task}", "mesh=data:4", "layout=foo:data", "store=none"]))


def test_axes_of_a_divided_program_only_are_checked() -> None:
    """The kernel of the heads has named axes only if heads are divided."""
    words = ["task=pydoc_transformer", "mesh=data:2;model:2", "layout=kv:model;act_embed:model", "store=none"]
    with pytest.raises(BadInput, match=r"'act_embed' and 'kv' of tensor .* would both be split over 'model'"):
        planning.request(overrides.command_line(words))


def test_a_layout_that_cannot_be_is_one_line_of_the_command(tmp_path: Path) -> None:
    code, err = run("mesh=model:2", "layout=mpl:model", f"store={tmp_path}/store")
    assert code == 2
    assert err.startswith("error: layout 'mpl:model;batch:data' at character 1: no tensor has an axis 'mpl'; did you ")
    assert err.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_layout_is_checked_without_starting_a_backend() -> None:
    """Hosts of a multi-host run connect after planning, and JAX refuses that once it has a backend."""
    words = [*LINE, "mesh=model:2", "layout=mlp:model", "store=none"]
    code = (
        "from sweeps import overrides, planning; import jax._src.xla_bridge as bridge; "
        f"planning.request(overrides.command_line({words})); assert not bridge.backends_are_initialized()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
