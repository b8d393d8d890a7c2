from pathlib import Path

import pytest

from workloads import caches


def test_where_caches_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", "~/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert caches.folder("ratings") == Path.home() / "own/ratings"
    monkeypatch.delenv("SCALING_LIMITS_CACHE")
    assert caches.folder("ratings") == Path("/somewhere/scaling-limits/ratings")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert caches.folder("ratings") == Path.home() / ".cache/scaling-limits/ratings"
