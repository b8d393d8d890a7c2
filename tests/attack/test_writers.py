"""Writers that nothing but fencing protects from each other, whose clocks are wrong, and whose files reach the disk."""

from pathlib import Path

import pytest

from .conftest import Program

SECONDS = 0.6  # of kills and stops, in a round


@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 4), *(pytest.param(seed, 60, marks=pytest.mark.attack) for seed in (1, 2, 3, 4))]
)
def test_four_writers_without_a_lock_killed_and_stopped_at_random(
    tmp_path: Path, program: Program, seed: int, rounds: int
) -> None:
    """After every round the tables are the truth, each trial's rows of one attempt: the one that was seen before."""
    told = program("stalls.py", tmp_path, seed, rounds, SECONDS)
    assert [each for each in told if each["wrong"]] == []
    assert len(told) == rounds
    assert sum(each["kill"] for each in told) >= 2 * rounds
    assert sum(each["stop"] for each in told) >= 2 * rounds
    assert sum(each["late"] for each in told) >= rounds // 4
    assert sum(each["promised"] for each in told) >= rounds
