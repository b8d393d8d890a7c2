"""Best errors within budgets, on measurements that can be read off by eye."""

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.trials import trials
from results import store

from ..conftest import Ran, plan, publish


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
