"""What writes to a store, as a program: killed at every moment of it, or refused what it asks of the disk.

python harm.py kill SOURCES FOLDER COUNT OPERATION...    killed there, looked at, and run again to the end
python harm.py refuse SOURCES FOLDER COUNT OPERATION...  told that the disk is full, over quota or broken, and run again
python harm.py both SOURCES FOLDER COUNT OPERATION...    one after the other

An operation runs in a process of its own at COUNT moments (0: at all of them, or at as many as have a name here).
Prints a line of JSON per moment, with what was found wrong. It forks, which is why this is a program of its own: it
imports nothing that starts threads before it does.
"""

import errno
import functools
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import moments
import pandas as pd
import writer
from moments import Ended

from results import __main__ as command, cli, durable, store
from results.importers import algoperf, mlperf_rcp, shallue2018  # noqa: F401 (so that no moment is an import's)
from results.release import release
from results.rules.ledger import Ledger
from results.storage import claims

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
UNRECORDED = "is missing, but its tables and envelope exist"
OF_EACH = 6  # moments at which every error is met, of every operation


class Operation(NamedTuple):
    """Something that writes.

    Attributes:
      prepare: makes the folder it starts from, given one of sources.
      run: runs it in a copy of that folder, given the sources; its exit code.
    """

    prepare: Callable[[Path, Path], object]
    run: Callable[[Path, Path], int]


def main(mode: str, sources: Path, folder: Path, count: int, operations: Iterable[str]) -> None:
    """Prints a line per moment; see above."""
    for name in operations:
        trial = calm(name, sources, folder / name)
        if mode != "refuse":
            kills(trial, folder / name / "killed", count)
        if mode != "kill":
            refusals(trial, folder / name / "refused", count)
        shutil.rmtree(folder / name)


class Trial(NamedTuple):
    """An operation, where it starts and ends, and its moments."""

    name: str
    operation: Operation
    sources: Path
    start: Path
    calm: Path
    moments: list[str]

    def ran(self, place: Path, at: Callable[[int, str, str | None], None]) -> Ended:
        """Runs it in a folder."""
        return moments.ran(place, lambda: self.operation.run(self.sources, place), at)

    def finished(self, place: Path) -> list[str]:
        """Runs it in a folder, undisturbed; how the end differs from what it should be."""
        ended = self.ran(place, calmly)
        whole = self.name == "export" and "release already exists" in ended.said  # only to be flushed to disk
        return [] if ended.code == 0 or whole else [f"run again, it ended with {ended.code}: {ended.said}"]

    def wrong(self, place: Path) -> list[str]:
        """How a folder differs from one in which nothing happened on the way."""
        found = faults(place)
        for one in sorted(self.calm.iterdir()):
            other = place / one.name
            if one.name == "release":
                found += ["another release"] if files(one) != files(other) else []
            else:
                found += unlike(one, other)
        return found


def calm(name: str, sources: Path, place: Path) -> Trial:
    """Runs an operation once, undisturbed."""
    operation, start, end = OPERATIONS[name], place / "start", place / "calm"
    start.mkdir(parents=True)
    operation.prepare(sources, start)
    shutil.copytree(start, end)
    ended = moments.ran(end, lambda: operation.run(sources, end), calmly)
    trial = Trial(name, operation, sources, start, end, ended.moments)
    assert (ended.code, trial.wrong(end)) == (0, []), (name, ended)
    return trial


def mended(sources: Path, folder: Path) -> list[str]:
    """Repairs what an operation left that was ended on the way, if it left anything; what is wrong after that."""
    if not (folder / "store").is_dir() or not any((folder / "store").iterdir()):
        return []
    ended = moments.ran(folder, lambda: repaired(sources, folder), calmly)
    return faults(folder) + ([] if ended.code == 0 else [f"repaired, it ended with {ended.code}: {ended.said}"])


