"""Programs that advance several trials, each in its lane, by spans of steps: compiled once per batch size."""

import functools
import inspect
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from harness import compile_cache, streams
from harness.programs_key import programs_key
from results.plans.batch_study import BatchStudy
from workloads import registry, schedules
from workloads.workload import Array, Examples, Workload, first_examples


class Spans(NamedTuple):
    """The work of each lane in one call; every array has the lanes as leading axis.

    Attributes:
      start, stop: int32[L], steps taken before and after; both 0 for an idle lane, which keeps its state. A fresh
        trial starts from 0.
      seed: uint32[L], of the trial.
      schedule: int32[L], a value of ``schedules.SCHEDULES``.
      decay_steps, end_factor: float32[L], of the schedule.
      metaparameters: float32[L] by name, of the update rule, and label_smoothing.
    """

    start: Array
    stop: Array
    seed: Array
    schedule: Array
    decay_steps: Array
    end_factor: Array
    metaparameters: dict[str, Array]


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
      compile_seconds: spent on building them.
    """

    advance: Callable[[Any, Spans], Any]
    evaluate: Callable[[Any, Array], tuple[Array, Array]]
    empty: Callable[[], Any]
    metrics: tuple[str, ...]
    lanes: int
    strategy: str
    compile_seconds: float


def default_strategy() -> str:
    """``map``, one lane after the other, on a CPU, where it is faster and bitwise reproducible; ``vmap`` elsewhere."""
    return "map" if jax.default_backend() == "cpu" else "vmap"


def programs_for(
    study: BatchStudy, lanes: int, strategy: str, source: Mapping[str, Any] | None = None
) -> tuple[Programs, bool]:
    """The programs a study runs on, and whether they were built by this call.

    Args:
      study: of it only ``programs_key`` matters.
      lanes: trials side by side; a multiple of the device count.
      strategy: map or vmap.
      source: options of a user's own data set, as in ``registry.dataset``.
    """
    builds = _build.cache_info().misses
    programs = _build(*programs_key(study), lanes, strategy, json.dumps(source))
    return programs, _build.cache_info().misses > builds


class _SharedPrograms(NamedTuple):
    """What programs of all batch sizes share: data on the devices, and the programs that no batch size is in.

    Attributes:
      workload: of the programs.
      train: examples, on every device; None of an endless stream.
      start: ``(carry, Spans) -> carry``, with lanes that start from 0 initialized; the old carry's memory is reused.
      evaluate: as in ``Programs``.
      carry_shape, spans_shape: shapes, dtypes and shardings.
      over_lanes: maps a function of one lane over all lanes.
      place: puts arrays with a leading axis of lanes on their devices.
      metrics: as in ``Programs``.
    """

    workload: Workload
    train: Examples | None
    start: Callable[[Any, Spans], Any]
    evaluate: Callable[[Any, Array], tuple[Array, Array]]
    carry_shape: Any
    spans_shape: Spans
    over_lanes: Callable[[Callable[..., Any]], Callable[..., Any]]
    place: Callable[[Any], Any]
    metrics: tuple[str, ...]


@functools.lru_cache(maxsize=16)
def _shared(
    dataset: str,
    data: str,  # which tells programs apart, and no more
    model: str,
    options: str,
    optimizer: str,
    lanes: int,
    strategy: str,
    source: str,
) -> _SharedPrograms:
    row = registry.dataset(dataset, json.loads(source))
    workload = registry.workload(row, model, json.loads(options), optimizer)
    mesh = jax.make_mesh((jax.local_device_count(),), ("trial",), axis_types=(AxisType.Auto,))
    by_lane, everywhere = NamedSharding(mesh, P("trial")), NamedSharding(mesh, P())
    # A tuple, in the order of the metrics: JAX sorts a dict by its keys.
    splits = tuple(first_examples(getattr(workload.splits, name), row.evaluation_examples) for name in row.splits)
    splits = jax.device_put(splits, everywhere)

    spans_dtypes = _spans_dtypes(workload)
    one_lane = jax.tree.map(lambda dtype: jax.ShapeDtypeStruct((), dtype), spans_dtypes)
    lane_shape = jax.eval_shape(functools.partial(_fresh, workload), one_lane)
    carry_shape = jax.tree.map(lambda a: _lanes_of(lanes, a.shape, a.dtype, by_lane), lane_shape)
    spans_shape = jax.tree.map(lambda dtype: _lanes_of(lanes, (), dtype, by_lane), spans_dtypes)
    active_shape = _lanes_of(lanes, (), jnp.bool_, by_lane)

    over_lanes = functools.partial(_over_lanes, mesh, strategy)
    start_lanes = jax.jit(over_lanes(functools.partial(_start_lane, workload)), donate_argnums=0)
    start = compile_cache.compiled(start_lanes.lower(carry_shape, spans_shape, None))
    evaluate_lanes = jax.jit(over_lanes(functools.partial(_evaluate_lane, workload)))
    evaluate = compile_cache.compiled(evaluate_lanes.lower(carry_shape, active_shape, splits))
    place = functools.partial(jax.device_put, device=by_lane)
    return _SharedPrograms(
        workload=workload,
        train=jax.device_put(workload.splits.train, everywhere),
        start=lambda carry, spans: start(carry, spans, None),
        evaluate=lambda carry, active: evaluate(carry, place(active), splits),
        carry_shape=carry_shape,
        spans_shape=spans_shape,
        over_lanes=over_lanes,
        place=place,
        metrics=registry.metrics(row),
    )


@functools.lru_cache(maxsize=16)
def _build(
    dataset: str,
    data: str,
    model: str,
    options: str,
    optimizer: str,
    batch_size: int,
    lanes: int,
    strategy: str,
    source: str,
) -> Programs:
    began = time.perf_counter()
    shared = _shared(dataset, data, model, options, optimizer, lanes, strategy, source)
    train_lane = functools.partial(_train_lane, shared.workload, batch_size)
    train_lanes = jax.jit(shared.over_lanes(train_lane), donate_argnums=0)
    train = compile_cache.compiled(train_lanes.lower(shared.carry_shape, shared.spans_shape, shared.train))

    def advance(carry: Any, spans: Spans) -> Any:
        placed = shared.place(spans)
        if np.any((spans.start == 0) & (spans.stop > 0)):
            carry = shared.start(carry, placed)
        return train(carry, placed, shared.train)

    return Programs(
        advance=advance,
        evaluate=shared.evaluate,
        empty=lambda: jax.tree.map(lambda a: shared.place(np.zeros(a.shape, a.dtype)), shared.carry_shape),
        metrics=shared.metrics,
        lanes=lanes,
        strategy=strategy,
        compile_seconds=time.perf_counter() - began,
    )


def _lanes_of(lanes: int, shape: tuple[int, ...], dtype: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((lanes, *shape), dtype, sharding=sharding)


def _spans_dtypes(workload: Workload) -> Spans:
    f32, i32 = jnp.dtype("float32"), jnp.dtype("int32")
    names = [*inspect.signature(workload.update_rule).parameters, "label_smoothing"]
    return Spans(i32, i32, jnp.dtype("uint32"), i32, f32, f32, dict.fromkeys(names, f32))


def _over_lanes(mesh: Mesh, strategy: str, lane: Callable[..., Any]) -> Callable[..., Any]:
    """Maps ``lane(carry, spans, data)`` of one lane over all lanes, split over the mesh's devices."""

    def all_lanes(carry: Any, spans: Any, data: Any) -> Any:
        if strategy == "vmap":
            return jax.vmap(lambda c, t: lane(c, t, data))(carry, spans)
        return jax.lax.map(lambda ct: lane(*ct, data), (carry, spans))

    in_specs = (P("trial"), P("trial"), P())
    return jax.shard_map(all_lanes, mesh=mesh, in_specs=in_specs, out_specs=P("trial"), check_vma=False)


