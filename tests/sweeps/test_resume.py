"""Studies that were stopped somewhere and gone on with: the tables do not know."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings as examples, strategies as st

from harness.processes.shutdown import Shutdown, Stopped
from harness.run import Settings
from harness.runners import engine
from harness.trials.scheduler import Live, TrialScheduler
from results import store
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.rules import answers
from sweeps.study_run import run_study

from ..same import assert_same
from . import scripted

TARGETS = (Target("validation_loss", 1.0), Target("validation_loss", 0.6))
LANES = (3, 1, 3)  # of the runs that follow each other; every number of lanes needs programs of its own


class Killed(BaseException):
    """The end of a process, of which nothing is handed over and nothing is saved."""


@pytest.fixture
def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of few steps, so that trials are saved within spans, too."""
    monkeypatch.setattr(engine, "FIRST_CALL_STEPS", 5)
    monkeypatch.setattr(engine, "CALL_SECONDS", 1e-9)  # one step
    monkeypatch.setattr(
        engine, "_stops", lambda scheduler, lives, *_: [min(scheduler.stop(i), i.step + 5) for i in lives]
    )


def rounds(folder: Path, study: BatchStudy, settings: Settings) -> int:
    """Runs a study whole; how many rounds it took."""
    told: list[object] = []
    run_study(folder, study, settings, told.append)
    return len(told) - 2  # compiling, and the beginning


def killed_at(folder: Path, study: BatchStudy, settings: Settings, at: int) -> bool:
    """Runs a study until its process is killed after so many rounds; whether that happened."""
    left: Iterator[int] = iter(range(at + 2))

    def kill(progress: object) -> None:
        if next(left, None) is None:
            raise Killed

    store.ask(folder, study)
    try:
        run_study(folder, study, settings, kill)
    except Killed:
        return True
    return False


def shared(folder: Path) -> tuple[pd.DataFrame, list[answers.Answer | None]]:
    """The evaluations of a store, and its answers."""
    measured = store.read(folder).measurements
    best = [answers.of_frame(measured, target).answer() for target in TARGETS]
    return measured.set_index(["trial", "step"]), best


@pytest.mark.parametrize(
    ("pruning", "stop"),
    [
        *(pytest.param("off", stop, marks=pytest.mark.slow) for stop in ("target", "budget")),
        ("exact", "target"),
    ],
)
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_round_changes_no_result(
    make_study: Callable[..., BatchStudy], tmp_path: Path, small_calls: None, pruning: str, stop: str, every: int
) -> None:
    study = make_study(budget_steps=60, targets=TARGETS, pruning=pruning, stop=stop, trials=6, confirm=2)
    count = rounds(tmp_path / "whole", study, Settings(lanes=3))
    assert count > 12
    for at in range(1, count, every):
        folder = tmp_path / f"killed-{at}"
        for lanes in LANES:
            settings = Settings(lanes=lanes, checkpoint_seconds=0, flush_seconds=[0, 1e9][at % 2])
            if not killed_at(folder, study, settings, at):
                break
        run_study(folder, study, Settings(lanes=1))
        if pruning == "off":
            assert_same(folder, tmp_path / "whole")
        (ours, best), (theirs, their_best) = shared(folder), shared(tmp_path / "whole")
        assert best == their_best
        both = ours.index.intersection(theirs.index)
        pd.testing.assert_frame_equal(ours.loc[both], theirs.loc[both], check_exact=True)
        assert verify.run(folder, lambda line: None) == 0
        assert not list(folder.glob("*/checkpoint-*"))


def test_what_is_stopped_in_order_is_saved_and_goes_on(
    make_study: Callable[..., BatchStudy], tmp_path: Path, small_calls: None
) -> None:
    study = make_study(budget_steps=60, trials=6, stop="budget")
    count = rounds(tmp_path / "whole", study, Settings(lanes=3))
    shutdown = Shutdown()
    told: list[object] = []

    def request(progress: object) -> None:
        told.append(progress)
        shutdown.requested = len(told) == 12

    store.ask(tmp_path / "stopped", study)
    with pytest.raises(Stopped):
        run_study(tmp_path / "stopped", study, Settings(lanes=3), request, shutdown=shutdown)
    assert shutdown.saved
    kept = sorted((tmp_path / "stopped" / study.name).glob("checkpoint-*"))
    assert [path.name for path in kept] == ["checkpoint-000000000", "checkpoint-000000001", "checkpoint-000000002"]
    assert verify.run(tmp_path / "stopped", lambda line: None) == 0
    again: list[object] = []
    run_study(tmp_path / "stopped", study, Settings(lanes=3), again.append)
    assert len(again) - 2 == count - 10  # not one round is computed twice
    assert_same(tmp_path / "stopped", tmp_path / "whole")
    assert not any(path.exists() for path in kept)


def test_what_ran_out_of_time_goes_on_in_a_folder_that_is_told(
    make_study: Callable[..., BatchStudy], tmp_path: Path, small_calls: None
) -> None:
    study = make_study(budget_steps=60, trials=3, stop="budget")
    run_study(tmp_path / "whole", study, Settings(lanes=3))
    elsewhere = tmp_path / "elsewhere"
    settings = Settings(lanes=3, checkpoint_seconds=None, checkpoint_dir=str(elsewhere), time_limit_seconds=1e-9)
    steps = []
    store.ask(tmp_path / "limited", study)
    for _ in range(3):
        assert run_study(tmp_path / "limited", study, settings).incomplete == 3
        assert len(list((elsewhere / study.name).iterdir())) == 3
        steps.append(store.read(tmp_path / "limited").trials["steps"].max())
    assert steps == sorted(set(steps))  # each goes on where the one before it was
    assert run_study(tmp_path / "limited", study, dataclasses.replace(settings, lanes=1)).incomplete == 3
    assert verify.run(tmp_path / "limited", lambda line: None) == 0  # of those that waited for the lane, too
    run_study(tmp_path / "limited", study, Settings(lanes=3, checkpoint_dir=str(elsewhere)))
    assert_same(tmp_path / "limited", tmp_path / "whole")
    assert not list((elsewhere / study.name).iterdir())