def kills(trial: Trial, place: Path, count: int) -> None:
    """Kills the operation at moments of it, in folders of their own, and runs it again to the end."""
    chance = random.Random(trial.name)
    whole = range(1, len(trial.moments) + 1)
    for number in sorted(chance.sample(whole, min(count or len(whole), len(whole)))):
        folder = place / str(number)
        shutil.copytree(trial.start, folder)
        ended = trial.ran(folder, lambda at, what, path, number=number: moments.killed(at, number))
        wrong = believed(trial, folder)
        if number % 5 == 0:  # and a second time on the way
            again = chance.randint(1, len(whole))
            trial.ran(folder, lambda at, what, path, again=again: moments.killed(at, again))
            wrong += believed(trial, folder)
        wrong += mended(trial.sources, folder) if number % 3 == 0 else []
        wrong += trial.finished(folder) + trial.wrong(folder)
        before = ended.moments[-1]
        tell(trial, number, before, killed=ended.code == -signal.SIGKILL, wrong=wrong)


def refusals(trial: Trial, place: Path, count: int) -> None:
    """Has the system refuse what the operation asks for at moments of it, and runs it again to the end."""
    chance = random.Random(trial.name)
    asked = [(error, number) for error in ERRORS for number in spread(trial.moments, chance)]
    for case, (error, number) in enumerate(chance.sample(asked, min(count or len(asked), len(asked)))):
        folder = place / str(case)
        shutil.copytree(trial.start, folder)

        def refuse(at: int, what: str, path: str | None, error: int = error, number: int = number) -> None:
            lasting = at > number and error != errno.EIO and what in ("open", "write", "half a write", "mkdir", "link")
            if at == number or lasting:  # a full disk stays full, but for what is removed
                raise OSError(error, os.strerror(error), path)

        ended = trial.ran(folder, refuse)
        wrong = believed(trial, folder)
        last = ended.said.splitlines()[-1:]
        if "Traceback" in ended.said or ended.code not in (0, 2):
            wrong.append(f"ended with {ended.code}: {ended.said}")
        if ended.code and (ended.said.count("error: ") != 1 or not last[0].startswith("error: ")):
            wrong.append(f"said: {ended.said}")
        if ended.code == 0:  # it went without
            wrong += trial.wrong(folder)
        wrong += trial.finished(folder) + trial.wrong(folder)
        tell(trial, number, trial.moments[number - 1], killed=ended.code != 0, wrong=wrong)


def spread(told: list[str], chance: random.Random) -> list[int]:
    """Numbers of moments: as many as are asked for, of every kind one before any has two."""
    by_kind: dict[str, list[int]] = {}
    for number, what in enumerate(told, 1):
        by_kind.setdefault(what, []).append(number)
    kinds = sorted(by_kind)
    chance.shuffle(kinds)
    for numbers in by_kind.values():
        chance.shuffle(numbers)
    drawn = [by_kind[kind].pop() for _ in range(OF_EACH) for kind in kinds if by_kind[kind]]
    return drawn[:OF_EACH]


def calmly(number: int, what: str, path: str | None) -> None:
    """Nothing happens at any moment."""


def believed(trial: Trial, folder: Path) -> list[str]:
    """What ``verify`` should not have said of what an operation left that was ended on the way.

    While a store is mended it has faults. And nothing tells a merge that had brought all but the record of a study from
    one whose record was removed, so that is a fault, which the same merge mends, and a repair.
    """
    if trial.name == "repair":
        return []
    return [line for line in faults(folder) if not (trial.name == "merge" and line.endswith(UNRECORDED))]


def tell(trial: Trial, number: int, before: str, *, killed: bool, wrong: list[str]) -> None:
    """Prints what came of a moment."""
    told = {"operation": trial.name, "moment": number, "of": len(trial.moments), "before": before}
    print(json.dumps({**told, "killed": killed, "wrong": wrong}), flush=True)


# What is left


def faults(place: Path) -> list[str]:
    """What ``verify`` has to say against the store or the release in a folder, if there is one."""
    return [line for folder in sorted(place.iterdir()) if folder.name[0] != "." for line in writer.faults(folder)]


