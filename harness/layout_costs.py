"""The predicted cost of a step on a mesh: matrix products, memory, and exchanges with a latency and a bandwidth.

Nothing overlaps, so a step takes the sum of its parts, and no layout is faster than predicted for want of overlap
alone. The closed forms are those of *How to Scale Your Model* (Austin et al. 2025, https://jax-ml.github.io/scaling-book,
sections 2, 3 and 5), for weights and activations of two bytes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.compiled import Collective, axes_of

HOP_SECONDS = 1e-6  # from one device to the next; section 3 of the book


class Hardware(NamedTuple):
    """A device and its links: a chip, or a core where that is what JAX calls a device.

    Attributes:
      flops: of products of bfloat16, a second.
      memory_bytes, memory_bandwidth: of its memory, bytes and bytes a second.
      link_bandwidth: that a device sends with over the links of one axis, to both sides together, bytes a second.
      axes: whose links one exchange can have at once: directions of a torus, 1 of a switch.
      node: devices that have these links to each other; None: all.
      far_bandwidth: of a device's share of the network between slices or nodes, one way, bytes a second; None unknown.
      source: of these numbers.
    """

    flops: float
    memory_bytes: float
    memory_bandwidth: float
    link_bandwidth: float
    axes: int
    node: int | None
    far_bandwidth: float | None
    source: str

    @property
    def intensity(self) -> float:
        """Operations in the time that a byte takes over a ring: C / W_ici."""
        return self.flops / self.link_bandwidth


_BOOK = "How to Scale Your Model, section 2, tables of TPU specifications"
_NVIDIA = "NVIDIA's data sheets: dense bfloat16, NVLink one way, nodes of 8, 400 Gbit/s of InfiniBand a GPU"
HARDWARE: dict[str, Hardware] = {
    "v3": Hardware(0.7e14, 16e9, 4.5e11, 1e11, 2, None, None, f"{_BOOK}; of a core, which is half a chip"),
    "v4p": Hardware(2.75e14, 32e9, 1.2e12, 9e10, 3, None, None, _BOOK),
    "v5p": Hardware(4.59e14, 96e9, 2.8e12, 1.8e11, 3, None, 6.25e9, _BOOK),
    "v5e": Hardware(1.97e14, 16e9, 8.1e11, 9e10, 2, None, None, _BOOK),
    "v6e": Hardware(9.20e14, 32e9, 1.6e12, 1.8e11, 2, None, None, _BOOK),
    "h100": Hardware(9.89e14, 80e9, 3.35e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h200": Hardware(9.89e14, 141e9, 4.8e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
}
_CLOUD = "Google Cloud's pages of TPU versions (cloud.google.com/tpu/docs), and the book's tables where both say it"
HARDWARE |= {
    # Of a core, half a chip of 46 TFLOP/s, 16 GiB at 700 GB/s, and links of 496 Gbit/s each way.
    "v2": Hardware(0.23e14, 8e9, 3.5e11, 6.2e10, 2, None, None, _CLOUD),
    # Of a device as JAX shows it, half a chip of 2307 TFLOP/s, 192 GiB at 7380 GB/s, and 1200 GB/s of links.
    "tpu7x": Hardware(11.5e14, 96e9, 3.69e12, 9e10, 3, None, None, _CLOUD),
    # Rates that programs reach there, as those of harness.predictions: exchanges are copies of memory.
    "cpu": Hardware(4.4e10, 8e9, 5.9e9, 5.9e9, 1, None, None, "typical of a core of a server's processor"),
}


class Prediction(NamedTuple):
    """Predicted seconds of the parts of a step, and of the step; and whether it fits in memory."""

    compute_seconds: float
    memory_seconds: float
    exchange_seconds: float
    fits: bool

    @property
    def step_seconds(self) -> float:
        """A step: products or memory, whichever takes longer, and then all exchanges."""
        return max(self.compute_seconds, self.memory_seconds) + self.exchange_seconds


def predict(
    hardware: Hardware, flops: float, held_bytes: float, collectives: Sequence[Collective], mesh: Mapping[str, int]
) -> Prediction:
    """The predicted cost of a step.

    Args:
      hardware: of every device.
      flops: of the products that one device does.
      held_bytes: that one device holds at most; each is read and written once.
      collectives: of the step.
      mesh: that they are over; each of its axes is a ring of links of its own, or within a node of them.
    """
    return Prediction(
        flops / hardware.flops,
        2 * held_bytes / hardware.memory_bandwidth,
        sum(each.times * exchange_seconds(hardware, each, mesh) for each in collectives),
        held_bytes <= hardware.memory_bytes,
    )


def exchange_seconds(hardware: Hardware, collective: Collective, mesh: Mapping[str, int]) -> float:
    """Predicted seconds of a collective, once: a hop's latency for each step around its rings, and bytes over them.

    One over several axes of the mesh has the links of all of them, as far as the device has so many; one over a mixture
    has those of one. Between nodes every device sends its share at once, while those of a node exchange theirs.
    """
    return max(_near_seconds(hardware, collective, mesh), _far_seconds(hardware, collective))


def _far_seconds(hardware: Hardware, collective: Collective) -> float:
    """Of what goes from node to node: as on a ring of nodes, each of whose devices has a part of the array."""
    if hardware.node is None or hardware.far_bandwidth is None:
        return 0.0
    nodes = max(len({device // hardware.node for device in group}) for group in collective.groups)
    if nodes == 1:
        return 0.0
    if collective.operation in ("collective-permute", "collective-broadcast"):
        return HOP_SECONDS + collective.bytes / hardware.far_bandwidth
    share = (nodes - 1) / nodes
    if "all-to-all" in collective.operation:
        return HOP_SECONDS * nodes + share * collective.bytes / hardware.far_bandwidth
    sums = 2 if collective.operation == "all-reduce" else 1
    within = collective.size / nodes
    return HOP_SECONDS * nodes + sums * share * collective.bytes / within / hardware.far_bandwidth


def _near_seconds(hardware: Hardware, collective: Collective, mesh: Mapping[str, int]) -> float:
    axes = axes_of(collective, mesh)
    rings = 1 if axes in ("mixed", "none") else min(hardware.axes, len(axes.split("+")))
    bandwidth = rings * hardware.link_bandwidth
    size, whole = collective.size, collective.bytes
    longest = size if rings == 1 else max(mesh[name] for name in axes.split("+"))
    hops = (size if collective.operation == "all-reduce" else size / 2) ** (1 / rings) * rings
    if collective.operation in ("collective-permute", "collective-broadcast"):
        return HOP_SECONDS + whole / (bandwidth / 2)  # one way
    if "all-to-all" in collective.operation:
        # All of it goes along each axis in turn, a quarter of the way around; all axes are at work at once.
        return hops * HOP_SECONDS + longest * whole / (4 * hardware.link_bandwidth)
    return hops * HOP_SECONDS + collective.wire_bytes / bandwidth


def data_batch(hardware: Hardware, axes: int = 1) -> float:
    """Tokens for each device above which data parallelism and FSDP are bound by products: C / (axes · W_ici)."""
    return hardware.intensity / axes


def tensor_limit(hardware: Hardware, hidden: float, axes: int = 1) -> float:
    """Devices up to which tensor parallelism of a hidden layer this wide is bound by products: axes · F · W_ici / C."""
    return axes * hidden / hardware.intensity


def best_fsdp(batch: float, hidden: float, devices: float, fsdp_axes: int = 2, tensor_axes: int = 1) -> float:
    """Devices for FSDP, of all, that exchange least beside tensor parallelism: √(B/F · M_X/M_Y · N)."""
    return math.sqrt(batch / hidden * fsdp_axes / tensor_axes * devices)


def mixed_batch(hardware: Hardware, hidden: float, fsdp_axes: int = 2, tensor_axes: int = 1) -> float:
    """Tokens for each device above which FSDP with tensor parallelism is bound by products: 4 α² / (M_X M_Y F)."""
    return 4 * hardware.intensity**2 / (fsdp_axes * tensor_axes * hidden)


def far_batch(hardware: Hardware) -> float:
    """Tokens for each slice above which data parallelism between slices is bound by products: C / W_dcn."""
    assert hardware.far_bandwidth is not None
    return hardware.flops / hardware.far_bandwidth


def largest_model(hardware: Hardware) -> float:
    """Parameters of the largest model that every device can hold: two bytes of each, and eight of Adam."""
    return hardware.memory_bytes / 10
