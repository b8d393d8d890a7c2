import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from omegaconf import OmegaConf

from harness.processes import processors
from harness.run import Settings
from results import store
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.kinds import from_plan
from results.storage import commits
from results.storage.compaction import TABLES
from sweeps import choices, kind_configs, overrides, planning
from sweeps.configured_study import ConfiguredStudy
from sweeps.planning import Request
from sweeps.study_run import run_study


def request(*words: str, folder: Path | str = "results/local") -> Request:
    return planning.request(overrides.command_line([*words, f"store={folder}"]))


@pytest.mark.parametrize(
    ("budget", "batch_size", "steps"),
    [
        ("{steps: 50, epochs: null, at_least_steps: null}", 64, 50),
        ("{steps: null, epochs: 2, at_least_steps: null}", 1, 2822),
        ("{steps: null, epochs: 2, at_least_steps: null}", 1000, 3),
        ("{steps: null, epochs: 2, at_least_steps: 10}", 1000, 10),
        ("{steps: 7, epochs: 2, at_least_steps: 10}", 1000, 7),
        ("{steps: null, epochs: null, examples: 640, at_least_steps: null}", 64, 10),
        ("{steps: null, epochs: 1, examples: 640, at_least_steps: null}", 64, 10),
    ],
)
def test_budgets(budget: str, batch_size: int, steps: int) -> None:
    (study,) = request(f"batch_size={batch_size}", f"task.budget={budget}").studies
    assert study.budget_steps == steps


def test_axes_are_combined_and_the_command_line_wins() -> None:
    studies = request("optimizer=sgd,nesterov", "batch_size=1,2", "trials=3", "-m").studies
    assert [(s.optimizer, s.batch_size) for s in studies] == [("sgd", 1), ("sgd", 2), ("nesterov", 1), ("nesterov", 2)]
    assert {s.trials for s in studies} == {3}
    assert len(request("+experiment=quickstart", "-m").studies) == 33
    assert len(request("+experiment=quickstart", "batch_size=64", "-m").studies) == 3
    assert len(request("+experiment=quickstart", "batch_size=64,128", "optimizer=glob(n*)", "-m").studies) == 2
    (single,) = request("+experiment=quickstart", "batch_size=64", "optimizer=sgd").studies
    assert (single.pruning, single.optimizer) == ("off", "sgd")


def test_a_bare_off_which_yaml_reads_as_false_turns_pruning_off() -> None:
    shape = OmegaConf.structured(kind_configs.config())
    as_read = OmegaConf.merge(shape, OmegaConf.create("pruning: off")).pruning
    assert as_read == "False"
    written, bare = (request(f"pruning={word}", "confirm=6").studies for word in ("off", as_read))
    assert written == bare and {(one.pruning, one.confirm_top) for one in bare} == {("off", 5)}
    with pytest.raises(BadInput, match="unknown pruning 'True'; choices: exact, off"):
        request("pruning=true")


@pytest.mark.parametrize(
    "name", ["a (1)", "ünï", "with space", "x=y,z", "1e3", "null", "${x}", "it's", "[a]", "~tilde", "-dash", "a\\b"]
)
def test_the_name_of_a_store_has_any_letters(tmp_path: Path, name: str) -> None:
    for words in (
        [f"store={tmp_path}/{name}"],
        ["--store", f"{tmp_path}/{name}"],
        [f"--store={tmp_path}/{name}", "-m"],
    ):
        assert planning.request(overrides.command_line(["trials=1", *words])).store == tmp_path / name
    quoted = overrides.command_line([f"store='{tmp_path}/{name}'"])
    assert planning.request(quoted).store == tmp_path / name


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert planning.request(overrides.command_line(["store=~/a"])).store == tmp_path / "a"


def test_a_preset_without_m_is_told_of_with_its_store() -> None:
    with pytest.raises(BadInput, match=r"Run `python -m sweeps \+experiment=quickstart 'store=a \(1\)' -m`"):
        planning.request(overrides.command_line(["+experiment=quickstart", "store=a (1)"]))


def test_a_study_asked_for_twice_is_one_with_the_most_trials() -> None:
    studies = request("trials=4,16,8", "-m").studies
    assert [s.trials for s in studies] == [16]


