"""The costs of layouts in closed form are those of compiled steps, except in the layouts that ``kind`` names."""

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analysis import measured_layouts
from analysis.measured_layouts import MeasuredLayout
from results.costs import closed_forms, collectives, predictions
from results.costs.closed_forms import Costs, closed_form
from results.costs.hardware import HARDWARE
from results.plans.layout import AHEAD
from workloads.layouts.notation import read_layout, read_mesh
from workloads.layouts.shapes import PRESETS, SHAPES, Shape, parameters, tensors

ROOT = Path(__file__).parents[2]
LLAMA = SHAPES["llama_7b"]
ON_TPUS: dict[str, Any] = {"width": 2, "rematerialized": True, "joined": True}


class Compared(NamedTuple):
    """Costs in closed form and the counts of a compiled step."""

    kind: str
    costs: Costs
    devices: int
    row: Mapping[str, Any]

    @property
    def flops(self) -> bool:
        return self.costs.flops * self.devices == self.row["executed_flops"]

    @property
    def exact(self) -> bool:
        """Whether FLOPs, arguments, and the count and bytes of all collectives are equal."""
        arguments = self.costs.argument_bytes == self.row["argument_bytes"]
        return self.flops and arguments and self.costs.totals == counted(self.row)

    @property
    def sent(self) -> float:
        """Wire bytes relative to the counted ones."""
        ours, counted = sum(wire for _, _, wire in self.costs.totals.values()), self.row["wire_bytes"]
        return 1.0 if ours == counted else ours / counted

    @property
    def held(self) -> float:
        """Estimated memory besides the arguments, relative to the compiler's."""
        return self.costs.activation_bytes / self.row["temporary_bytes"]


def counted(row: Mapping[str, Any]) -> collectives.Totals:
    found = json.loads(row["collectives"])
    return {(each["operation"], each["axes"]): (each["count"], each["bytes"], each["wire_bytes"]) for each in found}


def kind(mesh: Mapping[str, int], layout: Mapping[str, str]) -> str:
    """The case in which the partitioner may do something else, as named in docs/layouts.md, or ``equal``."""
    split = {name: axis for name, axis in layout.items() if mesh[axis] > 1}
    wide = {axis for axis, size in mesh.items() if size > 1}
    embed = split.get("embed")
    if "kv" in split:
        return "kv"
    if embed and embed != split.get("act_embed"):
        if embed != split.get("batch"):
            return "embed without batch"
        return "equal" if wide == {embed} else "embed and a second mesh axis"
    if "length" in split:
        return "length"
    if len({"act_embed", "act_length", "memory_length", "layers"} & split.keys()) > 1:
        return "several"
    if "memory_length" in split and "batch" in split:
        return "several"
    if "act_length" in split and wide - {*split.values()}:
        return "act_length and an idle mesh axis"
    return "equal"


def compared(
    shape: Shape,
    batch: int,
    length: int,
    mesh: Mapping[str, int],
    layout: Mapping[str, str],
    row: Mapping[str, Any],
    **options: Any,
) -> Compared:
    costs = closed_form(shape.sizes(batch, length), parameters(shape), mesh, layout, **options)
    return Compared(kind(mesh, layout), costs, math.prod(mesh.values()), row)


def of_study(one: MeasuredLayout, **options: Any) -> Compared:
    """When these were counted, a batch was one array of ``length + 1`` tokens instead of inputs and labels.

    Metaparameters and the schedule were constants, and Adam's number of steps was the only number among the arguments.
    """
    study = one.study
    shape = Shape(**study.model_options)
    mesh = read_mesh(study.mesh)
    model = tensors(shape, study.batch_size, study.length)
    layout = read_layout(study.layout, mesh, model, strict=study.strict)
    sequences = study.batch_size // mesh.get(layout.get("batch", ""), 1)
    added = 4 * (sequences * (study.length - 1) + closed_forms.NUMBERS - 1)
    row = one.row | {"argument_bytes": one.row["argument_bytes"] + added}
    return compared(shape, study.batch_size, study.length, mesh, layout, row, **options)


