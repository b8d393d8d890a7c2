"""Computes the costs of an epoch and of the objective of a factorization from the size of the data only."""

import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType

from harness.compiled import ahead_of_time, jaxpr_cost
from harness.run import Settings, Source
from results.bad_input import BadInput, number_of
from results.costs.collectives import summed
from results.costs.counts import Counts, Exchange, Verdict, Work
from results.plans.factorization import Factorization
from workloads import ratings_sources
from workloads.factorization import outline, prepared
from workloads.factorization.half_epoch import AXIS
from workloads.factorization.ratings import Size

HALVES = ("row half", "column half")


def counts(study: Factorization, source: Source, settings: Settings) -> Counts:
    """Counts the costs of an epoch (one step of the study) and of the objective on one core."""
    outlined = outline.outline(_size(study, source), study.cores, study)
    mesh: Any = AbstractMesh((study.cores,), (AXIS,), (AxisType.Auto,))
    # The fused kernel is an opaque C++ call. XLA's program does the same work.
    als = dataclasses.replace(study, kernel="xla")
    programs = {
        name: jax.make_jaxpr(call)(*given) for name, (call, given) in outline.calls(outlined, mesh, als).items()
    }
    work = {name: _without_scores(jaxpr_cost.of(jaxpr)) for name, jaxpr in programs.items()}
    held = max(jaxpr_cost.held_bytes(jaxpr) for jaxpr in programs.values())
    return Counts(
        step=work[HALVES[0]].plus(work[HALVES[1]]),
        evaluation=work["objective"],
        parameters=sum(outlined.sizes) * study.dim,
        held_bytes=held,
        equations=sum(map(jaxpr_cost.equations, programs.values())),
        devices=study.cores,
        precision=study.solver_dtype,
        least_bytes=held,
    )


def _without_scores(work: Work) -> Work:
    """Returns the work of a program that has no attention, so batched matmuls are counted like all others."""
    return work._replace(activation_bytes=work.activation_bytes + work.score_bytes, score_bytes=0.0)


def verdict(study: Factorization, source: Source, settings: Settings, topology: str) -> Verdict:
    """Compiles both halves of an epoch for a topology, and returns the memory of the larger half.

    If the slice has more devices than the study has cores, the study uses the first devices, and the others are idle.
    """
    available = ahead_of_time.mesh(topology, {AXIS: None}).devices.size
    if study.cores > available:
        raise BadInput(f"cores={study.cores}: topology={topology} has {available}. Use cores={available} at most.")
    mesh = ahead_of_time.mesh(topology, {AXIS: study.cores})
    als = dataclasses.replace(study, kernel="xla")
    outlined = outline.outline(_size(study, source), study.cores, als)
    programs = outline.calls(outlined, mesh, als)
    result = None
    exchange = "all_to_all" if outlined.work[0].sends else "all_gather"
    for name, opposite in (HALVES, HALVES[::-1]):
        call, given = programs[name]
        half = ahead_of_time.verdict(
            ahead_of_time.make(functools.partial(call.lower, *given), jaxpr_cost.device_bytes(given)),
            mesh,
            beside=jaxpr_cost.device_bytes(programs[opposite][1][2]),  # arrays of the other half stay in memory
            lanes=1,
            how=f"{name} on {number_of(study.cores, 'core')}, {exchange}",
        )._replace(devices=available, shards=study.cores)
        result = half if result is None else _both(result, half)
        if not half.fits:
            return result
    assert result is not None
    return result


def _both(one: Verdict, two: Verdict) -> Verdict:
    """Combines the verdicts on both halves into the verdict on an epoch."""
    larger = two if not two.fits or (two.needed_bytes or 0) > (one.needed_bytes or 0) else one
    totals = summed((*one.exchanges, *two.exchanges))

    def together(name: str) -> float | None:
        values = [getattr(verdict, name) for verdict in (one, two)]
        return None if None in values else sum(values)

    return larger._replace(
        exchanges=tuple(Exchange(*key, *sums) for key, sums in sorted(totals.items())),
        exchange_seconds=together("exchange_seconds"),
        flops=together("flops"),
        cycles=together("cycles"),
        unknown_loops=one.unknown_loops + two.unknown_loops,
        processor_seconds=one.processor_seconds + two.processor_seconds,
    )


def _size(study: Factorization, source: Source) -> Size:
    """Returns the size of a study's data. For a stored study, the data source is derived from its plan."""
    name, _, variant = study.dataset.partition("-")
    if source is None and study.dataset_options:
        source = {"name": name, **study.dataset_options}
    elif source is None and variant:
        source = {"name": name, "variant": variant}
    size = None if source is None else prepared.size(ratings_sources.source(source))
    if size is None:
        raise BadInput(
            f"{study.dataset}: its size is unknown until it is prepared. Prepare the data before counting costs."
        )
    return size
