"""Presets of Shallue et al. 2018, against the table of studies and the figures that their authors published."""

import csv
import functools
import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import conf
import results.papers
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from sweeps import choices, overrides, planning

PAPERS = Path(results.papers.__path__[0])
# The archive's names, without the folder around a data set, where ours differ.
OURS = {"cifar_10": "cifar10", "lstm": "lstm_base", "nesterov_momentum": "nesterov"}
SPLIT = ("imagenet", "imagenet_half_images", "imagenet_half_classes", "lm1b")
OURS |= {name: f"shallue2018_{name}" for name in SPLIT}
ROOT = Path(__file__).parents[2]


def published() -> dict[str, list[tuple[str, str, str, int]]]:
    """The 454 rows of the archive's README (google-research/google-research, batch_science/), by workload."""
    rows = defaultdict(list)
    for row in csv.DictReader((PAPERS / "shallue2018_studies.csv").read_text().splitlines()):
        names = [row["base_directory"], row["model"], row["optimizer"]]
        dataset, model, optimizer = (OURS.get(name, name) for name in (names[0].split("/")[-1], *names[1:]))
        rows["/".join(names)].append((dataset, model, optimizer, int(row["batch_size"])))
    return rows


def planned(preset: str, store: Path) -> list[tuple[str, str, str, int]]:
    request = planning.request(overrides.command_line([f"+experiment={preset}", "-m", f"store={store}"]))
    return [(study.dataset, study.model, study.optimizer, study.batch_size) for study in request.studies]


@functools.cache
def everything() -> tuple[BatchStudy, ...]:
    """The studies of ``shallue2018/all``, planned once."""
    studies = planning.request(overrides.command_line(["+experiment=shallue2018/all", "-m", "store=none"])).studies
    return tuple(study for study in studies if isinstance(study, BatchStudy))


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nothing"))


def test_the_plan_of_all_is_the_published_table() -> None:
    rows = [row for workload in published().values() for row in workload]
    assert len(rows) == 454 and len(published()) == 35
    found = [(study.dataset, study.model, study.optimizer, study.batch_size) for study in everything()]
    assert sorted(found) == sorted(rows)


def test_a_figure_has_the_studies_of_its_workloads() -> None:
    drawn = defaultdict(set)
    for row in csv.DictReader((PAPERS / "shallue2018_figures.csv").read_text().splitlines()):
        workload = "/".join(row[name] for name in ("dataset", "model", "optimizer"))
        drawn[int(row["figure"].rstrip("ab"))].add(workload)
    assert sorted(drawn) == list(range(1, 12))
    for number, workloads in drawn.items():
        united = choices.united(f"shallue2018/figure{number}")
        assert {name.removeprefix("shallue2018/") for name in united} == workloads, number


def test_one_command_is_one_workload(tmp_path: Path) -> None:
    name = "lm1b/transformer_shallow/sgd"
    assert planned(f"shallue2018/{name}", tmp_path) == published()[name]


def test_every_workload_has_a_preset_and_a_tiny_one() -> None:
    for family in ("shallue2018", "tiny"):
        names = [name.removeprefix(f"{family}/") for name in choices.options("experiment") if name.startswith(family)]
        assert {name for name in names if "/" in name} == set(published())
    united = {one.removeprefix("shallue2018/") for one in choices.united("shallue2018/all")}
    assert united == set(published())


def test_first_lines_count_studies_and_trials() -> None:
    """What --help says of a preset is what it plans."""
    folder = Path(conf.__path__[0]) / "experiment"
    figures = (folder / "shallue2018" / "presets.yaml").read_text().splitlines()
    for name in (f"figure{number}" for number in range(1, 12)):
        text = figures[figures.index(f"  {name}:") - 1]
        studies = sum(
            len(published()[one.removeprefix("shallue2018/")]) for one in choices.united(f"shallue2018/{name}")
        )
        assert text.endswith(f": {studies} studies")
    lines = (folder / "shallue2018" / "all.yaml").read_text().splitlines()
    for workload, rows in published().items():
        at = lines.index(f"  {workload}:")
        trials = next(line.split()[1] for line in lines[at:] if line.startswith("    trials:"))
        assert lines[at - 1].endswith(f": {len(rows)} studies of {trials} trials.")


def test_budgets_are_at_least_twice_the_published_steps(tmp_path: Path) -> None:
    """All but ResNet-50's on ImageNet, whose budget is published at batch size 256 and as many examples at others."""
    needed: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    read = {"1": 0, "4": 0}
    for file in ("points.csv", "shallue2018_figure4.csv"):
        for row in csv.DictReader((PAPERS / file).read_text().splitlines()):
            if row["source"] == "shallue2018":
                workload = "/".join(row[key] for key in ("dataset", "model", "optimizer"))
                own, size = needed[workload], int(row["batch_size"])
                own[size] = max(own[size], float(row["steps"]))
                read[row["figure"]] += 1
    assert read == {"1": 89, "4": 93} and len(needed) == 15
    for workload, steps in needed.items():
        line = [f"+experiment=shallue2018/{workload}", "-m", f"store={tmp_path}"]
        studies = {one.batch_size: one for one in planning.request(overrides.command_line(line)).studies}
        assert steps.keys() <= studies.keys(), workload
        times = {size: studies[size].budget_steps / steps[size] for size in steps}
        if workload == "imagenet/resnet_50/nesterov_momentum":
            assert studies[256].budget_steps == 600_000
            assert round(min(times.values()), 1) == 1.4
            assert [size for size, share in times.items() if share >= 2] == [16384, 32768, 65536]
        else:
            assert min(times.values()) >= 2, (workload, times)


