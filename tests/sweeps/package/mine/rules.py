"""An optimizer of this package: steps of equal size in every coordinate."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from workloads.workload import Optimizer


def signs(learning_rate: Any) -> optax.GradientTransformation:
    """Returns sign descent."""

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda g: -learning_rate * jnp.sign(g), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


SIGNS = Optimizer(signs, ("learning_rate",), {})
