"""Meshes and layouts as text, in Mesh-TensorFlow's notation (Shazeer et al. 2018, arXiv 1811.02084), read strictly.

A mesh is ``data:2;model:4``: axes and their sizes, the last one fastest. A layout is ``batch:data;heads:model``: axes
of tensors, and the axis of the mesh that each is split over; an axis that is not named is on every device whole.
Between pairs is a semicolon, a comma or a space.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from results.bad_input import BadInput, nearest, printable

# What may be wrong with a mesh or a layout, and what that means.
REFUSALS = {
    "syntax": "the text is no list of pairs such as batch:data;heads:model",
    "duplicate_mesh_axis": "a mesh names an axis twice",
    "devices": "the sizes of the mesh's axes do not multiply to the number of devices",
    "unknown_mesh_axis": "a layout splits over an axis that the mesh does not have",
    "unknown_tensor_axis": "a layout splits an axis that no tensor of the model has",
    "tensor_axis_twice": "a layout splits one axis of tensors over two axes of the mesh",
    "same_tensor": "two axes of one tensor would be split over one axis of the mesh",
    "same_operation": "two axes of one operation, though of no one tensor, would be split over one axis of the mesh",
    "indivisible": "an axis of a tensor has no whole number of parts for each device",
}
MOST_DEVICES = 2**20
_SHOWN = 80  # letters of a text in a message
_BLANKS = " \t\n\r\f\v"  # that may be between pairs

# Mesh-TensorFlow's own names of axes, of its BERT and of its Transformer, and ours.
MESH_TENSORFLOW = {
    "intermediate": ("mlp",),
    "d_ff": ("mlp",),
    "num_heads": ("heads",),
    "attention_head": ("kv",),
    "d_kv": ("kv",),
    "hidden": ("embed", "act_embed"),
    "d_model": ("embed", "act_embed"),
    "seq": ("length", "act_length"),
    "memory_seq": ("memory_length",),
}


class Refused(BadInput):
    """A mesh or layout that cannot be; its text is one line with the place and, where there is one, a hint.

    Attributes:
      kind: a key of ``REFUSALS``.
      position: of the letter that it is about, from 0; None where it is about the whole.
    """

    def __init__(self, kind: str, position: int | None, message: str):
        super().__init__(message)
        self.kind, self.position = kind, position


class Mesh(dict[str, int]):
    """Sizes of the axes of a mesh, in order; the last one is the fastest in the order of devices."""

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.values())

    def __str__(self) -> str:
        return ";".join(f"{name}:{size}" for name, size in self.items())


class Layout(dict[str, str]):
    """The axis of the mesh that each axis of tensors is split over, sorted by the latter; others are whole."""

    def __init__(self, pairs: Mapping[str, str]):
        super().__init__(sorted(pairs.items()))

    def __str__(self) -> str:
        return ";".join(f"{name}:{axis}" for name, axis in self.items())


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The named axes of a model.

    Attributes:
      sizes: of every axis.
      tensors: the axes of every parameter and activation, by name.
      operations: the axes that every operation sums or runs over at once, by name.
    """

    sizes: Mapping[str, int]
    tensors: Mapping[str, Sequence[str]]
    operations: Mapping[str, Sequence[str]]


class _Pair(NamedTuple):
    name: str
    value: str
    at: int
    value_at: int


def read_mesh(text: str, devices: int | None = None) -> Mesh:
    """A mesh from its text.

    Args:
      text: such as ``data:2;model:4``.
      devices: that there are; None: any number.

    Raises:
      Refused: for anything wrong with it.
    """
    mesh = Mesh()
    for name, value, at, value_at in _pairs("mesh", text):
        if not re.fullmatch(r"[0-9]{1,7}", value) or not 1 <= int(value) <= MOST_DEVICES:
            what = f"{_told(value)} is no number of devices, such as {_told(name)[1:-1]}:4"
            raise _refused("syntax", "mesh", text, value_at, what)
        if name in mesh:
            raise _refused(
                "duplicate_mesh_axis", "mesh", text, at, f"axis {_told(name)} is there twice; name each once"
            )
        mesh[name] = int(value)
    if not mesh:
        raise _refused("syntax", "mesh", text, 0, "it has no axis; one device is data:1")
    if mesh.size > MOST_DEVICES:
        raise _refused("devices", "mesh", text, None, f"{mesh.size} devices are more than {MOST_DEVICES}")
    if devices is not None and mesh.size != devices:
        sizes = " × ".join(map(str, mesh.values()))
        raise _refused("devices", "mesh", text, None, f"{sizes} = {mesh.size}, but there are {devices} devices")
    return mesh


