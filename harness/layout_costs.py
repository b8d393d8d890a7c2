"""The predicted cost of a step on a mesh: matrix products, memory, and exchanges with a latency and a bandwidth.

Nothing overlaps, so a step takes the sum of its parts, and no layout is faster than predicted for want of overlap
alone. The closed forms are those of *How to Scale Your Model* (Austin et al. 2025, https://jax-ml.github.io/scaling-book,
sections 2, 3 and 5), for weights and activations of two bytes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.hlo import Collective, axes_of

_PASSED = ("collective-permute", "collective-broadcast")  # from one device to another
HOP_SECONDS = 1e-6  # from one device to the next; section 3 of the book


class Hardware(NamedTuple):
    """A device and its links: a chip, or a core where that is what JAX calls a device.

    Attributes:
      flops: of products of bfloat16, a second.
      passes: of products of float32 in full, over those of bfloat16; 1 where ``flops`` are those of float32.
      memory_bytes, memory_bandwidth: of its memory, bytes and bytes a second.
      link_bandwidth: of what a device sends, bytes a second: over the links of one axis of a torus, to both sides
        together; or into a switch.
      axes: whose links one exchange can have at once: directions of a torus, 1 of a switch.
      node: devices that have these links to each other; None: all.
      far_bandwidth: of a device's share of the network between slices or nodes, one way, bytes a second; None unknown.
      source: of these numbers.
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

    @property
    def intensity(self) -> float:
        """Operations in the time that a byte takes over a ring: C / W_ici."""
        return self.flops / self.link_bandwidth


