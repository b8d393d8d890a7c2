"""Costs: what the studies of a sweep would cost, predicted: whether they fit, seconds of a step, and device-hours.

Counting is for a process of its own (``harness.costs``). Predictions for a kind of device that the store has runs of
are scaled by these. Of measured seconds nothing is put in a column of predicted ones, nor the other way round.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness import costs, microbenchmarks, predictions, processors
from harness.costs import Counts, Question, Verdict
from harness.hlo import Collective
from harness.layout_costs import HARDWARE, exchange_seconds, links
from harness.predictions import NOTHING, Rates, Seconds
from harness.run import Settings
from harness.runners import RUNNERS
from results.bad_input import BadInput, number_of
from results.plans.plan import Plan
from sweeps.calibration import Device, Known, StoreRatios, commits, lanes_of, unscaled
from sweeps.configured_study import ConfiguredStudy
from sweeps.kind_configs import READERS
from sweeps.planning import Request
from sweeps.speeds import Lengths

FEW_EXAMPLES = 1e7  # in all trials of a sweep, of which none takes hours but with the largest networks
TIMEOUT_SECONDS = 3600.0  # that compiling for a topology may take
ENDED = "the compiler did not end"
# Cycles a second of cores, by Jouppi et al. 2020 (doi 10.1145/3360307, v2 and v3) and 2023 (arXiv 2304.01433, v4).
CLOCKS = {"v2": 0.70e9, "v3": 0.94e9, "v4p": 1.05e9}


class StudyCost(NamedTuple):
    """The predicted cost of a study.

    Attributes:
      study: its plan.
      missing: trials that are to run.
      counts: None where its kind is not counted.
      verdict: None without a topology.
      asked: the topology that was asked for; without a verdict it is not known then.
      device: of the prediction.
      machine_bytes: of memory that a device of this machine has; None if unknown, and with a topology.
      lanes: trials that run at once, on all devices together.
      step: predicted seconds of a step of a trial; None where nothing is known of the device.
      alone: whether that is the time from one step to the next, as no other trial shares the devices.
      steps, evaluations: expected of a trial.
      from_store: whether these are from curves of the store, and not the budget.
      device_seconds: predicted, of all that is to run, on all of its devices together.
      by: what the rates are from.
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

    @property
    def devices(self) -> int:
        """That are held while the study runs."""
        return self.verdict.devices if self.verdict else self.counts.devices if self.counts else 1

    @property
    def shards(self) -> int:
        """Devices that share a step, of which what is counted is one's share."""
        return self.verdict.shards if self.verdict else self.counts.devices if self.counts else 1

    @property
    def idle(self) -> int:
        """Devices of a topology that have nothing to do, as there are fewer trials than groups of devices."""
        if self.verdict is None or not self.missing:
            return 0
        return max(0, self.devices - min(self.missing, self.lanes) * self.shards)

    @property
    def fits(self) -> bool | None:
        """Whether it does, by the compiler of a topology, or by what this machine has; None: not known."""
        if self.asked is not None:
            return None if self.verdict is None else self.verdict.fits
        if self.counts is None or self.machine_bytes is None:
            return None
        return self.counts.least_bytes <= self.machine_bytes


def span(of: Seconds, unit: float = 1.0) -> str:
    """The range of predicted seconds as texts have it, in a unit of so many seconds."""
    ends = (float(f"{each / unit:.2g}") for each in (of.low, of.high))
    return " – ".join(f"{each:,.0f}" if each >= 100 else f"{each:.2g}" for each in ends)


def here() -> Device:
    """The devices of this machine."""
    backend, _ = processors.accelerators()
    return Device(processors.model() if backend == "cpu" else processors.accelerator_model(backend), backend)


