"""Accelerators of a machine, of which its devices are simulated: how many there are, and whether JAX can use them."""

import importlib.util
import resource
from pathlib import Path

import pytest

from harness.processes import processors, provenance
from results import exit_codes
from results.bad_input import BadInput
from sweeps.__main__ import main
from sweeps.launchers import local


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine that has no accelerator yet."""
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "TPU_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processors, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(processors, "PCI", tmp_path / "pci")
    for folder in ("dev", "pci"):
        (tmp_path / folder).mkdir()
    return tmp_path


def add(machine: Path, *names: str) -> None:
    """Adds GPUs by their names in /dev, and what else is on PCI by its vendor and number."""
    for name in names:
        if name.startswith("nvidia"):
            (machine / "dev" / name).touch()
            continue
        slot = machine / "pci" / f"0000:00:{len(list((machine / 'pci').iterdir())):02}.0"
        slot.mkdir()
        for file, number in zip(("vendor", "device"), name.split(), strict=True):
            (slot / file).write_text(f"{number}\n")


def install(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Has these plugins be installed, and no other."""
    plugins = {module for needed, _, _ in processors.PLUGINS.values() for module in needed}
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in modules if name in plugins else found(name))


V3, V4, V5E, V7X = "0x1ae0 0x0027", "0x1ae0 0x005e", "0x1ae0 0x0063", "0x1ae0 0x0076"
OTHERS = ("0x1ae0 0x001f", "0x8086 0x0027", "0x10de 0x2330")  # a disk of Google's, and chips that are no TPUs


@pytest.mark.parametrize(
    ("devices", "plugin", "found"),
    [
        ((), "", ("cpu", 0)),
        (("nvidiactl", "nvidia0", "nvidia1"), "jax_cuda12_plugin", ("gpu", 2)),
        (("nvidia0",), "jax_cuda13_plugin", ("gpu", 1)),
        (OTHERS, "", ("cpu", 0)),
        ((V3,) * 4, "libtpu", ("tpu", 8)),  # a v3-8 has eight cores on four chips
        ((*OTHERS, V4, V4, V4, V4), "libtpu", ("tpu", 4)),
        ((V5E,), "libtpu", ("tpu", 1)),
        ((V7X,) * 4, "libtpu", ("tpu", 8)),
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
        (V5E, ("jax_cuda12_plugin",), "a TPU", "tpu"),
        (V3, (), "a TPU", "tpu"),
    ],
)
def test_missing_plugin_is_one_line_before_compiling(
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
        f"this machine has {name}, but JAX's plugin for it is not installed. Run make quickstart EXTRA={extra} in a "
        f"checkout, or pip install 'scaling-limits[{extra}]'. Set JAX_PLATFORMS=cpu to compute on the CPU."
    )
    with pytest.raises(BadInput) as error:
        processors.accelerators()
    assert str(error.value) == line
    monkeypatch.setattr("sweeps.launchers.local.start", None)  # no worker does
    assert main(["task=digits_fc", "optimizer=sgd", "batch_size=64", f"store={machine / 'store'}"]) == 2
    assert [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")] == [f"error: {line}"]


def test_the_cpu_can_be_asked_for(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, "nvidia0", V4)
    install(monkeypatch)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert processors.accelerators() == ("cpu", 0)


def test_a_missing_gpu_is_not_replaced_by_the_cpu(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    monkeypatch.setattr("sweeps.launchers.local.start", None)  # no worker does
    line = ["task=digits_fc", "optimizer=sgd", "batch_size=64", f"store={machine / 'store'}"]
    assert main(line) == exit_codes.INVALID
    assert "JAX_PLATFORMS=cuda,cpu requires NVIDIA GPUs" in capsys.readouterr().err
    here = ("launcher=hosts", "launcher.coordinator=h:1", "launcher.hosts=2", "launcher.host=1")
    assert main([*line, *here]) == exit_codes.INVALID
    assert "JAX_PLATFORMS=cuda,cpu requires NVIDIA GPUs" in capsys.readouterr().err
    add(machine, "nvidia0")
    processors.check_platforms()


@pytest.mark.parametrize("is_root", [True, False])
def test_the_limit_on_locked_memory_is_raised(monkeypatch: pytest.MonkeyPatch, is_root: bool) -> None:
    limits = [(8192, 65536)]

    def setrlimit(kind: int, limit: tuple[int, int]) -> None:
        if limit[1] == resource.RLIM_INFINITY and not is_root:
            raise ValueError("not allowed to raise maximum limit")
        limits.append(limit)

    monkeypatch.setattr(processors.resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(processors.resource, "setrlimit", setrlimit)
    processors.allow_locked_memory()
    assert limits[1:] == [(resource.RLIM_INFINITY,) * 2 if is_root else (65536, 65536)]


def test_gpus_that_are_hidden_are_not_there(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, "nvidia0", "nvidia1", "nvidia2")
    install(monkeypatch)
    for names in ("", "-1", "3", "-1,0"):  # CUDA reads them up to the first that is none
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
        assert processors.accelerators() == ("cpu", 0)
    install(monkeypatch, "jax_cuda12_plugin")
    for names, count in (("0,2", 2), ("0,-1,2", 1), ("GPU-8932f937,MIG-a/1/0", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
        assert processors.accelerators() == ("gpu", count)


def test_a_worker_has_a_chip_of_its_own(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, *(V3,) * 4)
    install(monkeypatch, "libtpu")
    assert [environment["TPU_VISIBLE_CHIPS"] for _, environment in local.slots(None)] == ["0", "1", "2", "3"]
    assert local.slots(None, 8) == [((), {})]
    with pytest.raises(BadInput, match="Use 1 or 8"):
        local.slots(None, 2)


def test_a_library_for_tpus_may_be_anywhere(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(machine, V5E)
    install(monkeypatch)
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/opt/libtpu.so")
    assert processors.accelerators() == ("tpu", 1)


def test_the_hash_of_code_covers_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    hashes = []
    for name in ("code/model.py", "code/sizes.toml", "code/columns.csv", "code/notes.md", "code/store/points.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        hashes.append(provenance.code_hash(["code"]))
    assert len(set(hashes[:3])) == 3 and hashes[2:] == hashes[2:3] * 3
