"""Meshes and layouts as text: what is refused, where and why; the shapes; the network in NumPy and float64."""

import dataclasses
import string
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from optax.tree_utils import tree_get

from harness.compiled import jaxpr_cost
from harness.step import shardings
from harness.step.partitioned import METAPARAMETERS, PartitionedStep, drawn, partitioned
from harness.step.training import TrainState
from workloads import registry
from workloads.layouts import shapes
from workloads.layouts.notation import REFUSALS, Layout, Mesh, Refused, Tensors, read_layout, read_mesh
from workloads.layouts.shapes import PRESETS, SHAPES, Shape
from workloads.workload import Examples

BERT = "batch:batch,vocab:model,intermediate:model,num_heads:model,experts:batch"  # as its run_pretraining.py has it
SMALL = shapes.tensors(SHAPES["small"], 16, 64)
MESH = read_mesh("data:2;model:4")


@pytest.mark.parametrize(
    ("text", "devices", "kind", "position"),
    [
        ("", None, "syntax", 0),
        ("data", None, "syntax", 0),
        ("data:", None, "syntax", 0),
        ("data:2;;model:4", None, "syntax", 7),
        ("data:2; model", None, "syntax", 8),
        ("data:0", None, "syntax", 5),
        ("data:two", None, "syntax", 5),
        ("data:99999999", None, "syntax", 5),
        ("data:2;model:4;data:2", None, "duplicate_mesh_axis", 15),
        ("data:2;model:4", 4, "devices", None),
        ("data:1048576;model:2", None, "devices", None),
    ],
)
def test_meshes_that_are_refused(text: str, devices: int | None, kind: str, position: int | None) -> None:
    with pytest.raises(Refused) as caught:
        read_mesh(text, devices)
    assert (caught.value.kind, caught.value.position) == (kind, position)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind", "position", "hint"),
    [
        ("batch", "syntax", 0, "batch:data;heads:model"),
        ("batch:data;heads=model", "syntax", 11, "'heads=model'"),
        ("batch:data;", "syntax", 11, "a pair of names is missing"),
        ("batch: data", "syntax", 0, "without blanks in a pair"),
        ("batch:data\u00a0heads:model", "syntax", 0, "is not a pair of names"),
        ("batch:data;" + "x" * 3000 + ":model", "unknown_tensor_axis", 11, "xxx…'; choices: act_embed"),
        ("batch:data;head:model", "unknown_tensor_axis", 11, "did you mean 'heads'?"),
        ("num_heads:model", "unknown_tensor_axis", 0, "did you mean 'heads'?"),
        ("batch:dta", "unknown_mesh_axis", 6, "did you mean 'data'?"),
        ("heads:data;heads:model", "tensor_axis_twice", 11, "is already split over 'data'"),
        ("heads:model;mlp:model;heads:model", "tensor_axis_twice", 22, "appears twice"),
        ("batch:data;length:data", "same_tensor", 11, "'batch' and 'length'"),
        ("embed:model;mlp:model", "same_tensor", 12, "'enter'"),
        ("act_embed:model;mlp:model", "same_operation", 16, "'hide'"),
    ],
)
def test_layouts_that_are_refused(text: str, kind: str, position: int, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        read_layout(text, MESH, SMALL)
    assert (caught.value.kind, caught.value.position) == (kind, position)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("axis", ["stage", "pipe"])
def test_stages_are_refused_until_they_exist(axis: str) -> None:
    with pytest.raises(Refused, match=r"pipeline stages are not supported.* such as data") as caught:
        read_layout(f"layers:{axis}", read_mesh(f"{axis}:4"), SMALL)
    assert (caught.value.kind, caught.value.position) == ("stages", 0)
    assert read_layout("layers:data", read_mesh("data:4"), SMALL) == {"layers": "data"}


def test_what_does_not_divide_is_refused_with_what_would() -> None:
    with pytest.raises(Refused, match=r"heads=8 does not divide into 3 parts.*model:2 would work") as caught:
        read_layout("heads:model", read_mesh("model:3"), SMALL)
    assert caught.value.kind == "indivisible"


def test_presets_are_layouts_of_two_axes() -> None:
    for name, text in PRESETS.items():
        assert str(read_layout(shapes.layout_text(name), MESH, SMALL)) == ";".join(
            sorted(filter(None, text.split(";")))
        )
    assert shapes.layout_text("batch:data") == "batch:data"


def test_presets_divide_shared_heads_of_keys_like_the_others() -> None:
    shared = shapes.tensors(dataclasses.replace(SHAPES["small"], key_heads=4), 8, 16)
    for name, text in PRESETS.items():
        found = dict(pair.split(":") for pair in shapes.layout_text(name, shared.sizes).split(";") if pair)
        assert found == dict(pair.split(":") for pair in text.split(";") if pair) | (
            {"key_heads": "model"} if "heads:model" in text else {}
        )
        read_layout(shapes.layout_text(name, shared.sizes), MESH, shared)
    with pytest.raises(Refused, match="key_heads=4 does not divide into 8 parts"):
        read_layout(shapes.layout_text("megatron", shared.sizes), read_mesh("data:1;model:8"), shared)
    assert shapes.layout_text("heads:model", shared.sizes) == "heads:model"


def test_bert_layout_of_mesh_tensorflow_is_data_parallelism() -> None:
    model = shapes.tensors(SHAPES["mesh_tf_bert"], 256, 512)
    ours = read_layout(BERT, read_mesh("batch:8"), model, strict=False)
    assert ours == {"batch": "batch"}
    assert read_layout(BERT, read_mesh("batch:16;model:4"), model, strict=False) == {
        "batch": "batch",
        "vocab": "model",
        "mlp": "model",
        "heads": "model",
    }
    with pytest.raises(Refused) as caught:
        read_layout(BERT, read_mesh("batch:8"), model)
    assert caught.value.kind == "unknown_mesh_axis"


@given(st.text(alphabet=string.ascii_lowercase + "_:;, 0123456789\n=é", max_size=60))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_mesh, lambda given: read_layout(given, MESH, SMALL)):
        found, refusal = outcome(lambda read=read: read(text))
        if refusal is not None:
            assert refusal.kind in REFUSALS and "\n" not in str(refusal)
            continue
        again = read_mesh(str(found)) if isinstance(found, Mesh) else read_layout(str(found), MESH, SMALL)
        assert again == found


