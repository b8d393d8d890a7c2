"""Parts of the page: markup, marks, axes, and words that results are put into."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.cores import measured_factorizations
from analysis.fitting import assumptions, fits
from analysis.fitting.extents import Extent
from analysis.fitting.shapes import Check
from analysis.plotting import ticks
from analysis.report import charts, core_charts, curves_html, ledger_html, steps_charts, workload_rows
from analysis.report.markup import Html, join, number, row, table, tag


def test_text_is_escaped_once_and_markup_is_not() -> None:
    made = tag("p", "a < b & c", tag("b", '"d"'), class_="x y", data_group="<1>", hidden="", title=None)
    assert made == '<p class="x y" data-group="&lt;1&gt;" hidden="">a &lt; b &amp; c<b>&quot;d&quot;</b></p>'
    assert join(["<", Html("<i></i>")]) == "&lt;<i></i>"
    assert tag("input", name="q") == '<input name="q">'


def test_cells_know_what_they_are_sorted_by() -> None:
    assert number(1234)[:2] == ("1,234", 1234)
    assert number(None)[:2] == ("", "")
    made = table("Steps", ["name", "steps#"], [row(["a", number(1000)], data_groups="3")])
    assert '<td class="number" data-value="1000">1,000</td>' in made
    assert '<tr data-groups="3">' in made
    assert '<th scope="col" class="number"><button type="button">steps</button></th>' in made


def test_every_doubt_is_in_words_and_explained_once(swept: Path) -> None:
    assert list(curves_html.DOUBTS) == list(assumptions.FINDINGS) == list(assumptions.ASSUMPTIONS)
    (_, points_fit), *_ = workload_rows.answers(workload_rows.read_goals(swept)[0])
    for name, words in curves_html.DOUBTS.items():
        doubted = points_fit._replace(checks=(Check(name, "learning_rate", "doubt"), Check("knee", "1", "cannot tell")))
        shown = curves_html._answer(doubted, (1, 1024)).shown
        assert f"in doubt: {words}<" in shown
        of_search = name in fits.OF_SEARCH
        assert (', in doubt</b><div class="extent in_doubt"' in shown) == of_search
        assert shown.count('class="verdict') == 1
        assert (' in_doubt">' in shown.partition("</b>")[0]) == of_search, "the colour of pays up to"
        assert re.search(r'<small class="in_doubt">if a hyperbola, .*, in doubt\)</small>', shown)
        legend = curves_html._legend([doubted, points_fit, doubted])
        assert legend.count(f"<dt>{words}</dt><dd>{assumptions.FINDINGS[name]}</dd>") == legend.count("<dt>") == 1
        (listed,) = curves_html._checks(doubted.checks)
        assert "Assumptions of the fit: 1 in doubt, 1 undecided" in listed
        assert f"<b> in doubt </b>{name}: {assumptions.ASSUMPTIONS[name]} (learning rate)" in listed
    certain = points_fit._replace(checks=())
    assert curves_html._legend([certain]) == ""
    assert "doubt" not in curves_html._answer(certain, (1, 1024)).shown


def test_charts_show_doubts(swept: Path) -> None:
    goal = workload_rows.read_goals(swept)[0]
    assert goal.fitted and goal.fitted.selected.extents
    pays = Extent(100.0, 60.0, 200.0, "identified")
    for name, of_pays, of_knee in (("", False, False), ("slope", False, True), ("space", True, True)):
        checks = (Check(name, "seen", "doubt"),) if name else ()
        extents = goal.fitted.selected.extents._replace(pays=pays)
        fit = goal.fitted.selected._replace(verdict="identified", extents=extents, checks=checks)
        (made,) = steps_charts.steps_charts([(0, goal._replace(fitted=goal.fitted._replace(selected=fit)))])
        (chart,) = made.charts.values()
        (ring,), (bar,), (knee,) = chart["several"]["rings"], chart["focused"]["pays"], chart["focused"]["knees"]
        assert ("doubt" in ring, "doubt" in bar, "open" in knee) == (of_pays, of_pays, of_knee)
        assert (ring["x"], bar["x"], bar["x2"]) == (100, 60, 200)


@pytest.mark.parametrize("packages", ["no JSON", "[1, 2]", "7", "[" * 100_000])
def test_versions_of_packages_that_are_not_told_are_left_out(packages: str) -> None:
    run = {"package_versions": packages, "python_version": "3.11"}
    assert ledger_html._software(run) == "Python 3.11"
    assert ledger_html._software(run | {"package_versions": '{"jax": "0.10"}'}) == "Python 3.11, jax 0.10"


def test_thirty_series_look_different() -> None:
    made = charts.assign_marks(f"series {i}" for i in range(30))
    assert len(set(made.values())) == 30
    assert len({mark.color for mark in list(made.values())[:9]}) == 9
    assert len({mark.shape for mark in list(made.values())[:9]}) == 9


@pytest.mark.parametrize(
    ("ends", "first", "last", "form"),
    [((0.7, 1500.0), 1, 1024, ",d"), ((0.2, 3.0), 0.25, 2, ",.3~r"), ((1.0, 2.0**40), 1, 2**40, ".3~s")],
)
def test_ticks_are_powers_of_two_within_the_ends(
    ends: tuple[float, float], first: float, last: float, form: str
) -> None:
    made = charts.axis("steps", ends)
    assert (made["values"][0], made["values"][-1], made["format"]) == (first, last, form)
    assert len(made["values"]) <= charts.MOST_TICKS


def test_an_axis_has_room_and_a_flat_curve_looks_flat() -> None:
    assert ticks.limits([2, 1024], 1, 1) == (1, 2048)
    low, high = ticks.limits([100, 100], 0.5, 0.5)
    assert math.log2(high / low) == pytest.approx(3)
    assert math.sqrt(low * high) == pytest.approx(100)


def test_every_layer_of_every_chart_has_named_data() -> None:
    looks = charts.assign_marks(["a", "b"])
    made = [
        charts.steps(looks, (1, 8), (1, 8), "examples"),
        charts.cores(looks, (1, 8), (1, 8)),
        charts.courses(looks, "epoch", log=True),
        charts.costs(looks, "measured step, ms", 0.5),
        charts.plane("α", "λ", (True, False), "Recall@20, test"),
    ]
    for spec in made:
        assert all(set(layer["data"]) == {"name"} for layer in spec["layer"])
        assert [layer["name"] for layer in spec["layer"]].count(charts.POINTS) == 1
        assert len({layer["name"] for layer in spec["layer"]}) == len(spec["layer"])
        assert [layer["name"] for layer in spec["layer"] if layer["mark"]["aria"]] == [charts.POINTS]
    assert charts.steps(looks, (1, 8), (1, 8), "examples", 500)["height"] == 500


def test_the_extent_of_pays_up_to_is_in_octaves(swept: Path) -> None:
    found = {goal.series: goal for goal in workload_rows.read_goals(swept)}
    for name, goal in found.items():
        assert goal.fitted and goal.fitted.selected.extents, name
        pays = goal.fitted.selected.extents.pays
        shares = workload_rows.extent(goal.fitted.selected, (1, 1024))
        assert shares is not None
        low, middle, high = shares
        assert round(1024**low, 6) == round(pays.low, 6)
        assert middle is not None and round(1024**middle, 6) == round(pays.best, 6)
        assert high == 1 if math.isnan(pays.high) else round(1024**high, 6) == round(pays.high, 6)
        assert 0 < low < middle < high
    line = found["sgd"].fitted
    assert line is not None and workload_rows.extent(line.selected, (4, 32)) is not None
    assert workload_rows.extent(line.selected._replace(extents=None), (1, 1024)) is None
    assert workload_rows.answers(found["sgd"]._replace(fitted=None)) == []


def test_factorizations_on_one_core_count_say_so(put: Any, folder: Path) -> None:
    put({"seconds": 0.25}, cores=1)
    told = core_charts.notes(measured_factorizations.load(folder))
    assert told == ["No factorization was timed on two numbers of real cores, so scaling over cores is not measured."]
    put({"seconds": 0.125}, cores=2)
    assert core_charts.notes(measured_factorizations.load(folder)) == []
    put({"emulated": True}, cores=8)
    (told_emulated,) = core_charts.notes(measured_factorizations.load(folder))
    assert told_emulated.startswith("Cores are emulated, so seconds do not measure speed: ")


def test_three_numbers_of_cores_have_a_law(put: Any, folder: Path) -> None:
    for count in (1, 2, 4):
        put({"seconds": 0.5 / count, "physical_cores": 4}, cores=count)
    (figure, *_) = core_charts.core_charts(measured_factorizations.load(folder))
    assert [point["x"] for point in figure.chart["always"]["points"]] == [1, 2, 4]
    assert len(figure.chart["always"]["fits"]) == 41
    assert "less than half of the cores' time is lost up to 4" in figure.conclusions[0]


def test_a_trial_that_diverged_is_a_cross_without_recall(put: Any, folder: Path) -> None:
    put({"diverged": (1,)}, trials=4)
    (figure,) = core_charts.core_charts(measured_factorizations.load(folder))
    points = figure.chart["always"]["points"]
    assert [("recall" in point, point.get("diverged")) for point in points] == [
        (True, None),
        (False, 1),
        (True, None),
        (True, None),
    ]
    assert sum(point["best"] for point in points) == 1
    assert "diverged" in points[1]["label"]
