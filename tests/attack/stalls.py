"""Four writers at one study, as a program: without the lock, killed and stopped at random, their clocks days off.

python stalls.py FOLDER SEED ROUNDS SECONDS

They also tidy up, which is by the clock, and flush every file to the disk of FOLDER. Prints a line of JSON per round,
with what was found wrong. It forks, which is why this is a program of its own: it imports nothing that starts threads
before it does.
"""

import fcntl
import itertools
import json
import os
import random
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

import moments
import writer

from results import durable, store
from results.file_systems import local
from results.plans.batch_study import BatchStudy
from results.storage import claims

HOURS = 60  # that a clock may be off, either way


def main(folder: Path, seed: int, rounds: int, seconds: float) -> None:
    """Prints a line per round; the last to be woken write late."""
    fcntl.flock = lambda handle, operation: None  # as on a file system without locks
    for number in range(rounds):
        chance = random.Random(f"{seed}/{number}")
        study, place = writer.study_of("off", 10), folder / str(number)
        durable.make_folder(place)
        store.ask(place, study)
        attempts = itertools.count(1)
        signals = {"kill": 0, "stop": 0}
        writers = {start(place, study, next(attempts), seed): False for _ in range(4)}  # whether each is stopped
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.random() * 0.012)
            pid = chance.choice(list(writers))
            if os.waitpid(pid, os.WNOHANG)[0]:  # done
                del writers[pid]
                writers[start(place, study, next(attempts), seed)] = False
            elif chance.random() < 0.4:
                os.kill(pid, signal.SIGKILL)
                moments.waited(pid)
                del writers[pid]
                writers[start(place, study, next(attempts), seed)] = False
                signals["kill"] += 1
            else:
                os.kill(pid, signal.SIGCONT if writers[pid] else signal.SIGSTOP)
                writers[pid] = not writers[pid]
                signals["stop"] += 1
        stopped = [pid for pid, is_stopped in writers.items() if is_stopped]
        going = [start(place, study, next(attempts), seed), *(pid for pid in writers if pid not in stopped)]
        codes = [moments.waited(pid) for pid in going]
        wrong = faults(place, study)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        codes += [moments.waited(pid) for pid in stopped]
        wrong += faults(place, study) + [f"exit code {code}" for code in codes if code]
        told = {"late": len(stopped), "promised": len(promised(place)), "wrong": wrong}
        line: dict[str, Any] = {"round": number, **signals, **told}
        print(json.dumps(line), flush=True)


def start(place: Path, study: BatchStudy, attempt: int, seed: int) -> int:
    """Starts a writer; its process."""

    def work() -> None:
        chance = random.Random(f"{seed}/{place.name}/{attempt}")
        off = chance.uniform(-HOURS, HOURS) * 3600
        local.time = types.SimpleNamespace(time=lambda: time.time() + off)  # type: ignore[assignment]
        promises = os.open(seen(place), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def rest() -> None:
            claims.remove_leftovers(place / study.name)
            time.sleep(chance.random() * 0.02)
            visible = store.read(place, study.name).trials
            if len(visible):
                lines = [f"{trial} {by}\n" for trial, by in zip(visible["trial"], visible["seed"], strict=True)]
                os.write(promises, "".join(lines).encode())

        def moment(what: str, path: str | None) -> None:
            time.sleep(chance.choice((0, 0, 0, 0.001, 0.004)))

        moments.on_every_call(place, moment, flushed=True)
        writer.insist(place, study, attempt, rest)

    return moments.fork(work, place.with_name(f"{place.name}-said"))


def seen(place: Path) -> Path:
    """Where a round keeps what anybody has seen to be stored: a trial, and the attempt it is of, a line."""
    return place.with_name(f"{place.name}-seen")


def promised(place: Path) -> set[tuple[int, int]]:
    """What anybody has seen to be stored."""
    lines = seen(place).read_text().splitlines() if seen(place).exists() else []
    return {(int(trial), int(attempt)) for trial, attempt in map(str.split, lines)}


def faults(place: Path, study: BatchStudy) -> list[str]:
    """What is wrong: with the store, with what is visible of it, and with what was seen in it before."""
    wrong = writer.faults(place) + writer.unlike(place, study)
    attempts = store.read(place, study.name).trials.set_index("trial")["seed"].to_dict()
    for trial, attempt in sorted(promised(place)):
        if attempts.get(trial) != attempt:
            wrong.append(f"trial {trial} was there of attempt {attempt}, and is now of {attempts.get(trial)}")
    return wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
