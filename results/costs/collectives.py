"""Collectives of a step on a mesh, and their seconds predicted from a latency and a bandwidth.

The closed forms are from *How to Scale Your Model* (Austin et al. 2025, https://jax-ml.github.io/scaling-book, sections
2, 3 and 5), for two-byte weights and activations.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from results.costs.hardware import HOP_SECONDS, Hardware

Axes = Mapping[str, int]  # sizes of the axes of a mesh, in order
Totals = dict[tuple[str, str], tuple[float, float, float]]  # count, bytes and wire bytes, by operation and axes
Turns = tuple[int | None, ...]  # trip counts of the loops around an instruction, outermost first, or None if unknown
Groups = tuple[tuple[int, ...], ...]  # groups of communicating devices
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
_PASSED = ("collective-permute", "collective-broadcast")  # point-to-point transfers


class Collective(NamedTuple):
    """A collective operation.

    Attributes:
      operation: one of ``COLLECTIVES``.
      bytes: size of the whole array that is summed, gathered, scattered or sent, per device of a group.
      groups: groups of communicating devices, by their positions in the mesh, or pairs for a permutation.
      turns: trip counts of the enclosing loops.
      name: name of the instruction.
    """

    operation: str
    bytes: float
    groups: Groups
    turns: Turns
    name: str

    @property
    def times(self) -> int:
        """Number of executions per step. Loops with an unknown trip count are counted as one iteration."""
        return times(self.turns)

    @property
    def size(self) -> int:
        """Number of devices in the largest group."""
        return max(map(len, self.groups))

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends per execution with the best ring algorithm: 2 (n−1)/n for a sum over n devices."""
        share = (self.size - 1) / self.size
        if self.operation == "all-reduce":
            return 2 * share * self.bytes
        if self.operation in _PASSED:
            return self.bytes
        return share * self.bytes


def times(turns: Turns) -> int:
    return math.prod(turn for turn in turns if turn is not None)


def axes_of(collective: Collective, mesh: Axes) -> str:
    """Returns the mesh axes of a collective, joined by ``+``, or ``mixed`` if its groups do not span whole axes.

    Args:
      collective: collective of a program compiled for this mesh. Devices are numbered with the last axis varying
        fastest.
      mesh: sizes of the mesh axes, in order.
    """
    shape = tuple(mesh.values())
    varying = set()
    for group in collective.groups:
        places = np.array(np.unravel_index(group, shape))
        crossed = {i for i, coordinates in enumerate(places) if len(set(coordinates.tolist())) > 1}
        if collective.operation != "collective-permute" and math.prod(shape[i] for i in crossed) != len(group):
            return "mixed"
        varying |= crossed
    if collective.operation != "collective-permute" and math.prod(shape[i] for i in varying) != collective.size:
        return "mixed"
    return "+".join(name for i, name in enumerate(mesh) if i in varying) or "none"


def totals(collectives: Iterable[Collective], mesh: Axes) -> Totals:
    """Returns the count, bytes and wire bytes of collectives, by operation and axes."""
    return summed(
        (
            collective.operation,
            axes_of(collective, mesh),
            collective.times,
            collective.times * collective.bytes,
            collective.times * collective.wire_bytes,
        )
        for collective in collectives
    )


def summed(rows: Iterable[tuple[str, str, float, float, float]]) -> Totals:
    """Returns the sums of counts, bytes and wire bytes, by operation and axes, which precede them in each row."""
    sums: Totals = {}
    for operation, axes, *numbers in rows:
        count, size, wire = map(sum, zip(sums.get((operation, axes), (0, 0.0, 0.0)), numbers, strict=True))
        sums[operation, axes] = count, size, wire
    return sums


def from_total(operation: str, axes: str, count: float, whole: float, wire: float, mesh: Axes) -> Collective:
    """Returns a collective that represents a row of ``totals``: the mean collective, executed ``count`` times.

    Groups over mixed axes consist of neighbours, and their size is derived from the wire bytes.
    """
    devices = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    crossed = [i for i, name in enumerate(mesh) if name in axes.split("+")]
    size = math.prod(devices.shape[i] for i in crossed)
    if not crossed and operation not in _PASSED:
        share = wire / whole / (2 if operation == "all-reduce" else 1)
        size = round(1 / (1 - share))
    grouped = np.moveaxis(devices, crossed, range(-len(crossed), 0)).reshape(-1, size)
    return Collective(operation, whole / count, tuple(map(tuple, grouped.tolist())), (int(count),), "")


def links(hardware: Hardware, mesh: Axes, chips: Sequence[int] | None = None) -> dict[str, int]:
    """Returns the sizes of axes with their own links: axes of a mesh, or of the torus that a single mesh axis covers.

    Args:
      hardware: hardware of all devices.
      mesh: sizes of the mesh axes.
      chips: number of chips along each torus dimension. If None, the dimensions are assumed to be as even as possible.
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
    """Returns torus dimensions that fit axes of these sizes. The dimensions are as even as possible."""
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


def total_seconds(hardware: Hardware, collectives: Sequence[Collective], over: Axes) -> float:
    """Returns the predicted seconds of all collectives of a step, assuming that they run one after another."""
    return sum(collective.times * exchange_seconds(hardware, collective, over) for collective in collectives)


def seconds_of_totals(
    hardware: Hardware,
    mesh: Axes,
    rows: Iterable[tuple[str, str, float, float, float]],
    chips: Sequence[int] | None = None,
) -> tuple[float, float]:
    """Returns the predicted seconds of collectives, and the part of it that is communication between nodes.

    Args:
      hardware, mesh, chips: see ``links``.
      rows: operation, axes, count, bytes and wire bytes, as in ``totals``.
    """
    collectives = [from_total(*row, mesh) for row in rows]
    far = sum(collective.times * _far_seconds(hardware, collective) for collective in collectives)
    return total_seconds(hardware, collectives, links(hardware, mesh, chips)), far


def exchange_seconds(hardware: Hardware, collective: Collective, over: Axes) -> float:
    """Predicts the seconds of one execution of a collective: latency per hop around its rings, plus bytes / bandwidth.

    A collective over several axes uses the links of all these axes, up to the number of axes of the device. A
    collective over mixed axes uses the links of one axis. All devices send their shares to other nodes concurrently. At
    the same time, they exchange data within their node.

    Args:
      hardware: the kind of all devices.
      collective: the collective, with groups numbered along the axes.
      over: sizes of the axes with their own links, from ``links``.
    """
    near = _on_switch if hardware.axes == 1 else _on_torus
    return max(near(hardware, collective, over), _far_seconds(hardware, collective))


def _far_seconds(hardware: Hardware, collective: Collective) -> float:
    """Returns the seconds of communication between nodes in a ring. Each device of a node holds a part of the array."""
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
    node_devices = collective.size / nodes
    return HOP_SECONDS * nodes + sums * share * collective.bytes / node_devices / hardware.far_bandwidth


def _on_switch(hardware: Hardware, collective: Collective, over: Axes) -> float:
    """Returns the seconds on a switch. Each device sends all its data through the switch at its full rate."""
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