def outcome(read: Callable[[], Mesh | Layout]) -> tuple[Mesh | Layout | None, Refused | None]:
    """What is read, or why nothing is."""
    try:
        return read(), None
    except Refused as refusal:
        return None, refusal


AXES = ("a", "b", "c", "d")


@given(
    st.dictionaries(st.sampled_from(AXES), st.integers(1, 12), min_size=4),
    st.lists(st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True), max_size=4),
    st.lists(st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True), max_size=3),
    st.dictionaries(st.sampled_from(("x", "y")), st.integers(1, 4), min_size=1),
    st.dictionaries(st.sampled_from(AXES), st.sampled_from(("x", "y"))),
)
@settings(deadline=None, max_examples=300)
def test_rules_are_those_of_sets(
    sizes: dict[str, int],
    tensors: list[list[str]],
    operations: list[list[str]],
    mesh: dict[str, int],
    pairs: dict[str, str],
) -> None:
    model = Tensors(sizes, dict(zip("pqrs", tensors, strict=False)), dict(zip("uvw", operations, strict=False)))
    text = ";".join(f"{name}:{axis}" for name, axis in pairs.items())

    def clashes(groups: list[list[str]]) -> bool:
        return any(len([n for n in g if n in pairs]) != len({pairs[n] for n in g if n in pairs}) for g in groups)

    expected = (
        "unknown_mesh_axis"
        if set(pairs.values()) - set(mesh)
        else "same_tensor"
        if clashes(tensors)
        else "same_operation"
        if clashes(operations)
        else "indivisible"
        if any(sizes[name] % mesh[axis] for name, axis in pairs.items())
        else None
    )
    found, refusal = outcome(lambda: read_layout(text, Mesh(mesh), model))
    assert (refusal and refusal.kind) == expected
    assert refusal or found == pairs


def test_shapes_have_the_parameters_that_are_published() -> None:
    assert SHAPES["llama_7b"].parameters == 6_738_415_616  # as its checkpoint has
    xxl = SHAPES["mesh_tf_bert_xxl"]
    assert xxl.parameters - xxl.vocab * xxl.embed - 49 * xxl.embed == 24 * (4 * 4096**2 + 2 * 4096 * 16384)
    assert xxl.parameters == 4_957_343_744
    large = SHAPES["mesh_tf_lm"]
    blocks = 6 * (4 * 1024 * 256 * 256 + 2 * 1024 * 262_144)  # projections and hidden layers
    assert large.parameters == blocks + 2 * 32_000 * 1024 + 13 * 1024 == 4_897_387_520  # untied, 13 norms


