"""Predicts seconds from the counted work of a program and the rates of a device. Every prediction has a range.

All predictions use the form of ``step_model``, whose constants were fitted to published training steps of decoders.
Tables list the rates of each device kind. Rates are ``scaled`` by measured runs if there are any, and otherwise by the
steps of a probe (``harness.costs.probe``). This module does not access the clock or the disk, and does not import JAX.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.costs import step_model
from results.costs.counts import Work
from results.costs.hardware import HALVES, described, hardware_of, passes
from results.costs.step_constants import CONSTANTS, DENSE, MIXTURE, OTHER, PUBLISHED, RANGES, SHORTEST
from results.costs.step_model import Constants, Parts, Step, Terms

PREDICTOR = "5"  # version of the method; ratios to measurements are valid for one version only
FEWEST = 3  # measurements needed to estimate the error of predictions
DECADES = 2  # programs whose FLOPs are within this range scale each other's predictions
MOST_SCORES = 1.1  # factor by which scores in memory may lengthen a step that is like published ones


class Rates(NamedTuple):
    """Rates of a device kind.

    Attributes:
      flops, bytes: peak matmul FLOPs and memory traffic per second. ``constants`` contains the fraction of peak that is
        reached.
      constants: constants of the cost model.
      backend: JAX's name for the backend: cpu, gpu or tpu.
      operation_seconds: minimum seconds of an operation.
      call_seconds: seconds per call that the host needs to launch programs and read their results.
      equation_seconds: compile time per operation in the text of a program.
      factor: factor within which predictions agree with measured times, with 90 % confidence.
      published: whether dense decoder steps for this device and precision were compared with published ones.
      source: human-readable description of the source of these numbers.
      slices: number of slices spanned by the devices of a step.
    """

    flops: float
    bytes: float
    constants: Constants
    backend: str
    operation_seconds: float
    call_seconds: float
    equation_seconds: float
    factor: float
    published: bool
    source: str
    slices: int = 1


class Seconds(NamedTuple):
    """Predicted seconds with a 90 % interval."""

    middle: float
    low: float
    high: float

    def times(self, count: float) -> "Seconds":
        """Returns the seconds of ``count`` repetitions."""
        return Seconds(*(count * seconds for seconds in self))

    def plus(self, other: "Seconds") -> "Seconds":
        """Returns the sum of these and other seconds, assuming fully correlated errors."""
        return Seconds(*(first + second for first, second in zip(self, other, strict=True)))


NOTHING = Seconds(0.0, 0.0, 0.0)
# A core of a server processor, fitted to the steps of results/published, which were measured on AMD EPYC. Rates differ
# by a factor of 2 between processors, and by a factor of 2 between programs on one processor. Nothing overlaps.
CPU = Rates(
    4.4e10,
    5.9e9,
    Constants(1.0, 1.0, 1.0, 0.0, 1.0, overlap=1.0),
    "cpu",
    4.7e-8,
    1.5e-4,
    2.5e-3,
    5.0,
    False,
    "rates of a typical processor core",
)
STARTING = 400  # a process's first program takes as long as compiling about this number of operations
# Seconds per operation. That of GPUs is the geometric mean of three small networks on an H200 (docs/accelerators.md).
# That of TPUs is set by hand, below the bound from two published steps of ResNet-50 (docs/predictions.md).
_LATENCY = {"tpu": 2e-7, "gpu": 6e-7}
CALL_SECONDS = 1e-3  # host time per call on accelerators


def rates(device_kind: str, backend: str, precision: str) -> Rates | None:
    """Returns the rates of a device kind from the tables, for matmuls in a precision, or None if they lack it."""
    if backend == "cpu":
        return CPU
    row, hardware = hardware_of(device_kind), described(device_kind)
    if row is None or hardware is None:
        return None
    rates = accelerator(
        backend,
        hardware.flops / passes(hardware, precision),
        hardware.memory_bandwidth,
        f"tables ({hardware.source})",
        published=is_compared(row, precision),
    )
    return rates._replace(slices=hardware.slices)


def accelerator(backend: str, flops: float, bandwidth: float, source: str, *, published: bool = False) -> Rates:
    """Returns the rates of an accelerator, derived from its peak rates."""
    return Rates(
        flops,
        bandwidth,
        CONSTANTS,
        backend,
        _LATENCY[backend],
        CALL_SECONDS,
        CPU.equation_seconds,
        RANGES[OTHER],
        published,
        source,
    )


def of_step(step: Step) -> Seconds:
    """Returns the predicted seconds of a decoder's training step, with a 90 % range.

    Raises:
      BadInput: the step cannot exist (see ``step_model.check``).
    """
    middle = float(step_model.parts(step_model.terms(step), CONSTANTS).step)
    return around(middle, RANGES[class_of(step, middle)])


def class_of(step: Step, seconds: float) -> str:
    """Returns the class of a decoder's step that is predicted to take ``seconds``."""
    return _class(seconds, compared=is_compared(step.row, step.precision), mixture=step.decoder.experts > 0)


