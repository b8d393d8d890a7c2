"""Studies of a user's own table: their identity, a regression replayed in float64, and the whole way by commands."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.run import Settings
from harness.runners import engine
from harness.step import rng
from harness.step.programs_key import programs_key
from harness.trials import search
from results import store
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.kinds import from_plan
from sweeps import network_config, overrides, planning
from sweeps.configured_study import ConfiguredStudy
from sweeps.planning import Request
from sweeps.study_run import run_study
from workloads import registry

from ..replay.network import gradient_of_squares, predicted


def write(file: Path, rows: int = 120, shift: float = 0.0) -> Path:
    """A price that bends with one column and jumps with another."""
    random = np.random.default_rng(0)
    width, garden = random.normal(0, 1, rows), random.integers(0, 2, rows)
    price = 200_000 + 30_000 * np.abs(width) + 20_000 * garden + random.normal(0, 1000, rows) + shift
    lines = [f"{w:.9f},{['no', 'yes'][g]},{p:.2f}" for w, g, p in zip(width, garden, price, strict=True)]
    file.write_text("\n".join(["width,garden,price", *lines]))
    return file


def request(file: Path, *words: str, label: str = "price", folder: Path | str = "results/local") -> Request:
    line = ["task=table", f"table.path={file}", f"table.label={label}", *words, f"store={folder}"]
    return planning.request(overrides.command_line(line))


def test_a_plan_is_of_the_data_and_not_of_their_place(tmp_path: Path) -> None:
    (study,) = request(write(tmp_path / "a.csv")).studies
    assert study.plan()["dataset_options"] == {
        "label": "price", "task": "regression", "validation": 0.2, "test": 0.2, "seed": 0
    }  # fmt: skip
    assert str(tmp_path) not in study.plan_json
    assert from_plan(study.plan(), study.trials) == study
    assert request(write(tmp_path / "b.csv")).studies == (study,)
    changes = [("table.seed=1",), ("table.test=0.1",), ("table.drop=[garden]",)]
    others = {request(tmp_path / "a.csv", *words).studies[0].name for words in changes}
    others.add(request(tmp_path / "a.csv", label="garden").studies[0].name)
    others.add(request(write(tmp_path / "a.csv", shift=0.5)).studies[0].name)
    assert len(others | {study.name}) == 6


def test_plans_without_a_table_have_no_options(make_study: Callable[..., object]) -> None:
    (study,) = planning.request(overrides.command_line([])).studies
    assert "dataset_options" not in study.plan()
    assert planning.request(overrides.command_line([])).sources == {}


def test_two_tables_share_no_programs(tmp_path: Path) -> None:
    keys = []
    for shift in (0.0, 7e5):
        asked = request(write(tmp_path / f"{shift}.csv", shift=shift), "batch_size=8")
        (study,) = asked.studies
        assert isinstance(study, BatchStudy)
        keys.append(programs_key(study))
    assert keys[0] != keys[1]
    source = asked.sources[study.name]
    write(Path(source["path"]))
    with pytest.raises(BadInput, match=r"the data have changed since the study was planned"):
        engine.run(study, search.draw(study, [0]), Settings(lanes=1), source=source)


def test_default_targets_are_reported_only_if_used(tmp_path: Path) -> None:
    from sklearn.datasets import load_diabetes

    load_diabetes(as_frame=True, scaled=False).frame.to_csv(file := tmp_path / "diabetes.csv", index=False)

    def lines(*words: str) -> list[str]:
        asked = request(file, *words, label="target")
        return network_config.data_lines([ConfiguredStudy(s, asked.sources[s.name]) for s in asked.studies])  # type: ignore[arg-type]

    first, constant = lines("task.targets=[{metric: validation_r2_error, value: 0.55}]")
    assert lines()[:2] == [first, constant]
    page = " ".join((Path(__file__).parents[2] / "docs" / "own-data.md").read_text().split())
    assert " ".join(lines()[1:]) in page
    assert f"{first.replace(str(file), 'diabetes.csv')} {constant} 3 studies" in page


STEPS, BATCH_SIZE, RATE = 60, 16, 0.0625  # a rate that float32 has


def test_another_program_in_float64_measures_the_same_regression(tmp_path: Path) -> None:
    from sklearn.metrics import mean_squared_error, r2_score

    file = write(tmp_path / "own.csv")
    words = [f"batch_size={BATCH_SIZE}", "optimizer=sgd", "trials=1", "pruning=off", "task.model.widths=[16]"]
    words += [f"+task.space.learning_rate={RATE}", f"task.budget.steps={STEPS}"]
    words += ["task.targets=[{metric: validation_squared_error, value: 5e7}]", "stop=budget", "task.evaluation_share=1"]
    asked = request(file, *words, folder=tmp_path / "store")
    (study,) = asked.studies
    run_study(tmp_path / "store", study, Settings(lanes=1), source=asked.sources[study.name])
    tables = store.read(tmp_path / "store")
    seed = np.uint32(tables.trials["seed"][0])

    # The file in float64, by hand; which row is where is the split's, told by its first input.
    row = registry.dataset("table", asked.sources[study.name])
    workload = registry.workload(row, "fully_connected", {"widths": [16]}, "sgd")
    cells = [line.split(",") for line in file.read_text().splitlines()[1:]]
    width, price = np.array([float(cell[0]) for cell in cells]), np.array([float(cell[2]) for cell in cells])
    inputs = np.column_stack([width, [cell[1] == "no" for cell in cells], [cell[1] == "yes" for cell in cells]])
    loaded = row.load()
    parts = {name: getattr(loaded, name) for name in ("train", "validation", "test")}
    place = np.argsort(np.argsort(np.concatenate([part.inputs[:, 0] for part in parts.values()]), kind="stable"))
    ranked = np.argsort(width, kind="stable")[place]
    rows = dict(
        zip(parts, np.split(ranked, np.cumsum([len(part.labels) for part in parts.values()])[:-1]), strict=True)
    )
    mean, deviation = price[rows["train"]].mean(), price[rows["train"]].std()
    inputs[:, 0] = (width - width[rows["train"]].mean()) / width[rows["train"]].std()
    labels = (price - mean) / deviation

    init_key, data_key = rng.keys(seed)
    layers = workload.init(init_key)[0]["params"]
    params = {
        f"{i}.{name}": np.asarray(layers[f"Dense_{i}"][name], np.float64)
        for i in range(2)
        for name in ("kernel", "bias")
    }
    steps_per_epoch = len(rows["train"]) // BATCH_SIZE
    evaluated, last = tables.measurements.set_index("step"), {}
    for step in range(STEPS):
        epoch = np.int32(step // steps_per_epoch)
        order = np.asarray(rng.epoch_order(data_key, epoch, len(rows["train"])))
        batch = rows["train"][order[step % steps_per_epoch * BATCH_SIZE :][:BATCH_SIZE]]
        slopes = gradient_of_squares(params, inputs[batch], labels[batch])
        params = {name: value - RATE * slopes[name] for name, value in params.items()}
        if step + 1 not in evaluated.index:
            continue
        for split, chosen in rows.items():
            chosen = chosen[: len(rows["validation"])]
            guess = mean + deviation * predicted(params, inputs[chosen])
            last = {
                "loss": np.mean((predicted(params, inputs[chosen]) - labels[chosen]) ** 2),
                "squared_error": mean_squared_error(price[chosen], guess),
                "r2_error": 1 - r2_score(price[chosen], guess),
            }
            for kind, value in last.items():
                assert evaluated.loc[step + 1, f"{split}_{kind}"] == pytest.approx(value, rel=1e-4), (step, split, kind)
    assert 0 < last["r2_error"] < 0.6
    assert last["squared_error"] > 1e6  # of the price, not of its standardized form


@pytest.mark.slow
def test_from_a_file_to_a_figure_by_commands(tmp_path: Path) -> None:
    def ran(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    file, folder = write(tmp_path / "own.csv", 300), str(tmp_path / "store")
    line = ["sweeps", "task=table", f"table.path={file}", "batch_size=4,16", "trials=4", f"store={folder}", "-m"]
    line += ["optimizer.space.learning_rate.high=0.05", "task.budget.epochs=5"]
    told = ran(*line, "table.label=price", "task.targets=[{metric: validation_squared_error, value: 4e8}]")
    assert "price (a number) from 1 column of numbers and 1 column of texts, 3 inputs" in told
    assert "2 classes" in ran(*line, "table.label=garden")
    assert "nothing to train" in ran(*line, "table.label=garden")
    assert "no faults" in ran("results", "verify", "--store", folder)
    steps = ran("analysis", "steps", "--store", folder)
    assert "validation_squared_error ≤ 4e+08" in steps
    assert "validation_loss ≤" in steps
    ran("analysis", "figures", "--store", folder, "--out", str(tmp_path / "figures"), "--kind", "steps_to_target")
    assert any("squared_error" in path.name for path in (tmp_path / "figures").iterdir())
    ran("results", "export", "--store", folder, "--out", str(tmp_path / "release"))
    dictionary = (tmp_path / "release" / "DICTIONARY.md").read_text()
    assert "validation_r2_error" in dictionary
    assert "in its squared unit" in dictionary
