"""Forged stores and releases, by the hundred: every command ends in order, and nothing happens outside of them."""

from pathlib import Path

import pytest

from .conftest import Program


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 1), *(pytest.param(s, 60, marks=pytest.mark.attack) for s in (1, 2, 3))]
)
def test_every_command_ends_in_order(tmp_path: Path, program: Program, seed: int, count: int) -> None:
    """Exit code 0, 1 or 2, no traceback, nothing that steers a terminal, bounded memory, and no file elsewhere."""
    told = program("forge.py", tmp_path, seed, count)
    assert len(told) == count
    assert [each for each in told if each["wrong"]] == []
