"""What a machine may lack is said in one line: a Python that is new enough, packages, a home folder, a cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.compiled import compile_cache
from results import durable
from results.bad_input import BadInput
from workloads import caches
from workloads.datasets import array_records

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")
# A Python of another version, as far as the Makefile can tell.
OLD = """#!/bin/sh
case "$2" in *python_version*) echo 3.9.2 ;; *) exit 1 ;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and what it depends on."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def made(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    assert MAKE
    return subprocess.run([MAKE, *words], capture_output=True, text=True, check=False, cwd=folder)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.skipif(MAKE is None, reason="make is not installed")
class TestMake:
    @pytest.mark.parametrize("python", ["old", "nowhere"])
    def test_without_a_python_that_is_new_enough_nothing_is_made(self, checkout: Path, python: str) -> None:
        if python == "old":
            program(checkout / "old", OLD)
        version = {"old": "3.9.2", "nowhere": "not there"}[python]
        done = made(checkout, "quickstart", f"PYTHON=./{python}")
        line = f"error: Python 3.11 or newer is needed; ./{python} is {version}: make quickstart PYTHON=python3.12"
        assert done.returncode == 2
        assert [each for each in done.stderr.splitlines() if not each.startswith("make")] == [line]
        assert done.stdout == ""
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("broken", ["old", "dangling", "without pip"])
    def test_an_environment_that_is_of_no_use_is_made_anew(self, checkout: Path, broken: str) -> None:
        python = checkout / ".venv" / "bin" / "python"
        program(
            python,
            OLD if broken == "old" else f'#!/bin/sh\ncase "$2" in *pip*) exit 1;; esac\nexec {sys.executable} "$@"\n',
        )
        if broken == "dangling":
            python.unlink()
            python.symlink_to("/nowhere/python3.11")
        (checkout / ".venv" / "installed").touch()
        done = made(checkout, "--dry-run", "check", f"PYTHON={sys.executable}")
        assert f"rm -rf .venv && {sys.executable} -m venv .venv\n" in done.stdout

    def test_one_that_is_of_use_is_kept(self, checkout: Path) -> None:
        (checkout / ".venv" / "bin").mkdir(parents=True)
        (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
        program(checkout / ".venv" / "bin" / "uv", "#!/bin/sh\n")
        (checkout / ".venv" / "installed").touch()
        done = made(checkout, "--dry-run", "check", "PYTHON=./nowhere")
        assert (done.returncode, "venv .venv" in done.stdout) == (0, False), done.stderr


@pytest.mark.parametrize(
    ("extra", "plugins"), [("cuda", ("jax-cuda12-plugin", "jax-cuda12-pjrt", "jaxlib")), ("tpu", ("libtpu",))]
)
def test_the_plugins_of_jax_are_locked_for_every_python(extra: str, plugins: tuple[str, ...]) -> None:
    def locked(name: str) -> list[str]:
        return [line.strip() for line in (ROOT / name).read_text().splitlines() if line[:1] not in (" ", "#")]

    everything, own = locked("requirements.lock"), locked(f"requirements-{extra}.lock")
    names = {line.partition("==")[0] for line in everything}
    assert {line for line in own if line.partition("==")[0] in names} <= set(everything)
    versions = {line.partition("==")[2] for line in own if line.startswith("jax==")}
    for plugin in plugins:
        mine = {line.partition("==")[2] for line in own if line.startswith(f"{plugin}==")}
        markers = [{each.partition(" ; ")[2] for each in some} for some in (mine, versions)]
        assert markers[0] == markers[1] and (plugin == "libtpu" or mine == versions)
    assert not [line for line in own if "/" in line or line.startswith("-")]  # names and versions only


@pytest.mark.parametrize("command", ["sweeps", "sweeps.status", "analysis", "results", "workloads.prepare"])
def test_an_old_python_and_a_missing_package_are_one_line(command: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    too_old = (
        f"import sys; sys.version_info = (3, 9, 2); import runpy; runpy.run_module({command!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", too_old], capture_output=True, text=True, check=False, env=environment)
    line = f"error: Python 3.11 or newer is needed; {sys.executable} is 3.9.2\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    words = {"sweeps": "", "sweeps.status": "", "analysis": "fit --store .", "results": "verify --store ."}
    bare = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; sys.argv = ",
    ]
    bare[-1] += f"['x', *{words.get(command, 'mnist').split()!r}]; runpy.run_module({command!r}, run_name='__main__')"
    done = subprocess.run(bare, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f" is not installed for {sys.executable}. In a checkout, run `make quickstart`" in done.stderr


def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a user whom the system does not know."""
    for name in ("HOME", "XDG_CACHE_HOME", "SCALING_LIMITS_CACHE", "TFDS_DATA_DIR", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    for call, words in (
        (lambda: caches.folder("ratings"), "SCALING_LIMITS_CACHE=DIR"),
        (array_records.data_dir, "TFDS_DATA_DIR=DIR"),
        (lambda: durable.location("~/store"), "Set HOME, or write the whole path."),
    ):
        with pytest.raises(BadInput, match=f"this user has no home folder[;.] .*{words}"):
            call()
    assert "SCALING_LIMITS_CACHE=DIR" in str(compile_cache.obstacle())
    assert durable.location("~nobody-of-this-name") == Path("~nobody-of-this-name")
    assert durable.location("./~store") == durable.location(Path("~store")) == Path("~store")


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    assert compile_cache.obstacle() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "file"))
    line = f"{tmp_path}/file/xla cannot be written (Not a directory). Choose another with SCALING_LIMITS_CACHE=DIR."
    assert compile_cache.obstacle() == line
