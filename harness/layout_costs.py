"""Predicts the cost of a step on a mesh: matmuls, memory traffic, and collectives with a latency and a bandwidth.

Computation and communication are assumed not to overlap, so their times are added. The closed forms are those of *How
to Scale Your Model* (Austin et al. 2025, https://jax-ml.github.io/scaling-book, sections 2, 3 and 5), for two-byte
weights and activations.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from harness.hlo import Axes, Collective, axes_of

_PASSED = ("collective-permute", "collective-broadcast")  # point-to-point transfers
HOP_SECONDS = 1e-6  # latency of one hop, from section 3 of the book


class Hardware(NamedTuple):
    """A device as counted by JAX (a chip or a core) and its links.

    Attributes:
      flops: bfloat16 matmul FLOPs per second.
      passes: time of a full-precision float32 matmul relative to bfloat16, or 1 if ``flops`` is the float32 rate.
      memory_bytes, memory_bandwidth: memory size in bytes, and bandwidth in bytes per second.
      link_bandwidth: bytes per second that a device sends over the links of one torus axis (both directions together)
        or into a switch.
      axes: number of axes whose links a collective can use at once: the dimensions of a torus, or 1 for a switch.
      node: number of devices connected by these links. With None, all devices are.
      far_bandwidth: a device's one-way share of the network between slices or nodes, in bytes per second, or None if
        unknown.
      source: source of these numbers.
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


