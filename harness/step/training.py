"""Trains one lane. A step sums over a batch's shards and microbatches. A call takes steps, possibly across epochs."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from harness.step import mesh, rng, shardings
from harness.step.batch_partition import Division
from workloads import losses, optimizers
from workloads.axes import Sharding
from workloads.workload import DATA, Array, Examples, Params, State, Variables, Workload

CALL_STEPS = 32  # maximum for batched lanes, because a lane that is done waits for the others


class Spans(NamedTuple):
    """The work of each lane in one call. Every array has a leading lane axis.

    Attributes:
      start, stop: int32[L], number of steps taken before and after the call. A new trial starts from 0. For an idle
        lane, both are 0, and its state does not change.
      seed: uint32[L], seed of the trial.
      schedule: int32[L], value in ``optimizers.SCHEDULES``.
      decay_steps, end_factor: float32[L], parameters of the schedule.
      metaparameters: float32[L] by name, for the update rule and label_smoothing.
    """

    start: Array
    stop: Array
    seed: Array
    schedule: Array
    decay_steps: Array
    end_factor: Array
    metaparameters: dict[str, Array]


class TrainState(NamedTuple):
    """The state of a trial between steps: parameters, network state and optimizer state."""

    params: Params
    state: State
    optimizer: Any


class Batch(NamedTuple):
    """The examples of a batch, in order and split across the shards.

    Attributes:
      examples: [B, ...].
      weights: float32[B], 0 for padding beyond the end of the batch, or [B, ...] by label. With None, all are 1.
      positions: int32[B], positions of the examples in the batch.
      labels: number of labels in the batch, without padding.
    """

    examples: Examples
    weights: Array | None
    positions: Array
    labels: int


def with_rows(examples: Examples, *leading: int, sharding: Any = None) -> Examples:
    """Returns the shapes of examples with other leading dimensions."""
    return Examples(*(jax.ShapeDtypeStruct((*leading, *a.shape[1:]), a.dtype, sharding=sharding) for a in examples))


def fresh(workload: Workload, spans: Spans) -> TrainState:
    """Returns the initial state of a trial. The optimizer state is initialized by the update rule of the first step.

    Some update rules keep metaparameters in their state. If the state contains a learning rate, it is that of the first
    step, as in optax's ``init``. A rule that needs the current learning rate gets it in its update.
    """
    init_key, _ = rng.keys(spans.seed)
    params, state = workload.init(init_key)
    return TrainState(params, state, _rule(workload, spans, jnp.int32(0)).init(params))


def start_lane(workload: Workload, carry: TrainState, spans: Spans, nothing: None) -> TrainState:
    """Initializes the trial if it is about to take its first step. Otherwise, the lane is unchanged."""
    return jax.lax.cond((spans.start == 0) & (spans.stop > 0), lambda: fresh(workload, spans), lambda: carry)


def train_lane(
    workload: Workload,
    batch_size: int,
    division: Division,
    call_steps: int | None,
    carry: TrainState,
    spans: Spans,
    train: Examples | None,
) -> TrainState:
    """Advances one trial from step ``start`` to ``stop``. An idle lane is unchanged.

    Batched lanes take a bounded number of steps and compute the orders of all epochs at the start of the call.
    Computing an order only at the start of its epoch would stall the other lanes, because their epochs start at
    different steps.

    Args:
      workload: workload to train.
      batch_size: number of examples in a batch.
      division: partition of each batch.
      call_steps: maximum number of steps per call of batched lanes, or None if lanes run one after another.
      carry, spans: the state and the work of the trial.
      train: training set, or None for a stream. For prefetched data, it contains the batches of the call, [K, B, ...].
    """
    _, data_key = rng.keys(spans.seed)

    step = functools.partial(take_step, workload, division, spans)

    if workload.feed:
        assert train is not None

        def step_of_feed(i: Array, carry: TrainState) -> TrainState:
            fed = Examples(*(array.at[i].get(mode="promise_in_bounds") for array in train))
            return step(spans.start + i, carry, batch_fed(fed, batch_size, division))

        return jax.lax.fori_loop(0, spans.stop - spans.start, step_of_feed, carry)
    if train is not None:
        epochs = 1 if call_steps is None else (call_steps - 1) // (len(train.labels) // batch_size) + 2
        return _epochs(step, spans, carry, data_key, batch_size, division, train, epochs)
    draw = workload.draw
    assert draw is not None  # a data set without a training set defines it

    def step_of_stream(at: Array, carry: TrainState) -> TrainState:
        drawn = draw(jax.random.fold_in(data_key, at), batch_size)
        return step(at, carry, batch_of(drawn, None, jnp.int32(0), len(drawn.labels), division))

    return jax.lax.fori_loop(spans.start, spans.stop, step_of_stream, carry)


def take_step(
    workload: Workload,
    division: Division,
    spans: Spans,
    at: Array,
    carry: TrainState,
    batch: Batch,
    sharding: Sharding | None = None,
) -> TrainState:
    """Takes one step of a trial, after ``at`` (int32[]) earlier steps. The optimizer updates whole parameters.

    The default sharding is that of the partition of the batch. Layout studies pass their own.
    """
    smoothing = spans.metaparameters["label_smoothing"]
    sharding = sharding or shardings.of_step(workload, division)

    def of_shard(batch: Batch, carry: TrainState, seed: Array, at: Array, smoothing: Array) -> Variables:
        keys = rng.example_keys(seed, at, batch.positions)
        return gradients(workload, division, carry, batch, keys, smoothing, sharding)

    inputs = carry._replace(optimizer=None)
    grads, state = over_batch(of_shard, division, sharding, batch, inputs, spans.seed, at, smoothing)
    # Without this, the partitioner may update parts of parameters and gather both moments instead of the gradients.
    grads = shardings.constrained(TrainState(grads, (), ()), sharding).params
    updates, optimizer = _rule(workload, spans, at).update(grads, carry.optimizer, carry.params)
    return shardings.constrained(TrainState(optax.apply_updates(carry.params, updates), state, optimizer), sharding)


def over_batch(
    of_shard: Callable[..., Variables],
    division: Division,
    sharding: Sharding | None,
    batch: Batch,
    carry: TrainState,
    *replicated: Any,
) -> Variables:
    """Calls ``of_shard(batch, carry, *replicated)`` on each shard of a batch, and returns gradients and state.

    If parameters are split across shards, each shard gets its parts and returns the gradients of these parts.
    """

    def with_labels(arrays: Any, *rest: Any) -> Any:
        examples, weights, positions = arrays
        return of_shard(Batch(examples, weights, positions, batch.labels), *rest)

    arrays = (batch.examples, batch.weights, batch.positions)
    params = P() if sharding is None else shardings.by_hand(sharding.specs)
    in_specs = (P(DATA), TrainState(params, P(), P()), *(P() for _ in replicated))
    return mesh.over_shards(with_labels, division.shards, in_specs, (params, P()))(arrays, carry, *replicated)


def gradients(
    workload: Workload,
    division: Division,
    carry: TrainState,
    batch: Batch,
    keys: Array,
    label_smoothing: Array,
    sharding: Sharding | None = None,
) -> Variables:
    """Returns the gradient of the mean loss over all labels of the whole batch, and the network state after the step.

    This is called on one shard of the batch, inside ``over_batch``.

    The number of labels is known in advance, so the mean is a sum of scaled terms, and sums over shards and
    microbatches do not need additional scaling. All parts start from the same network state, and their updates are
    averaged.
    """

    count: Array | np.float32 = np.float32(batch.labels)
    if workload.padding is not None:
        real = losses.label_weights(batch.examples.labels, batch.weights, workload.padding)
        batch = batch._replace(weights=real)
        count = jnp.maximum(mesh.summed(real.sum(), division.shards), 1.0)  # a batch may consist of padding only

    total_loss = shardings.gathering(workload.loss, sharding)

    def loss(params: Params, examples: Examples, weights: Array | None, keys: Array) -> tuple[Array, State]:
        value, state = total_loss(params, carry.state, examples, weights, keys, label_smoothing)
        return value / count, state

    gradient = jax.grad(loss, has_aux=True)
    parts = division.shards * division.microbatches
    if division.microbatches == 1:
        grads, state = gradient(carry.params, batch.examples, batch.weights, keys)
    else:

        def add(totals: Any, microbatch: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, totals, gradient(carry.params, *microbatch)), None

        inside = (batch.examples, batch.weights, keys)
        cut = jax.tree.map(lambda a: a.reshape(division.microbatches, -1, *a.shape[1:]), inside)
        (grads, state), _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, (carry.params, carry.state)), cut)
    if parts == 1:
        return grads, state
    state = jax.tree.map(lambda a: a / np.float32(parts), mesh.summed(state, division.shards))
    return shardings.summed(grads, division, sharding), state


def _epochs(
    step: Callable[[Array, TrainState, Batch], TrainState],
    spans: Spans,
    carry: TrainState,
    key: Array,
    batch_size: int,
    division: Division,
    train: Examples,
    epochs: int,
) -> TrainState:
    """Takes steps over the training set, which is reshuffled every epoch. The last partial batch is dropped.

    The orders of ``epochs`` epochs are computed at a time.
    """
    examples = len(train.labels)
    steps_per_epoch = examples // batch_size

    def one(at: Array, carry: TrainState, order: Array, since: Array) -> TrainState:
        first = (at % steps_per_epoch) * batch_size
        if epochs > 1:
            first += (at // steps_per_epoch - since) * examples
        return step(at, carry, batch_of(train, order, first, batch_size, division))

    def some_epochs(at_carry: tuple[Array, TrainState]) -> tuple[Array, TrainState]:
        taken, carry = at_carry
        since = taken // steps_per_epoch
        order_of = functools.partial(rng.epoch_order, key, examples=examples)
        if epochs == 1:
            order = order_of(since)
        else:
            order = jax.vmap(order_of)(since + np.arange(epochs, dtype=np.int32)).ravel()
        end = jnp.minimum(spans.stop, (since + epochs) * steps_per_epoch)
        return end, jax.lax.fori_loop(taken, end, lambda i, c: one(i, c, order, since), carry)

    return jax.lax.while_loop(lambda at_carry: at_carry[0] < spans.stop, some_epochs, (spans.start, carry))[1]


def batch_of(examples: Examples, order: Array | None, first: Array, count: int, division: Division) -> Batch:
    """Returns a batch of ``count`` examples starting at ``first`` in ``order``. With None, uses the stored order."""
    batch = batch_fed(examples, count, division)
    if division == Division() and order is None:
        return batch
    places = first + (batch.positions if batch.weights is None else jnp.minimum(batch.positions, count - 1))
    # Uses a gather: on a TPU, a slice whose position differs between lanes would become a loop over lanes.
    rows = places if order is None else order.at[places].get(mode="promise_in_bounds")
    return batch._replace(examples=mesh.divided(Examples(*(_rows(array, rows) for array in examples)), division.shards))


def batch_fed(examples: Examples, count: int, division: Division) -> Batch:
    """Returns a prefetched batch of ``count`` examples, which may be followed by padding."""
    padded = division.examples(count) * division.shards
    positions = mesh.divided(jnp.arange(padded, dtype=jnp.int32), division.shards)
    weights = None if padded == count else (positions < count).astype(jnp.float32)
    return Batch(examples, weights, positions, count * int(np.prod(examples.labels.shape[1:])))


def _rows(array: Array, rows: Array) -> Array:
    """Returns rows of an array. Flattens it to a matrix first: a CPU divides by every dimension to find an element."""
    flat = array.reshape(len(array), -1).at[rows].get(mode="promise_in_bounds")
    return flat.reshape(len(rows), *array.shape[1:])


def _rule(workload: Workload, spans: Spans, at: Array) -> optax.GradientTransformation:
    """Returns the update rule after ``at`` steps (int32[]), with the trial's metaparameters and learning rate."""
    decay = optimizers.decay_factor(spans.schedule, at, spans.decay_steps, spans.end_factor)
    metaparameters = {name: value for name, value in spans.metaparameters.items() if name != "label_smoothing"}
    return workload.update_rule(**metaparameters | {"learning_rate": metaparameters["learning_rate"] * decay})
