"""Predicts the memory, seconds per step and device-hours of the studies of a sweep.

A subprocess counts FLOPs and bytes (``harness.costs.questions``). Predictions are scaled to match runs in the store on
the same kind of device. Measured and predicted seconds are never in the same column.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping
from typing import Any

from harness.costs import microbenchmarks, questions
from harness.costs.questions import Answer, Question
from harness.kinds import RUNNERS
from harness.processes import processors
from harness.run import Settings
from results.bad_input import BadInput, number_of
from results.costs import predictions
from results.costs.collectives import seconds_of_totals
from results.costs.counts import Counts, Verdict
from results.costs.hardware import described, hardware_of
from results.costs.predictions import NOTHING, Rates, Seconds
from results.plans.plan import Plan
from sweeps.configured_study import ConfiguredStudy, Say, Studies
from sweeps.costs import absent_devices
from sweeps.costs.absent_devices import AbsentDevices
from sweeps.costs.calibration import Device, Known, StoreRatios, commits, lanes_of
from sweeps.costs.study_cost import StudyCost
from sweeps.costs.trial_lengths import Lengths
from sweeps.kind_configs import READERS
from sweeps.planning import Request

FEW_EXAMPLES = 1e7  # in a sweep with fewer examples, only the largest networks take hours
TIMEOUT_SECONDS = 3600.0  # timeout for compiling for a topology
ENDED = "the compiler did not end"
# Clock rates of cores in Hz, from Jouppi et al. 2020 (doi 10.1145/3360307, v2 and v3) and 2023 (arXiv 2304.01433, v4).
CLOCKS = {"v2": 0.70e9, "v3": 0.94e9, "v4p": 1.05e9}


def here() -> Device:
    """Returns the device kind of this machine."""
    backend, _ = processors.accelerators()
    return Device(processors.model() if backend == "cpu" else processors.accelerator_model(backend), backend)


def of_request(
    request: Request,
    missing: Mapping[str, int],
    topology: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    say: Say = lambda line: None,
    absent: AbsentDevices | None = None,
) -> list[StudyCost]:
    """Returns the predicted costs of the studies of a request, in the same order.

    Args:
      request: the request.
      missing: number of trials to run, by study name.
      topology: TPU topology. The TPUs do not need to be attached. With None, costs are predicted for this machine.
      timeout_seconds: time limit for compiling all studies together.
      say: called with messages for the user.
      absent: devices that this machine does not have, instead of a topology. Their costs are only counted.

    Raises:
      BadInput: the topology does not exist, or a study cannot be compiled for it.
      Unanswered: counting failed.
    """
    verdicts = {}
    if topology is not None:
        compiled = [study for study in request.studies if RUNNERS[study.kind].verdict is not None]
        answers = _ask(request, compiled, {}, say, topology, timeout_seconds)
        verdicts = {name: questions.verdict_of(answer) for name, answer in answers.items()}
    counts, why = _counted(request, verdicts, absent, say)
    stored = commits(request.store)
    fixed = here() if topology is None else Device("", "tpu")
    if absent is not None:
        fixed = Device(absent.row, absent.backend)
    steps = Lengths(stored)
    ratios = StoreRatios(stored, say)
    costs = []
    compiling = set()  # keys of programs counted so far
    for study in request.studies:
        verdict = verdicts.get(study.name)
        device = Device(verdict.device_kind, "tpu") if verdict else fixed
        counted_here = counts.get(study.name)
        trials = missing[study.name]
        programs = RUNNERS[study.kind].programs(study)
        streamed = counted_here is not None and counted_here.streamed
        cost = _cost(
            study,
            trials,
            counted_here,
            verdict,
            asked=topology,
            device=device,
            known=ratios,
            lengths=steps.of(study),
            compiles=programs not in compiling,
            lanes=lanes_of(request.settings, device, trials, streamed=streamed),
            absent=absent,
        )
        costs.append(cost._replace(by=why.get(study.name, cost.by)))
        compiling.add(programs)
    return costs


def _counted(
    request: Request, verdicts: Mapping[str, Verdict], absent: AbsentDevices | None, say: Say
) -> tuple[dict[str, Counts], dict[str, str]]:
    """Returns counts, and the reasons for missing counts, by study name."""
    counted = [study for study in request.studies if _is_counted(study)]
    given = _ask(request, counted, verdicts, say)
    if absent is not None:
        given = _on_absent(request, counted, given, absent, say)
    counts = {name: questions.counts_of(answer) for name, answer in given.items() if questions.REFUSED not in answer}
    why = {name: answer[questions.REFUSED] for name, answer in given.items() if questions.REFUSED in answer}
    why |= {
        study.name: f"costs of kind {study.kind} cannot be counted before a run"
        for study in request.studies
        if not _is_counted(study)
    }
    return counts, why


def of_sweep(request: Request, missing: Mapping[str, int], say: Say = lambda line: None) -> Seconds | None:
    """Returns a sweep's predicted device-seconds on this machine, or None if small or (after a report) if unknown.

    Counting takes a few seconds, so it is skipped for sweeps with few examples.
    """
    examples = sum(
        missing[study.name]
        * study.budget_steps
        * READERS[study.kind].examples(ConfiguredStudy(study, request.sources.get(study.name)))
        for study in request.studies
        if missing[study.name]
    )
    if examples <= FEW_EXAMPLES:
        return None
    try:
        costs = of_request(request, missing, say=say)
    except (BadInput, questions.Unanswered) as error:  # a failed prediction must not prevent a run
        say(f"the cost of this sweep is unknown: {error}")
        return None
    seconds = [cost.device_seconds for cost in costs if cost.device_seconds is not None]
    if unknown := [cost for cost in costs if cost.device_seconds is None and cost.missing and _is_counted(cost.study)]:
        which = "this sweep" if len(unknown) == len(costs) else number_of(len(unknown), "study")
        say(f"the cost of {which} is unknown: {unknown[0].by}")
    return functools.reduce(Seconds.plus, seconds) if seconds else None


def _is_counted(study: Plan) -> bool:
    return RUNNERS[study.kind].counts is not None


def _ask(
    request: Request,
    studies: Studies,
    verdicts: Mapping[str, Verdict],
    say: Say,
    topology: str | None = None,
    timeout_seconds: float | None = None,
    shards: Mapping[str, int] | None = None,
) -> dict[str, Answer]:
    """Returns answers by study name. Studies that share programs share an answer. Missing answers are omitted.

    Counts are per device, for the batch partition of ``verdicts`` or, if given, the number of ``shards``.
    """
    shared: dict[Any, Question] = {}
    keys = {}
    # Only settings that affect costs, so that cached answers are shared between all others.
    names = ("lanes", "lane_strategy", "shards", "microbatches", "mesh", "layout")
    asked = Settings(**{name: getattr(request.settings, name) for name in names})
    for study in studies:
        settings = asked
        verdict = verdicts.get(study.name)
        if verdict is not None:
            settings = dataclasses.replace(asked, shards=verdict.shards, microbatches=verdict.microbatches)
        if shards is not None:
            settings = dataclasses.replace(asked, shards=shards[study.name])
        programs = RUNNERS[study.kind].programs(study)
        keys[study.name] = key = study.kind, programs, study.trials if topology else 0, settings
        source = request.sources.get(study.name)
        shared.setdefault(key, Question(study.plan(), study.trials, source, settings, topology))
    answers = questions.ask(list(shared.values()), timeout_seconds, say, refuses=topology is not None)
    by_key = dict(zip(shared, answers, strict=True))
    by_name = {name: by_key[key] for name, key in keys.items()}
    return {name: answer for name, answer in by_name.items() if answer is not None}


def _on_absent(
    request: Request, counted: Studies, given: dict[str, Answer], absent: AbsentDevices, say: Say
) -> dict[str, Answer]:
    """Returns answers for batches that are split across the fewest devices that could have enough memory."""
    answers_by_name = dict(given)
    left = [] if request.settings.shards else [study for study in counted if RUNNERS[study.kind].lanes]
    while left:
        counts = {
            s.name: questions.counts_of(answers_by_name[s.name])
            for s in left
            if questions.REFUSED not in answers_by_name[s.name]
        }
        examples = {study.name: RUNNERS[study.kind].examples(study) for study in left}
        wanted = {name: absent_devices.shards_of(absent, examples[name], count) for name, count in counts.items()}
        divided = {name: shards for name, shards in wanted.items() if shards is not None}
        left = [study for study in left if study.name in divided]
        answers = _ask(request, left, {}, say, shards=divided)
        left = [study for study in left if questions.REFUSED not in answers[study.name]]
        answers_by_name |= {study.name: answers[study.name] for study in left}
    return answers_by_name


def _cost(
    study: Plan,
    missing: int,
    counts: Counts | None,
    verdict: Verdict | None,
    *,
    asked: str | None,
    device: Device,
    known: StoreRatios,
    lengths: tuple[float, float, bool],
    compiles: bool,
    lanes: int,
    absent: AbsentDevices | None,
) -> StudyCost:
    """Predicts the cost of a study."""
    ratios = Known() if counts is None or absent is not None else known.of(device, study, counts.step.flops)
    rates = None if counts is None else _rates(device, counts.precision, ratios, probed=absent is None)
    if verdict is not None:
        lanes = verdict.lanes * (verdict.devices // verdict.shards)
    of_group = 1 if absent is None or counts is None else _lanes_of_group(absent, counts, lanes)
    if absent is not None and counts is not None:
        lanes = of_group * max(1, absent.number // counts.devices)
    machine_bytes = _machine_bytes(device, counts) if asked is None else None
    about = (study, missing, counts, verdict, asked, device, machine_bytes, lanes)
    cost = StudyCost(*about, None, False, *lengths, None, "this device is unknown", absent)
    if asked is not None and (verdict is None or verdict.flops is None):
        return cost._replace(by=ENDED if verdict is None else "it does not fit")
    if absent is not None and (why := _obstacle(cost)):
        return cost._replace(by=why)
    if counts is None or rates is None:
        return cost
    # Counts are already per device.
    evaluation = predictions.seconds(counts.evaluation, rates).times(cost.evaluations)
    call = predictions.around(rates.call_seconds, rates.factor).times(cost.evaluations / cost.steps)
    if verdict is None:
        is_single = lanes == 1
        at_once = lanes if absent is None else of_group
        links, far = _exchange(device, counts, probed=absent is None)
        step = predictions.seconds(counts.step, rates, at_once, links, far)
        step = step.plus(call.times(1 / at_once))
        trials = missing if absent is None else of_group * math.ceil(missing / lanes)
    else:
        is_single = verdict.shards == verdict.devices and verdict.lanes == 1
        step = _compiled_step(counts, verdict, rates).plus(call.times(1 / verdict.lanes))
        trials = verdict.lanes * math.ceil(missing / lanes)  # all devices are reserved while any trial runs
    total = NOTHING
    if missing:
        total = step.times(cost.steps).plus(evaluation).times(trials * cost.devices)
    if missing and compiles:
        compiling = ratios.compiling
        seconds = predictions.compiling_seconds(counts.equations, rates) * (compiling.scale if compiling else 1.0)
        total = total.plus(
            predictions.around(seconds, compiling.factor if compiling else rates.factor).times(cost.devices)
        )
    source = rates.source
    if absent is not None and counts.devices > 1 and counts.exchanges is None:
        source += ", without communication between devices, which is only predicted with a compiler"
    return cost._replace(step=step, is_single=is_single, device_seconds=total, by=source)


def _lanes_of_group(absent: AbsentDevices, counts: Counts, lanes: int) -> int:
    """Returns the number of trials that fit in memory at the same time on the absent devices that share a step."""
    groups = max(1, absent.number // counts.devices)
    return max(1, min(math.ceil(lanes / groups), int(absent.memory_bytes // max(1.0, counts.held_bytes))))


def _obstacle(cost: StudyCost) -> str | None:
    """Returns the reason why a study cannot run on absent devices, if there is one."""
    assert cost.absent is not None
    if cost.counts is not None and cost.counts.devices > cost.absent.number:
        return f"it needs {cost.counts.devices:,} devices, more than devices={cost.absent.number}"
    return "it does not fit" if cost.fits is False else None


def _compiled_step(counts: Counts, verdict: Verdict, rates: Rates) -> Seconds:
    """Returns the predicted seconds per trial-step of a compiled program: seconds on the device / number of trials.

    The range includes the seconds in the compiler's schedule, if its cycles and the clock rate are known.
    """
    assert verdict.flops is not None
    work = counts.step.times(verdict.lanes)._replace(flops=verdict.flops, operations=counts.step.operations)
    seconds = predictions.seconds(work, rates, links=verdict.exchange_seconds or 0.0).times(1 / verdict.lanes)
    row = hardware_of(verdict.device_kind)
    if verdict.cycles is not None and row in CLOCKS:
        scheduled = verdict.cycles / CLOCKS[row] / verdict.lanes
        seconds = Seconds(seconds.middle, min(seconds.low, scheduled), max(seconds.high, scheduled))
    return seconds


def _exchange(device: Device, counts: Counts, *, probed: bool) -> tuple[float, float]:
    """Returns the predicted seconds of exchanges, and of those between nodes, from a probe of this machine or a table.

    The result is 0 on CPUs, whose devices are emulated, and if the exchanges are not counted.
    """
    if device.backend == "cpu" or counts.devices == 1 or not counts.exchanges:
        return 0.0, 0.0
    first, *between_nodes = counts.exchanges
    if probed and not between_nodes:
        seconds = microbenchmarks.all_reduce_seconds(device.kind, counts.devices, first.bytes)
        if seconds is not None:
            return seconds, 0.0
    hardware = described(device.kind)
    return (0.0, 0.0) if hardware is None else seconds_of_totals(hardware, dict(counts.mesh), counts.exchanges)


def _machine_bytes(device: Device, counts: Counts | None) -> float | None:
    """Returns the memory in bytes of each of a study's devices on this machine, or None if unknown."""
    if device.backend == "cpu":  # its devices share the memory
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (counts.devices if counts else 1)
        except (OSError, ValueError, AttributeError):
            return None
    hardware = described(device.kind)
    return None if hardware is None else hardware.memory_bytes


def _rates(device: Device, precision: str, ratios: Known, *, probed: bool) -> Rates | None:
    """Returns rates of a device: from tables scaled by stored runs, else from a probe if allowed, else from tables."""
    tables = predictions.rates(*device, precision)
    if ratios.steps is not None:
        return tables and predictions.scaled(tables, ratios.steps)
    return (probed and microbenchmarks.rates(*device, precision)) or tables
