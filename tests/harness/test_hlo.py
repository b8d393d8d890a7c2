"""What is read from compiled programs: spellings as XLA prints them, and real programs on eight emulated devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.compiled import hlo
from harness.compiled.hlo import Unparsed
from results.costs import collectives

ROOT = Path(__file__).parents[2]
MODULE = """HloModule crafted, num_partitions=8

add {{
  lhs = f32[] parameter(0)
  rhs = f32[] parameter(1)
  ROOT add = f32[] add(lhs, rhs)
}}

ENTRY main {{
  input = f32[128,32]{{1,0}} parameter(0)
  ROOT exchanged = f32[128,32]{{1,0}} {operation}(input), channel_id=1, {attributes}, to_apply=add
}}
"""
# Groups as XLA's own tests of what it prints have them, or as their definition says.
SPELLINGS = {
    "{{0,1,2,3},{4,5,6,7}}": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "{}": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "[2,4]<=[8]": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "[4,2]<=[2,4]T(1,0)": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "[2,10]<=[4,5]T(1,0)": [[0, 5, 10, 15, 1, 6, 11, 16, 2, 7], [12, 17, 3, 8, 13, 18, 4, 9, 14, 19]],
    "mesh['x'=2,'y'=2] {'x'}": [[0, 2], [1, 3]],
    "mesh['x'=2,'y'=2] {'y'}": [[0, 1], [2, 3]],
    "mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "mesh['a'=8] {'a':(2)2}": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "@mesh<ooo=10>, device_ids=(8,3,7,5,4,2,6,0,1,9) {ooo:(5)2}": [[8, 3], [7, 5], [4, 2], [6, 0], [1, 9]],
    "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}": [[0, 4], [1, 5], [2, 6], [3, 7]],
}


def read(operation: str, attributes: str) -> hlo.Compiled:
    return hlo.read(MODULE.format(operation=operation, attributes=attributes))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_groups(spelling: str) -> None:
    (one,) = read("all-reduce", f"replica_groups={spelling}, use_global_device_ids=true").check().collectives
    assert [list(group) for group in one.groups] == SPELLINGS[spelling]
    assert one.bytes == 128 * 32 * 4
    size = len(SPELLINGS[spelling][0])
    assert one.wire_bytes == pytest.approx(2 * (size - 1) / size * 128 * 32 * 4)


@pytest.mark.parametrize(
    "attributes",
    [
        "replica_groups=torus[2,4]{0}",
        "replica_groups=[2,4]<=[9]",
        "replica_groups=mesh['x'=2,'y'=4] {'z'}",
        "replica_groups=mesh['x'=8] {'x':(3)2}",
        "use_global_device_ids=true",
    ],
)
def test_a_spelling_nobody_knows_fails(attributes: str) -> None:
    found = read("all-reduce", attributes)
    assert found.collectives == ()
    assert len(found.unparsed) >= 1
    with pytest.raises(Unparsed, match="cannot be read"):
        found.check()


# As XLA's own tests of GPUs have it (openxla/xla, gpu/transforms/stream_attribute_annotator_test.cc).
LIBRARY = """HloModule m

ENTRY main {{
  p1 = f32[16,32] parameter(0)
  p2 = f32[32,48] parameter(1)
  ROOT call = (f32[16,48], s8[1028]{{0}}) custom-call(p1, p2), custom_call_target="{target}", backend_config={config}
}}
"""
GEMM = (
    '{"operation_queue_id":"1","gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{'
    '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[]}}}'
)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_products_of_libraries_of_gpus_count(target: str) -> None:
    assert hlo.read(LIBRARY.format(target=target, config=GEMM)).check().flops == 2 * 16 * 32 * 48


@pytest.mark.parametrize("target", ["__onednn$matmul", "__cudnn$convForward", "__cudnn$fmhaSoftmax", "tpu_custom_call"])
def test_a_library_whose_products_cannot_be_read_fails(target: str) -> None:
    with pytest.raises(Unparsed, match="cannot be read"):
        hlo.read(LIBRARY.format(target=target, config="{}")).check()
    assert hlo.read(LIBRARY.format(target="TopK", config="{}")).check().flops == 0


def test_a_collective_that_is_hidden_is_missed_aloud() -> None:
    with pytest.raises(Unparsed):
        read("all-reduce-of-tomorrow", "replica_groups={{0,1},{2,3}}").check()


def test_a_sum_of_which_each_keeps_a_part_is_a_scatter() -> None:
    text = """HloModule m, num_partitions=4

