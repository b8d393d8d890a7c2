import importlib.metadata
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy, evaluation_steps
from results.plans.kinds import from_plan
from results.plans.search_space import Range, SearchSpace
from results.plans.study import COMPARABLE, METRIC_KINDS, SHARES, Target
from results.plans.trial_request import TrialRequest


def test_identity_ignores_the_number_of_trials_and_nothing_else(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    assert make_study(trials=99).name == study.name
    changes = [
        {"batch_size": 32},
        {"seed": 1},
        {"targets": (Target("validation_loss", 0.5),)},
        {"budget_steps": 151},
        {"model_options": {"widths": [17]}},
        {"pruning": "exact"},
        {"schedule": "linear"},
        {"space": SearchSpace({"learning_rate": Range("LOG", 1e-2, 1.0)})},
    ]
    assert len({make_study(**change).name for change in changes} | {study.name}) == len(changes) + 1


def test_a_name_may_have_fewer_digits_and_nothing_else_changes(make_study: Callable[..., BatchStudy]) -> None:
    study, older = make_study(), make_study(digits=8)
    assert study.name.startswith(older.name) and len(study.name) == len(older.name) + 8
    assert (study.plan(), study.stream) == (older.plan(), older.stream)
    for each in (study, older):
        assert from_plan(json.loads(each.plan_json), each.trials, name=each.name) == each
    assert from_plan(study.plan(), study.trials) == study


def test_pruning_does_not_change_what_is_drawn(make_study: Callable[..., BatchStudy]) -> None:
    assert make_study(pruning="exact").stream == make_study().stream
    assert make_study(seed=1).stream != make_study().stream


def test_a_plan_survives_json(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(space=SearchSpace({"learning_rate": Range("DISCRETE", values=(1.0, 2.0))}))
    again = from_plan(json.loads(study.plan_json), study.trials)
    assert again == study
    assert again.name == study.name


def test_a_plan_of_other_software_is_refused(make_study: Callable[..., BatchStudy]) -> None:
    plan = make_study().plan()
    for other in ({**plan, "kind": "cores"}, {**plan, "flavour": 1}, {k: v for k, v in plan.items() if k != "seed"}):
        with pytest.raises(BadInput, match=r"kind=cores|flavour|seed"):
            BatchStudy.from_plan(other, TrialRequest(1))


def test_impossible_targets_are_refused() -> None:
    for metric, value in (("validation_error", 0), ("test_error", 1), ("validation_loss", 7), ("test_r2_error", 1.5)):
        Target(metric, value).check_possible("here")
    for metric, value in (("validation_error", -1e-9), ("train_loss", -1), ("test_squared_error", -2)):
        with pytest.raises(
            BadInput, match=f"^here: {metric} is never below 0, so .* cannot be reached. Use 0 or more.$"
        ):
            Target(metric, value).check_possible("here")
    with pytest.raises(BadInput, match=r"^here: validation_recall_20_error is never above 1, so 20 is not a target. "):
        Target("validation_recall_20_error", 20).check_possible("here")


def test_every_share_is_a_kind_of_metric() -> None:
    assert set(SHARES) <= METRIC_KINDS.keys()


def test_a_target_is_compared_in_the_type_of_the_column() -> None:
    target = Target("validation_error", 0.12)
    assert float(np.float32(0.12)) != 0.12
    assert target.reached(np.float32([0.12, 0.13, np.nan])).tolist() == [True, False, False]
    assert target.reached(np.float64([0.12, np.nextafter(0.12, 1)])).tolist() == [True, False]


def test_infinite_measurements_reach_no_target() -> None:
    assert Target("validation_loss", 1e39).reached(np.float32([3e38, np.inf])).tolist() == [True, False]


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_a_number_of_400_digits_is_one_line(number: int) -> None:
    with pytest.raises(BadInput, match="target on train_loss must be a finite number, not one with more"):
        Target("train_loss", number)
    for fields in ({"scale": "LINEAR", "low": -1, "high": number}, {"scale": "DISCRETE", "values": (number,)}):
        with pytest.raises(BadInput, match="must be a finite number"):
            Range(**fields)  # type: ignore[arg-type]


@given(
    low=st.floats(1e-6, 0.4),
    width=st.floats(0, 0.5),
    scale=st.sampled_from(["LINEAR", "LOG", "REVERSE_LOG"]),
    u=st.floats(0, 1, exclude_max=True),
    v=st.floats(0, 1, exclude_max=True),
)
def test_ranges_are_monotone_and_stay_inside(low: float, width: float, scale: str, u: float, v: float) -> None:
    ranged = Range(scale, low, low + width)  # type: ignore[arg-type]
    at_u, at_v = ranged.at(min(u, v)), ranged.at(max(u, v))
    assert low <= at_u <= low + width
    assert at_u <= at_v + 1e-12


def test_scales_are_uniform_in_what_they_say() -> None:
    assert Range("LOG", 1e-4, 1e2).at(0.5) == pytest.approx(1e-1)
    assert Range("REVERSE_LOG", 0.9, 0.9999).at(0.5) == pytest.approx(1 - 10**-2.5)
    assert Range("LINEAR", -1, 3).at(0.25) == pytest.approx(0)
    counted = np.unique([Range("INTEGER", 3, 6).at(u) for u in np.arange(0, 1, 0.01)], return_counts=True)
    assert counted[0].tolist() == [3, 4, 5, 6]
    assert counted[1].tolist() == [25, 25, 25, 25]
    assert [Range("DISCRETE", values=(5.0, 1.0)).at(u) for u in (0.49, 0.5)] == [5.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": "LOG", "low": 1.0, "high": 0.1}, "Swap"),
        ({"scale": "LOG", "low": 0.0, "high": 0.1}, "positive"),
        ({"scale": "REVERSE_LOG", "low": 0.0, "high": 1.0}, "below 1"),
        ({"scale": "LGO", "low": 0.1, "high": 1.0}, "'LOG'"),
        ({"scale": "LINEAR", "low": 0.1}, "both low and high"),
        ({"scale": "LINEAR", "low": "abc", "high": 1.0}, "'abc'"),
        ({"scale": "LINEAR", "low": math.nan, "high": 1.0}, "finite"),
        ({"scale": "DISCRETE", "values": ()}, "non-empty"),
        ({"scale": "INTEGER", "low": 0.5, "high": 3.0}, "integers"),
    ],
)
def test_impossible_ranges_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Range(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"budget_steps": 10**400}, "budget_steps must be at most 2147483647, not 1000000000"),
        ({"trials": 0}, "trials"),
        ({"schedule": "cosin"}, "'cosine'"),
        ({"pruning": "on"}, "pruning"),
        ({"evaluation_ratio": 1.0}, "evaluation_ratio"),
        ({"pruning": "exact", "targets": ()}, "pruning=off"),
        ({"targets": (Target("validation_loss", 0.5),) * 2}, "twice"),
    ],
)
def test_impossible_studies_are_refused(make_study: Callable[..., BatchStudy], change: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_study(**change)


@given(budget=st.integers(1, 10_000), ratio=st.floats(1.01, 2), spacing=st.floats(0, 100))
def test_evaluations_keep_their_spacing(budget: int, ratio: float, spacing: float) -> None:
    steps = evaluation_steps(budget, ratio, spacing)
    assert steps[-1] == budget
    assert np.all(np.diff(steps) > 0)
    assert np.all(steps[:-1] >= spacing * np.arange(1, len(steps)))


@given(
    budget=st.integers(1, 2**31 - 1), ratio=st.floats(1, 2, exclude_min=True), spacing=st.sampled_from([0.0, 0.3, 40.0])
)
def test_most_evaluations_bounds_the_counted_evaluations(
    make_study: Callable[..., BatchStudy], budget: int, ratio: float, spacing: float
) -> None:
    study = make_study(budget_steps=budget, evaluation_ratio=ratio, evaluation_spacing=spacing)
    assert study.most_evaluations <= budget + 2
    if study.most_evaluations < 10_000:
        assert len(study.evaluations) <= study.most_evaluations


@given(budget=st.integers(1, 100_000), ratio=st.floats(1.01, 2))
def test_evaluations_grow_by_the_stated_ratio(budget: int, ratio: float) -> None:
    steps = evaluation_steps(budget, ratio)
    assert steps[0] == 1
    assert steps[-1] == budget
    before, after = steps[:-1].astype(float), steps[1:].astype(float)
    assert np.all(after > before)
    assert np.all(after < np.maximum(before * ratio, before) + 1)


def test_plans_are_comparable_with_those_of_their_release() -> None:
    assert importlib.metadata.version("scaling-limits").rsplit(".", 1)[0] == COMPARABLE
