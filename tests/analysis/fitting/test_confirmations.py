"""What the best trials were chosen for, beside what they took when they were run again, and how much of it was luck."""

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.fitting import confirmations
from analysis.fitting.confirmations import Confirmed
from analysis.trials import trials
from results import store
from results.catalog import point_rows
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.rules.confirmation import APART
from results.storage.commits import read_table
from results.storage.compaction import TABLES, Piece

from ..conftest import ERROR, Ran, plan, publish
from . import selection_bias


def crossing(*steps: float) -> Ran:
    """A trial that is at 0.5 at these steps and at the target at the last of them."""
    return Ran([*((step, 0.5) for step in steps[:-1]), (steps[-1], 0.05)])


NEVER = Ran([(10, 0.5), (4096, 0.5)])
SEARCHED = {0: crossing(10, 20, 40), 1: crossing(10, 20)}


def found(folder: Path, study: BatchStudy, ran: dict[int, Ran], target: Target = ERROR) -> list[Confirmed]:
    publish(folder, study, ran)
    return confirmations.of_commits(store.catalogue(folder), target)


def repeats(*ran: Ran, of: int = 1) -> dict[int, Ran]:
    return {k * APART + of: one for k, one in enumerate(ran, 1)}


def ends(one: Confirmed) -> Sequence[tuple[float, float]]:
    return one.selected, one.least, one.median, one.most


def test_median_and_range_of_the_repeats(folder: Path) -> None:
    again = repeats(crossing(10, 20, 40), crossing(10), crossing(10, 30, 80))
    (one,) = found(folder, plan(trials=2, confirm=3), SEARCHED | again)
    assert (one.batch_size, one.repeats, one.reached) == (16, 3, 3)
    assert ends(one) == ((10, 20), (0, 10), (20, 40), (30, 80))
    assert store.read(folder).trials["role"].tolist() == ["search"] * 2 + ["confirm"] * 3


def test_a_repeat_that_never_reaches_takes_for_ever(folder: Path) -> None:
    (one,) = found(folder, plan(trials=2, confirm=2), SEARCHED | repeats(crossing(10, 20), NEVER))
    assert (one.repeats, one.reached) == (2, 1)
    assert one.most == (math.inf, math.inf)
    assert one.median == (10, math.inf), "between the one and the other"
    assert confirmations.heights([one]) == [10, 10]
    assert one.ratio == math.inf


LATE = Ran([(10, 0.5), (60, 0.5)], "INCOMPLETE", "time_limit")  # it needs more than 60 steps, or for ever


@pytest.mark.parametrize(
    ("third", "count", "median", "most"),
    [
        (LATE, 3, (40, 44), (60, math.inf)),  # left out it would be (20, 44)
        (Ran([(10, 0.5), (42, 0.5)], "INCOMPLETE", "time_limit"), 3, (40, 44), (42, math.inf)),
        (Ran([(10, 0.5)], "INCOMPLETE", "time_limit"), 3, (20, 44), (40, math.inf)),
        (Ran([], "INCOMPLETE", "time_limit"), 3, (20, 44), (40, math.inf)),
        (Ran([(60, 0.5)], "INCOMPLETE", "lost"), 2, (20, 44), (40, 44)),
        (Ran([(60, 0.5)], "INCOMPLETE", "failed"), 2, (20, 44), (40, 44)),
    ],
)
def test_repeat_stopped_by_a_time_limit_needs_more_steps(
    folder: Path, third: Ran, count: int, median: tuple[float, float], most: tuple[float, float]
) -> None:
    again = repeats(crossing(20, 24), crossing(40, 44), third)
    study = plan(trials=2, confirm=3)
    (one,) = found(folder, study, SEARCHED | again)
    assert (one.repeats, one.reached, one.median, one.most) == (count, 2, median, most)
    (commit,) = store.catalogue(folder)
    (row,) = point_rows.of_study(commit, study, Piece(*(read_table(commit, table) for table in TABLES)))
    ends = (row["confirmed_low"], row["confirmed_high"])
    assert (row["repeats"], row["repeats_reached"], *ends) == (count, 2, *median)


ALIKE = {i: crossing(10, 20 + i) for i in range(4)}  # trial 0 is the best of the search, and 3 no candidate
CHOICE = (  # of trials 0, 1 and 2, two repeats each to choose by
    repeats(crossing(50), crossing(70), of=0) | repeats(crossing(40), crossing(44), of=1) | repeats(NEVER, NEVER, of=2)
)


def after(first: int, *ran: Ran, of: int) -> dict[int, Ran]:
    """Repeats of a trial from the first so many on."""
    return {k * APART + of: one for k, one in enumerate(ran, first)}


def test_what_reports_is_of_the_chosen_trial_and_of_other_seeds(folder: Path) -> None:
    reports = after(3, crossing(30, 60), crossing(30, 90), of=1)
    (one,) = found(folder, plan(trials=4, confirm=4, confirm_top=3), ALIKE | CHOICE | reports)
    assert (one.best, one.selected) == (0, (10, 20))
    assert (one.chosen, one.choosing) == (1, (0, 44))
    assert (one.repeats, one.reached, one.least, one.median, one.most) == (2, 2, (30, 60), (30, 90), (30, 90))
    assert one.ratio == 60 / 15


def test_nothing_is_confirmed_before_the_chosen_trial_reports(folder: Path) -> None:
    assert found(folder, plan(trials=4, confirm=4, confirm_top=3), ALIKE | CHOICE) == []


