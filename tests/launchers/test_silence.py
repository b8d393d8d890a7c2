"""A worker that hangs: how long nothing was heard of it is told, and it is ended where that is asked for."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run import TRAINING, RunProgress, Settings
from results import store
from results.file_systems.local import LocalFiles
from results.plans.batch_study import BatchStudy
from results.storage import attempts, heartbeat
from sweeps import status
from sweeps.display import SILENT_SECONDS, Display
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch, RemoteStudy
from sweeps.launchers.silence import Silence
from sweeps.limits import Limits
from sweeps.schema import LauncherConfig
from sweeps.study_run import StudyUpdate

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SLEEPING = "import time; print(flush=True); time.sleep(60)"
COMPUTING = "print(flush=True)\nwhile True: pass"


@LINUX
@pytest.mark.slow
def test_frozen_worker_is_ended_and_its_study_restarted(
    tmp_path: Path, make_study: Callable[..., BatchStudy], children: Callable[[int], list[int]]
) -> None:
    study = make_study(trials=1, budget_steps=2)
    store.ask(tmp_path, study)
    stopped: list[int] = []
    silent: list[float] = []

    def stop(update: StudyUpdate) -> None:
        if update.silent is not None:
            silent.append(update.silent)
        if not stopped and update.progress is not None and update.progress.doing == TRAINING:
            stopped.extend(children(os.getpid()))
            os.kill(stopped[0], signal.SIGSTOP)

    (outcome,) = local.run_all(
        dataclasses.asdict(LauncherConfig(workers=1, silence_seconds=3)),
        Launch(tmp_path, [study], Settings(), on_progress=stop),
    )
    assert outcome.failure is None
    assert max(silent) > 1
    (lost,) = attempts.read(tmp_path / study.name)
    assert (lost.code, lost.cause) == (-9, "by launcher.silence_seconds=3, without a sign of life")
    assert not store.progress(tmp_path, study).ledger.unfinished


@LINUX
@pytest.mark.parametrize(
    ("program", "by_computing", "silent"),
    [(SLEEPING, True, 8), (COMPUTING, True, 0), (COMPUTING, False, 8)],
    ids=["sleeps", "computes", "spins on a device"],
)
def test_computing_is_a_sign_of_life_until_stopped(
    monkeypatch: pytest.MonkeyPatch, program: str, by_computing: bool, silent: float
) -> None:
    now = [0.0]
    monkeypatch.setattr("sweeps.launchers.silence.time.monotonic", lambda: now[0])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            silence = Silence(process.pid)
            for _ in range(4):
                computed(process.pid, 0.12 if program == COMPUTING else 0.0)
                now[0] += 2
                seconds = silence.look(by_computing=by_computing)
            assert seconds == silent
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            silence.look(by_computing=by_computing)
            silence.restart()
            for _ in range(3):
                now[0] += 2
                seconds = silence.look(by_computing=by_computing)
            assert seconds == 6
            now[0] += 3600  # in which this process stood still itself
            assert silence.look(by_computing=by_computing) < 20
            silence.restart()
            assert silence.look(by_computing=by_computing) == 0
        finally:
            process.kill()


def computed(process: int, seconds: float) -> None:
    """Waits until a process has computed for so long."""
    until = silence_of(process) + seconds
    while silence_of(process) < until:
        signal.sigtimedwait([], 0.02)


def silence_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_heartbeats_and_lines_tell_of_silence(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalFiles, "heartbeat_seconds", 0.0)
    study = make_study()
    store.ask(tmp_path, study)
    progress = RunProgress(TRAINING, {}, {}, 10, 1.0, 1.0)
    with Display(tmp_path, [study], {study.name: study.request.planned}) as display:
        display.hear(StudyUpdate(study, progress))
        for seconds in (SILENT_SECONDS - 1, SILENT_SECONDS + 1, SILENT_SECONDS + 2):
            display.hear(StudyUpdate(study, progress, silent=seconds))
        beat = heartbeat.read(tmp_path / study.name)
        assert beat is not None and beat.silent == SILENT_SECONDS + 2
        remedy = "Set launcher.silence_seconds=… to end and retry such studies."
        line = f"{study.name}: no sign of life for 5 minutes. {remedy}"
        (printed,) = (each for each in capsys.readouterr().err.splitlines() if study.name in each)
        assert re.fullmatch(r"\d\d:\d\d:\d\d " + re.escape(line), printed)
        heard = status.activities(tmp_path, [study.name])[study.name].heard
        assert heard is not None and heard >= SILENT_SECONDS + 2
        display.hear(StudyUpdate(study, progress, silent=0.0))
        beat = heartbeat.read(tmp_path / study.name)
        assert beat is not None and beat.silent == 0


def test_silence_elsewhere(
    tmp_path: Path, make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study()
    store.ask(tmp_path, study)
    now = [0.0]
    monkeypatch.setattr("sweeps.launchers.launcher.time.monotonic", lambda: now[0])
    told: list[StudyUpdate] = []
    launch = Launch(tmp_path, [study], Settings(), Limits(), {}, {}, told.append, lambda: None)
    elsewhere = RemoteStudy(launch, study)
    beat = heartbeat.Heartbeat("training", 4, 0, 10, 5.0)
    heartbeat.write(tmp_path / study.name, beat)
    elsewhere.look()
    heartbeat.write(tmp_path / study.name, beat._replace(silent=400.0))  # its worker hangs
    elsewhere.look()
    now[0] = 1000.0  # and then whoever writes heartbeats
    elsewhere.look()
    assert [(update.progress is not None, update.silent) for update in told] == [
        (True, None),
        (True, 400.0),
        (True, 1400.0),
    ]
