"""``protocol=archive``, with archives that tests/sweeps/archive_program.py writes."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.workload_studies import shared_plan
from harness.trials import search
from results import store
from results.bad_input import BadInput
from results.importers import shallue2018, shallue2018_protocol
from results.plans.batch_study import BatchStudy
from results.plans.kinds import from_plan
from results.plans.search_space import Range
from sweeps import overrides, planning, tuning_protocol

ROOT = Path(__file__).parents[2]
README = "imagenet/resnet_50/nesterov_momentum"
TABLE = ROOT / "results" / "papers" / "shallue2018_studies.csv"
POINTS = 10_000


def archived(folder: Path, prefix: str = "") -> Path:
    """A store with an imported archive of the studies whose folders start with a prefix."""
    program = Path(__file__).with_name("archive_program.py")
    subprocess.run([sys.executable, program, TABLE, folder / "in", prefix], check=True)
    assert shallue2018.run(folder / "in", folder / "archive", any_checksum=True, report=lambda line: None) == 0
    return folder / "archive"


@pytest.fixture(scope="module", name="some")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet with ResNet-50: eleven studies, on every scale."""
    return archived(tmp_path_factory.mktemp("some"), README)


def plans(words: list[str], archive: Path, folder: Path) -> list[BatchStudy]:
    line = overrides.command_line([*words, "protocol=archive", f"archive.store={archive}", f"store={folder}", "-m"])
    studies = planning.request(line).studies
    return [study for study in studies if isinstance(study, BatchStudy)]


def refused(words: list[str], archive: Path, folder: Path) -> str:
    with pytest.raises(BadInput) as error:
        plans(words, archive, folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def of_archive(archive: Path, path: str) -> tuple[dict[str, Any], list[int]]:
    """The study.json of a study, and the steps of its third trial without step 0."""
    folder = archive.parent / "in" / "batch_science" / path
    rows = (folder / "3" / "measurements.csv").read_text().splitlines()[1:]
    return json.loads((folder / "study.json").read_text()), [int(row.split(",")[0]) for row in rows][1:]


def distance(values: np.ndarray, config: dict[str, Any]) -> float:
    """The Kolmogorov-Smirnov distance of values from the distribution of an archived range."""
    if config["type"] == "DISCRETE":
        points = sorted(config["feasible_points"])
        assert set(values) <= set(points)
        return max(abs(np.mean(values <= each) - (i + 1) / len(points)) for i, each in enumerate(points))
    low, high, scale = config["min_value"], config["max_value"], config["scale"]
    assert low <= values.min() and values.max() <= high
    ordered = np.sort(values)
    if config["type"] == "INTEGER":
        assert np.array_equal(values, np.rint(values))
        upto = {"LOG_SCALE": lambda k: math.log((k + 1) / low) / math.log((high + 1) / low)}
        share = np.array([upto.get(scale, lambda k: (k - low + 1) / (high - low + 1))(k) for k in ordered])
        return float(np.abs(np.searchsorted(ordered, ordered, "right") / len(ordered) - share).max())
    if scale == "LOG_SCALE":
        share = np.log(ordered / low) / math.log(high / low)
    elif scale == "REVERSE_LOG_SCALE":
        share = (np.log(1 - ordered) - math.log(1 - low)) / (math.log(1 - high) - math.log(1 - low))
    else:
        share = (ordered - low) / (high - low)
    ranks = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(ranks[1:] - share).max(), np.abs(ranks[:-1] - share).max()))


def check_plan(study: BatchStudy, config: dict[str, Any], steps: list[int], *, draw: bool = True) -> None:
    """Checks budget, evaluations and marginals of a plan against its study.json."""
    if config["train_steps"]:
        assert study.budget_steps == config["train_steps"]
        assert study.evaluations.tolist() == steps
    names = {"learning_rate_decay_steps": "decay_fraction"}
    assert set(study.space) == {names.get(name, name) for name in config["parameter_configs"]}
    if not draw:
        return
    trials = search.draw(study, range(POINTS))
    for name, each in config["parameter_configs"].items():
        values = np.array([trial.metaparameters[names.get(name, name)] for trial in trials])
        if name in names:
            values = np.rint(values * study.budget_steps)
        assert distance(values, each) < 0.015, (study.name, name)


def test_the_plan_of_the_readme_has_its_fields(some: Path, tmp_path: Path) -> None:
    (study,) = plans([f"+experiment=shallue2018/{README}", "batch_size=256"], some, tmp_path)
    assert study.budget_steps == 600_000 and study.schedule == "linear"
    space = study.space.plan()
    decay = space.pop("decay_fraction")
    assert space == {
        "learning_rate": {"scale": "LOG", "low": 1e-4, "high": 10.0},
        "momentum": {"scale": "REVERSE_LOG", "low": 0.9, "high": 0.9999},
        "end_learning_rate_factor": {"scale": "LOG", "low": 1e-4, "high": 1e-1},
        "label_smoothing": {"scale": "DISCRETE", "values": [0.0, 0.01, 0.1]},
    }
    # INTEGER 300000…600000, in steps of a budget of 600000
    assert decay == {"scale": "LINEAR", "low": 0.5, "high": 1.0, "denominator": 600_000}
    assert (decay["low"] * 600_000, decay["high"] * 600_000) == (300_000, 600_000)


