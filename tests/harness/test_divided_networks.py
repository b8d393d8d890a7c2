"""Networks whose examples meet in a norm, or with randomness of their own: divided as undivided, and learning."""

from collections.abc import Callable

import numpy as np
import pytest

from harness import engine, programs, search
from harness.division import divisions
from harness.run import Settings
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from tests.harness.divided_networks import BATCH, NETWORKS, generated_row
from tests.harness.test_mesh import program
from workloads import registry


def all_divisions(group: int) -> tuple[str, ...]:
    """All that do not cut a group, over up to eight devices."""
    every = [(shards, microbatches) for shards in (1, 2, 4, 8) for microbatches in (1, 2, 4)][1:]
    return tuple(f"{shards}x{microbatches}" for shards, microbatches in every if _may_be(group, shards, microbatches))


def _may_be(group: int, shards: int, microbatches: int) -> bool:
    try:
        return bool(divisions(BATCH, group, 8, shards, microbatches))
    except BadInput:
        return False


CASES = [
    # A group of 16 over two shards.
    pytest.param("resnet", 16, ("8x1",), id="resnet"),
    pytest.param("transformer_decoder", 1, ("8x2",), id="transformer_decoder"),
    *(
        pytest.param(name, group, None, id=f"{name}-{group}-all", marks=pytest.mark.slow)
        for name, group in [
            ("resnet", 4),
            ("resnet", 16),
            ("resnet", 64),
            ("resnet_of_four_stages", 16),
            ("resnet_of_group_norm", 1),
            ("transformer_decoder", 1),
        ]
    ),
]


@pytest.mark.parametrize(("name", "group", "some"), CASES)
def test_a_step_is_that_of_one_device(name: str, group: int, some: tuple[str, ...] | None) -> None:
    wanted = some or all_divisions(group)
    found = program("divided_networks", name, str(group), *wanted)
    assert found.keys() == set(wanted)
    # What a norm over a batch passes back are sums that nearly cancel: lanes batched and one by one, both undivided,
    # differ by 2e-6. In float64, gradients of all divisions agree to 1e-14.
    bound = 1e-5 if "ghost" in NETWORKS[name][1].values() else 1e-6
    for division, differences in found.items():
        assert differences["gradients"] <= bound, (division, differences)
        assert differences["states"] <= 1e-6, (division, differences)


def test_groups_over_several_shards_are_among_the_divisions() -> None:
    assert all_divisions(16) == ("1x2", "1x4", "2x1", "2x2", "4x1", "8x1")
    assert all_divisions(64) == ("2x1", "4x1", "8x1")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_it_learns(
    name: str, precision: str, make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the engine, and evaluated with running statistics and without dropout."""
    model, options = NETWORKS[name]
    if model == "resnet":
        options = options | {"group": 1 if options["norm"] == "group" else 16}
    programs.forget()
    monkeypatch.setitem(registry.DATASETS, "digits", generated_row(name, count=256))
    study = make_study(
        model=model,
        model_options=options,
        optimizer="momentum",
        precision=precision,
        batch_size=BATCH,
        budget_steps=100,
        space=SearchSpace({"learning_rate": Range("LOG", 0.03, 0.04), "momentum": Range("LINEAR", 0.8, 0.9)}),
        targets=(),
        trials=2,
    )
    record = engine.run(study, search.draw(study, range(2)), Settings(lanes=2))
    programs.forget()
    for trial in range(2):
        losses = record.metrics["validation_loss"][record.trial == trial]
        assert losses.dtype == np.float32
        assert losses[-1] < 0.7 * np.log(11) < losses[0]
