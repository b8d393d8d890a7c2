"""A program: training on emulated devices, over every division of a batch asked for, against that of one.

    python -m tests.harness.divided task TASK STEPS [SHARDSxMICROBATCHES ...]
    python -m tests.harness.divided network NAME GROUP [SHARDSxMICROBATCHES ...]

Prints as JSON for each division of a task the largest difference of a parameter after STEPS steps, relative to the
largest value of that parameter, in any lane. After 0 steps it prints that of the gradients of the first step. A network
is one of NETWORKS on generated data. For each of its divisions the program prints the errors of the gradients and of
the network's state after a step, as multiples of those of one device. See ``multiple``.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from harness.step import mesh, programs, rng, shardings, training
from harness.step.batch_partition import Division
from harness.step.programs_key import ProgramsKey, programs_key
from harness.step.training import Spans, TrainState
from sweeps import overrides, planning
from workloads import losses, registry
from workloads.models import convolution
from workloads.workload import Dataset, Examples, Splits, Workload

LANES = 8  # a multiple of the devices on any axis ``trial``
TASK_BATCH = 22  # of a task; 4 and 8 do not divide it
BATCH = 64  # of a network
CLASSES = 11
KINDS = ("gradients", "states")
# Compiles the reference in half the time.
REFERENCE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# Networks, by the name of their model and its options.
NETWORKS = {
    "resnet": ("resnet", {"blocks": [2], "width": 8, "norm": "ghost"}),
    "resnet_of_four_stages": ("resnet", {"blocks": [2, 1, 1, 1], "width": 8, "norm": "ghost"}),
    "resnet_of_group_norm": ("resnet", {"blocks": [2], "width": 8, "norm": "group"}),
    "transformer_decoder": (
        "transformer_decoder",
        {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 64, "dropout": 0.1},
    ),
}


def _gradients(workload: Workload, division: Division, batch: training.Batch, carry: TrainState, seed: Any) -> Any:
    """The gradients of a batch of the first step, and the state of the network."""

    sharding = shardings.of_step(workload, division)

    def of_shard(batch: training.Batch, carry: TrainState, seed: Any) -> Any:
        keys = rng.example_keys(seed, np.int32(0), batch.positions)
        return training.gradients(workload, division, carry, batch, keys, np.float32(0.1), sharding)

    return training.over_batch(of_shard, division, sharding, batch, carry, seed)


def gradients(key: ProgramsKey, division: Division, strategy: str) -> list[np.ndarray]:
    """The gradients of the first step of all lanes, [L, ...] of each parameter."""
    workload, on = programs.workload_of(key), mesh.mesh(division)
    of = programs.shapes(workload, on, LANES)

    def lane(carry: TrainState, spans: Spans, train: object) -> object:
        carry = training.fresh(workload, spans)
        _, data_key = rng.keys(spans.seed)
        if workload.draw:
            drawn = workload.draw(jax.random.fold_in(data_key, 0), key.batch_size)
            batch = training.batch_of(drawn, None, np.int32(0), len(drawn.labels), division)
        else:
            order = rng.epoch_order(data_key, np.int32(0), len(train.labels))
            batch = training.batch_of(train, order, np.int32(0), key.batch_size, division)
        return _gradients(workload, division, batch, carry._replace(optimizer=None), spans.seed)[0]

    program = jax.jit(programs.over_lanes(on, strategy, lane))
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), of.spans)
    spans = spans._replace(stop=np.ones(LANES, np.int32), seed=np.arange(LANES, dtype=np.uint32))
    carry = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), of.carry)
    train = programs._data(key.dataset, key.data, "null", division._replace(microbatches=1)).train
    return [np.asarray(a, np.float64) for a in jax.tree.leaves(program(carry, spans, train))]


def parameters(key: ProgramsKey, division: Division, strategy: str, steps: int) -> list[np.ndarray]:
    """The parameters of all lanes after ``steps``, [L, ...] each, through the programs of a study."""
    built, _ = programs.programs_for(key, LANES, strategy, division)
    workload, on = programs.workload_of(key), mesh.mesh(division)
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), programs.shapes(workload, on, LANES).spans)
    rates = {"learning_rate": np.geomspace(0.01, 0.1, LANES).astype(np.float32)}
    spans = spans._replace(
        stop=np.full(LANES, steps, np.int32),
        seed=np.arange(LANES, dtype=np.uint32),
        end_factor=np.ones(LANES, np.float32),
        metaparameters=spans.metaparameters | rates,
    )
    return [np.asarray(a, np.float64) for a in jax.tree.leaves(built.advance(built.empty(), spans).params)]


def difference(ours: list[np.ndarray], alone: list[np.ndarray]) -> float:
    """The largest difference relative to the largest gradient of the same parameter and lane."""

    def of(a: np.ndarray, b: np.ndarray) -> float:
        axes = tuple(range(1, b.ndim))
        scale = np.abs(b).max(axes)
        return float((np.abs(a - b).max(axes) / np.where(scale > 0, scale, 1)).max())

    return max(of(a, b) for a, b in zip(ours, alone, strict=True))


def of_task(task: str, steps: int, divisions: list[str]) -> dict[str, float]:
    """The differences of a task."""
    batch = [] if task == "noisy_quadratic" else [f"batch_size={TASK_BATCH}"]
    line = [f"task={task}", "optimizer=sgd", *batch, "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line(line)).studies
    key = programs_key(study)

    def found_by(division: Division, strategy: str) -> list[np.ndarray]:
        return parameters(key, division, strategy, steps) if steps else gradients(key, division, strategy)

    alone = found_by(Division(), "map")
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        found[words] = difference(found_by(Division(shards, microbatches), "vmap"), alone)
    return found


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


def carries(workload: Workload) -> TrainState:
    """Parameters of all lanes, of which none is 0, as the scale of a block's last norm is in a fresh network."""
    rng = np.random.default_rng(1)

    def drawn(path: Any, leaf: Any) -> np.ndarray:
        noise, kind = rng.standard_normal((LANES, *leaf.shape), np.float32), path[-1].key
        if kind in ("scale", "variance"):
            return np.float32(1) + np.float32(0.1) * noise
        inputs = np.prod(leaf.shape[-4:-1]) if leaf.ndim > 1 else 100
        return noise * np.float32(np.sqrt(2 / inputs))

    shapes = jax.eval_shape(workload.init, jax.random.key(0))
    return TrainState(*jax.tree_util.tree_map_with_path(drawn, shapes), ())


