"""A decoder Transformer with named axes, and an Adam training step whose results do not depend on the layout.

Blocks are pre-norm with RMS norms without biases, rotary positions (Su et al. 2021, arXiv 2104.09864), and a hidden
layer with GELU, or gated by SiLU. Parameters, optimizer state and activations are sharded along the layout's axes. The
compiler's partitioner shards the operations.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from workloads.layouts.notation import Layout, Mesh
from workloads.layouts.shapes import ACTIVATIONS, Shape, parameters

# Adam.
RATE = 1e-3
DECAYS = (0.9, 0.95)
TINY = 1e-8

TOKEN_AXES = ("batch", "")  # axes of int32[batch, length + 1]

Params = Mapping[str, Array]


class State(NamedTuple):
    """The training state: parameters, Adam's means of gradients and squared gradients (float32), and its step."""

    params: Params
    mean: Params
    square: Params
    step: Array


class Placed(NamedTuple):
    """A layout placed on devices.

    Attributes:
      mesh: mesh of the devices.
      layout: mesh axis of each tensor axis.
    """

    mesh: jax.sharding.Mesh
    layout: Layout

    def sharding(self, axes: tuple[str, ...]) -> NamedSharding:
        """Returns the sharding of a tensor with these axes."""
        return NamedSharding(self.mesh, PartitionSpec(*map(self.layout.get, axes)))


def on_devices(mesh: Mesh, layout: Layout, devices: list) -> Placed:
    """Places a layout on the first devices of a list. The last mesh axis varies fastest."""
    shaped = np.array(devices[: mesh.size]).reshape(tuple(mesh.values()))
    return Placed(jax.sharding.Mesh(shaped, tuple(mesh), axis_types=tuple(AxisType.Auto for _ in mesh)), layout)


def shardings(shape: Shape, placed: Placed) -> State:
    """Returns the shardings of the training state."""
    each = {name: placed.sharding(axes) for name, axes in parameters(shape).items()}
    return State(each, each, each, placed.sharding(()))  # type: ignore[arg-type]


def start(shape: Shape, seed: Array) -> State:
    """Returns the initial state, with normal weights divided by the square root of the fan-in.

    Args:
      shape: sizes of the model.
      seed: uint32[].
    """
    sizes = shape.sizes(1, 1)
    key = jax.random.key(seed)
    params = {}
    for i, (name, axes) in enumerate(parameters(shape).items()):
        dims = [sizes[axis] for axis in axes]
        if name.startswith("scale"):
            params[name] = jnp.ones(dims, jnp.float32)
            continue
        summed = {"out": ("heads", "kv"), "leave": ("mlp",)}.get(name, ("embed",))
        scale = math.prod(sizes[axis] for axis in summed) ** -0.5
        params[name] = scale * jax.random.normal(jax.random.fold_in(key, i), dims, jnp.float32)
    zeros = {name: jnp.zeros_like(value) for name, value in params.items()}
    return State(params, zeros, zeros, jnp.zeros((), jnp.int32))


