"""A model of this package: one hidden layer of tanh units."""

from typing import Any

import jax
import jax.numpy as jnp

from workloads.workload import Array, Model


def net(classes: int, width: int = 16) -> Model:
    """Builds a network of inputs float32[B, D] with one hidden layer."""
    if width < 1:
        raise ValueError(f"width must be at least 1, not {width}")

    def init(key: Array, inputs: Array) -> Any:
        first, last = jax.random.split(key)
        inside = inputs.reshape(len(inputs), -1).shape[1]
        params = {
            "w": jax.random.normal(first, (inside, width), jnp.float32) / jnp.sqrt(jnp.float32(inside)),
            "b": jnp.zeros(width, jnp.float32),
            "out": jax.random.normal(last, (width, classes), jnp.float32) / jnp.sqrt(jnp.float32(width)),
        }
        return params, {}

    def apply(params: Any, state: Any, inputs: Array, keys: Any, train: bool) -> Any:
        hidden = jnp.tanh(inputs.reshape(len(inputs), -1) @ params["w"] + params["b"])
        return hidden @ params["out"], state

    return Model(init, apply)
