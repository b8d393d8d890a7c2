"""Computes one device's share of the costs of a layout's step, from shapes or by compiling for a topology."""

import functools

import jax

from harness.compiled import ahead_of_time, jaxpr_cost, topologies
from harness.run import Settings, Source
from harness.runners import layouts
from results.bad_input import BadInput, number_of
from results.costs.counts import Counts, Verdict, Work
from results.plans.layout import LayoutStudy


def counts(study: LayoutStudy, source: Source, settings: Settings) -> Counts:
    """Counts the costs of a step, assuming that all devices of the mesh share its work and its memory evenly."""
    one = layouts.laid(study, source)
    step = layouts.whole_step(one)
    jaxpr = jax.make_jaxpr(step.step)(step.carry, step.batch(study.batch_size), layouts.SEED)
    share = one.mesh.size
    work = jaxpr_cost.of(jaxpr, len(jax.tree.leaves(step.carry.params))).times(1 / share)
    copies = one.mesh.get(one.layout.get("batch", ""), 1)  # devices with other examples, which read the same weights
    held = jaxpr_cost.held_bytes(jaxpr) / share
    return Counts(
        step=work._replace(weight_bytes=copies * work.weight_bytes, operations=share * work.operations),
        evaluation=Work(),
        parameters=sum(leaf.size for leaf in jax.tree.leaves(step.carry.params)),
        held_bytes=held,
        equations=jaxpr_cost.equations(jaxpr),
        devices=share,
        precision=study.precision,
        least_bytes=held,
    )


def verdict(study: LayoutStudy, source: Source, settings: Settings, topology: str) -> Verdict:
    """Compiles a step for a topology. A mesh smaller than the slice uses the first devices, and the others are idle."""
    one = layouts.laid(study, source)
    devices = topologies.devices(topology)
    if one.mesh.size > len(devices):
        there = number_of(len(devices), "device")
        raise BadInput(f"mesh {str(one.mesh)!r} has {one.mesh.size} devices, but topology={topology} has {there}")
    step = one.on(devices)
    given = step.carry, step.batch(study.batch_size)
    lower = functools.partial(step.lowered, study.batch_size)
    made = ahead_of_time.make(lower, jaxpr_cost.device_bytes(given))
    how = f"1 trial on {number_of(one.mesh.size, 'device')}, {study.layout_label}"
    found = ahead_of_time.verdict(made, step.on, beside=0.0, lanes=1, how=how)
    return found._replace(devices=len(devices), shards=one.mesh.size)
