"""Predictions: seconds from work and the rates of a device, always with a range, and always called predicted.

A program takes the sum of the seconds of its products, of its traffic with memory and of its operations, as nothing is
taken to overlap. Rates of a kind of device are those of tables, ``scaled`` by measured runs, else by the steps of a
probe (``harness.probe``). Reads no clock and no disk, and imports no JAX.
"""

import math
import re
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from harness.costs import Work
from harness.layout_costs import HARDWARE, passes

PREDICTOR = "3"  # counts the versions of what follows; ratios to measurements are of one of them
FEWEST = 3  # measurements that show how far a prediction may be off


class Rates(NamedTuple):
    """Rates of a kind of device.

    Attributes:
      flops: of products, a second.
      bytes: to and from memory, a second.
      operation_seconds: that an operation takes however small it is.
      call_seconds: that the host takes to start programs and to read what they gave.
      equation_seconds: that an operation of a program takes to compile.
      factor: by which a prediction may be off either way, 90 % sure.
      source: of these numbers, in words.
    """

    flops: float
    bytes: float
    operation_seconds: float
    call_seconds: float
    equation_seconds: float
    factor: float
    source: str


class Seconds(NamedTuple):
    """Predicted seconds, and the range they are in, 90 % sure."""

    middle: float
    low: float
    high: float

    def times(self, count: float) -> "Seconds":
        """As often."""
        return Seconds(*(count * each for each in self))

    def plus(self, other: "Seconds") -> "Seconds":
        """With others, whose error is the same one."""
        return Seconds(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Seconds(0.0, 0.0, 0.0)
# A core of a server's processor: what fits the steps of results/published best, measured on AMD EPYC. Processors differ
# by twice, and programs on one of them by twice.
CPU = Rates(4.4e10, 5.9e9, 4.7e-8, 1.5e-4, 2.5e-3, 5.0, "rates of a typical processor core")
STARTING = 400  # operations that compile in the time that a process takes for its first program, about
# How JAX calls devices, and their rows in the table of hardware. The form of a GPU decides its rates.
_KINDS = (
    (r"TPU v2", "v2"),
    (r"TPU v3", "v3"),
    (r"TPU v4(?! ?lite)", "v4p"),
    (r"TPU v5 ?(lite|e)", "v5e"),
    (r"TPU v5", "v5p"),
    (r"TPU v6", "v6e"),
    (r"TPU ?v?7", "tpu7x"),
    (r"\bH200$", "h200"),
    (r"\bH100 80GB HBM3$", "h100"),
    (r"\bH100 PCIe$", "h100_pcie"),
    (r"\bGH200 (120|480)GB$", "gh200"),  # of its processor's memory
)
REACHED = (0.35, 0.6)  # of a table's peaks, of products and of memory: what programs that are not tuned come to
_LATENCY = {"tpu": 1e-6, "gpu": 4e-6}  # of an operation
CALL_SECONDS = 1e-3  # that the host of an accelerator takes for a call


def hardware_of(device_kind: str) -> str | None:
    """The row of the table of hardware for a kind of device as JAX calls it; None if there is none."""
    return next((row for pattern, row in _KINDS if re.search(pattern, device_kind, re.IGNORECASE)), None)


def rates(device_kind: str, backend: str, precision: str) -> Rates | None:
    """Rates of a kind of device from tables, for products of a precision; None of one that is in none."""
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
    """Predicted seconds of a program for each of the trials that it takes along at once.

    Args:
      of: the work of one trial.
      at: of the device.
      lanes: batched trials, which share the time that operations take however small they are.
    """
    middle = of.flops / at.flops + of.fused_bytes / at.bytes + of.operations * at.operation_seconds / lanes
    return around(middle, at.factor)


def compiling_seconds(equations: float, at: Rates) -> float:
    """Predicted seconds of compiling the programs of a study, which take some time however small they are."""
    return (equations + STARTING) * at.equation_seconds


def around(middle: float, factor: float) -> Seconds:
    """Seconds that may be off by a factor either way."""
    return Seconds(middle, middle / factor, middle * factor)


class Calibration(NamedTuple):
    """Measured over predicted seconds, of one kind of device.

    Attributes:
      scale: their median.
      factor: by which another may be off from that, 90 % sure.
      runs: that were measured.
    """

    scale: float
    factor: float
    runs: int


def calibration(ratios: Sequence[float]) -> Calibration | None:
    """What measured over predicted seconds say; None of none.

    Few are taken to spread as tables are off, as they show no spread.
    """
    logs = [math.log(ratio) for ratio in ratios if ratio > 0 and math.isfinite(ratio)]
    if not logs:
        return None
    middle = statistics.median(logs)  # of a process that has just started the first run takes longer
    if len(logs) < FEWEST:
        return Calibration(math.exp(middle), CPU.factor, len(logs))
    from scipy.special import stdtrit  # which takes a while to import

    deviation = math.sqrt(sum((each - middle) ** 2 for each in logs) / (len(logs) - 1))
    wider = float(stdtrit(len(logs) - 1, 0.95)) * deviation * math.sqrt(1 + 1 / len(logs))  # Student's t
    return Calibration(math.exp(middle), max(1.25, math.exp(wider)), len(logs))


def scaled(at: Rates, by: Calibration, source: str | None = None) -> Rates:
    """Rates that agree with measurements on average; ``source`` is where these are from, in words."""
    return at._replace(
        flops=at.flops / by.scale,
        bytes=at.bytes / by.scale,
        operation_seconds=at.operation_seconds * by.scale,
        call_seconds=at.call_seconds * by.scale,
        factor=by.factor,
        source=source or f"tables, scaled by {by.scale:.2g} from {by.runs} measured here, spread × ÷ {by.factor:.2g}",
    )