%all-reduce-scatter.3 (p: f32[64]) -> f32[16] {
  %p = f32[64]{0} parameter(0)
  %all-reduce.1 = f32[64]{0:T(256)} all-reduce(%p), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %ds = f32[16]{0} dynamic-slice(%all-reduce.1, %i), dynamic_slice_sizes={16}
}

ENTRY %main (a: f32[64]) -> f32[16] {
  %a = f32[64]{0} parameter(0)
  ROOT %f = f32[16]{0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.3, backend_config={"estimated_cycles":"70"}
}
"""
    found = hlo.read(text).check()
    (one,) = found.collectives
    assert (one.operation, one.bytes, one.wire_bytes) == ("reduce-scatter", 256, 192)
    assert found.cycles == 70


REAL = """
import json, sys
import jax, jax.numpy as jnp
from functools import partial
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
import numpy as np

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
said = {}

def text(body, given, specs, out):
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False))
    return f.lower(given).compile().as_text()

x = jax.ShapeDtypeStruct((16, 64), jnp.float32)
def looped(x):
    return jax.lax.scan(lambda c, _: (jax.lax.psum(jnp.sin(c), "model"), None), x, None, length=5)[0]
def by_steps(x):
    turns = jax.lax.axis_index("data") * 0 + x[0, 0].astype(jnp.int32)
    return jax.lax.fori_loop(0, turns, lambda i, c: jax.lax.psum(jnp.sin(c), "data"), x)
said["looped"] = text(looped, x, P("data", "model"), P("data", "model"))
said["by steps"] = text(by_steps, x, P("data", "model"), P("data", "model"))
said["gathered"] = text(lambda x: jax.lax.all_gather(x, "data", tiled=True), x, P("data", None), P())
said["scattered"] = text(lambda x: jax.lax.psum_scatter(x, "model", tiled=True), x, P(), P("model", None))
said["turned"] = text(lambda x: jax.lax.all_to_all(x, "model", 1, 0, tiled=True), x, P("model", None), P(None, "model"))
ring = [(i, (i + 1) % 4) for i in range(4)]
said["passed"] = text(lambda x: jax.lax.ppermute(x, "model", ring), x, P(None, "model"), P(None, "model"))
a = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
b = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=NamedSharding(mesh, P(None, "model")))
c = jax.ShapeDtypeStruct((128, 64), jnp.float32, sharding=NamedSharding(mesh, P("model", None)))
layers = lambda a, b, c: jax.lax.scan(lambda a, _: (jnp.tanh(jnp.tanh(a @ b) @ c), None), a, None, length=3)[0]
said["layers"] = jax.jit(layers).lower(a, b, c).compile().as_text()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


MESH = {"data": 2, "model": 4}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("looped", {("all-reduce", "model"): (5, 5 * 8 * 16 * 4)}),
        ("by steps", {("all-reduce", "data"): (1, 8 * 16 * 4)}),
        ("gathered", {("all-gather", "data"): (1, 16 * 64 * 4)}),
        ("scattered", {("reduce-scatter", "model"): (1, 16 * 64 * 4)}),
        ("turned", {("all-to-all", "model"): (1, 4 * 64 * 4)}),
        ("passed", {("collective-permute", "model"): (1, 16 * 16 * 4)}),
        ("layers", {("all-reduce", "model"): (3, 3 * 16 * 64 * 4)}),
    ],
)
def test_real_programs(programs: dict[str, str], name: str, expected: dict[tuple[str, str], tuple[int, float]]) -> None:
    found = hlo.read(programs[name]).check()
    sums = collectives.totals(found.collectives, MESH)
    assert {key: (count, whole) for key, (count, whole, _) in sums.items()} == expected
    assert found.devices == 8


