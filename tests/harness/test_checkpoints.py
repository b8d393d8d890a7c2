import hashlib
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from harness.trials import checkpoints
from harness.trials.checkpoints import Checkpoint, Checkpoints


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "store" / "a-study")


def checkpoint(step: int = 2) -> Checkpoint:
    every = np.arange(1 << 16, dtype=np.uint16).view(jnp.bfloat16).reshape(256, 256)  # NaNs and all
    rows = [{"recall": 0.1 + epoch, "objective": float("nan")} for epoch in range(step)]
    return Checkpoint(step, rows, [every, np.array([[1e-45, np.inf]], np.float32), np.zeros((0, 3), np.float32)])


def test_everything_survives_to_the_bit(kept: Checkpoints) -> None:
    kept.save(7, "key", checkpoint(1))
    kept.save(7, "key", checkpoint())
    found = kept.load(7, "key")
    assert found is not None
    assert found.step == 2
    assert repr(found.rows) == repr(checkpoint().rows)
    for array, saved in zip(checkpoint().arrays, found.arrays, strict=True):
        assert (array.dtype, array.shape) == (saved.dtype, saved.shape)
        assert array.tobytes() == saved.tobytes()
    assert [file.name for file in kept.folder.iterdir()] == ["checkpoint-000000007"]


def test_only_the_trial_it_is_of_believes_it(kept: Checkpoints) -> None:
    assert kept.load(0, "key") is None
    kept.save(0, "key", checkpoint())
    assert kept.load(0, "another") is None
    assert kept.load(1, "key") is None
    assert Checkpoints(kept.folder / "another").load(0, "key") is None
    for _ in range(2):
        kept.remove([0])
        assert kept.load(0, "key") is None
    Checkpoints(kept.folder / "another").remove([0])


def test_every_process_has_a_file_of_its_own(kept: Checkpoints) -> None:
    for i in range(2):
        kept.save(3, "key", checkpoint(i + 1), part=(i, 2))
    assert sorted(file.name for file in kept.folder.iterdir()) == [f"checkpoint-000000003-{i}-of-2" for i in (0, 1)]
    for i in range(2):
        found = kept.load(3, "key", part=(i, 2))
        assert found is not None and found.step == i + 1
    assert kept.load(3, "key") is None
    assert kept.load(3, "key", part=(0, 4)) is None
    kept.remove([3])
    assert list(kept.folder.iterdir()) == []


def test_parts_of_any_division_become_whole_arrays(kept: Checkpoints) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    count = np.array(7, np.int32)
    halves = [Checkpoint(5, [{"step": 1}], [whole[:, :3], count], [(0, [0, 0]), (1, [])])]
    halves.append(Checkpoint(5, [{"step": 1}], [whole[:2, 3:], whole[2:, 3:]], [(0, [0, 3]), (0, [2, 3])]))
    for i, each in enumerate(halves):
        assert kept.load_newest(3, "key", [whole, count]) is None  # a part is missing
        kept.save(3, "key", each, part=(i, 2))
    found = kept.load_newest(3, "key", [whole, count])
    assert found is not None and found.step == 5
    assert found.arrays[0].tobytes() == whole.tobytes() and found.arrays[1] == 7
    assert kept.load_newest(3, "another", [whole, count]) is None
    assert kept.load_newest(3, "key", [whole[:3], count]) is None
    kept.save(3, "key", Checkpoint(9, [], [whole, count]))  # by a process that has everything
    newest = kept.load_newest(3, "key", [whole, count])
    assert newest is not None and newest.step == 9
    kept.save(3, "key", Checkpoint(11, [], [whole, count], [(0, [0, 0]), (1, [])]), part=(0, 1))
    kept.remove_older({3: 11})
    assert [file.name for file in kept.folder.iterdir()] == ["checkpoint-000000003-11-0-of-1"]
    kept.remove([3])
    assert list(kept.folder.iterdir()) == []


def test_parts_that_overlap_or_lie_outside_are_none(kept: Checkpoints) -> None:
    whole = np.zeros((4, 6), np.float32)
    for places in ([(0, [0, 1])], [(1, [0, 0])], [(0, [-4, 0])], [(0, [0])]):
        kept.save(3, "key", Checkpoint(5, [], [whole], places), part=(0, 1))
        assert kept.load_newest(3, "key", [whole]) is None


def test_a_full_disk_is_reported_once_until_a_save_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Checkpoints(tmp_path)
    for failing in (True, True, False, True, True):
        with kept.saving():
            if failing:
                raise OSError(28, "No space left on device")
    line = "running trials are not saved: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err == 2 * line


def test_saving_takes_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    kept = Checkpoints(tmp_path, 60.0)
    saved = []
    while now[0] < 2000:
        now[0] += 1
        if kept.due():
            with kept.saving():
                now[0] += 2
            saved.append(now[0])
    assert saved == [62, *range(264, 2000, 202)]
    assert Checkpoints(tmp_path, 0.0).due()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "padded"])
def test_a_damaged_one_is_none(kept: Checkpoints, damage: str) -> None:
    kept.save(0, "key", checkpoint())
    (file,) = kept.folder.iterdir()
    data = file.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    file.write_bytes({"cut": data[:middle], "flipped": flipped, "empty": b"", "padded": data + b"\0"}[damage])
    assert kept.load(0, "key") is None


def line(**changes: object) -> bytes:
    """The line of a checkpoint after one epoch with one array of two numbers."""
    told = {
        "format": checkpoints.FORMAT,
        "key": "key",
        "step": 1,
        "rows": [{"recall": 0.5}],
        "arrays": [[[2], "float32"]],
    }
    return json.dumps(told | changes).encode() + b"\n"


@pytest.mark.parametrize(
    "made",
    [
        b"",
        b"no line",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        line(step=0),
        line(step="1"),
        line(rows=None),
        line(rows=["recall"]),
        line(rows=[{"recall": "0.5"}]),
        line(rows=[{"recall": 10**30}]),
        line(arrays=[[[2], "none such"]]),
        line(arrays=[[[2], "O"]]),
        line(arrays=[[[2], None, 3]]),
        line(arrays=[[[3], "float64"]]),
        line(arrays=[[[-2], "float32"]]),
        line(arrays=[[["2"], "float32"]]),
        line(arrays=[[[2**62, 2**62], "float32"]]),
        line(arrays=7),
    ],
    ids=lambda made: made[:60].decode(errors="replace"),
)
def test_a_hand_made_one_is_none(kept: Checkpoints, made: bytes) -> None:
    """Its hash is right, as anybody can make it."""
    kept.save(0, "key", checkpoint())
    (file,) = kept.folder.iterdir()
    payload = line() + np.ones(2, np.float32).tobytes()
    file.write_bytes(payload + hashlib.sha256(payload).digest())
    assert kept.load(0, "key") is not None
    payload = made + np.ones(2, np.float32).tobytes()
    file.write_bytes(payload + hashlib.sha256(payload).digest())
    assert kept.load(0, "key") is None
    file.unlink()
    file.mkdir()
    assert kept.load(0, "key") is None
