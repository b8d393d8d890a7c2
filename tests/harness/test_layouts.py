"""Layouts on eight emulated devices: refused with a kind, or the loss and gradients of one device; what they cost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import compiled, layouts
from workloads.layouts.notation import REFUSALS

ROOT = Path(__file__).parents[2]
WITHIN = 1e-5


def laid(*words: str, timeout: float = 600) -> list[dict]:
    """What the program ``laid`` prints."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.harness.laid", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("count", "least"), [(30, 5), pytest.param(300, 60, marks=pytest.mark.slow)])
def test_a_random_layout_is_refused_or_computes_what_one_device_does(count: int, least: int) -> None:
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


@pytest.fixture(scope="module")
def known() -> dict[str, dict]:
    """Cases known by hand: batch 16, length 64, d 128, ff 512, vocabulary 1,024, 4 layers."""
    cases = {
        "partial": "data:2;model:4|batch:data;mlp:model|strict",
        "data": "data:2;model:4|batch:data|strict",
        "megatron": "data:2;model:4|batch:data;heads:model;mlp:model;vocab:model|strict",
        "renamed": "x:2;y:4|batch:x;heads:y;mlp:y;vocab:y|strict",
        "bert": f"batch:8|{BERT}|mesh-tensorflow",
        "plain": "batch:8|batch:batch|strict",
    }
    return dict(zip(cases, laid("small", "16", "64", "given", *cases.values()), strict=True))


@pytest.mark.parametrize(("case", "redundancy"), [("partial", 2.4), ("data", 4), ("megatron", 1), ("bert", 1)])
def test_redundancy_known_by_hand(known: dict[str, dict], case: str, redundancy: float) -> None:
    assert known[case]["redundancy"] == pytest.approx(redundancy, rel=1e-9)
    assert known[case]["gradient_difference"] < WITHIN


def test_sums_of_gradients_of_data_parallelism_are_those_of_its_parameters(known: dict[str, dict]) -> None:
    """A ring sends 2 (n−1)/n of the gradients in float32; little else is exchanged."""
    sent = 2 * (2 - 1) / 2 * 4 * 1_049_728
    assert known["data"]["wire_bytes"] == pytest.approx(sent, rel=0.001)
    assert {each["axes"] for each in json.loads(known["data"]["collectives"])} == {"data"}


def test_parameters_and_optimizer_are_where_the_layout_puts_them(known: dict[str, dict]) -> None:
    state = 3 * 4 * 1_049_728  # parameters and two means, float32
    batch = 8 * 65 * 4
    assert known["data"]["argument_bytes"] == pytest.approx(state + batch, abs=64)
    norms = 3 * 4 * 9 * 128  # which no axis of this layout splits
    assert known["megatron"]["argument_bytes"] == pytest.approx((state - norms) / 4 + norms + batch, abs=64)


def test_the_layout_of_mesh_tensorflows_bert_is_plain_data_parallelism(known: dict[str, dict]) -> None:
    for column in ("losses", "executed_flops", "wire_bytes", "collectives", "peak_bytes"):
        assert known["bert"][column] == known["plain"][column]


def test_names_of_axes_cost_nothing(known: dict[str, dict]) -> None:
    for column in ("losses", "executed_flops", "wire_bytes", "peak_bytes", "predicted_step_seconds"):
        assert known["renamed"][column] == known["megatron"][column]


def test_a_collective_in_a_spelling_that_nobody_knows_fails() -> None:
    class Program:
        def as_text(self) -> str:
            line = "%all-reduce.1 = f32[4]{0} all-reduce(%p), replica_groups=ring[8]{0}, to_apply=%add"
            return f"HloModule m, num_partitions=8\n\nENTRY %main (p: f32[4]) -> f32[4] {{\n  {line}\n}}\n"

        def memory_analysis(self) -> object:
            return object()

    with pytest.raises(compiled.Unparsed, match="cannot be read"):
        layouts.accounts(None, Program())  # type: ignore[arg-type]
