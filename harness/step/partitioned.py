"""A training step of any workload, which the compiler's partitioner splits across a mesh, including the batch.

Unlike in ``training``, the program operates on whole arrays, and the layout names the mesh axis of each sharded axis.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from harness.step import rng, shardings, training
from harness.step.training import TrainState
from workloads import axes, losses, registry
from workloads.axes import Sharding
from workloads.workload import Array, Examples, Names, State, Workload

# Values of the metaparameters that an optimizer tunes. Costs do not depend on them.
METAPARAMETERS = {"learning_rate": 1e-3, "momentum": 0.9, "b1": 0.9, "beta": 0.95, "weight_decay": 0.0}


class PartitionedStep(NamedTuple):
    """A step and its partitioning.

    Attributes:
      workload: the data, model and update rule.
      rule: the update rule, with constant metaparameters.
      on: mesh of devices.
      layout: mesh axis of each sharded axis.
      rematerialized: whether stacked layers are computed again in the backward pass.
      kept: names of their tensors that are stored instead.
      carry: shapes of the state of a trial, with their shardings.
    """

    workload: Workload
    rule: optax.GradientTransformation
    on: Mesh
    layout: Mapping[str, str]
    rematerialized: bool
    kept: Names
    carry: TrainState

    def start(self, seed: Array) -> TrainState:
        """Returns the initial state of a trial with a seed, uint32[]."""
        return _start(self.workload, self.rule, seed)

    def batch(self, size: int) -> Examples:
        """Returns the shapes of a batch of ``size`` examples, with their shardings."""
        by_example = NamedSharding(self.on, P(self.layout.get("batch")))
        return training.with_rows(self.workload.shapes.validation, size, sharding=by_example)

    def gradients(self, carry: TrainState, batch: Examples, seed: Array) -> tuple[tuple[Array, State], Any]:
        """Returns the mean loss over all labels and the network state, and the gradients of the parameters."""
        weights = losses.label_weights(batch.labels, None, self.workload.padding)
        count = np.float32(batch.labels.size) if weights is None else jnp.maximum(weights.sum(), 1.0)
        keys = rng.example_keys(seed, jnp.int32(0), jnp.arange(len(batch.labels), dtype=jnp.int32))
        whole = jax.tree.map(lambda leaf: P(), carry.params)  # the partitioner gathers parameters

        def loss(params: Any) -> tuple[Array, State]:
            total, state = self.workload.loss(params, carry.state, batch, weights, keys, jnp.float32(0))
            return total / count, state

        sharding = Sharding(self.layout, whole, self.workload.precision, self.rematerialized, self.kept)
        with axes.sharded(sharding), jax.sharding.use_abstract_mesh(self.on.abstract_mesh):
            value, grads = jax.value_and_grad(loss, has_aux=True)(carry.params)
        return value, jax.lax.with_sharding_constraint(grads, placements(self.carry.params))

    def step(self, carry: TrainState, batch: Examples, seed: Array) -> tuple[TrainState, Array]:
        """Returns the next state, and the loss before the step."""
        (value, state), grads = self.gradients(carry, batch, seed)
        updates, optimizer = self.rule.update(grads, carry.optimizer, carry.params)
        after = TrainState(optax.apply_updates(carry.params, updates), state, optimizer)
        return jax.tree.map(jax.lax.with_sharding_constraint, after, placements(self.carry)), value

    def lowered(self, size: int) -> jax.stages.Lowered:
        """Lowers ``step`` for ``size`` examples. The step donates the state. Float32 matmuls keep full precision."""
        seed = jax.ShapeDtypeStruct((), jnp.uint32)
        with jax.default_matmul_precision("highest" if self.workload.precision == "float32" else None):
            return jax.jit(self.step, donate_argnums=0).lower(self.carry, self.batch(size), seed)


def placements(shapes: Any) -> Any:
    """Returns the shardings of the given shapes."""
    return jax.tree.map(lambda leaf: leaf.sharding, shapes)


def _start(workload: Workload, rule: optax.GradientTransformation, seed: Array) -> TrainState:
    params, state = workload.init(jax.random.key(seed))
    return TrainState(params, state, rule.init(params))


def partitioned(
    workload: Workload,
    optimizer: str,
    mesh: Mapping[str, int],
    layout: Mapping[str, str],
    devices: list[Any],
    *,
    rematerialized: bool = False,
    kept: Names = (),
) -> PartitionedStep:
    """Returns a step on the first devices of a list. Along the list, the last mesh axis varies fastest.

    Args:
      workload: the data, model and update rule.
      optimizer: name of the update rule in the registry.
      mesh: sizes of the mesh axes.
      layout: mesh axis of each sharded axis.
      devices: at least as many devices as the mesh has.
      rematerialized: whether stacked layers are computed again in the backward pass.
      kept: names of their tensors that are stored instead. See ``axes.kept``.
    """
    shape = tuple(mesh.values())
    auto = tuple(AxisType.Auto for _ in mesh)
    on = Mesh(np.array(devices[: int(np.prod(shape))]).reshape(shape), tuple(mesh), axis_types=auto)
    row = registry.get_optimizer(optimizer)
    tuned = {name: METAPARAMETERS.get(name, 1e-3) for name in row.tuned}
    rule = row.update_rule(**{name: np.float32(value) for name, value in {**row.defaults, **tuned}.items()})
    assert workload.axes is not None  # see ``shardings.tensors``
    shapes = jax.eval_shape(functools.partial(_start, workload, rule), jax.ShapeDtypeStruct((), jnp.uint32))
    named = jax.tree.map(lambda names: P(*map(layout.get, names)), workload.axes())
    specs = shardings.of_carry(shapes, Sharding(layout, named, workload.precision))

    def placed(leaf: Any, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(on, spec))

    return PartitionedStep(workload, rule, on, layout, rematerialized, kept, jax.tree.map(placed, shapes, specs))


def drawn(workload: Workload, classes: int, size: int, seed: int, at: int) -> Examples:
    """Returns random numbers in the shapes of a step's batch. Classes and tokens are below ``classes``.

    Args:
      workload: the shapes of the data.
      classes: number of classes or tokens, or 0 if labels are numbers.
      size: number of examples.
      seed: seed of the trial.
      at: index of the step.
    """
    generator = np.random.default_rng([seed, at])

    def array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        if np.issubdtype(dtype, np.floating):
            return generator.standard_normal(shape).astype(dtype)
        return generator.integers(0, 256 if dtype == np.uint8 else max(classes, 1), shape).astype(dtype)

    return Examples(*(array((size, *one.shape[1:]), one.dtype) for one in workload.shapes.validation))
