"""Peak rates, memory and links of accelerators, from published tables."""

import re
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


_BOOK = "How to Scale Your Model, section 2, tables of TPU specifications"
_CLOUD = "Google Cloud's pages of TPU versions (cloud.google.com/tpu/docs), and the book's tables where both say it"
_NVIDIA = "NVIDIA's data sheets: dense bfloat16, NVLink one way, nodes of 8, 400 Gbit/s of InfiniBand a GPU"
_PCIE = "NVIDIA's data sheet of the card: dense bfloat16, PCIe 5.0 one way, no bridge. Nodes and network as of H100"
_GRACE = "NVIDIA's data sheet, with 96 GB of HBM3. Nodes of 4 on NVLink, 200 Gbit/s a GPU, as of CSCS's Alps"
_A100 = "NVIDIA's data sheet of the A100 80GB SXM: dense bfloat16, NVLink one way. DGX A100: nodes of 8, 25 GB/s a GPU"
_A100_40 = "NVIDIA's data sheet of the A100 40GB SXM. Links and network as of the A100 80GB"
_V100 = "NVIDIA's data sheet of the V100 SXM2 32GB: float16, NVLink one way. Nodes of 8, 400 Gbit/s a node (DGX-1)"
_TPU = 6  # passes: TPUs add six bfloat16 products
_GPU = 15  # passes: GPUs use other units
HARDWARE = {
    "v3": Hardware(0.7e14, _TPU, 16e9, 4.5e11, 1e11, 2, None, None, f"{_BOOK}, for a core, which is half a chip"),
    "v4p": Hardware(2.75e14, _TPU, 32e9, 1.2e12, 9e10, 3, None, None, _BOOK),
    "v5p": Hardware(4.59e14, _TPU, 96e9, 2.8e12, 1.8e11, 3, None, 6.25e9, _BOOK),
    "v5e": Hardware(1.97e14, _TPU, 16e9, 8.1e11, 9e10, 2, None, None, _BOOK),
    "v6e": Hardware(9.20e14, _TPU, 32e9, 1.6e12, 1.8e11, 2, None, None, _BOOK),
    "h100": Hardware(9.89e14, _GPU, 80e9, 3.35e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h200": Hardware(9.89e14, _GPU, 141e9, 4.8e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h100_pcie": Hardware(7.56e14, _GPU, 80e9, 2.0e12, 6.4e10, 1, 8, 5e10, _PCIE),
    "gh200": Hardware(9.90e14, _GPU, 96e9, 4.0e12, 4.5e11, 1, 4, 2.5e10, _GRACE),
    "a100": Hardware(3.12e14, 16, 80e9, 2.039e12, 3e11, 1, 8, 2.5e10, _A100),
    "a100_40gb": Hardware(3.12e14, 16, 40e9, 1.555e12, 3e11, 1, 8, 2.5e10, _A100_40),
    # The rate is that of float16. This GPU has no bfloat16.
    "v100": Hardware(1.25e14, 8, 32e9, 9.0e11, 1.5e11, 1, 8, 6.25e9, _V100),
    # A core is half a chip of 46 TFLOP/s, 16 GiB at 700 GB/s, and links of 496 Gbit/s each way.
    "v2": Hardware(0.23e14, _TPU, 8e9, 3.5e11, 6.2e10, 2, None, None, _CLOUD),
    # A device as JAX shows it is half a chip of 2307 TFLOP/s, 192 GiB at 7380 GB/s, and 1200 GB/s of links.
    "tpu7x": Hardware(11.5e14, _TPU, 96e9, 3.69e12, 9e10, 3, None, None, _CLOUD),
    # Rates that programs reach, as in results.costs.predictions. Collectives are memory copies.
    "cpu": Hardware(4.4e10, 1, 8e9, 5.9e9, 5.9e9, 1, None, None, "typical of a core of a server's processor"),
}
# FLOPs or integer operations per second of narrower numbers, for accounting. Sources: jax/_src/tpu_info.py at commit
# cec06d1 for TPUs, and NVIDIA's data sheet, dense.
NARROW = {
    ("v5e", "int8"): 3.94e14,
    ("v5p", "int8"): 9.18e14,
    ("v6e", "int8"): 18.4e14,
    ("tpu7x", "fp8"): 23.0e14,
    ("h100", "fp8"): 19.79e14,
    ("h200", "fp8"): 19.79e14,
}
HALVES = {"bf16": "bf16", "fp16": "fp16", "bfloat16": "bf16", "float16": "fp16"}  # names of 16-bit precisions
CORES = {"v2": 2, "v3": 2, "tpu7x": 2}  # devices of a chip, if they are more than one
# JAX's device names and their rows in the hardware table. The rates of a GPU depend on its form factor.
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
    (r"\bA100-SXM4-80GB$", "a100"),
    (r"\bA100-SXM4-40GB$", "a100_40gb"),
    (r"\bV100-SXM2-32GB$", "v100"),
    (r"\bGH200 (120|480)GB$", "gh200"),  # the number is the size of the CPU's memory
)


ACCELERATORS = tuple(row for row in HARDWARE if row != "cpu")


def hardware_of(device_kind: str) -> str | None:
    """Returns the name of the hardware row for a device kind (as named by JAX) or for a row name, if it exists.

    Options of ``described`` are ignored.
    """
    device_kind = device_kind.partition(";")[0]
    if device_kind in ACCELERATORS:
        return device_kind
    return next((row for pattern, row in _KINDS if re.search(pattern, device_kind, re.IGNORECASE)), None)


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
    check_choice(f"precision of {row}", precision, [*HALVES, *(each for name, each in NARROW if name == row)])
    return NARROW[row, precision]
