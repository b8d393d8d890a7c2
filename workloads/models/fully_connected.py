"""A fully connected network with ReLU between layers."""

from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation
from workloads.models.image_options import FullyConnected
from workloads.models.layers import dense
from workloads.workload import Array


class FullyConnectedNetwork(nn.Module):
    """See ``image_options.FullyConnected``."""

    options: FullyConnected

    @nn.compact
    def __call__(self, x_BxD: Array) -> Array:
        widths = self.options.widths
        x_BxD = x_BxD.reshape(len(x_BxD), -1)
        for number, width in enumerate(widths):
            if number > 0:
                x_BxD = activation(x_BxD, "batch", "act_embed")
            layer = dense(width, "embed" if number else "inputs", "mlp", nn.initializers.he_normal())
            x_BxD = activation(nn.relu(layer(x_BxD)), "batch", "mlp")
        return dense(self.options.classes, "mlp" if widths else "inputs", "vocab", dtype=jnp.float32)(x_BxD)
