"""Compiles the programs of a study. They are lowered from shapes only, then combined with the shared data."""

import contextlib
import functools
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P

from harness.compiled import compile_cache, jaxpr_cost
from harness.step import evaluation, mesh, shardings, training
from harness.step.batch_partition import TRIAL, Division
from harness.step.programs_key import ProgramsKey
from harness.step.training import CALL_STEPS, Spans, TrainState
from results.aliases import Fields, Strings
from workloads import devices, registry
from workloads.workload import DATA, Array, ArrayPair, Examples, Workload

_WHOLE = P()
_ALONE = Division()
FED_BYTES = 256 << 20  # limit on the prefetched batches of a call per device


class Programs(NamedTuple):
    """The compiled functions of a study, and the data on the devices that they use.

    Attributes:
      advance: ``(carry, Spans, upcoming) -> carry``. The old carry is donated. The optional last argument is passed to
        ``Feeder.take``.
      evaluate: ``(carry, active bool[L]) -> (metrics float32[L, M], finite bool[L])``. Metrics are NaN for inactive
        lanes and for trials with a non-finite parameter.
      empty: ``() -> carry``. It also puts the data on the devices.
      put: ``(carry, {lane: arrays}) -> carry``. Replaces the leaves of the given lanes' carries.
      lane_shapes: shapes of the leaves of one lane's carry.
      metrics: names of the M metrics.
      lanes: number of lanes, L.
      strategy: map or vmap.
      division: partition of each batch.
      call_steps: maximum number of steps per call. None means no limit.
      bytes: peak memory of a device, computed from the compiler's report on each program and the total size of the
        data.
      feeding: a context manager for the calls of one study, which drops prefetched batches on exit.
    """

    advance: Callable[..., Any]
    evaluate: Callable[[Any, Array], ArrayPair]
    empty: Callable[[], Any]
    put: Callable[[Any, Mapping[int, Sequence[np.ndarray]]], Any]
    lane_shapes: tuple[jax.ShapeDtypeStruct, ...]
    metrics: Strings
    lanes: int
    strategy: str
    division: Division
    call_steps: int | None
    bytes: int
    feeding: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


class Shapes(NamedTuple):
    """Arguments that programs are lowered for, as ``jax.ShapeDtypeStruct`` with shardings.

    Attributes:
      carry, spans, active: arrays with a leading lane axis.
      train: training set, or None if it is not resident on the devices.
      splits: evaluated splits.
    """

    carry: TrainState
    spans: Spans
    active: Any
    train: Examples | None
    splits: tuple[Examples, ...]


def default_strategy() -> str:
    """Returns the default strategy: ``map`` on a CPU (fast and bitwise reproducible), ``vmap`` on GPUs and TPUs."""
    return "map" if jax.default_backend() == "cpu" else "vmap"


def programs_for(
    key: ProgramsKey,
    lanes: int,
    strategy: str,
    division: Division,
    source: Fields | None = None,
) -> tuple[Programs, bool]:
    """Returns the programs of a study, and whether this call built them.

    Args:
      key: key of the study's programs.
      lanes: number of trials that run concurrently. It must be a multiple of the number of devices along the ``trial``
        axis.
      strategy: map or vmap.
      division: partition of each batch.
      source: options of the user's own data set, as in ``registry.dataset``.
    """
    builds = _build.cache_info().misses
    return _build(key, lanes, strategy, division, json.dumps(source)), _build.cache_info().misses > builds


def workload_of(key: ProgramsKey, source: Fields | None = None) -> Workload:
    """Returns the workload of the programs."""
    row = registry.dataset(key.dataset, source)
    return registry.workload(row, key.model, json.loads(key.model_options), key.optimizer, key.precision)


