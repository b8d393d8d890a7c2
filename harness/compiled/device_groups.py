"""Parses the groups of devices that communicate in a collective, in any notation of the compiler."""

import itertools
import math
import re

import numpy as np

from results.costs.collectives import Groups

_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IDS = r"\[([\d,]+)\](?:T\(([\d,]+)\))?"  # ids 0, 1, 2, … of these dimensions, then transposed
_IOTA = re.compile(rf"replica_groups=\[([\d,]+)\]<={_IDS}")
_MESH = re.compile(
    r"replica_groups=@?mesh[\[<]([^\]>]*)[\]>](?:, device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?|[\d,]+)\))? \{([^}]*)\}"
)
_AXIS = re.compile(r"'?([\w.\-]+)'?(?::\((\d+)\)(\d+))?")  # such as 'a' or 'a':(2)4


class Unparsed(ValueError):
    """Part of a compiled program cannot be parsed."""


def read(attributes: str, devices: int) -> Groups:
    """Returns the groups in the attributes of an instruction. Pairs of devices are groups of a source and a target.

    Args:
      attributes: text after the operands of the instruction.
      devices: number of devices, all of which are one group if none is listed.

    Raises:
      Unparsed: the notation is unknown.
    """
    if pairs := _PAIRS.search(attributes):
        return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[1])) or ((0,),)
    if listed := _LISTED.search(attributes):
        groups = [tuple(numbers(group)) for group in re.findall(r"\{([\d,]*)\}", listed[1])]
        return tuple(filter(None, groups)) or (tuple(range(devices)),)
    if iota := _IOTA.search(attributes):
        shape, ids = numbers(iota[1]), _ids(iota[2], iota[3])
        if ids.size == math.prod(shape):
            return _rows(ids, shape[-1])
    if mesh := _MESH.search(attributes):
        return _along_axes(*mesh.groups())
    raise Unparsed(attributes)


def numbers(text: str) -> list[int]:
    """Returns the numbers between commas. A dimension with a bound, such as ``<=8``, counts as its bound."""
    return [int(number.removeprefix("<=")) for number in text.split(",") if number]


def _ids(dims: str, order: str | None) -> np.ndarray:
    sizes = numbers(dims)
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return ids.transpose(numbers(order)) if order else ids


def _rows(ids: np.ndarray, size: int) -> Groups:
    return tuple(map(tuple, ids.reshape(-1, size).tolist()))


def _along_axes(sizes: str, device_ids: str | None, named: str) -> Groups:
    """Returns groups along mesh axes or parts of axes. For example, ``'a':(2)4`` is the middle 4 of 2 × 4 × rest."""
    axes = {name: int(size) for name, size in re.findall(r"'?([\w.\-]+)'?=(\d+)", sizes)}
    count = math.prod(axes.values())
    if iota := re.fullmatch(_IDS, device_ids or f"[{count}]"):
        ids = _ids(iota[1], iota[2])
    else:
        ids = np.array(numbers(device_ids or ""))
    parts: dict[str, list[tuple[int, int]]] = {name: [] for name in axes}  # first and last stride of each part
    for name, stride, size in _AXIS.findall(named):
        if name not in axes:
            raise Unparsed(named)
        low = int(stride or 1)
        parts[name].append((low, low * int(size or axes[name])))
    dims: list[int] = []
    chosen = []
    for name, size in axes.items():
        edges = sorted({1, size, *itertools.chain(*parts[name])})
        for low, high in itertools.pairwise(edges):
            if any(first <= low and high <= last for first, last in parts[name]):
                chosen.append(len(dims))
            dims.append(high // low)
    if ids.size != count or math.prod(dims) != count:
        raise Unparsed(named)
    ids = np.moveaxis(ids.reshape(dims), chosen, range(-len(chosen), 0))
    return _rows(ids, math.prod(dims[i] for i in chosen))
