"""Lanes and the division of a batch follow from memory, where nobody says them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.run import Record, Settings
from harness.runners import engine
from harness.step import layout_choices, mesh, programs, shardings
from harness.step.batch_partition import Division, Request, divisions
from harness.step.programs_key import programs_key
from harness.trials import search
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from tests.harness.test_mesh import program


def needed(study: BatchStudy, lanes: int, microbatches: int = 1) -> int:
    """Bytes of the programs of a study."""
    return programs.programs_for(programs_key(study), lanes, "map", Division(1, microbatches))[0].bytes


def run(study: BatchStudy, settings: Settings, free: int | None, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Four trials of a study on a device with so much memory."""
    monkeypatch.setattr(mesh, "device_bytes", lambda: free)
    return engine.run(study, search.draw(study, range(4)), settings)


def test_fewer_lanes_are_tried_before_microbatches(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(model_options={"widths": [256]}, batch_size=512, budget_steps=4)
    whole, one, parts = (needed(study, *of) for of in ((32,), (1,), (1, 4)))
    assert whole > one > parts
    roomy = run(study, Settings(lanes=None), None, monkeypatch)
    assert (roomy.lanes, roomy.shards, roomy.microbatches) == (32, 1, 1)
    few = run(study, Settings(), one, monkeypatch)
    assert (few.lanes, few.shards, few.microbatches) == (1, 1, 1)
    for name, values in roomy.metrics.items():
        assert np.array_equal(values.view(np.int32), few.metrics[name].view(np.int32))
    tight = run(study, Settings(), parts, monkeypatch)
    assert tight.lanes == 1 and 1 < (tight.microbatches or 0) <= 4
    for name, values in roomy.metrics.items():
        np.testing.assert_allclose(tight.metrics[name], values, rtol=1e-3)


def test_what_is_told_is_done_and_what_fits_nowhere_is_said(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(budget_steps=4, batch_size=2)
    data = 400_000  # bytes, somewhat more than the training data, and less than any program needs
    told = run(study, Settings(lanes=1, shards=1, microbatches=2), data, monkeypatch)
    assert (told.lanes, told.shards, told.microbatches) == (1, 1, 2)
    with pytest.raises(BadInput, match=r"batch_size=2 of digits needs 1 MB of memory on each device, which has 0 MB"):
        run(study, Settings(lanes=1), data, monkeypatch)
    with pytest.raises(BadInput, match=r"digits keeps 0 MB of training data on each device"):
        run(study, Settings(), 1, monkeypatch)


@given(
    batch=st.integers(1, 300),
    group=st.sampled_from([1, 2, 4, 16, 32]),
    devices=st.integers(1, 8),
    shards=st.none() | st.integers(1, 8),
    microbatches=st.none() | st.integers(1, 8),
)
def test_no_division_cuts_a_group(
    batch: int, group: int, devices: int, shards: int | None, microbatches: int | None
) -> None:
    try:
        found = divisions(batch, group, devices, Request(shards, microbatches))
    except BadInput:
        assert batch % group or shards or microbatches
        return
    assert shards or microbatches or found[0] == Division(1, 1)
    assert len(set(found)) == len(found)
    for division in found:
        assert division.shards == (shards or division.shards) and division.microbatches == (
            microbatches or division.microbatches
        )
        own = division.examples(batch)
        assert own * division.shards >= batch
        # The groups that a part of the batch, which is taken at once, has examples of; several shards may share one.
        part = own // division.microbatches
        parts = [range(i, min(i + part, batch)) for i in range(0, batch, part)]
        at_once = 1 if group == 1 or division.microbatches > 1 else len(parts)
        for i in range(0, len(parts), at_once):
            together = {j for p in parts[i : i + at_once] for j in p}
            cut = {j // group for j in together} & {j // group for j in set(range(batch)) - together}
            assert not cut


def test_a_batch_of_no_whole_groups_is_refused() -> None:
    with pytest.raises(BadInput, match="batch_size=48 is not a multiple of the 32 examples normalized together"):
        divisions(48, 32, 1, Request())
    with pytest.raises(
        BadInput, match=r"microbatches=4 would split the 32 examples that are normalized together\. Use smaller"
    ):
        divisions(64, 32, 1, Request(None, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("digits_fc", "+task.model.widths=[2048,2048]"),
        ("tiny/transformer_decoder", "task.model.d_model=256", "task.model.d_ff=1024"),
        (
            "tiny/transformer_decoder",
            "task.model.d_model=256",
            "task.model.d_ff=1024",
            "+task.model.read_out=untied",
        ),
    ],
    ids=["digits_fc", "transformer_decoder", "transformer_decoder_untied"],
)
def test_three_layouts_that_fit_are_named(words: tuple[str, ...]) -> None:
    found = program("fitting", "0.5", *words)
    assert found["told"].count("mesh=") == 3
    assert len(found["needed"]) == 3  # all of them within eight devices
    assert max(found["needed"].values()) <= 1, found


def test_model_without_axes_has_no_layout_in_one_line(make_study: Callable[..., BatchStudy]) -> None:
    nameless = programs.workload_of(programs_key(make_study()))._replace(axes=None)
    assert layout_choices.choices(nameless, 64, Division(), needed=2e9, free=1e9) == []
    with pytest.raises(BadInput, match=r"^the model does not name the axes of its parameters.*docs/add/axes\.md\.$"):
        shardings.check(nameless, Division(2, 1, (), (("embed", "data"),)), 64)
