"""Points of a sweep are what Hydra composes of their overrides, although most are made of others."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from results.bad_input import BadInput
from sweeps import composition, readers
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
    ConfigStore.instance().store("schema", readers.config())
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
        (("batch_size=1,two",), "batch_size=two: 'two' is not a whole number"),
        (("seed=1,null",), "seed=null: a value is needed"),
        (("task=webgraph_synthetic", "cores=1,null"), "cores=null: a value is needed"),
    ],
)
def test_a_later_value_is_refused_as_a_first_one_is(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        composition.compose_all(CommandLine(words, True))
    assert str(refused.value) == message
