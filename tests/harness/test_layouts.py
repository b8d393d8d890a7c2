"""Layouts on eight emulated devices: refused with a kind, or the loss and gradients of one device; what they cost.

By the extra plan, layouts compiled ahead for TPUs that are not there: everything is accounted for, and what fits.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import measured_layouts
from analysis.measured_layouts import MeasuredLayout
from harness.compiled import hlo
from harness.runners import layouts
from tests.harness.test_mesh import UNOPTIMIZED
from workloads.layouts.notation import REFUSALS
from workloads.layouts.shapes import SHAPES

ROOT = Path(__file__).parents[2]
WITHIN = 1e-5
CORE_OF_V3 = 15.48 * 2**30  # bytes, as its compiler says


def laid(*words: str, timeout: float = 600) -> list[dict]:
    """What the program ``laid`` prints."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    environment |= {"XLA_FLAGS": UNOPTIMIZED}
    command = [sys.executable, "-m", "tests.harness.laid", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("count", "least"), [pytest.param(300, 60, marks=pytest.mark.slow)])
def test_random_layout_is_refused_or_equals_one_device(count: int, least: int) -> None:
    rows = laid("tiny", "16", "16", "random", str(count), "1", timeout=3600)
    assert len(rows) == count
    done = [row for row in rows if row["refusal"] is None]
    assert all(row["refusal"] in REFUSALS and row["explanation"] for row in rows if row not in done)
    assert len(done) >= least and len({row["refusal"] for row in rows}) >= 3
    for row in done:
        assert row["losses"] == pytest.approx(done[0]["losses"], rel=WITHIN), row
        assert row["gradient_difference"] < WITHIN, row
        assert row["redundancy"] >= 1 - 1e-9, row
        assert row["unknown_loops"] == 0, row


BERT = "batch:batch,vocab:model,intermediate:model,num_heads:model,experts:batch"
MEGATRON = "data:2;model:4|batch:data;heads:model;mlp:model;vocab:model|strict"


@pytest.fixture(scope="module")
def known() -> dict[str, dict]:
    """Cases known by hand: batch 16, length 64, d 128, ff 512, vocabulary 1,024, 4 layers."""
    return cases(
        {
            "partial": "data:2;model:4|batch:data;mlp:model|strict",
            "data": "data:2;model:4|batch:data|strict",
            "megatron": MEGATRON,
            "plain": "batch:8|batch:batch|strict",
        }
    )


@pytest.fixture(scope="module")
def alike() -> dict[str, dict]:
    """Pairs of cases that cost the same."""
    return cases(
        {
            "megatron": MEGATRON,
            "renamed": "x:2;y:4|batch:x;heads:y;mlp:y;vocab:y|strict",
            "bert": f"batch:8|{BERT}|mesh-tensorflow",
            "plain": "batch:8|batch:batch|strict",
        }
    )


def cases(texts: dict[str, str]) -> dict[str, dict]:
    return dict(zip(texts, laid("small", "16", "64", "given", *texts.values()), strict=True))


@pytest.mark.parametrize(("case", "redundancy"), [("partial", 2.4), ("data", 4), ("megatron", 1)])
def test_redundancy_known_by_hand(known: dict[str, dict], case: str, redundancy: float) -> None:
    assert known[case]["redundancy"] == pytest.approx(redundancy, rel=1e-9)
    assert known[case]["gradient_difference"] < WITHIN


def test_data_parallelism_sums_gradients_of_its_parameters(known: dict[str, dict]) -> None:
    """A ring sends 2 (n−1)/n of the gradients in float32; little else is exchanged."""
    sent = 2 * (2 - 1) / 2 * 4 * 1_049_728
    assert known["data"]["wire_bytes"] == pytest.approx(sent, rel=0.001)
    assert {each["axes"] for each in json.loads(known["data"]["collectives"])} == {"data"}


def test_parameters_and_optimizer_are_where_the_layout_puts_them(known: dict[str, dict]) -> None:
    state = 3 * 4 * 1_049_728  # parameters and two means, float32
    batch = 8 * 2 * 64 * 4  # tokens, and those that follow
    assert known["data"]["argument_bytes"] == pytest.approx(state + batch, abs=64)
    norms = 3 * 4 * 9 * 128  # which no axis of this layout splits
    assert known["megatron"]["argument_bytes"] == pytest.approx((state - norms) / 4 + norms + batch, abs=64)


@pytest.mark.slow
def test_bert_layout_of_mesh_tensorflow_is_data_parallelism(alike: dict[str, dict]) -> None:
    for column in ("losses", "executed_flops", "wire_bytes", "collectives", "peak_bytes"):
        assert alike["bert"][column] == alike["plain"][column]
    assert alike["bert"]["redundancy"] == pytest.approx(1, rel=1e-9)
    assert alike["bert"]["gradient_difference"] < WITHIN


