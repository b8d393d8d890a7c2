import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from jax.experimental import multihost_utils

from harness.processes import multihost
from harness.run import COMPILING, STRATEGIES, TRAINING, Record, RunProgress, Settings
from harness.runners import engine
from harness.step import programs
from harness.trials import search
from harness.trials.checkpoints import Checkpoints
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target, Trial
from results.rules.confirmation import APART

FEW = Settings(lanes=3)


def same(a: Record, b: Record) -> bool:
    """Whether two records hold the same measurements to the bit, and the same endings."""
    names = a.metrics.keys() == b.metrics.keys()
    rows = np.array_equal(a.trial, b.trial) and np.array_equal(a.step, b.step)
    bits = all(np.array_equal(a.metrics[m].view(np.int32), b.metrics[m].view(np.int32)) for m in a.metrics)
    return names and rows and bits and a.outcomes == b.outcomes


@pytest.fixture(scope="module")
def whole(make_study: Callable[..., BatchStudy]) -> Record:
    study = make_study()
    return engine.run(study, search.draw(study, range(8)), FEW)


def test_training_learns(whole: Record) -> None:
    assert np.nanmin(whole.metrics["validation_loss"]) < 0.6
    assert np.nanmin(whole.metrics["validation_error"]) < 0.2
    first = whole.metrics["validation_loss"][whole.step == 1]
    assert np.all(first > 1.0)


def test_data_of_another_version_are_not_trained_on(make_study: Callable[..., BatchStudy]) -> None:
    """As a host may have them that joins a study, or another version of Python, whose text pydoc is."""
    study = make_study(dataset_version="sha256:0123456789abcdef")
    with pytest.raises(BadInput, match=r"digits is sha256:\w+ here and sha256:0123456789abcdef in the plan\. Run"):
        engine.run(study, search.draw(study, range(2)), FEW)


