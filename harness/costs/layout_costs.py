"""Computes one device's share of the costs of a layout's step, from shapes or by compiling for a topology."""

import jax

from harness.compiled import ahead_of_time, jaxpr_cost, topologies
from harness.run import Settings, Source
from harness.runners import layouts
from harness.runners.layouts import LaidOutStudy
from results.bad_input import BadInput, number_of
from results.costs.closed_forms import Costs, closed_form
from results.costs.counts import Counts, Exchange, Verdict, Work
from results.plans.layout import COUNTING, REMATERIALIZATIONS, LayoutStudy
from workloads.layouts import shapes
from workloads.layouts.shapes import Shape


def counts(study: LayoutStudy, source: Source, settings: Settings) -> Counts:
    """Counts the costs of a step on one device of the mesh.

    Matmuls, memory and collectives of decoders follow from closed forms, which include repeated work. For other models,
    all devices are assumed to share the work and the memory evenly, and collectives are unknown.
    """
    laid_out = layouts.laid(study, source)
    step = laid_out.on_one_device().on(jax.devices())
    jaxpr = step.jaxpr(study.batch_size)
    mesh = laid_out.mesh
    share = mesh.size
    total = jaxpr_cost.of(jaxpr, len(jax.tree.leaves(step.carry.params)))
    copies = mesh.get(laid_out.layout.get("batch", ""), 1)  # devices with other examples, which read the same weights
    weight_bytes = copies * total.weight_bytes / share
    work = total.times(1 / share)._replace(weight_bytes=weight_bytes, operations=total.operations)
    held = jaxpr_cost.held_bytes(jaxpr) / share
    exchanges = None
    if study.dataset == COUNTING and study.rematerialization in REMATERIALIZATIONS:
        closed = _closed_form(study, laid_out)
        exchanges = tuple(Exchange(*key, *sums) for key, sums in sorted(closed.totals.items()))
        work = closed.work._replace(other_bytes=work.other_bytes, operations=work.operations)
        held = closed.argument_bytes + closed.activation_bytes
    return Counts(
        step=work,
        evaluation=Work(),
        parameters=sum(leaf.size for leaf in jax.tree.leaves(step.carry.params)),
        held_bytes=held,
        equations=jaxpr_cost.equations(jaxpr),
        devices=share,
        precision=study.precision,
        least_bytes=held,
        exchanges=exchanges,
        mesh=tuple(mesh.items()),
    )


def _closed_form(study: LayoutStudy, laid_out: LaidOutStudy) -> Costs:
    shape = Shape(**study.model_options)
    return closed_form(
        laid_out.sizes,
        shapes.parameters(shape),
        laid_out.mesh,
        laid_out.layout,
        width=2 if study.precision == "bfloat16" else 4,
        rematerialized=study.rematerialization == "full",
        joined=True,
        attention_block=study.attention_block,
        window=shape.window,
    )


def verdict(study: LayoutStudy, source: Source, settings: Settings, topology: str) -> Verdict:
    """Compiles a step for a topology. A mesh smaller than the slice uses the first devices, and the others are idle."""
    laid_out = layouts.laid(study, source)
    mesh = laid_out.mesh
    devices = topologies.devices(topology)
    if mesh.size > len(devices):
        count = number_of(len(devices), "device")
        raise BadInput(f"mesh {str(mesh)!r} has {mesh.size} devices, but topology={topology} has {count}")
    step = laid_out.on(devices)
    made = step.compiled_ahead(study.batch_size)
    how = f"1 trial on {number_of(mesh.size, 'device')}, {study.layout_label}"
    result = ahead_of_time.verdict(made, step.on, beside=0.0, lanes=1, how=how)
    return result._replace(devices=len(devices), shards=mesh.size)
