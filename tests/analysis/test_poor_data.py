"""Data that hold no answer: fit, payoff, suggest, the page, pictures and releases all report it as unknown."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import next_runs, release_points
from analysis.columns import FITS, PAYOFF
from analysis.fitting import curve_fits, fit_tables, fits, points_file
from analysis.fitting.extents import UNKNOWN
from analysis.payoff import answer_tables, answers, subjects
from analysis.plotting import verdict_marks
from analysis.report import workload_rows
from results import store
from sweeps.__main__ import _reached

from .conftest import Ran, plan, publish

Cli = Callable[..., tuple[int, str, str]]
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
EXAMPLES = 400_000


def first(size: int, at: float = 1.0) -> list[tuple[float, float]]:
    """One row per run, at which the target is met."""
    return [(int(at * EXAMPLES // size), 0.05)]


def fine(size: int, at: float = 1.0) -> list[tuple[float, float]]:
    """Evaluations 10 % apart, on a curve with a knee at 256."""
    need = round(at * 1000 * (1 + 256 / size))
    return [(round(0.9 * need), 0.5), (need, 0.05)]


def coarse(size: int, at: float = 1.0) -> list[tuple[float, float]]:
    """A first evaluation long before the one at which the target is met."""
    (row,) = first(size, at)
    return [(max(1, int(row[0]) // 6), 0.5), row]


POOR: Mapping[str, list[tuple[int, int, Callable[..., list[tuple[float, float]]]]]] = {
    "all at the first evaluation": [(size, 3, first) for size in SIZES],
    "one loss per run, more runs at small sizes": [(size, 12 if size < 200 else 11, first) for size in SIZES],
    "evaluations far apart": [(size, 3, coarse) for size in SIZES],
    "two batch sizes": [(size, 3, fine) for size in SIZES[:2]],
    "four usable batch sizes": [(size, 3, fine if size < 200 else first) for size in SIZES],
    "some later trials at the first evaluation": [(SIZES[0], 3, fine), *((size, 6, first) for size in SIZES[1:])],
    "never reached": [(size, 3, lambda size, at: [(EXAMPLES // size, 0.5)]) for size in SIZES],
    "met at the start": [(size, 3, lambda size, at: [(0, 0.05)]) for size in SIZES],
}


QUICK = ("one loss per run, more runs at small sizes", "evaluations far apart", "four usable batch sizes")


@pytest.fixture(params=[pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in POOR])
def poor(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with trials that hold no answer."""
    for size, trials, rows in POOR[request.param]:
        ran = {i: Ran(rows(size, 1 + i / 50)) for i in range(trials)}
        rates = {"learning_rate": [0.1 * 1.1**i for i in range(trials)]}
        publish(tmp_path / "store", plan(batch_size=size, budget_steps=10**6, trials=trials), ran, drawn=rates)
    return tmp_path / "store"


def test_every_answer_from_poor_data_is_unknown(poor: Path, cli: Cli) -> None:
    (curve,) = curve_fits.of_store(poor)
    selected = curve.selected
    assert (selected.fit, selected.extents, selected.verdict) == (None, None, "not_identified") and selected.reason
    assert selected.extents_in_words == ("unknown", "unknown") and selected.pays_in_words == "unknown"
    assert fits.narrowed(selected.points) is None
    assert verdict_marks.label_fits(selected, None)[0].pays == UNKNOWN
    for nothing in (False, True):
        of_fit = fit_tables.table(*curve_fits.rows([curve]), assume_nothing=nothing)
        of_payoff = answer_tables.table(answers.answers(subjects.of_curves([curve]), assume_nothing=nothing))
        for table, verdict in ((of_fit, "pays_verdict"), (of_payoff, "batch_verdict")):
            assert set(table[[verdict, "efficient_verdict"]].iloc[0]) == {"not_identified"}
        names = [name for name in PAYOFF if name.startswith(("batch_size", "efficient_batch_size"))]
        assert of_payoff[names].isna().all(axis=None) and of_payoff["reason"][0]
        assert (
            of_fit[["pays_up_to", "pays_up_to_low", "pays_up_to_high", "critical_batch_size_low"]].isna().all(axis=None)
        )
    (found,) = next_runs.of_store(poor)
    assert (found.pays, found.best) == (UNKNOWN, ()) and found.reason == selected.reason
    (goal,) = workload_rows.read_goals(poor)
    assert workload_rows.pays(goal) in ("unknown", "") and workload_rows.extent(selected, (1, 4096)) is None
    released = release_points.table(store.catalogue(poor))
    assert set(released["pays_verdict"].to_pylist()) == {"not_identified"}
    assert released["pays_low"].null_count == released["critical_low"].null_count == len(released)
    # The same steps from a file.
    file = poor.parent / "points.csv"
    file.write_text(cli("steps", "--store", poor, "--csv")[1])
    row = pd.read_csv(io.StringIO(cli("payoff", "--points", file, "--csv")[1])).iloc[0]
    assert (row["batch_verdict"], row["efficient_verdict"]) == ("not_identified", "not_identified")