def of_request(
    request: Request,
    missing: Mapping[str, int],
    topology: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    say: Callable[[str], None] = lambda line: None,
) -> list[StudyCost]:
    """The predicted costs of the studies of a request, in its order.

    Args:
      request: what is asked for.
      missing: trials to run, by the names of its studies.
      topology: of TPUs that need not be there; None predicts for this machine.
      timeout_seconds: for compiling all of it.
      say: takes lines for the user.

    Raises:
      BadInput: a topology that there is not, or that no study of it can be compiled for.
      Unanswered: counting failed.
    """
    verdicts: dict[str, Verdict] = {}
    if topology is not None:
        compiled = [study for study in request.studies if RUNNERS[study.kind].verdict is not None]
        answers = _ask(request, compiled, {}, say, topology, timeout_seconds)
        verdicts = {name: costs.verdict_of(answer) for name, answer in answers.items()}
    counted = [study for study in request.studies if RUNNERS[study.kind].counts is not None]
    given = _ask(request, counted, verdicts, say)
    counts = {name: costs.counts_of(answer) for name, answer in given.items() if costs.REFUSED not in answer}
    why = {name: answer[costs.REFUSED] for name, answer in given.items() if costs.REFUSED in answer}
    why |= {
        study.name: f"what a study of kind {study.kind} costs is not counted before it runs"
        for study in request.studies
        if not _is_counted(study)
    }
    stored = commits(request.store)
    steps = Lengths(stored)
    known = StoreRatios(stored, say)
    found: list[StudyCost] = []
    compiling: set[Any] = set()  # programs that were counted already
    for study in request.studies:
        verdict = verdicts.get(study.name)
        device = Device(verdict.device_kind, "tpu") if verdict else here() if topology is None else Device("", "tpu")
        expected, evaluations, from_store = steps.of(study)
        programs = RUNNERS[study.kind].programs(study)
        found.append(
            _cost(
                study,
                missing[study.name],
                counts.get(study.name),
                verdict,
                asked=topology,
                device=device,
                known=known,
                lengths=(expected, evaluations, from_store),
                compiles=programs not in compiling,
                lanes=lanes_of(request.settings, device, missing[study.name], streamed=_is_streamed(counts, study)),
            )._replace(**({"by": why[study.name]} if study.name in why else {}))
        )
        compiling.add(programs)
    return found


