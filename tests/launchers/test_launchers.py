"""What is the same for all launchers: keys, limits, tries, and the logs of attempts."""

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run import RunProgress, Settings
from results import exit_codes, store
from results.bad_input import BadInput
from results.checks import verify
from results.file_systems.local import LocalFiles
from results.plans.batch_study import BatchStudy
from results.storage import attempts, heartbeat
from sweeps import __main__ as sweeps_cli, composition, launching, limits, planning, status
from sweeps.choices import launcher_keys, options
from sweeps.launchers import attempt, local, slurm
from sweeps.launchers.attempt import Ending, Fate, Wish
from sweeps.launchers.launcher import Launch, RetryPolicy, worst_code
from sweeps.limits import Bounds, Limits
from sweeps.overrides import CommandLine, command_line
from sweeps.schema import LauncherConfig
from sweeps.study_run import RunSummary, StudyOutcome, StudyUpdate

from ..analysis.conftest import Ran, plan, publish
from ..results import by_hand

SHORT = ("trials=2", "task.budget.steps=2", "launcher.workers=1")


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert sweeps_cli.main(words) == exit_codes.INVALID
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_every_launcher_has_a_file_and_a_row() -> None:
    assert options("launcher") == sorted(launching.LAUNCHERS)
    for name in launching.LAUNCHERS:
        (config,) = composition.compose_all(CommandLine((f"launcher={name}",), False))
        assert config["launcher"]["name"] == name
        assert set(launcher_keys(name)) <= set(config["launcher"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["launcher.partition=a"], "launcher.partition is for launcher=slurm, not for launcher=local"),
        (["launcher=nosuch"], "unknown launcher 'nosuch'"),
        (["launcher.retries=-1"], "launcher.retries must be at least 0, not -1"),
        (["launcher.silence_seconds=0"], "launcher.silence_seconds must be above 0, not 0"),
        (["limits.sweep.max_hours=0"], "limits.sweep.max_hours must be above 0, not 0"),
        (["limits.study.max_hours=1", "time_limit_seconds=5"], "are the same limit"),
        (
            ["launcher=slurm", "launcher.sbatch.array=1-2"],
            "launcher.sbatch.array cannot be set. Use other sbatch",
        ),
        (
            ["launcher=slurm", "launcher.minutes=1"],
            "launcher.minutes=1 leaves no time before the launcher.grace_seconds=60",
        ),
        (
            ["launcher=slurm", "launcher.nodes=2", "launcher.silence_seconds=60"],
            "launcher.silence_seconds is for studies on one host",
        ),
        (["launcher=ray", "launcher.tpu_slice=4x4"], "launcher.tpu_slice=4x4: write VERSION:TOPOLOGY"),
        (["launcher=ray", "launcher.tpu_slice=v9:4x4"], "unknown TPU version 'v9'"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in error_of([*words, f"store={tmp_path / 'store'}"], capsys)
    assert not (tmp_path / "store").exists()


def test_without_slurm_and_without_ray(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "launcher=slurm needs sbatch, which is not on this machine" in error_of(["launcher=slurm"], capsys)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ray" else find(name))
    assert "needs the extra ray. Install it with: pip install 'scaling-limits[ray]'" in error_of(
        ["launcher=ray"], capsys
    )


@pytest.mark.parametrize(
    ("codes", "again"),
    [
        ([0], [False]),
        ([1], [False]),
        ([2], [False]),
        ([-9, -9, -9], [True, True, False]),
        ([76, 134, 143], [True, True, False]),
        ([75] * 5 + [-9, -9, -9], [True] * 7 + [False]),
    ],
)
def test_tries_by_cause(codes: list[int], again: list[bool]) -> None:
    tries = RetryPolicy(retries=2)
    assert [tries.again(code, advanced=True) for code in codes] == again


def test_preempted_without_a_step_is_as_good_as_lost() -> None:
    tries = RetryPolicy(retries=1)
    assert [tries.again(75, advanced=False) for _ in range(2)] == [True, False]
    assert not RetryPolicy(9).again(-9, advanced=True, out_of_memory=True)
    many = RetryPolicy(0)
    assert [many.again(75, advanced=True) for _ in range(1001)].index(False) == 1000


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([0, 0], 0),
        ([1, 76, 76], 1),
        ([76, 2], 2),
        ([75, 76], 75),
        ([76, 75, 1], 1),
        ([0, 76, -9], 76),
        ([-9, 0], -9),
    ],
)
def test_one_code_of_several_processes(codes: list[int], worst: int) -> None:
    assert worst_code(codes) == worst
    assert worst_code(reversed(codes)) == worst


def test_a_damaged_plan_of_one_study_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, damaged, alike = (by_hand.study(trials=2, details={"version": version}) for version in (1, 2, 3))
    for study in (whole, damaged, alike):
        by_hand.publish(tmp_path, study, {0: by_hand.Ran("COMPLETE", [(1, 0.5)])})
    plan = tmp_path / damaged.name / "plan-000000002.json"
    plan.write_bytes(plan.read_bytes()[:-9])
    assert status.main([f"store={tmp_path}"]) == 1
    said = capsys.readouterr()
    rows = {
        line.split()[0]: line.split()[1:]
        for line in said.out.splitlines()
        if line.count("-") > 3 and " differs from " not in line
    }
    assert rows[whole.name][:3] == rows[alike.name][:3] == ["done", "examples", "2"]
    assert rows[damaged.name] == ["damaged"]
    assert f"{plan} is not what was written" in said.err
    assert "details.version" in said.out
    assert status.main([f"store={tmp_path}", "--json"]) == 1
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["study"] == damaged.name)
    assert (row["state"], row["planned"]) == ("damaged", None)