@pytest.mark.parametrize("extra", [0, 1])
def test_more_trials_keep_a_point_inside_its_interval(tmp_path: Path, extra: int) -> None:
    """Trials that meet the target between the same two evaluations leave the point where it is."""
    for size in SIZES[:6]:
        trials = 8 + extra * (size < 100)
        ran = {i: Ran([(10_000 // size, 0.5), (30_000 // size, 0.05)]) for i in range(trials)}
        publish(tmp_path, plan(batch_size=size, budget_steps=10**6, trials=trials), ran)
    (curve,) = curve_fits.of_store(tmp_path)
    data = fits.data_of(curve.selected.points)
    assert data is not None and bool((data.share < 1).any()) == bool(extra)
    np.testing.assert_allclose(data.low, curve.selected.points.low, rtol=1e-9)
    np.testing.assert_allclose(data.high, curve.selected.points.high, rtol=1e-9)


def test_a_bound_of_a_later_trial_makes_a_point_unusable(tmp_path: Path) -> None:
    for size in SIZES[:5]:
        rows = {i: Ran(fine(size)) for i in range(3)}
        if size == SIZES[2]:
            rows[3] = Ran([(500, 0.05)])  # met at its first evaluation, so the best of any three is unknown
        publish(tmp_path, plan(batch_size=size, budget_steps=10**6, trials=len(rows)), rows)
    (curve,) = curve_fits.of_store(tmp_path)
    assert curve.selected.points.only_bounded.tolist() == [size == SIZES[2] for size in SIZES[:5]]
    assert curve.selected.extents is None and "only 4 usable" in curve.selected.reason


def test_only_usable_batch_sizes_count() -> None:
    """Bounds beside five exact steps change nothing, whatever they are."""
    exact = np.array([16.0, 32, 64, 128, 256]), np.array([1000 * (1 + 64 / size) for size in (16, 32, 64, 128, 256)])
    alone = points_file.of_steps(pd.Series(exact[0]), pd.Series(exact[1]))
    for high in (10.0, 1e6):
        sizes, steps = np.append(exact[0], [2.0, 1024.0]), np.append(exact[1], [high, high])
        low = np.append(exact[1], [0.0, 1.0])
        both = points_file.of_steps(pd.Series(sizes), pd.Series(steps), pd.Series(low))
        np.testing.assert_equal(both.extents, alone.extents)
        assert both.fit and alone.fit and both.fit.critical_batch_size == alone.fit.critical_batch_size
        assert "at batch size 2, which is only a bound" in both.reason
        assert "a factor of 4 apart at batch size 1,024, which is only a bound" in both.reason


def test_a_lower_end_beside_steps_counts(tmp_path: Path, cli: Cli) -> None:
    def fit(header: str, row: str) -> pd.Series:
        sizes = [16 << k for k in range(7)]
        rows = [row.format(size, 200 + 102_400 // size, 150 + 76_800 // size) for size in sizes]
        (tmp_path / "points.csv").write_text("\n".join([header, *rows]) + "\n")
        return pd.read_csv(io.StringIO(cli("fit", "--points", tmp_path / "points.csv", "--csv")[1])).iloc[0]

    exact, low = fit("batch_size,steps", "{0},{1}"), fit("batch_size,steps_low,steps", "{0},{2},{1}")
    assert low["pays_up_to_low"] < exact["pays_up_to_low"] and low["pays_verdict"] == "at_least"
    both = fit("batch_size,steps_low,steps_high", "{0},{2},{1}")
    pd.testing.assert_series_equal(low, both)
    assert fit("batch_size,steps_low,steps_high", "{0},,{1}")["pays_verdict"] == "not_identified"
    code, _, err = cli("fit", "--points", tmp_path / "points.csv")
    assert code == 0 and not err
    (tmp_path / "points.csv").write_text("batch_size,steps,steps_high\n1,2,3\n")
    code, _, err = cli("fit", "--points", tmp_path / "points.csv")
    assert code == 2 and "columns steps and steps_high, which mean the same" in err


def test_a_store_without_targets_proposes_one_that_all_reach(tmp_path: Path, cli: Cli) -> None:
    for size, lowest in ((16, 0.0312), (64, 0.05111), (256, 0.02)):
        publish(tmp_path, plan(batch_size=size, targets=(), stop="budget"), {0: Ran([(10, 0.9), (20, lowest)])})
    code, _, err = cli("payoff", "--store", tmp_path)
    assert code == 2 and "such as --metric test_error --value 0.0512, which every batch size reaches" in err
    _, out, _ = cli("steps", "--store", tmp_path, "--csv", "--metric", "test_error", "--value", "0.0512")
    assert pd.read_csv(io.StringIO(out))["steps_high"].tolist() == [20, 20, 20]


def test_the_end_of_a_sweep_counts_trials_at_the_target(tmp_path: Path) -> None:
    rows = {16: fine(16), 32: first(32), 64: [(50, 0.9)]}
    names = []
    for size, evaluations in rows.items():
        study = plan(batch_size=size, budget_steps=10**6, trials=2)
        publish(tmp_path, study, {0: Ran(evaluations), 1: Ran([(50, 0.9)])})
        names.append(study.name)
    counts, notes = _reached(tmp_path, names)
    assert [counts[name] for name in names] == [1, 1, 0]
    assert len(notes) == 2 and "at their first evaluation" in notes[0] and "no trial reached" in notes[1]


def test_doubts_about_the_search_are_printed_with_extents() -> None:
    """The table of fit marks the answers that depend on the search, as the page and payoff do."""
    row = dict.fromkeys(FITS, float("nan")) | {"pays_up_to": 64.0, "pays_up_to_low": 50.0, "pays_up_to_high": 90.0}
    row |= {"pays_verdict": "identified", "efficient_verdict": "not_identified", "verdict": "not_identified"}
    for doubts, words in (("space", "64.0 [50.0, 90.0], in doubt"), ("slope", "64.0 [50.0, 90.0]"), ("", "64.0")):
        line = fit_tables.as_text(pd.DataFrame([row | {"doubts": doubts, "reason": ""}])).splitlines()[1]
        assert words in line and ("in doubt" in line) == (doubts == "space")
