import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from harness.trials.scheduler import BestSteps, Saved, TrialOutcome, TrialScheduler
from results.plans.batch_study import BatchStudy, evaluation_steps
from results.plans.study import Target, Trial
from results.rules import answers
from results.rules.confirmation import APART

TARGETS = (Target("validation_loss", 0.5), Target("validation_loss", 0.25), Target("validation_error", 0.5))
STEPS = evaluation_steps(40, 1.5)


def play(study: BatchStudy, curves: np.ndarray, lanes: int, best: BestSteps, ids: list[int]) -> tuple[dict, dict, int]:
    """Drives a scheduler over made-up curves [trials, evaluations]: its endings, its answers, its trial-steps."""
    scheduler = TrialScheduler(study, [Trial(i, 0, {}) for i in ids], range(lanes), best)
    trial_steps, answers = 0, dict(best)
    while going := scheduler.next():
        assert len({live.lane for live in going}) == len(going)
        for live in going:
            loss, stop = curves[live.trial.id, live.evaluated], scheduler.stop(live)
            trial_steps += stop - live.step
            measured = {"validation_loss": loss, "validation_error": loss}
            for target in study.targets:
                if target.reached(loss):
                    answers[target] = min(answers.get(target, (stop, live.trial.id)), (stop, live.trial.id))
            scheduler.record(live, measured, bool(np.isfinite(loss)))
        scheduler.prune()
    return scheduler.outcomes, answers, trial_steps