def read_layout(text: str, mesh: Mesh, model: Tensors, *, strict: bool = True) -> Layout:
    """A layout from its text.

    Args:
      text: such as ``batch:data;heads:model``; empty: every device has everything.
      mesh: that it is for.
      model: whose axes it splits.
      strict: False takes it as Mesh-TensorFlow does: pairs with axes that the mesh or the model lacks are passed over,
        and names of its BERT and its Transformer are taken for ours.

    Raises:
      Refused: for anything wrong with it.
    """
    split: dict[str, tuple[str, int]] = {}
    for pair in _pairs("layout", text):
        ours = (pair.name,) if strict or pair.name in model.sizes else MESH_TENSORFLOW.get(pair.name, (pair.name,))
        known = [name for name in ours if name in model.sizes]
        if not known and strict:
            mapped = MESH_TENSORFLOW.get(pair.name)
            hint = f"did you mean {mapped[0]!r}?" if mapped else nearest(pair.name, model.sizes)
            what = f"no tensor has an axis {_told(pair.name)}; {hint}"
            raise _refused("unknown_tensor_axis", "layout", text, pair.at, what)
        if pair.value not in mesh:
            if not strict:
                continue
            what = f"the mesh {_told(str(mesh))[1:-1]} has no axis {_told(pair.value)}; {nearest(pair.value, mesh)}"
            raise _refused("unknown_mesh_axis", "layout", text, pair.value_at, what)
        for name in known:
            if name in split and split[name][0] != pair.value:
                what = f"axis {name!r} is split over {split[name][0]!r} already; an axis goes over one axis of the mesh"
                raise _refused("tensor_axis_twice", "layout", text, pair.at, what)
            if name in split and strict:
                what = f"axis {name!r} is there twice; name each once"
                raise _refused("tensor_axis_twice", "layout", text, pair.at, what)
            split.setdefault(name, (pair.value, pair.at))
    _check_together(text, split, model.tensors, "same_tensor", "tensor")
    _check_together(text, split, model.operations, "same_operation", "operation")
    for name, (axis, at) in split.items():
        if model.sizes[name] % mesh[axis]:
            possible = [n for n in range(1, mesh[axis]) if model.sizes[name] % n == 0]
            what = (
                f"{name}={model.sizes[name]} does not divide into {mesh[axis]} parts, one for each device along "
                f"{axis!r}; {axis}:{possible[-1]} would do"
            )
            raise _refused("indivisible", "layout", text, at, what)
    return Layout({name: axis for name, (axis, _) in split.items()})


def _check_together(
    text: str,
    split: Mapping[str, tuple[str, int]],
    groups: Mapping[str, Sequence[str]],
    kind: str,
    noun: str,
) -> None:
    """Raises Refused if two axes of one group are split over the same axis of the mesh."""
    for group, names in groups.items():
        taken: dict[str, str] = {}
        for name in sorted((each for each in names if each in split), key=lambda each: split[each][1]):
            axis, at = split[name]
            if axis in taken:
                what = (
                    f"{taken[axis]!r} and {name!r} of {noun} {group!r} ({', '.join(names)}) would both be split over "
                    f"{axis!r}; split one of them over another axis"
                )
                raise _refused(kind, "layout", text, at, what)
            taken[axis] = name


def _pairs(what: str, text: str) -> Iterator[_Pair]:
    """The pairs of a text, with their places."""
    if not text.strip(_BLANKS):
        return
    at = len(text) - len(text.lstrip(_BLANKS))
    for i, part in enumerate(re.split(rf"([{_BLANKS}]*[;,][{_BLANKS}]*|[{_BLANKS}]+)", text.strip(_BLANKS))):
        if i % 2 == 0:
            found = re.fullmatch(r"([A-Za-z_]\w*):(\w+)", part, re.ASCII)
            if found is None:
                such = "data:2;model:4" if what == "mesh" else "batch:data;heads:model"
                said = f"{_told(part)} is no pair of names" if part else "a pair of names is missing"
                blank = ", without blanks in a pair" if part.startswith(":") or part.endswith(":") else ""
                raise _refused("syntax", what, text, at, f"{said}, as in {such}{blank}")
            yield _Pair(found[1], found[2], at, at + found.start(2))
        at += len(part)


def _refused(kind: str, what: str, text: str, position: int | None, message: str) -> Refused:
    place = "" if position is None else f" at letter {position + 1}"
    return Refused(kind, position, f"{what} {_told(text, position or 0)}{place}: {message}")


def _told(text: str, position: int = 0) -> str:
    """A text in quotes, or that part of a long one that a position is in."""
    first = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    before, after = "…" if first else "", "…" if first + _SHOWN < len(text) else ""
    return repr(f"{before}{printable(text[first : first + _SHOWN])}{after}")