_BOOK = "How to Scale Your Model, section 2, tables of TPU specifications"
_CLOUD = "Google Cloud's pages of TPU versions (cloud.google.com/tpu/docs), and the book's tables where both say it"
_NVIDIA = "NVIDIA's data sheets: dense bfloat16, NVLink one way, nodes of 8, 400 Gbit/s of InfiniBand a GPU"
_PCIE = "NVIDIA's data sheet of the card: dense bfloat16, PCIe 5.0 one way, no bridge; nodes and network as of H100"
_GRACE = "NVIDIA's data sheet, with 96 GB of HBM3; nodes of 4 on NVLink, 200 Gbit/s a GPU, as of CSCS's Alps"
_TPU = 6  # passes: TPUs add six bfloat16 products
_GPU = 15  # passes: GPUs use other units
HARDWARE = {
    "v3": Hardware(0.7e14, _TPU, 16e9, 4.5e11, 1e11, 2, None, None, f"{_BOOK}; of a core, which is half a chip"),
    "v4p": Hardware(2.75e14, _TPU, 32e9, 1.2e12, 9e10, 3, None, None, _BOOK),
    "v5p": Hardware(4.59e14, _TPU, 96e9, 2.8e12, 1.8e11, 3, None, 6.25e9, _BOOK),
    "v5e": Hardware(1.97e14, _TPU, 16e9, 8.1e11, 9e10, 2, None, None, _BOOK),
    "v6e": Hardware(9.20e14, _TPU, 32e9, 1.6e12, 1.8e11, 2, None, None, _BOOK),
    "h100": Hardware(9.89e14, _GPU, 80e9, 3.35e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h200": Hardware(9.89e14, _GPU, 141e9, 4.8e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h100_pcie": Hardware(7.56e14, _GPU, 80e9, 2.0e12, 6.4e10, 1, 8, 5e10, _PCIE),
    "gh200": Hardware(9.90e14, _GPU, 96e9, 4.0e12, 4.5e11, 1, 4, 2.5e10, _GRACE),
    # A core is half a chip of 46 TFLOP/s, 16 GiB at 700 GB/s, and links of 496 Gbit/s each way.
    "v2": Hardware(0.23e14, _TPU, 8e9, 3.5e11, 6.2e10, 2, None, None, _CLOUD),
    # A device as JAX shows it is half a chip of 2307 TFLOP/s, 192 GiB at 7380 GB/s, and 1200 GB/s of links.
    "tpu7x": Hardware(11.5e14, _TPU, 96e9, 3.69e12, 9e10, 3, None, None, _CLOUD),
    # Rates that programs reach, as in harness.predictions. Collectives are memory copies.
    "cpu": Hardware(4.4e10, 1, 8e9, 5.9e9, 5.9e9, 1, None, None, "typical of a core of a server's processor"),
}


class Prediction(NamedTuple):
    """Predicted seconds of a step and of its parts, and whether the step fits in memory."""

    compute_seconds: float
    memory_seconds: float
    exchange_seconds: float
    fits: bool

    @property
    def step_seconds(self) -> float:
        """Seconds of a step: the maximum of matmul and memory time, plus the time of all collectives."""
        return max(self.compute_seconds, self.memory_seconds) + self.exchange_seconds


def predict(
    hardware: Hardware,
    flops: float,
    held_bytes: float,
    collectives: Sequence[Collective],
    over: Axes,
    precision: str,
) -> Prediction:
    """Returns the predicted cost of a step.

    Args:
      hardware: the kind of all devices.
      flops: matmul FLOPs of one device.
      held_bytes: peak memory of one device. Each byte is assumed to be read once and written once.
      collectives: collectives of the step.
      over: sizes of the axes with their own links, from ``links``.
      precision: matmul precision, float32 or bfloat16.
    """
    return Prediction(
        flops * passes(hardware, precision) / hardware.flops,
        2 * held_bytes / hardware.memory_bandwidth,
        sum(each.times * exchange_seconds(hardware, each, over) for each in collectives),
        held_bytes <= hardware.memory_bytes,
    )


def passes(hardware: Hardware, precision: str) -> int:
    """Returns the time of a matmul of the given precision relative to bfloat16."""
    return 1 if precision == "bfloat16" else hardware.passes


def links(hardware: Hardware, mesh: Axes, chips: Sequence[int] | None = None) -> dict[str, int]:
    """Sizes of the axes with their own links: those of a mesh, or of the torus that a single axis covers.

    Args:
      hardware: the kind of all devices.
      mesh: sizes of its axes.
      chips: number of chips along each torus dimension. With None, the dimensions are assumed to be as even as
        possible.
    """
    wide = [size for size in mesh.values() if size > 1]
    if hardware.axes == 1 or len(wide) != 1:
        return dict(mesh)
    if chips is None:
        sizes = _along(_factors(wide[0]), hardware.axes)
    else:
        sizes = [size for size in chips if size > 1] or [1]
        cores, rest = divmod(wide[0], math.prod(sizes))
        if rest:
            return dict(mesh)
        sizes[sizes.index(min(sizes))] *= cores  # the cores of a chip share its links
    return {f"direction {i}": size for i, size in enumerate(sizes)}


def _along(sizes: Sequence[int], directions: int) -> list[int]:
    """Returns the lengths of torus dimensions that hold axes of these sizes, as even as possible."""
    lengths = [1 for _ in range(min(directions, max(1, len(sizes))))]
    for size in sorted(sizes, reverse=True):
        lengths[lengths.index(min(lengths))] *= size
    return lengths


def _factors(number: int) -> list[int]:
    """Returns the prime factors of a number."""
    for prime in range(2, math.isqrt(number) + 1):
        if number % prime == 0:
            return [prime, *_factors(number // prime)]
    return [number]


def exchange_seconds(hardware: Hardware, collective: Collective, over: Axes) -> float:
    """Predicted seconds of one execution of a collective: latency per hop around its rings, plus bytes over bandwidth.

    A collective over several axes uses the links of all of them, up to the number of the device's axes. A collective
    over mixed axes uses the links of one axis. All devices send their shares to other nodes concurrently, and at the
    same time exchange data within the node.

    Args:
      hardware: the kind of all devices.
      collective: its groups are numbered along the axes.
      over: sizes of the axes with their own links, from ``links``.
    """
    near = _on_switch if hardware.axes == 1 else _on_torus
    return max(near(hardware, collective, over), _far_seconds(hardware, collective))


def _far_seconds(hardware: Hardware, collective: Collective) -> float:
    """Returns the seconds spent between nodes: a ring of nodes, in which each device has a part of the array."""
    if hardware.node is None or hardware.far_bandwidth is None:
        return 0.0
    nodes = max(len({device // hardware.node for device in group}) for group in collective.groups)
    if nodes == 1:
        return 0.0
    if collective.operation in _PASSED:
        return HOP_SECONDS + collective.bytes / hardware.far_bandwidth
    share = (nodes - 1) / nodes
    if "all-to-all" in collective.operation:
        return HOP_SECONDS * nodes + share * collective.bytes / hardware.far_bandwidth
    sums = 2 if collective.operation == "all-reduce" else 1
    within = collective.size / nodes
    return HOP_SECONDS * nodes + sums * share * collective.bytes / within / hardware.far_bandwidth


def _on_switch(hardware: Hardware, collective: Collective, over: Axes) -> float:
    """Seconds on a switch, over which each device sends everything at its full rate."""
    del over  # a switch does not have separate links per axis
    hops = 1.0
    if collective.operation not in _PASSED and "all-to-all" not in collective.operation:
        hops = collective.size if collective.operation == "all-reduce" else collective.size / 2
    return hops * HOP_SECONDS + collective.wire_bytes / hardware.link_bandwidth


def _on_torus(hardware: Hardware, collective: Collective, over: Axes) -> float:
    axes = axes_of(collective, over)
    sizes = [collective.size] if axes in ("mixed", "none") else [over[name] for name in axes.split("+")]
    rings = min(hardware.axes, len(sizes))
    if collective.operation in _PASSED:
        return HOP_SECONDS + collective.bytes / (rings * hardware.link_bandwidth / 2)  # one way
    size = collective.size
    hops = (size if collective.operation == "all-reduce" else size / 2) ** (1 / rings) * rings
    if "all-to-all" in collective.operation:
        # All data travel along each direction in turn, on average a quarter of the ring. The directions operate
        # concurrently.
        longest = max(_along(sizes, hardware.axes))
        return hops * HOP_SECONDS + longest * collective.bytes / (4 * hardware.link_bandwidth)
    return hops * HOP_SECONDS + collective.wire_bytes / (rings * hardware.link_bandwidth)
