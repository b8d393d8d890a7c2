"""python -m sweeps.plan …: shows what `python -m sweeps …` would run, how much is stored, and the predicted cost.

This command does not run any study. It predicts FLOPs, memory, seconds per step and device-hours of each study from
shapes, without reading data. Columns with predictions are labelled "predicted", and contain a range that covers 90 % of
runs. Predictions cannot rank layouts on GPUs, because links in a node are assumed to be free.

  device=h100 devices=8   predicts for devices that this machine does not have, from counts and a table of hardware
  price=2                 dollars per device-hour, for a predicted cost
  topology=v5e:4x4   compiles for TPUs, which need not be attached, and checks whether each study fits (extra `plan`)
  timeout=SECONDS    timeout for compilation; the costs of studies that are not compiled by then are unknown
  step_times=FILE    writes predicted seconds per step as a table for `python -m analysis payoff`
  --calibration      compares uncalibrated predictions with the runs in the store, instead of printing a plan

The exit code is 1 if a study does not fit or needs more memory than this machine has.
"""

import collections
import functools
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results import cli, printing
from results.bad_input import BadInput, number_of, positive

if __name__ == "__main__":  # precedes the imports below, so that their errors are caught
    cli.run("sweeps.plan")

from results import exit_codes
from sweeps import help_text, overrides

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.costs.absent_devices import AbsentDevices
    from sweeps.costs.estimates import StudyCost
    from sweeps.overrides import CommandLine
    from sweeps.planning import Request

Costs = dict[str, "StudyCost"]  # by study
Trials = dict[str, int]  # missing from the store, by study

# Imports inside functions keep --help fast.
CALIBRATION = "--calibration"
OWN = ("topology", "timeout", "step_times", "device", "devices", "price")
GIB = 2**30
TOO_LARGE = "more than this machine has"
DEFAULT_STORE = "results/local"  # as in conf/config.yaml
_EXAMPLES = (
    "task=digits_fc batch_size=1,16,256 -m",
    "task=digits_fc batch_size=64 device=h100 devices=8 price=2",
    "+experiment=quickstart -m",
)


@cli.guarded
def main(argv: list[str]) -> int:
    """Prints the studies of a command line and their predicted costs. Returns 1 if a study does not fit."""
    given, rest = overrides.split(argv, OWN, flags=(CALIBRATION,))
    line = help_text.read([word for word in rest if word != CALIBRATION], __doc__ or "", _EXAMPLES)
    from harness.compiled import topologies
    from sweeps import planning
    from sweeps.configured_study import DATA, DEVICES
    from sweeps.costs import absent_devices

    topology = given.get("topology")
    if topology is not None:
        topologies.check(topology)
        if "device" in given or "devices" in given:
            raise BadInput("topology= and device= both name devices. Use one of them.")
    seconds, price = (
        None if given.get(key) is None else positive(key, given[key], noun)
        for key, noun in (("timeout", "number of seconds"), ("price", "number of dollars per device-hour"))
    )
    if CALIBRATION in rest:
        return _calibration(line)
    elsewhere = topology is not None or "device" in given
    request = planning.request(line, absent=(DATA, DEVICES) if elsewhere else (DATA,), written=False)
    absent = absent_devices.read(given.get("device"), given.get("devices"), request.settings)
    if topology is not None and not topologies.has_compiler():
        absent = absent_devices.of_topology(topology, request.settings)
        printing.say(f"{topology} is predicted from counts, because the TPU compiler is not installed (extra plan)")
        topology = None
    studies = sorted(request.studies, key=lambda study: printing.numbered(study.name))
    progress = _to_run(request, studies)
    costs = _costs(request, progress, topology, seconds, absent)
    if given.get("step_times"):
        from sweeps.costs import step_times

        step_times.write(given["step_times"], list(costs.values()))
    if printing.is_data():
        _show_data(studies, progress, costs, price)
    else:
        _show_text(request, studies, progress, costs, seconds, price)
    return exit_codes.FAILED if any(cost.fits is False for cost in costs.values()) else exit_codes.DONE


