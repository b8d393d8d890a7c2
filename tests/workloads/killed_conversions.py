"""A program: prepares a small LM1B, killed at some moments and run again, and prints a line of JSON for each.

Run as `python -m tests.workloads.killed_conversions FOLDER KILLS`: KILLS is the number of moments, or 0 for all.
Everything is imported once, and each run is a fork. A moment is before anything that a run changes in the folder, in
the middle of a write, or before a line of progress, of which there are some in the middle of every chunk and shard.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from tensorflow_datasets.core.download.download_manager import DownloadManager
from tensorflow_datasets.core.utils.shard_utils import ShardConfig

from results import printing, progress
from tests.attack import moments
from tests.workloads import streamed
from workloads import prepare
from workloads.datasets import conversion, sorted_chunks, streamed_text

TRAIN, HELD_OUT = 400, 40


def make_small() -> None:
    """Several chunks and shards of a small LM1B, whose checksum is not looked at, and progress from the start."""
    DownloadManager._register_or_validate_checksums = lambda self, **known: None
    sorted_chunks.CHUNK_BYTES = 12_000
    ShardConfig.min_shard_size = 12_000
    conversion.STEP = 16
    progress.FIRST_SECONDS = progress.SECONDS = 0.0
    splits = {"train": TRAIN, "test": HELD_OUT, "heldout_00000": HELD_OUT // 2, "heldout_00001": HELD_OUT // 2}
    for user, of in streamed_text.SOURCES.items():
        if of.files == "lm1b":
            own = {split: splits[split] for split in of.splits}
            small = of._replace(splits=own, train_examples=TRAIN, vocabulary=340, learned_from=50)
            streamed_text.SOURCES[user] = small


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def run(folder: Path, kill_at: int = 0) -> moments.Ended:
    def say(line: str) -> None:
        sys.audit("os.truncate", str(folder))  # a moment
        printing.say(line)

    def work() -> int:
        prepare.say = say
        return prepare.main(["lm1b", "--data-dir", str(folder)])

    return moments.ran(folder, work, lambda number, what, path: moments.killed(number, kill_at))


def main(folder: Path, kills: int) -> None:
    make_small()
    originals = folder / "originals"
    streamed.write_lm1b(originals, TRAIN, HELD_OUT)

    def fresh(name: str) -> Path:
        (folder / name / "downloads").mkdir(parents=True)
        shutil.copytree(originals, folder / name / "downloads" / "manual" / "lm1b")
        return folder / name

    whole = run(fresh("whole"))
    expected = files(folder / "whole" / "lm1b")
    print(json.dumps({"code": whole.code, "said": whole.said, "files": sorted(expected), "moments": whole.moments}))
    count = len(whole.moments)
    for kill in range(kills or count):
        at = 1 + kill * count // (kills or count)
        within = fresh(f"killed-{at}")
        killed = run(within, at)
        again = run(within)
        same = files(within / "lm1b") == expected
        print(json.dumps({"at": at, "killed": killed.code, "code": again.code, "said": again.said, "same": same}))
        shutil.rmtree(within)


if __name__ == "__main__":
    os.umask(0o022)
    main(Path(sys.argv[1]), int(sys.argv[2]))
