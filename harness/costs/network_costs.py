"""Costs of studies that train networks: a step and an evaluation, lowered from shapes only."""

import functools
import json
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness.compiled import ahead_of_time, jaxpr_cost
from harness.run import Settings, Source
from harness.runners import engine
from harness.step import evaluation, programs, training
from harness.step.batch_partition import TRIAL, Division, of_settings
from harness.step.programs_key import ProgramsKey, programs_key
from harness.step.training import Spans, TrainState
from results.costs.counts import Counts, Verdict, Work
from results.plans.batch_study import BatchStudy
from workloads.workload import DATA, Examples, Workload

IMPOSSIBLE = 1.5  # multiple of the available memory beyond which no compiler makes a step fit
LARGE = 2**30  # bytes on a device
MOST_TRIED = 4  # number of partitions to compile before the finest one


def counts(study: BatchStudy, source: Source, settings: Settings) -> Counts:
    """Counts the costs of a study on one of the devices that share a batch."""
    key = programs_key(study)
    workload = programs.workload_of(key, source)
    asked = of_settings(settings)
    shards, microbatches = asked.least[:2]
    share = Division(shards, microbatches).examples(study.batch_size)
    stepped = step_jaxpr(workload, share, microbatches, shards)
    evaluation_work, evaluation_bytes, evaluation_equations = _evaluation(
        key._replace(batch_size=0), json.dumps(source), shards
    )
    carry, _ = programs.one_lane(workload)
    held = max(jaxpr_cost.held_bytes(stepped), evaluation_bytes)
    return Counts(
        step=jaxpr_cost.of(stepped),
        evaluation=evaluation_work,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(carry.params)),
        held_bytes=held,
        equations=jaxpr_cost.equations(stepped) + evaluation_equations,
        devices=shards,
        precision=study.precision,
        least_bytes=_least_bytes(workload, share, settings, held),
        sums=True,
        streamed=workload.feed is not None,
    )