def test_points_budgets_and_evaluations_are_those_of_the_archive(some: Path, tmp_path: Path) -> None:
    studies = plans([f"+experiment=shallue2018/{README}"], some, tmp_path)
    assert len(studies) == 11
    scales = set()
    for study in studies[:6]:
        config, steps = of_archive(some, f"{README}/{study.batch_size}")
        check_plan(study, config, steps)
        scales |= {(each["type"], each["scale"]) for each in config["parameter_configs"].values()}
    integers = {("INTEGER", scale) for scale in ("LINEAR_SCALE", "LOG_SCALE", "")}
    doubles = {("DOUBLE", scale) for scale in ("LINEAR_SCALE", "LOG_SCALE", "REVERSE_LOG_SCALE", "")}
    assert scales == integers | doubles | {("DISCRETE", "")}


def test_a_plan_and_its_command_do_not_need_the_archive(some: Path, tmp_path: Path) -> None:
    line = [f"+experiment=shallue2018/{README}", "protocol=archive", f"archive.store={some}", f"store={tmp_path}"]
    asked = planning.request(overrides.command_line([*line, "-m"]))
    for study in asked.studies:
        words = asked.words[study.name]
        assert not any("archive" in word for word in words)
        (again,) = planning.request(overrides.command_line([*words, f"store={tmp_path}"])).studies
        assert again == study and again.name == study.name
        assert from_plan(json.loads(study.plan_json), study.trials) == study
    planning.record(asked, asked.studies[:1])
    assert store.stored_plan(tmp_path, asked.studies[0].name) == asked.studies[0]


def test_an_archive_that_is_not_imported_is_one_line(some: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "missing", tmp_path):
        text = refused([f"+experiment=shallue2018/{README}"], folder, tmp_path / "s")
        assert text == (
            f"{folder} has no imported archive of Shallue et al. 2018. To import it, download storage.googleapis.com/"
            "batch_science_data/batch_science_data.tar.bz2 (802 MB) and run `scaling-limits import shallue2018 "
            f"batch_science_data.tar.bz2 --store {folder}`."
        )
    text = refused(["+experiment=shallue2018/mnist/fc_1024/sgd", "batch_size=64"], some, tmp_path / "s")
    assert text.startswith(f"{some} has no study mnist/fc_1024/sgd/64 of the archive.")
    assert not (tmp_path / "s").exists()