@pytest.mark.parametrize(
    "shape",
    [SHAPES["tiny"], Shape(3, 16, 2, 4, 24, 32, gated=True, tied=True)],
    ids=["plain", "gated"],
)
class TestTransformer:
    """On one device, against NumPy in float64."""

    def start(self, shape: Shape) -> tuple[PartitionedStep, TrainState, Examples]:
        workload = registry.workload(shapes.dataset(shape, 12), "transformer_rotary", shape.options, "adam")
        step = partitioned(workload, "adam", {"data": 1}, {}, jax.devices(), rematerialized=True)
        return step, step.start(step.spans(3)), drawn(workload, shape.vocab, 4, 3, 0)

    def test_loss_and_gradient(self, shape: Shape) -> None:
        step, carry, batch = self.start(shape)
        after, value = jax.jit(step.step)(carry, batch, step.spans(3))
        gradient = jax.tree.map(lambda mean: mean / (1 - METAPARAMETERS["b1"]), tree_get(after.optimizer, "mu"))
        exact, own = (weights(shape, tree) for tree in (carry.params, gradient))
        assert float(value) == pytest.approx(numpy_loss(shape, exact, batch), rel=2e-6)
        rng, tiny = np.random.default_rng(0), 1e-6
        for name in exact:
            direction = rng.normal(size=exact[name].shape)
            there, back = (exact | {name: exact[name] + sign * tiny * direction} for sign in (1, -1))
            slope = (numpy_loss(shape, there, batch) - numpy_loss(shape, back, batch)) / (2 * tiny)
            found = float(np.sum(own[name] * direction))
            assert found == pytest.approx(slope, rel=1e-3, abs=1e-5 * np.linalg.norm(own[name]))

    def test_operations_are_those_of_the_program(self, shape: Shape) -> None:
        step, _, _ = self.start(shape)
        once = step._replace(sharding=step.sharding._replace(rematerialized=False))
        assert jaxpr_cost.matrix_flops(once.jaxpr(4)) == shape.flops(4, 12)

    def test_named_axes_are_those_of_the_model(self, shape: Shape) -> None:
        """Layouts are checked without the model, by the axes that the shape lists."""
        step, _, _ = self.start(shape)
        found, listed = shardings.tensors(step.workload, 4), shapes.tensors(shape, 4, 12)
        assert shardings.tensors(step.workload, 4) == found  # JAX does not trace a function twice
        assert dict(found.sizes) == {name: listed.sizes[name] for name in found.sizes}
        assert set(listed.sizes) - set(found.sizes) == set()
        own = [tuple(axes) for name, axes in listed.tensors.items() if name in shapes.parameters(shape)]
        assert sorted(tuple(axes) for name, axes in found.tensors.items() if "activation" not in name) == sorted(own)
        activations = {axes for name, axes in found.tensors.items() if "activation" in name}
        assert activations == set(shapes.ACTIVATIONS.values())


def weights(shape: Shape, params: Any) -> dict[str, np.ndarray]:
    """The arrays of the model by the names that ``numpy_loss`` gives them, float64."""
    layer = params["params"]["stacked"]
    *gate, enter, leave = [layer[f"Dense_{i}"]["kernel"] for i in range(3 if shape.gated else 2)]
    found = {
        "table": params["params"]["Embed_0"]["embedding"],
        "scale_attention": layer["RMSNorm_0"]["scale"],
        **{name: layer[f"DenseGeneral_{i}"]["kernel"] for i, name in enumerate(("query", "key", "value", "out"))},
        "scale_hidden": layer["RMSNorm_1"]["scale"],
        "enter": enter,
        "leave": leave,
        "scale_last": params["params"]["RMSNorm_0"]["scale"],
    }
    if gate:
        found["gate"] = gate[0]
    if not shape.tied:
        found["predict"] = params["params"]["Dense_0"]["kernel"]
    return {name: np.asarray(each, np.float64) for name, each in found.items()}


def numpy_loss(shape: Shape, w: Mapping[str, np.ndarray], batch: Examples) -> float:
    """The mean cross-entropy of the model, one sequence and head at a time."""

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * scale

    def turned(x: np.ndarray) -> np.ndarray:
        half = x.shape[1] // 2
        powers = np.exp(1j * np.outer(np.arange(len(x)), 1e4 ** (-np.arange(half) / half)))
        z = (x[:, :half] + 1j * x[:, half:]) * powers
        return np.concatenate([z.real, z.imag], axis=1)

    def softmax(x: np.ndarray) -> np.ndarray:
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    losses = []
    for sequence, following in zip(*batch, strict=True):
        x = w["table"][sequence] * (shape.embed**0.5 if shape.tied else 1)
        for i in range(shape.layers):
            h = norm(x, w["scale_attention"][i])
            for head in range(shape.heads):
                q, k, v = (h @ w[name][i, :, head] for name in ("query", "key", "value"))
                scores = turned(q) @ turned(k).T / shape.kv**0.5
                scores[np.triu_indices(len(scores), 1)] = -np.inf
                x = x + softmax(scores) @ v @ w["out"][i, head]
            h = norm(x, w["scale_hidden"][i])
            entered = h @ w["enter"][i]
            if shape.gated:
                gate = h @ w["gate"][i]
                hidden = gate / (1 + np.exp(-gate)) * entered
            else:  # JAX's GELU, by tanh
                hidden = entered / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (entered + 0.044715 * entered**3)))
            x = x + hidden @ w["leave"][i]
        logits = norm(x, w["scale_last"]) @ (w["table"].T if shape.tied else w["predict"])
        losses += list(-np.log(softmax(logits)[np.arange(len(logits)), following]))
    return float(np.mean(losses))