def _to_run(request: "Request", studies: Sequence["Plan"]) -> Trials:
    """Returns the number of trials that are missing from a store or release, by study name."""
    from results import store

    released = store.released_commits(request.store) if request.store.is_dir() else None
    if released is None:
        return {study.name: store.progress(request.store, study).to_run for study in studies}
    stored = {commit.study.plan_json: commit.request.planned for commit in released}
    return {study.name: max(0, study.request.planned - stored.get(study.plan_json, 0)) for study in studies}


def _calibration(line: "CommandLine") -> int:
    from results import durable
    from sweeps.costs import calibration

    if line.overrides:
        raise BadInput(f"{CALIBRATION} takes only store=DIR, not {line.overrides[0]}")
    return calibration.show(durable.location(line.store or DEFAULT_STORE))


def _costs(
    request: "Request",
    missing: Trials,
    topology: str | None,
    seconds: float | None,
    absent: "AbsentDevices | None",
) -> Costs:
    """Returns the costs of all studies by name. If costs cannot be counted, prints why and returns an empty dict."""
    from harness.costs.questions import Unanswered
    from sweeps.costs import estimates

    try:
        timeout = seconds or estimates.TIMEOUT_SECONDS
        costs = estimates.of_request(request, missing, topology, timeout, printing.say, absent)
    except Unanswered as error:
        printing.say(f"costs are unknown: {error}")
        return {}
    return {cost.study.name: cost for cost in costs}


# Columns of the data table after those of the plan. Columns named "predicted" are not measurements. FLOPs and bytes are
# per trial-step and shard. Memory is per device.
COLUMNS = (
    "flops_per_step",
    "bytes_per_step",
    "parameters",
    "memory_bytes",
    "memory_source",
    "device_memory_bytes",
    "fits",
    "too_large_by_bytes",
    "topology_verdict",
    "collectives",
    "device_kind",
    "device_is_attached",
    "devices",
    "lanes",
    "shards",
    "microbatches",
    "expected_steps",
    "expected_from",
    "predicted_seconds_per_step",
    "predicted_seconds_per_step_low",
    "predicted_seconds_per_step_high",
    "predicted_device_hours",
    "predicted_device_hours_low",
    "predicted_device_hours_high",
    "predicted_hours",
    "predicted_hours_low",
    "predicted_hours_high",
    "dollars_per_device_hour",
    "predicted_dollars",
    "predicted_dollars_low",
    "predicted_dollars_high",
    "predicted_from",
    "predictor",
)
_PLAN_COLUMNS = ("study", "trials", "stored", "to_run", "budget_steps", "at_most_trial_steps")
_HEADER = ("study", "trials", "stored", "to run", "budget steps", "trial-steps at most")
_UNKNOWN = (None, None, None)  # a range
_DIVISION = "lanes × shards × microbatches"
_NAME = re.compile(r"(.+)-([a-z]*\d+-[0-9a-f]{8,16})")  # name of a study: workload, then batch size or cores and hash


def _row(study: "Plan", missing: int) -> tuple:
    planned = study.request.planned
    return study.name, planned, planned - missing, missing, study.budget_steps, missing * study.budget_steps


def _show_data(studies: Sequence["Plan"], missing: Trials, costs: Costs, price: float | None) -> None:
    cells = {name: _cells(cost, price) for name, cost in costs.items()}
    unknown = [None for _ in COLUMNS]
    rows = [(*_row(study, missing[study.name]), *cells.get(study.name, unknown)) for study in studies]
    printing.show([*_PLAN_COLUMNS, *COLUMNS], rows, str)


