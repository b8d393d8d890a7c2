"""The training step of a layout study: ``training.take_step``, split across a mesh by the compiler's partitioner.

The partitioner also splits the batch, so a layout may assign any tensor axis to any mesh axis.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from harness.compiled import ahead_of_time, jaxpr_cost
from harness.compiled.ahead_of_time import CompilationResult
from harness.step import programs, shardings, training
from harness.step.batch_partition import Division
from harness.step.training import Spans, TrainState
from workloads import losses, optimizers, registry
from workloads.axes import Sharding
from workloads.workload import Array, Examples, Names, Params, State, Variables, Workload

# Values of the metaparameters that an optimizer tunes. Costs do not depend on them.
METAPARAMETERS = {"learning_rate": 1e-3, "momentum": 0.9, "b1": 0.9, "beta": 0.95, "weight_decay": 0.0}


class PartitionedStep(NamedTuple):
    """A step and its partitioning.

    Attributes:
      workload: the data, model and update rule. Its network state ends with the loss of the last step.
      metaparameters: metaparameters of the update rule, and label_smoothing.
      on: mesh of devices.
      sharding: mesh axis of each sharded axis, and how stacked layers are rematerialized.
      carry: shapes of the state of a trial, with their shardings.
    """

    workload: Workload
    metaparameters: Mapping[str, float]
    on: Mesh
    sharding: Sharding
    carry: TrainState

    def spans(self, seed: Any = 0, steps: int = 0) -> Spans:
        """Returns the numbers that determine a step of a trial, after a number of steps."""
        constant = np.int32(optimizers.SCHEDULES["constant"])
        metaparameters: Any = {name: np.float32(value) for name, value in self.metaparameters.items()}
        unit = np.float32(1)
        return Spans(np.int32(steps), np.int32(steps + 1), np.uint32(seed), constant, unit, unit, metaparameters)

    def start(self, spans: Spans) -> TrainState:
        """Returns the initial state of a trial."""
        return training.fresh(self.workload, spans)

    def batch(self, size: int) -> Examples:
        """Returns the shapes of a batch of ``size`` examples, with their shardings."""
        by_example = NamedSharding(self.on, P(self.sharding.layout.get("batch")))
        return training.with_rows(self.workload.shapes.validation, size, sharding=by_example)

    def step(self, carry: TrainState, batch: Examples, spans: Spans) -> tuple[TrainState, Array]:
        """Returns the next state, and the mean loss over all labels before the step."""
        weights = losses.label_weights(batch.labels, None, self.workload.padding)
        count = np.float32(batch.labels.size) if weights is None else jnp.maximum(weights.sum(), 1.0)
        undivided = Division()
        ordered = training.batch_fed(batch, len(batch.labels), undivided)
        with jax.sharding.use_abstract_mesh(self.on.abstract_mesh):
            after = training.take_step(self.workload, undivided, spans, spans.start, carry, ordered, self.sharding)
        return after, after.state[-1] / count

    def jaxpr(self, size: int) -> Any:
        """Returns the jaxpr of ``step`` for ``size`` examples."""
        with programs.traced(self.on):
            return jax.make_jaxpr(self.step)(self.carry, self.batch(size), self.spans())

    def compiled_ahead(self, size: int) -> CompilationResult:
        """Compiles ``step`` for devices that may not be attached. See ``ahead_of_time.make``."""
        arguments = self.carry, self.batch(size)
        return ahead_of_time.make(lambda: self.lowered(size), jaxpr_cost.device_bytes(arguments))

    def lowered(self, size: int) -> jax.stages.Lowered:
        """Lowers ``step`` for ``size`` examples. The step donates the state."""
        return programs.lower(jax.jit(self.step, donate_argnums=0), self.on, self.carry, self.batch(size), self.spans())


def placements(shapes: Any) -> Any:
    """Returns the shardings of the given shapes."""
    return jax.tree.map(lambda leaf: leaf.sharding, shapes)


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
    devices_mesh = Mesh(np.array(devices[: int(np.prod(shape))]).reshape(shape), tuple(mesh), axis_types=auto)
    assert workload.axes is not None  # see ``shardings.tensors``
    named = jax.tree.map(lambda names: P(*map(layout.get, names)), workload.axes())
    sharding = Sharding(layout, named, workload.precision, False, rematerialized, kept)
    workload = _with_loss(workload)
    shapes, _ = programs.one_lane(workload)

    def placed(leaf: Any, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(devices_mesh, spec))

    carry = jax.tree.map(placed, shapes, shardings.of_carry(shapes, sharding))
    return PartitionedStep(workload, _metaparameters(optimizer), devices_mesh, sharding, carry)


def _metaparameters(optimizer: str) -> dict[str, float]:
    row = registry.get_optimizer(optimizer)
    tuned = {name: METAPARAMETERS.get(name, 1e-3) for name in row.tuned}
    return {"label_smoothing": 0.0, **row.defaults, **tuned}


def _with_loss(workload: Workload) -> Workload:
    """Returns a workload whose network state is a pair of the state and the total loss of the last step."""

    def init(key: Array) -> Variables:
        params, state = workload.init(key)
        return params, (state, jnp.float32(0))

    def loss(params: Params, state: State, *arguments: Any) -> tuple[Array, State]:
        value, after = workload.loss(params, state[0], *arguments)
        return value, (after, value)

    def predict(params: Params, state: State, inputs: Array) -> Array:
        return workload.predict(params, state[0], inputs)

    return workload._replace(init=init, loss=loss, predict=predict)


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

    return Examples(*(array((size, *leaf.shape[1:]), leaf.dtype) for leaf in workload.shapes.validation))