def loss(shape: Shape, placed: Placed, precision: str, rematerialization: str, params: Params, tokens: Array) -> Array:
    """Returns the mean cross-entropy of each token given the tokens before it, float32[].

    Args:
      shape: sizes of the model.
      placed: layout on devices.
      precision: dtype of activations and matmuls, float32 or bfloat16. Losses and norms are summed in float32.
      rematerialization: ``full`` recomputes blocks in the backward pass. ``none`` keeps their activations.
      params: parameters, float32.
      tokens: int32[batch, length + 1].
    """
    dtype = jnp.dtype(precision)

    def place(tensor: Array, name: str) -> Array:
        return jax.lax.with_sharding_constraint(tensor, placed.sharding(ACTIVATIONS[name]))

    def block(x: Array, w: Params) -> tuple[Array, None]:
        h = place(_norm(x, w["scale_attention"]), "normed")
        q = place(_turn(jnp.einsum("ble,ehk->blhk", h, w["query"])), "queries")
        k = place(_turn(jnp.einsum("bme,ehk->bmhk", h, w["key"])), "keys")
        v = place(jnp.einsum("bme,ehk->bmhk", h, w["value"]), "keys")
        scores = place(jnp.einsum("blhk,bmhk->bhlm", q, k), "scores").astype(jnp.float32) * shape.kv**-0.5
        seen = jnp.tri(scores.shape[-1], dtype=bool)
        weights = place(jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)).astype(dtype), "scores")
        attended = place(jnp.einsum("bhlm,bmhk->blhk", weights, v), "queries")
        x = place(x + jnp.einsum("blhk,hke->ble", attended, w["out"]), "residual")
        h = place(_norm(x, w["scale_hidden"]), "normed")
        hidden = place(jnp.einsum("ble,em->blm", h, w["enter"]), "hidden")
        if shape.gated:
            hidden = jax.nn.silu(place(jnp.einsum("ble,em->blm", h, w["gate"]), "hidden")) * hidden
        else:
            hidden = jax.nn.gelu(hidden)
        x = place(x + jnp.einsum("blm,me->ble", place(hidden, "hidden"), w["leave"]), "residual")
        return x, None

    weights = {name: value.astype(dtype) for name, value in params.items()}
    of_blocks = {name: weights[name] for name, axes in parameters(shape).items() if axes[0] == "layers"}
    given = place(tokens[:, :-1], "tokens")
    following = place(tokens[:, 1:], "tokens")
    x = place(place(weights["table"][given], "normed") * dtype.type(shape.embed**0.5 if shape.tied else 1), "residual")
    x, _ = jax.lax.scan(jax.checkpoint(block) if rematerialization == "full" else block, x, of_blocks)
    h = place(_norm(x, weights["scale_last"]), "normed")
    last = weights["table"].T if shape.tied else weights["predict"]
    logits = place(jnp.einsum("ble,ev->blv", h, last), "logits").astype(jnp.float32)
    chosen = jnp.sum(jnp.where(jnp.arange(shape.vocab) == following[..., None], logits, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def step(
    shape: Shape, placed: Placed, precision: str = "float32", rematerialization: str = "none"
) -> jax.stages.Wrapped:
    """Compiles a training step with Adam (Kingma & Ba 2015, arXiv 1412.6980).

    See ``loss`` for the arguments.

    Returns:
      A jitted function of the state, which is donated, and tokens int32[batch, length + 1]. It returns the next state
      and the loss before the step.
    """
    own = shardings(shape, placed)
    whole = placed.sharding(())

    def advance(state: State, tokens: Array) -> tuple[State, Array]:
        def of(params: Params) -> Array:
            return loss(shape, placed, precision, rematerialization, params, tokens)

        value, gradient = jax.value_and_grad(of)(state.params)
        gradient = {k: jax.lax.with_sharding_constraint(g, own.params[k]) for k, g in gradient.items()}
        count = state.step + 1
        mean = {k: DECAYS[0] * m + (1 - DECAYS[0]) * gradient[k] for k, m in state.mean.items()}
        square = {k: DECAYS[1] * s + (1 - DECAYS[1]) * gradient[k] ** 2 for k, s in state.square.items()}
        turn = count.astype(jnp.float32)
        unbiased = RATE * jnp.sqrt(1 - DECAYS[1] ** turn) / (1 - DECAYS[0] ** turn)
        params = {k: p - unbiased * mean[k] / (jnp.sqrt(square[k]) + TINY) for k, p in state.params.items()}
        return State(params, mean, square, count), value

    tokens = placed.sharding(TOKEN_AXES)
    return jax.jit(advance, in_shardings=(own, tokens), out_shardings=(own, whole), donate_argnums=0)


def draw(vocab: int, batch: int, length: int, seed: int, at: int) -> np.ndarray:
    """Returns the tokens of a step, int32[batch, length + 1]. Each is the previous token plus 1 to 4, modulo ``vocab``.

    Args:
      vocab: number of tokens.
      batch: number of sequences.
      length: tokens per sequence, plus one for the last label.
      seed: seed of the trial.
      at: number of the step.
    """
    rng = np.random.default_rng([seed, at])
    ahead = rng.integers(1, 5, (batch, length + 1))
    ahead[:, 0] = rng.integers(0, vocab, batch)
    return (np.cumsum(ahead, axis=1) % vocab).astype(np.int32)


def _norm(x: Array, scale: Array) -> Array:
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x.astype(jnp.float32) * jax.lax.rsqrt(square + 1e-6)).astype(x.dtype) * scale


def _turn(x: Array) -> Array:
    """Applies rotary positions: rotates pairs of numbers of each head by angles proportional to the position."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * 1e4 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    sin, cos = (f(angles)[None, :, None, :].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    first = x[..., :half]
    second = x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
