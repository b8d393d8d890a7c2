"""Predicts seconds from the work of a program and the rates of a device, always with a range.

The time of a program is the sum of its matmul, memory and per-operation times, assuming no overlap. Tables list the
rates of each device kind. The rates are ``scaled`` by measured runs if available, otherwise by the steps of a probe
(``harness.costs.probe``). This module does not read the clock or the disk, and does not import JAX.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.costs.counts import Work
from results.costs.hardware import HARDWARE, hardware_of, passes

PREDICTOR = "3"  # version of the method; ratios to measurements are valid for one version only
FEWEST = 3  # measurements needed to estimate the error of predictions


class Rates(NamedTuple):
    """Rates of a device kind.

    Attributes:
      flops: matmul FLOPs per second.
      bytes: memory traffic per second.
      operation_seconds: minimum seconds of an operation.
      call_seconds: seconds that the host needs per call to start programs and read their results.
      equation_seconds: compile time per operation in the text of a program.
      factor: predictions are within this factor of the measured time with 90 % confidence.
      source: readable description of the source of these numbers.
    """

    flops: float
    bytes: float
    operation_seconds: float
    call_seconds: float
    equation_seconds: float
    factor: float
    source: str


class Seconds(NamedTuple):
    """Predicted seconds with a 90 % interval."""

    middle: float
    low: float
    high: float

    def times(self, count: float) -> "Seconds":
        """Returns the seconds of ``count`` repetitions."""
        return Seconds(*(count * each for each in self))

    def plus(self, other: "Seconds") -> "Seconds":
        """Returns the sum with other seconds, assuming fully correlated errors."""
        return Seconds(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Seconds(0.0, 0.0, 0.0)
# A core of a server processor, fitted to the steps of results/published, which were measured on AMD EPYC. Rates differ
# by a factor of 2 between processors, and by a factor of 2 between programs on one processor.
CPU = Rates(4.4e10, 5.9e9, 4.7e-8, 1.5e-4, 2.5e-3, 5.0, "rates of a typical processor core")
STARTING = 400  # a process's first program takes as long as compiling about this number of operations
REACHED = (0.35, 0.6)  # fractions of the table's peak rates, for matmuls and for memory, that untuned programs reach
_LATENCY = {"tpu": 1e-6, "gpu": 4e-6}  # seconds per operation
CALL_SECONDS = 1e-3  # host time per call on accelerators


def rates(device_kind: str, backend: str, precision: str) -> Rates | None:
    """Returns rates of a device kind from the tables, for matmuls of a precision, or None if the tables lack it."""
    if backend == "cpu":
        return CPU
    row = hardware_of(device_kind)
    if row is None:
        return None
    found = HARDWARE[row]
    return Rates(
        REACHED[0] * found.flops / passes(found, precision),
        REACHED[1] * found.memory_bandwidth,
        _LATENCY[backend],
        CALL_SECONDS,
        CPU.equation_seconds,
        CPU.factor,
        f"tables ({found.source})",
    )


def seconds(of: Work, at: Rates, lanes: int = 1) -> Seconds:
    """Returns the predicted seconds of a program per trial.

    Args:
      of: work of one trial.
      at: rates of the device.
      lanes: number of batched trials, which share the minimum time of each operation.
    """
    middle = of.flops / at.flops + of.fused_bytes / at.bytes + of.operations * at.operation_seconds / lanes
    return around(middle, at.factor)


def compiling_seconds(equations: float, at: Rates) -> float:
    """Returns the predicted seconds to compile the programs of a study, including a fixed cost per process."""
    return (equations + STARTING) * at.equation_seconds


def around(middle: float, factor: float) -> Seconds:
    """Returns seconds with a range of this factor in both directions."""
    return Seconds(middle, middle / factor, middle * factor)


class Calibration(NamedTuple):
    """Ratios of measured to predicted seconds on a device kind.

    Attributes:
      scale: median ratio.
      factor: a new ratio is within this factor of the median with 90 % confidence.
      runs: number of measured runs.
    """

    scale: float
    factor: float
    runs: int


def calibration(ratios: Sequence[float]) -> Calibration | None:
    """Returns the calibration from ratios of measured to predicted seconds, or None without ratios.

    If there are only a few ratios, the spread of the tables is used instead of theirs.
    """
    logs = [math.log(ratio) for ratio in ratios if ratio > 0 and math.isfinite(ratio)]
    if not logs:
        return None
    middle = statistics.median(logs)  # robust to the slower first run of a new process
    if len(logs) < FEWEST:
        return Calibration(math.exp(middle), CPU.factor, len(logs))
    from scipy.special import stdtrit  # slow to import

    deviation = math.sqrt(sum((each - middle) ** 2 for each in logs) / (len(logs) - 1))
    wider = float(stdtrit(len(logs) - 1, 0.95)) * deviation * math.sqrt(1 + 1 / len(logs))  # Student's t
    return Calibration(math.exp(middle), max(1.25, math.exp(wider)), len(logs))


def scaled(at: Rates, by: Calibration, source: str | None = None) -> Rates:
    """Returns rates that agree with measurements on average. ``source`` describes where the rates come from."""
    return at._replace(
        flops=at.flops / by.scale,
        bytes=at.bytes / by.scale,
        operation_seconds=at.operation_seconds * by.scale,
        call_seconds=at.call_seconds * by.scale,
        factor=by.factor,
        source=source or f"tables, scaled by {by.scale:.2g} from {by.runs} measured here, spread × ÷ {by.factor:.2g}",
    )
