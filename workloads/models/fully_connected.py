"""A fully connected network with ReLU between layers."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_list
from workloads.workload import Array, Model, flax_model


def fully_connected(classes: int, widths: Sequence[int]) -> Model:
    """Returns a network with hidden layers of sizes ``widths`` (a model family of Shallue et al. 2018).

    Args:
      classes: number of outputs.
      widths: size of each hidden layer. An empty list gives a linear classifier.

    Returns:
      A model that maps inputs float32[B, ...], flattened to [B, D], to logits float32[B, classes]. Hidden weights are
      He-initialized, the output layer is LeCun-initialized, and biases are zero. The number of parameters is the sum
      over layers of (inputs + 1) × outputs.

    Raises:
      ValueError: ``widths`` is not a list of positive integers.
    """
    check_list("widths", widths, "[64]", may_be_empty=True)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.layers import dense

        class FullyConnected(nn.Module):
            @nn.compact
            def __call__(self, x_BxD: Array) -> Array:
                x_BxD = x_BxD.reshape(len(x_BxD), -1)
                for number, width in enumerate(widths):
                    if number > 0:
                        x_BxD = activation(x_BxD, "batch", "act_embed")
                    layer = dense(width, "embed" if number else "inputs", "mlp", nn.initializers.he_normal())
                    x_BxD = activation(nn.relu(layer(x_BxD)), "batch", "mlp")
                return dense(classes, "mlp" if widths else "inputs", "vocab", dtype=jnp.float32)(x_BxD)

        return FullyConnected()

    return flax_model(network)
