"""Layouts from the command line to rows in a store, a release, tables, figures and the page; and mistakes of users."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from analysis import __main__ as analysis_cli, measured_layouts
from analysis.figures import layout_figures
from analysis.measured_layouts import MeasuredLayout
from results import store
from results.checks import verify
from results.plans.layout import LayoutStudy
from results.release import release
from sweeps import __main__ as sweeps_cli, choices, overrides, planning
from workloads.layouts.notation import REFUSALS

ROOT = Path(__file__).parents[2]
STEP = ["task=layouts", "step.model=tiny", "step.batch_size=8", "step.length=8", "step.steps=2", "on_invalid=record"]
EMULATED = ["mesh='data:2;model:4','model:8'", "layout=megatron,'batch:data;mlp:model',data_parallel,'kv:model'"]
# The second is as Mesh-TensorFlow writes it: what the mesh has not is passed over.
TWINS = ("mesh=data:2 layout=batch:data,fsdp -m", "mesh=d:2 strict=false layout='batch:d,vocab:m'")


def sweep(*words: str) -> str:
    """Runs a command line as a user does, and returns what it says."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "sweeps", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with layouts of each engine that this machine has, and refusals; not to be written to."""
    folder = tmp_path_factory.mktemp("laid") / "store"
    sweep(*STEP, *EMULATED, f"store={folder}", "-m")
    for twin in TWINS:
        sweep(*STEP, *twin.split(), "engine=device", f"store={folder}")
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``python -m analysis`` with arguments: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code = analysis_cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def of(layouts: list[MeasuredLayout], engine: str) -> list[MeasuredLayout]:
    return [one for one in layouts if one.study.engine == engine]


def test_every_layout_has_a_row_and_all_that_ran_lose_alike(filled: Path) -> None:
    layouts = measured_layouts.load(filled)
    emulated = of(layouts, "cpu-emulated")
    assert len(emulated) == 8 and len(of(layouts, "device")) == 3
    refused = {(one.study.mesh, one.study.layout): one.row["refusal"] for one in emulated if one.refused}
    assert refused == {
        ("model:8", "batch:data;heads:model;mlp:model;vocab:model"): "unknown_mesh_axis",
        ("model:8", "batch:data;mlp:model"): "unknown_mesh_axis",
        ("model:8", "batch:data"): "unknown_mesh_axis",
    }
    assert set(refused.values()) <= REFUSALS.keys()
    table = measured_layouts.table(layouts)
    assert table.loc[table["refusal"].isna(), "same_loss"].all() and not table["same_loss"].isin([False]).any()
    assert table.loc[table["refusal"].notna(), "explanation"].str.contains("has no axis 'data'").all()


def test_emulated_devices_have_no_time_and_devices_have_one(filled: Path) -> None:
    layouts = measured_layouts.load(filled)
    assert all(one.row.get("step_seconds") is None for one in of(layouts, "cpu-emulated"))
    for one in of(layouts, "device"):
        low, middle, high = (one.number(f"step_seconds{end}") for end in ("_low", "", "_high"))
        assert 0 < low <= middle <= high < 10 and one.number("timed_steps") == 20
    factor = layout_figures.noise(of(layouts, "device"))
    seconds = [one.number("step_seconds") for one in of(layouts, "device") if "batch" in one.study.layout]
    assert factor is not None and 1 <= factor <= max(seconds) / min(seconds)


def test_one_process_runs_all_layouts_of_as_many_devices(filled: Path) -> None:
    commits = [commit for commit in store.catalogue(filled) if commit.plan["engine"] == "cpu-emulated"]
    runs = pd.concat([store.read(filled, commit.name).studies for commit in commits])
    assert runs["emulated"].all() and set(runs["device_count"]) == {8}


