"""The compiled programs of a study: lowered from shapes alone, then put together with the data, which they share."""

import functools
import inspect
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from harness import compile_cache, evaluation, mesh, training
from harness.mesh import DATA, Division
from harness.programs_key import ProgramsKey
from harness.training import Carry, Spans
from workloads import registry
from workloads.workload import Array, Examples, Workload


class Programs(NamedTuple):
    """Compiled functions on device-resident data.

    Attributes:
      advance: ``(carry, Spans) -> carry``; the old carry's memory is reused.
      evaluate: ``(carry, active bool[L]) -> (metrics float32[L, M], finite bool[L])``; NaN where a parameter is not
        finite and in lanes that are not active.
      empty: ``() -> carry``.
      metrics: M names.
      lanes: L.
      strategy: map or vmap.
      division: of each batch.
      compile_seconds: spent on building them.
    """

    advance: Callable[[Any, Spans], Any]
    evaluate: Callable[[Any, Array], tuple[Array, Array]]
    empty: Callable[[], Any]
    metrics: tuple[str, ...]
    lanes: int
    strategy: str
    division: Division
    compile_seconds: float


class Shapes(NamedTuple):
    """What programs are lowered for: each argument as a ``jax.ShapeDtypeStruct`` with its place on the mesh."""

    carry: Carry
    spans: Spans
    active: Any
    train: Examples | None
    splits: tuple[Examples, ...]


def default_strategy() -> str:
    """``map``, one lane after the other, on a CPU, where it is faster and bitwise reproducible; ``vmap`` elsewhere."""
    return "map" if jax.default_backend() == "cpu" else "vmap"


def programs_for(
    key: ProgramsKey,
    lanes: int,
    strategy: str,
    division: Division = Division(),  # noqa: B008
    source: Mapping[str, Any] | None = None,
) -> tuple[Programs, bool]:
    """The programs a study runs on, and whether they were built by this call.

    Args:
      key: of the study.
      lanes: trials side by side; a multiple of the devices on the axis ``trial``.
      strategy: map or vmap.
      division: of each batch.
      source: options of a user's own data set, as in ``registry.dataset``.
    """
    builds = _build.cache_info().misses
    programs = _build(key, lanes, strategy, division, json.dumps(source))
    return programs, _build.cache_info().misses > builds


def workload_of(key: ProgramsKey, source: Mapping[str, Any] | None = None) -> Workload:
    """The workload of the programs."""
    row = registry.dataset(key.dataset, source)
    return registry.workload(row, key.model, json.loads(key.model_options), key.optimizer, key.precision)