def test_no_attempt_comes_after_the_last_number(tmp_path: Path) -> None:
    (tmp_path / "attempt-999999.log").touch()
    with pytest.raises(
        BadInput, match=r"holds attempt-999999\.log, the last possible attempt. Remove the attempt logs"
    ):
        attempts.begin(tmp_path, "local")
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-999999.log"]


def test_logs_of_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = attempts.begin(tmp_path, "local")
    first.write_text(f"{first.read_text()}a line\nno newline at the end")
    attempts.end(first, -9, "by signal 9\n(Killed)")
    waits = attempts.begin(tmp_path, "slurm", "17_4", waits=True)
    one, other = attempts.read(tmp_path)
    assert (one.number, one.launcher, one.code, one.cause) == (1, "local", -9, "by signal 9 (Killed)")
    assert attempts.printed(first) == "a line\nno newline at the end"
    assert (other.number, other.job, other.began, other.code) == (2, "17_4", None, None)
    attempts.begun(waits)
    assert attempts.read(tmp_path)[1].process == os.getpid()
    third = attempts.begin(tmp_path, "slurm", "17_4")
    attempts.end(waits, exit_codes.PREEMPTED, "preempted")
    attempts.end(third, exit_codes.DONE, "done")
    assert [each.number for each in attempts.read(tmp_path)] == [1]  # only what failed is kept
    (tmp_path / "attempt-7.log").write_bytes(b"\xff\x00 no log of ours\n")
    (tmp_path / "attempt-8.log").symlink_to("/etc/hostname")
    assert [each.number for each in attempts.read(tmp_path)] == [1]
    process: Any = SimpleNamespace(pid=os.getpid())
    finished = local.Worker(0, process, process, log=first)
    finished.ended(exit_codes.DONE, "done")
    assert capsys.readouterr().err == "a line\nno newline at the end\n"


def test_failed_attempt_keeps_its_log_and_verify_ignores_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setenv("A_TOKEN", "very-secret")
    folder = tmp_path / "store"
    assert sweeps_cli.main([*SHORT, f"store={folder}"]) == exit_codes.FAILED
    (name,) = store.names(folder)
    (one,) = attempts.read(folder / name)
    assert one.code == exit_codes.FAILED
    assert "cuda" in (one.cause or "")
    assert "Traceback" in attempts.printed(one.log)
    assert "very-secret" not in one.log.read_text()
    assert verify.run(folder, lambda line: None) == 0
    capsys.readouterr()
    assert status.main([f"store={folder}"]) == 0
    out = capsys.readouterr().out
    assert f"attempt 1 ended {one.cause}; see {one.log}" in " ".join(out.split())
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert sweeps_cli.main([*SHORT, f"store={folder}"]) == exit_codes.DONE
    assert [each.number for each in attempts.read(folder / name)] == [1]
    from results.__main__ import main as results_cli

    assert results_cli(["export", str(folder), "--out", str(tmp_path / "release"), "--name", "x"]) in (0, 2)
    assert results_cli(["merge", str(folder), "--store", str(tmp_path / "merged")]) == 0
    assert not list((tmp_path / "merged").rglob("attempt-*"))


