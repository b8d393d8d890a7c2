"""Peak rates, memory and links of accelerators, from published tables in ``hardware.csv``.

The column ``kind`` is a pattern of JAX's device names. The rates of a GPU depend on its form factor. TPUs need six
passes of bfloat16 products for a float32 product, and GPUs use other units.
"""

import csv
import re
from pathlib import Path
from typing import Any, NamedTuple

from results.bad_input import BadInput, check_choice, positive

HOP_SECONDS = 1e-6  # latency of one hop, from section 3 of the book


class Hardware(NamedTuple):
    """A device as counted by JAX (a chip or a core), with its links.

    Attributes:
      flops: bfloat16 matmul FLOPs per second.
      passes: time of a full-precision float32 matmul relative to one in bfloat16, or 1 if ``flops`` is the float32
        rate.
      memory_bytes, memory_bandwidth: memory size in bytes, and memory bandwidth in bytes per second.
      link_bandwidth: bytes per second that a device sends over the links of one torus axis (both directions together)
        or into a switch.
      axes: number of axes whose links a collective can use simultaneously: the dimensions of a torus, or 1 for a
        switch.
      node: number of devices connected by these links. If missing, all devices are connected.
      far_bandwidth: a device's one-way share of the network between slices or nodes, in bytes per second, if published.
      source: source of these numbers.
      slices: number of slices spanned by the devices of a step.
    """

    flops: float
    passes: int
    memory_bytes: float
    memory_bandwidth: float
    link_bandwidth: float
    axes: int
    node: int | None
    far_bandwidth: float | None
    source: str
    slices: int = 1


def _value(field: str, text: str) -> Any:
    if field == "source" or not text:
        return text or None
    return int(text) if field in ("passes", "axes", "node") else float(text)


with open(Path(__file__).with_suffix(".csv"), newline="") as _file:
    _ROWS = {row["name"]: row for row in csv.DictReader(_file)}
HARDWARE = {
    name: Hardware(*(_value(field, row[field]) for field in Hardware._fields if field in row))
    for name, row in _ROWS.items()
}
# FLOPs or integer operations per second of narrower numbers, for accounting. Sources: jax/_src/tpu_info.py at commit
# cec06d1 for TPUs, and NVIDIA's data sheet, dense.
NARROW = {
    (name, precision): float(row[precision])
    for name, row in _ROWS.items()
    for precision in ("int8", "fp8")
    if row[precision]
}
HALVES = ("bf16", "fp16", "bfloat16", "float16")  # names of 16-bit precisions
CORES = {"v2": 2, "v3": 2, "tpu7x": 2}  # devices of a chip, if they are more than one
ACCELERATORS = tuple(row for row in HARDWARE if row != "cpu")


def hardware_of(device_kind: str) -> str | None:
    """Returns the name of the hardware row for a device kind (as named by JAX) or for a row name, if it exists.

    Options of ``described`` are ignored.
    """
    device_kind = device_kind.partition(";")[0]
    if device_kind in ACCELERATORS:
        return device_kind
    for name in ACCELERATORS:
        if re.search(_ROWS[name]["kind"], device_kind, re.IGNORECASE):
            return name
    return None


OPTIONS = {"node": "node", "slices": "slices", "links": "link_bandwidth", "far": "far_bandwidth"}  # and their fields


def described(text: str) -> Hardware | None:
    """Returns hardware, optionally with changed links. The result is missing for unknown devices.

    Args:
      text: name of a table row or of a device kind, then pairs with names from ``OPTIONS``, separated as in a mesh. The
        options are the number of devices per node, the number of slices, and the bandwidths within and between nodes in
        bytes per second.

    Raises:
      BadInput: an option is unknown, or its value is not a positive number.
    """
    name, *pairs = text.split(";")
    row = name if name in HARDWARE else hardware_of(name)
    changes: dict[str, Any] = {}
    for pair in pairs:
        option, _, value = pair.partition(":")
        check_choice("option of hardware", option, OPTIONS)
        number = positive(option, value)
        if option in ("node", "slices"):
            if number != int(number):
                raise BadInput(f"{option}={value} is not a whole number")
            number = int(number)
        changes[OPTIONS[option]] = number
    return None if row is None else HARDWARE[row]._replace(**changes)


def backend_of(row: str) -> str:
    """Returns JAX's name for a row's backend: tpu for chips in a torus, gpu for devices on a switch, or cpu."""
    return "cpu" if row == "cpu" else "tpu" if HARDWARE[row].axes > 1 else "gpu"


def passes(hardware: Hardware, precision: str) -> int:
    """Returns the time of a matmul in the given precision relative to bfloat16."""
    return 1 if precision == "bfloat16" else hardware.passes


def peak(row: str, precision: str) -> float:
    """Returns the matmul operations per second of a device.

    Args:
      row: the device's row in the hardware table.
      precision: a name in ``HALVES`` for the rate in the table, or int8 or fp8 for the rate of narrower numbers.

    Raises:
      BadInput: the tables do not have the accelerator, or no rate for this precision.
    """
    check_choice("device", row, ACCELERATORS)
    if precision in HALVES:
        return HARDWARE[row].flops
    check_choice(f"precision of {row}", precision, [*HALVES, *(kind for name, kind in NARROW if name == row)])
    return NARROW[row, precision]
