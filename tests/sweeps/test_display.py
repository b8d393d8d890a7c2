"""The progress of a sweep on a real terminal and elsewhere, and the counts that `status` shows meanwhile."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run import COMPILING, TRAINING, RunProgress
from results import store
from results.plans.batch_study import BatchStudy
from results.storage import attempts, heartbeat
from results.storage.heartbeat import FILE, Heartbeat
from sweeps import status
from sweeps.display import Display, clock, cut, short_names
from sweeps.study_run import RunSummary, StudyOutcome, StudyUpdate

from ..terminal import Terminal, screen

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
LINE = [
    "task=digits_fc",
    "optimizer=sgd,momentum",
    "batch_size=8",
    "trials=64",
    "pruning=off",
    "stop=budget",
    "task.targets=[]",
    "task.budget={steps: 10000, epochs: null, examples: null, at_least_steps: null}",
    "launcher.workers=1",
    "-m",
]


def test_names_are_as_short_as_they_can_be() -> None:
    slugs = {name: f"digits-fc-{name}" for name in ("sgd-b1", "sgd-b16", "adam-b16")}
    assert list(short_names(slugs).values()) == ["sgd b1", "sgd b16", "adam b16"]
    assert short_names({"x": "digits-fc-sgd-b1"}) == {"x": "digits fc sgd b1"}
    assert short_names({"x": "digits-fc-b1", "y": "digits-fc-b1"}) == {"x": "b1", "y": "b1"}
    assert short_names({"x": "a", "y": "a-b"}) == {"x": "a", "y": "b"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0:00"), (0.1, "0:01"), (59.5, "1:00"), (83, "1:23"), (3600, "1:00:00"), (7384, "2:03:04")],
)
def test_durations(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_cutting() -> None:
    assert [cut("abcdef", width) for width in (6, 5, 1, 0, -3)] == ["abcdef", "abcd…", "…", "…", "…"]


def test_the_screen_of_these_tests() -> None:
    assert screen("ab\rc\r\nde\x1b[1F\x1b[Kx\n", 80) == ["x", "de"]
    assert screen("one\r\ntwo\r\n\x1b[2Fnew\x1b[K\r\n\x1b[J", 80) == ["new", ""]
    assert screen("abcdef", 4) == ["abcd", "ef"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a pseudo-terminal of Linux")
@pytest.mark.slow
def test_a_bar_of_one_line_names_what_runs(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    environment = ENVIRONMENT | {"SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    sweep = Terminal(
        [sys.executable, "-m", "sweeps", *LINE, f"store={folder}"], columns=72, folder=tmp_path, environment=environment
    )
    try:
        assert sweep.wait_for(r"0/2 studies: starting (sgd|momentum) b8", 60), sweep.text
        assert sweep.wait_for(r"\| 0/2 studies: compiling \w+ b8 \(program 1 of 1\)$", 60), sweep.text
        assert sweep.wait(120) == 0, sweep.text
    finally:
        sweep.close()
    assert re.search(r"\| [01]/2 studies, \d:\d\d left: (sgd|momentum) b8", sweep.text), sweep.text
    assert "100%" in sweep.text
    bars = [line for line in sweep.screen() if "studies" in line and "|" in line]
    assert len(bars) == 1  # drawn over and over again, on one line
    assert all(len(piece) <= 72 for piece in re.split(r"[\r\n]", sweep.text) if "|" in piece)
    assert not list(folder.rglob(".tmp-*"))


@pytest.fixture
def running(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> BatchStudy:
    """A study that this process is about to run in ``tmp_path``, as it says, with another that nobody runs."""
    study = make_study(trials=8)
    store.ask(tmp_path, study)
    store.ask(tmp_path, make_study(trials=4, batch_size=16))
    return study


def test_what_is_in_trouble_comes_first(
    tmp_path: Path, make_study: Callable[..., BatchStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    studies = [make_study(trials=1, batch_size=size) for size in (1, 2, 4, 8)]
    for study in studies:
        store.ask(tmp_path, study)
    queued, failed, retrying = (study.name for study in studies[:3])
    attempts.begin(tmp_path / queued, "slurm", "17_1", waits=True)
    attempts.end(attempts.begin(tmp_path / failed, "local"), 1, "a mistake")
    attempts.end(attempts.begin(tmp_path / failed, "local"), 1, "a mistake")
    attempts.end(attempts.begin(tmp_path / retrying, "local"), -9, "killed")
    log = attempts.begin(tmp_path / retrying, "local")
    with store.lock(tmp_path, retrying):
        assert status.main([f"store={tmp_path}"]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[0] == "1 queued, 1 retrying, 1 failed, 1 unfinished"
        assert f"{retrying}: attempt 2 prints to {log}" in " ".join(out.split())
        assert status.main([f"store={tmp_path}", "--failed", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
    assert [(row["study"], row["failures"]) for row in rows] == [(failed, 2), (retrying, 1)]
    assert [row["log"] for row in rows] == [str(tmp_path / failed / "attempt-2.log"), str(log)]


def test_a_live_count_in_the_table_and_in_lines(tmp_path: Path, running: BatchStudy) -> None:
    command = [sys.executable, "-m", "sweeps.status", f"store={tmp_path}"]

    def ledger(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=ENVIRONMENT)

    beat = Heartbeat("training", 8, 3, 4312, 1200.4)
    heartbeat.write(tmp_path / running.name, beat)
    with store.lock(tmp_path, running.name):
        assert f"{running.name}  running 3/8" in ledger().stdout
        (tmp_path / running.name / FILE).write_text("{")  # nothing of it is believed
        assert f"{running.name}  running  " in re.sub(" +", "  ", ledger().stdout)
    wrong = ledger("--wach")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: unrecognized arguments: --wach. See `python -m sweeps.status --help`.\n"


def test_time_left_is_the_work_left_by_the_mean_rate(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("sweeps.display.time.monotonic", lambda: now[0])
    studies = [make_study(batch_size=size, trials=2, budget_steps=100) for size in (8, 24)]
    first, second = studies
    with Display(tmp_path, studies, {study.name: 2 for study in studies}, beats=False) as display:
        now[0] = 1.0
        display.hear(StudyUpdate(first, RunProgress(COMPILING)))
        assert capsys.readouterr().err == ""  # nothing before two seconds have passed
        now[0] = 2.0
        display.show()
        now[0] = 12.0  # half of the trials of the first study, which has a third of the work
        display.hear(StudyUpdate(first, RunProgress(TRAINING, {70: 1}, {}, 70, 5.0, 5.0)))
        now[0] = 24.0
        display.hear(StudyUpdate(first, outcome=StudyOutcome(RunSummary(first.name))))
        display.hear(StudyUpdate(second, RunProgress(TRAINING, {}, {100: 1}, 100, 5.0, 5.0)))
        now[0] = 36.0
        display.hear(StudyUpdate(second))  # its process died
        now[0] = 48.0
        display.hear(StudyUpdate(second, outcome=StudyOutcome(RunSummary(second.name), "a mistake")))
    texts = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert texts == [
        "0/2 studies, 0/4 trials: compiling b8 (program 1 of 2)",
        "0/2 studies, 1/4 trials, 1:00 left: b8",
        "1/2 studies, 2/4 trials",
        "1/2 studies, 2/4 trials",
        f"[2/2] {second.name}: failed: a mistake",
        "2/2 studies, 4/4 trials",
    ]