def test_max_failures_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_study: Callable[..., BatchStudy]
) -> None:
    study = make_study(trials=1, budget_steps=2)
    store.ask(tmp_path, study)
    monkeypatch.setattr(local, "slots", lambda workers, shards: [((), {"XLA_FLAGS": "--xla_no_such_flag=1"})])
    bounds = Limits(study=Bounds(max_failures=2))
    (outcome,) = local.run_all(
        dataclasses.asdict(LauncherConfig(workers=1, retries=9)), Launch(tmp_path, [study], Settings(), bounds)
    )
    assert "died 2 times" in (outcome.failure or "")
    assert "(limits.study.max_failures=2)" in (outcome.failure or "")
    assert len(attempts.read(tmp_path / study.name)) == 2


@pytest.mark.parametrize("launcher", ["local", "slurm", "ray"])
def test_what_failed_too_often_is_left_out_by_every_launcher(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    launcher: str,
) -> None:
    ran: list[str] = []

    def run_all(asked: object, launch: Launch) -> list[StudyOutcome]:
        ran.extend(study.name for study in launch.studies)
        return [StudyOutcome(RunSummary(study.name, 2, 2, 0, 0, 1.0)) for study in launch.studies]

    row = launching.LAUNCHERS[launcher]
    idle = row._replace(check=lambda asked, studies, settings: None, run_all=run_all)
    monkeypatch.setitem(launching.LAUNCHERS, launcher, idle)
    words = ["batch_size=16,32", "trials=2", "task.budget.steps=2", f"launcher={launcher}", f"store={tmp_path}", "-m"]
    good, bad = planning.request(command_line(words)).studies
    for study in (good, bad):
        store.ask(tmp_path, study)
    for code in (exit_codes.PREEMPTED, exit_codes.PEER_LOST, exit_codes.FAILED):
        attempts.end(attempts.begin(tmp_path / bad.name, "local"), code, "a cause")
    limit = "limits.study.max_failures=2"
    assert sweeps_cli.main([*words, limit]) == exit_codes.FAILED
    assert ran == [good.name]
    err = capsys.readouterr().err
    line = f"{limit}: skipping 1 study: {bad.name}. Raise the limit to retry."
    assert line in err.splitlines()
    assert "did not start" not in err
    assert sweeps_cli.main([*words, limit, "--dry-run"]) == exit_codes.DONE
    assert bad.name not in capsys.readouterr().out
    assert sweeps_cli.main([*words, "limits.study.max_failures=3"]) == exit_codes.DONE
    assert ran[1:] == [good.name, bad.name]