def shapes(workload: Workload, on: Mesh, lanes: int, division: Division = _ALONE) -> Shapes:
    """Returns the shapes of all program arguments for a mesh, without reading data or using a device."""

    def of_lanes(array: jax.ShapeDtypeStruct, spec: P = _WHOLE) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(on, P(TRIAL, *spec))
        return jax.ShapeDtypeStruct((lanes, *array.shape), array.dtype, sharding=sharding)

    carry, spans = one_lane(workload)
    carry = jax.tree.map(of_lanes, carry, shardings.of_carry(carry, shardings.of_step(workload, division)))
    spans = jax.tree.map(of_lanes, spans)
    train = None if workload.draw or workload.feed else workload.shapes.train
    return Shapes(
        carry=carry,
        spans=spans,
        active=of_lanes(jax.ShapeDtypeStruct((), jnp.bool_)),
        train=None if train is None else training.with_rows(train, train.labels.shape[0], sharding=mesh.replicated(on)),
        splits=evaluation.prepared_shapes(workload, on.shape[DATA], mesh.by_shard(on)),
    )


def one_lane(workload: Workload) -> tuple[TrainState, Spans]:
    """Returns the shapes of a trial's state and of its spans."""
    f32, i32, u32 = (jax.ShapeDtypeStruct((), np.dtype(name)) for name in ("float32", "int32", "uint32"))
    names = [*inspect.signature(workload.update_rule).parameters, "label_smoothing"]
    spans: Any = Spans(i32, i32, u32, i32, f32, f32, dict.fromkeys(names, f32))
    return jax.eval_shape(functools.partial(training.fresh, workload), spans), spans


def over_lanes(on: Mesh, strategy: str, lane: Callable[..., Any], *, own_data: bool = False) -> Callable[..., Any]:
    """Maps ``lane(carry, spans, data)`` over all lanes, which are sharded across the ``trial`` axis.

    Args:
      on: mesh with the axes trial and data.
      strategy: map (one lane after another) or vmap.
      lane: function that processes one lane, with whole batches. The partitioner splits its arrays across the ``data``
        axis, except inside ``mesh.over_shards``.
      own_data: whether the data have a leading lane axis, so each lane gets separate data.
    """

    def all_lanes(carry: Any, spans: Any, data: Any) -> Any:
        by_lane, shared = ((data,), ()) if own_data else ((), (data,))
        if strategy == "vmap" and len(jax.tree.leaves(spans)[0]) == 1:  # vmap over one lane would compile differently
            lanes_data = jax.tree.map(lambda a: a[0], (carry, spans, *by_lane))
            return jax.tree.map(lambda a: a[None], lane(*lanes_data, *shared))
        if strategy == "vmap":
            return jax.vmap(lambda *each: lane(*each, *shared))(carry, spans, *by_lane)
        return jax.lax.map(lambda each: lane(*each, *shared), (carry, spans, *by_lane))

    # A single device does not need the partitioner, and its results must not depend on it.
    by_hand = {TRIAL} if on.size > on.shape[TRIAL] else {TRIAL, DATA}
    specs = (P(TRIAL), P(TRIAL), P(TRIAL) if own_data else P())
    return jax.shard_map(all_lanes, mesh=on, in_specs=specs, out_specs=P(TRIAL), axis_names=by_hand, check_vma=False)


def lower_start(workload: Workload, on: Mesh, shapes: Shapes) -> jax.stages.Lowered:
    """Returns the program ``(carry, Spans, None) -> carry`` that initializes lanes starting from step 0."""
    lanes = over_lanes(on, "map", functools.partial(training.start_lane, workload))
    program = jax.jit(lanes, donate_argnums=0, out_shardings=_shardings(shapes.carry))
    return lower(program, on, shapes.carry, shapes.spans, None)


