"""VGG: stages of 3×3 convolutions with max-pooling, and fully connected layers with dropout."""

from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation
from workloads.models.convolution import max_pool
from workloads.models.image_options import VGG
from workloads.models.layers import conv, dense, dropout
from workloads.workload import Array


class VGGNetwork(nn.Module):
    """See ``image_options.VGG``."""

    options: VGG

    @nn.compact
    def __call__(self, x_BxHxWxC: Array, keys_B: Array | None, train: bool) -> Array:
        options = self.options
        inputs = "inputs"
        for stage in options.stages:
            for features in stage:
                x_BxHxWxC = nn.relu(activation(conv(features, 3, inputs)(x_BxHxWxC), "batch", "", "", "mlp"))
                x_BxHxWxC = activation(x_BxHxWxC, "batch", "", "", "act_embed")
                inputs = "embed"
            x_BxHxWxC = max_pool(x_BxHxWxC)
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        for number, width in enumerate(options.widths):
            layer = dense(width, "embed", "mlp", nn.initializers.he_normal())
            x_BxD = nn.relu(layer(activation(x_BxD, "batch", "act_embed")))
            x_BxD = activation(dropout(x_BxD, keys_B, options.dropout, number), "batch", "mlp")
        return dense(options.classes, "mlp" if options.widths else "embed", "vocab", dtype=jnp.float32)(x_BxD)
