"""A small convolutional network: convolutions with max-pooling and ReLU, then one fully connected layer."""

from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation
from workloads.models.convolution import max_pool
from workloads.models.image_options import SimpleCNN
from workloads.models.layers import conv, dense, dropout
from workloads.workload import Array


class SimpleCNNNetwork(nn.Module):
    """See ``image_options.SimpleCNN``."""

    options: SimpleCNN

    @nn.compact
    def __call__(self, x_BxHxWxC: Array, keys_B: Array | None = None, train: bool = False) -> Array:
        options = self.options
        for number, features in enumerate(options.channels):
            layer = conv(features, options.kernel, "embed" if number else "inputs")
            # ReLU and max-pooling commute. Pooling first reduces the work to a quarter.
            x_BxHxWxC = nn.relu(max_pool(activation(layer(x_BxHxWxC), "batch", "", "", "mlp")))
            x_BxHxWxC = activation(x_BxHxWxC, "batch", "", "", "act_embed")
        x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
        x_BxD = nn.relu(dense(options.width, "embed", "mlp", nn.initializers.he_normal())(x_BxD))
        x_BxD = dropout(x_BxD, keys_B, options.dropout, 0)
        return dense(options.classes, "mlp", "vocab", dtype=jnp.float32)(activation(x_BxD, "batch", "mlp"))