def test_hosts_never_ask_twice_at_one_step_whether_one_is_to_end(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM counts from the step after the largest that any host asked at, in whichever study that was."""
    asked: list[int] = []
    monkeypatch.setattr(multihost, "are_many", lambda: True)
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", asked.append)
    for seed in range(2):
        study = make_study(budget_steps=3, seed=seed)
        engine.run(study, search.draw(study, range(2)), FEW)
    assert len(asked) >= 4
    assert asked == list(range(asked[0], asked[0] + len(asked)))


@pytest.mark.parametrize("count", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8, 32))])
def test_lanes_change_no_bit(make_study: Callable[..., BatchStudy], whole: Record, count: int) -> None:
    study = make_study()
    assert same(engine.run(study, search.draw(study, range(8)), Settings(lanes=count)), whole)


def test_the_order_of_trials_changes_no_bit(make_study: Callable[..., BatchStudy], whole: Record) -> None:
    study = make_study()
    assert same(engine.run(study, search.draw(study, [5, 0, 7, 2, 1, 6, 3, 4]), FEW), whole)


@pytest.mark.parametrize("pruning", ["off", "exact"])
def test_progress_counts_every_trial_and_every_step(make_study: Callable[..., BatchStudy], pruning: str) -> None:
    study = make_study(pruning=pruning)
    told: list[RunProgress] = []
    record = engine.run(study, search.draw(study, range(8)), FEW, on_progress=told.append)
    assert [progress.doing for progress in told[:3]] == [COMPILING, TRAINING, TRAINING]
    for progress in told:
        assert progress.steps == sum(s * n for counts in (progress.ended, progress.live) for s, n in counts.items())
        assert progress.trials_ended + sum(progress.live.values()) <= 8
        assert sum(progress.live.values()) <= 3
    assert told == sorted(told, key=lambda progress: (progress.steps, progress.seconds))
    assert told[-1].ended == Counter(end.steps for end in record.outcomes.values())
    assert (told[-1].steps, told[-1].train_seconds) == (record.trial_steps, record.train_seconds)
    assert not told[-1].live


@pytest.mark.parametrize(("seconds", "is_saved"), [(0.0, True), (math.inf, False), (-1.0, False)])
def test_progress_reports_saved_steps(
    make_study: Callable[..., BatchStudy], tmp_path: Path, seconds: float, is_saved: bool
) -> None:
    if seconds < 0:  # a broken disk: every save fails
        (tmp_path / "study").touch()
    told: list[RunProgress] = []
    kept = Checkpoints(tmp_path / "study", max(0.0, seconds))
    study = make_study()
    calm = dataclasses.replace(FEW, flush_seconds=math.inf)
    engine.run(study, search.draw(study, range(3)), calm, on_progress=told.append, checkpoints=kept)
    assert not told[2].saved  # the first steps are not saved yet
    assert told[-1].saved == is_saved


def test_one_trial_alone_is_the_trial_in_company(make_study: Callable[..., BatchStudy], whole: Record) -> None:
    study = make_study()
    alone = engine.run(study, search.draw(study, [4]), FEW)
    rows = whole.trial == 4
    for name, values in alone.metrics.items():
        assert np.array_equal(values, whole.metrics[name][rows])


def test_batched_lanes_agree_within_rounding(make_study: Callable[..., BatchStudy]) -> None:
    gentle = SearchSpace({"learning_rate": Range("LOG", 1e-2, 1e-1), "momentum": Range("LINEAR", 0.0, 0.5)})
    study = make_study(space=gentle, targets=(), budget_steps=30)
    trials = search.draw(study, range(4))
    mapped, batched = (engine.run(study, trials, Settings(lanes=3, lane_strategy=s)) for s in STRATEGIES)
    np.testing.assert_allclose(batched.metrics["validation_loss"], mapped.metrics["validation_loss"], rtol=1e-4)


def test_pruned_and_unpruned_answers_are_equal(make_study: Callable[..., BatchStudy]) -> None:
    targets = (Target("validation_loss", 0.6), Target("validation_error", 0.12), Target("train_loss", 0.7))
    records = {}
    for pruning in ("off", "exact"):
        study = make_study(targets=targets, pruning=pruning)
        records[pruning] = engine.run(study, search.draw(study, range(8)), FEW)

    def answers(record: Record) -> list[tuple[int, int]]:
        found = [np.flatnonzero(t.reached(record.metrics[t.metric])) for t in targets]
        return [min((int(record.step[i]), int(record.trial[i])) for i in rows) for rows in found]

    assert answers(records["exact"]) == answers(records["off"])
    assert records["exact"].trial_steps < 0.7 * records["off"].trial_steps


def test_a_trial_that_waits_for_others_goes_on_where_it_was(make_study: Callable[..., BatchStudy]) -> None:
    """Where one diverges the next of the queue takes its lane, and with exact pruning the others wait for that one."""
    learning_rate = Range("DISCRETE", values=(0.05, 0.1, 0.2, 1e30))
    space = SearchSpace({"learning_rate": learning_rate, "momentum": Range("LINEAR", 0.0, 0.5)})
    records = {}
    for pruning in ("off", "exact"):
        study = make_study(space=space, targets=(Target("validation_loss", 1e-9),), pruning=pruning)
        records[pruning] = engine.run(study, search.draw(study, range(12)), FEW)
    statuses = [ended.status for ended in records["off"].outcomes.values()]
    assert statuses.count("INFEASIBLE") >= 2 and statuses.count("COMPLETE") > FEW.lanes
    assert records["exact"].outcomes == records["off"].outcomes  # nobody reached the target, so nobody was pruned
    assert records["exact"].trial_steps == records["off"].trial_steps
    assert np.array_equal(records["exact"].step, records["off"].step)
    for name, values in records["off"].metrics.items():
        assert np.array_equal(records["exact"].metrics[name], values, equal_nan=True)


def test_planted_divergence_is_infeasible_at_next_evaluation(
    make_study: Callable[..., BatchStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    planted = SearchSpace({"learning_rate": Range("DISCRETE", values=(1e30,)), "momentum": Range("LINEAR", 0.0, 0.0)})
    study = make_study(space=planted)
    record = engine.run(study, search.draw(study, range(2)), FEW)
    assert {(ended.status, ended.steps <= 3) for ended in record.outcomes.values()} == {("INFEASIBLE", True)}
    assert {ended.steps for ended in record.outcomes.values()} == {study.evaluations[0]}
    assert "no trial was finite at its first evaluation" in capsys.readouterr().err
    for trial, ended in record.outcomes.items():
        losses = record.metrics["validation_loss"][record.trial == trial]
        assert np.all(np.isfinite(losses[:-1]))
        assert not np.isfinite(losses[-1])
        assert max(record.step[record.trial == trial]) == ended.steps


def test_one_program_serves_three_optimizers_and_every_schedule(make_study: Callable[..., BatchStudy]) -> None:
    engine.run(make_study(), search.draw(make_study(), range(2)), FEW)
    built = programs._build.cache_info().misses
    decaying = {"decay_fraction": Range("LINEAR", 0.5, 1.0), "end_learning_rate_factor": Range("LOG", 1e-3, 1e-1)}
    base = {"learning_rate": Range("LOG", 1e-2, 1.0)}
    for optimizer in ("sgd", "momentum", "nesterov"):
        for schedule in ("constant", "linear", "cosine"):
            space = base | ({} if optimizer == "sgd" else {"momentum": Range("LINEAR", 0.0, 0.9)})
            space |= {} if schedule == "constant" else decaying
            study = make_study(optimizer=optimizer, schedule=schedule, space=SearchSpace(space), budget_steps=5)
            engine.run(study, search.draw(study, range(2)), FEW)
    assert programs._build.cache_info().misses == built


def test_optimizers_and_schedules_differ_where_they_should(make_study: Callable[..., BatchStudy]) -> None:
    fixed = {"learning_rate": Range("DISCRETE", values=(0.1,)), "momentum": Range("DISCRETE", values=(0.9,))}
    decay = {
        "decay_fraction": Range("DISCRETE", values=(1.0,)),
        "end_learning_rate_factor": Range("DISCRETE", values=(0.01,)),
    }
    losses = []
    for optimizer, schedule in [
        ("momentum", "constant"),
        ("nesterov", "constant"),
        ("momentum", "linear"),
        ("momentum", "cosine"),
    ]:
        space = SearchSpace(fixed | ({} if schedule == "constant" else decay))
        study = make_study(optimizer=optimizer, schedule=schedule, space=space, budget_steps=60, targets=())
        trial = dataclasses.replace(search.draw(study, [0])[0], seed=1)
        losses.append(float(engine.run(study, [trial], FEW).metrics["train_loss"][-1]))
    assert len({round(loss, 6) for loss in losses}) == 4


def test_a_time_limit_ends_what_is_unfinished(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(targets=())
    record = engine.run(study, search.draw(study, range(8)), Settings(lanes=1, time_limit_seconds=1e-6))
    assert {ended.reason for ended in record.outcomes.values()} == {"time_limit"}
    assert len(record.outcomes) == 8
    assert set(record.trial) <= {0, 1}


@pytest.mark.parametrize("pruning", ["off", "exact"])
def test_confirming_trials_follow_after_all_others(
    make_study: Callable[..., BatchStudy], whole: Record, pruning: str
) -> None:
    study = make_study(pruning=pruning)
    parts: list[Record] = []

    asked: list[set[int]] = []

    def confirming() -> list[Trial]:
        asked.append({i for part in parts for i in part.outcomes})
        return search.draw(study, [APART + 5, 2 * APART + 5])

    record = engine.run(study, search.draw(study, range(8)), FEW, on_finished=parts.append, confirming=confirming)
    assert record.outcomes.keys() == {*range(8), APART + 5, 2 * APART + 5}
    assert [part.outcomes.keys() for part in parts] == [set(range(8)), {APART + 5, 2 * APART + 5}]
    assert asked == [set(range(8)), set(record.outcomes)]  # again once those have ended, and been handed over
    assert {record.outcomes[i].status for i in (APART + 5, 2 * APART + 5)} == {"COMPLETE"}
    alone = engine.run(make_study(), search.draw(study, [2 * APART + 5]), FEW)  # by itself, and not pruned
    rows = record.trial == 2 * APART + 5
    assert np.array_equal(record.step[rows], alone.step)
    for name, values in alone.metrics.items():
        assert np.array_equal(record.metrics[name][rows], values)
    assert not np.array_equal(alone.metrics["train_loss"][:3], whole.metrics["train_loss"][whole.trial == 5][:3])


def test_timings_add_up(whole: Record) -> None:
    assert 0 < whole.train_seconds + whole.evaluate_seconds <= whole.run_seconds
    assert whole.trial_steps == sum(ended.steps for ended in whole.outcomes.values())