def by_kind(found: Iterable[Compared]) -> dict[str, tuple[int, int, int]]:
    """The layouts of each kind, how many of them have the counted FLOPs, and how many are exact."""
    table: dict[str, tuple[int, int, int]] = {}
    for one in found:
        count, flops, exact = table.get(one.kind, (0, 0, 0))
        table[one.kind] = count + 1, flops + one.flops, exact + one.exact
    return table


@pytest.fixture(scope="module")
def stored() -> list[MeasuredLayout]:
    found = measured_layouts.load(ROOT / "results" / "published")
    assert len(found) == 108
    return [one for one in found if not one.refused]


def test_most_layouts_of_the_release_cost_what_was_counted(stored: list[MeasuredLayout]) -> None:
    found = [of_study(one) for one in stored if one.study.engine_name != AHEAD]
    assert by_kind(found) == {
        "equal": (42, 42, 42),
        "kv": (3, 3, 0),
        "embed and a second mesh axis": (9, 3, 0),
        "length": (5, 2, 0),
        "act_length and an idle mesh axis": (1, 0, 0),
    }
    assert all(one.costs.argument_bytes == one.row["argument_bytes"] for one in found)
    assert all(0.65 < one.sent < 1.27 and 0.72 < one.held < 1.14 for one in found)


def test_layouts_compiled_for_tpus_send_the_counted_bytes(stored: list[MeasuredLayout]) -> None:
    found = [of_study(one, **ON_TPUS) for one in stored if one.study.engine_name == AHEAD]
    assert len(found) == 3
    for one in found:
        assert one.flops and 0.9 < one.held < 1.17
        assert one.costs.argument_bytes == pytest.approx(one.row["argument_bytes"], rel=3e-4)  # which are padded
        theirs = counted(one.row)
        assert {key: sums[1:] for key, sums in one.costs.totals.items()} == {k: sums[1:] for k, sums in theirs.items()}
        more = {key: theirs[key][0] - count for key, (count, _, _) in one.costs.totals.items()}
        assert all(count == (2 if axis == "batch" else 0) for (_, axis), count in more.items())


@pytest.mark.slow
def test_most_random_layouts_cost_what_the_compiler_says() -> None:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.harness.compiled_layouts", "60", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        compared(Shape(**row["shape"]), row["batch"], row["length"], row["mesh"], row["layout"], row) for row in rows
    ]
    assert by_kind(found) == {
        "equal": (36, 36, 36),
        "kv": (7, 4, 0),
        "embed without batch": (6, 0, 0),
        "length": (5, 3, 0),
        "several": (3, 3, 2),
        "act_length and an idle mesh axis": (3, 2, 2),
    }
    assert all(one.costs.argument_bytes == one.row["argument_bytes"] for one in found)
    assert all(0.34 < one.sent < 1.13 and 0.53 < one.held < 1.62 for one in found)