def test_store_of_layouts_verifies_and_exports(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.run(filled, lambda progress: None) == 0
    assert release.export(filled, tmp_path / "release", lambda line: None) == 0
    assert verify.run(tmp_path / "release", lambda progress: None) == 0
    assert capsys.readouterr().out.count("; no faults") == 2
    here, there = (measured_layouts.table(measured_layouts.load(place)) for place in (filled, tmp_path / "release"))
    pd.testing.assert_frame_equal(here, there)
    described = json.loads((tmp_path / "release" / "croissant.json").read_text())
    assert '"redundancy"' in json.dumps(described) and '"refusal"' in json.dumps(described)


def test_figures_and_page_show_them(filled: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = cli("figures", "--store", filled, "--out", tmp_path)
    assert code == 0, err
    names = {Path(line).stem for line in out.splitlines()}
    assert names == {
        *(f"layout_{kind}-tiny_8x8-cpu_emulated-8-v5p" for kind in ("cost", "pareto")),
        *(f"layout_{kind}-tiny_8x8-device-2-v5p" for kind in ("cost", "pareto", "predicted")),
        *("layout_published-utilization", "layout_published-memory", "layout_published_steps-ratio"),
    }
    assert cli("report", "--store", filled, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "Layouts on meshes" in page and "Step of layouts" not in page
    for words in ("data:2;model:4", "unknown mesh axis", "has no axis &#x27;data&#x27;", "step predicted for v5p, ms"):
        assert words in page, words
    assert "measured step, ms" in page


def test_the_table_of_the_command_is_that_of_the_store(filled: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = cli("layouts", "--store", filled, "--json")
    assert code == 0 and "3 of 11 layouts were rejected: 3 unknown_mesh_axis" in err
    assert len(json.loads(out)) == 11
    code, out, _ = cli("layouts", "--store", filled)
    assert code == 0 and "batch:data;mlp:model" in out and "next: python -m analysis figures" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["layout=batch:dta"],
            "layout 'batch:dta' at character 7: the mesh data:8 has no axis 'dta'; did you mean 'data'?",
        ),
        (["mesh=data:3"], "layout 'batch:data' at character 1: batch=16 does not divide into 3 parts"),
        (["mesh=data:2;data:4"], "mesh 'data:2;data:4' at character 8: axis 'data' appears twice"),
        (["devices=4"], "mesh 'data:8': 8 = 8, but there are 4 devices"),
        (["layout=fdsp"], "unknown layout 'fdsp'; did you mean 'fsdp'?"),
        (["engine=tpu"], "unknown engine 'tpu'"),
        (
            ["engine=tpu-aot"],
            "engine=tpu-aot: tpu-aot needs a topology, and other engines take none.",
        ),
        (["mesh=data:128", "step.batch_size=128"], "engine=cpu-emulated has at most 64 devices, not 128"),
        (
            ["mesh=data:4096", "step.batch_size=4096", "engine=device"],
            "engine=device: mesh data:4096 has 4,096 devices",
        ),
        (["step.model=bert"], "unknown step.model 'bert'"),
        (["+step.shape.layer=2"], "step.shape.layer: unknown key; did you mean 'layers'?"),
        (["+step.shape.kv=3"], "step.shape.kv=3 must be even, because positions rotate pairs"),
        (["+step.shape.tied=3"], "step.shape.tied must be true or false, not 3"),
        (["step.shape={layers: 2}"], "'layers' does not exist yet. Add it with a plus sign: +step.shape.layers=…"),
        (["step.length=0"], "step.length"),
        (["hardware=v7"], "unknown hardware 'v7'"),
        (["mesh='???'"], "mesh='???': a value is needed"),
        (["devices=0"], "devices must be an integer of at least 1, not 0"),
        (["engine=tpu-aot:zzz"], "'zzz' is not a TPU slice. Give its chips along two directions, such as v5e:2x2"),
        (["engine=tpu-aot:v9:2x2"], "unknown TPU version 'v9'"),
        (["engine=tpu-aot:v5e:2x4", "hardware=v5p"], "hardware=v5p: engine=tpu-aot:v5e:2x4 predicts costs of v5e"),
        (["engine=tpu-aot:v5e:4x4"], "mesh 'data:8': 8 = 8, but there are 16 devices"),
        (["engine=tpu-aot:v3:2x2", "devices=4"], "devices=4: engine=tpu-aot:v3:2x2 has 8 devices"),
        (
            ["strict=false", "layout=batch:data,heads:data", "-m"],
            "layout=batch:data,heads:data would sweep over single pairs. Put it in quotes: "
            "layout=\"'batch:data,heads:data'\"",
        ),
        (["on_invalid=no"], "unknown on_invalid"),
        (["step.task=digit_fc"], "unknown step.task 'digit_fc'; did you mean 'digits_fc'?"),
        (["step.task=movielens"], "step.task=movielens: this task does not train a network"),
        (
            ["step.task=digits_fc", "+step.shape.layers=2"],
            "step.shape changes a Transformer of step.model. Leave it out",
        ),
        (
            ["step.task=digits_fc", "layout=fsdp"],
            "layout 'batch:data;embed:data' at character 12: no tensor has an axis 'embed'",
        ),
        (["step.task=tiny/resnet", "step.batch_size=12"], "step.batch_size=12 cuts groups of 8 examples"),
        (
            ["step.task=digits_fc", "step.rematerialization=full"],
            "step.rematerialization=full: the model has no stacked",
        ),
        (
            ["step.task=digits_fc", "step.attention_block=8"],
            "step.attention_block: fully_connected has no blocked attention",
        ),
        (["step.rematerialization=attention+outs"], "unknown step.rematerialization 'outs'; did you mean 'out'?"),
        (["step.task=tiny/transformer_decoder", "step.rematerialization=query"], "unknown step.rematerialization"),
        (["+step.shape.key_heads=3"], "step.shape.key_heads=3 does not divide heads=8"),
        (["step.optimizer=adan"], "unknown optimizer 'adan'; did you mean 'adam'?"),
        (["step.precision=float16"], "unknown step.precision 'float16'"),
        (["refused=store"], "refused is now on_invalid. Use on_invalid=record"),
        (["notify=command"], "notify was removed. Run your command after the sweep"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps_cli.main(["task=layouts", "store=none", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error: {line}"), err
    assert err.count("\n") == 1


TASKS = {
    "digits_fc": "sgd",
    "digits_cnn": "momentum",
    "pydoc_transformer": "adamw",
    "tiny/fully_connected": "nesterov",
    "tiny/lstm_projected": "lamb",
    "tiny/resnet": "lars",
    "tiny/resnet_basic": "muon",
    "tiny/transformer_decoder": "adam",
    "tiny/vgg": "momentum",
}
QUICK = ("tiny/transformer_decoder",)


# Forms of models that no task without a download has, as a user's own tasks.
FORMS = {
    "decoder_untied": ("tiny/transformer_decoder", {"read_out": "untied"}),
    "decoder_blocks": ("tiny/transformer_decoder", {"attention_block": 16}),
    "lstm_untied_bias": ("tiny/lstm_projected", {"read_out": "untied_bias"}),
    "resnet_pre_activated": ("tiny/resnet", {"form": "pre_activated"}),
    "cnn_dropout": ("tiny/simple_cnn", {"kernel": 5, "dropout": 0.1}),
}


def compare_with_one_device(task: str, optimizer: str, folder: Path, *words: str) -> None:
    """Runs a step of a task under two layouts of four devices, and checks its loss and gradient."""
    words = (
        "task=layouts",
        f"step.task={task}",
        f"step.optimizer={optimizer}",
        "step.batch_size=16",
        "step.steps=2",
        "mesh='data:2;model:2'",
        "layout=batch:data,'batch:data;mlp:model'",
        "devices=4",
        f"store={folder}",
        "-m",
        *words,
    )
    assert sweeps_cli.main(words) == 0
    found = measured_layouts.load(folder)
    assert len(found) == 2 and measured_layouts.table(found)["same_loss"].all()
    for one in found:
        assert one.number("gradient_difference") < 1e-5
        assert one.study.optimizer == optimizer and one.study.dataset != "counting"
        assert one.number("predicted_step_seconds") > 0
    whole, divided = sorted(found, key=lambda one: len(one.study.layout))
    # Both devices along ``model`` repeat all. All four repeat the matmuls of Muon, a small share.
    assert whole.number("redundancy") == pytest.approx(2, rel=0.03 if optimizer == "muon" else 0.01)
    assert divided.number("redundancy") < 2


@pytest.mark.parametrize("task", [pytest.param(t, marks=() if t in QUICK else pytest.mark.slow) for t in TASKS])
def test_step_of_any_task_equals_that_of_one_device(task: str, tmp_path: Path) -> None:
    compare_with_one_device(task, TASKS[task], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_step_of_any_form_equals_that_of_one_device(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, options = FORMS[form]
    monkeypatch.setattr(choices, "own_files", {"task": {}, "optimizer": {}})
    fields = yaml.safe_load((ROOT / "conf" / "task" / f"{task}.yaml").read_text())
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / f"{form}.yaml").write_text(yaml.safe_dump(fields | {"model": fields["model"] | options}))
    compare_with_one_device(form, "momentum", tmp_path / "store", f"tasks={folder}")
    plans = [one.study for one in measured_layouts.load(tmp_path / "store")]
    assert all(options.items() <= dict(study.model_options).items() for study in plans)


@pytest.mark.parametrize(
    ("task", "options", "layout"),
    [
        ("lm1b_transformer", {"read_out": "untied"}, "batch:data;embed:data;heads:model;mlp:model;vocab:model"),
        ("mnist_cnn", {"kernel": 5}, "batch:data;embed:data;mlp:model"),
    ],
)
def test_forms_of_the_paper_have_layouts(task: str, options: dict[str, object], layout: str) -> None:
    study = planned(f"step.task=shallue2018/{task}", "mesh=data:2;model:2", f"layout='{layout}'")
    assert study.layout == layout and study.model_options == options


def test_a_model_without_matmuls_repeats_none(tmp_path: Path) -> None:
    words = ["task=layouts", "step.task=noisy_quadratic", "step.batch_size=16", "mesh=data:2", f"store={tmp_path}"]
    assert sweeps_cli.main([*words, "layout=batch:data"]) == 0
    (one,) = measured_layouts.load(tmp_path)
    assert (one.number("ideal_flops"), one.number("redundancy")) == (0, 1)
    assert one.number("gradient_difference") < 1e-5


def planned(*words: str) -> LayoutStudy:
    (study,) = planning.request(overrides.command_line(["task=layouts", *words])).studies
    assert isinstance(study, LayoutStudy)
    return study


def test_a_layout_is_one_study_however_it_is_written() -> None:
    """Names of Mesh-TensorFlow, pairs that it passes over and their order make no other step."""
    ours = planned("mesh=batch:8", "layout=batch:batch")
    theirs = planned("mesh=batch:8", "strict=false", "layout='vocab:model,batch:batch,intermediate:model'")
    assert ours == theirs and ours.layout == "batch:batch" and ours.strict


def test_old_plans_without_blocks_share_the_stream_of_new_ones() -> None:
    plain = planned("mesh=data:8")
    assert {"attention_block", "key_heads"} & {*plain.plan(), *plain.model_options} == set()
    blocked = planned("mesh=data:8", "step.attention_block=16", "step.rematerialization=attention+out")
    assert (blocked.attention_block, blocked.kept) == (16, ("attention", "out"))
    assert blocked.stream == plain.stream and blocked.name != plain.name
    assert blocked.labels.model == f"{plain.labels.model}_rematerialized_keeping_attention_out_blocks_of_16"
    assert type(blocked).from_plan(blocked.plan(), blocked.request) == blocked
    grouped = planned("mesh=data:8", "+step.shape.key_heads=2", "+step.shape.window=9")
    assert grouped.model_options == dict(plain.model_options) | {"key_heads": 2, "window": 9}


@pytest.mark.parametrize(
    ("mesh", "layout", "redundancy"),
    [
        ("data:4;model:2", "batch:data;heads:model;key_heads:model;mlp:model;vocab:model", 1.0),
        ("data:2;model:4", "batch:data;embed:data;heads:model;mlp:model;vocab:model", 1.3),
        ("data:8", "length:data", 8.0),
    ],
)
@pytest.mark.slow
def test_grouped_queries_in_blocks_have_layouts(mesh: str, layout: str, redundancy: float, tmp_path: Path) -> None:
    words = ["task=layouts", "step.batch_size=8", "step.attention_block=16", "step.rematerialization=attention+out"]
    words += ["+step.shape.key_heads=2", "+step.shape.window=24", "+step.shape.layers=2", "devices=8"]
    assert sweeps_cli.main([*words, f"mesh='{mesh}'", f"layout='{layout}'", f"store={tmp_path}"]) == 0
    (one,) = measured_layouts.load(tmp_path)
    assert one.number("gradient_difference") < 1e-5
    assert 1 <= one.number("redundancy") < 1.2 * redundancy


def test_costs_are_predicted_for_the_tpu_that_is_compiled_for() -> None:
    for topology, hardware in {"v5e:2x4": "v5e", "v3:2x2": "v3", "v4:2x2x2": "v4p", "v5p:2x2x2": "v5p"}.items():
        assert planned(f"engine=tpu-aot:{topology}", "mesh=data:8").hardware == hardware
    assert planned("engine=tpu-aot:tpu7x:2x2x1", "mesh=data:8").hardware == "tpu7x"
    assert planned("mesh=data:8").hardware == "v5p"


def test_steps_of_another_shape_or_precision_have_own_pictures(filled: Path) -> None:
    layouts = of(measured_layouts.load(filled), "cpu-emulated")
    usual = next(one for one in layouts if not one.refused)
    others = [
        dataclasses.replace(usual, study=dataclasses.replace(usual.study, **change))
        for change in (
            {"precision": "bfloat16"},
            {"rematerialization": "full"},
            {"model_options": dict(usual.study.model_options) | {"layers": 3}},
        )
    ]
    found = layout_figures.groups([*layouts, *others])
    assert sorted(len(members) for _, _, members in found) == [1, 1, 1, 5]
    assert len({title for title, _, _ in found}) == 3, "a shape with other numbers has another name, given by its plan"
    assert planned("+step.shape.layers=1").model == "small_layers1"
    assert {one.study.labels.model for one in others} >= {"tiny_8x8_bfloat16", "tiny_8x8_rematerialized"}
    off = usual.losses * (1 + 2e-3)
    rounded = [dataclasses.replace(one, losses=one.losses * (1 + i * 2e-3)) for i, one in enumerate([others[0]] * 2)]
    assert measured_layouts.table(rounded)["same_loss"].all(), "bfloat16 has eight bits"
    assert not measured_layouts.table([usual, dataclasses.replace(usual, losses=off)])["same_loss"].any()


@pytest.mark.parametrize(
    ("preset", "count", "devices"),
    [("quickstart", 70, 8), ("mesh_tf_bert", 6, 512), ("mesh_tf_lm", 1, 512), ("megatron", 12, 256), ("cores", 32, 2)],
)
def test_presets_are_distinct_layouts_on_as_many_devices(preset: str, count: int, devices: int) -> None:
    line = overrides.command_line([f"+experiment=layouts/{preset}", "-m"])
    studies = planning.request(line).studies
    assert len(studies) == len({study.name for study in studies}) == count
    assert {study.device_count for study in studies if isinstance(study, LayoutStudy)} == {devices}