def of_sweep(
    request: Request, missing: Mapping[str, int], say: Callable[[str], None] = lambda line: None
) -> Seconds | None:
    """The predicted device-seconds of a sweep on this machine; None where they are few, or not known, which is said.

    Of a sweep with few examples in all nothing is counted, which takes some seconds.
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
    except (BadInput, costs.Unanswered) as error:  # a prediction that fails keeps nobody from running
        say(f"what this sweep costs is not known: {error}")
        return None
    known = [each.device_seconds for each in found if each.device_seconds is not None]
    if unknown := [each for each in found if each.device_seconds is None and each.missing and _is_counted(each.study)]:
        which = "this sweep costs" if len(unknown) == len(found) else f"{number_of(len(unknown), 'study')} of it cost"
        say(f"what {which} is not known: {unknown[0].by}")
    return functools.reduce(Seconds.plus, known) if known else None


def _is_streamed(counts: Mapping[str, Counts], study: Plan) -> bool:
    return study.name in counts and counts[study.name].streamed


def _is_counted(study: Plan) -> bool:
    return RUNNERS[study.kind].counts is not None


def _ask(
    request: Request,
    studies: Sequence[Plan],
    verdicts: Mapping[str, Verdict],
    say: Callable[[str], None],
    topology: str | None = None,
    timeout_seconds: float | None = None,
) -> dict[str, dict[str, Any]]:
    """Answers by the names of studies, of which those that share programs share one; without those there is none of.

    Counts are of a device's share as ``verdicts`` divide a batch, where there are any.
    """
    shared: dict[Any, Question] = {}
    keys = {}
    for study in studies:
        settings = _asked_settings(request.settings)
        if (verdict := verdicts.get(study.name)) is not None:
            settings = dataclasses.replace(settings, shards=verdict.shards, microbatches=verdict.microbatches)
        programs = RUNNERS[study.kind].programs(study)
        keys[study.name] = key = study.kind, programs, study.trials if topology else 0, settings
        source = request.sources.get(study.name)
        shared.setdefault(key, Question(study.plan(), study.trials, source, settings, topology))
    answers = costs.ask(list(shared.values()), timeout_seconds, say, refuses=topology is not None)
    by_key = dict(zip(shared, answers, strict=True))
    return {name: answer for name, key in keys.items() if (answer := by_key[key]) is not None}


def _asked_settings(settings: Settings) -> Settings:
    """Those of the settings that a cost depends on, so that answers are found again whatever the others are."""
    names = ("lanes", "lane_strategy", "shards", "microbatches")
    return Settings(**{name: getattr(settings, name) for name in names})


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
) -> StudyCost:
    ratios = Known() if counts is None else known.of(device, study, counts.step.flops)
    rates = None if counts is None else _rates(device, counts.precision, ratios)
    step, alone, by = None, False, "nothing is known of this device"
    steps, evaluations, from_store = lengths
    total = None
    if asked is not None and (verdict is None or verdict.flops is None):
        by = ENDED if verdict is None else "it does not fit"
    elif counts is not None and rates is not None:
        by = rates.source
        # What is counted is of a device's share already: nothing here is divided by devices.
        evaluation = predictions.seconds(counts.evaluation, rates)
        call = predictions.around(rates.call_seconds, rates.factor).times(evaluations / steps)
        if verdict is None:
            devices, alone = counts.devices, lanes == 1
            step = predictions.seconds(counts.step, rates, lanes)
            step = step.plus(_exchange(device, counts, rates)).plus(call.times(1 / lanes))
            total = step.times(steps).plus(evaluation.times(evaluations)).times(missing * devices)
        else:
            devices, lanes = verdict.devices, verdict.lanes * (verdict.devices // verdict.shards)
            alone = verdict.shards == devices and verdict.lanes == 1
            step = _compiled_step(counts, verdict, rates).plus(call.times(1 / verdict.lanes))
            # All devices are held as long as any trial runs; so many run at once.
            rounds = math.ceil(missing / lanes)
            a_trial = step.times(steps).plus(evaluation.times(evaluations))
            total = a_trial.times(verdict.lanes * rounds * devices)
        if compiles and missing:
            each = ratios.compiling
            seconds = predictions.compiling_seconds(counts.equations, rates) * (each.scale if each else 1.0)
            total = total.plus(predictions.around(seconds, each.factor if each else rates.factor).times(devices))
        if not missing:
            total = NOTHING
    return StudyCost(
        study,
        missing,
        counts,
        verdict,
        asked,
        device,
        _machine_bytes(device, counts) if asked is None else None,
        lanes if verdict is None else verdict.lanes * (verdict.devices // verdict.shards),
        step,
        alone,
        steps,
        evaluations,
        from_store,
        total,
        by,
    )


def _compiled_step(counts: Counts, verdict: Verdict, rates: Rates) -> Seconds:
    """Predicted seconds of a step of a trial, of what the compiler made: those of all trials of a device over them.

    Where the compiler's schedule tells cycles, and the clock is known, the range holds the seconds of these as well.
    """
    assert verdict.flops is not None
    moved = counts.step.fused_bytes * verdict.lanes
    middle = verdict.flops / rates.flops + moved / rates.bytes + counts.step.operations * rates.operation_seconds
    found = predictions.around((middle + (verdict.exchange_seconds or 0.0)) / verdict.lanes, rates.factor)
    row = predictions.hardware_of(verdict.device_kind)
    if verdict.cycles is not None and row in CLOCKS:
        scheduled = verdict.cycles / CLOCKS[row] / verdict.lanes
        found = Seconds(found.middle, min(found.low, scheduled), max(found.high, scheduled))
    return found


def _exchange(device: Device, counts: Counts, rates: Rates) -> Seconds:
    """Predicted seconds of the sum of gradients over devices of this machine, by a probe, or else by a table.

    There is none on a processor, whose devices are emulated; exchanges of factorizations are not predicted.
    """
    if device.backend == "cpu" or counts.devices == 1 or not counts.sums:
        return NOTHING
    size = 4.0 * counts.parameters
    seconds = microbenchmarks.all_reduce_seconds(device.kind, counts.devices, size)
    row = predictions.hardware_of(device.kind)
    if seconds is None and row is not None:
        group = (tuple(range(counts.devices)),)
        over = links(HARDWARE[row], {"data": counts.devices})
        seconds = exchange_seconds(HARDWARE[row], Collective("all-reduce", size, group, (), ""), over)
    return NOTHING if seconds is None else predictions.around(seconds, rates.factor)


def _machine_bytes(device: Device, counts: Counts | None) -> float | None:
    """Bytes of memory for each of the devices of a study on this machine; None if unknown."""
    if device.backend == "cpu":  # whose devices share its memory
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (counts.devices if counts else 1)
        except (OSError, ValueError, AttributeError):
            return None
    row = predictions.hardware_of(device.kind)
    return None if row is None else HARDWARE[row].memory_bytes


def _rates(device: Device, precision: str, ratios: Known) -> Rates | None:
    """Rates of a device: of tables as a store's runs scale them, if there are any; else of a probe, or of tables."""
    if ratios.steps is not None:
        tables = unscaled(device, precision)
        return None if tables is None else predictions.scaled(tables, ratios.steps)
    return microbenchmarks.rates(device.kind, device.backend, precision) or unscaled(device, precision)
