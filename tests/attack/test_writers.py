"""Whatever writes to a store: killed at every moment, refused by the disk, or four at once that just fencing keeps."""

import collections
from pathlib import Path
from typing import Any

import pytest

from .conftest import Program

# The fewest moments there are of each, and what it does: that none is forgotten, nor all counted that do nothing.
OPERATIONS = {
    "commit": (75, {"unlink"}),
    "merge": (180, {"unlink"}),
    "export": (90, {"unlink", "rename"}),
    "import the archive": (130, {"unlink"}),
    "import lists": (130, {"unlink"}),
    "import logs": (70, {"unlink"}),
    "repair": (85, {"unlink", "rename"}),
}
ALWAYS = {"open", "write", "half a write", "fsync"}
REFUSALS = 126  # in all: 7 operations, 3 errors, 6 moments
SECONDS = 0.6  # of kills and stops, in a round


def check(told: list[dict[str, Any]]) -> None:
    """Every disturbance came, and was without consequence."""
    assert [each for each in told if each["wrong"]] == []
    # An export goes on without what it only tidies up, and threads of an import are not alike in every run.
    assert all(each["killed"] for each in told if each["operation"] not in ("export", "import the archive"))


def test_killed_or_refused_at_some_moments_everything_goes_on(sources: Path, tmp_path: Path, program: Program) -> None:
    told = program("harm.py", "both", sources, tmp_path, 1, *OPERATIONS)
    check(told)
    assert len(told) == 2 * len(OPERATIONS)


@pytest.mark.attack
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_killed_at_any_moment_can_be_repeated(
    sources: Path, tmp_path: Path, program: Program, operation: str
) -> None:
    """Before everything it changes, and in the middle of every write; every fifth is killed twice, a third repaired."""
    told = program("harm.py", "kill", sources, tmp_path, 0, operation)
    check(told)
    fewest, does = OPERATIONS[operation]
    assert len(told) == told[0]["of"] >= fewest
    before = collections.Counter(each["before"] for each in told)
    assert before.keys() >= ALWAYS | does
    assert min(before["half a write"], before["write"]) >= 9  # equal, but for threads of an import, which take turns


@pytest.mark.attack
def test_disk_errors_are_one_line_and_leave_nothing_half_made(sources: Path, tmp_path: Path, program: Program) -> None:
    """No space, no quota and a broken disk; a disk that is full stays full until the operation has given up."""
    told = program("harm.py", "refuse", sources, tmp_path, 0, *OPERATIONS)
    check(told)
    assert len(told) == REFUSALS
    assert {each["before"] for each in told} >= ALWAYS | {"mkdir", "link", "rename"}


@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 4), *(pytest.param(seed, 60, marks=pytest.mark.attack) for seed in (1, 2, 3, 4))]
)
def test_four_writers_without_a_lock_survive_kills(tmp_path: Path, program: Program, seed: int, rounds: int) -> None:
    """Their clocks are wrong, and their files reach the disk.

    After every round the tables are the truth, each trial's rows of one attempt: the one that was seen before.
    """
    told = program("stalls.py", tmp_path, seed, rounds, SECONDS)
    assert [each for each in told if each["wrong"]] == []
    assert len(told) == rounds
    assert sum(each["kill"] for each in told) >= 2 * rounds
    assert sum(each["stop"] for each in told) >= 2 * rounds
    assert sum(each["late"] for each in told) >= rounds // 4
    assert sum(each["promised"] for each in told) >= rounds
