"""`suggest`: the rows of a store, their commands, costs and limits, and the estimates behind them by hand."""

import itertools
import json
import math
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import analysis.__main__ as analysis_cli
import results.__main__ as results_cli
import sweeps
from analysis import next_runs
from analysis.fitting import curve_fits, fits, narrowing, simulation, suggestion_simulation, suggestions, weights
from analysis.fitting.extents import Data

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
MAP = """
format: csv
files: bs{batch_size}-lr{learning_rate}-seed{seed}.csv
dataset: toy
model: net
optimizer: sgd
batch_size: path:batch_size
seed: path:seed
metaparameters: {learning_rate: path:learning_rate}
metrics: {validation_loss: loss}
targets: {validation_loss: 1.0}
device_count: 4
seconds: seconds
"""
SIZES = (1, 4, 16, 64, 256)
CRITICAL = 32


def steps_of(size: int, rate: float, seed: int) -> int:
    return round(400 * (1 + CRITICAL / size) * (1 + (rate - 0.2) ** 2) * (1 + 0.02 * seed))


def write_run(root: Path, size: int, rate: float, seed: int, seconds: float = 0.1) -> None:
    reached = steps_of(size, rate, seed)
    step = [round(reached * i / 80) for i in range(1, 161)]
    loss = [20 / (i / 4) if i % 4 == 0 else math.nan for i in range(1, 161)]
    table = pd.DataFrame({"step": step, "loss": loss, "train": 1.0})
    table["seconds"] = table["step"] * seconds * (1 + size / 64)
    table.to_csv(root / f"bs{size}-lr{rate:g}-seed{seed}.csv", index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 4 devices' runs at batch sizes two octaves apart; not to be written to."""
    root = tmp_path_factory.mktemp("runs")
    (root / "logs").mkdir()
    for size, rate, seed in itertools.product(SIZES, (0.1, 0.2, 0.3, 0.4), range(4)):
        write_run(root / "logs", size, rate, seed)
    add(root)
    return root / "store"


@pytest.fixture(scope="module")
def next_of_folder(folder: Path) -> next_runs.NextRuns:
    (found,) = next_runs.of_store(folder)
    return found


def add(folder: Path) -> None:
    (folder / "map.yaml").write_text(MAP)
    words = [
        "import",
        "runs",
        str(folder / "logs"),
        "--map",
        str(folder / "map.yaml"),
        "--store",
        str(folder / "store"),
    ]
    assert results_cli.main(words) == 0


def test_gaps_near_the_answer_are_divided_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert analysis_cli.main(["suggest", "--store", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 5 and {row["dataset"] for row in rows} == {"toy"}
    # (B + 32) / (B + 16) = 1.2 at 64: the doubling to 128 is the last that pays off, in the gap from 64 to 256.
    assert rows[0]["pays_up_to_low"] < 128 < rows[0]["pays_up_to_high"] or rows[0]["pays_verdict"] != "identified"
    first = [row for row in rows if row["suggestion"] == "batch size" and row["batch_size"] in (32, 128)]
    assert len(first) == 2 and rows[0] in first
    assert rows[0]["command"].startswith("16 runs at a batch of ") and "Then import again" in rows[0]["command"]
    assert analysis_cli.main(["suggest", "--store", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "new batch size 128" in out and "device-hours" in out and "share of the cost so far" in out


def test_costs_are_steps_times_seconds_times_devices(next_of_folder: next_runs.NextRuns) -> None:
    found = next_of_folder
    assert found.costs.timed
    for size in SIZES:
        assert found.costs.step(size) == pytest.approx(0.1 * (1 + size / 64) * 4 / 3600, rel=0.03)
    assert found.costs.step(1024) == pytest.approx(4 * found.costs.step(256))
    spent = sum(
        2 * steps_of(size, rate, seed) * 0.1 * (1 + size / 64) * 4 / 3600
        for size, rate, seed in itertools.product(SIZES, (0.1, 0.2, 0.3, 0.4), range(4))
    )
    assert found.spent == pytest.approx(spent, rel=0.03)
    new = next(each for each in found.best if each.batch_size == 128)
    ours = 16 * 2 * steps_of(128, 0.2, 1) * found.costs.step(128)
    assert new.cost == pytest.approx(ours, rel=0.15) and new.trials == 16


def test_a_budget_leaves_out_what_costs_more(
    folder: Path, next_of_folder: next_runs.NextRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    middle = float(np.median([one.cost for one in next_of_folder.best]))
    (some,) = next_runs.of_store(folder, budget=middle)
    assert some.best and max(one.cost for one in some.best) <= middle
    (none,) = next_runs.of_store(folder, budget=1e-9)
    assert not none.best and none.reason.endswith("within the budget")
    capsys.readouterr()
    assert analysis_cli.main(["suggest", "--store", str(folder), "--budget", "0"]) == 2
    assert capsys.readouterr().err == "error: --budget must be a number of device-hours above 0, not 0\n"
    untimed = ["suggest", "--store", str(PUBLISHED.parent / "mlperf"), "--budget", "1", "--metric"]
    assert analysis_cli.main([*untimed, "validation_shortfall", "--value", "0"]) == 2
    assert "--budget needs seconds per step" in capsys.readouterr().err


def test_more_trials_at_one_batch_size_count(folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folder.parent, tmp_path / "runs") / "store"
    (curve,) = curve_fits.of_store(folder)
    before = fits.data_of(curve.selected.points)
    assert before.share.tolist() == [1] * len(SIZES)
    for rate, seed in itertools.product((0.1, 0.2, 0.3, 0.4), range(4, 8)):
        write_run(folder.parent / "logs", 16, rate, seed)
    add(folder.parent)
    (curve,) = curve_fits.of_store(folder)
    points = curve.selected.points
    assert (
        points.trials == 16 and points.trial_counts is not None and points.trial_counts.tolist() == [16, 16, 32, 16, 16]
    )
    data = fits.data_of(points)
    assert data.share.tolist() == pytest.approx([1, 1, 1 / 3, 1, 1])
    assert "expected best of 16" in curve.selected.reason
    every = sorted(points.every[2].tolist())
    # The r-th of 32 is the best of 16 with probability C(32 - r, 15) / C(32, 16).
    chances = [math.comb(32 - r, 15) / math.comb(32, 16) for r in range(1, 33)]
    middle = np.exp(sum(chance * np.log(each) for chance, each in zip(chances, every, strict=True)))
    assert np.sqrt(data.low[2] * data.high[2]) == pytest.approx(middle, rel=1e-9)


@pytest.mark.slow
def test_commands_give_the_studies_of_the_sweep() -> None:
    """A command with a batch size that the release has is that study of the release."""
    found = next_runs.of_store(PUBLISHED, where=["model=simple_cnn*,optimizer=sgd"])
    assert len(found) == 1 and all(each.best for each in found)
    for each in found:
        for one, command in zip(each.best, each.commands, strict=True):
            assert command.startswith("python -m sweeps task=digits_")
            settings = dict(word.split("=", 1) for word in shlex.split(command)[3:])
            known = each.one.curve.workload.commits[3]
            del settings["store"]
            (configured,) = sweeps.sweep(**settings | {"batch_size": known.study.batch_size})
            assert configured.study.name.startswith(known.name)
            assert int(settings["trials"]) == one.trials + (64 if one.kind == suggestions.TRIALS else 0)


@pytest.mark.slow
def test_a_batch_that_cannot_be_run_is_never_suggested() -> None:
    """The digits have 1,411 examples to train on, and the curve ends at 1,024 with an open interval."""
    where = "model=fully_connected*,optimizer=adam,schedule=constant,pruning=off"
    (found,) = next_runs.of_store(PUBLISHED, where=[where])
    data = fits.data_of(found.one.selected.points)
    assert max(suggestions.new_sizes(data)) > 1411 and np.isnan(found.pays.high)
    assert found.best and max(one.batch_size for one in found.best) <= 1411


def test_batches_beyond_the_training_set_are_not_possible() -> None:
    sizes = 4.0 ** np.arange(6)
    data = Data(sizes, sizes, sizes, None, np.ones(6))
    words = ["task=digits_fc", "optimizer=adam"]
    assert next_runs._possible([512.0, 1331.2, 1500.0], data, words, 1, recorded=False) == [512, 1331]


def test_suggested_batches_of_tokens_hold_whole_sequences() -> None:
    sizes = 1024.0 * 2 ** np.arange(5)
    data = Data(sizes, sizes, sizes, None, np.ones(5))
    possible = next_runs._possible([1.4 * 1024, 2.6 * 1024, 10.0, 40_000.3], data, [], 1024, recorded=True)
    assert possible == [3072, 39 * 1024]


@pytest.mark.parametrize("repeats", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_simulation_follows_suggestions_to_a_narrow_interval(repeats: int) -> None:
    scenario = simulation.Scenario("middle", "sharp", simulation.DENSE, "luck 0.08", "ratio 1.1")
    lines: list[str] = []
    table = suggestion_simulation.run(1, 0, lines.append, [scenario])
    (row,) = table.to_dict("records")
    assert row["cost"] < row["grid_cost"] <= 4 and row["ratio"] == pytest.approx(row["cost"] / row["grid_cost"])
    assert row["followed"] > 0 and "aims met" in suggestion_simulation.as_text(table, 0, 1.0)
    for _ in range(repeats - 1):
        pd.testing.assert_frame_equal(table, suggestion_simulation.run(1, 0, lines.append, [scenario]))


def test_trials_that_share_an_evaluation_share_its_error() -> None:
    assert weights.evaluations_share(np.array([10.0, 10.0, np.inf]), 1) == 1
    assert weights.evaluations_share(np.array([10.0, 11.0]), 1) == pytest.approx(1 / 2)
    # Of 3 trials, the best of 2 is the first in two of three draws.
    assert weights.evaluations_share(np.array([10.0, 11.0, 12.0]), 2) == pytest.approx((2 / 3) ** 2 + (1 / 3) ** 2)


def test_points_without_more_trials_stay_as_they_are() -> None:
    low, high = np.array([10.0, 20.0]), np.array([11.0, 22.0])
    found = narrowing.expected_best(low, high, [np.array([10.5, 12]), np.array([21.0, 25])], 2)
    assert found[0].tolist() == low.tolist() and found[1].tolist() == high.tolist() and found[2].tolist() == [1, 1]


def test_simulated_larger_batch_size_closes_an_open_interval() -> None:
    batch_size = 2.0 ** np.arange(7)

    def data_at(sizes: np.ndarray) -> Data:
        steps = 1000 * (1 + 16 / sizes)  # pays up to 64, the largest batch size
        return Data(sizes, steps * 0.97, steps * 1.03, np.full(len(sizes), 0.05**2), np.ones(len(sizes)))

    data = data_at(batch_size)
    assert suggestions.octaves(suggestions.pays_up_to(data)) == suggestions.OPEN
    found = suggestions.suggest(data, [32] * 7, 32, lambda size, own: size * own, suggestions.new_sizes(data))
    best = {one.batch_size: one.width.octaves for one in found if one.kind == suggestions.NEW}
    real = suggestions.octaves(suggestions.pays_up_to(data_at(np.append(batch_size, 256.0))))
    assert real < best[256] < (real + suggestions.OPEN) / 2
