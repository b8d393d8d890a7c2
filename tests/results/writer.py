"""A writer without JAX, as a program: replays a recorded study into a store, is killed on the way, and starts again.

python writer.py kills FOLDER PRUNING        a replay for every moment of a replay, killed there, then run to the end
python writer.py torture FOLDER SEED ROUNDS  four writers at once without the lock, killed and stopped at random, who
                                             also tidy up, and whose clocks are off by up to 60 hours

Prints a line of JSON per replay or round, with what was found wrong. A replay forks, which is why this is a program of
its own: it imports nothing that starts threads before it does.
"""

import builtins
import itertools
import json
import os
import random
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from results import claims, durable, ledger, schema, store, verify
from results.claims import Claim, TakenOver
from results.search_space import Range, SearchSpace
from results.study import Study, Target

METRICS = ("validation_loss", "test_loss")


def study_of(pruning: str, trials: int) -> Study:
    """The study that is replayed."""
    return Study(
        dataset="digits",
        dataset_version="scikit-learn",
        model="fully_connected",
        model_options={"widths": [16]},
        optimizer="sgd",
        schedule="constant",
        batch_size=64,
        space=SearchSpace({"learning_rate": Range("LOG", 1e-2, 3.0)}),
        targets=(Target("validation_loss", 0.5),) if pruning == "exact" else (),
        budget_steps=60,
        evaluation_ratio=1.3,
        evaluation_spacing=0.0,
        seed=0,
        pruning=pruning,
        trials=trials,
    )


def tables(study: Study, ids: list[int], attempt: int = 0) -> dict[str, pa.Table]:
    """What a run of these trials measured: the same each time, but for the mark of the attempt.

    The mark is the seed of a trial, and its test_loss at every step.
    """
    curves = {i: curve(study, i) for i in ids}
    ended = {i: ("INFEASIBLE" if i % 5 == 3 else "COMPLETE", int(curves[i][0][-1])) for i in ids}
    trials = {
        "study": [study.name] * len(ids),
        "trial": ids,
        "seed": [attempt] * len(ids),
        "status": [ended[i][0] for i in ids],
        "steps": [ended[i][1] for i in ids],
        "learning_rate": [study.space["learning_rate"].at(i * 0.37 % 1) for i in ids],
    }
    step = np.concatenate([curves[i][0] for i in ids])
    measured = {
        "study": [study.name] * len(step),
        "trial": np.repeat(ids, [len(curves[i][0]) for i in ids]),
        "step": step,
        "validation_loss": np.concatenate([curves[i][1] for i in ids]),
        "test_loss": np.full(len(step), attempt),
    }
    about = {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.model_label,
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "planned_trials": study.trials,
        "plan": study.plan_json,
        "started_at": str(time.time()),
    }
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in about.items()}, {}),
        "trials": schema.build(schema.TRIALS, trials, {"learning_rate": pa.float64()}),
        "measurements": schema.build(schema.MEASUREMENTS, measured, dict.fromkeys(METRICS, pa.float32())),
    }