@pytest.mark.parametrize("harm", ["flipped", "another trial", "cut", "of the future"])
def test_what_is_not_whole_is_not_gone_on_from(
    make_study: Callable[..., BatchStudy], tmp_path: Path, small_calls: None, harm: str
) -> None:
    study = make_study(budget_steps=60, trials=2, stop="budget")
    run_study(tmp_path / "whole", study, Settings(lanes=3))
    assert killed_at(tmp_path / "harmed", study, Settings(lanes=3, checkpoint_seconds=0), 8)
    one, other = sorted((tmp_path / "harmed" / study.name).glob("checkpoint-*"))
    data = bytearray(one.read_bytes())
    if harm == "flipped":
        data[np.random.default_rng(0).integers(len(data))] ^= 4
    elif harm == "another trial":
        data = bytearray(other.read_bytes())
    elif harm == "cut":
        data = data[: len(data) // 2]
    else:
        data = bytearray(data.replace(b'"format": 2', b'"format": 3', 1))
    one.write_bytes(data)
    run_study(tmp_path / "harmed", study, Settings(lanes=3))
    assert_same(tmp_path / "harmed", tmp_path / "whole")


def test_checkpoints_may_be_in_a_bucket(
    make_study: Callable[..., BatchStudy], tmp_path: Path, small_calls: None
) -> None:
    study = make_study(budget_steps=40, trials=2, stop="budget")
    run_study(tmp_path / "whole", study, Settings(lanes=3))
    settings = Settings(lanes=3, checkpoint_seconds=0, checkpoint_dir="memory://bucket/run")
    assert killed_at(tmp_path / "killed", study, settings, 6)
    again: list[object] = []
    run_study(tmp_path / "killed", study, settings, again.append)
    assert len(again) < rounds(tmp_path / "other", study, settings)
    assert_same(tmp_path / "killed", tmp_path / "whole")


class Run(NamedTuple):
    """A run of a study that ends before its time.

    Attributes:
      end: by its time limit, by a request to save and stop, or by a kill.
      after: so many rounds.
      lanes, call_steps, flush_seconds, checkpoint_seconds: of the run.
    """

    end: str
    after: int
    lanes: int
    call_steps: int
    flush_seconds: float
    checkpoint_seconds: float | None


RUNS = st.builds(
    Run,
    end=st.sampled_from(["time limit", "stop", "kill"]),
    after=st.integers(1, 12),
    lanes=st.integers(1, 5),
    call_steps=st.integers(1, 20),
    flush_seconds=st.sampled_from([0.0, 1e9]),
    checkpoint_seconds=st.sampled_from([0.0, None]),
)


def interrupted(folder: Path, study: BatchStudy, run: Run) -> None:
    """Runs a study with scripted programs until the run's end."""
    shutdown, told = Shutdown(), 0

    def end(progress: object) -> None:
        nonlocal told
        told += 1
        if told < run.after + 2:  # two come before the first round
            return
        if run.end == "kill":
            raise Killed
        shutdown.requested = run.end == "stop"
        shutdown.time_is_up = run.end == "time limit"

    def stops(scheduler: TrialScheduler, going: list[Live], *_: object) -> list[int]:
        return [min(scheduler.stop(live), live.step + run.call_steps) for live in going]

    settings = Settings(lanes=run.lanes, flush_seconds=run.flush_seconds, checkpoint_seconds=run.checkpoint_seconds)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed, Stopped):
        patch.setattr(engine, "programs_in_memory", lambda *_: (scripted.programs(run.lanes), 0.0))
        patch.setattr(engine, "_stops", stops)
        patch.setattr("os.fsync", lambda descriptor: None)
        run_study(folder, study, settings, end, shutdown=shutdown)


WHOLE = Run("", 10**9, 3, 100, 1e9, None)
WAITS = [Run("time limit", 3, lanes, 100, 1e9, None) for lanes in (4, 1)]  # the second leaves three without a lane


@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_no_schedule_of_interruptions_changes_a_result(
    make_study: Callable[..., BatchStudy], tmp_path: Path, count: int
) -> None:
    def study_of(pruning: str, stop: str) -> BatchStudy:
        top = 2 if pruning == "off" else 1
        return make_study(
            budget_steps=60, targets=TARGETS, pruning=pruning, stop=stop, trials=7, confirm=4, confirm_top=top
        )

    kinds = [study_of("off", "target"), study_of("off", "budget"), study_of("exact", "target")]
    for study in kinds:
        interrupted(tmp_path / study.name, study, WHOLE)

    @example(kinds[0], WAITS)
    @given(st.sampled_from(kinds), st.lists(RUNS, min_size=1, max_size=6))
    @examples(max_examples=count, deadline=None)
    def check(study: BatchStudy, runs: list[Run]) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as name:
            folder = Path(name)
            store.ask(folder, study)
            for run in [*runs, WHOLE]:
                interrupted(folder, study, run)
                assert verify.run(folder, lambda line: None) == 0, run
            assert_same(folder, tmp_path / study.name)
            assert not list(folder.glob("*/checkpoint-*"))

    check()
