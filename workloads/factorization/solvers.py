"""Solvers for the normal equations of rows, batched over rows.

A row x of the factors minimizes Σ_observed (1 − x·v)² + α Σ_all (x·v)² + ridge ‖x‖² (ALX, arXiv 2112.02194), so

    (Σ_observed v vᵀ + α G + ridge I) x = Σ_observed v,    G = Σ_all v vᵀ.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

CONJUGATE = ("cg", "rotated_cg")  # these do not need the matrices of rows


class Observed(NamedTuple):
    """Sums over the links of rows, given as functions that gather the required vectors.

    Attributes:
      residual: x[rows, d] → Σ v (1 − v·x), [rows, d].
      product: x[rows, d] → Σ v (v·x), [rows, d].
      square: x[rows, d] → Σ (v·x)², [rows, 1].
      gram: () → Σ v vᵀ, [rows, d, d].
    """

    residual: Callable[[Array], Array]
    product: Callable[[Array], Array]
    square: Callable[[Array], Array]
    gram: Callable[[], Array]


class System(NamedTuple):
    """The normal equations of some rows.

    Attributes:
      observed: sums over the links of the rows.
      shared: α G, [d, d], or only its diagonal [d] if the tables are rotated to make G diagonal.
      ridge: [rows], ridge of each row.
      start: [rows, d], solution of the previous epoch.
    """

    observed: Observed
    shared: Array
    ridge: Array
    start: Array


def conjugate_gradients(system: System, steps: int) -> Array:
    """Takes ``steps`` conjugate-gradient steps from ``start``, preconditioned by α G + ridge if α G is diagonal.

    Returns:
      [rows, d], in the dtype of ``start``.
    """
    diagonal = system.shared.ndim == 1
    ridge = system.ridge[:, None]

    def smooth(x: Array) -> Array:
        return (x * system.shared if diagonal else x @ system.shared) + ridge * x

    def precondition(residual: Array) -> Array:
        return residual / (system.shared + ridge) if diagonal else residual

    # The initial residual and the first direction.
    x = system.start
    residual = system.observed.residual(x) - smooth(x)
    direction = preconditioned = precondition(residual)
    size = jnp.sum(residual * preconditioned, -1, keepdims=True)
    for _ in range(steps - 1):
        image = system.observed.product(direction) + smooth(direction)
        length = _ratio(size, jnp.sum(direction * image, -1, keepdims=True))
        x = x + length * direction
        residual = residual - length * image
        preconditioned = precondition(residual)
        last = size
        size = jnp.sum(residual * preconditioned, -1, keepdims=True)
        direction = preconditioned + _ratio(size, last) * direction
    # The last step does not need a new residual, so its links are read once rather than twice.
    curvature = system.observed.square(direction) + jnp.sum(direction * smooth(direction), -1, keepdims=True)
    return x + _ratio(size, curvature) * direction


def _ratio(numerator: Array, denominator: Array) -> Array:
    return jnp.where(denominator > 0, numerator / jnp.where(denominator > 0, denominator, 1), 0)


def dense(system: System, method: str) -> Array:
    """Solves the systems exactly, in float32 or better, regardless of the dtype of ``start``.

    Returns:
      [rows, d], in the dtype of ``start``.
    """
    dtype = system.start.dtype
    precise = np.promote_types(dtype, np.float32)
    unit = jnp.eye(system.start.shape[-1], dtype=dtype)
    matrix = (system.observed.gram() + system.shared + system.ridge[:, None, None] * unit).astype(precise)
    right = system.observed.residual(jnp.zeros_like(system.start)).astype(precise)[..., None]
    batched = functools.partial(_solution, method=method)

    def one_by_one(matrix: Array, right: Array) -> Array:
        # Batched LAPACK calls on several CPU devices deadlock waiting for each other's threads (jaxlib 0.10.2).
        return jax.lax.map(lambda row: batched(*row), (matrix, right))

    return jax.lax.platform_dependent(matrix, right, cpu=one_by_one, default=batched)[..., 0].astype(dtype)


def _solution(matrix: Array, right: Array, *, method: str) -> Array:
    if method == "cholesky":
        lower = jnp.linalg.cholesky(matrix)
        half = jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)
        return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)
    if method == "lu":
        return jnp.linalg.solve(matrix, right)
    q, r = jnp.linalg.qr(matrix)
    return jax.lax.linalg.triangular_solve(r, jnp.swapaxes(q, -1, -2) @ right, left_side=True)


def solve(name: str, system: System, cg_steps: int) -> Array:
    """Solves ``system`` with a solver of ``als.SOLVERS``. Returns [rows, d]. rotated_cg is cg on rotated tables."""
    if name in CONJUGATE:
        return conjugate_gradients(system, cg_steps)
    return dense(system, name)


def sums_over_links(vectors: Array) -> Observed:
    """Returns the sums for rows, given the gathered vectors of their columns, [rows, length, d], padded with zeros."""

    def along(x: Array) -> Array:
        return jnp.einsum("rld,rd->rl", vectors, x)

    def back(weights: Array) -> Array:
        return jnp.einsum("rld,rl->rd", vectors, weights)

    return Observed(
        residual=lambda x: back(1 - along(x)),
        product=lambda x: back(along(x)),
        square=lambda x: jnp.sum(along(x) ** 2, axis=-1, keepdims=True),
        gram=lambda: jnp.einsum("rld,rle->rde", vectors, vectors),
    )
