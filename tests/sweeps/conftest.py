"""What tests of sweeps share: a look at the worker processes of a sweep."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def children() -> Callable[[int], list[int]]:
    """Gives the worker processes of a process."""
    return _children


def _children(parent: int) -> list[int]:
    """Worker processes of a sweep: its children that have run Python for a while, by the kernel's own list."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
            command = (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"spawn_main" in command:
            found.append(int(entry.parent.name))
    return found