def test_words_of_a_study_asked_for_in_two_ways(make_study: Callable[..., BatchStudy]) -> None:
    few, many = make_study(trials=4, pruning="off", confirm=2), make_study(trials=16, pruning="off")
    largest = make_study(trials=16, pruning="off", confirm=2)
    configured = [ConfiguredStudy(few), ConfiguredStudy(many)]
    words = planning._words([largest], configured, [("seed=1", "trials=4", "confirm=2"), ("trials=16", "seed=1")])
    assert words == {largest.name: ("seed=1", "trials=16", "confirm=2", "confirm_top=1")}


def test_two_plans_whose_hashes_begin_alike_are_two_studies(
    tmp_path: Path, colliding_seeds: Callable[[BatchStudy], tuple[int, int]]
) -> None:
    line = ["task=digits_fc", "optimizer=sgd", "batch_size=64", "trials=4", "pruning=off", "-m"]
    (study,) = request(*line, folder=tmp_path).studies
    assert isinstance(study, BatchStudy)
    one, two = seeds = colliding_seeds(study)
    asked = [*line, f"seed={one},{two}"]
    studies = request(*asked, folder=tmp_path).studies
    assert [each.seed for each in studies if isinstance(each, BatchStudy)] == list(seeds)
    assert len({each.name for each in studies}) == len({each.name[:-8] for each in studies}) + 1 == 2
    # The one that a store holds under the older name of both stays there, and the other is not taken for it.
    older = dataclasses.replace(studies[1], digits=8)
    store.ask(tmp_path, older)
    assert [each.name for each in request(*asked, folder=tmp_path).studies] == [studies[0].name, older.name]


def test_a_task_may_replace_ranges_and_fix_a_metaparameter() -> None:
    (study,) = request("+task.space.momentum=0.9", "+task.space.learning_rate={scale: LINEAR, low: 0, high: 1}").studies
    assert study.space["momentum"].values == (0.9,)
    assert study.space["learning_rate"].scale == "LINEAR"
    decaying = "{decay_fraction: {scale: LINEAR, low: 0.5, high: 1}, end_learning_rate_factor: 0.01}"
    (study,) = request("task.schedule=linear", f"+task.space={decaying}").studies
    assert set(study.space) == {"learning_rate", "momentum", "decay_fraction", "end_learning_rate_factor"}


@pytest.mark.parametrize("task", ["digits_fc", "digits_cnn", "noisy_quadratic", "pydoc_transformer", "pydoc_lstm"])
def test_a_study_read_back_from_its_plan_is_called_the_same(task: str) -> None:
    (study,) = request(f"task={task}").studies
    plan = json.loads(study.plan_json)
    for options in (dict(items) for items in itertools.permutations(plan["model_options"].items())):
        read = from_plan(plan | {"model_options": options}, study.trials)
        assert (read.name, read.labels.model, read.stream) == (study.name, study.labels.model, study.stream)


def test_several_targets_and_whole_runs() -> None:
    targets = "[{metric: validation_loss, value: 0.5}, {metric: validation_error, value: 0.1}]"
    (study,) = request(f"task.targets={targets}").studies
    assert [target.metric for target in study.targets] == ["validation_loss", "validation_error"]
    assert request("task.targets=[]", "pruning=off").studies[0].targets == ()


NETWORKS = choices.tasks("batch")


EVERY = list(itertools.product(NETWORKS, choices.options("optimizer")))


@pytest.mark.parametrize(  # every optimizer and some tasks, and a slow test of every pair
    ("task", "optimizer"),
    [
        pair if number % 37 == 0 or "digits_fc" in pair else pytest.param(*pair, marks=pytest.mark.slow)
        for number, pair in enumerate(EVERY)
    ],
)
def test_every_task_goes_with_every_optimizer(task: str, optimizer: str, choosing: Callable[[str], list[str]]) -> None:
    (study,) = request(*choosing(task), f"optimizer={optimizer}", "batch_size=32").studies
    assert study.optimizer == optimizer


def test_absent_data_are_a_line_that_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    asked = request("task.dataset=mnist")  # a plan needs no data
    with pytest.raises(BadInput, match=r"python -m workloads.prepare mnist"):
        planning.make_ready(asked, asked.studies, print)


def test_evaluations_cost_no_more_than_their_share() -> None:
    for share in (0.1, 0.5, 0.9):
        for batch_size in (1, 16, 256):
            (study,) = request(f"batch_size={batch_size}", f"task.evaluation_share={share}").studies
            evaluated = np.arange(1, len(study.evaluations)) * 772  # 386 examples of two splits
            trained = study.evaluations[:-1] * batch_size
            assert np.all(evaluated / (evaluated + trained) <= share + 1e-6)
    (study,) = request("batch_size=256", "task.evaluation_share=1").studies
    assert study.evaluation_spacing == 0


