"""The check of first_contact.py that arithmetic is as precise as it should be."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import training
from contact_checks import Finding, Number, at_most

from harness.step import batch_partition, mesh, programs
from workloads import registry
from workloads.models.attention import causal_attention

# In NumPy, sums of 256 products of standard normal numbers have a relative error of 3e-7 in float32, 4e-6 in three
# products of bfloat16, 3e-4 in TF32 and 2e-3 in bfloat16.
MOST_ERROR = 1e-6
ROUNDED = 1e-4, 5e-2  # relative differences of a gradient in bfloat16
ROUNDED_ATTENTION = 2e-2  # relative error of attention in bfloat16, whose numbers have 8 bits


def precision(smoke: bool) -> Finding:
    """Measures relative errors of matmuls and attention, compiled like in the engine, and of a bfloat16 gradient."""
    rng = np.random.default_rng(0)
    numbers = [*products(rng, 64 if smoke else 1024), attention(rng, 16 if smoke else 256)]
    low, high = ROUNDED
    rounded = relative(gradient("bfloat16"), gradient("float32"))
    is_rounded = bool(low < rounded < high)
    numbers += [Number("gradient in bfloat16, difference", rounded, "", f"between {low:g} and {high:g}", is_rounded)]
    return Finding(numbers)


def of_engine(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a function that is compiled like the programs of the engine."""
    device_mesh = mesh.mesh(batch_partition.Division())
    return jax.device_get(programs.lower(jax.jit(function), device_mesh, *arguments).compile()(*arguments))


def products(rng: np.random.Generator, rows: int) -> list[Number]:
    """Measures the relative errors of a float32 matmul and a float32 convolution."""
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((rows, 256), (256, rows)))
    images = rng.standard_normal((8, 16, 16, 32), np.float32)  # [N, H, W, C]
    kernel = rng.standard_normal((3, 3, 32, 64), np.float32)  # [H, W, C, D]

    def product(a: Any, b: Any) -> Any:
        return a @ b

    def convolution(images: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    padded = np.pad(images.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [padded[:, i : i + 16, j : j + 16] @ kernel[i, j].astype(np.float64) for i in range(3) for j in range(3)]
    numbers = []
    for function, arguments, exact in (
        (product, (a, b), a.astype(np.float64) @ b.astype(np.float64)),
        (convolution, (images, kernel), sum(windows)),
    ):
        name = f"{function.__name__} of float32"
        numbers.append(at_most(f"{name}, error", relative(of_engine(function, *arguments), exact), MOST_ERROR))
        plain = relative(jax.jit(function)(*arguments), exact)
        numbers.append(Number(f"{name} with JAX's own setting, error", plain))
    return numbers


def gradient(number_format: str) -> np.ndarray:
    """Returns the gradient of the first step of digits_fc as a vector."""
    workload = programs.workload_of(training.key_of_task("digits_fc", 64, number_format))
    batch = jax.tree.map(lambda array: array[:64], registry.DATASETS["digits"].load().train)
    params, state = workload.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 64)

    def loss(params: Any, state: Any, batch: Any, keys: Any) -> Any:
        return workload.loss(params, state, batch, None, keys, np.float32(0))[0]

    leaves = jax.tree.leaves(of_engine(jax.grad(loss), params, state, batch, keys))
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def attention(rng: np.random.Generator, length: int) -> Number:
    """Measures the relative error of causal attention in bfloat16 and of its gradients."""
    shape = (4, length, 8, 64)  # [B, T, H, K]
    given = [jnp.asarray(rng.standard_normal(shape, np.float32), jnp.bfloat16) for _ in range(4)]

    def both(q: Any, k: Any, v: Any, of_output: Any) -> Any:
        output, backward = jax.vjp(causal_attention, q, k, v)
        return output, *backward(of_output)

    q, k, v, of_output = (np.asarray(array).astype(np.float64) for array in given)
    scores = np.where(np.tri(length, dtype=bool), np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    of_weights = np.einsum("bthk,bshk->bhts", of_output, v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(shape[-1])
    exact = [
        np.einsum("bhts,bshk->bthk", weights, v),
        np.einsum("bhts,bshk->bthk", of_scores, k),
        np.einsum("bhts,bthk->bshk", of_scores, q),
        np.einsum("bhts,bthk->bshk", weights, of_output),
    ]
    computed = of_engine(both, *given)
    worst = max(relative(result, reference) for result, reference in zip(computed, exact, strict=True))
    return at_most("attention of bfloat16 and its gradients, error", worst, ROUNDED_ATTENTION)


def relative(computed: Any, exact: Any) -> float:
    """Returns the norm of the error relative to the norm of ``exact``."""
    return float(np.linalg.norm(np.asarray(computed, np.float64) - exact) / np.linalg.norm(exact))
