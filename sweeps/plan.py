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

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results import cli, printing
from results.bad_input import BadInput, positive

if __name__ == "__main__":  # precedes the imports below, so that their errors are caught
    cli.run("sweeps.plan")

from results import exit_codes
from sweeps import help_text, overrides, plan_text
from sweeps.plan_text import Costs, Trials

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.costs.absent_devices import AbsentDevices
    from sweeps.costs.study_cost import StudyCost
    from sweeps.overrides import CommandLine
    from sweeps.planning import Request


# Imports inside functions keep --help fast.
CALIBRATION = "--calibration"
OWN = ("topology", "timeout", "step_times", "device", "devices", "price")
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
        plan_text.show(request, studies, progress, costs, seconds, price)
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
_UNKNOWN = (None, None, None)  # a range


def _show_data(studies: Sequence["Plan"], missing: Trials, costs: Costs, price: float | None) -> None:
    cells = {name: _cells(cost, price) for name, cost in costs.items()}
    unknown = [None for _ in COLUMNS]
    rows = [(*plan_text.row(study, missing[study.name]), *cells.get(study.name, unknown)) for study in studies]
    printing.show([*_PLAN_COLUMNS, *COLUMNS], rows, str)


def _cells(cost: "StudyCost", price: float | None) -> list[Any]:
    from results.costs.predictions import PREDICTOR

    counts, verdict, step, total = cost.counts, cost.verdict, cost.step, cost.device_seconds
    memory = counts.held_bytes if counts else None
    if cost.asked:
        verdict_text: str | None = plan_text.verdict_text(cost)
    else:
        verdict_text = plan_text.too_large_text(cost) if cost.fits is False else None
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
        cost.excess_bytes,
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