def test_endless_stream_has_no_epochs_and_any_batch_size() -> None:
    (study,) = request("task=noisy_quadratic", "batch_size=100000", "task.budget.steps=9").studies
    assert study.budget_steps == 9
    with pytest.raises(BadInput, match=r"endless stream"):
        request("task=noisy_quadratic", "task.budget.epochs=2")


SINGLE = [preset for preset in choices.options("experiment") if choices.united(preset) == [preset]]


LARGE = ("published/digits", "published/large", "optimizers/digits")  # which take seconds to compose


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in SINGLE]
)
def test_every_preset_is_a_valid_sweep(preset: str) -> None:
    batch = [] if preset.startswith(("alx2022/", "layouts/")) else ["batch_size=64,128"]
    studies = request(f"+experiment={preset}", *batch, "-m").studies
    assert len(studies) > (preset not in ("alx2022/tuning", "layouts/mesh_tf_lm"))


def test_presets_unite_presets_that_are_there() -> None:
    assert {name for preset in choices.options("experiment") for name in choices.united(preset)} == {*SINGLE}


def test_a_study_does_not_grow_on_another_backend_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["task=noisy_quadratic", "optimizer=sgd", "batch_size=4", "task.budget.steps=5", f"store={tmp_path}/store"]
    (study,) = planning.request(overrides.command_line([*line, "trials=2"])).studies
    run_study(tmp_path / "store", study, Settings())
    monkeypatch.setattr(processors, "accelerators", lambda: ("gpu", 1))
    assert planning.to_run(planning.request(overrides.command_line([*line, "trials=2"]))).studies == ()
    grown = planning.request(overrides.command_line([*line, "trials=3"]))
    with pytest.raises(BadInput, match=r"was measured on cpu, and gpu rounds differently"):
        planning.to_run(grown)
    for elsewhere in ("slurm", "ray"):  # whose jobs check that where they run
        assert planning.to_run(dataclasses.replace(grown, launcher={"name": elsewhere})).studies == grown.studies
    told = planning.request(overrides.command_line([*line, "trials=3", "mixed_backends=true"]))
    assert sum(planning.to_run(told).missing.values()) == 1


def test_results_stored_before_a_kill_count_uncommitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["task=noisy_quadratic", "optimizer=sgd", "batch_size=4", "task.budget.steps=5", "trials=2"]
    request = planning.request(overrides.command_line([*line, f"store={tmp_path}/store"]))
    (study,) = request.studies
    run_study(tmp_path / "calm", study, Settings())
    commit = commits.newest_commit(tmp_path / "calm", study.name)
    assert commit is not None
    tables = {table: commits.read_table(commit, table) for table in TABLES}
    first = {
        table: rows.filter(pc.field("trial") < 1) if table != "studies" else rows for table, rows in tables.items()
    }
    store.ask(tmp_path / "store", study)
    with store.claim(tmp_path / "store", study.name) as claim:
        claim.write(first)  # and is killed here
    assert commits.newest_commit(tmp_path / "store", study.name) is None
    assert planning.to_run(request).missing == {study.name: 1}
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processors, "accelerators", lambda: ("gpu", 1))
        with pytest.raises(BadInput, match=r"was measured on cpu, and gpu rounds differently"):
            planning.to_run(request)
    run_study(tmp_path / "store", study, Settings())
    assert store.read(tmp_path / "store").measurements.equals(store.read(tmp_path / "calm").measurements)


def test_precision_is_in_the_plan_only_where_it_is_not_float32() -> None:
    line = ["task=digits_fc", "optimizer=sgd", "batch_size=4"]
    (plain,) = planning.request(overrides.command_line(line)).studies
    (same,) = planning.request(overrides.command_line([*line, "precision=float32"])).studies
    (rounded,) = planning.request(overrides.command_line([*line, "precision=bfloat16"])).studies
    assert "precision" not in plain.plan() and (same.name, same.stream) == (plain.name, plain.stream)
    assert rounded.plan()["precision"] == "bfloat16" and rounded.name != plain.name
    with pytest.raises(BadInput, match="'float16'"):
        planning.request(overrides.command_line([*line, "precision=float16"]))
