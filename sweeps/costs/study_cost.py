"""The predicted cost of a study."""

import math
from typing import NamedTuple

from results.costs.counts import Counts, Verdict
from results.costs.predictions import Seconds
from results.plans.plan import Plan
from sweeps.costs.absent_devices import AbsentDevices
from sweeps.costs.calibration import Device


class StudyCost(NamedTuple):
    """The predicted cost of a study.

    Attributes:
      study: plan of the study.
      missing: number of trials to run.
      counts: counted FLOPs and bytes, if this kind of study can be counted.
      verdict: verdict of the compiler, if there is a topology and the compiler finished.
      asked: requested topology.
      device: device that the prediction is for.
      machine_bytes: memory of a device (attached or absent), if it is known and no topology is given.
      lanes: number of trials that run concurrently on all devices.
      step: predicted seconds per trial-step, if the devices are known.
      is_single: whether a single trial uses all devices. In that case, ``step`` is the time between steps.
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
    is_single: bool
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
        """Whether the study fits in memory, according to the compiler or this machine's memory, if known."""
        if self.asked is not None:
            return None if self.verdict is None else self.verdict.fits
        if self.counts is None or self.machine_bytes is None:
            return None
        return self.counts.least_bytes <= self.machine_bytes

    @property
    def excess_bytes(self) -> float | None:
        """Bytes by which the study exceeds a device's memory. It is missing if it fits or if its memory is unknown."""
        verdict = self.verdict
        if self.fits is not False:
            return None
        if verdict is None:
            return self.counts.least_bytes - self.machine_bytes if self.counts and self.machine_bytes else None
        if verdict.needed_bytes is None or verdict.device_bytes is None:
            return None
        return verdict.needed_bytes - verdict.device_bytes


def span(seconds: Seconds, unit: float = 1.0) -> str:
    """Formats the range of predicted seconds in units of ``unit`` seconds."""
    ends = (float(f"{end / unit:.2g}") for end in (seconds.low, seconds.high))
    return " – ".join(f"{end:,.0f}" if end >= 100 else f"{end:.2g}" for end in ends)