def is_compared(row: str, precision: str) -> bool:
    """Returns whether dense steps on a device, in a precision, were compared with published ones."""
    return row in PUBLISHED and precision in HALVES


def _class(seconds: float, *, compared: bool, mixture: bool = False) -> str:
    """Returns the class of a step, which determines its range (``RANGES``). All predictions of steps use it.

    Args:
      seconds: predicted seconds of the step.
      compared: whether the step is like those that were compared with published ones, except for its length.
      mixture: whether the model has experts.
    """
    if mixture:
        return MIXTURE
    return DENSE if compared and seconds >= SHORTEST else OTHER


def parts(of: Work, at: Rates, links: float = 0.0, far: float = 0.0) -> Parts:
    """Returns the predicted seconds of the parts of a program, without the minimum time of operations.

    Args:
      of: work of the program.
      at: rates of the device.
      links: seconds of the program's exchanges.
      far: seconds of its exchanges between nodes of GPUs.
    """
    # Weights count twice, because gathered weights are written and read. The optimizer's state counts once.
    activations, weights = of.activation_bytes, of.weight_bytes + of.score_bytes + of.state_bytes / 2
    if at.backend == "cpu":  # all bytes count once, also those of operations that are not matmuls
        activations, weights = of.bytes, 0.0
    in_memory = activations / at.bytes, weights / at.bytes
    terms = Terms(of.flops / at.flops, 0.0, *in_memory, links, far, math.log2(at.slices), 0.0, at.backend == "gpu")
    return step_model.parts(terms, at.constants)


def seconds(of: Work, at: Rates, lanes: int = 1, links: float = 0.0, far: float = 0.0) -> Seconds:
    """Returns the predicted seconds of a program per trial.

    Args:
      of: work of one trial.
      at: rates of the device.
      lanes: number of batched trials. They share the minimum time of each operation.
      links, far: see ``parts``.
    """
    step = float(parts(of, at, links, far).step)
    blocked = parts(of._replace(score_bytes=0.0), at, links, far).step
    # Published programs are Transformers whose attention keeps the scores on the chip.
    compared = bool(at.published and of.score_bytes and step <= MOST_SCORES * blocked)
    factor = RANGES[_class(step, compared=compared)] if at.published else at.factor
    return around(step + of.operations * at.operation_seconds / lanes, factor)


def compiling_seconds(equations: float, at: Rates) -> float:
    """Returns the predicted seconds to compile the programs of a study, including a fixed cost per process."""
    return (equations + STARTING) * at.equation_seconds


def around(middle: float, factor: float) -> Seconds:
    """Returns the seconds with a range that extends by this factor in both directions."""
    return Seconds(middle, middle / factor, middle * factor)


def alike(one: float, other: float) -> bool:
    """Returns whether the FLOPs of two programs are so similar that one can be used to calibrate the other."""
    return abs(math.log10(max(one, 1.0)) - math.log10(max(other, 1.0))) <= DECADES


class Calibration(NamedTuple):
    """Ratios of measured to predicted seconds on a device kind.

    Attributes:
      scale: median ratio.
      factor: factor within which a new ratio agrees with the median, with 90 % confidence.
      runs: number of measured runs.
    """

    scale: float
    factor: float
    runs: int


def calibration(ratios: Sequence[float], factor: float = CPU.factor) -> Calibration | None:
    """Returns the calibration from ratios of measured to predicted seconds, or None if there are no ratios.

    If there are only a few ratios, their spread is not estimated. Instead, ``factor`` is used.
    """
    logs = [math.log(ratio) for ratio in ratios if ratio > 0 and math.isfinite(ratio)]
    if not logs:
        return None
    middle = statistics.median(logs)  # robust to the slower first run of a new process
    if len(logs) < FEWEST:
        return Calibration(math.exp(middle), factor, len(logs))
    from scipy.special import stdtrit  # slow to import

    deviation = statistics.stdev(logs, middle)
    wider = float(stdtrit(len(logs) - 1, 0.95)) * deviation * math.sqrt(1 + 1 / len(logs))  # Student's t
    return Calibration(math.exp(middle), max(1.25, math.exp(wider)), len(logs))


def scaled(at: Rates, by: Calibration, source: str | None = None) -> Rates:
    """Returns rates scaled to agree with measurements on average. ``source`` describes the origin of the rates."""
    return at._replace(
        flops=at.flops / by.scale,
        bytes=at.bytes / by.scale,
        operation_seconds=at.operation_seconds * by.scale,
        call_seconds=at.call_seconds * by.scale,
        factor=by.factor,
        published=False,  # its range is that of the measured runs
        source=source or f"tables, scaled by {by.scale:.2g} from {by.runs} measured here, spread × ÷ {by.factor:.2g}",
    )
