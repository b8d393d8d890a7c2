"""The checks of first_contact.py that run sweeps: against the release, and stopped and resumed."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from contact_checks import FAIL, NOT_MEASURED, Finding, Number, at_least, at_most, last_line
from report import ROOT, run

from harness.run import TRAINING
from results import store
from results.storage import heartbeat

RELEASE = ROOT / "results" / "published"
ANY_CODE = range(-64, 256)
STOPPED = 75  # exit code
STOP_SECONDS = 10.0  # from SIGTERM to the end of the process: 5, plus 5 for saving
TOLERANCE = 1e-3  # of losses after a resumption, if results are not bitwise identical
RESUMED = ["task=digits_fc", "optimizer=momentum", "batch_size=64", "trials=8", "pruning=off", "task.targets=[]"]
RESUMED += ["optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}", "launcher.workers=1"]
RESUMED_STEPS, LONGER, ATTEMPTS, TRAINED_SECONDS = 40_000, 8, 3, 1.0
MOST_APART = 1e-5  # measured 6e-7 between batched and sequential lanes on a CPU
RELEASED = ["+experiment=published/digits", "task=digits_fc", "optimizer=momentum", "batch_size=64"]


def release(smoke: bool) -> Finding:
    """Reruns a released study as a sweep, and compares the results."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["trials=2", "confirm=0"] if smoke else []
        done = python("-m", "sweeps", *RELEASED, *words, f"store={folder}")
        if done.returncode:
            return Finding((), last_line(done.stderr), FAIL)
        compared = python("-m", "analysis", "compare", folder, RELEASE, "--json")
        if compared.returncode > 1:
            return Finding((), last_line(compared.stderr), FAIL)
        rows = [row for row in json.loads(compared.stdout) if row["what"] == "steps" and row["result"][:4] != "only"]
        (mine,) = store.catalogue(Path(folder))
        released = next(commit for commit in store.catalogue(RELEASE) if commit.study.plan_json == mine.study.plan_json)
        columns = ["trial", "step", "train_loss", "validation_loss"]
        new_rows, released_rows = (
            store.read(place, commit.name).measurements[columns]
            for place, commit in ((folder, mine), (RELEASE, released))
        )
    both = new_rows.merge(released_rows, on=["trial", "step"], suffixes=("", "_released"))
    first = both[both["step"] == both["step"].min()]
    difference = max(
        float((first[name] / first[f"{name}_released"] - 1).abs().max()) for name in ("train_loss", "validation_loss")
    )
    judged = [row for row in rows if row["result"] in ("same", "agree", "differ")]
    differ = [row for row in judged if row["result"] == "differ"]
    numbers = [
        at_most("answers that contradict the release", len(differ), 0, f"of {len(judged)}"),
        at_least("answers that were compared", len(judged), 1),
        Number("trials in both", float(both["trial"].nunique())),
        at_most("largest relative difference of a loss at the first evaluation", difference, MOST_APART),
    ]
    return Finding(numbers, "; ".join(dict.fromkeys(row["why"] for row in differ)))


def resume(smoke: bool) -> Finding:
    """Compares a sweep that is stopped and resumed with an uninterrupted sweep."""
    with tempfile.TemporaryDirectory() as name:
        folder, steps = Path(name), RESUMED_STEPS // (4 if smoke else 1)
        for _ in range(ATTEMPTS):
            code, seconds = stopped(sweep_command(folder / "stopped", steps), folder / "stopped")
            if code != 0:
                break
            steps *= LONGER
            folder = folder / "longer"
        else:
            return Finding((), f"the sweep ended before it could be stopped, even with {steps:,} steps", NOT_MEASURED)
        runs = [python(*sweep_command(folder / name, steps)) for name in ("stopped", "whole")]
        if why := next((last_line(run.stderr) for run in runs if run.returncode), ""):
            return Finding((), why, FAIL)
        rows, difference, exact = differences(folder / "stopped", folder / "whole")
    numbers = [
        Number("exit code of the stopped sweep", code, "", f"= {STOPPED}", code == STOPPED),
        at_most("seconds from SIGTERM to its end", seconds, STOP_SECONDS, "s"),
        at_most("trials and evaluations in only one of them", rows, 0),
        at_most("largest relative difference of a loss", difference, 0.0 if exact else TOLERANCE),
    ]
    lost = f"exit code {code}, not {STOPPED}: unfinished trials started again" if code != STOPPED else ""
    return Finding(numbers, lost)


def sweep_command(store: Path, steps: int) -> list[str]:
    """Returns the arguments of ``python`` for the sweep that will be stopped."""
    budget = f"task.budget={{steps: {steps}, epochs: null, examples: null, at_least_steps: null}}"
    return ["-m", "sweeps", *RESUMED, budget, f"store={store}"]


def stopped(words: Sequence[str], store: Path) -> tuple[int, float]:
    """Runs a sweep, and stops it after a second of training. Returns its exit code and the seconds until it ended.

    The exit code is 0 if the sweep ends without an error before it is stopped.
    """
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        beats = [heartbeat.read(study) for study in store.glob("*") if study.is_dir()]
        if any(beat is not None and beat.doing == TRAINING for beat in beats):
            time.sleep(TRAINED_SECONDS)
            process.terminate()  # no effect if it has ended
            break
        time.sleep(0.1)
    began = time.perf_counter()
    return process.wait(), time.perf_counter() - began


def differences(first: Path, second: Path) -> tuple[int, float, bool]:
    """Compares two stores of the same study, which should be equal.

    Returns:
      The number of trials and evaluations that differ or are missing from one store, the largest relative difference of
      a loss, and whether the device is a CPU. On a CPU, results must be bitwise identical.
    """
    first_rows, second_rows = (store.read(folder) for folder in (first, second))
    rows = 0
    for name, columns in (("trials", ["trial", "seed", "status", "steps"]), ("measurements", ["trial", "step"])):
        joined = getattr(first_rows, name)[columns].merge(
            getattr(second_rows, name)[columns], how="outer", indicator=True
        )
        rows += int((joined["_merge"] != "both").sum())
    both = first_rows.measurements.merge(second_rows.measurements, on=["trial", "step"], suffixes=("", "_other"))
    losses = [name for name in first_rows.measurements.columns if name.endswith("_loss")]
    difference = max(float((both[name] / both[f"{name}_other"] - 1).abs().max()) for name in losses)
    backends = {*first_rows.studies["backend"], *second_rows.studies["backend"]}
    return rows, difference, backends == {"cpu"}


def python(*words: object) -> "subprocess.CompletedProcess[str]":
    """Runs Python in the root of the repository, whatever its exit code."""
    return run([sys.executable, *words], ANY_CODE)
