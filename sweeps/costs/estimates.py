"""Predicts the memory, seconds per step and device-hours of the studies of a sweep.

A subprocess counts FLOPs and bytes (``harness.costs.questions``). Predictions are scaled to match runs in the store on
the same kind of device. Measured and predicted seconds are never in the same column.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

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
from sweeps.costs.trial_lengths import Lengths
from sweeps.kind_configs import READERS
from sweeps.planning import Request

FEW_EXAMPLES = 1e7  # in a sweep with fewer examples, only the largest networks take hours
TIMEOUT_SECONDS = 3600.0  # timeout for compiling for a topology
ENDED = "the compiler did not end"
# Clock rates of cores in Hz, from Jouppi et al. 2020 (doi 10.1145/3360307, v2 and v3) and 2023 (arXiv 2304.01433, v4).
CLOCKS = {"v2": 0.70e9, "v3": 0.94e9, "v4p": 1.05e9}


class StudyCost(NamedTuple):
    """The predicted cost of a study.

    Attributes:
      study: plan of the study.
      missing: number of trials to run.
      counts: counted FLOPs and bytes, or None for kinds of studies without counts.
      verdict: verdict of the compiler, or None if there is no topology or the compiler did not finish.
      asked: requested topology.
      device: device that the prediction is for.
      machine_bytes: memory of a device (attached or absent). None if it is unknown or a topology is given.
      lanes: number of trials that run concurrently on all devices.
      step: predicted seconds per trial-step, or None for unknown devices.
      alone: whether a single trial uses all devices. In that case, ``step`` is the time between steps.
      steps, evaluations: expected number of steps and evaluations per trial.
      from_store: whether ``steps`` and ``evaluations`` are derived from curves in the store instead of from the budget.
      device_seconds: predicted seconds for all trials to run, summed over devices.
      by: source of the rates, or reason why there is no prediction.
      absent: devices that the prediction is for, if they are not attached and the program is not compiled for them.
    """

    study: Plan
    missing: int
    counts: Counts | None
    verdict: Verdict | None
    asked: str | None
    device: Device
    machine_bytes: float | None
    lanes: int
    step: Seconds | None
    alone: bool
    steps: float
    evaluations: float
    from_store: bool
    device_seconds: Seconds | None
    by: str
    absent: AbsentDevices | None = None

    @property
    def is_attached(self) -> bool:
        """Whether the devices are those of this machine."""
        return self.absent is None and self.asked is None

    @property
    def hours(self) -> Seconds | None:
        """Predicted hours until the devices have run all trials, if the time is known."""
        return None if self.device_seconds is None else self.device_seconds.times(1 / 3600 / self.devices)

    @property
    def devices(self) -> int:
        """Number of devices that the study occupies."""
        if self.absent:
            return self.absent.number
        if self.verdict:
            return self.verdict.devices
        return self.counts.devices if self.counts else 1

    @property
    def shards(self) -> int:
        """Number of devices that share a step. Counts are per device."""
        if self.verdict:
            return self.verdict.shards
        return self.counts.devices if self.counts else 1

    @property
    def microbatches(self) -> int | None:
        """Number of parts in which a device processes its share. Without a compiler, it is estimated from the memory.

        It is missing if the study does not fit, or if the memory is unknown.
        """
        if self.verdict:
            return self.verdict.microbatches
        if self.counts is None or self.machine_bytes is None or not self.fits:
            return None
        times = math.ceil(self.counts.held_bytes / self.machine_bytes)
        return self.counts.microbatches << (times - 1).bit_length()

    @property
    def idle(self) -> int:
        """Number of devices of a topology that are unused because there are fewer trials than device groups."""
        if not self.missing or (self.verdict is None and self.absent is None):
            return 0
        return max(0, self.devices - min(self.missing, self.lanes) * self.shards)

    @property
    def fits(self) -> bool | None:
        """Whether the study fits in memory, according to the compiler or this machine's memory. None if unknown."""
        if self.asked is not None:
            return None if self.verdict is None else self.verdict.fits
        if self.counts is None or self.machine_bytes is None:
            return None
        return self.counts.least_bytes <= self.machine_bytes