def _least_bytes(workload: Workload, share: int, settings: Settings, held: float) -> float:
    """Returns the approximate bytes on a device that processes its share in the smallest possible parts.

    Small networks need little memory anyway and are not counted again.
    """
    fewest = min(share, workload.group)
    if held < LARGE or settings.microbatches is not None or fewest == share:
        return held
    return min(held, jaxpr_cost.held_bytes(step_jaxpr(workload, share // fewest * fewest, share // fewest)))


@functools.cache
def _evaluation(key: ProgramsKey, source: str, shards: int) -> tuple[Work, int, int]:
    """Returns the work, held bytes and equations of an evaluation, which all batch sizes share."""
    jaxpr = evaluation_jaxpr(programs.workload_of(key, json.loads(source)), shards)
    return (jaxpr_cost.of(jaxpr), jaxpr_cost.held_bytes(jaxpr), jaxpr_cost.equations(jaxpr))


def step_jaxpr(workload: Workload, examples: int, microbatches: int = 1, shards: int = 1) -> Any:
    """Returns the program of a step of one shard, from selecting its examples to the new parameters.

    Examples of several shards may be normalized together, so the axis over which they sum has a size.
    """
    step, given = a_step(workload, examples, microbatches)
    sizes = [(DATA, shards)] if shards > 1 else None
    with jax.default_matmul_precision("highest"):
        return jax.make_jaxpr(step, axis_env=sizes)(*given)


def a_step(
    workload: Workload, examples: int, microbatches: int = 1
) -> tuple[Callable[..., TrainState], tuple[Any, ...]]:
    """Returns a function that takes a step on one device, and its arguments' shapes (carry first)."""
    division = Division(1, microbatches)
    carry, spans = programs.one_lane(workload)
    train = workload.shapes.train

    def step(carry: TrainState, spans: Spans, order: Any, data: Any) -> TrainState:
        at = jnp.int32(0)
        if workload.feed is not None:
            batch = training.batch_fed(data, examples, division)
        elif workload.draw is not None:
            batch = training.batch_of(workload.draw(jax.random.key(0), examples), None, at, examples, division)
        else:
            batch = training.batch_of(data, order, at, examples, division)
        return training.take_step(workload, division, spans, at, carry, batch)

    data: Any = None
    order: Any = None
    if train is not None and workload.draw is None:
        count = examples if workload.feed else train.labels.shape[0]
        data = training.with_rows(train, count)
        order = jax.ShapeDtypeStruct((count,), np.dtype("int32"))
    return step, (carry, spans, order, data)


def evaluation_jaxpr(workload: Workload, shards: int = 1) -> Any:
    """Returns the program that evaluates one shard of all splits."""
    carry, _ = programs.one_lane(workload)
    whole = evaluation.prepared_shapes(workload, shards)
    splits = tuple(training.with_rows(each, each.labels.shape[0] // shards) for each in whole)

    def evaluate(carry: TrainState, splits: tuple[Examples, ...]) -> Any:
        with_all = workload._replace(evaluation_examples=-(-workload.evaluation_examples // shards))
        return evaluation.evaluate_lane(with_all, Division(), carry, jnp.bool_(True), splits)

    return jax.make_jaxpr(evaluate)(carry, splits)


def verdict(study: BatchStudy, source: Source, settings: Settings, topology: str) -> Verdict:
    """Compiles a step of a study for a topology, partitioned as the engine would partition it.

    Like the engine, this function takes the first partition that fits. It skips partitions whose arrays need several
    times the memory of a device.
    """
    workload = programs.workload_of(programs_key(study), source)
    on = ahead_of_time.mesh(topology, {TRIAL: None, DATA: 1})
    devices = on.devices.size
    usable = ahead_of_time.usable_bytes(on.devices.flat[0].device_kind)
    candidates = engine.candidates(study, settings, study.request.planned, workload, devices, "vmap")
    held = _held_by_share(workload)
    found = None
    per_share = 0.0
    tried = 0
    for at, (lanes, division) in enumerate(candidates):
        last = at == len(candidates) - 1
        of_device = lanes * division.devices // devices
        share = of_device * division.examples(study.batch_size) // division.microbatches
        impossible = math.inf if division.layout else IMPOSSIBLE  # only the compiler knows what a layout saves
        too_much = usable is not None and (
            held(share, of_device) > impossible * usable or per_share * share > usable or tried == MOST_TRIED
        )
        if too_much and not last:
            continue
        on = ahead_of_time.mesh(topology, {TRIAL: None, DATA: division.shards, **dict(division.mesh)})
        of = programs.shapes(workload, on, lanes, division)
        made = ahead_of_time.make(
            functools.partial(programs.lower_train, workload, on, "vmap", of, study.batch_size, division),
            jaxpr_cost.device_bytes((of.carry, of.spans, of.train)),
        )
        how = f"{lanes} lanes × {division.shards} shards × {division.microbatches} microbatches"
        seconds = made.processor_seconds + (found.processor_seconds if found else 0.0)
        found = ahead_of_time.verdict(made, on, beside=jaxpr_cost.device_bytes(of.splits), lanes=of_device, how=how)
        found = found._replace(shards=division.shards, microbatches=division.microbatches, processor_seconds=seconds)
        tried += 1
        if found.fits:
            return found
        per_share = (found.needed_bytes or 0.0) / share
    assert found is not None  # there is always a candidate
    return found


def _held_by_share(workload: Workload) -> Callable[[int, int], float]:
    """Returns a function (examples processed at once, number of trials) -> approximate bytes on a device."""
    few = max(8, workload.group)
    one, two = (jaxpr_cost.held_bytes(step_jaxpr(workload, count)) for count in (few, 2 * few))
    each = (two - one) / few
    fixed = max(0.0, 2 * one - two)
    return lambda examples, lanes: examples * each + lanes * fixed
