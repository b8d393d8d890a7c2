"""A strict parser for meshes and layouts in Mesh-TensorFlow's notation (Shazeer et al. 2018, arXiv 1811.02084).

A mesh such as ``data:2;model:4`` lists axes and their sizes. The last axis varies fastest. A layout such as
``batch:data;heads:model`` lists tensor axes and the mesh axis that each is sharded across. Unlisted axes are
replicated. Pairs are separated by a semicolon, a comma or a space.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from workloads.base import BadInput, nearest, printable

# Kinds of errors in meshes and layouts.
REFUSALS = {
    "syntax": "the text is not a list of pairs such as batch:data;heads:model",
    "duplicate_mesh_axis": "a mesh names an axis twice",
    "devices": "the sizes of the mesh's axes do not multiply to the number of devices",
    "unknown_mesh_axis": "a layout splits over an axis that the mesh does not have",
    "unknown_tensor_axis": "a layout splits an axis that no tensor of the model has",
    "tensor_axis_twice": "a layout splits one tensor axis over two mesh axes",
    "same_tensor": "two axes of one tensor would be split over one mesh axis",
    "same_operation": "two axes of one operation, from different tensors, would be split over one mesh axis",
    "stages": "a layout splits layers over pipeline stages, which are not supported",
    "indivisible": "the size of a tensor axis is not a multiple of the size of the mesh axis",
}
T = TypeVar("T")
STAGES = ("stage", "stages", "pipe", "pipeline")  # names of mesh axes that promise a pipeline
AxesByName = Mapping[str, Sequence[str]]
MOST_DEVICES = 2**20
_SHOWN = 80  # characters of a text in a message
_BLANKS = " \t\n\r\f\v"  # blanks between pairs

# Axis names in Mesh-TensorFlow's BERT and Transformer, and ours.
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
    """An invalid mesh or layout. The message is one line with the position and, if possible, a hint.

    Attributes:
      kind: a key of ``REFUSALS``.
      position: zero-based index of the invalid character, or None if the whole text is invalid.
    """

    def __init__(self, kind: str, position: int | None, message: str):
        super().__init__(message)
        self.kind = kind
        self.position = position


class _Pairs(dict[str, T]):
    """A dict whose text consists of pairs such as ``data:2``."""

    def __str__(self) -> str:
        return ";".join(f"{name}:{self[name]}" for name in self)


class Mesh(_Pairs[int]):
    """Sizes of the axes of a mesh, in order. The last axis varies fastest in the order of devices."""

    @property
    def size(self) -> int:
        """Returns the number of devices."""
        return math.prod(self.values())


class Layout(_Pairs[str]):
    """The mesh axis that each tensor axis is sharded across, sorted by tensor axis. Other axes are replicated."""

    def __init__(self, pairs: Mapping[str, str]):
        super().__init__(sorted(pairs.items()))


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The named axes of a model.

    Attributes:
      sizes: size of each axis.
      tensors: axes of each parameter and activation, by name.
      operations: axes that each operation iterates over, including contracted axes, by name of the operation.
    """

    sizes: Mapping[str, int]
    tensors: AxesByName
    operations: AxesByName


def read_mesh(text: str, devices: int | None = None) -> Mesh:
    """Parses a mesh.

    Args:
      text: mesh as text, such as ``data:2;model:4``.
      devices: required number of devices, or None for any number.

    Raises:
      Refused: the mesh is invalid.
    """
    mesh = Mesh()
    refused = functools.partial(_refused, "mesh", text)
    for name, value, position, value_at in _pairs("mesh", text):
        if not re.fullmatch(r"[0-9]{1,7}", value) or not 1 <= int(value) <= MOST_DEVICES:
            what = f"{_quoted(value)} is not a number of devices. Use a number, such as {_quoted(name)[1:-1]}:4."
            raise refused("syntax", value_at, what)
        if name in mesh:
            raise refused("duplicate_mesh_axis", position, f"axis {_quoted(name)} appears twice. Name each axis once.")
        mesh[name] = int(value)
    if not mesh:
        raise refused("syntax", 0, "it has no axis. Use data:1 for one device.")
    if mesh.size > MOST_DEVICES:
        raise refused("devices", None, f"{mesh.size} devices are more than {MOST_DEVICES}")
    if devices is not None and mesh.size != devices:
        sizes = " × ".join(map(str, mesh.values()))
        raise refused("devices", None, f"{sizes} = {mesh.size}, but there are {devices} devices")
    return mesh


