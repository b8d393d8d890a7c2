"""Layouts compiled ahead for TPUs that are not there, by the extra plan: everything is accounted for, and what fits."""

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
from workloads.layouts.shapes import SHAPES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.plan
CORE_OF_V3 = 15.48 * 2**30  # bytes, as its compiler says


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
