"""A program: a step of a network on generated data and emulated devices, over every division asked for.

    python -m tests.harness.divided_networks NAME GROUP [SHARDSxMICROBATCHES ...]

Prints for each division, as JSON, the largest difference of a gradient, and of an element of the network's state after
the step, from those of one device, relative to the largest value of the same array and lane.
"""

import functools
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from harness import mesh, streams, training
from harness.division import Division
from harness.training import Carry
from tests.harness.divided import difference
from workloads import losses, registry
from workloads.workload import Dataset, Examples, Splits, Workload

LANES = 8  # a multiple of the devices on any axis ``trial``
BATCH = 64
CLASSES = 11
NETWORKS = {
    "resnet": ("resnet", {"blocks": [2], "width": 8, "norm": "ghost"}),
    "resnet_of_four_stages": ("resnet", {"blocks": [2, 1, 1, 1], "width": 8, "norm": "ghost"}),
    "resnet_of_group_norm": ("resnet", {"blocks": [2], "width": 8, "norm": "group"}),
    "transformer_decoder": (
        "transformer_decoder",
        {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 64, "dropout": 0.1},
    ),
}


def images(count: int) -> Examples:
    """Noise, brighter the larger the label: float32[count, 32, 32, 3]."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, count, np.int32)
    brightness = labels.astype(np.float32).reshape(-1, 1, 1, 1) / CLASSES
    return Examples(rng.random((count, 32, 32, 3), np.float32) - 1 + brightness, labels)


def tokens(count: int) -> Examples:
    """Tokens that count up from a random one, and the next ones: int32[count, 12]."""
    first = np.random.default_rng(0).integers(0, CLASSES, (count, 1), np.int32)
    counted = (first + np.arange(13, dtype=np.int32)) % CLASSES
    return Examples(counted[:, :-1], counted[:, 1:])


def generated_row(name: str, count: int = BATCH) -> Dataset:
    """The row of a data set for one of the networks, whose validation is on what it is trained on."""
    examples = (tokens if NETWORKS[name][0] == "transformer_decoder" else images)(count)
    splits = Splits(examples, examples, None)
    return Dataset(
        load=lambda: splits,
        version=lambda: "generated",
        train_examples=count,
        evaluation_examples=count,
        classes=CLASSES,
        splits=("validation",),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
    )


def generated(name: str, group: int) -> tuple[Workload, Examples]:
    """The workload of one of the networks, and its training set."""
    model, options = NETWORKS[name]
    options = options | ({"group": group} if model == "resnet" else {})
    row = generated_row(name)
    train = row.load().train
    assert train is not None
    return registry.workload(row, model, options, "sgd"), train


def carries(workload: Workload) -> Carry:
    """Parameters of all lanes, of which none is 0, as the scale of a block's last norm is in a fresh network."""
    rng = np.random.default_rng(1)

    def drawn(path: Any, leaf: Any) -> np.ndarray:
        noise, kind = rng.standard_normal((LANES, *leaf.shape), np.float32), path[-1].key
        if kind in ("scale", "variance"):
            return np.float32(1) + np.float32(0.1) * noise
        inputs = np.prod(leaf.shape[-4:-1]) if leaf.ndim > 1 else 100
        return noise * np.float32(np.sqrt(2 / inputs))

    shapes = jax.eval_shape(workload.init, jax.random.key(0))
    return Carry(*jax.tree_util.tree_map_with_path(drawn, shapes), ())


def one_step(workload: Workload, examples: Examples, division: Division, strategy: str) -> list[list[np.ndarray]]:
    """Gradients of all lanes, [L, ...] each, and states."""
    on = mesh.mesh(division.shards)

    def lane(carry: Carry, seed: Any, train: Examples) -> Any:
        order = streams.epoch_order(streams.keys(seed)[1], np.int32(0), len(train.labels))
        batch = training.batch_of(train, order, np.int32(0), BATCH, division)
        keys = streams.example_keys(seed, np.int32(0), batch.positions)
        return training.gradients(workload, division, carry, batch, keys, np.float32(0.1))

    program = jax.jit(mesh.over_lanes(on, strategy, lane, P()))
    seeds = np.arange(LANES, dtype=np.uint32)
    found = program(carries(workload), seeds, Examples(*map(jnp.asarray, examples)))
    return [[np.asarray(a, np.float64) for a in jax.tree.leaves(tree)] for tree in found]


def main(name: str, group: int, divisions: list[str]) -> None:
    """Prints the differences."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    step = functools.partial(one_step, *generated(name, group))
    gradients, states = step(Division(), "map")
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        ours = step(Division(shards, microbatches), "vmap")
        states_differ = difference(ours[1], states) if states else 0.0
        found[words] = {"gradients": difference(ours[0], gradients), "states": states_differ}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
