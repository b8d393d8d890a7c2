"""The plan of a sweep as text: a table of its studies, and their cost."""

import collections
import functools
import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results import printing, tables
from results.bad_input import number_of

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.costs.study_cost import StudyCost
    from sweeps.planning import Request

Costs = dict[str, "StudyCost"]  # by study
Trials = dict[str, int]  # missing from the store, by study

# Imports inside functions keep --help fast.
_HEADER = ("study", "trials", "stored", "to run", "budget steps", "trial-steps at most")
_DIVISION = "lanes × shards × microbatches"
_NAME = re.compile(r"(.+)-([a-z]*\d+-[0-9a-f]{8,16})")  # name of a study: workload, then batch size or cores and hash
GIB = 2**30
TOO_LARGE = "more than this machine has"


def row(study: "Plan", missing: int) -> tuple:
    planned = study.request.planned
    return study.name, planned, planned - missing, missing, study.budget_steps, missing * study.budget_steps


def too_large_text(cost: "StudyCost") -> str:
    return f"more than {cost.absent.text} have" if cost.absent else TOO_LARGE


def verdict_text(cost: "StudyCost") -> str:
    """Returns the verdict on a study, formatted for a table."""
    if cost.fits is None:
        return "not known"
    if cost.fits:
        return "fits"
    excess = cost.excess_bytes
    return "does not fit" if excess is None else f"too large by {excess / GIB:.1f} GiB"


def show(
    request: "Request",
    studies: Sequence["Plan"],
    missing: Trials,
    costs: Costs,
    seconds: float | None,
    price: float | None,
) -> None:
    from results.plans.kinds import of_kind
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.kind_configs import READERS

    rows = [row(study, missing[study.name]) for study in studies]
    asked = any(cost.asked for cost in costs.values())
    header = list(_HEADER)
    if costs:
        header += ["FLOPs a step of a device", "memory of a device"]
        if asked:
            header += ["verdict", _DIVISION]
        header += ["expected steps", "predicted s a step", "predicted device-hours"]
        rows = [(*row, *_texts(costs.get(study.name), asked)) for row, study in zip(rows, studies, strict=True)]
    _show_table(header, rows)
    by_kind = {kind: of_kind(request.studies, kind) for kind in READERS}
    for kind, members in by_kind.items():
        for text in READERS[kind].data_lines([ConfiguredStudy(s, request.sources.get(s.name)) for s in members]):
            printing.answer(text)
    notes = [note for kind, members in by_kind.items() if members for note in READERS[kind].notes(members)]
    trials = sum(missing.values())
    steps = sum(missing[study.name] * study.budget_steps for study in studies)
    to_run = f"{number_of(trials, 'trial')} to run, at most {number_of(steps, 'trial-step')}"
    printing.answer(f"{number_of(len(rows), 'study')}; {to_run} ({'; '.join(notes)})")
    for text in _summary(list(costs.values()), seconds, price):
        printing.answer(text)