def one_step(
    workload: Workload,
    examples: Examples,
    division: Division,
    strategy: str,
    dtype: type[np.floating] = np.float32,
    compiler_options: dict[str, bool | int] | None = None,
) -> list[list[np.ndarray]]:
    """Gradients of all lanes, [L, ...] each, and states. ``dtype`` is that of the parameters and the examples."""
    on = mesh.mesh(division)

    def lane(carry: TrainState, seed: Any, train: Examples) -> Any:
        order = rng.epoch_order(rng.keys(seed)[1], np.int32(0), len(train.labels))
        batch = training.batch_of(train, order, np.int32(0), BATCH, division)
        return _gradients(workload, division, batch, carry, seed)

    def cast(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype) if array.dtype == np.float32 else array

    program = jax.jit(programs.over_lanes(on, strategy, lane), compiler_options=compiler_options)
    seeds = np.arange(LANES, dtype=np.uint32)
    found = program(jax.tree.map(cast, carries(workload)), seeds, jax.tree.map(cast, examples))
    return [[np.asarray(a, np.float64) for a in jax.tree.leaves(tree)] for tree in found]


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Computes in float64 whatever the models and the losses compute in float32. Random bits stay the same."""
    bernoulli = jax.random.bernoulli

    def total_loss(loss: Any, outputs: Any, labels: Any, weights: Any, label_smoothing: Any) -> Any:
        return losses.total(loss(losses.product(outputs), labels, label_smoothing), weights)

    with (
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        mock.patch.object(jnp, "float32", jnp.float64),
        mock.patch.object(jax.random, "bernoulli", lambda key, p, shape: bernoulli(key, np.float32(p), shape)),
        mock.patch.object(losses, "total_loss", total_loss),  # its lazy product is float32
    ):
        yield


def errors(found: list[np.ndarray], exact: list[np.ndarray]) -> np.ndarray:
    """The largest error in each array and lane, relative to the largest exact value of the same array and lane.

    Returns:
      float64[arrays, L].
    """

    def of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        axes = tuple(range(1, b.ndim))
        return np.asarray(np.abs(a - b).max(axes) / np.abs(b).max(axes))

    return np.stack([of(a, b) for a, b in zip(found, exact, strict=True)])


def multiple(ours: np.ndarray, alone: np.ndarray, terms: int) -> float:
    """The largest multiple of the error of one device plus the rounding of a sum, over all arrays and lanes.

    The error of one device shows how many digits an array loses in a lane: sums nearly cancel in what a norm passes
    back. The rounding of a sum of ``terms`` numbers, eps · √terms, is added because that error may be small by chance.
    """
    return float((ours / (alone + np.finfo(np.float32).eps * np.sqrt(terms))).max())


def smooth() -> None:
    """Replaces ReLU by softplus and the maximum of a pooling window by its sum.

    Rounding decides on which side of 0 an input near 0 falls, and which of two nearly equal values is the maximum. In a
    ReLU that changed a gradient by 16 % of a parameter's largest in one of eight lanes on one processor, and by nothing
    on another. In a maximum it changes one by 0.1 to 0.2 %, in some draws of the parameters.
    """
    nn.relu = nn.softplus
    convolution.max_pool_3x3 = lambda x: nn.pooling.pool(x, 0.0, jax.lax.add, (3, 3), (2, 2), ((1, 1), (1, 1)))


def of_network(name: str, group: int, divisions: list[str]) -> dict[str, dict[str, float]]:
    """The errors of a network as in ``multiple``, all relative to a step of one device in float64.

    A gradient is a sum over all examples. A state is a mean of few numbers, whose sum adds hardly any rounding.
    """
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    smooth()
    workload, examples = generated(name, group)
    with in_float64():
        exact = one_step(workload, examples, Division(), "map", np.float64, REFERENCE)
    alone = one_step(workload, examples, Division(), "map")
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        ours = one_step(workload, examples, Division(shards, microbatches), "vmap")
        found[words] = {
            kind: multiple(errors(a, reference), errors(b, reference), terms)
            for kind, terms, a, b, reference in zip(KINDS, (BATCH, 1), ours, alone, exact, strict=True)
            if reference
        }
    return found


if __name__ == "__main__":
    _, what, name, number, *divisions = sys.argv
    print(json.dumps({"task": of_task, "network": of_network}[what](name, int(number), divisions)))
