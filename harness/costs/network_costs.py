"""Computes the costs of a training step and of an evaluation of networks, from shapes only."""

import functools
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from harness.compiled import ahead_of_time, interpolation, jaxpr_cost
from harness.compiled.interpolation import ProgramCost
from harness.run import Settings, Source
from harness.runners import program_choice
from harness.step import evaluation, programs, rng, training
from harness.step.batch_partition import TRIAL, Division, of_settings
from harness.step.programs_key import ProgramsKey, family, programs_key
from harness.step.training import Spans, TrainState
from results.costs.counts import Counts, Exchange, Verdict, Work
from results.grouping import grouped
from results.plans.batch_study import BatchStudy
from workloads import losses, registry
from workloads.workload import DATA, Draw, Examples, Loss, Product, Workload

Lane = tuple[TrainState, Spans]  # shapes of a trial
PARTS = 2, 3  # numbers of parts from which others are extrapolated: with one part, operations differ
KEPT = 16  # programs whose pieces are kept
IMPOSSIBLE = 1.5  # multiple of the available memory beyond which no compiler makes a step fit
LARGE = 2**30  # bytes on a device
MOST_TRIED = 4  # number of partitions to compile before the finest one


def counts(study: BatchStudy, source: Source, settings: Settings) -> Counts:
    """Counts the costs of a study on one of the devices that share a batch."""
    return counts_of_sizes(study, source, settings, [study.batch_size])[study.batch_size]


def counts_of_sizes(
    study: BatchStudy, source: Source, settings: Settings, batch_sizes: Sequence[int]
) -> dict[int, Counts]:
    """Counts the costs of studies that differ only in the batch size. Returns them by batch size.

    For many sizes, only a few programs are traced. See ``harness.compiled.interpolation``.
    """
    key = family(study)
    workload, lane = _workload(key, json.dumps(source))
    asked = of_settings(settings)
    shards, microbatches = asked.least[:2]
    over = asked.devices // shards  # devices that share a shard
    shares = {size: Division(shards, microbatches).examples(size) for size in batch_sizes}
    evaluation_work, evaluation_bytes, evaluation_equations = _evaluation(key, json.dumps(source), shards)
    network = _network(key, source, workload)
    steps = _steps(workload, network, lane, sorted(set(shares.values())), microbatches, shards)
    held = {share: max(step.held_bytes, evaluation_bytes) for share, step in steps.items()}
    least_bytes = _least_bytes(workload, network, lane, held, settings)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(lane[0].params))
    # Devices that share a shard are assumed to share its work and its memory evenly. Their collectives are unknown.
    summed = 4.0 * parameters
    exchanges = (Exchange("all-reduce", DATA, 1, summed, 2 * (shards - 1) / shards * summed),) if over == 1 else None
    return {
        size: Counts(
            step=_shared(steps[share].work, over),
            evaluation=_shared(evaluation_work, over),
            parameters=parameters,
            held_bytes=held[share] / over,
            equations=steps[share].equations + evaluation_equations,
            devices=asked.devices,
            precision=study.precision,
            least_bytes=least_bytes[share] / over,
            exchanges=exchanges,
            mesh=((DATA, shards),),
            streamed=workload.feed is not None,
            group=workload.group,
            microbatches=microbatches,
        )
        for size, share in shares.items()
    }


def _shared(work: Work, devices: int) -> Work:
    """Returns the work of one of the devices that share a program. Each runs all operations on smaller arrays."""
    return work.times(1 / devices)._replace(operations=work.operations)


@functools.lru_cache(KEPT)
def _workload(key: ProgramsKey, source: str) -> tuple[Workload, Lane]:
    """Returns a workload and the shapes of one of its trials."""
    workload = programs.workload_of(key, json.loads(source))
    return workload, programs.one_lane(workload)


class Network(NamedTuple):
    """The choices that determine the program of a step. Several data sets may share a program.

    Attributes:
      key: key of the programs, without data set and batch size.
      classes: number of outputs per label.
      loss, padding, draw: as in ``Dataset``.
      train: shapes and dtypes of the arrays that a step selects a batch from. Those of streamed data have no example
        axis.
    """

    key: ProgramsKey
    classes: int
    loss: Loss
    padding: int | None
    draw: Draw | None
    train: tuple[Any, ...]


def _network(key: ProgramsKey, source: Source, workload: Workload) -> Network:
    row = registry.dataset(key.dataset, source)
    train = workload.shapes.train or workload.shapes.validation
    start = 0 if workload.feed is None else 1
    shapes = tuple((array.shape[start:], str(np.dtype(array.dtype))) for array in train)
    return Network(key._replace(dataset="", data=""), row.classes, row.loss, row.padding, row.draw, shapes)


@functools.lru_cache(KEPT)
def _pieces(key: Hashable) -> list[Any]:
    """Returns the list of pieces or programs found so far for a key. The caller appends to it."""
    return []


def forget() -> None:
    """Forgets all counted programs, so later counts do not depend on earlier counts."""
    _pieces.cache_clear()