def curve(study: Study, trial: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses of a trial until it reached the target or its budget."""
    step = study.evaluations
    loss = np.exp(-step * (1 + trial * 7 % 11) / 100).astype(np.float32)
    last = np.flatnonzero(study.targets[0].reached(loss))[:1] + 1 if study.targets else []
    stop = int(last[0]) if len(last) else len(step)
    return step[:stop], loss[:stop]


def replay(folder: Path, study: Study, attempt: int = 0, rest: Callable[[], None] = lambda: None) -> None:
    """Asks for the study, and writes what is missing of it, two trials a part, under the lock."""
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        _finish(claim, study, attempt, rest)


def insist(folder: Path, study: Study, attempt: int, rest: Callable[[], None]) -> None:
    """As ``replay``, without the lock, until the study is whole, however often others take it over."""
    while True:
        claim = Claim(folder, study.name)
        if claim.visible and len(claim.settled) == study.trials:
            return
        try:
            rest()
            _finish(claim, study, attempt, rest)
        except TakenOver:
            rest()


def _finish(claim: Claim, study: Study, attempt: int, rest: Callable[[], None]) -> None:
    missing = [i for i in range(study.trials) if i not in claim.settled]
    for at in range(0, len(missing), 2):
        claim.write(tables(study, missing[at : at + 2], attempt))
        rest()
    if not claim.visible:
        claim.commit(study)


def on_every_call(moment: Callable[[str], None]) -> None:
    """Has ``moment`` called before everything durable that this process does, and in the middle of every write."""

    def told(name: str, function: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            moment(name)
            # Only a machine that goes down forgets what was not flushed; killed processes need not wait for the disk.
            return None if name == "fsync" else function(*args, **options)

        return call

    class Halting:
        def __init__(self, *args: Any):
            moment("open")
            self._file = builtins.open(*args)  # noqa: SIM115 (closed by __exit__)

        def __enter__(self) -> "Halting":
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> None:
            moment("write")
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            moment("half a write")
            self._file.write(data[len(data) // 2 :])

    for name in ("fsync", "link", "unlink", "mkdir"):
        setattr(os, name, told(name, getattr(os, name)))
    durable.open = store.open = Halting  # type: ignore[attr-defined]


def fork(work: Callable[[], None]) -> int:
    """Runs ``work`` in a process of its own; its id."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    try:
        work()
    except BaseException as error:
        print(json.dumps({"wrong": f"a writer raised {type(error).__name__}: {error}"}), flush=True)
        os._exit(1)
    os._exit(0)


def waited(pid: int) -> int:
    """How a process ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def faults(folder: Path) -> list[str]:
    """What ``verify`` has to say against a store; nothing if there is none yet, or no study in it."""
    if not folder.is_dir() or not list(folder.iterdir()):
        return []
    return [fault.line for found in verify.examine(folder, print) for fault in found.faults]


def unlike(folder: Path, study: Study) -> list[str]:
    """How what is committed of a study differs from the truth."""
    found, wrong = store.read(folder, study.name), []
    whole = {name: table.to_pandas() for name, table in tables(study, list(range(study.trials))).items()}
    trials, rows = found.trials, found.measurements
    if study.pruning == "off":
        same = ["trial", "status", "steps", "learning_rate"]
        if not trials[same].equals(whole["trials"][same]):
            wrong.append("trials")
        same = ["trial", "step", "validation_loss"]
        if not rows[same].equals(whole["measurements"][same]):
            wrong.append("measurements")
    marks = rows["test_loss"].to_numpy()
    if not np.array_equal(marks, trials.set_index("trial")["seed"].loc[rows["trial"]].to_numpy(np.float32)):
        wrong.append("rows of different attempts in one trial")
    if not ledger.count(study.asked, trials).adds_up or store.missing(folder, study):
        wrong.append("ledger")
    return wrong


def kills(folder: Path, pruning: str) -> None:
    """Kills a replay at each of its moments, in a store of its own, and runs it again to the end."""
    study = study_of(pruning, 4)
    reference = folder / "reference"
    assert _replayed(reference, study) == 0
    expected = store.read(reference)
    assert unlike(reference, study) == []
    for kill_at in itertools.count(1):
        place = folder / str(kill_at)
        code, where = _killed(place, study, kill_at)
        wrong = faults(place)
        if code and kill_at % 5 == 0:  # and a second time on the way
            _killed(place, study, 1 + kill_at * 7 % 40)
            wrong += faults(place)
        wrong += ["exit code"] if _replayed(place, study) else []
        wrong += faults(place)
        found = store.read(place)
        for one, other in zip(found[1:], expected[1:], strict=True):
            one, other = (table.drop(columns="run", errors="ignore") for table in (one, other))
            if not one.equals(other):
                wrong.append(f"not as uninterrupted:\n{one}\n{other}")
        print(json.dumps({"moment": kill_at, "before": where, "killed": code == -signal.SIGKILL, "wrong": wrong}))
        if code == 0:
            return


def _replayed(place: Path, study: Study) -> int:
    def work() -> None:
        on_every_call(lambda name: None)
        replay(place, study)

    return waited(fork(work))


def _killed(place: Path, study: Study, kill_at: int) -> tuple[int, str]:
    """Replays a study in a process that kills itself at a moment; how it ended, and what it was about to do."""
    told = place.with_suffix(".moment")
    count = 0

    def moment(name: str) -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            told.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        on_every_call(moment)
        replay(place, study)

    code = waited(fork(work))
    return code, told.read_text() if told.exists() else ""


def torture(folder: Path, seed: int, rounds: int) -> None:
    """Rounds of four writers at one study, under random kills and stops; the last to be woken write late."""
    for number in range(rounds):
        chance = random.Random(f"{seed}/{number}")
        study = study_of("off", 10)
        place = folder / str(number)
        durable.make_folder(place)
        store.ask(place, study)
        attempts = iter(range(1, 100_000))

        def start(place: Path = place, study: Study = study, attempts: Any = attempts) -> int:
            attempt = next(attempts)

            def work() -> None:
                own = random.Random(f"{seed}/{attempt}/{os.getpid()}")
                off = own.choice((-60, 0, 60)) * 3600
                durable.time = types.SimpleNamespace(time=lambda: time.time() + off)  # type: ignore[assignment]

                def rest() -> None:
                    claims.remove_leftovers(place / study.name)
                    time.sleep(own.random() * 0.02)

                on_every_call(lambda name: time.sleep(own.choice((0, 0, 0, 0.001, 0.004))))
                insist(place, study, attempt, rest)

            return fork(work)

        signals = {"kill": 0, "stop": 0}
        writers = {start(): False for _ in range(4)}  # whether each is stopped
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            time.sleep(chance.random() * 0.012)
            pid = chance.choice(list(writers))
            if os.waitpid(pid, os.WNOHANG)[0]:  # done
                del writers[pid]
                writers[start()] = False
            elif chance.random() < 0.4:
                os.kill(pid, signal.SIGKILL)
                waited(pid)
                del writers[pid]
                writers[start()] = False
                signals["kill"] += 1
            else:
                os.kill(pid, signal.SIGCONT if writers[pid] else signal.SIGSTOP)
                writers[pid] = not writers[pid]
                signals["stop"] += 1
        stopped = [pid for pid, is_stopped in writers.items() if is_stopped]
        codes = [waited(pid) for pid in [start(), *(pid for pid in writers if pid not in stopped)]]
        wrong = faults(place) + unlike(place, study)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        codes += [waited(pid) for pid in stopped]
        wrong += faults(place) + unlike(place, study) + [f"exit code {code}" for code in codes if code]
        print(json.dumps({"round": number, **signals, "late": len(stopped), "wrong": wrong}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "kills":
        kills(Path(sys.argv[2]), sys.argv[3])
    else:
        torture(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