def at_half(*steps: tuple[int, int]) -> list[Ran]:
    """Trials that are at 0.6 and at 0.1 after so many steps."""
    return [Ran([(half, 0.6), (last, 0.05)]) for half, last in steps]


@pytest.mark.parametrize(
    ("value", "half", "chosen"),
    [(0.1, 9, 1), (0.1, 4, 1), (0.6, 9, None), (0.6, 4, 1)],
)
def test_choice_confirms_another_target_only_if_it_is_the_same(
    folder: Path, value: float, half: int, chosen: int | None
) -> None:
    """Trial 1 is chosen for the first target; its repeats are at the second after ``half`` steps, trial 0's after 5."""
    searched = dict(enumerate(at_half((5, 20), (6, 21), (7, 90))))
    choose = repeats(*at_half((5, 60), (5, 60)), of=0) | repeats(*at_half((half, 50), (half, 50)), of=1)
    reports = after(3, *at_half((half, 50), (half, 50)), of=1)
    study = plan(trials=3, confirm=4, confirm_top=2, targets=(ERROR, Target("test_error", 0.6)))
    told = found(folder, study, searched | choose | reports, Target("test_error", value))
    assert [one.chosen for one in told] == [chosen] * (chosen is not None)


def test_answers_have_what_was_confirmed_beside_them(folder: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    reports = after(3, crossing(30, 60), crossing(30, 90), of=1)
    publish(folder, plan(trials=4, confirm=4, confirm_top=3), ALIKE | CHOICE | reports)
    publish(folder, plan(batch_size=32, trials=1, confirm=1), {0: crossing(9), APART: NEVER})
    publish(folder, plan(batch_size=64, trials=1), {0: crossing(9)})
    _, out, _ = cli("steps", "--store", folder, "--csv")
    header, *lines = csv.reader(out.splitlines())
    first = header.index("confirmed_low")
    assert [line[first : first + 5] for line in lines] == [
        *(["30", "90", "1", "2", "2"], ["", "", "0", "1", "0"], ["", "", "", "", ""])
    ]
    _, out, _ = cli("steps", "--store", folder)
    assert "(30, 90]" in out and "0 of 1 reached" in out


def test_what_was_not_confirmed_is_left_out(folder: Path, tmp_path: Path) -> None:
    assert found(folder, plan(trials=2), SEARCHED) == []
    assert found(tmp_path / "missing", plan(trials=2, confirm=2), SEARCHED) == []
    lost = {k: one._replace(status="INCOMPLETE", reason="lost") for k, one in repeats(Ran([(10, 0.5)])).items()}
    assert found(tmp_path / "lost", plan(trials=2, confirm=1), SEARCHED | lost) == []
    unreached = {0: NEVER, 1: NEVER} | repeats(crossing(10), of=0)
    assert found(tmp_path / "unreached", plan(trials=2, confirm=1), unreached) == []


@pytest.mark.parametrize(("value", "confirmed"), [(0.1, True), (0.6, False)])
def test_same_best_trial_confirms_another_target(folder: Path, value: float, confirmed: bool) -> None:
    targets = (ERROR, Target("test_error", 0.6))  # trial 0 is the first at the second
    ran = {0: Ran([(5, 0.55), (40, 0.05)]), 1: Ran([(5, 0.9), (20, 0.05)])}
    again = repeats(Ran([(5, 0.9), (25, 0.05)]))
    study = plan(trials=2, confirm=1, targets=targets)
    assert bool(found(folder, study, ran | again, Target("test_error", value))) is confirmed


def test_repeats_do_not_count_as_trials_of_the_search(folder: Path) -> None:
    publish(folder, plan(trials=2, confirm=1), SEARCHED | repeats(crossing(5)))
    (one,) = trials.of_commits(store.catalogue(folder), ERROR).values()
    assert one.rows["role"].tolist() == ["search", "search", "confirm"]
    assert one.rows["outcome"].tolist() == ["reached"] * 3
    assert one.rows_in_k["trial"].tolist() == [0, 1]
    assert "role" in {column.name for column in schema.TRIALS}


def test_medians_of_repeats_are_points_of_a_curve(folder: Path) -> None:
    for batch_size, again in ((4, crossing(10, 30)), (2, NEVER), (16, crossing(5, 7))):
        publish(folder, plan(batch_size=batch_size, trials=2, confirm=1), SEARCHED | repeats(again))
    points = confirmations.points(confirmations.of_commits(store.catalogue(folder), ERROR))
    assert points.batch_size.tolist() == [4, 16]
    assert list(zip(points.low, points.high, strict=True)) == [(10, 30), (5, 7)]
    assert points.weights.tolist() == [1, 1]
    assert points.trials is None
    left_out = "left out: batch size 2, at which at least half of the repeats never reached the target"
    assert points.notes[1:] == (left_out,)


def test_without_repeats_there_are_no_points() -> None:
    points = confirmations.points([])
    assert not len(points.batch_size)
    assert "no repeats" in points.refusal


@pytest.mark.parametrize("top", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_reruns_of_equal_configurations_are_unbiased(top: int) -> None:
    """The known answer: any configuration is as good as any other, so that what is selected is luck alone."""
    found = selection_bias.simulate(400, seed=1, confirm=6 if top > 1 else 5, top=top)
    bias = selection_bias.bias(found)
    assert bias["confirmed"] == pytest.approx(1, abs=0.02)
    assert bias["selected"] < 0.8
    assert {one.repeats for one in found} == {3 if top > 1 else 5}
    if top > 1:
        assert bias["median that chose"] < 0.95
        assert np.mean([one.chosen == one.best for one in found]) == pytest.approx(1 / top, abs=0.08)