def _cells(cost: "StudyCost", price: float | None) -> list[Any]:
    from results.costs.predictions import PREDICTOR

    counts, verdict, step, total = cost.counts, cost.verdict, cost.step, cost.device_seconds
    memory = counts.held_bytes if counts else None
    if cost.asked:
        verdict_text: str | None = _verdict_text(cost)
    else:
        verdict_text = _too_large_text(cost) if cost.fits is False else None
    device_hours = _UNKNOWN if total is None else total.times(1 / 3600)
    dollars = _UNKNOWN if total is None or price is None else total.times(price / 3600)
    return [
        counts.step.flops if counts else None,
        counts.step.bytes if counts else None,
        counts.parameters if counts else None,
        verdict.needed_bytes if verdict else memory,
        "compiler" if verdict else "about",
        verdict.device_bytes if verdict else cost.machine_bytes,
        # On this machine, an estimate does not guarantee that a study fits.
        None if cost.is_attached and cost.fits else cost.fits,
        _excess(cost),
        verdict_text,
        json.dumps([exchange._asdict() for exchange in verdict.exchanges]) if verdict else None,
        cost.device.kind or None,
        cost.is_attached,
        cost.devices,
        cost.lanes,
        cost.shards,
        None if cost.is_attached else cost.microbatches,
        cost.steps,
        "store" if cost.from_store else "budget",
        *(step or _UNKNOWN),
        *device_hours,
        *((None if cost.is_attached else cost.hours) or _UNKNOWN),
        price,
        *dollars,
        cost.by,
        PREDICTOR,
    ]


def _excess(cost: "StudyCost") -> float | None:
    """Returns the bytes by which a study exceeds a device's memory, or None if it fits or if its memory is unknown."""
    verdict = cost.verdict
    if cost.fits is not False:
        return None
    if verdict is None:
        return cost.counts.least_bytes - cost.machine_bytes if cost.counts and cost.machine_bytes else None
    if verdict.needed_bytes is None or verdict.device_bytes is None:
        return None
    return verdict.needed_bytes - verdict.device_bytes


def _too_large_text(cost: "StudyCost") -> str:
    return f"more than {cost.absent.text} have" if cost.absent else TOO_LARGE


def _verdict_text(cost: "StudyCost") -> str:
    """Returns the verdict on a study, formatted for a table."""
    if cost.fits is None:
        return "not known"
    if cost.fits:
        return "fits"
    excess = _excess(cost)
    return "does not fit" if excess is None else f"too large by {excess / GIB:.1f} GiB"


def _show_text(
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

    rows = [_row(study, missing[study.name]) for study in studies]
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
    printing.answer(printing.table(header, rows, ("workload", "study", "verdict", _DIVISION), least=optional))


def _texts(cost: "StudyCost | None", asked: bool) -> list[str]:
    if cost is None:
        return ["" for _ in range(7 if asked else 5)]
    from sweeps.costs.estimates import span

    counts = cost.counts
    verdict = cost.verdict
    memory = _size(verdict.needed_bytes) if verdict and verdict.needed_bytes else ""
    if not asked and counts:
        memory = f"about {_size(counts.held_bytes)}"
    cells = [f"{counts.step.flops:.3g}" if counts else "", memory]
    if asked:
        cells.append(_verdict_text(cost))
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
    from sweeps.costs.estimates import ENDED, TIMEOUT_SECONDS, span

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
        excess = _excess(cost)
        if cost.fits is False and verdict is not None:
            why = verdict.why.rstrip(".") or _verdict_text(cost)
            if excess is not None and verdict.needed_bytes and verdict.device_bytes:
                needed = _size(verdict.needed_bytes)
                memory = _size(verdict.device_bytes)
                why += f". With its arguments it needs {needed}, and a device has {memory}"
            lines.append(f"{cost.study.name} does not fit ({verdict.how}): {why}")
        elif cost.fits is False and counts is not None and cost.machine_bytes:
            memory = _size(cost.machine_bytes)
            lines.append(
                f"{cost.study.name} holds about {_size(counts.least_bytes)}, {_too_large_text(cost)}: {memory} for "
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