def _rule(workload: Workload, spans: Spans, at: Array) -> optax.GradientTransformation:
    """The update rule after ``at`` steps (int32[]), with the trial's metaparameters and its decayed learning rate."""
    decay = schedules.factor(spans.schedule, at, spans.decay_steps, spans.end_factor)
    metaparameters = {name: value for name, value in spans.metaparameters.items() if name != "label_smoothing"}
    return workload.update_rule(**metaparameters | {"learning_rate": metaparameters["learning_rate"] * decay})


def _fresh(workload: Workload, spans: Spans) -> tuple[Any, Any]:
    """Parameters and state of a trial that starts: the state is that of the rule that takes the first step.

    Some rules keep metaparameters in their state and are evaluated with them. A learning rate in a state is that of
    the first step, as optax's own ``init`` sees it; a rule that needs the current one takes it from its update.
    """
    init_key, _ = streams.keys(spans.seed)
    params = workload.init(init_key)
    return params, _rule(workload, spans, jnp.int32(0)).init(params)


def _start_lane(workload: Workload, carry: Any, spans: Spans, nothing: None) -> Any:
    """Initializes a trial that takes its first step; any other lane is left unchanged."""
    starts = (spans.start == 0) & (spans.stop > 0)
    return jax.lax.cond(starts, lambda: _fresh(workload, spans), lambda: carry)