def test_megatron_on_6144_chips_sends_what_a_hand_computes() -> None:
    mesh = {"data": 384, "model": 16}
    layout = read_layout(PRESETS["megatron"], read_mesh("data:384;model:16"), tensors(LLAMA, 6144, 2048))
    costs = closed_form(LLAMA.sizes(6144, 2048), parameters(LLAMA), mesh, layout, width=2, joined=True)
    tokens = 6144 // 384 * 2048
    activation = tokens * 4096 * 2
    # Each block sums four activations. The table is looked up and the read-out has a gradient. The loss has three
    # sums, of which one is combined with this gradient.
    times, sent, _ = costs.totals["all-reduce", "model"]
    assert times == 4 * 32 + 1 + 1 + 2
    assert sent == (4 * 32 + 2) * activation + (2 + 4 + 4) * tokens
    assert costs.flops * 6144 == LLAMA.flops(6144, 2048)
    norms = (2 * 32 + 1) * 4096
    parameters_held = (LLAMA.parameters - norms) // 16 + norms
    assert costs.argument_bytes == 4 * (3 * parameters_held + 6144 // 384 * 2 * 2048 + 10)
    gradients = 2 * (LLAMA.parameters - 32000 * 4096 - norms) // 16 + 2 * norms + 4 * 32000 * 4096 // 16 + 4
    assert costs.totals["all-reduce", "data"][:2] == (33, gradients)


def test_rematerialization_repeats_all_but_the_last_matmul() -> None:
    layout = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
    arguments: tuple[Any, ...] = LLAMA.sizes(64, 2048), parameters(LLAMA), {"data": 4, "model": 8}, layout
    kept, again = (closed_form(*arguments, rematerialized=each) for each in (False, True))
    block = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 2048 * 4096
    assert (again.flops - kept.flops) * 32 == 2 * 64 * 2048 * 32 * (block - 4096 * 11008)
    assert again.totals["all-reduce", "model"][0] == kept.totals["all-reduce", "model"][0] + 32
    assert again.activation_bytes < kept.activation_bytes / 8


def test_accumulation_lets_a_large_batch_fit() -> None:
    """Llama 7B with 512 sequences of 2,048 tokens on 64 chips of v5e, in four parts and with blocked attention."""
    mesh, layout = {"data": 64}, {"batch": "data", "embed": "data"}

    def costs(**options: int) -> Costs:
        return closed_form(LLAMA.sizes(512, 2048), parameters(LLAMA), mesh, layout, **ON_TPUS, **options)

    whole, blocked = costs(), costs(attention_block=512)
    parts = costs(attention_block=512, accumulation=4)
    held = [one.argument_bytes + one.activation_bytes for one in (whole, parts)]
    assert held[1] < 16e9 < held[0]
    assert parts.argument_bytes == whole.argument_bytes
    assert (parts.flops, parts.work.activation_bytes) == (blocked.flops, blocked.work.activation_bytes)
    assert parts.work.weight_bytes == 4 * blocked.work.weight_bytes
    # Weights are gathered for each part, and gradients are summed once.
    sent, once = (one.totals["all-gather", "data"][2] for one in (parts, blocked))
    assert sent == pytest.approx(4 * once, rel=1e-3)  # tokens are gathered once
    assert parts.totals["all-reduce", "data"] == blocked.totals["all-reduce", "data"]
    # Adam reads the parameter, both moments and the gradient, and writes the first three.
    assert whole.work.state_bytes == pytest.approx(7 * 4 * (LLAMA.parameters - 65 * 4096) / 64, rel=1e-3)


def test_collectives_can_be_priced_like_those_of_a_compiled_step() -> None:
    """Their first groups are along the axes that the totals name."""
    mesh = {"data": 2, "model": 4, "more": 8}
    layout = {"batch": "data", "embed": "data", "heads": "model", "mlp": "model", "act_length": "more"}
    costs = closed_form(LLAMA.sizes(64, 2048), parameters(LLAMA), mesh, layout)
    assert collectives.totals(costs.collectives, mesh) == costs.totals
    assert {axis for _, axis in costs.totals} == {*mesh}
    assert 0 < collectives.total_seconds(HARDWARE["v5p"], costs.collectives, mesh) < math.inf


def test_layouts_of_6144_chips_are_ranked() -> None:
    """The parameters do not fit on one device. FSDP over all devices sends the least."""
    hardware = HARDWARE["v5p"]
    rates = predictions.rates("v5p", "tpu", "bfloat16")
    assert rates is not None
    steps, fits = {}, {}
    for model, name in itertools.product((1, 2, 4, 8, 16, 32), ("data_parallel", "fsdp", "megatron", "fsdp_megatron")):
        mesh = {"data": 6144 // model, "model": model}
        layout = dict(pair.split(":") for pair in PRESETS[name].split(";"))
        costs = closed_form(LLAMA.sizes(6144, 2048), parameters(LLAMA), mesh, layout, **ON_TPUS)
        links = collectives.total_seconds(hardware, costs.collectives, collectives.links(hardware, mesh))
        steps[name, model] = predictions.seconds(costs.work, rates, links=links).middle
        fits[name, model] = costs.argument_bytes + costs.activation_bytes <= hardware.memory_bytes
    assert [fits[name, 1] for name in ("data_parallel", "fsdp")] == [False, True]
    assert steps["fsdp", 1] == min(step for key, step in steps.items() if fits[key])


def test_the_weights_are_those_of_the_shapes() -> None:
    """They have the width of activations, because parameters are gathered before use."""
    for row in closed_forms.BLOCK:
        for matmul in row:
            if matmul.weight != closed_forms.KEYS:
                axes = parameters(LLAMA)[matmul.name][1:]
                assert tuple("act_embed" if axis == "embed" else axis for axis in axes) == matmul.weight
