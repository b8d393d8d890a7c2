"""Heartbeats: read from a process that lives, and from nothing else; all other readers of a store pass over them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from results import __main__ as cli, durable, store
from results.checks import verify
from results.rules.ledger import Ledger
from results.storage import heartbeat
from results.storage.heartbeat import FILE, Heartbeat

BEAT = Heartbeat("training", 8, 3, 1234, 56.5)


def test_it_is_read_as_it_was_written_and_goes(tmp_path: Path) -> None:
    assert heartbeat.read(tmp_path) is None
    for beat in (BEAT, BEAT._replace(ended=4)):
        heartbeat.write(tmp_path, beat)
        assert heartbeat.read(tmp_path) == beat
        assert [path.name for path in tmp_path.iterdir()] == [FILE]
    heartbeat.remove(tmp_path)
    heartbeat.remove(tmp_path)
    assert not list(tmp_path.iterdir())


def test_heartbeat_of_a_gone_process_is_ignored(tmp_path: Path) -> None:
    heartbeat.write(tmp_path, BEAT)
    data = (tmp_path / FILE).read_bytes()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for change in ({"pid": gone.pid}, {"host": "elsewhere"}):
        record = durable.unseal(data, tmp_path) | change
        (tmp_path / FILE).write_bytes(durable.seal(record))
        assert heartbeat.read(tmp_path) is None


def resealed(**changes: object) -> Callable[[Path], object]:
    def harm(path: Path) -> None:
        record = durable.unseal(path.read_bytes(), path) | changes
        path.write_bytes(durable.seal(record))

    return harm


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def harm(path: Path) -> None:
        path.rename(path.parent.parent / "kept")
        make(path)

    return harm


HARM: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "no record": lambda path: path.write_text("[]"),
    "not sealed": lambda path: path.write_text(json.dumps(BEAT._asdict())),
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes().replace(b"1234", b"1235")),
    "a gigabyte": lambda path: os.truncate(path, 1 << 30),
    "a link to a good one": instead(lambda path: path.symlink_to(path.parent.parent / "kept")),
    "a folder": instead(lambda path: path.mkdir()),
    "a pipe": instead(os.mkfifo),
    "a pid of text": resealed(pid="1"),
    "a pid of a group": resealed(pid=-1),
    "a pid beyond all": resealed(pid=10**30),
    "an extra member": resealed(more=1),
    "escapes of a terminal": resealed(doing="\x1b[2J"),
    "a unit of many words": resealed(unit="step " * 10),
    "a count below nothing": resealed(ended=-1),
    "a count of text": resealed(steps="many"),
    "a huge count": resealed(trials=10**40),
    "a rate of 400 digits": resealed(steps_per_second=10**400),
    "true": resealed(ended=True),
    "a rate of text": resealed(steps_per_second="fast"),
    "a speed beyond all": resealed(steps_per_second=1e300),
    "a list": resealed(silent=[]),
}


@pytest.mark.parametrize("what", HARM)
def test_nothing_of_a_harmed_one_is_believed(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    heartbeat.write(folder, BEAT)
    HARM[what](folder / FILE)
    assert heartbeat.read(folder) is None
    heartbeat.write(folder, BEAT)  # raises nothing, and follows no link
    if what != "a folder":
        assert heartbeat.read(folder) == BEAT and not (folder / FILE).is_symlink()
    heartbeat.remove(folder)


def test_where_it_cannot_be_written_nothing_happens(tmp_path: Path) -> None:
    heartbeat.write(tmp_path / "nowhere", BEAT)
    (tmp_path / "file").touch()
    heartbeat.write(tmp_path / "file", BEAT)
    heartbeat.remove(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("trials", "ended", "missing", "settled"),
    [
        (32, 5, 32, 5),  # nothing is stored
        (32, 5, 29, 5),  # three of the five are stored already, and count once
        (10, 4, 10, 26),  # of 32, this run has ten to do
        (32, 5, 20, 12),  # somebody else stored more meanwhile
        (64, 64, 30, 32),  # of a larger request
    ],
)
def test_live_count_lies_between_stored_and_planned(trials: int, ended: int, missing: int, settled: int) -> None:
    stored = Ledger(32, 32 - missing, 0, 0, 0, 0, 0, 0, missing)
    assert BEAT._replace(trials=trials, ended=ended).settled(stored) == settled


def test_verify_merge_export_and_repair_pass_over_it(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "store"))
    names = store.names(folder)
    before = store.read(folder)
    for name in names:
        heartbeat.write(folder / name, BEAT)
    assert verify.run(folder, print) == 0
    assert f"; {len(names)} temporary files of active writers; " in capsys.readouterr().out
    assert store.names(folder) == names
    assert store.read(folder).trials.equals(before.trials)
    for line in (
        ["merge", str(folder), "--store", str(tmp_path / "merged")],
        ["export", "--store", str(folder), "--out", str(tmp_path / "release")],
        ["repair", "--store", str(folder)],
    ):
        assert cli.main(line) == 0, line
    assert [path for place in ("merged", "release") for path in (tmp_path / place).rglob(".tmp-*")] == []
    assert all(heartbeat.read(folder / name) == BEAT for name in names)  # of a sweep that goes on
    for name in names:
        os.utime(folder / name / FILE, (0, 0))  # a killed sweep left it, days ago
    assert verify.run(folder, print) == 1
    assert "was left by a killed process" in capsys.readouterr().out
    assert cli.main(["repair", "--store", str(folder)]) == 0
    assert verify.run(folder, print) == 0
    assert not list(folder.rglob(FILE))