def test_tasks_have_the_targets_of_figures() -> None:
    have = {(one.dataset, one.model, one.optimizer, target.value) for one in everything() for target in one.targets}
    lost = set()
    for row in csv.DictReader((PAPERS / "shallue2018_figures.csv").read_text().splitlines()):
        names = [OURS.get(name, name) for name in (row["dataset"].split("/")[-1], row["model"], row["optimizer"])]
        if row["target_value"] and (*names, float(row["target_value"])) not in have:
            lost.add((int(row["figure"].rstrip("ab")), names[0].removeprefix("shallue2018_"), row["target_value"]))
    card = " ".join((ROOT / "docs" / "shallue2018.md").read_text().split())
    assert lost == {
        *((2, "mnist", value) for value in ("0.008", "0.012", "0.014", "0.016")),
        *((2, "lm1b", value) for value in ("3.8", "3.85", "3.95", "4", "4.05")),
        *((2, "imagenet", value) for value in ("0.27", "0.29", "0.31")),
        (8, "fashion_mnist", "0.3"),
    }
    assert (
        "(MNIST 0.008, 0.012, 0.014 and 0.016, LM1B 3.8, 3.85, 3.95, 4 and 4.05, ImageNet 0.27, 0.29 and 0.31) "
        "and of Figure 8 (Fashion MNIST 0.3) are in no task" in card
    )


def test_defaults_are_the_forms_of_the_paper(tmp_path: Path) -> None:
    """Plans list them. Without them, they are the plans from before."""
    for study in everything():
        expected = {}
        if study.model.startswith("simple_cnn"):
            expected = {"kernel": 5}
        elif study.model.startswith("transformer"):
            expected = {"read_out": "untied"}
        assert study.model_options == expected, study.name
        is_split = study.dataset.startswith("shallue2018_")
        assert study.dataset_options == ({"label_smoothing": "other classes"} if is_split else {})
        assert is_split == study.dataset.removeprefix("shallue2018_").startswith(("imagenet", "lm1b"))
    line = ["+experiment=shallue2018/mnist/simple_cnn_wide/sgd", "task.model.kernel=3", "-m", f"store={tmp_path}"]
    assert all(study.model_options == {} for study in planning.request(overrides.command_line(line)).studies)


def test_one_word_applies_what_is_remembered_of_the_appendix(tmp_path: Path) -> None:
    """Of the data set or the model of each task. Plans list it, and each part is an option."""
    line = ["+experiment=shallue2018/all", "appendix=remembered", "-m", f"store={tmp_path}"]
    seen = set()
    for study in planning.request(overrides.command_line(line)).studies:
        options, dataset = dict(study.model_options), study.dataset
        if study.model.startswith("simple_cnn"):
            assert options == {"dropout": 0.4, "kernel": 5}
        elif study.model == "resnet_50":
            assert options == {"form": "pre_activated"}
        elif study.model == "lstm_base":
            assert options == {"read_out": "untied_bias"}
        elif study.model.startswith("transformer"):
            assert options == {"read_out": "untied"}
        else:
            assert options == {}
        if "lm1b" in dataset:
            assert study.dataset_version.endswith("in 64/476") and "bpe:32000 " in study.dataset_version
        elif "crawl" in dataset:
            assert "bpe:24006 of train[:300000] lines" in study.dataset_version
        seen.add(dataset)
    assert {"shallue2018_lm1b_remembered", "common_crawl_remembered"} < seen
    line = ["+experiment=shallue2018/lm1b/lstm/nesterov_momentum", "+task.model.read_out=untied_bias", "-m"]
    (study, *_) = planning.request(overrides.command_line([*line, f"store={tmp_path}"])).studies
    assert (study.dataset, study.model_options) == ("shallue2018_lm1b", {"read_out": "untied_bias"})
    with pytest.raises(BadInput, match=r"appendix"):
        planning.request(overrides.command_line(["appendix=confirmed", f"store={tmp_path}"]))


def test_forms_from_before_give_the_plans_from_before(tmp_path: Path) -> None:
    for line, name in (
        (["task=shallue2018/mnist_cnn", "task.model.kernel=3"], "mnist-simple_cnn_base-momentum-b64-2573182cf780d73f"),
        (
            ["task=shallue2018/lm1b_transformer", "task.model.read_out=tied", "task.dataset=lm1b"],
            "lm1b-transformer_base-momentum-b64-3c57656336687c4e",
        ),
    ):
        line = [*line, "optimizer=momentum", f"store={tmp_path}"]
        assert [study.name for study in planning.request(overrides.command_line(line)).studies] == [name]