def test_study_with_a_queued_attempt_is_not_left_out(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    store.ask(tmp_path, study)
    attempts.end(attempts.begin(tmp_path / study.name, "slurm", "17_4"), exit_codes.FAILED, "a cause")
    request = planning.Request((study,), {}, Settings(), tmp_path, {"name": "slurm"})
    request = dataclasses.replace(request, limits=(Bounds(), Bounds(max_failures=1)))
    assert planning.to_run(request).left_out == (study,)
    attempts.begin(tmp_path / study.name, "slurm", "18_4", waits=True)
    assert planning.to_run(request).studies == (study,)


@pytest.mark.slow
def test_sweep_limit_ends_running_studies_and_starts_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch_size=16,32,64", "trials=4", "pruning=off", "stop=budget", "task.targets=[]", "launcher.workers=1"]
    words += ["task.budget={steps: 3000000, epochs: null, examples: null, at_least_steps: null}", "-m"]
    began = time.monotonic()
    assert sweeps_cli.main([*words, "limits.sweep.max_device_hours=0.003", f"store={tmp_path}"]) == exit_codes.DONE
    assert time.monotonic() - began < 120
    assert "2 studies did not start. Run the same command to continue." in capsys.readouterr().err
    trials = store.read(tmp_path).trials
    assert set(trials["reason"]) == {"time_limit"}
    assert trials["study"].nunique() == 1
    assert list(tmp_path.glob("*/checkpoint-*"))


def test_limits_by_the_clock(make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    study = make_study()
    used = Limits(Bounds(max_hours=2), Bounds(max_device_hours=3), {study.name: 4})
    used.hear(StudyUpdate(study, RunProgress()))
    now[0] = 3600 * 0.74
    assert not used.is_over(study.name)
    now[0] = 3600 * 0.76
    assert used.is_over(study.name)
    assert used.reached is None
    now[0] = 3600 * 2.01
    assert used.reached == "limits.sweep.max_hours=2"


@pytest.mark.parametrize(
    ("words", "settings", "devices"),
    [
        (("launcher=local",), {}, 1),
        (("launcher=local",), {"shards": 4}, 4),
        (("launcher=slurm",), {"shards": 4}, 4),
        (("launcher=slurm", "launcher.nodes=2"), {}, 2),
        (("launcher=slurm", "launcher.nodes=2", "launcher.gpus=4"), {}, 8),
        (("launcher=slurm", "launcher.nodes=3", "launcher.gpus=null"), {"shards": 2}, 6),
        (("launcher=ray",), {"shards": 2}, 2),
        (("launcher=ray", "launcher.tpu_slice=v5e:4x4"), {}, 16),
        (("launcher=ray", "launcher.tpu_slice=v3:2x2"), {"shards": 2}, 8),
        (("launcher=hosts",), {"shards": 64}, 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_device_hours_count_all_devices_that_run_a_study(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    settings: dict[str, int],
    devices: int,
) -> None:
    import jax

    monkeypatch.setattr(jax, "device_count", lambda: 3)
    study, now, over = make_study(), [0.0], []
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])

    def run_all(asked: object, launch: Launch) -> list[StudyOutcome]:
        launch.limits.hear(StudyUpdate(study, RunProgress()))
        for now[0] in (3599 / devices, 3601 / devices):
            over.append(launch.limits.is_over(study.name))
        return []

    (config,) = composition.compose_all(CommandLine(words, False))
    name = config["launcher"]["name"]
    monkeypatch.setitem(launching.LAUNCHERS, name, launching.LAUNCHERS[name]._replace(run_all=run_all))
    request = planning.Request((study,), {}, Settings(**settings), tmp_path, config["launcher"])
    request = dataclasses.replace(request, limits=(Bounds(), Bounds(max_device_hours=1)))
    assert planning.run(request, [study]) == []
    assert over == [False, True]


def test_dry_run_prints_commands_that_ask_for_the_same_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a store"
    words = ["+experiment=ci", "optimizer=sgd,adam", f"store={folder}", "-m"]
    assert sweeps_cli.main([*words, "--dry-run", "--json"]) == 0
    import json
    import shlex

    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(planning.request(command_line(words)).studies)
    for row in rows:
        *_, module, rest = row["command"].partition("-m sweeps ")
        (study,) = planning.request(command_line(shlex.split(rest))).studies
        assert study.name == row["study"], module
        assert row["folder"] == str(folder / study.name)
    assert not folder.exists()


def test_the_script_of_an_array(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    (config,) = composition.compose_all(CommandLine(("launcher=slurm",), False))
    asked = config["launcher"] | {"minutes": 90, "mem": "8G", "at_once": 5, "silence_seconds": 600.0}
    asked["sbatch"] = {"account": "a b", "comment": 'it\'s "x" #5 back\\slash'}
    study = make_study()
    words = {study.name: ("task.targets=[{metric: validation_error, value: 0.1}]", "trials=4")}
    folder = tmp_path / "o'neil 50%A"
    used = Limits(study=Bounds(max_failures=2))
    launch = Launch(folder, [study], Settings(), used, {}, words, lambda update: None, lambda: None)
    script = slurm.batch_script(asked, launch, slurm.Resources(2, 0, False), [study])
    assert f"{study.name} --retries=1 --nodes=1 --silence-seconds=600.0 --port=" in script  # no more than may fail
    for line in (
        "--array=0-0%5",
        "--time=90",
        "--mem=8G",
        '--account="a b"',
        '--comment="it\'s \\"x\\" #5 back\\\\slash"',
        f'--output="{tmp_path}/o\'neil 50%%A/.slurm/%A_%a.out"',
        "--signal=B:USR2@60",
        "--cpus-per-task=2",
    ):
        assert f"#SBATCH {line}" in script.splitlines()
    alone = attempt.command(["trials=4"], tmp_path, silence_seconds=600.0)
    assert alone[-1] == "launcher.silence_seconds=600.0"


def test_srun_ends_nodes_that_are_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = types.SimpleNamespace(stdout="n1\nn2\n")
    monkeypatch.setattr(attempt.subprocess, "run", lambda *words, **options: shown)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SCALING_LIMITS_OUTPUT", str(tmp_path / "7_0.out"))
    words = attempt.command(["trials=4"], tmp_path, nodes=2, port=20000)
    assert words[0] == "srun" and "--wait=20" in words[: words.index("bash")]


# By `scontrol show job` of SLURM 22.05, while the processes of the job still live.
@pytest.mark.parametrize(
    ("shown", "restarts", "is_out_of_time", "fate"),
    [
        ("JobState=RUNNING Reason=None Requeue=1 Restarts=0 PreemptTime=None", 0, False, Fate.RUNS),
        ("JobState=COMPLETING Reason=None Requeue=1 Restarts=0 PreemptTime=None", 0, False, Fate.CANCELLED),
        ("JobState=CANCELLED Reason=None Requeue=1 Restarts=2 PreemptTime=None", 2, False, Fate.CANCELLED),
        ("JobState=COMPLETING Reason=None Requeue=1 Restarts=0 PreemptTime=None", 0, True, Fate.RUNS),
        ("JobState=COMPLETING Reason=None Requeue=1 Restarts=1 PreemptTime=None", 0, False, Fate.REQUEUED),
        ("JobState=COMPLETING Reason=None Requeue=1 Restarts=0 PreemptTime=2026-11-25T01:34:07", 0, False, Fate.RUNS),
        ("", 0, False, Fate.RUNS),  # nobody answers
    ],
)
def test_how_slurm_ends_a_job(shown: str, restarts: int, is_out_of_time: bool, fate: Fate) -> None:
    assert attempt.fate_of(shown, restarts, is_out_of_time) == fate


def test_early_end_waits_until_the_command_can_hear_it(tmp_path: Path) -> None:
    log = attempts.begin(tmp_path, "slurm", "1_0")
    program = (
        "import sys, time; time.sleep(1); from sweeps import limits; from sweeps.launchers import attempt; "
        "attempt.end_with_parent(); time.sleep(0.2); sys.exit(0 if limits._time_is_up else 3)"
    )
    end = attempt.run(tmp_path, [sys.executable, "-c", program], log, lambda: Wish.TIME_IS_UP)
    assert end == Ending(exit_codes.DONE, False)


def test_codes_of_hosts_take_the_place_of_the_largest(tmp_path: Path) -> None:
    output = tmp_path / "7_0.out"
    assert attempt.code_of_hosts(output, 2, -9) == -9
    (tmp_path / "7_0.out.0").write_text("1\n")
    (tmp_path / "7_0.out.1").write_text("76\n")
    assert attempt.code_of_hosts(output, 2, 76) == exit_codes.FAILED
    (tmp_path / "7_0.out.0").write_text("0\n")
    assert attempt.code_of_hosts(output, 2, 137) == exit_codes.PEER_LOST
    assert not list(tmp_path.iterdir())


class Slurm:
    """Stands in for SLURM's commands: keeps what was asked, and holds and shows the jobs of one array."""

    def __init__(self, shown: str = "", during: Callable[[str], object] = lambda command: None) -> None:
        self.asked: list[str] = []
        self.shown, self._during = shown, during

    def ask(self, words: Sequence[str], text: str | None = None) -> "subprocess.CompletedProcess[str]":
        self.asked.append(" ".join(words))
        self._during(self.asked[-1])
        answers = {"sbatch": "7", "squeue": self.shown, "scontrol show config": "MaxArraySize = 26"}
        out = next((answers[key] for key in answers if self.asked[-1].startswith(key)), "")
        return subprocess.CompletedProcess(words, 0, out, "")


@pytest.fixture
def by_slurm(
    tmp_path: Path, make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Slurm, Callable[[], list[StudyOutcome]]]]:
    """Gives a stand-in for SLURM, and what runs two studies by it."""

    def prepare(shown: str = "", **how: Any) -> tuple[Slurm, Callable[[], list[StudyOutcome]]]:
        (config,) = composition.compose_all(CommandLine(("launcher=slurm",), False))
        studies = [make_study(batch_size=size, trials=1, budget_steps=2) for size in (16, 32)]
        for study in studies:
            store.ask(tmp_path, study)
        words = {study.name: ("trials=1",) for study in studies}
        told = Limits()
        launch = Launch(tmp_path, studies, Settings(), told, {}, words, lambda update: None, lambda: None)
        one = Slurm(shown, **how)
        monkeypatch.setattr(slurm, "_ask", one.ask)
        return one, lambda: slurm.run_all(config["launcher"] | {"poll_seconds": 0.01}, launch)

    return prepare


def all_logs(folder: Path) -> list[attempts.Attempt]:
    return [each for name in store.names(folder) for each in attempts.read(folder / name)]


@pytest.mark.parametrize("command", ["sbatch", "scontrol release"])
def test_an_interrupted_submission_leaves_no_held_jobs(
    command: str, tmp_path: Path, by_slurm: Callable[..., tuple[Slurm, Callable[[], list[StudyOutcome]]]]
) -> None:
    def interrupt(asked: str) -> None:
        if asked.startswith(command):
            signal.raise_signal(signal.SIGINT)

    one, run = by_slurm(during=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert one.asked[-1] == "scancel 7_0 7_1"
    assert not all_logs(tmp_path)


def test_held_jobs_that_are_found_are_released(
    tmp_path: Path, by_slurm: Callable[..., tuple[Slurm, Callable[[], list[StudyOutcome]]]]
) -> None:
    one, run = by_slurm("7_0 PENDING JobHeldUser\n7_1 RUNNING None\n")
    for i, name in enumerate(store.names(tmp_path)):
        attempts.begin(tmp_path / name, "slurm", f"7_{i}", waits=True)
    one._during = lambda asked: setattr(one, "shown", "") if asked.startswith("scontrol release") else None
    assert {outcome.failure for outcome in run()} == {
        f"job 7_{i} ended before it started, perhaps cancelled" for i in (0, 1)
    }
    assert [each for each in one.asked if each.startswith(("scontrol", "sbatch"))] == ["scontrol release 7_0"]


def test_reasons_of_waiting_jobs_are_reported(
    tmp_path: Path,
    by_slurm: Callable[..., tuple[Slurm, Callable[[], list[StudyOutcome]]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, run = by_slurm("7_0 PENDING BadConstraints\n7_1 PENDING BadConstraints\n")
    with pytest.raises(BadInput, match=r"^SLURM can never run 2 studies: BadConstraints. Request less"):
        run()
    assert one.asked[-1] == "scancel 7_0 7_1"
    assert not all_logs(tmp_path)
    one, run = by_slurm("7_0 PENDING BadConstraints\n7_1 PENDING Nodes required for job are DOWN, DRAINED\n")

    def cancelled(asked: str) -> None:
        if asked.startswith("scancel"):
            one.shown = "7_1 PENDING Nodes required for job are DOWN, DRAINED\n"
        elif asked.startswith("squeue") and "queued" in capsys.readouterr().err:
            one.shown = ""

    one._during = cancelled
    first, second = run()
    assert (first.failure or "").startswith("SLURM can never run job 7_0: BadConstraints. Request less")
    assert (second.failure or "").startswith("job 7_1 ended before it started")
    queue = slurm.Queue()
    queue.report(["Priority", "Resources", "Priority", "None"])
    queue.report(["Resources"])  # not due yet
    assert capsys.readouterr().err == "4 queued: 2 Priority, 1 Resources\n"


def test_a_study_that_ended_meanwhile_is_not_submitted_once_more(
    tmp_path: Path, by_slurm: Callable[..., tuple[Slurm, Callable[[], list[StudyOutcome]]]]
) -> None:
    one, run = by_slurm()
    first, second = store.names(tmp_path)
    planned = store.stored_plan(tmp_path, first)
    assert isinstance(planned, BatchStudy)
    publish(tmp_path, planned, {0: Ran([(2, 0.1)])})
    outcomes = run()
    assert {outcome.summary.study: outcome.failure is None for outcome in outcomes} == {first: True, second: False}
    (line,) = [each for each in one.asked if each.startswith("scontrol release")]
    assert [each.job for each in all_logs(tmp_path)] == []
    assert "job 7_0 ended" in (outcomes[-1].failure or "")
    assert line == "scontrol release 7"


def test_without_waiting_there_is_no_table_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        launching.LAUNCHERS, "slurm", launching.LAUNCHERS["slurm"]._replace(check=lambda asked, studies, settings: None)
    )
    monkeypatch.setattr(slurm, "_ask", Slurm().ask)
    words = [*SHORT[:2], "launcher=slurm", "launcher.wait=false", f"store={tmp_path}"]
    assert sweeps_cli.main(words) == exit_codes.DONE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1] == "1 study queued. `python -m sweeps.status` shows them."


def test_status_passes_over_attempts_at_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, other = (plan(trials=1, batch_size=size) for size in (16, 32))
    publish(tmp_path, done, {0: Ran([(2, 0.1)])})
    store.ask(tmp_path, other)
    for study in (done, other):
        attempts.end(attempts.begin(tmp_path / study.name, "slurm", "7_0"), -9, local.exit_description(-9))
    assert status.main([f"store={tmp_path}"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"{other.name}: attempt 1 ended by signal 9" in out
    assert f"{done.name}: attempt" not in out


def test_the_limit_of_each_study_is_named(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    studies = tuple(make_study(batch_size=size) for size in (8, 16, 32, 64, 128))

    def run_all(asked: Any, launch: Launch) -> list[StudyOutcome]:
        for study in studies:
            launch.limits.hear(StudyUpdate(study, RunProgress()))
        now[0] = 3600 * 0.5
        assert not launch.limits.is_over(studies[0].name)
        now[0] = 3600 * 1.1
        assert all(launch.limits.is_over(study.name) for study in studies)
        return []

    monkeypatch.setitem(launching.LAUNCHERS, "local", launching.LAUNCHERS["local"]._replace(run_all=run_all))
    bounds = (Bounds(), Bounds(max_device_hours=1))
    planning.run(planning.Request(studies, {}, Settings(), tmp_path, {"name": "local"}, limits=bounds), studies)
    names = ", ".join(study.name for study in studies[:3])
    assert capsys.readouterr().err == f"limits.study.max_device_hours=1 reached by {names} and 2 more\n"


def test_heartbeats_of_another_host_live_as_long_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = heartbeat.Heartbeat("training", 4, 1, 10, 5.0)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    heartbeat.write(tmp_path, beat)
    monkeypatch.undo()
    assert heartbeat.read(tmp_path) is None
    assert heartbeat.running([tmp_path]) == {tmp_path: beat}
    hours_ago = time.time() - 7200  # or a clock that is behind
    os.utime(tmp_path / heartbeat.FILE, (hours_ago, hours_ago))
    monkeypatch.setattr(LocalFiles, "heartbeat_seconds", 0.1)
    assert heartbeat.running([tmp_path]) == {}
    sleep = time.sleep

    def beats_while_waiting(seconds: float) -> None:
        os.utime(tmp_path / heartbeat.FILE, (hours_ago + 3, hours_ago + 3))
        sleep(0)

    monkeypatch.setattr(time, "sleep", beats_while_waiting)
    assert heartbeat.running([tmp_path]) == {tmp_path: beat}


def test_status_says_in_what_two_studies_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("seed=0", "seed=1"):
        assert sweeps_cli.main(["task.budget.steps=2", "trials=2", word, f"store={tmp_path}"]) == exit_codes.DONE
    capsys.readouterr()
    assert status.main([f"store={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert " differs from " in out
    assert "seed" in out