def shapes(workload: Workload, on: Mesh, lanes: int) -> Shapes:
    """The shapes of everything that programs over a mesh take; no data are read, and no device is used."""
    f32, i32 = jnp.dtype("float32"), jnp.dtype("int32")
    names = [*inspect.signature(workload.update_rule).parameters, "label_smoothing"]
    dtypes = Spans(i32, i32, jnp.dtype("uint32"), i32, f32, f32, dict.fromkeys(names, f32))
    one_lane = jax.tree.map(lambda dtype: jax.ShapeDtypeStruct((), dtype), dtypes)
    lane_carry = jax.eval_shape(functools.partial(training.fresh, workload), one_lane)

    def of_lanes(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((lanes, *shape), dtype, sharding=mesh.by_lane(on))

    def placed(examples: Examples, sharding: NamedSharding) -> Examples:
        return Examples(*(jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in examples))

    shards = on.shape[DATA]
    train = workload.shapes.train
    return Shapes(
        carry=jax.tree.map(lambda a: of_lanes(a.shape, a.dtype), lane_carry),
        spans=jax.tree.map(lambda dtype: of_lanes((), dtype), dtypes),
        active=of_lanes((), jnp.bool_),
        train=None if train is None or workload.draw else placed(train, mesh.everywhere(on)),
        splits=tuple(placed(each, mesh.by_shard(on)) for each in evaluation.prepared_shapes(workload, shards)),
    )


def lower_start(workload: Workload, on: Mesh, strategy: str, shapes: Shapes) -> jax.stages.Lowered:
    """The program ``(carry, Spans, None) -> carry`` that initializes lanes that start from 0."""
    lanes = mesh.over_lanes(on, strategy, functools.partial(training.start_lane, workload), P())
    return _lowered(jax.jit(lanes, donate_argnums=0), shapes.carry, shapes.spans, None)


def lower_train(
    workload: Workload, on: Mesh, strategy: str, shapes: Shapes, batch_size: int, microbatches: int
) -> jax.stages.Lowered:
    """The program ``(carry, Spans, train) -> carry`` that takes steps."""
    division = Division(on.shape[DATA], microbatches)
    lane = functools.partial(training.train_lane, workload, batch_size, division)
    lanes = mesh.over_lanes(on, strategy, lane, P())
    return _lowered(jax.jit(lanes, donate_argnums=0), shapes.carry, shapes.spans, shapes.train)


def lower_evaluate(workload: Workload, on: Mesh, strategy: str, shapes: Shapes) -> jax.stages.Lowered:
    """The program ``(carry, active, splits) -> (metrics, finite)``."""
    lane = functools.partial(evaluation.evaluate_lane, workload, on.shape[DATA])
    lanes = mesh.over_lanes(on, strategy, lane, P(DATA))
    return _lowered(jax.jit(lanes), shapes.carry, shapes.active, shapes.splits)


def _lowered(program: Any, *arguments: Any) -> jax.stages.Lowered:
    """A program with products of float32 in float32, which TPUs and GPUs would round to fewer bits."""
    with jax.default_matmul_precision("highest"):
        lowered: jax.stages.Lowered = program.lower(*arguments)
    return lowered


class Data(NamedTuple):
    """The data of a data set on the devices of a mesh: training examples, and evaluated splits."""

    train: Examples | None
    splits: tuple[Examples, ...]


def data(key: ProgramsKey, shards: int, source: Mapping[str, Any] | None = None) -> Data:
    """The data of a study's programs, on the devices of the mesh with so many shards; kept for the next caller."""
    return _data(key.dataset, key.data, json.dumps(source), shards)


@functools.lru_cache(maxsize=2)  # of the study that runs, and of the one before it
def _data(dataset: str, version: str, source: str, shards: int) -> Data:
    del version  # it tells data apart, and no more
    row = registry.dataset(dataset, json.loads(source))
    loaded, on = row.load(), mesh.mesh(shards)
    train = None if row.draw or loaded.train is None else jax.device_put(loaded.train, mesh.everywhere(on))
    splits = [evaluation.prepared(row, getattr(loaded, name), shards) for name in row.splits]
    return Data(train, tuple(jax.device_put(split, mesh.by_shard(on)) for split in splits))


class _SharedPrograms(NamedTuple):
    """What programs of all batch sizes share: those that no batch size is in, and the shapes of all."""

    workload: Workload
    on: Mesh
    shapes: Shapes
    start: Callable[..., Any]
    evaluate: Callable[..., Any]


@functools.lru_cache(maxsize=16)
def _shared(key: ProgramsKey, lanes: int, strategy: str, shards: int, source: str) -> _SharedPrograms:
    workload, on = workload_of(key, json.loads(source)), mesh.mesh(shards)
    of = shapes(workload, on, lanes)
    start = compile_cache.compiled(lower_start(workload, on, strategy, of))
    evaluate = compile_cache.compiled(lower_evaluate(workload, on, strategy, of))
    return _SharedPrograms(workload, on, of, start, evaluate)


@functools.lru_cache(maxsize=16)
def _build(key: ProgramsKey, lanes: int, strategy: str, division: Division, source: str) -> Programs:
    began = time.perf_counter()
    shared = _shared(key._replace(batch_size=0), lanes, strategy, division.shards, source)
    workload, on = shared.workload, shared.on
    lowered = lower_train(workload, on, strategy, shared.shapes, key.batch_size, division.microbatches)
    train = compile_cache.compiled(lowered)
    placed = functools.partial(_data, key.dataset, key.data, source, division.shards)
    placed()
    place = functools.partial(jax.device_put, device=mesh.by_lane(on))

    def advance(carry: Any, spans: Spans) -> Any:
        on_devices = place(spans)
        if np.any((spans.start == 0) & (spans.stop > 0)):
            carry = shared.start(carry, on_devices, None)
        return train(carry, on_devices, placed().train)

    return Programs(
        advance=advance,
        evaluate=lambda carry, active: shared.evaluate(carry, place(active), placed().splits),
        empty=lambda: jax.tree.map(lambda a: place(np.zeros(a.shape, a.dtype)), shared.shapes.carry),
        metrics=tuple(f"{split}_{kind}" for split in workload.evaluated_splits for kind in workload.metrics),
        lanes=lanes,
        strategy=strategy,
        division=division,
        compile_seconds=time.perf_counter() - began,
    )


def forget() -> None:
    """Drops all programs and data of this process."""
    for cached in (_build, _shared, _data):
        cached.cache_clear()