_BOOK = "How to Scale Your Model, section 2, tables of TPU specifications"
_CLOUD = "Google Cloud's pages of TPU versions (cloud.google.com/tpu/docs), and the book's tables where both say it"
_NVIDIA = "NVIDIA's data sheets: dense bfloat16, NVLink one way, nodes of 8, 400 Gbit/s of InfiniBand a GPU"
_PCIE = "NVIDIA's data sheet of the card: dense bfloat16, PCIe 5.0 one way, no bridge; nodes and network as of H100"
_GRACE = "NVIDIA's data sheet, with 96 GB of HBM3; nodes of 4 on NVLink, 200 Gbit/s a GPU, as of CSCS's Alps"
_TPU, _GPU = 6, 15  # passes: TPUs add six products of bfloat16, GPUs have other units
HARDWARE: dict[str, Hardware] = {
    "v3": Hardware(0.7e14, _TPU, 16e9, 4.5e11, 1e11, 2, None, None, f"{_BOOK}; of a core, which is half a chip"),
    "v4p": Hardware(2.75e14, _TPU, 32e9, 1.2e12, 9e10, 3, None, None, _BOOK),
    "v5p": Hardware(4.59e14, _TPU, 96e9, 2.8e12, 1.8e11, 3, None, 6.25e9, _BOOK),
    "v5e": Hardware(1.97e14, _TPU, 16e9, 8.1e11, 9e10, 2, None, None, _BOOK),
    "v6e": Hardware(9.20e14, _TPU, 32e9, 1.6e12, 1.8e11, 2, None, None, _BOOK),
    "h100": Hardware(9.89e14, _GPU, 80e9, 3.35e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h200": Hardware(9.89e14, _GPU, 141e9, 4.8e12, 4.5e11, 1, 8, 5e10, _NVIDIA),
    "h100_pcie": Hardware(7.56e14, _GPU, 80e9, 2.0e12, 6.4e10, 1, 8, 5e10, _PCIE),
    "gh200": Hardware(9.90e14, _GPU, 96e9, 4.0e12, 4.5e11, 1, 4, 2.5e10, _GRACE),
    # Of a core, half a chip of 46 TFLOP/s, 16 GiB at 700 GB/s, and links of 496 Gbit/s each way.
    "v2": Hardware(0.23e14, _TPU, 8e9, 3.5e11, 6.2e10, 2, None, None, _CLOUD),
    # Of a device as JAX shows it, half a chip of 2307 TFLOP/s, 192 GiB at 7380 GB/s, and 1200 GB/s of links.
    "tpu7x": Hardware(11.5e14, _TPU, 96e9, 3.69e12, 9e10, 3, None, None, _CLOUD),
    # Rates that programs reach there, as those of harness.predictions: exchanges are copies of memory.
    "cpu": Hardware(4.4e10, 1, 8e9, 5.9e9, 5.9e9, 1, None, None, "typical of a core of a server's processor"),
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
    hardware: Hardware,
    flops: float,
    held_bytes: float,
    collectives: Sequence[Collective],
    over: Mapping[str, int],
    precision: str,
) -> Prediction:
    """The predicted cost of a step.

    Args:
      hardware: of every device.
      flops: of the products that one device does.
      held_bytes: that one device holds at most; each is read and written once.
      collectives: of the step.
      over: sizes of the axes that have links of their own, by ``links``.
      precision: of the products, float32 or bfloat16.
    """
    return Prediction(
        flops * passes(hardware, precision) / hardware.flops,
        2 * held_bytes / hardware.memory_bandwidth,
        sum(each.times * exchange_seconds(hardware, each, over) for each in collectives),
        held_bytes <= hardware.memory_bytes,
    )


def passes(hardware: Hardware, precision: str) -> int:
    """How many times as long products of a precision take as those of bfloat16."""
    return 1 if precision == "bfloat16" else hardware.passes


def links(hardware: Hardware, mesh: Mapping[str, int], chips: Sequence[int] | None = None) -> dict[str, int]:
    """Sizes of the axes that have links of their own: those of a mesh, or of the torus that one axis is all of.

    Args:
      hardware: of every device.
      mesh: sizes of its axes.
      chips: of the mesh along each direction of the torus; None where that is not known: as even as can be.
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
        sizes[sizes.index(min(sizes))] *= cores  # of a chip, which share its links and lengthen no ring
    return {f"direction {i}": size for i, size in enumerate(sizes)}


def _along(sizes: Sequence[int], directions: int) -> list[int]:
    """The lengths of directions of a torus with axes of these sizes on them, as even as can be."""
    lengths = [1] * min(directions, max(1, len(sizes)))
    for size in sorted(sizes, reverse=True):
        lengths[lengths.index(min(lengths))] *= size
    return lengths


def _factors(number: int) -> list[int]:
    """The prime factors of a number."""
    for prime in range(2, math.isqrt(number) + 1):
        if number % prime == 0:
            return [prime, *_factors(number // prime)]
    return [number]


def exchange_seconds(hardware: Hardware, collective: Collective, over: Mapping[str, int]) -> float:
    """Predicted seconds of a collective, once: a hop's latency for each step around its rings, and bytes over them.

    One over several axes has the links of all of them, as far as the device has so many; one over a mixture has those
    of one. Between nodes every device sends its share at once, while those of a node exchange theirs.

    Args:
      hardware: of every device.
      collective: whose groups are numbered along the axes.
      over: sizes of the axes that have links of their own, by ``links``.
    """
    near = _on_switch if hardware.axes == 1 else _on_torus
    return max(near(hardware, collective, over), _far_seconds(hardware, collective))


def _far_seconds(hardware: Hardware, collective: Collective) -> float:
    """Of what goes from node to node: as on a ring of nodes, each of whose devices has a part of the array."""
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


def _on_switch(hardware: Hardware, collective: Collective, over: Mapping[str, int]) -> float:
    """Each device sends all that it has to send at its full rate, whoever it is for."""
    del over  # a switch has no links of its own for each axis
    hops = 1.0
    if collective.operation not in _PASSED and "all-to-all" not in collective.operation:
        hops = collective.size if collective.operation == "all-reduce" else collective.size / 2
    return hops * HOP_SECONDS + collective.wire_bytes / hardware.link_bandwidth


def _on_torus(hardware: Hardware, collective: Collective, over: Mapping[str, int]) -> float:
    axes = axes_of(collective, over)
    sizes = [collective.size] if axes in ("mixed", "none") else [over[name] for name in axes.split("+")]
    rings = min(hardware.axes, len(sizes))
    if collective.operation in _PASSED:
        return HOP_SECONDS + collective.bytes / (rings * hardware.link_bandwidth / 2)  # one way
    size = collective.size
    hops = (size if collective.operation == "all-reduce" else size / 2) ** (1 / rings) * rings
    if "all-to-all" in collective.operation:
        # All of it goes along each direction in turn, a quarter of the way around; all of them are at work at once.
        longest = max(_along(sizes, hardware.axes))
        return hops * HOP_SECONDS + longest * collective.bytes / (4 * hardware.link_bandwidth)
    return hops * HOP_SECONDS + collective.wire_bytes / (rings * hardware.link_bandwidth)


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