def stored_as(
    study: BatchStudy, curves: np.ndarray, ended: dict[int, TrialOutcome]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and measurements of a pruned study as they are committed, from how its trials ended."""
    trials = pd.DataFrame([(i, *dataclasses.astuple(ended[i])) for i in sorted(ended)])
    trials.columns = ["trial", "status", "reason", "steps"]
    trials["role"] = "search"
    rows = [
        (study.name, i, step, curves[i, j], curves[i, j])
        for i, steps in zip(trials["trial"], trials["steps"], strict=True)
        for j, step in enumerate(STEPS)
        if step <= steps
    ]
    measurements = pd.DataFrame(rows, columns=["study", "trial", "step", "validation_loss", "validation_error"])
    settled, stay = answers.prune(study, trials, measurements)
    for i, end in enumerate(settled["steps"]):  # never further than it was measured, and one row per evaluation
        assert (stay & (measurements["trial"] == i)).sum() == np.searchsorted(STEPS, end) + 1
    settled["reason"] = settled["reason"].astype(object).fillna("")
    return settled, measurements[stay].reset_index(drop=True)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_pruning_lanes_and_order_change_no_answer(make_study: Callable[..., BatchStudy], data: st.DataObject) -> None:
    trials = data.draw(st.integers(1, 9))
    levels = st.sampled_from([1.0, 0.5, 0.4, 0.25, 0.1, np.nan])
    drawn = data.draw(
        st.lists(st.lists(levels, min_size=len(STEPS), max_size=len(STEPS)), min_size=trials, max_size=trials)
    )
    curves = np.float32(drawn)
    off, exact = (
        make_study(targets=TARGETS, budget_steps=40, evaluation_ratio=1.5, pruning=p) for p in ("off", "exact")
    )
    ids = data.draw(st.permutations(range(trials)))
    ended, answers, steps = play(off, curves, 3, {}, list(range(trials)))
    ended_pruned, answers_pruned, steps_pruned = play(exact, curves, data.draw(st.integers(1, 10)), {}, ids)
    assert answers_pruned == answers
    assert steps_pruned <= steps
    assert ended.keys() == ended_pruned.keys() == set(range(trials))
    # In two goes, the second building on the answers of the first.
    cut = data.draw(st.integers(0, trials))
    ended_first, first, _ = play(exact, curves, 4, {}, list(range(cut)))
    ended_second, second, _ = play(exact, curves, 4, first, list(range(cut, trials)))
    assert second == answers
    # What is stored is the same to the last row.
    stored = [stored_as(exact, curves, ends) for ends in (ended_pruned, ended_first | ended_second)]
    pd.testing.assert_frame_equal(stored[0][0], stored[1][0], check_dtype=False)
    pd.testing.assert_frame_equal(stored[0][1], stored[1][1])


@pytest.mark.parametrize("pruning", ["off", "exact"])
def test_every_trial_ends_and_says_how(make_study: Callable[..., BatchStudy], pruning: str) -> None:
    study = make_study(targets=TARGETS[:1], budget_steps=40, evaluation_ratio=1.5, pruning=pruning)
    curves = np.full((4, len(STEPS)), 1.0, np.float32)
    curves[0, 3:] = 0.4
    curves[1, 2] = np.nan
    curves[2, 3:] = 0.4  # as fast as trial 0, which has the smaller id
    ended, answers, _ = play(study, curves, 1, {}, [0, 1, 2, 3])
    assert answers == {TARGETS[0]: (STEPS[3], 0)}
    assert (ended[0].status, ended[0].steps) == ("COMPLETE", STEPS[3])
    assert (ended[1].status, ended[1].steps) == ("INFEASIBLE", STEPS[2])
    if pruning == "off":
        assert [ended[i].status for i in (2, 3)] == ["COMPLETE", "COMPLETE"]
        assert ended[3].steps == 40
    else:
        assert [(ended[i].reason, ended[i].steps) for i in (2, 3)] == [("pruned", STEPS[2])] * 2


def test_what_confirms_comes_last_and_is_never_pruned(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(targets=TARGETS[:1], budget_steps=40, evaluation_ratio=1.5, pruning="exact")
    scheduler = TrialScheduler(study, [Trial(0, 0, {}), Trial(1, 0, {})], range(4), {})
    loss = {0: 0.4, 1: 1.0, APART: 1.0, 2 * APART: 1.0}  # the repeats never get where the best trial was at once

    def confirming() -> list[Trial]:
        asked.append({i: ended.reason for i, ended in scheduler.outcomes.items()})
        return [Trial(APART, 0, {}), Trial(2 * APART, 0, {})]

    asked: list[dict[int, str | None]] = []
    for going in scheduler.rounds(confirming):
        for live in going:
            measured = np.float32(loss[live.trial.id])
            scheduler.record(live, {"validation_loss": measured, "validation_error": measured}, True)
        scheduler.prune()
    assert [scheduler.outcomes[i] for i in (APART, 2 * APART)] == [TrialOutcome("COMPLETE", None, 40)] * 2
    searched: dict[int, str | None] = {0: None, 1: "pruned"}
    assert asked == [searched, searched | {APART: None, 2 * APART: None}]  # again once the first have ended


def test_where_trials_go_on_to_their_budget_a_target_ends_none(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(targets=TARGETS[:1], budget_steps=40, evaluation_ratio=1.5, pruning="off", stop="budget")
    scheduler = TrialScheduler(study, [Trial(0, 0, {}), Trial(1, 0, {})], range(2), {})
    reached = np.float32(0.0)
    for going in scheduler.rounds():
        for live in going:
            finite = live.trial.id == 0 or scheduler.stop(live) < 20
            scheduler.record(live, {"validation_loss": reached, "validation_error": reached}, finite)
        scheduler.prune()
    assert scheduler.outcomes[0] == TrialOutcome("COMPLETE", None, 40)
    assert scheduler.outcomes[1].status == "INFEASIBLE", "it diverged after it had reached its target"


def test_giving_up_accounts_for_trials_that_never_started(make_study: Callable[..., BatchStudy]) -> None:
    scheduler = TrialScheduler(make_study(), [Trial(i, 0, {}) for i in range(5)], range(2), {})
    scheduler.next()
    scheduler.give_up("time_limit")
    assert scheduler.next() == []
    assert {(e.status, e.reason) for e in scheduler.outcomes.values()} == {("INCOMPLETE", "time_limit")}
    assert len(scheduler.outcomes) == 5


def test_giving_up_counts_measurements_of_waiting_trials(
    make_study: Callable[..., BatchStudy],
) -> None:
    study = make_study(targets=TARGETS[:1], budget_steps=40, evaluation_ratio=1.5)
    trials = [Trial(i, 0, {}) for i in range(4)]
    scheduler = TrialScheduler(study, trials, range(1), {})
    far = np.float32(1.0)
    scheduler.resume(trials, {i: Saved(step=int(STEPS[i]), evaluations=[{"validation_loss": far}] * i) for i in (2, 3)})
    assert [live.trial.id for live in scheduler.next()] == [2]
    scheduler.give_up("time_limit")
    steps = {0: 0, 1: 0, 2: STEPS[1], 3: STEPS[2]}  # of the last evaluation that each has
    assert scheduler.outcomes == {i: TrialOutcome("INCOMPLETE", "time_limit", steps[i]) for i in range(4)}
    assert scheduler.ended == {0: 2, STEPS[1]: 1, STEPS[2]: 1}