def span(of: Seconds, unit: float = 1.0) -> str:
    """Formats the range of predicted seconds in units of ``unit`` seconds."""
    ends = (float(f"{each / unit:.2g}") for each in (of.low, of.high))
    return " – ".join(f"{each:,.0f}" if each >= 100 else f"{each:.2g}" for each in ends)


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
    known = StoreRatios(stored, say)
    found = []
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
            known=known,
            lengths=steps.of(study),
            compiles=programs not in compiling,
            lanes=lanes_of(request.settings, device, trials, streamed=streamed),
            absent=absent,
        )
        found.append(cost._replace(by=why.get(study.name, cost.by)))
        compiling.add(programs)
    return found


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
        found = of_request(request, missing, say=say)
    except (BadInput, questions.Unanswered) as error:  # a failed prediction must not prevent a run
        say(f"the cost of this sweep is unknown: {error}")
        return None
    known = [each.device_seconds for each in found if each.device_seconds is not None]
    if unknown := [each for each in found if each.device_seconds is None and each.missing and _is_counted(each.study)]:
        which = "this sweep" if len(unknown) == len(found) else number_of(len(unknown), "study")
        say(f"the cost of {which} is unknown: {unknown[0].by}")
    return functools.reduce(Seconds.plus, known) if known else None


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
    found = {name: by_key[key] for name, key in keys.items()}
    return {name: answer for name, answer in found.items() if answer is not None}


def _on_absent(
    request: Request, counted: Studies, given: dict[str, Answer], absent: AbsentDevices, say: Say
) -> dict[str, Answer]:
    """Returns answers for batches that are split across the fewest devices that could have enough memory."""
    found = dict(given)
    left = [] if request.settings.shards else [study for study in counted if RUNNERS[study.kind].lanes]
    while left:
        counts = {s.name: questions.counts_of(found[s.name]) for s in left if questions.REFUSED not in found[s.name]}
        examples = {study.name: RUNNERS[study.kind].examples(study) for study in left}
        wanted = {name: absent_devices.shards_of(absent, examples[name], each) for name, each in counts.items()}
        more = {name: shards for name, shards in wanted.items() if shards is not None}
        left = [study for study in left if study.name in more]
        answers = _ask(request, left, {}, say, shards=more)
        left = [study for study in left if questions.REFUSED not in answers[study.name]]
        found |= {study.name: answers[study.name] for study in left}
    return found


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
        alone = lanes == 1
        at_once = lanes if absent is None else of_group
        links, far = _exchange(device, counts, probed=absent is None)
        step = predictions.seconds(counts.step, rates, at_once, links, far)
        step = step.plus(call.times(1 / at_once))
        trials = missing if absent is None else of_group * math.ceil(missing / lanes)
    else:
        alone = verdict.shards == verdict.devices and verdict.lanes == 1
        step = _compiled_step(counts, verdict, rates).plus(call.times(1 / verdict.lanes))
        trials = verdict.lanes * math.ceil(missing / lanes)  # all devices are reserved while any trial runs
    total = NOTHING
    if missing:
        total = step.times(cost.steps).plus(evaluation).times(trials * cost.devices)
    if missing and compiles:
        each = ratios.compiling
        seconds = predictions.compiling_seconds(counts.equations, rates) * (each.scale if each else 1.0)
        total = total.plus(predictions.around(seconds, each.factor if each else rates.factor).times(cost.devices))
    by = rates.source
    if absent is not None and counts.devices > 1 and counts.exchanges is None:
        by += ", without communication between devices, which is only predicted with a compiler"
    return cost._replace(step=step, alone=alone, device_seconds=total, by=by)


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
    found = predictions.seconds(work, rates, links=verdict.exchange_seconds or 0.0).times(1 / verdict.lanes)
    row = hardware_of(verdict.device_kind)
    if verdict.cycles is not None and row in CLOCKS:
        scheduled = verdict.cycles / CLOCKS[row] / verdict.lanes
        found = Seconds(found.middle, min(found.low, scheduled), max(found.high, scheduled))
    return found


def _exchange(device: Device, counts: Counts, *, probed: bool) -> tuple[float, float]:
    """Returns the predicted seconds of exchanges, and of those between nodes, from a probe of this machine or a table.

    The result is 0 on CPUs, whose devices are emulated, and if the exchanges are not counted.
    """
    if device.backend == "cpu" or counts.devices == 1 or not counts.exchanges:
        return 0.0, 0.0
    first, *others = counts.exchanges
    if probed and not others:
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
