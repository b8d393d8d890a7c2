"""Update rules as functions of traced metaparameters, in optax's form."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from workloads.workload import Array


def heavy_ball(learning_rate: Array, momentum: Array, nesterov: Array) -> optax.GradientTransformation:
    """Gradient descent with momentum, in one program for all of sgd, momentum and nesterov.

    v ← momentum · v + g; the update is −learning_rate · v, or for Nesterov's −learning_rate · (momentum · v + g)
    (Polyak 1964; Nesterov 1983 as in Sutskever et al. 2013), as in ``optax.sgd``.

    Args:
      learning_rate, momentum, nesterov: float32[]; ``nesterov`` is 1 or 0.
    """

    def init(params: Any) -> optax.TraceState:
        return optax.TraceState(trace=jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        del params
        assert isinstance(state, optax.TraceState)
        trace = jax.tree.map(lambda g, v: g + momentum * v, grads, state.trace)
        ahead = jax.tree.map(lambda g, v: jnp.where(nesterov > 0, g + momentum * v, v), grads, trace)
        return jax.tree.map(lambda u: -learning_rate * u, ahead), optax.TraceState(trace=trace)

    return optax.GradientTransformation(init, update)