def test_products_and_loops_of_a_real_program(programs: dict[str, str]) -> None:
    found = hlo.read(programs["layers"])
    # Of each device: half of the rows, a quarter of the columns; then a quarter of what is summed.
    assert found.flops == 3 * (2 * 16 * 64 * 32 + 2 * 16 * 32 * 64)
    assert found.loops == (1, 0)
    assert hlo.read(programs["by steps"]).loops == (0, 1)


LOOP = """HloModule m, num_partitions=4

%body (p: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {{
  %p = (s32[], f32[8,64]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[]{{:T(128)}} constant({step})
  %own = s32[] copy(%i)
  %next = s32[] add(%own, %one)
  %x = f32[8,64]{{1,0}} get-tuple-element(%p), index=1
  %summed = f32[8,64]{{1,0}} all-reduce(%x), channel_id=1, replica_groups={{{{0,1,2,3}}}}, to_apply=%add
  ROOT %out = (s32[], f32[8,64]{{1,0}}) tuple(%next, %summed)
}}

%cond (p: (s32[], f32[8,64])) -> pred[] {{
  %end = s32[]{{:T(128)}} constant(7)
  %p = (s32[], f32[8,64]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  ROOT %lt = pred[] compare(%i, %end), direction={direction}
}}

ENTRY %main (a: f32[8,64], n: s32[]) -> (s32[], f32[8,64]) {{
  %a = f32[8,64]{{1,0}} parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(2)
  %begin = s32[] copy(%{first})
  %t = (s32[], f32[8,64]{{1,0}}) tuple(%begin, %a)
  ROOT %w = (s32[], f32[8,64]{{1,0}}) while(%t), condition=%cond, body=%body
}}
"""


@pytest.mark.parametrize(
    ("step", "direction", "first", "turns"),
    [
        (1, "LT", "zero", 5),
        (2, "LT", "zero", 3),
        (5, "LT", "zero", 1),
        (0, "LT", "zero", None),
        (-1, "LT", "zero", None),
        (1, "NE", "zero", None),
        (1, "LT", "n", None),
    ],
)
def test_counting_loop_has_the_trips_of_its_condition(step: int, direction: str, first: str, turns: int | None) -> None:
    found = hlo.read(LOOP.format(step=step, direction=direction, first=first)).check()
    assert found.loops == ((0, 1) if turns is None else (1, 0))
    assert [each.turns for each in found.collectives] == [(turns,)]


@pytest.mark.parametrize(
    ("out", "given", "kernel", "attributes", "products"),
    [
        # A product over batches: of eight taps along each batch but one meet the zeros of a dilated image.
        (
            "8,2,64,64",
            "8,64,2,16",
            "8,64,2,16",
            "window={size=8x2 stride=7x1 lhs_dilate=8x2}, dim_labels=0b1f_0o1i->01bf",
            8 * 2 * 64 * 64 * 16,
        ),
        ("8,64,2,16", "8,64,128", "128,2,16", "window={size=1x2}, dim_labels=0b1f_1io0->0bf1", None),
        (
            "8,64,2,16",
            "8,1,64,128",
            "2,128,16,1",
            "window={size=1x2 pad=0_0x1_1 rhs_reversal=0x1}, dim_labels=01bf_1io0->0b1f",
            8 * 64 * 2 * 16 * 128,
        ),
        ("8,64,128", "8,64,512", "1,512,128", "window={size=1}, dim_labels=0bf_0io->0bf", 8 * 64 * 512 * 128),
    ],
)
def test_products_of_convolutions_leave_out_zeros(
    out: str, given: str, kernel: str, attributes: str, products: int | None
) -> None:
    shapes = [
        f"%{name} = f32[{dims}]{{}} parameter({i})" for i, (name, dims) in enumerate((("a", given), ("b", kernel)))
    ]
    line = f"ROOT %c = f32[{out}]{{}} convolution(%a, %b), {attributes}"
    body = "\n".join(f"  {each}" for each in (*shapes, line))
    found = hlo.read(f"HloModule m\n\nENTRY %main (a: f32[1]) -> f32[1] {{\n{body}\n}}\n")
    if products is None:
        assert found.unparsed
    else:
        assert found.check().flops == 2 * products