def test_the_command_exits_with_2_and_writes_nothing(tmp_path: Path) -> None:
    words = ["+experiment=shallue2018/mnist/fc_1024/sgd", "protocol=archive", "-m", "store=mine"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: results/shallue2018 has no imported archive") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["task=shallue2018/mnist_fc"], "protocol=archive is for presets shallue2018/"),
        ([f"+experiment=shallue2018/{README}", "task.budget.steps=9"], "task.budget.steps=9 has no effect with"),
        ([f"+experiment=shallue2018/{README}", "optimizer=sgd"], "has no metaparameter 'momentum'"),
        ([f"+experiment=shallue2018/{README}", "batch_size=8"], "has no study imagenet/resnet_50/nesterov_momentum/8 "),
    ],
)
def test_wrong_words_are_one_line(words: list[str], text: str, some: Path, tmp_path: Path) -> None:
    assert text in refused(words, some, tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        "5",
        "{study:a}",
        "{study:a,train_steps:-1,space:{},evaluations:[]}",
        "{study:a,train_steps:5,space:{},evaluations:[[1]]}",
        "{study:a,train_steps:5,space:{},evaluations:[[0,5]]}",
        "{study:a,train_steps:5,space:3,evaluations:[]}",
    ],
)
def test_a_wrong_protocol_is_one_line(given: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\Aprotocol[^\n]*\Z"):
        planning.request(overrides.command_line([f"protocol={given}", f"store={tmp_path}"]))


@pytest.mark.parametrize("workload", ["lm1b/lstm/nesterov_momentum/4096", f"{README}/256"])
def test_a_time_budget_is_the_last_step_of_complete_trials(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its learning rate ends its decay within the budget. Early stopping, which is ignored, is named."""
    archive = archived(tmp_path, workload)
    path = archive.parent / "in" / "batch_science" / workload / "study.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"train_steps": 0, "early_stopping": True}))
    archive = tmp_path / "timed"
    assert shallue2018.run(tmp_path / "in", archive, any_checksum=True, report=lambda line: None) == 0
    preset, _, size = workload.rpartition("/")
    capsys.readouterr()
    (study,) = plans([f"+experiment=shallue2018/{preset}", f"batch_size={size}"], archive, tmp_path / "s")
    assert capsys.readouterr().err == (
        f"{workload} has a time budget in the archive, so the last step of its COMPLETE trials is the budget\n"
        f"{workload} has early_stopping in the archive, which is ignored: trials run to the end of their budget\n"
    )
    _, steps = of_archive(archive, workload)
    trials = [json.loads(file.read_text()) for file in path.parent.glob("*/metadata.json")]
    complete = [path.parent / str(trial["trial_id"]) for trial in trials if trial["status"] == "COMPLETE"]
    last = max(int((folder / "measurements.csv").read_text().split()[-1].split(",")[0]) for folder in complete)
    assert study.evaluations.tolist()[: len(steps)] == steps and study.budget_steps == last
    if "decay_fraction" in study.space:
        longest = content["parameter_configs"]["learning_rate_decay_steps"]["max_value"]
        assert study.space["decay_fraction"].high == longest / last <= 1


def test_evaluations_lead_to_the_budget() -> None:
    def spacings(pairs: list[list[int]], budget: int) -> tuple[tuple[int, int], ...]:
        return tuning_protocol.spacings({"evaluations": pairs}, budget)

    assert spacings([], 100) == ()
    assert spacings([[10, 50], [25, 100]], 100) == ((10, 50), (25, 100))
    assert spacings([[10, 50], [25, 100]], 90) == ((10, 50), (25, 75), (15, 90))
    assert spacings([[10, 50], [25, 100]], 130) == ((10, 50), (25, 125), (5, 130))
    assert spacings([[10, 50], [7, 64], [3, 100]], 99) == ((10, 50), (7, 64), (3, 97), (2, 99))
    assert spacings([[500, 1000]], 100) == ((100, 100),)


def test_every_grid_is_a_list_of_spacings() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = np.cumsum(rng.integers(1, 4, rng.integers(1, 30)))
        pairs = shallue2018_protocol.as_spacings(steps)
        study = tuning_protocol.spacings({"evaluations": [list(pair) for pair in pairs]}, int(steps[-1]))
        found = [step for start, (by, to) in zip((0, *(to for _, to in study)), study, strict=False)
                 for step in range(start + by, to + 1, by)]  # fmt: skip
        assert found == steps.tolist()


def test_ranges_of_unknown_form_are_refused() -> None:
    for config in (
        {"type": "CATEGORICAL", "feasible_points": ["a"]},
        {"type": "INTEGER", "min_value": 1, "max_value": 5, "scale": "REVERSE_LOG_SCALE"},
        {"type": "DOUBLE", "min_value": 1, "max_value": 5, "scale": "OTHER"},
    ):
        with pytest.raises((BadInput, KeyError)):
            shallue2018_protocol.range_of(config)


@pytest.mark.parametrize("spacings", [5, [5], [[5]], [[0, 5]], [[2, 5]], [[5, 10]], [[1.5, 3]], [[5, 5], [5, 5]]])
def test_plans_with_wrong_spacings_are_refused(spacings: Any, some: Path, tmp_path: Path) -> None:
    (study,) = plans([f"+experiment=shallue2018/{README}", "batch_size=256"], some, tmp_path)
    plan = json.loads(study.plan_json) | {"budget_steps": 5, "evaluation_spacings": spacings}
    with pytest.raises(BadInput, match="evaluation_spacings"):
        from_plan(plan, 1)


def test_studies_of_a_workload_are_one_curve(some: Path, tmp_path: Path) -> None:
    studies = plans([f"+experiment=shallue2018/{README}"], some, tmp_path)
    assert len({str(shared_plan(study)) for study in studies}) == 1
    assert len({study.evaluation_spacings for study in studies}) == len(studies)


def test_decays_become_fractions_of_the_budget() -> None:
    assert tuning_protocol.fraction_of(Range("DISCRETE", values=(3, 6)), 6) == Range("DISCRETE", values=(0.5, 1.0))
    assert tuning_protocol.fraction_of(Range("LOG", 3, 6), 6) == Range("LOG", 0.5, 1.0)
    whole = tuning_protocol.fraction_of(Range("LOG", 3, 6, denominator=1), 6)
    assert whole == Range("LOG", 0.5, 1.0, denominator=6)
    drawn = [whole.at(u) * 6 for u in np.linspace(0, 1, 7000, endpoint=False)]
    assert np.array_equal(drawn, np.rint(drawn))
    shares = [np.mean(np.rint(drawn) == step) for step in (3, 4, 5, 6)]
    np.testing.assert_allclose(shares, [math.log((k + 1) / k) / math.log(7 / 3) for k in (3, 4, 5, 6)], atol=1e-3)


@pytest.mark.slow
def test_one_command_plans_all_454_studies(tmp_path: Path) -> None:
    archive = archived(tmp_path)
    studies = plans(["+experiment=shallue2018/all"], archive, tmp_path / "s")
    assert len({study.name for study in studies}) == 454
    folders = sorted(path.parent for path in (tmp_path / "in" / "batch_science").rglob("study.json"))
    assert len(folders) == 454
    for workload in sorted({folder.parent for folder in folders}):
        name = workload.relative_to(tmp_path / "in" / "batch_science").as_posix()
        for study in plans([f"+experiment=shallue2018/{name}"], archive, tmp_path / "s"):
            config, steps = of_archive(archive, f"{name}/{study.batch_size}")
            check_plan(study, config, steps, draw=study.batch_size in (64, 256, 8192))