def _train_lane(workload: Workload, batch_size: int, carry: Any, spans: Spans, train: Examples | None) -> Any:
    """Takes one trial from step ``start`` to ``stop``; an idle lane is left unchanged."""
    _, data_key = streams.keys(spans.seed)

    def step(at: Array, carry: Any, batch: Examples) -> Any:
        params, state = carry
        grads = jax.grad(workload.loss)(params, batch, spans.metaparameters["label_smoothing"])
        updates, state = _rule(workload, spans, at).update(grads, state, params)
        return optax.apply_updates(params, updates), state

    if train is not None:
        return _epochs(step, spans, carry, data_key, batch_size, train)
    draw = workload.draw
    assert draw is not None  # a data set has the one or the other

    def step_of_stream(at: Array, carry: Any) -> Any:
        return step(at, carry, draw(jax.random.fold_in(data_key, at), batch_size))

    return jax.lax.fori_loop(spans.start, spans.stop, step_of_stream, carry)


def _epochs(step: Callable[..., Any], spans: Spans, carry: Any, key: Array, batch_size: int, train: Examples) -> Any:
    """Steps over the training set, shuffled anew every epoch; a last partial batch is dropped."""
    examples = len(train.labels)
    steps_per_epoch = examples // batch_size

    def one(at: Array, carry: Any, order: Array) -> Any:
        rows = jax.lax.dynamic_slice(order, ((at % steps_per_epoch) * batch_size,), (batch_size,))
        return step(at, carry, jax.tree.map(lambda a: _rows_of(a, rows), train))

    def epoch(at_carry: tuple[Array, Any]) -> tuple[Array, Any]:
        at, carry = at_carry
        number = at // steps_per_epoch
        order = streams.epoch_order(key, number, examples)
        end = jnp.minimum(spans.stop, (number + 1) * steps_per_epoch)
        return end, jax.lax.fori_loop(at, end, lambda i, c: one(i, c, order), carry)

    return jax.lax.while_loop(lambda at_carry: at_carry[0] < spans.stop, epoch, (spans.start, carry))[1]


def _rows_of(array: Array, rows: Array) -> Array:
    """Rows of an array. As rows of a matrix, whose elements a CPU finds without dividing by every dimension."""
    flat = array.reshape(len(array), -1).at[rows].get(mode="promise_in_bounds")
    return flat.reshape(len(rows), *array.shape[1:])


def _evaluate_lane(workload: Workload, carry: Any, active: Array, splits: tuple[Examples, ...]) -> tuple[Array, Array]:
    params, state = carry

    def measure() -> tuple[Array, Array]:
        evaluated = workload.evaluated(params, state)
        by_split = [workload.metrics(evaluated, examples) for examples in splits]
        metrics = jnp.stack([value for measured in by_split for value in measured.values()])
        params_finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]))
        metrics = jnp.where(params_finite, metrics, jnp.nan)
        return metrics, jnp.all(jnp.isfinite(metrics))

    shapes = jax.eval_shape(measure)
    return jax.lax.cond(active, measure, lambda: (jnp.full(shapes[0].shape, jnp.nan), jnp.bool_(False)))