def _steps(
    workload: Workload, network: Network, lane: Lane, shares: Sequence[int], microbatches: int, shards: int
) -> dict[int, ProgramCost]:
    """Returns the costs of a step for each number of examples on a device.

    Costs are interpolated only between shares whose loss is computed in chunks of the same size.
    """
    labels = math.prod(workload.shapes.validation.labels.shape[1:])

    def chunk(share: int) -> int:
        count = share // microbatches * labels
        size = losses.chunk_size(count, max(1, network.classes))
        return 0 if size == count else size

    in_chunks = any(map(chunk, shares)) and _has_lazy_outputs(workload, lane)

    def division(share: int) -> tuple[bool, int]:
        # JAX omits some operations on a single example.
        return share // microbatches == 1, chunk(share) if in_chunks else 0

    costs: dict[int, ProgramCost] = {}
    for divided, group in grouped(shares, division).items():
        costs |= interpolation.costs(
            group,
            lambda share: step_jaxpr(workload, share, microbatches, shards, lane),
            lambda share: loss_jaxpr(workload, share // microbatches, shards, lane),
            _pieces((network, divided, microbatches, shards)),
            len(jax.tree.leaves(lane[0].params)),
        )
    return costs


def _has_lazy_outputs(workload: Workload, lane: Lane) -> bool:
    """Returns whether the loss of a network can be computed in chunks."""
    carry, _ = lane
    inputs = training.with_rows(workload.shapes.validation, workload.group).inputs
    return isinstance(jax.eval_shape(workload.predict, carry.params, carry.state, inputs), Product)


def _least_bytes(
    workload: Workload, network: Network, lane: Lane, held: Mapping[int, float], settings: Settings
) -> dict[int, float]:
    """Returns the approximate bytes needed on a device that processes its share in the smallest possible parts.

    Small networks need little memory in any case, so they are not counted again.

    Args:
      workload, network, lane: the workload, the choices that determine its programs, and the shapes of one trial.
      held: bytes needed on a device that processes its share in one part, by share.
      settings: settings of the run.
    """
    fewest = workload.group
    large = [share for share, size in held.items() if size >= LARGE and share >= 2 * fewest]
    if settings.microbatches is not None or not large:
        return dict(held)
    few, larger = _in_parts(network, workload, lane)
    peaks = jaxpr_cost.held_bytes_between(few, larger, np.array(large) // fewest - PARTS[0])
    return dict(held) | {share: min(held[share], int(peak)) for share, peak in zip(large, peaks, strict=True)}


def _in_parts(network: Network, workload: Workload, lane: Lane) -> list[Any]:
    """Returns the programs of steps that process their shares in each number of ``PARTS`` of the smallest size."""
    pieces = _pieces((network, "parts"))
    if not pieces:
        pieces += [step_jaxpr(workload, count * workload.group, count, 1, lane) for count in PARTS]
    return pieces


@functools.cache
def _evaluation(key: ProgramsKey, source: str, shards: int) -> tuple[Work, int, int]:
    """Returns the work, bytes and number of operations of an evaluation, which do not depend on the batch size."""
    workload, lane = _workload(key, source)
    jaxpr = evaluation_jaxpr(workload, shards, lane)
    parameters = len(jax.tree.leaves(lane[0].params))
    return (jaxpr_cost.of(jaxpr, parameters), jaxpr_cost.held_bytes(jaxpr), jaxpr_cost.equations(jaxpr))


def step_jaxpr(
    workload: Workload, examples: int, microbatches: int = 1, shards: int = 1, lane: Lane | None = None
) -> Any:
    """Returns the program of a step on one shard, from selecting its examples to computing the new parameters.

    Examples of several shards may be normalized together, so the axis that is summed over must have a size.
    """
    step, given = a_step(workload, examples, microbatches, lane)
    sizes = [(DATA, shards)] if shards > 1 else None
    with jax.default_matmul_precision("highest"):
        return jax.make_jaxpr(step, axis_env=sizes)(*given)


def loss_jaxpr(workload: Workload, examples: int, shards: int, lane: Lane) -> Any:
    """Returns the program that computes the loss of some examples of one shard. Its gradient is most of the step."""
    carry, spans = lane
    draw, train = workload.draw, workload.shapes.train
    if draw is not None:
        batch = jax.eval_shape(lambda: draw(jax.random.key(0), examples))
    else:
        assert train is not None  # a data set without a training set defines draw
        batch = training.with_rows(train, examples)
    positions = jax.ShapeDtypeStruct((examples,), np.dtype("int32"))

    def loss(carry: TrainState, spans: Spans, batch: Examples, positions: Any) -> Any:
        weights = None if workload.padding is None else losses.label_weights(batch.labels, None, workload.padding)
        keys = rng.example_keys(spans.seed, spans.start, positions)
        smoothing = spans.metaparameters["label_smoothing"]
        return workload.loss(carry.params, carry.state, batch, weights, keys, smoothing)

    sizes = [(DATA, shards)] if shards > 1 else None
    with jax.default_matmul_precision("highest"):
        return jax.make_jaxpr(loss, axis_env=sizes)(carry, spans, batch, positions)


def a_step(
    workload: Workload, examples: int, microbatches: int = 1, lane: Lane | None = None
) -> tuple[Callable[..., TrainState], tuple[Any, ...]]:
    """Returns a function that takes a step on one device, and the shapes of its arguments (carry first)."""
    division = Division(1, microbatches)
    carry, spans = lane or programs.one_lane(workload)
    train = workload.shapes.train

    def step(carry: TrainState, spans: Spans, order: Any, data: Any) -> TrainState:
        index = jnp.int32(0)
        if workload.feed is not None:
            batch = training.batch_fed(data, examples, division)
        elif workload.draw is not None:
            batch = training.batch_of(workload.draw(jax.random.key(0), examples), None, index, examples, division)
        else:
            batch = training.batch_of(data, order, index, examples, division)
        return training.take_step(workload, division, spans, index, carry, batch)

    data: Any = None
    order: Any = None
    if train is not None and workload.draw is None:
        count = examples if workload.feed else train.labels.shape[0]
        data = training.with_rows(train, count)
        order = jax.ShapeDtypeStruct((count,), np.dtype("int32"))
    return step, (carry, spans, order, data)


def evaluation_jaxpr(workload: Workload, shards: int = 1, lane: Lane | None = None) -> Any:
    """Returns the program that evaluates one shard of every split."""
    carry, _ = lane or programs.one_lane(workload)
    # Splits with chunks of the same size share a trace of the network.
    workload = workload._replace(predict=jax.jit(workload.predict, inline=True))
    shapes = evaluation.prepared_shapes(workload, shards)
    splits = tuple(training.with_rows(split, split.labels.shape[0] // shards) for split in shapes)

    def evaluate(carry: TrainState, splits: tuple[Examples, ...]) -> Any:
        with_all = workload._replace(evaluation_examples=-(-workload.evaluation_examples // shards))
        return evaluation.evaluate_lane(with_all, Division(), carry, jnp.bool_(True), splits)

    return jax.make_jaxpr(evaluate)(carry, splits)


def verdict(study: BatchStudy, source: Source, settings: Settings, topology: str) -> Verdict:
    """Compiles a step of a study for a topology, with the partition that the engine would use.

    Like the engine, this function chooses the first partition that fits. It skips partitions whose arrays would need
    several times the memory of a device.
    """
    workload = programs.workload_of(programs_key(study), source)
    devices_mesh = ahead_of_time.mesh(topology, {TRIAL: None, DATA: 1})
    devices = devices_mesh.devices.size
    usable = ahead_of_time.usable_bytes(devices_mesh.devices.flat[0].device_kind)
    candidates = program_choice.candidates(study, settings, study.request.planned, workload, devices, "vmap")
    held = _held_by_share(workload)
    result = None
    per_share = 0.0
    tried = 0
    for i, (lanes, division) in enumerate(candidates):
        last = i == len(candidates) - 1
        of_device = lanes * division.devices // devices
        share = of_device * division.examples(study.batch_size) // division.microbatches
        impossible = math.inf if division.layout else IMPOSSIBLE  # only the compiler knows what a layout saves
        too_much = usable is not None and (
            held(share, of_device) > impossible * usable or per_share * share > usable or tried == MOST_TRIED
        )
        if too_much and not last:
            continue
        devices_mesh = ahead_of_time.mesh(topology, {TRIAL: None, DATA: division.shards, **dict(division.mesh)})
        arguments = programs.shapes(workload, devices_mesh, lanes, division)
        made = ahead_of_time.make(
            functools.partial(
                programs.lower_train, workload, devices_mesh, "vmap", arguments, study.batch_size, division
            ),
            jaxpr_cost.device_bytes((arguments.carry, arguments.spans, arguments.train)),
        )
        how = f"{lanes} lanes × {division.shards} shards × {division.microbatches} microbatches"
        seconds = made.processor_seconds + (result.processor_seconds if result else 0.0)
        result = ahead_of_time.verdict(
            made, devices_mesh, beside=jaxpr_cost.device_bytes(arguments.splits), lanes=of_device, how=how
        )
        result = result._replace(shards=division.shards, microbatches=division.microbatches, processor_seconds=seconds)
        tried += 1
        if result.fits:
            return result
        per_share = (result.needed_bytes or 0.0) / share
    assert result is not None  # there is always a candidate
    return result


def _held_by_share(workload: Workload) -> Callable[[int, int], float]:
    """Returns a function from (examples in a part, number of trials) to the approximate bytes needed on a device."""
    few = max(8, workload.group)
    small, two = (jaxpr_cost.held_bytes(step_jaxpr(workload, count)) for count in (few, 2 * few))
    slope = (two - small) / few
    fixed = max(0.0, 2 * small - two)
    return lambda examples, lanes: examples * slope + lanes * fixed
