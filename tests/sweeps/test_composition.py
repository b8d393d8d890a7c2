"""Points of a sweep are what Hydra composes of their overrides, although most are made of others; tables of presets."""

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

import conf
from results.bad_input import BadInput
from sweeps import choices, composition, help_text, kind_configs
from sweeps.overrides import CommandLine

SEED = 7
NETWORKS = {
    "task": ["digits_fc", "pydoc_transformer"],
    "optimizer": ["sgd", "adam"],
    "batch_size": ["16", "1_0"],
    "seed": ["0", "1"],
    "trials": ["4", "null"],
    "task.evaluation_ratio": ["1.1", "2", "1e1"],
    "optimizer.space.learning_rate.low": ["1e-4", "1"],
    "pruning": ["off", "'exact'"],
}
FACTORIZATIONS = {
    "task": ["webgraph_synthetic"],
    "als.dim": ["4", "8"],
    "als.norm_penalty": ["0.1", "1", "{scale: LOG, low: 1e-3, high: 1}"],
    "als.solver": ["cg", "lu"],
    "ratings.rows": ["100", "2e2", "x"],
    "cores": ["1", "2"],
    "seed": ["0", "1"],
}


def composed_by_hydra(lines: Sequence[str]) -> dict[str, object]:
    """The configuration of one point, without what Hydra says of itself."""
    ConfigStore.instance().store("schema", kind_configs.config())
    with initialize_config_module("conf", version_base="1.3"):
        plain = OmegaConf.to_container(compose("config", list(lines)), resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@pytest.mark.parametrize("points", [8, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("axes", [NETWORKS, FACTORIZATIONS], ids=["networks", "factorizations"])
def test_points_are_those_of_hydra(axes: dict[str, list[str]], points: int) -> None:
    swept = composition.compose_all(CommandLine(tuple(f"{key}={','.join(v)}" for key, v in axes.items()), True))
    lines = [[f"{k}={v}" for k, v in zip(axes, each, strict=True)] for each in itertools.product(*axes.values())]
    assert len(swept) == len(lines)
    for i in random.Random(SEED).sample(range(len(lines)), points):
        assert swept[i] == composed_by_hydra(lines[i]), lines[i]


def test_points_share_nothing() -> None:
    one, other = composition.compose_all(CommandLine(("task=digits_fc", "seed=1,2"), True))
    one["task"]["model"]["widths"].append(7)
    assert 7 not in other["task"]["model"]["widths"] and (one["seed"], other["seed"]) == (1, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("batch_size=1,two",), "batch_size=two: 'two' is not an integer"),
        (("seed=1,null",), "seed=null: a value is needed"),
        (("task=webgraph_synthetic", "cores=1,null"), "cores=null: a value is needed"),
    ],
)
def test_a_later_value_is_refused_as_a_first_one_is(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        composition.compose_all(CommandLine(words, True))
    assert str(refused.value) == message


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of presets in place of ours."""
    monkeypatch.setattr(conf, "__path__", [str(tmp_path)])
    choices.presets.cache_clear()
    (tmp_path / "experiment").mkdir()
    yield tmp_path / "experiment"
    choices.presets.cache_clear()


TABLE = """\
# A table.
presets:
  # One study
  # of eight examples.
  one: {batch_size: 8, +task.space.momentum: {scale: LINEAR, low: 0.1, high: 1e-1}}
  two/swept: {mesh: ["data:2", "data:1;model:2"], layout: "batch:data,mlp:model"}
  both: [own/two/swept, own/one]
"""


@pytest.mark.parametrize(("file", "itself"), [("presets", []), ("table", ["own/table"])])
def test_table_holds_presets_and_unites_them(file: str, itself: list[str], experiments: Path) -> None:
    (experiments / "own").mkdir()
    (experiments / "own" / f"{file}.yaml").write_text(TABLE)
    (experiments / "alone.yaml").write_text("# @package _global_\n# Alone.\ntrials: 3\n")
    assert choices.options("experiment") == ["alone", "own/both", "own/one", *itself, "own/two/swept"]
    assert choices.united("own/both") == ["own/two/swept", "own/one"]
    assert choices.united("own/one") == ["own/one"]
    for name in itself:
        assert {*choices.united(name)} == {"own/one", "own/two/swept"}
    assert choices.presets()["alone"].words == ("+experiment=alone",)
    assert choices.presets()["own/one"].words == (
        "batch_size=8",
        "+task.space.momentum={scale:'LINEAR',low:0.1,high:0.1}",
    )
    assert choices.presets()["own/two/swept"].words == (
        "mesh='data:2','data:1;model:2'",
        "layout='batch:data,mlp:model'",
    )
    assert [help_text._about("experiment", name) for name in ("own/one", "own/both")] == ["One study", ""]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("3", "3 is neither a mapping of keys to values nor a list of presets"),
        ("{seed: []}", "seed=[]: an axis needs at least one value"),
    ],
)
def test_what_is_no_preset_is_refused_with_its_place(content: str, fault: str, experiments: Path) -> None:
    (experiments / "presets.yaml").write_text(f"presets:\n  mine: {content}\n")
    with pytest.raises(BadInput) as refused:
        choices.options("experiment")
    assert str(refused.value) == f"{experiments / 'presets.yaml'}: mine: {fault}"


def test_quoted_texts_are_an_axis_and_bare_commas_refused() -> None:
    words = ("task=layouts", "strict=false", "mesh='data:8','data:4;model:2'")
    assert [one["mesh"] for one in composition.compose_all(CommandLine(words, True))] == ["data:8", "data:4;model:2"]
    with pytest.raises(BadInput, match="Put it in quotes"):
        composition.compose_all(CommandLine(("task=layouts", "strict=false", "mesh=data:4,model:2"), True))
