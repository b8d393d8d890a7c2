"""Programs compiled ahead for TPUs that are not there: what their compiler says of memory, exchanges and time.

For a process of its own, as ``harness.costs.ask`` starts one: the compiler's library takes a lock, and may take long.
Needs the extra ``plan``.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from harness import hlo, topologies
from harness.costs import Exchange, Verdict
from harness.hlo import Compiled
from harness.layout_costs import HARDWARE, exchange_seconds, links
from harness.predictions import hardware_of

GIB = 2**30
# What the compiler says it may use of a core, where it has been heard to; elsewhere the table of hardware.
USABLE = {"v3": 15.48 * GIB, "v5e": 15.75 * GIB}
_SIZE = re.compile(r"\(([\d.]+)([KMGT]?)\)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Memory(NamedTuple):
    """Bytes of a device: those that a program needs with its arguments and results, and those that it may use.

    ``fits`` is what the compiler says; ``why`` its words where it does not.
    """

    fits: bool
    needed: float | None
    usable: float | None
    why: str = ""


class CompilationResult(NamedTuple):
    """A program as it was compiled, or not.

    Attributes:
      memory: of a device.
      found: in it; None of one that does not fit.
      processor_seconds: that lowering and compiling took.
    """

    memory: Memory
    found: Compiled | None
    processor_seconds: float


def mesh(topology: str, shape: Mapping[str, int | None]) -> Mesh:
    """The devices of a topology as a mesh.

    Args:
      topology: such as v5e:2x2.
      shape: sizes of its axes; one may be None, which takes the rest. Of fewer devices than there are the first.

    Raises:
      BadInput: there is no such topology, or no compiler for it.
    """
    devices = np.array(sorted(topologies.devices(topology), key=lambda device: (device.process_index, device.id)))
    known = math.prod(size for size in shape.values() if size is not None)
    sizes = [size if size is not None else len(devices) // known for size in shape.values()]
    return Mesh(devices[: math.prod(sizes)].reshape(sizes), tuple(shape), axis_types=(AxisType.Auto,) * len(sizes))


def make(lower: Callable[[], jax.stages.Lowered], argument_bytes: float) -> CompilationResult:
    """Lowers and compiles a program, and reads it.

    Args:
      lower: gives it lowered.
      argument_bytes: of a device, which the compiler leaves out where it says how much more it needs.

    Raises:
      Unparsed: the compiled program says something that cannot be read.
    """
    began = time.process_time()
    try:
        program = lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return CompilationResult(refused(str(error), argument_bytes), None, time.process_time() - began)
    seconds = time.process_time() - began
    text = program.as_text()
    assert text is not None
    return CompilationResult(Memory(True, needed_bytes(program), None), hlo.read(text).check(), seconds)


def needed_bytes(program: jax.stages.Compiled) -> int:
    """The bytes of a device that a compiled program needs, with its arguments and results."""
    stats = program.memory_analysis()
    assert stats is not None  # TPUs' compiler has them
    kept = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + kept + stats.temp_size_in_bytes)


def refused(message: str, argument_bytes: float) -> Memory:
    """What the compiler says of a program that does not fit: how much it needs, and how much there is."""
    why = " ".join(message.split())[:400]
    sizes = [_size(number, unit) for number, unit in _SIZE.findall(why)]
    if whole := re.search(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", why):
        return Memory(False, _size(whole[1], whole[2]), _size(whole[3], whole[4]), why)
    if "HLO temporaries" in why and len(sizes) == 2:
        return Memory(False, argument_bytes + sizes[0], sizes[1], why)
    return Memory(False, None, None, why)


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]


def usable_bytes(device_kind: str) -> float | None:
    """The bytes that programs may use of a device, as far as known."""
    row = hardware_of(device_kind)
    return None if row is None else USABLE.get(row, HARDWARE[row].memory_bytes)


def verdict(made: CompilationResult, on: Mesh, *, beside: float, lanes: int, how: str) -> Verdict:
    """The verdict on a program over a mesh.

    Args:
      made: the program of a step.
      on: the mesh.
      beside: bytes that each device keeps beside its arguments.
      lanes: trials that it takes along on each device.
      how: it is run, in words.
    """
    kind = on.devices.flat[0].device_kind
    usable = made.memory.usable or usable_bytes(kind)
    needed = None if made.memory.needed is None else made.memory.needed + beside
    fits = made.memory.fits and (needed is None or usable is None or needed <= usable)
    told: dict[str, Any] = {}
    if made.found is not None:
        sizes = dict(on.shape)
        totals = hlo.totals(made.found.collectives, sizes)
        row = hardware_of(kind)
        over = {} if row is None else links(HARDWARE[row], sizes, topologies.chips(on.devices.flat))
        told = {
            "exchanges": tuple(Exchange(*key, *sums) for key, sums in sorted(totals.items())),
            "exchange_seconds": None
            if row is None
            else sum(each.times * exchange_seconds(HARDWARE[row], each, over) for each in made.found.collectives),
            "flops": made.found.flops,
            "unknown_loops": made.found.loops[1],
            "cycles": made.found.cycles or None,
        }
    return Verdict(
        fits=fits,
        needed_bytes=needed,
        device_bytes=usable,
        lanes=lanes,
        device_kind=kind,
        devices=on.devices.size,
        how=how,
        processor_seconds=made.processor_seconds,
        why=made.memory.why,
        **told,
    )
