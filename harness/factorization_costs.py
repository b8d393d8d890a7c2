"""The costs of factorizations: an epoch and an evaluation's objective, outlined from the size of their data alone."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType

from harness import ahead_of_time, jaxpr_cost
from harness.costs import Counts, Exchange, Verdict, Work
from results.bad_input import BadInput, number_of
from results.plans.factorization import Factorization
from workloads import registry
from workloads.factorization import outline, prepared
from workloads.factorization.half_epoch import AXIS
from workloads.factorization.ratings import Size

HALVES = ("row half", "column half")


def counts(study: Factorization, source: Mapping[str, Any] | None) -> Counts:
    """What is counted of a study: of an epoch, which is its step, and of the objective, on one of its cores."""
    of = outline.outline(_size(study, source), study.cores, study)
    mesh: Any = AbstractMesh((study.cores,), (AXIS,), (AxisType.Auto,))
    # The kernel is a call of C++, whose work nobody can see; XLA's program does the same work.
    als = study if study.kernel == "xla" else _of_xla(study)
    programs = {name: jax.make_jaxpr(call)(*given) for name, (call, given) in outline.calls(of, mesh, als).items()}
    halves = [jaxpr_cost.of(programs[name]) for name in HALVES]
    held = max(jaxpr_cost.held_bytes(each) for each in programs.values())
    return Counts(
        step=Work(*map(sum, zip(*halves, strict=True))),
        evaluation=jaxpr_cost.of(programs["objective"]),
        parameters=sum(of.sizes) * study.dim,
        held_bytes=held,
        equations=sum(map(jaxpr_cost.equations, programs.values())),
        devices=study.cores,
        precision=study.solver_dtype,
        least_bytes=held,
    )


def _of_xla(study: Factorization) -> Factorization:
    return dataclasses.replace(study, kernel="xla")


def verdict(study: Factorization, source: Mapping[str, Any] | None, topology: str) -> Verdict:
    """What the compiler for a topology says of both halves of an epoch: of memory that which needs more.

    A study of fewer cores than the slice has devices has the first of them, and the others have nothing to do.
    """
    there = ahead_of_time.mesh(topology, {AXIS: None}).devices.size
    if study.cores > there:
        raise BadInput(f"cores={study.cores}: topology={topology} has {there}; take cores={there} at most")
    on = ahead_of_time.mesh(topology, {AXIS: study.cores})
    als = _of_xla(study)
    of = outline.outline(_size(study, source), study.cores, als)
    programs = outline.calls(of, on, als)
    found = None
    for name in HALVES:
        call, given = programs[name]
        own = ahead_of_time.verdict(
            ahead_of_time.make(functools.partial(call.lower, *given), jaxpr_cost.device_bytes(given)),
            on,
            beside=_beside(programs, name),
            lanes=1,
            how=f"{name} on {number_of(study.cores, 'core')}, {'all_to_all' if of.work[0].sends else 'all_gather'}",
        )._replace(devices=there, shards=study.cores)
        found = own if found is None else _both(found, own)
        if not own.fits:
            return found
    assert found is not None
    return found


def _beside(programs: Mapping[str, tuple[Any, tuple[Any, ...]]], name: str) -> float:
    """Bytes of a core that the other half's work takes, which stays there."""
    other = programs[next(each for each in HALVES if each != name)][1][2]
    return jaxpr_cost.device_bytes(other)


def _both(one: Verdict, two: Verdict) -> Verdict:
    """The verdict on an epoch, from those on its halves."""
    larger = two if not two.fits or (two.needed_bytes or 0) > (one.needed_bytes or 0) else one
    totals: dict[tuple[str, str], list[float]] = {}
    for each in (*one.exchanges, *two.exchanges):
        own = totals.setdefault((each.operation, each.axes), [0, 0.0, 0.0])
        for i, value in enumerate(each[2:]):
            own[i] += value

    def together(name: str) -> float | None:
        values = [getattr(each, name) for each in (one, two)]
        return None if None in values else sum(values)

    return larger._replace(
        exchanges=tuple(Exchange(*key, *sums) for key, sums in sorted(totals.items())),
        exchange_seconds=together("exchange_seconds"),
        flops=together("flops"),
        cycles=together("cycles"),
        unknown_loops=one.unknown_loops + two.unknown_loops,
        processor_seconds=one.processor_seconds + two.processor_seconds,
    )


def _size(study: Factorization, source: Mapping[str, Any] | None) -> Size:
    """The size of a study's data: of a stored one, whose source nobody says, by what its plan says of it."""
    name, _, variant = study.dataset.partition("-")
    if source is None and study.dataset_options:
        source = {"name": name, **study.dataset_options}
    elif source is None and variant:
        source = {"name": name, "variant": variant}
    size = None if source is None else prepared.size(registry.ratings(source))
    if size is None:
        raise BadInput(
            f"{study.dataset} has to be prepared before its costs are counted, as nobody says how large it is"
        )
    return size
