"""What the trials of a study tell of a target, trial by trial, and their best errors within budgets."""

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.trials import trials
from results import durable, store
from results.catalog import overview
from results.plans.study import Target
from results.rules.answers import Answer

from ...results import by_hand
from ..conftest import ERROR, Ran, plan, publish

EASIER, HARDER = Target("test_error", 0.3), Target("test_error", 0.01)
RAN = {
    0: Ran([(10, 0.5), (20, 0.1)]),
    1: Ran([(10, 0.5), (40, 0.2)]),  # up to the budget
    2: Ran([(10, np.nan)], "INFEASIBLE"),
    3: Ran([(10, 0.25), (20, 0.2)], "INCOMPLETE", "time_limit"),
    4: Ran([], "INCOMPLETE", "time_limit"),  # never began
    5: Ran([(10, 0.05)], "INCOMPLETE", "lost"),
    6: Ran([(10, 0.5)], "INCOMPLETE", "failed"),
}
RATES = {"learning_rate": [0.1 * (i + 1) for i in RAN], "momentum": [0.9] * len(RAN)}


@pytest.fixture
def study(folder):
    made = plan(budget_steps=40, trials=7)
    publish(folder, made, RAN, drawn=RATES)
    return made


def rows(folder, target, **how):
    (found,) = trials.of_commits(store.catalogue(folder), target, **how).values()
    return found


def test_every_trial_with_its_outcome(folder, study):
    found = rows(folder, ERROR)
    assert (found.study, found.target, found.metaparameters) == (study, ERROR, ["learning_rate", "momentum"])
    assert list(found.rows.columns) == [*trials.COLUMNS, "learning_rate", "momentum"]
    told = found.rows.astype({"outcome": str})
    assert told["trial"].tolist() == [*RAN]
    assert told["outcome"].tolist() == ["reached", *["not_reached"] * 2, *["undecided"] * 2, "reached", "undecided"]
    assert told["status"].tolist() == [ran.status for ran in RAN.values()]
    assert [None if reason != reason else reason for reason in told["reason"]] == [ran.reason for ran in RAN.values()]
    assert told["steps"].tolist() == [20, 40, 10, 20, 0, 10, 10]
    assert told["learning_rate"].tolist() == RATES["learning_rate"]
    assert set(told["role"]) == {"search"}
    low, high = trials.bounds(found.rows)
    inf = math.inf
    assert low.tolist() == [10, inf, inf, 20, 0, 0, 10]
    assert high.tolist() == [20, inf, inf, inf, inf, 10, inf]
    assert np.isnan(found.rows["steps_low"]).tolist() == [trial in (1, 2) for trial in RAN]


def test_failed_and_unevaluated_trials_do_not_count(folder, study):
    found = rows(folder, ERROR)
    assert found.rows_in_k["trial"].tolist() == [0, 1, 2, 3]
    assert found.k == 4


def test_trials_that_confirm_the_best_are_there_and_do_not_count(folder):
    study = plan(budget_steps=40, trials=2, confirm=2)
    ran = {
        0: Ran([(10, 0.5), (20, 0.1)]),
        1: Ran([(10, 0.05)]),
        1_000_001: Ran([(10, 0.5), (30, 0.05)]),
        2_000_001: RAN[1],
    }
    publish(folder, study, ran)
    found = rows(folder, ERROR)
    assert found.rows["role"].tolist() == ["search"] * 2 + ["confirm"] * 2
    assert trials.bounds(found.rows)[1].tolist() == [20, 10, 30, math.inf]
    assert (found.rows_in_k["trial"].tolist(), found.k) == ([0, 1], 2)


def test_trial_ended_at_its_target_says_nothing_of_harder_ones(folder, study):
    outcome = rows(folder, HARDER).rows["outcome"].astype(str).tolist()
    assert outcome[:3] == ["undecided", "not_reached", "not_reached"]  # the second used up its budget
    assert trials.bounds(rows(folder, HARDER).rows)[0][0] == 20
    assert rows(folder, EASIER).rows["outcome"].astype(str).tolist()[:4] == [
        *("reached", "reached", "not_reached", "reached")
    ]


def test_nothing_is_known_of_a_metric_that_was_not_measured(folder, study):
    found = rows(folder, Target("test_loss", 1.0))
    assert set(found.rows["outcome"]) == {"undecided"}
    assert found.rows["steps_high"].isna().all()