def files(folder: Path) -> dict[str, bytes]:
    """What all files of a folder hold."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@functools.cache
def whole(folder: Path) -> dict[str, pd.DataFrame | list[Ledger]]:
    """All that a store holds, visible or not, but for when and by which run it was written."""
    held: dict[str, pd.DataFrame | list[Ledger]] = {"ledgers": [commit.ledger for commit in store.catalogue(folder)]}
    for name in store.names(folder):
        stored, visible = claims.Claim(folder, name).tables(), store.read(folder, name)
        for table in ("trials", "measurements"):
            held[f"{table} of {name}"] = getattr(stored, table).drop(columns="run", errors="ignore")
            held[f"{table} of {name}, visible"] = getattr(visible, table).drop(columns="run", errors="ignore")
    return held


def unlike(one: Path, other: Path) -> list[str]:
    """How two stores differ in what they hold."""
    if not other.is_dir():
        return [f"{other} is not there"]
    expected, found = whole(one), whole.__wrapped__(other)
    wrong = [f"{name} is there in one" for name in expected.keys() ^ found.keys()]
    for name in expected.keys() & found.keys():
        one_of, other_of = expected[name], found[name]
        same = one_of.equals(other_of) if isinstance(one_of, pd.DataFrame) else one_of == other_of
        wrong += [] if same else [f"{name}: {one_of} and {other_of}"]
    return wrong


# The operations


def grown(sources: Path, start: Path) -> None:
    """A store with part of what is merged into it."""
    study = writer.study_of("off", 8)
    store.ask(start / "store", study)
    with store.claim(start / "store", study.name) as claim:
        claim.write(writer.tables(study, [1, 2]))
        claim.commit(study)
    with store.claim(start / "store", study.name) as claim:
        claim.write(writer.tables(study, [5]))


def merged(sources: Path, place: Path) -> int:
    held = [str(sources / name) for name in ("release", "uncommitted")]
    return command.main(["merge", *held, "--store", str(place / "store")])


def torn(sources: Path, start: Path) -> None:
    """A store of three studies, in each of which something is torn or missing."""
    writer.several(start / "store")
    off, exact = writer.study_of("off", 8), writer.study_of("exact", 8)
    folder = start / "store" / off.name
    flip(folder / "plan-000000008.json")
    flip(folder / "claim-000003.json")
    flip(folder / "commit-000004.json")
    folder = start / "store" / exact.name
    flip(sorted(folder.glob("part-*"))[0])
    (folder / "claim-000001.json").unlink()
    flip(next(start.glob("store/mnist*/envelope-*")))
    (start / "store" / f"{durable.TEMPORARY}old").touch()
    os.utime(start / "store" / f"{durable.TEMPORARY}old", (0, 0))


def flip(path: Path) -> None:
    """Flips a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replayed(sources: Path, place: Path) -> int:
    return cli.guarded(lambda: writer.replay(place / "store", writer.study_of("exact", 4)))()


def imported(kind: str, *options: str) -> Operation:
    def run(sources: Path, place: Path) -> int:
        return command.main(["import", kind, str(sources / kind), "--store", str(place / "store"), *options])

    return Operation(lambda sources, start: None, run)


def exported(sources: Path, place: Path) -> int:
    return command.main(["export", "--store", str(sources / "several"), "--out", str(place / "release")])


def repaired(sources: Path, place: Path) -> int:
    return command.main(["repair", "--store", str(place / "store")])


OPERATIONS = {
    "commit": Operation(lambda sources, start: None, replayed),
    "merge": Operation(grown, merged),
    "export": Operation(lambda sources, start: None, exported),
    "import the archive": imported("shallue2018", "--any-checksum"),
    "import lists": imported("mlperf-rcp"),
    "import logs": imported("algoperf-logs"),
    "repair": Operation(torn, repaired),
}


def make_sources(folder: Path) -> None:
    """What the operations read, but for what is imported."""
    writer.several(folder / "several")
    writer.uncommitted(folder / "uncommitted")
    assert release.export(folder / "several", folder / "release", lambda line: None) == 0


if __name__ == "__main__":
    if not (Path(sys.argv[2]) / "several").exists():
        make_sources(Path(sys.argv[2]))
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
