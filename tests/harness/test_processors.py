"""Accelerators of a machine, of which its devices are simulated: how many there are, and whether JAX can use them."""

import importlib.util
from pathlib import Path

import pytest

from harness import processors
from results.bad_input import BadInput
from sweeps.__main__ import main


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of devices of a machine that has none yet."""
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "TPU_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processors, "DEVICES", tmp_path / "dev")
    (tmp_path / "dev" / "vfio").mkdir(parents=True)
    return tmp_path / "dev"


def add(machine: Path, *names: str) -> None:
    for name in names:
        (machine / name).touch()


def install(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Has these plugins be installed, and no other."""
    plugins = {module for needed, _, _ in processors.PLUGINS.values() for module in needed}
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in modules if name in plugins else found(name))


@pytest.mark.parametrize(
    ("devices", "plugin", "found"),
    [
        ((), "", ("cpu", 0)),
        (("nvidiactl", "nvidia0", "nvidia1"), "jax_cuda12_plugin", ("gpu", 2)),
        (("nvidia0",), "jax_cuda13_plugin", ("gpu", 1)),
        (("accel0", "accel1", "accel2", "accel3"), "libtpu", ("tpu", 4)),
        (("vfio/vfio", "vfio/0"), "libtpu", ("tpu", 1)),
    ],
)
def test_accelerators_count_where_jax_can_use_them(
    machine: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...], plugin: str, found: tuple[str, int]
) -> None:
    add(machine, *devices)
    install(monkeypatch, plugin)
    assert processors.accelerators() == found


@pytest.mark.parametrize(
    ("device", "plugins", "name", "extra"),
    [
        ("nvidia0", ("libtpu",), "an NVIDIA GPU", "cuda"),
        ("accel0", ("jax_cuda12_plugin",), "a TPU", "tpu"),
        ("vfio/0", (), "a TPU", "tpu"),
    ],
)
def test_a_missing_plugin_is_one_line_before_anything_is_compiled(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
    plugins: tuple[str, ...],
    name: str,
    extra: str,
) -> None:
    add(machine, device)
    install(monkeypatch, *plugins)
    line = (
        f"this machine has {name}, and JAX's plugin for it is not installed: in a checkout make quickstart "
        f"EXTRA={extra} installs it, elsewhere pip install 'scaling-limits[{extra}]'; "
        "JAX_PLATFORMS=cpu goes on without it, on the CPU"
    )
    with pytest.raises(BadInput) as error:
        processors.accelerators()
    assert str(error.value) == line
    monkeypatch.setattr("sweeps.launchers.local.start", None)  # no worker does
    assert main(["task=digits_fc", "optimizer=sgd", "batch_size=64", f"store={machine / 'store'}"]) == 2
    assert [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")] == [f"error: {line}"]


def test_the_cpu_can_be_asked_for(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, "nvidia0", "accel0")
    install(monkeypatch)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert processors.accelerators() == ("cpu", 0)


def test_gpus_that_are_hidden_are_not_there(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, "nvidia0", "nvidia1", "nvidia2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    install(monkeypatch)
    assert processors.accelerators() == ("cpu", 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    install(monkeypatch, "jax_cuda12_plugin")
    assert processors.accelerators() == ("gpu", 2)


def test_a_library_for_tpus_may_be_anywhere(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, "accel0")
    install(monkeypatch)
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/opt/libtpu.so")
    assert processors.accelerators() == ("tpu", 1)