def read_layout(text: str, mesh: Mesh, model: Tensors, *, strict: bool = True) -> Layout:
    """Parses a layout.

    Args:
      text: layout as text, such as ``batch:data;heads:model``. An empty text replicates all tensors.
      mesh: mesh that the layout is for.
      model: axes of the model.
      strict: if False, behave like Mesh-TensorFlow: ignore pairs with axes that the mesh or the model does not have,
        and translate the axis names of Mesh-TensorFlow's BERT and Transformer.

    Raises:
      Refused: the layout is invalid.
    """
    refused = functools.partial(_refused, "layout", text)
    split: dict[str, tuple[str, int]] = {}
    for given, axis, position, axis_at in _pairs("layout", text):
        mapped = MESH_TENSORFLOW.get(given)
        candidates = (given,) if strict or given in model.sizes or mapped is None else mapped
        model_axes = [name for name in candidates if name in model.sizes]
        if not model_axes and strict:
            hint = f"did you mean {mapped[0]!r}?" if mapped else nearest(given, model.sizes)
            raise refused("unknown_tensor_axis", position, f"no tensor has an axis {_quoted(given)}; {hint}")
        if axis not in mesh:
            if not strict:
                continue
            what = f"the mesh {_quoted(str(mesh))[1:-1]} has no axis {_quoted(axis)}"
            raise refused("unknown_mesh_axis", axis_at, f"{what}; {nearest(axis, mesh)}")
        for name in model_axes:
            if name in split and split[name][0] != axis:
                what = f"axis {name!r} is already split over {split[name][0]!r}. Split each axis over one mesh axis."
                raise refused("tensor_axis_twice", position, what)
            if name in split and strict:
                raise refused("tensor_axis_twice", position, f"axis {name!r} appears twice. Name each axis once.")
            split.setdefault(name, (axis, position))
    if "layers" in split and split["layers"][0] in STAGES:
        axis, position = split["layers"]
        what = (
            f"pipeline stages are not supported. To store layers on different devices and gather them in every step, "
            f"use another name for the mesh axis {axis!r}, such as data."
        )
        raise refused("stages", position, what)
    _check_together(text, split, model.tensors, "tensor")
    _check_together(text, split, model.operations, "operation")
    for name, (axis, position) in split.items():
        if model.sizes[name] % mesh[axis]:
            possible = [n for n in range(1, mesh[axis]) if model.sizes[name] % n == 0]
            what = (
                f"{name}={model.sizes[name]} does not divide into {mesh[axis]} parts, one for each device along "
                f"{axis!r}. {axis}:{possible[-1]} would work."
            )
            raise refused("indivisible", position, what)
    return Layout({name: axis for name, (axis, _) in split.items()})


def read_pairs(text: str, mesh: Sequence[str]) -> dict[str, str]:
    """Parses a layout for any model. Returns the mesh axis of each tensor axis.

    Args:
      text: layout as text.
      mesh: names of the axes of the mesh.

    Raises:
      Refused: the text is not a layout, names a tensor axis twice, or names an axis that the mesh does not have.
    """
    pairs: dict[str, str] = {}
    for name, axis, position, axis_at in _pairs("layout", text):
        if axis not in mesh:
            what = f"the mesh has no axis {_quoted(axis)}; {nearest(axis, mesh)}"
            raise _refused("layout", text, "unknown_mesh_axis", axis_at, what)
        if name in pairs:
            what = f"axis {name!r} appears twice. Name each axis once."
            raise _refused("layout", text, "tensor_axis_twice", position, what)
        pairs[name] = axis
    return pairs


def _check_together(
    text: str,
    split: Mapping[str, tuple[str, int]],
    groups: AxesByName,
    noun: str,
) -> None:
    """Raises Refused if two axes of the same tensor or operation are sharded across the same mesh axis."""
    for group, names in groups.items():
        taken: dict[str, str] = {}
        for name in sorted(
            (axis_name for axis_name in names if axis_name in split), key=lambda axis_name: split[axis_name][1]
        ):
            axis, position = split[name]
            if axis in taken:
                what = (
                    f"{taken[axis]!r} and {name!r} of {noun} {group!r} ({', '.join(names)}) would both be split over "
                    f"{axis!r}. Split one of them over another axis."
                )
                raise _refused("layout", text, f"same_{noun}", position, what)
            taken[axis] = name


def _pairs(what: str, text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yields the name and the value of each pair in a text, and their positions."""
    if not text.strip(_BLANKS):
        return
    position = len(text) - len(text.lstrip(_BLANKS))
    for i, part in enumerate(re.split(rf"([{_BLANKS}]*[;,][{_BLANKS}]*|[{_BLANKS}]+)", text.strip(_BLANKS))):
        if i % 2 == 0:
            match = re.fullmatch(r"([A-Za-z_]\w*):(\w+)", part, re.ASCII)
            if match is None:
                example = "data:2;model:4" if what == "mesh" else "batch:data;heads:model"
                found_instead = f"{_quoted(part)} is not a pair of names" if part else "a pair of names is missing"
                blank = ", without blanks in a pair" if part.startswith(":") or part.endswith(":") else ""
                raise _refused(what, text, "syntax", position, f"{found_instead}, as in {example}{blank}")
            yield match[1], match[2], position, position + match.start(2)
        position += len(part)


def _refused(what: str, text: str, kind: str, position: int | None, message: str) -> Refused:
    place = "" if position is None else f" at character {position + 1}"
    return Refused(kind, position, f"{what} {_quoted(text, position or 0)}{place}: {message}")


def _quoted(text: str, position: int = 0) -> str:
    """Returns the text in quotes. A long text is shortened to the part around a position."""
    first = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    before = "…" if first else ""
    after = "…" if first + _SHOWN < len(text) else ""
    return repr(f"{before}{printable(text[first : first + _SHOWN])}{after}")