def test_spaces_are_those_that_the_figures_show() -> None:
    """Figures 9a and 10, and as many trials of MNIST diverged as with rates up to about 3."""
    seen = set()
    for study in everything():
        rates, momentum = study.space["learning_rate"], study.space.get("momentum")
        if study.model.startswith("transformer") and study.dataset == "shallue2018_lm1b" and momentum:
            assert (rates.low, rates.high, momentum.low, momentum.high) == (1e-4, 1e-1, 0.0, 0.9999)
            seen.add(study.model)
        elif study.dataset == "mnist" and study.optimizer == "sgd":
            assert (rates.low, rates.high) == (1e-4, 3.0)
            seen.add(study.model)
    assert len(seen) == 4 + 8 + 3


def test_budgets_reach_those_that_figure_11_draws(tmp_path: Path) -> None:
    name = "shallue2018/lm1b/transformer_narrow_and_shallow/nesterov_momentum"
    studies = planning.request(overrides.command_line([f"+experiment={name}", "-m", f"store={tmp_path}"])).studies
    steps = {study.batch_size: study.budget_steps for study in studies}
    drawn = {32: 10**6, 64: 10**6, 256: 236_727, 512: 118_363, 1024: 59_182, 2048: 73_977}
    assert all(steps[size] >= least for size, least in drawn.items()), steps


@pytest.mark.slow
def test_the_card_says_how_many_published_trials_diverged(tmp_path: Path) -> None:
    trials, ended = {}, defaultdict(lambda: np.zeros(2))
    for row in csv.DictReader((PAPERS / "shallue2018_studies.csv").read_text().splitlines()):
        workload = "/".join(row[name] for name in ("base_directory", "model", "optimizer"))
        ended[workload] += int(row["complete_trials"]), int(row["infeasible_trials"])
    for workload in ended:
        line = [f"+experiment=shallue2018/{workload}", "-m", f"store={tmp_path}"]
        trials[workload] = planning.request(overrides.command_line(line)).studies[0].trials
    expected = []
    for workload, (complete, diverged) in sorted(ended.items(), key=lambda item: item[1][0] / sum(item[1])):
        share = diverged / (complete + diverged)
        enough = 10 * math.ceil(trials[workload] / (1 - share) / 10)
        if share >= 0.4:
            expected.append(f"| `{workload}` | {trials[workload]} | {100 * share:.0f} % | {enough} |")
        else:
            assert enough <= {100: 160, 200: 310}[trials[workload]]
    lines = (ROOT / "docs" / "shallue2018.md").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if "diverged, published" in line) + 2
    assert lines[first : lines.index("", first)] == expected


def test_tiny_workloads_have_the_documented_number_of_studies(tmp_path: Path) -> None:
    line = (Path(conf.__path__[0]) / "experiment" / "tiny" / "all.yaml").read_text().splitlines()[0]
    request = planning.request(overrides.command_line(["+experiment=tiny/all", "-m", f"store={tmp_path}"]))
    assert len({study.name for study in request.studies}) == 5 * len({*choices.united("tiny/all")})
    assert line.endswith(f": {len(request.studies)} studies")


def test_several_presets_without_m_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"\A\+experiment=shallue2018/figure5 combines 6 presets\. Add -m to run them all\.\Z"
    ):
        planning.request(overrides.command_line(["+experiment=shallue2018/figure5", f"store={tmp_path}"]))


def test_batches_larger_than_a_data_set_are_refused_in_one_line(tmp_path: Path) -> None:
    for workload, batch, size in (
        ("imagenet_subsets/imagenet_half_classes/resnet_50", 605_056, 605_000),
        ("mnist_subsets/mnist_6875/simple_cnn_base", 8192, 6875),
    ):
        line = [f"+experiment=shallue2018/{workload}/nesterov_momentum", f"batch_size={batch}", f"store={tmp_path}"]
        with pytest.raises(BadInput, match=rf"\Abatch_size={batch} is larger than the training set of .*{size}\.\Z"):
            planning.request(overrides.command_line(line))


def test_command_line_values_change_all_united_presets(tmp_path: Path) -> None:
    line = ["+experiment=shallue2018/figure5", "batch_size=256", "trials=3", "-m", f"store={tmp_path}"]
    studies = planning.request(overrides.command_line(line)).studies
    assert [(study.batch_size, study.trials) for study in studies] == [(256, 3)] * 6


def test_all_of_it_is_planned_without_jax_or_data(tmp_path: Path) -> None:
    code = (
        "import sys; from sweeps import overrides, planning\n"
        f"line = overrides.command_line(['+experiment=shallue2018/all', '-m', 'store={tmp_path}'])\n"
        "studies = planning.request(line).studies\n"
        "print(len(studies), [m for m in ('jax', 'grain', 'tensorflow_datasets') if m in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "454 []\n"


def test_data_that_are_not_there_are_missed_before_anything_runs(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sweeps", "+experiment=shallue2018/figure2", "-m", f"store={tmp_path / 'store'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: mnist is not prepared") and done.stderr.count("\n") == 1