def _show_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints the table. On a terminal, the workload is a separate column, which may be turned into a heading."""
    names = [_NAME.fullmatch(row[0]) for row in rows]
    if printing.width(sys.stdout) is not None and all(names):
        header = ["workload", *header]
        rows = [(*name.groups(), *row[1:]) for name, row in zip(names, rows, strict=True) if name]
    optional = (
        "trial-steps at most",
        "budget steps",
        "FLOPs a step of a device",
        "stored",
        "trials",
        "memory of a device",
    )
    printing.answer(tables.table(header, rows, ("workload", "study", "verdict", _DIVISION), least=optional))


def _texts(cost: "StudyCost | None", asked: bool) -> list[str]:
    if cost is None:
        return ["" for _ in range(7 if asked else 5)]
    from sweeps.costs.study_cost import span

    counts = cost.counts
    verdict = cost.verdict
    memory = _size(verdict.needed_bytes) if verdict and verdict.needed_bytes else ""
    if not asked and counts:
        memory = f"about {_size(counts.held_bytes)}"
    cells = [f"{counts.step.flops:.3g}" if counts else "", memory]
    if asked:
        cells.append(verdict_text(cost))
        cells.append(f"{cost.lanes} × {verdict.shards} × {verdict.microbatches}" if verdict else "")
    cells.append(f"{'' if cost.from_store else '≤ '}{cost.steps:,.0f}")
    cells.append(span(cost.step) if cost.step else "")
    return [*cells, span(cost.device_seconds, 3600) if cost.device_seconds else ""]


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def _summary(costs: Sequence["StudyCost"], seconds: float | None, price: float | None) -> list[str]:
    """Returns lines about the whole sweep. ``seconds`` is the compiler's timeout.

    Hours are not predicted for this machine.
    """
    from results.costs.predictions import Seconds
    from sweeps.costs.estimates import ENDED, TIMEOUT_SECONDS
    from sweeps.costs.study_cost import span

    lines, prices = [], []
    priced = [cost for cost in costs if cost.device_seconds is not None]
    hours = [cost.hours for cost in priced if cost.hours is not None and not cost.is_attached]
    if hours:
        total_hours = span(functools.reduce(Seconds.plus, hours))
        prices.append(f"predicted: {total_hours} hours if these devices run one study after another")
    if priced:
        total = functools.reduce(Seconds.plus, filter(None, (cost.device_seconds for cost in priced)))
        lengths = "an upper bound, assuming that trials use their whole budgets"
        if any(cost.from_store for cost in priced):
            lengths = "from the lengths of the store's trials"
            if not all(cost.from_store for cost in priced):
                lengths += ", or budgets"
        lines.append(f"predicted: {span(total, 3600)} device-hours of {_devices_text(priced)} ({lengths})")
        if price is not None:
            prices.append(f"predicted: {span(total, 3600 / price)} dollars, at {price:g} per device-hour")
        lines += [f"predicted from {source}" for source in dict.fromkeys(cost.by for cost in priced if cost.missing)]
    for why, count in collections.Counter(cost.by for cost in costs if cost.device_seconds is None).items():
        after = f" within {seconds or TIMEOUT_SECONDS:g} s" if why == ENDED else ""
        lines.append(f"no predicted time for {number_of(count, 'study')}: {why}{after}")
    return [*lines, *_idle(costs), *_too_large(costs), *prices]


def _devices_text(costs: Sequence["StudyCost"]) -> str:
    """Returns a text with the kinds of devices that predictions are for."""
    absent = next((cost.absent for cost in costs if cost.absent), None)
    if absent is not None:
        return f"{absent.text}, which this machine does not have"
    return ", ".join(sorted({cost.device.kind for cost in costs}))


def _idle(costs: Sequence["StudyCost"]) -> list[str]:
    """Returns a line about unused devices, if any."""
    idle = [cost for cost in costs if cost.idle]
    if not idle:
        return []
    from harness.kinds import RUNNERS

    largest = max(idle, key=lambda cost: cost.idle)
    line = f"{largest.idle:,} of {largest.devices:,} devices are unused in {largest.study.name}"
    if len(idle) > 1:
        line += f", and some in {number_of(len(idle) - 1, 'other study')}"
    if not RUNNERS[largest.study.kind].lanes:
        return [f"{line}. It uses {number_of(largest.shards, 'core')}."]
    instead = f"Use lanes=1 shards={largest.devices} to divide each batch over all devices."
    return [f"{line}, because there are fewer trials than groups of devices. {instead}"]


def _too_large(costs: Sequence["StudyCost"]) -> list[str]:
    """Returns lines about studies that do not fit, or that fit only if batches are split."""
    lines = []
    for cost in costs:
        verdict = cost.verdict
        counts = cost.counts
        excess = cost.excess_bytes
        if cost.fits is False and verdict is not None:
            why = verdict.why.rstrip(".") or verdict_text(cost)
            if excess is not None and verdict.needed_bytes and verdict.device_bytes:
                needed = _size(verdict.needed_bytes)
                memory = _size(verdict.device_bytes)
                why += f". With its arguments it needs {needed}, and a device has {memory}"
            lines.append(f"{cost.study.name} does not fit ({verdict.how}): {why}")
        elif cost.fits is False and counts is not None and cost.machine_bytes:
            memory = _size(cost.machine_bytes)
            lines.append(
                f"{cost.study.name} holds about {_size(counts.least_bytes)}, {too_large_text(cost)}: {memory} for "
                "each device"
            )
    parted = [
        cost
        for cost in costs
        if cost.asked is None
        and cost.fits
        and cost.counts
        and cost.counts.held_bytes > (cost.machine_bytes or math.inf)
    ]
    if parted:
        where = parted[0].absent.text if parted[0].absent else "this machine"
        lines.append(
            f"{number_of(len(parted), 'study')} would exceed the memory of {where}. A run divides batches until "
            "they fit, as with microbatches=."
        )
    return lines