def lower_train(
    workload: Workload, on: Mesh, strategy: str, shapes: Shapes, batch_size: int, division: Division
) -> jax.stages.Lowered:
    """Returns the program ``(carry, Spans, train) -> carry`` that takes steps."""
    lanes = shapes.active.shape[0]
    call_steps = most_steps(workload, strategy, lanes // on.shape[TRIAL], batch_size)
    lane = functools.partial(training.train_lane, workload, batch_size, division, call_steps)
    train = shapes.train
    if workload.feed:
        size = division.examples(batch_size) * division.shards
        assert workload.shapes.train is not None and call_steps is not None
        train = training.with_rows(workload.shapes.train, lanes, call_steps, size, sharding=mesh.fed(on))
    all_lanes = over_lanes(on, strategy, lane, own_data=workload.feed is not None)
    program = jax.jit(all_lanes, donate_argnums=0, out_shardings=_shardings(shapes.carry))
    return lower(program, on, shapes.carry, shapes.spans, train)


def most_steps(workload: Workload, strategy: str, lanes: int, batch_size: int) -> int | None:
    """Returns the maximum number of steps per call, given the number of lanes on a device, or None for no limit."""
    limit = CALL_STEPS if strategy == "vmap" or workload.feed else None
    if workload.feed and workload.shapes.train:
        example = sum(math.prod(a.shape[1:]) * np.dtype(a.dtype).itemsize for a in workload.shapes.train)
        limit = max(1, min(CALL_STEPS, FED_BYTES // (lanes * batch_size * example)))
    return limit


def lower_evaluate(workload: Workload, on: Mesh, shapes: Shapes, division: Division) -> jax.stages.Lowered:
    """Returns the program ``(carry, active, splits) -> (metrics, finite)``, which computes only active lanes.

    Few lanes reach an evaluation at the same time, and evaluating one lane is enough to keep a device busy.
    """
    lane = functools.partial(evaluation.evaluate_lane, workload, division)
    lanes = over_lanes(on, "map", lane)
    program = jax.jit(lanes, out_shardings=mesh.by_lane(on))
    return lower(program, on, shapes.carry, shapes.active, shapes.splits)


def _shardings(shapes: Any) -> Any:
    return jax.tree.map(lambda array: array.sharding, shapes)


def lower(program: Any, on: Mesh | AbstractMesh, *arguments: Any) -> jax.stages.Lowered:
    """Lowers a program with full-precision float32 matmuls. By default, TPUs and GPUs reduce their precision.

    A program over an abstract mesh, which has no devices, is lowered for TPUs and cannot be compiled.
    """
    with traced(on):
        return program.trace(*arguments).lower(lowering_platforms=("tpu",) if isinstance(on, AbstractMesh) else None)


@contextlib.contextmanager
def traced(on: Mesh | AbstractMesh) -> Iterator[None]:
    """Traces programs for a mesh with full-precision float32 matmuls."""
    device = None if isinstance(on, AbstractMesh) else on.devices.flat[0]
    with jax.default_matmul_precision("highest"), devices.traced_for(device):
        yield


class Data(NamedTuple):
    """A data set on the devices of a mesh: training examples and evaluated splits."""

    train: Examples | None
    splits: tuple[Examples, ...]


@functools.lru_cache(maxsize=2)  # for the current study and the previous one
def _data(dataset: str, version: str, source: str, division: Division) -> Data:
    """Returns the data of a study's programs on the mesh of a partition. ``source`` is JSON."""
    del version  # only part of the cache key
    row = registry.dataset(dataset, json.loads(source))
    loaded = row.load()
    data_mesh = mesh.mesh(division)
    train = None
    if not (row.draw or row.feed or loaded.train is None):
        train = mesh.device_put_sharded(loaded.train, mesh.replicated(data_mesh))
    splits = [evaluation.prepared(row, getattr(loaded, name), division.shards) for name in row.splits]
    return Data(train, tuple(mesh.device_put_sharded(split, mesh.by_shard(data_mesh)) for split in splits))


class _SharedPrograms(NamedTuple):
    """The programs that all batch sizes share, and the shapes of all program arguments."""

    workload: Workload
    on: Mesh
    shapes: Shapes
    start: jax.stages.Compiled
    evaluate: jax.stages.Compiled


@functools.lru_cache(maxsize=16)
def _shared(key: ProgramsKey, lanes: int, division: Division, source: str) -> _SharedPrograms:
    workload = workload_of(key, json.loads(source))
    program_mesh = mesh.mesh(division)
    arguments = shapes(workload, program_mesh, lanes, division)
    start = compile_cache.compiled(lower_start(workload, program_mesh, arguments))
    evaluate = compile_cache.compiled(lower_evaluate(workload, program_mesh, arguments, division))
    return _SharedPrograms(workload, program_mesh, arguments, start, evaluate)


@functools.lru_cache(maxsize=16)
def _build(key: ProgramsKey, lanes: int, strategy: str, division: Division, source: str) -> Programs:
    undivided = division._replace(microbatches=1)
    shared = _shared(key._replace(batch_size=0), lanes, undivided, source)
    workload, program_mesh = shared.workload, shared.on
    lowered = lower_train(workload, program_mesh, strategy, shared.shapes, key.batch_size, division)
    train = compile_cache.compiled(lowered)
    placed = functools.partial(_data, key.dataset, key.data, source, undivided)
    place = functools.partial(mesh.device_put_sharded, sharding=mesh.by_lane(program_mesh))
    call_steps = most_steps(workload, strategy, lanes // program_mesh.shape[TRIAL], key.batch_size)

    feeder = None
    if workload.feed is not None:
        from harness.step import prefetch

        assert call_steps is not None
        make = functools.partial(prefetch.fed, workload, key.batch_size, division, call_steps, mesh.fed(program_mesh))
        feeder = prefetch.Feeder(make, call_steps)

    def empty() -> Any:
        placed()
        return jax.tree.map(
            lambda a: mesh.device_put_sharded(np.zeros(a.shape, a.dtype), a.sharding), shared.shapes.carry
        )

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=_shardings(shared.shapes.carry))
    def put_lane(carry: Any, lane: Array, state: Any) -> Any:
        return jax.tree.map(lambda array, one: array.at[lane].set(one), carry, state)

    def put(carry: Any, lanes: Mapping[int, Sequence[np.ndarray]]) -> Any:
        shapes, structure = jax.tree.flatten(shared.shapes.carry)
        for lane, arrays in lanes.items():
            # Without the axis of lanes. Each process puts the parts of its own devices.
            of_lane = [NamedSharding(program_mesh, P(*shape.sharding.spec[1:])) for shape in shapes]
            state = list(map(mesh.device_put_sharded, arrays, of_lane))
            carry = put_lane(carry, np.int32(lane), jax.tree.unflatten(structure, state))
        return carry

    def advance(carry: Any, spans: Spans, upcoming: np.ndarray | None = None) -> Any:
        on_devices = place(spans)
        if np.any((spans.start == 0) & (spans.stop > 0)):
            carry = shared.start(carry, on_devices, None)
        return train(carry, on_devices, feeder.take(spans, upcoming) if feeder else placed().train)

    return Programs(
        advance=advance,
        evaluate=lambda carry, active: shared.evaluate(carry, place(active), placed().splits),
        empty=empty,
        put=put,
        lane_shapes=tuple(jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in jax.tree.leaves(shared.shapes.carry)),
        metrics=tuple(f"{split}_{kind}" for split in workload.evaluated_splits for kind in workload.metrics),
        lanes=lanes,
        strategy=strategy,
        division=division,
        call_steps=call_steps,
        bytes=max(
            jaxpr_cost.peak_bytes(train) + jaxpr_cost.device_bytes(shared.shapes.splits),
            jaxpr_cost.peak_bytes(shared.evaluate) + jaxpr_cost.device_bytes(shared.shapes.train),
        ),
        feeding=functools.partial(contextlib.closing, feeder) if feeder else contextlib.nullcontext,
    )


def forget() -> None:
    """Drops all programs and data of this process."""
    for cached in (_build, _shared, _data):
        cached.cache_clear()
