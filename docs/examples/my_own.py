"""Data, a network in Linen, NNX and plain JAX, and an optimizer: my_own:blobs, my_own:linen_net, my_own:LION, …"""

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

from workloads import losses
from workloads.models.options import flax_model
from workloads.workload import Dataset, Examples, Model, Optimizer, Splits, content


def load():
    labels = np.arange(1000, dtype=np.int32) % 4
    inputs = (np.eye(4)[labels] + np.random.default_rng(0).normal(0, 0.5, (1000, 4))).astype(np.float32)
    return Splits(Examples(inputs[:800], labels[:800]), Examples(inputs[800:], labels[800:]), None)


def linen_net(classes, width=32):
    return flax_model(lambda: linen.Sequential([linen.Dense(width), linen.relu, linen.Dense(classes)]))


def nnx_net(classes, width=32):
    def net(inputs, rngs):
        layers = nnx.Linear(inputs.shape[-1], width, rngs=rngs), nnx.relu, nnx.Linear(width, classes, rngs=rngs)
        return nnx.split(nnx.Sequential(*layers), nnx.Param)

    def apply(params, state, inputs, keys, train):
        return nnx.merge(nnx.eval_shape(lambda: net(inputs, nnx.Rngs(0)))[0], params)(inputs), state

    return Model(lambda key, inputs: (nnx.to_pure_dict(net(inputs, nnx.Rngs(key))[1]), ()), apply)


def plain_net(classes):
    return Model(lambda k, x: (jnp.zeros((x.shape[-1], classes)), ()), lambda w, state, x, keys, train: (x @ w, state))


def lion(learning_rate, b1, b2, weight_decay):
    return optax.lion(learning_rate, b1, b2, weight_decay=weight_decay)


sizes = {"train_examples": 800, "evaluation_examples": 200, "classes": 4, "splits": ("train", "validation")}
scores = {"loss": losses.softmax_cross_entropy, "metrics": losses.CLASSIFICATION}
blobs = Dataset(load, lambda: content(load()), **sizes, **scores)
LION = Optimizer(lion, ("learning_rate", "b1"), {"b2": 0.99, "weight_decay": 0.0})
