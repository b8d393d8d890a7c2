"""Compiles programs for TPUs that are not attached, to find their memory, collectives and schedule.

This runs in a subprocess started by ``harness.costs.questions.ask``, because the compiler takes a lock and may run for
a long time. It requires the ``plan`` extra.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from harness.compiled import hlo, jaxpr_cost, topologies
from harness.compiled.hlo import Compiled
from results.costs.collectives import links, total_seconds, totals
from results.costs.counts import Exchange, Verdict
from results.costs.hardware import HARDWARE, hardware_of

GIB = 2**30
# Usable bytes of a core as reported by the compiler. Versions that are not listed use the hardware table.
USABLE = {"v3": 15.48 * GIB, "v5e": 15.75 * GIB}
_SIZE = re.compile(r"\(([\d.]+)([KMGT]?)\)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class CompilationResult(NamedTuple):
    """The result of compiling a program.

    Attributes:
      fits: whether the program fits on a device, according to the compiler.
      needed: bytes that the program needs on a device, including arguments and results, or None if unknown.
      usable: bytes that programs may use on a device, or None if the compiler does not report it.
      why: the compiler's message if the program does not fit.
      found: the parsed program, if it fits.
      program: the compiled program, if it fits.
      processor_seconds: CPU seconds spent on lowering and compiling.
    """

    fits: bool
    needed: float | None = None
    usable: float | None = None
    why: str = ""
    found: Compiled | None = None
    program: jax.stages.Compiled | None = None
    processor_seconds: float = 0.0


def mesh(topology: str, shape: Mapping[str, int | None]) -> Mesh:
    """Returns the devices of a topology as a mesh.

    Args:
      topology: a TPU slice, such as v5e:2x2.
      shape: sizes of the mesh axes. One size may be None, in which case it is inferred. A mesh smaller than the slice
        uses the first devices.

    Raises:
      BadInput: the topology does not exist, or the TPU compiler is not installed.
    """
    devices = np.array(sorted(topologies.devices(topology), key=lambda device: (device.process_index, device.id)))
    product = math.prod(size for size in shape.values() if size is not None)
    sizes = [size if size is not None else len(devices) // product for size in shape.values()]
    auto = tuple(AxisType.Auto for _ in sizes)
    return Mesh(devices[: math.prod(sizes)].reshape(sizes), tuple(shape), axis_types=auto)


def make(lower: Callable[[], jax.stages.Lowered], argument_bytes: float) -> CompilationResult:
    """Lowers, compiles and parses a program.

    Args:
      lower: function that returns the lowered program.
      argument_bytes: bytes of the arguments on each device. Some compiler messages do not count them.

    Raises:
      Unparsed: part of the compiled program cannot be parsed.
    """
    began = time.process_time()
    try:
        program = lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return refused(str(error), argument_bytes)._replace(processor_seconds=time.process_time() - began)
    seconds = time.process_time() - began
    text = program.as_text()
    assert text is not None
    contents = hlo.read(text).check()
    return CompilationResult(
        True, jaxpr_cost.peak_bytes(program), found=contents, program=program, processor_seconds=seconds
    )


def refused(message: str, argument_bytes: float) -> CompilationResult:
    """Parses the compiler's message about a program that does not fit. Returns the needed and the usable bytes."""
    why = " ".join(message.split())[:400]
    sizes = [_size(number, unit) for number, unit in _SIZE.findall(why)]
    if usage := re.search(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", why):
        return CompilationResult(False, _size(usage[1], usage[2]), _size(usage[3], usage[4]), why)
    if "HLO temporaries" in why and len(sizes) == 2:
        return CompilationResult(False, argument_bytes + sizes[0], sizes[1], why)
    return CompilationResult(False, why=why)


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]


def usable_bytes(device_kind: str) -> float | None:
    """Returns the bytes that programs may use on a device, or None if unknown."""
    row = hardware_of(device_kind)
    return None if row is None else USABLE.get(row, HARDWARE[row].memory_bytes)


def verdict(made: CompilationResult, on: Mesh, *, beside: float, lanes: int, how: str) -> Verdict:
    """Returns the verdict on a program that runs on a mesh.

    Args:
      made: result of compiling a step.
      on: mesh that the program runs on.
      beside: bytes that each device holds in addition to the arguments of the step.
      lanes: number of trials on each device.
      how: human-readable description of the lanes and the batch partition.
    """
    kind = on.devices.flat[0].device_kind
    usable = made.usable or usable_bytes(kind)
    needed = None if made.needed is None else made.needed + beside
    fits = made.fits and (needed is None or usable is None or needed <= usable)
    result = Verdict(
        fits=fits,
        needed_bytes=needed,
        device_bytes=usable,
        lanes=lanes,
        device_kind=kind,
        devices=on.devices.size,
        how=how,
        processor_seconds=made.processor_seconds,
        why=made.why,
    )
    if made.found is None:
        return result
    sizes = dict(on.shape)
    by_axes = totals(made.found.collectives, sizes)
    row = hardware_of(kind)
    seconds = None
    if row is not None:
        over = links(HARDWARE[row], sizes, topologies.chips(on.devices.flat))
        seconds = total_seconds(HARDWARE[row], made.found.collectives, over)
    return result._replace(
        exchanges=tuple(Exchange(*key, *sums) for key, sums in sorted(by_axes.items())),
        exchange_seconds=seconds,
        flops=made.found.flops,
        unknown_loops=made.found.loops[1],
        cycles=made.found.cycles or None,
    )
