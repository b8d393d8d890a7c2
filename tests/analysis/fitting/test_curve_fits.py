"""Both answers of a curve, how its knee moves with the number of trials, and how its learning rate grows."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.figures import batch_figures
from analysis.fitting import curve_fits
from analysis.plotting.picture import Picture
from analysis.trials import metaparameters
from results.plans.search_space import Range, SearchSpace
from results.rules.confirmation import APART

from ..conftest import BATCH_SIZES, Ran, plan, publish, sweep

Cli = Callable[..., tuple[int, str, str]]
RATE = metaparameters.metaparameter("learning_rate", log=True)
SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-6, 1e6), "momentum": Range("REVERSE_LOG", 0.0, 0.99)})


def again(folder: Path, times: float = 1.0, **changes: object) -> None:
    """A curve with a knee at 64 whose first repeat takes so many times the steps, four times as many beyond 64."""
    for size in BATCH_SIZES:
        least = 100 * (1 + 64 / size)
        steps = [round(least * factor) for factor in (1.0, 1.5, 2.0, *([2.5] * 13))]
        ran = {i: Ran([(n - 1, 0.3), (n, 0.05)]) for i, n in enumerate(steps)}
        slower = round(least * times * (4 if size < 64 else 1))
        repeat = {APART: Ran([(slower - 1, 0.3), (slower, 0.05)])} if changes.get("confirm") else {}
        publish(folder, plan(batch_size=size, trials=16, budget_steps=10**6, **changes), ran | repeat)


def test_a_curve_has_a_row_for_each_answer(folder: Path, cli: Cli) -> None:
    again(folder, confirm=1)
    again(folder, optimizer="momentum")
    _, out, _ = cli("fit", "--store", folder, "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns[:8]) == [
        *("dataset", "model", "optimizer", "target_metric", "target_value", "unit", "estimate", "trials_per_point")
    ]
    assert list(zip(table["optimizer"], table["estimate"], strict=True)) == [
        *(("momentum", "selected"), ("sgd", "selected"), ("sgd", "confirmed"))
    ]
    assert table["trials_per_point"].tolist() == [16] * 3
    before, after = table.loc[1:, "critical_batch_size"]
    assert before == pytest.approx(64, rel=0.05)
    assert after > 2 * before
    assert "medians of 1 new seed" in table.loc[2, "reason"]
    _, out, _ = cli("fit", "--store", folder, "--checks")
    assert "sgd · test_error · 0.1 · examples · confirmed · 16" in " ".join(out.split())


def test_how_far_knees_move_and_whether_out_of_the_interval(folder: Path) -> None:
    again(folder, confirm=1)
    again(folder, optimizer="momentum")
    found = curve_fits.of_store(folder)
    (moved,) = curve_fits.moves(found).to_dict("records")
    assert list(moved) == list(curve_fits.MOVED)
    assert moved["octaves"] == pytest.approx(np.log2(moved["confirmed"] / moved["selected"]))
    assert moved["octaves"] > 1 and not moved["inside"]
    confirmed = [study for fitted in found for study in fitted.confirmations]
    assert [round(study.ratio, 1) for study in confirmed] == [4.0] * 6 + [1.0] * 5
    assert all(study.chosen == study.best for study in confirmed)


def test_the_first_k_trials_are_a_search_of_k(folder: Path, cli: Cli) -> None:
    sweep(folder, trials=24)
    found = curve_fits.of_store(folder)
    assert [curve_fits.trial_numbers(one) for one in found] == [[8, 16, 24]] * 3
    names, told = curve_fits.rows_by_k(found, [8, 24, 16])
    assert list(zip(names["optimizer"], names["trials_per_point"], strict=True))[:4] == [
        *(("momentum", 8), ("momentum", 16), ("momentum", 24), ("nesterov", 8))
    ]
    assert [one.points.trials for one in told] == [8, 16, 24] * 3
    assert told[2] is found[0].selected
    steps = np.array([one.points.high for one in told[:3] if len(one.points.high) == len(BATCH_SIZES)])
    assert (np.diff(steps, axis=0) <= 0).all(), "a minimum falls with k"
    _, out, err = cli("fit", "--store", folder, "--best-of", "24,8", "--csv")
    assert err == ""
    assert pd.read_csv(io.StringIO(out))["trials_per_point"].tolist() == [8, 24] * 3


def test_pruned_studies_tell_of_their_own_number_alone(folder: Path, cli: Cli) -> None:
    sweep(folder, trials=24, pruning="exact")
    assert [curve_fits.trial_numbers(one) for one in curve_fits.of_store(folder)] == [[24]] * 3
    _, out, err = cli("fit", "--store", folder, "--best-of", "8,24,9999", "--csv")
    assert err == "note: no curve can be fitted at the best of 8, 9999 trials\n"
    assert pd.read_csv(io.StringIO(out))["trials_per_point"].tolist() == [24] * 3
    code, out, err = cli("fit", "--store", folder, "--best-of", "8")
    assert (code, out, err) == (2, "", "error: no curve can be fitted at the best of 8 trials. Available: 24.\n")


@pytest.mark.parametrize("words", ["8,,16", "0", "a", "-8"])
def test_numbers_of_trials_that_are_none_are_told_in_one_line(tmp_path: Path, cli: Cli, words: str) -> None:
    code, out, err = cli("fit", "--store", tmp_path, f"--best-of={words}")
    assert (code, out) == (2, "")
    assert err.startswith("error: argument --best-of: invalid numbers of trials, such as 8,16,32, value")
    assert len(err.splitlines()) == 1


def test_a_file_of_points_has_no_trials(tmp_path: Path, cli: Cli) -> None:
    code, _, err = cli("fit", "--points", tmp_path / "a.csv", "--best-of", "8")
    assert (code, err) == (2, "error: --best-of needs --store: a file of points has no trials\n")


def test_curves_of_different_workloads_share_no_picture_or_row(folder: Path) -> None:
    for optimizer in ("sgd", "momentum"):
        again(folder, optimizer=optimizer)
        again(folder, optimizer=optimizer, stop="budget")
    again(folder, optimizer="sgd", pruning="exact")  # of the same plan but for its pruning
    found = curve_fits.of_store(folder)
    groups = dict(curve_fits.comparable_groups(found, "optimizer", "targets", "pruning"))
    names = [(*("digits", "fully_connected_64", "test_error", "0.1"), f"stop={stop}") for stop in ("target", "budget")]
    assert groups.keys() == set(names)
    assert [len(groups[name]) for name in names] == [3, 2]
    pictures = [made.names for made in batch_figures.optimizers(found) if isinstance(made, Picture)]
    assert len(pictures) == len(set(pictures)) == 2
    assert len({made.names for made in batch_figures.steps_to_target(found) if isinstance(made, Picture)}) == 5
