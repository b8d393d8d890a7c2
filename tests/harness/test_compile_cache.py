from pathlib import Path
from typing import Any

import jax
import pytest

from harness import compile_cache


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
