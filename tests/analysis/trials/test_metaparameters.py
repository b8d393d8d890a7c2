"""Metaparameters of trials: groups by one of them, and whether the best crowd at an end of its range."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from analysis.trials import edges, metaparameters
from analysis.trials.trials import COLUMNS, StudyTrials
from results.bad_input import BadInput
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target

from ..conftest import plan

RANGES = {
    "LINEAR": Range("LINEAR", -1, 3),
    "LOG": Range("LOG", 1e-4, 1.0),
    "REVERSE_LOG": Range("REVERSE_LOG", 0.9, 0.9999),
    "INTEGER": Range("INTEGER", 1, 40),
    "DISCRETE": Range("DISCRETE", values=(0.1, 0.0, 0.01)),
}
SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-3, 10.0), "momentum": Range("REVERSE_LOG", 0.0, 0.99)})


@pytest.mark.parametrize(
    ("scale", "values", "places"),
    [
        ("LINEAR", [-1, 0, 3, 9], [0, 0.25, 1, 1]),  # 9 is beyond the range
        ("LOG", [1e-4, 1e-3, 1.0], [0, 0.25, 1]),
        ("REVERSE_LOG", [0.9, 0.99, 0.999, 0.9999], [0, 1 / 3, 2 / 3, 1]),
        ("INTEGER", [1, 20, 40], [0.5 / 40, 19.5 / 40, 39.5 / 40]),
        ("DISCRETE", [0.0, 0.01, 0.1], [1 / 6, 3 / 6, 5 / 6]),
    ],
)
def test_positions_by_hand(scale, values, places):
    assert edges.positions(RANGES[scale], values) == pytest.approx(places)


@pytest.mark.parametrize("scale", ["LINEAR", "LOG", "REVERSE_LOG", "INTEGER"])
def test_positions_are_the_way_back_from_drawing(scale):
    u = (np.arange(480) + 0.5) / 480
    drawn = [RANGES[scale].at(each) for each in u]
    assert np.abs(edges.positions(RANGES[scale], drawn) - u).max() <= (0.5 / 40 if scale == "INTEGER" else 1e-9)


@pytest.mark.parametrize(("scale", "end"), [("LINEAR", 3), ("LOG", 1), ("REVERSE_LOG", 0.9999), ("INTEGER", 40)])
def test_a_cost_that_falls_up_to_an_end_is_seen_at_it(scale, end):
    u = np.random.default_rng(0).random(60)
    space = SearchSpace({"x": RANGES[scale]})
    values = {"x": np.array([RANGES[scale].at(each) for each in u])}
    assert edges.find_edges(values, np.ceil(1000 * (2 - u)), space) == [edges.Edge("x", "high", end, True)]
    (low,) = edges.find_edges(values, np.ceil(1000 * (1 + u)), space) or []
    assert (low.side, low.shown, str(low)) == ("low", True, "x low")


def test_last_of_three_discrete_values_may_be_an_edge():
    values = np.tile([0.0, 0.01, 0.1], 30)
    steps = np.where(values == 0.1, 100.0, 200.0)
    found = edges.find_edges({"x": values}, steps, SearchSpace({"x": RANGES["DISCRETE"]}))
    assert found == [edges.Edge("x", "high", 0.1, True)]  # nine of nine best, and a third of all are there
    assert (
        edges.find_edges({"x": values}, np.where(values == 0.01, 100.0, 200.0), SearchSpace({"x": RANGES["DISCRETE"]}))
        == []
    )
    two = SearchSpace({"x": Range("DISCRETE", values=(0.0, 0.1))})
    assert edges.find_edges({"x": values}, steps, two) is None


@pytest.mark.parametrize(
    ("name", "ranged", "side", "named"),
    [
        ("momentum", Range("REVERSE_LOG", 0.0, 0.99), "low", False),  # none at all; nobody could take less
        ("momentum", Range("REVERSE_LOG", 0.5, 0.99), "low", True),
        ("momentum", Range("REVERSE_LOG", 0.0, 0.99), "high", True),
        ("label_smoothing", Range("LINEAR", 0.0, 0.2), "low", False),
        ("decay_fraction", Range("LINEAR", 0.2, 1.0), "high", False),  # the whole budget
        ("learning_rate", Range("LOG", 1e-3, 1.0), "high", True),
    ],
)
def test_an_end_that_no_range_could_go_beyond_is_none(name, ranged, side, named):
    u = np.random.default_rng(0).random(60)
    values = {name: np.array([ranged.at(each) for each in u])}
    steps = np.ceil(1000 * (1 + u if side == "low" else 2 - u))
    found = edges.find_edges(values, steps, SearchSpace({name: ranged}))
    assert [edge.side for edge in found or []] == ([side] if named else [])


def test_what_cannot_be_told():
    u = np.linspace(0.01, 0.99, 40)
    values = {name: np.array([ranged.at(each) for each in u]) for name, ranged in SPACE.items()}
    steps = np.full(40, math.inf)
    assert edges.find_edges(values, steps, SPACE) is None  # none reached
    steps[:2] = 10
    assert edges.find_edges(values, steps, SPACE) is None  # two did
    assert edges.find_edges(values, np.full(40, 10.0), SearchSpace({})) is None  # the ranges are not known
    assert edges.find_edges({}, np.full(40, 10.0), SPACE) is None  # or the values are not
    fixed = SearchSpace({"learning_rate": Range("LOG", 0.1, 0.1)})
    assert edges.find_edges({"learning_rate": np.full(40, 0.1)}, np.full(40, 10.0), fixed) is None
    middle = {name: np.array([ranged.at(0.5)] * 20) for name, ranged in SPACE.items()}
    assert edges.find_edges(middle, np.full(20, 10.0), SPACE) is None  # 20 trials are too few to say no
    assert edges.find_edges({name: np.tile(v, 2) for name, v in middle.items()}, np.full(40, 10.0), SPACE) == []


def verdicts(trials: int, optimum: tuple[float, float], slope: float = 8.0, noise: float = 0.2) -> Counter[str]:
    """What is said of 300 searches whose steps grow with the squared distance from an optimum; far off, trials fail."""
    rng, said = np.random.default_rng(trials), Counter[str]()
    for _ in range(300):
        u = rng.random((2, trials))
        values = {name: np.array([SPACE[name].at(each) for each in u[i]]) for i, name in enumerate(SPACE)}
        distance = (u[0] - optimum[0]) ** 2 + (u[1] - optimum[1]) ** 2
        steps = np.ceil(np.exp(6 + slope * distance + rng.normal(0, noise, trials)))
        steps[distance > 0.5] = math.inf
        found = edges.find_edges(values, steps, SPACE)
        said["unclear" if found is None else "; ".join(map(str, found)) or "no"] += 1
    return said


@pytest.mark.parametrize("trials", [32, 100, 300])
def test_an_optimum_inside_is_at_no_edge(trials):
    assert verdicts(trials, (0.5, 0.5))["no"] >= 295


@pytest.mark.parametrize("trials", [32, 100, 300])
def test_irrelevant_metaparameters_are_seldom_at_an_edge(trials):
    said = verdicts(trials, (0.5, 0.5), slope=0.0, noise=1.0)
    assert said["no"] >= 255  # 270 are meant, and three standard errors are 16
    assert sum(n for edge, n in said.items() if edge not in ("no", "unclear") and "?" not in edge) <= 15


@pytest.mark.parametrize(("trials", "missed", "shown"), [(32, 30, 60), (100, 15, 180), (300, 6, 240)])
def test_an_optimum_beyond_an_end_is_seen_there(trials, missed, shown):
    said = verdicts(trials, (1.2, 0.5))
    assert said["no"] <= missed
    assert said["learning_rate high"] >= shown


def test_an_optimum_well_off_the_end_is_not_shown_to_be_there():
    said = verdicts(300, (0.75, 0.5))
    assert said["learning_rate high"] <= 3
    assert verdicts(300, (0.6, 0.5))["no"] >= 290


def study(**drawn: list[float]) -> StudyTrials:
    count = len(next(iter(drawn.values())))
    rows = pd.DataFrame({name: [0] * count for name in COLUMNS} | drawn)
    return StudyTrials(plan(), Target("test_error", 0.1), rows)


def test_few_values_are_a_group_each_and_none_counts_as_zero() -> None:
    found = [study(label_smoothing=[0.1, 0.0, np.nan]), study(learning_rate=[1.0])]
    groups = metaparameters.split(found, "label_smoothing")
    assert [group.label for group in groups] == ["label smoothing = 0", "label smoothing = 0.1"]
    assert groups[0].kept(found[0].rows).tolist() == [False, True, True]
    assert groups[0].kept(found[1].rows).tolist() == [True]


def test_many_values_are_thirds_that_share_no_trial() -> None:
    rng = np.random.default_rng(0)
    one = study(momentum=list(rng.random(90)))
    kept = np.array([group.kept(one.rows) for group in metaparameters.split([one], "momentum")])
    assert kept.sum(axis=0).tolist() == [1] * 90
    assert kept.sum(axis=1).tolist() == [30] * 3


def test_what_trials_are_split_by_unless_asked() -> None:
    assert (
        metaparameters.default_split([study(learning_rate=[1, 2], momentum=[1, 2], label_smoothing=[0, 1])])
        == "label_smoothing"
    )
    assert (
        metaparameters.default_split([study(learning_rate=[1, 2], momentum=[1, 2], label_smoothing=[0, 0])])
        == "momentum"
    )
    assert metaparameters.default_split([study(learning_rate=[1, 2])]) == "learning_rate"
    with pytest.raises(BadInput, match="no metaparameter differs"):
        metaparameters.default_split([study(learning_rate=[1, 1])])
