import dataclasses
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from results import __main__ as cli, durable, store
from results.bad_input import BadInput
from results.checks import repair, verify
from results.plans.study import Target
from results.release import merge, release

from .. import by_hand

TARGET = Target(by_hand.METRIC, 0.1)


@pytest.fixture(autouse=True)
def _disk_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine goes down in these tests


def faults(folder: Path) -> list[str]:
    return [fault.line for findings in verify.examine(folder, print) for fault in findings.faults]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_lock_that_is_not_empty_is_emptied(
    writer: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.uncommitted(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / ".lock").write_bytes(b"somebody's notes")
    before = {name: data for name, data in contents(tmp_path).items() if not name.endswith(".lock")}
    assert repair.run(tmp_path, print) == 0
    assert f"{folder / '.lock'}: emptied; it is the lock file, which should be empty" in capsys.readouterr().out
    assert (folder / ".lock").read_bytes() == b""
    assert {name: data for name, data in contents(tmp_path).items() if not name.endswith(".lock")} == before
    assert faults(tmp_path) == []


def committed(writer: ModuleType, folder: Path) -> None:
    """A study that grew: two commits, the older with all its files."""
    for trials in (6, 8):
        writer.replay(folder, writer.study_of("exact", trials))


def in_progress(writer: ModuleType, folder: Path) -> None:
    writer.uncommitted(folder)


def never_committed(writer: ModuleType, folder: Path) -> None:
    study = writer.study_of("exact", 8)
    store.ask(folder, study)
    for ids in ([0, 1], [2], [5]):
        with store.claim(folder, study.name) as claim:
            claim.write(writer.tables(study, ids))


def flipped(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


DAMAGES = (flipped, cut, gone)
STATES = (committed, in_progress, never_committed)


@pytest.fixture(scope="module")
def states(writer: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores to be copied and damaged, and one that is whole."""
    made = {make.__name__: tmp_path_factory.mktemp(make.__name__) for make in STATES}
    for make in STATES:
        make(writer, made[make.__name__])
        assert not faults(made[make.__name__])
    made["whole"] = tmp_path_factory.mktemp("whole")
    writer.replay(made["whole"], writer.study_of("exact", 8))
    return made


def assert_goes_on(writer: ModuleType, folder: Path, whole: Path) -> None:
    """The same command as ever makes the study what it would have been."""
    study = writer.study_of("exact", 8)
    writer.replay(folder, study)
    assert not faults(folder)
    found, expected = store.read(folder), store.read(whole)
    assert found.trials.drop(columns="run").equals(expected.trials.drop(columns="run"))
    assert found.measurements.equals(expected.measurements)


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in (1, 2))])
@pytest.mark.parametrize("state", [state.__name__ for state in STATES])
def test_torn_file_leaves_the_rest_and_the_study_resumes(
    writer: ModuleType,
    states: dict[str, Path],
    state: str,
    turn: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(f"{state}/{turn}")
    files = sorted(path.relative_to(states[state]) for path in states[state].rglob("*-*") if path.is_file())
    assert len(files) >= 7
    for number, file in enumerate(files):
        damage, folder = DAMAGES[(number + turn) % len(DAMAGES)], tmp_path / str(number)
        shutil.copytree(states[state], folder)
        damage(folder / file, chance)
        before, told = contents(folder), faults(folder)
        assert told or damage is gone, file
        capsys.readouterr()
        assert repair.run(folder, print) == 0, (file, damage)
        lines = capsys.readouterr().out.splitlines()
        after = contents(folder)
        changed = {name for name in before if after.get(name) != before[name]}
        records = {name for name in changed if "/commit-" in name}
        merged = {name for name in changed if "/part-" in name and file.name.startswith("envelope-")}
        assert changed - records - merged <= {str(file)}, "repair drops only torn files"
        assert not records or file.name.partition(".")[0][-6:] in str(records)
        touched = changed | (after.keys() - before.keys())
        if file.name.startswith("envelope-") and len(touched) > 1:  # committed again
            touched = {str(file)} | {name for name in touched if "/commit-" in name}
        assert len(lines) == len(touched) + 1
        assert all(any(str(folder / name) in line for line in lines) for name in touched)
        assert_goes_on(writer, folder, states["whole"])


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 99))])
def test_much_at_once_may_be_torn_and_missing(
    writer: ModuleType, states: dict[str, Path], seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "store"
    shutil.copytree(states[chance.choice(STATES).__name__], folder)
    files = sorted(path for path in folder.rglob("*-*") if path.is_file())
    for file in chance.sample(files, chance.randint(2, len(files))):
        chance.choice(DAMAGES)(file, chance)
    repair.run(folder, print)
    assert not faults(folder)
    assert_goes_on(writer, folder, states["whole"])


def test_what_is_intact_and_wrong_is_left_alone(
    writer: ModuleType, states: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(states["committed"], folder)
    (study,) = folder.iterdir()
    (study / "notes.txt").write_text("mine")
    (study / "claim-000009.json").write_bytes(durable.seal({"claim": 9, "parts": "many"}))
    (folder / "link").symlink_to(study)
    before = contents(folder)
    assert repair.run(folder, print) == 1
    out = capsys.readouterr().out
    assert [out.count(what) for what in ("rebuilt with", "created with", "not repaired", "\n")] == [4, 1, 3, 9]
    after = contents(folder)
    assert {name: after[name] for name in before} == before


def test_temporary_files_go_by_age(writer: ModuleType, states: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(states["committed"], folder)
    (study,) = folder.iterdir()
    for place in (folder, study):
        for name in ("old", "young"):
            (place / f"{durable.TEMPORARY}{name}").write_text("half")
        os.utime(place / f"{durable.TEMPORARY}old", (0, 0))
    assert len(faults(folder)) == 2
    assert repair.run(folder, print) == 0
    assert sorted(path.name for path in folder.rglob(f"{durable.TEMPORARY}*")) == [".tmp-young"] * 2


def test_a_study_nobody_asked_for_goes_by_age(writer: ModuleType, states: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(states["committed"], folder)
    bare = folder / "bare"
    bare.mkdir()
    (bare / ".lock").touch()
    assert not faults(folder)
    os.utime(bare, (time.time() - 2 * durable.LEFTOVER_SECONDS,) * 2)
    assert len(faults(folder)) == 1
    assert repair.run(folder, print) == 0
    assert not bare.exists()


def test_what_is_not_repaired(
    states: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], make_release: Callable[[Path], Path]
) -> None:
    with pytest.raises(BadInput, match="Copy it here"):
        repair.run(durable.location("memory://store"), print)
    release = make_release(states["committed"])
    before = contents(release)
    assert cli.main(["repair", "--store", str(release)]) == 2
    assert "Fetch or export it again" in capsys.readouterr().err
    assert contents(release) == before
    assert cli.main(["repair", "--store", str(states["committed"])]) == 0
    assert capsys.readouterr().out == "0 files dropped or rebuilt; no faults left\n"


@pytest.fixture
def make_release(tmp_path: Path) -> Callable[[Path], Path]:

    def make(folder: Path) -> Path:
        assert release.export(folder, tmp_path / "release", print) == 0
        return tmp_path / "release"

    return make


def test_a_flipped_bit_in_a_commit_record_costs_nothing(
    writer: ModuleType, states: dict[str, Path], tmp_path: Path
) -> None:
    """Its tables are whole, and the envelope says so: the record comes back as it was, wherever the bit was."""
    grown, merged = tmp_path / "grown", tmp_path / "merged"
    shutil.copytree(states["committed"], grown)
    assert merge.merge([grown], merged, print) == 0
    chance = random.Random(0)
    for folder in (grown, merged):
        before = contents(folder)
        (record,) = folder.glob("*/commit-000004.json")
        data = record.read_bytes()
        for start in range(0, len(data), len(data) // 9):
            at = min(start + chance.randrange(len(data) // 9), len(data) - 1)
            record.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
            assert faults(folder)
            assert repair.run(folder, print) == 0
            assert contents(folder) == before, at
        record.unlink()
        assert faults(folder), "nor is a record missed in silence"
        assert repair.run(folder, print) == 0
        assert contents(folder) == before


@pytest.mark.parametrize("table", ["trials", "measurements", "envelope"])
def test_record_is_not_made_of_tables_against_the_envelope(
    writer: ModuleType, states: dict[str, Path], table: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(states["committed"], folder)
    (record,), (file,) = folder.glob("*/commit-000004.json"), folder.glob(f"*/{table}-000004.*")
    cut(file, random.Random(0)) if table == "envelope" else flipped(file, random.Random(0))
    cut(record, random.Random(0))
    assert repair.run(folder, print) == 0
    assert not record.exists()
    assert_goes_on(writer, folder, states["whole"])


def test_a_record_that_was_asked_for_more_since_is_made_anew(
    writer: ModuleType, states: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(states["committed"], folder)
    store.ask(folder, dataclasses.replace(writer.study_of("exact", 12), confirm=4))
    before = store.read(folder)
    (record,) = folder.glob("*/commit-000004.json")
    flipped(record, random.Random(0))
    assert repair.run(folder, print) == 0
    (commit,) = store.catalogue(folder)
    assert (commit.ledger.planned, commit.ledger.missing, commit.ledger.adds_up) == (16, 8, True)
    assert store.read(folder).measurements.equals(before.measurements)
    assert not faults(folder)