def test_axis_of_all_devices_is_predicted_over_all_links(
    known: dict[str, dict],
) -> None:
    """8 chips of v5p are 2 × 2 × 2, with the links of three rings; float32 takes six passes of bfloat16."""
    plain = known["plain"]
    (summed,) = json.loads(plain["collectives"])
    assert (summed["operation"], summed["axes"]) == ("all-reduce", "batch")
    hops = summed["count"] * 3 * 8 ** (1 / 3) * 1e-6
    assert plain["predicted_exchange_seconds"] == pytest.approx(summed["wire_bytes"] / (3 * 1.8e11) + hops)
    assert plain["predicted_compute_seconds"] == pytest.approx(6 * plain["executed_flops"] / 8 / 4.59e14 / 0.771)


@pytest.mark.slow
def test_names_of_axes_cost_nothing(alike: dict[str, dict]) -> None:
    for column in ("losses", "executed_flops", "wire_bytes", "peak_bytes", "predicted_step_seconds"):
        assert alike["renamed"][column] == alike["megatron"][column]


def test_a_collective_in_a_spelling_that_nobody_knows_fails() -> None:
    class Program:
        def as_text(self) -> str:
            line = "%all-reduce.1 = f32[4]{0} all-reduce(%p), replica_groups=ring[8]{0}, to_apply=%add"
            return f"HloModule m, num_partitions=8\n\nENTRY %main (p: f32[4]) -> f32[4] {{\n  {line}\n}}\n"

        def memory_analysis(self) -> object:
            return object()

    with pytest.raises(hlo.Unparsed, match="cannot be read"):
        layouts.accounts(None, Program())  # type: ignore[arg-type]


def ahead(folder: Path, *words: str) -> list[MeasuredLayout]:
    """The layouts of a command line, each of which must have been compiled and understood, or refused."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "sweeps", *words, f"store={folder}", "-m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found = measured_layouts.load(folder)
    for one in found:
        assert one.refused or (one.number("unknown_loops"), one.number("wire_bytes") > 0) == (0, True)
        assert not len(one.losses) and one.row.get("step_seconds") is None
    return found


def by_mesh(layouts: list[MeasuredLayout]) -> Mapping[tuple[str, str], MeasuredLayout]:
    return {(one.study.model, one.study.mesh): one for one in layouts}


@pytest.mark.plan
def test_the_layout_of_mesh_tensorflows_bert_on_512_cores(tmp_path: Path) -> None:
    """Of the meshes batch:512 is Mesh-TensorFlow's plain data parallelism; the others are ours."""
    found = by_mesh(ahead(tmp_path, "+experiment=layouts/mesh_tf_bert"))
    refused = {key: one.row["refusal"] for key, one in found.items() if one.refused}
    assert refused == {
        ("mesh_tf_bert", "batch:16;model:32"): "indivisible",  # it has 12 heads
        ("mesh_tf_bert_xxl", "batch:512"): "memory",
        ("mesh_tf_bert_xxl", "batch:128;model:4"): "memory",
    }
    plain, ours = found["mesh_tf_bert", "batch:512"], found["mesh_tf_bert", "batch:128;model:4"]
    sent = 2 * 511 / 512 * SHAPES["mesh_tf_bert"].parameters  # a ring's, of a sum of gradients of a byte each
    assert 2 * sent < plain.number("wire_bytes") < 4 * sent  # some are summed in bfloat16, some in float32
    assert {each["axes"] for each in plain.collectives} == {"batch"}
    large = found["mesh_tf_bert_xxl", "batch:16;model:32"]
    for one in (plain, ours, large):
        assert one.number("redundancy") == pytest.approx(_again(one), rel=1e-9)
    assert large.number("peak_bytes") < CORE_OF_V3
    assert {each["axes"] for each in large.collectives} >= {"batch", "model"}


def _again(one: MeasuredLayout) -> float:
    """Products with rematerialization over those without, where only a block's last product is not done again."""
    shape = SHAPES[one.study.model]
    length, width = one.study.length, shape.heads * shape.kv
    block = 4 * shape.embed * width + (3 if shape.gated else 2) * shape.embed * shape.mlp + 2 * length * width
    last = shape.embed * shape.mlp
    whole = 3 * (shape.layers * block + shape.embed * shape.vocab)
    return (whole + shape.layers * (block - last)) / whole


@pytest.mark.plan
def test_256_chips_of_v5e_compile_in_two_minutes_of_one_core(tmp_path: Path) -> None:
    def seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = seconds()
    point = ["+experiment=layouts/megatron", "mesh=data:32;model:8", "layout=fsdp_megatron"]
    (one,) = ahead(tmp_path, *point)
    assert seconds() - before < 120
    assert not one.refused and one.row["predicted_fits"]
    assert one.number("redundancy") == pytest.approx(_again(one), rel=1e-9)
    assert {each["axes"] for each in one.collectives} >= {"data", "model"}
    shape: Any = SHAPES["llama_7b"]
    state = 3 * 4 * shape.parameters / 256  # parameters and both means of Adam, float32, but norms
    assert one.number("argument_bytes") == pytest.approx(state, rel=0.05)