def test_below_and_at_or_below(folder):
    by_hand.publish(folder, by_hand.study(), {3: by_hand.Ran("COMPLETE", [(5, 0.1)]), 8: by_hand.Ran("COMPLETE", [])})
    target = Target(by_hand.METRIC, 0.1)
    assert rows(folder, target).rows["outcome"].tolist() == ["reached", "not_reached"]
    assert rows(folder, target, strict=True).rows["outcome"].tolist() == ["not_reached"] * 2


def test_published_trial_counts_up_to_its_last_evaluation(folder):
    ran = {1: by_hand.Ran("INCOMPLETE", [(5, 0.5), (9, 0.4)]), 2: by_hand.Ran("INCOMPLETE", [])}
    by_hand.publish(folder, by_hand.study(), ran)
    found = rows(folder, Target(by_hand.METRIC, 0.1))
    assert found.rows_in_k[["trial", "steps_low"]].to_numpy().tolist() == [[1, 9]]


def test_studies_are_found_by_name_wherever_the_store_is(study, folder):
    publish(folder, plan(batch_size=32, budget_steps=40), {0: Ran([(1, 0.05)])})
    commits = store.catalogue(folder)
    assert [*trials.of_commits([one for one in commits if one.name == study.name], ERROR)] == [study.name]
    found = trials.of_commits(commits, ERROR)
    assert [*found] == sorted(store.names(folder))
    assert found[plan(batch_size=32, budget_steps=40).name].k == 1
    elsewhere = durable.location("memory://analysis/trials")
    by_hand.publish(elsewhere, by_hand.study(), {1: by_hand.Ran("COMPLETE", [(5, 0.05)])})
    assert rows(elsewhere, Target(by_hand.METRIC, 0.1)).rows["steps_high"].tolist() == [5]


def test_the_best_of_all_trials_is_the_answer(swept):
    held = overview.survey(swept)
    answers = held.answers(ERROR, held.descriptions)
    assert answers
    for name, of in trials.of_commits(store.catalogue(swept), ERROR).items():
        reached = of.rows[of.rows["outcome"] == trials.REACHED].sort_values(["steps_high", "trial"])
        best = reached.iloc[0] if len(reached) else None
        found = None if best is None else Answer(reached["steps_low"].min(), best["steps_high"], best["trial"])
        assert found == answers.get(name)


def test_a_study_in_which_nothing_ran(folder):
    publish(folder, plan(), {0: Ran([], "INCOMPLETE", "failed")}, metrics=())
    found = rows(folder, ERROR)
    assert (found.k, found.rows["outcome"].tolist()) == (0, ["undecided"])


def commit(folder: Path, **changes: object) -> store.Commit:
    runs = {
        0: Ran([(10, 0.9), (20, 0.5), (40, 0.6)]),
        1: Ran([(10, 0.8), (30, 0.4)]),
        2: Ran([(10, 0.1), (20, np.nan)], "INFEASIBLE"),
    }
    publish(folder, plan(**changes), runs)
    (found,) = store.catalogue(folder)
    return found


def test_the_best_of_the_trials_that_count_within_each_budget(folder: Path) -> None:
    found = trials.best_within(commit(folder), "test_error", {0, 1}, [9, 10, 19, 20, 30, 4096, math.inf])
    assert (found.batch_size, found.trials) == (16, 2)
    np.testing.assert_allclose(found.errors, [np.nan, 0.8, 0.8, 0.5, 0.4, 0.4, 0.4], rtol=1e-6)


def test_what_is_not_a_number_is_never_best(folder: Path) -> None:
    np.testing.assert_allclose(trials.best_within(commit(folder), "test_error", {2}, [10, 20]).errors, 0.1, rtol=1e-6)


def test_beyond_what_was_planned_nothing_is_said(folder: Path) -> None:
    errors = trials.best_within(commit(folder, budget_steps=50), "test_error", {0}, [50, 51]).errors
    np.testing.assert_allclose(errors, [0.5, np.nan], rtol=1e-6)


@pytest.mark.parametrize(("metric", "trial_ids"), [("test_loss", {0}), ("test_error", set())])
def test_nothing_measured_is_not_a_number(folder: Path, metric: str, trial_ids: set[int]) -> None:
    assert np.isnan(trials.best_within(commit(folder), metric, trial_ids, [10]).errors).all()


def test_budgets_are_1_2_5_up_to_the_longest_plan() -> None:
    assert trials.budget_series([30, 120], 4) == [10, 20, 50, 100]
    assert trials.budget_series([], 4) == []
