"""What is the same for all launchers: keys, limits, tries, and the logs of attempts."""

import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run import RunProgress, Settings
from results import exit_codes, store
from results.bad_input import BadInput
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.storage import attempts, heartbeat
from sweeps import __main__ as sweeps_cli
from sweeps import composition, launching, limits, status, watch
from sweeps.launchers import attempt, local, slurm
from sweeps.launchers.launcher import Launch, Tries
from sweeps.limits import Bounds, Limits
from sweeps.overrides import CommandLine, options
from sweeps.run import StudyUpdate

from ..results import by_hand

SHORT = ("trials=2", "task.budget.steps=2", "launcher.workers=1")


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert sweeps_cli.main(words) == exit_codes.INVALID
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_every_launcher_has_a_file_and_a_row() -> None:
    assert options("launcher") == sorted(launching.LAUNCHERS)
    for name, row in launching.LAUNCHERS.items():
        (config,) = composition.compose_all(CommandLine((f"launcher={name}",), False))
        assert config["launcher"]["name"] == name
        assert set(row.keys) <= set(config["launcher"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["launcher.partition=a"], "launcher.partition is of launcher=slurm, not of launcher=local"),
        (["launcher=nosuch"], "unknown launcher 'nosuch'"),
        (["launcher.retries=-1"], "launcher.retries must be at least 0, not -1"),
        (["limits.sweep.max_hours=0"], "limits.sweep.max_hours must be above 0, not 0"),
        (["limits.study.max_hours=1", "time_limit_seconds=5"], "are the same limit"),
        (["launcher=slurm", "launcher.sbatch.array=1-2"], "launcher.sbatch.array is no option of sbatch that"),
        (["launcher=ray", "launcher.tpu_slice=4x4"], "launcher.tpu_slice=4x4 is no VERSION:TOPOLOGY"),
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
    assert "needs the extra ray: pip install 'scaling-limits[ray]'" in error_of(["launcher=ray"], capsys)


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
    tries = Tries(retries=2)
    assert [tries.again(code, advanced=True) for code in codes] == again


def test_preempted_without_a_step_is_as_good_as_lost() -> None:
    tries = Tries(retries=1)
    assert [tries.again(75, advanced=False) for _ in range(2)] == [True, False]
    assert not Tries(9).again(-9, advanced=True, out_of_memory=True)
    many = Tries(0)
    assert [many.again(75, advanced=True) for _ in range(1001)].index(False) == 1000


@pytest.mark.parametrize("words", [[], ["--watch"]])
def test_a_damaged_plan_of_one_study_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: None)
    whole, damaged, alike = (by_hand.study(trials=2, details={"version": version}) for version in (1, 2, 3))
    for study in (whole, damaged, alike):
        by_hand.publish(tmp_path, study, {0: by_hand.Ran("COMPLETE", [(1, 0.5)])})
    plan = tmp_path / damaged.name / "plan-000000002.json"
    plan.write_bytes(plan.read_bytes()[:-9])
    assert status.main([f"store={tmp_path}", *words]) == 1
    said = capsys.readouterr()
    if words:
        assert "2/3 studies" in said.out
        return
    rows = {
        line.split()[0]: line.split()[1:]
        for line in said.out.splitlines()
        if line.count("-") > 3 and " is not " not in line
    }
    assert rows[whole.name][:3] == rows[alike.name][:3] == ["done", "2", "1"]
    assert rows[damaged.name] == ["damaged"]
    assert f"{plan} is not what was written" in said.err
    assert "details.version" in said.out
    assert status.main([f"store={tmp_path}", "--json"]) == 1
    (row,) = (row for row in json.loads(capsys.readouterr().out) if row["study"] == damaged.name)
    assert (row["state"], row["planned"]) == ("damaged", None)


def test_no_attempt_comes_after_the_last_number(tmp_path: Path) -> None:
    (tmp_path / "attempt-999999.log").touch()
    with pytest.raises(
        BadInput, match=r"holds attempt-999999\.log, the last there can be; remove the logs of attempts"
    ):
        attempts.begin(tmp_path, "local")
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-999999.log"]


def test_logs_of_attempts(tmp_path: Path) -> None:
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


def test_a_failed_attempt_leaves_its_log_and_verify_passes_over_it(
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
    (outcome,) = local.run_all(tmp_path, [study], Settings(), 1, retries=9, limits=bounds)
    assert "died 2 times" in (outcome.failure or "")
    assert len(attempts.read(tmp_path / study.name)) == 2


def test_a_limit_of_the_sweep_ends_what_runs_and_begins_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["batch_size=16,32,64", "trials=4", "pruning=off", "stop=budget", "task.targets=[]", "launcher.workers=1"]
    words += ["task.budget={steps: 3000000, epochs: null, examples: null, at_least_steps: null}", "-m"]
    began = time.monotonic()
    assert sweeps_cli.main([*words, "limits.sweep.max_device_hours=0.003", f"store={tmp_path}"]) == exit_codes.DONE
    assert time.monotonic() - began < 120
    assert "2 studies did not begin; the same command goes on with them" in capsys.readouterr().err
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


def test_dry_run_prints_commands_that_ask_for_the_same_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sweeps import planning
    from sweeps.overrides import command_line

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
    asked = config["launcher"] | {"minutes": 90, "mem": "8G", "sbatch": {"account": "a b"}, "at_once": 5}
    study = make_study()
    words = {study.name: (("task.targets=[{metric: validation_error, value: 0.1}]", "trials=4"),)}
    launch = Launch(tmp_path, [study], Settings(), Limits(), {}, words, lambda update: None, lambda: None)
    script = slurm.batch_script(asked, launch, slurm.Resources(2, 0, False), [study])
    for line in (
        "--array=0-0%5",
        "--time=90",
        "--mem=8G",
        '--account="a b"',
        "--signal=B:USR2@60",
        "--cpus-per-task=2",
    ):
        assert f"#SBATCH {line}" in script.splitlines()
    assert attempt.split(attempt.joined(words[study.name])) == [list(words[study.name][0])]


def test_heartbeats_of_another_host_live_as_long_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = heartbeat.Heartbeat("training", 4, 1, "step", 10, 5.0, None)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    heartbeat.write(tmp_path, beat)
    monkeypatch.undo()
    assert heartbeat.read(tmp_path) is None
    assert heartbeat.Watch().one(tmp_path) == beat
    hours_ago = time.time() - 7200  # or a clock that is behind
    os.utime(tmp_path / heartbeat.FILE, (hours_ago, hours_ago))
    watch = heartbeat.Watch()
    assert watch.one(tmp_path) is None
    os.utime(tmp_path / heartbeat.FILE, (hours_ago + 3, hours_ago + 3))
    assert watch.one(tmp_path) == beat
    monkeypatch.setattr(heartbeat, "SECONDS", 0.1)
    assert heartbeat.Watch().look([tmp_path]) == {}


def test_status_says_in_what_two_studies_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("trials=2", "seed=1"):
        assert sweeps_cli.main(["task.budget.steps=2", "trials=2", word, f"store={tmp_path}"]) == exit_codes.DONE
    capsys.readouterr()
    assert status.main([f"store={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert " is not " in out
    assert "seed" in out
