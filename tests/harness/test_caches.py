"""Where caches lie, and the one of compiled programs, which processes share."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import pytest

from harness.compiled import compile_cache
from harness.processes import multihost
from results.bad_input import BadInput
from workloads import caches


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What JAX's configuration is told, instead of JAX."""
    told: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    return told


def test_programs_are_kept_where_all_caches_are(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    compile_cache.enable()
    assert told["jax_compilation_cache_dir"] == str(tmp_path / "xla")


def test_the_folder_that_jax_itself_is_given_wins(told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/given")
    compile_cache.enable()
    assert "jax_compilation_cache_dir" not in told
    assert told["jax_persistent_cache_min_compile_time_secs"] == 0.0


def test_compiled_programs_are_never_loaded_from_a_bucket(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/xla")
    compile_cache.enable()
    assert told == {"jax_compilation_cache_dir": None}
    assert "gs://bucket/xla" in str(compile_cache.obstacle())
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("SCALING_LIMITS_CACHE", "s3://bucket/cache")
    with pytest.raises(BadInput, match="s3://bucket/cache must be a folder on this machine"):
        caches.folder("xla")


# Compiles a program once told to, and says how many it compiled itself.
COMPILING = """
import jax
from jax import monitoring

from harness.compiled import compile_cache

compile_cache.enable()
missed = []
monitoring.register_event_listener(lambda event, **_: missed.append(event) if event.endswith("/cache_misses") else None)
program = jax.jit(lambda seed: jax.random.normal(jax.random.key(seed), (3, 5)))
lowered = program.lower(jax.numpy.uint32(1))
missed.clear()
print("ready", flush=True)
input()
compile_cache.compiled(lowered)
print(len(missed), flush=True)
"""


def test_concurrent_processes_compile_a_program_once(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"SCALING_LIMITS_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    processes = [subprocess.Popen([sys.executable, "-c", COMPILING], **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    counts = [int(process.communicate()[0]) for process in processes]
    assert sorted(counts) == [0, 0, 1]


class Meeting:
    """A program that compiles once it is being compiled twice, as XLA's autotuning over several hosts does."""

    def __init__(self) -> None:
        self.met = threading.Barrier(2, timeout=5)

    def as_text(self) -> str:
        return "the same program"

    def compile(self) -> int:
        return self.met.wait()


@pytest.fixture
def kept_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of this test that JAX keeps compiled programs in."""
    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "xla"))
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("kept_programs")
def test_processes_of_one_study_compile_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By threads, which a lock of a file keeps apart as it does processes."""
    monkeypatch.setattr(multihost, "are_many", lambda: True)
    program: Any = Meeting()
    with ThreadPoolExecutor(2) as threads:
        compiled = [threads.submit(compile_cache.compiled, program) for _ in range(2)]
    assert sorted(each.result() for each in compiled) == [0, 1]


def test_where_caches_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", "~/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert caches.folder("ratings") == Path.home() / "own/ratings"
    monkeypatch.delenv("SCALING_LIMITS_CACHE")
    assert caches.folder("ratings") == Path("/somewhere/scaling-limits/ratings")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert caches.folder("ratings") == Path.home() / ".cache/scaling-limits/ratings"
