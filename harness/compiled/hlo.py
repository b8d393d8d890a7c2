"""Parses the collectives, matmuls, convolutions and loops of a compiled program from its HLO text.

All numbers are per device. The costs of a loop's body are multiplied by the loop's trip count. The body of a loop with
an unknown trip count, such as a traced number of steps, is counted once, and the loop is listed separately. Lines that
cannot be parsed are kept, so ``check`` can raise an error.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from results.aliases import StringMap, Strings
from results.costs.collectives import COLLECTIVES, Collective, Groups, Turns, times

_BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "token": 0, "opaque": 0}
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{\s*$")
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=")
_NAMES = re.compile(r"%?([\w.\-]+)")
_SCATTERS = re.compile(r"all-reduce-scatter")
# Libraries for matmuls and convolutions. Only calls that list their contracted axes, as XLA's GPU backend emits them,
# can be parsed.
_LIBRARIES = re.compile(r"gemm|matmul|cublas|cudnn|conv|fmha|attention|triton|cutlass|tpu_custom_call", re.IGNORECASE)


class Unparsed(ValueError):
    """Part of a compiled program cannot be parsed."""


class Product(NamedTuple):
    """A matmul or convolution, with its FLOPs (two per multiply-add) and the trip counts of the enclosing loops."""

    flops: int
    turns: Turns


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
      devices: number of devices that run it.
      collectives, products: the program's collectives, and its matmuls and convolutions.
      cycles: cycles in the compiler's schedule on TPUs, 0 on other devices.
      loops: number of loops with a known trip count, and number with an unknown one.
      unparsed: lines that could not be parsed.
    """

    devices: int
    collectives: tuple[Collective, ...]
    products: tuple[Product, ...]
    cycles: float
    loops: tuple[int, int]
    unparsed: Strings

    def check(self) -> "Compiled":
        """Returns self. Raises Unparsed if any line could not be parsed."""
        if self.unparsed:
            raise Unparsed(
                f"{len(self.unparsed)} lines of the compiled program cannot be read: {self.unparsed[0][:200]}"
            )
        return self

    @property
    def flops(self) -> int:
        """FLOPs of all matmuls and convolutions. The body of a loop with an unknown trip count is counted once."""
        return sum(each.flops * times(each.turns) for each in self.products)


def read(text: str) -> Compiled:
    """Parses a compiled program from the text returned by ``jax.stages.Compiled.as_text``.

    Args:
      text: HLO module after partitioning.
    """
    counts = re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])
    lines = set(map(str.strip, text.splitlines()))
    listing = sum("replica_groups=" in line or "source_target_pairs=" in line for line in lines)
    return _Reader(_computations(text), math.prod(map(int, counts)) or 1, listing).compiled()


def peak_bytes(program: Any) -> int:
    """Returns the device memory of a compiled program, including arguments and results, or 0 if it is not reported."""
    stats = program.memory_analysis()
    if stats is None:
        return 0
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + results + stats.temp_size_in_bytes)


class _Instruction(NamedTuple):
    name: str
    type: str
    opcode: str
    operands: str
    attributes: str
    line: str


Computations = dict[str, list[_Instruction]]  # by name


class _Reader:
    """Traverses all computations of a program, starting at the entry computation."""

    def __init__(self, computations: tuple[str, Computations], devices: int, lines: int):
        self._entry, self._computations = computations
        self._devices = devices
        self._lines = lines  # that list communicating devices
        self._collectives: list[Collective] = []
        self._products: list[Product] = []
        self._cycles = 0.0
        self._loops = [0, 0]
        self._unparsed: list[str] = []
        self._read: set[str] = set()  # lines of the collectives visited so far

    def compiled(self) -> Compiled:
        """Returns the parsed program."""
        self._visit(self._entry, ())
        found = len(self._read)
        if found < self._lines:
            self._unparsed.append(f"{self._lines - found} collectives that are never called or are not instructions")
        return Compiled(
            self._devices,
            tuple(self._collectives),
            tuple(self._products),
            self._cycles,
            (self._loops[0], self._loops[1]),
            tuple(self._unparsed),
        )

    def _visit(self, computation: str, turns: Turns) -> None:
        own = self._computations.get(computation)
        if own is None:
            self._unparsed.append(f"computation {computation} is missing")
            return
        types = {each.name: each.type for each in own}
        for each in own:
            kind = each.opcode.removesuffix("-start")
            if kind in COLLECTIVES:
                self._collective(each, kind, computation, turns, types)
            elif each.opcode in ("dot", "convolution") or _is_library(each):
                flops = _flops(each, types)
                if flops is None:
                    self._unparsed.append(each.line)
                else:
                    self._products.append(Product(flops, turns))
            self._cycles += _cycles(each) * times(turns)
            if each.opcode == "while":
                self._loop(each, turns, own)
            elif not each.opcode.endswith(("-done", "-update")) and kind not in (*COLLECTIVES, *_REDUCING):
                for called in _called(each):
                    self._visit(called, turns)

    def _loop(self, each: _Instruction, turns: Turns, beside: Sequence[_Instruction]) -> None:
        known = re.search(r'"?known_trip_count"?:\{"?n"?:"?(\d+)"?\}', each.attributes)
        body, condition = (re.search(rf"{name}=%?([\w.\-]+)", each.attributes) for name in ("body", "condition"))
        if body is None or condition is None:
            self._unparsed.append(each.line)
            return
        turn = int(known[1]) if known else self._counted(each, beside, body[1], condition[1])
        self._loops[turn is None] += 1
        self._visit(body[1], (*turns, turn))

    def _counted(self, each: _Instruction, beside: Sequence[_Instruction], body: str, condition: str) -> int | None:
        """Returns the trip count of a loop that counts up to a constant, or None for any other loop."""
        last, given, after = ({one.name: one for one in own} for own in (self._of(condition), beside, self._of(body)))
        root = next((one for one in reversed(self._of(condition)) if one.opcode == "compare"), None)
        if root is None or not root.line.startswith("ROOT") or "direction=LT" not in root.attributes:
            return None
        place, end = (_behind(last.get(name), last) for name in _operands(root))
        index = None if place is None else re.search(r"index=(\d+)", place.attributes)
        most = _constant(end)
        if place is None or place.opcode != "get-tuple-element" or index is None or most is None:
            return None
        first = _constant(_element(given.get(_operands(each)[0]), int(index[1]), given))
        ends = next((one for one in self._of(body) if one.line.startswith("ROOT")), None)
        grown = _element(ends, int(index[1]), after)
        if first is None or grown is None or grown.opcode != "add":
            return None
        terms = [_behind(after.get(name), after) for name in _operands(grown)]
        same = any(one is not None and re.search(rf"index={index[1]}\b", one.attributes) for one in terms)
        steps = [value for one in terms if (value := _constant(one)) is not None]
        if not same or len(steps) != 1 or steps[0] < 1:
            return None
        return max(0, -(-(most - first) // steps[0]))

    def _of(self, computation: str) -> Sequence[_Instruction]:
        return self._computations.get(computation, ())

    def _collective(
        self,
        each: _Instruction,
        operation: str,
        computation: str,
        turns: Turns,
        types: StringMap,
    ) -> None:
        self._read.add(each.line)
        try:
            groups = _groups(each.attributes, operation, self._devices)
            arrays = _payload(each, operation, types)
        except Unparsed:
            self._unparsed.append(each.line)
            return
        if operation == "all-reduce" and _SCATTERS.search(computation):  # each device keeps one part of the sum
            operation = "reduce-scatter"
        if all(len(group) == 1 for group in groups):
            return  # no communication
        self._collectives.append(Collective(operation, arrays, groups, turns, each.name))


def _is_library(each: _Instruction) -> bool:
    """Returns whether an instruction calls a library for matmuls or convolutions."""
    target = re.search(r'custom_call_target="([^"]*)"', each.attributes) if each.opcode == "custom-call" else None
    return target is not None and _LIBRARIES.search(target[1]) is not None


def _flops(each: _Instruction, types: StringMap) -> int | None:
    """Returns the FLOPs of a matmul or convolution, or None if it cannot be parsed."""
    operands = [_dims(types[name]) for name in _operands(each) if name in types]
    out = _dims(each.type)
    if len(operands) < 2:
        return None
    if each.opcode == "convolution":
        return _flops_of_convolution(each.attributes, operands[0], operands[1], out)
    contracted = re.search(r"lhs_contracting_dim(?:s=\{|ensions\":\[)([\d,\"]*)", each.attributes)
    if contracted is None and each.opcode != "dot":
        return None
    summed = [operands[0][int(i)] for i in re.findall(r"\d+", contracted[1])] if contracted else []
    return 2 * math.prod(out) * math.prod(summed)


def _constant(each: _Instruction | None) -> int | None:
    """Returns the value of an integer constant, or None for any other instruction."""
    number = re.fullmatch(r"-?\d+", each.operands) if each is not None and each.opcode == "constant" else None
    return int(number[0]) if number else None


def _element(tuple_: _Instruction | None, index: int, beside: Mapping[str, _Instruction]) -> _Instruction | None:
    """Returns the instruction that computes an element of a tuple, looking through copies."""
    if tuple_ is None or tuple_.opcode != "tuple":
        return None
    return _behind(beside.get(_operands(tuple_)[index]), beside)


def _behind(each: _Instruction | None, beside: Mapping[str, _Instruction]) -> _Instruction | None:
    """Returns the source of a copy, or the instruction itself if it is not a copy."""
    while each is not None and each.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
        each = beside.get(_operands(each)[0])
    return each


def _flops_of_convolution(
    attributes: str, given: Sequence[int], kernel: Sequence[int], out: Sequence[int]
) -> int | None:
    """Returns the FLOPs of a convolution, excluding zeros from padding and dilation, or None if it cannot be parsed.

    The TPU compiler turns batched matmuls into convolutions, and most of their taps multiply zeros.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", (re.search(r"window=\{([^}]*)\}", attributes) or [""])[0]))
    if labels is None or [len(each) for each in labels.groups()] != [len(given), len(kernel), len(out)]:
        return None
    if "batch_group_count" in attributes:
        return None
    places = [str(i) for i in range(len(out) - 2)]

    def along(name: str, default: int) -> list[int]:
        if name not in window:
            return [default for _ in places]
        return [int(each.split("_")[0]) for each in window[name].split("x")]

    sizes, strides, spread, apart = (along(name, 1) for name in ("size", "stride", "lhs_dilate", "rhs_dilate"))
    pads = along("pad", 0)
    flops = 2 * out[labels[3].index("b")] * out[labels[3].index("f")] * kernel[labels[2].index("i")]
    for i, place in enumerate(places):
        count = given[labels[1].index(place)]
        outputs = out[labels[3].index(place)]
        flops *= taps(count, outputs, sizes[i], strides[i], pads[i], spread[i], apart[i])
    return flops


def taps(count: int, outputs: int, size: int, stride: int, pad: int, spread: int, apart: int) -> int:
    """Returns the number of (output, tap) pairs along an axis that read an input instead of padding or dilation.

    Args:
      count, outputs: number of inputs and number of outputs.
      size, stride, pad: window size, stride, and amount of padding before the first input.
      spread, apart: dilation of the inputs, and of the window.
    """
    at = np.arange(outputs) * stride - pad
    last = (count - 1) * spread
    places = (at + tap * apart for tap in range(size))
    return sum(int(np.count_nonzero((each >= 0) & (each <= last) & (each % spread == 0))) for each in places)


_REDUCING = ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map")  # call scalar computations


def _computations(text: str) -> tuple[str, Computations]:
    """Returns the name of the entry computation, and the instructions of each computation by name."""
    found: Computations = {}
    entry = ""
    current = None
    for line in text.splitlines():
        if not line.startswith((" ", "}")) and (head := _COMPUTATION.match(line)):
            current = found.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (each := _instruction(line)) is not None:
            current.append(each)
    return entry, found


def _instruction(line: str) -> _Instruction | None:
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    rest = match[2]
    end = _closing(rest) if rest.startswith("(") else rest.find(" ")
    kind = rest[:end]
    rest = rest[end:].lstrip()
    opcode = re.match(r"([a-z][\w\-]*)\(", rest)
    if opcode is None:
        return None
    closing = _closing(rest[opcode.end() - 1 :]) + opcode.end() - 1
    return _Instruction(match[1], kind, opcode[1], rest[opcode.end() : closing - 1], rest[closing:], line.strip())


def _closing(text: str) -> int:
    """Returns the position after the parenthesis that closes the first opening parenthesis."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return i + 1
    return len(text)


def _called(each: _Instruction) -> Iterator[str]:
    """Returns the names of the computations that an instruction calls."""
    for match in _CALLED.finditer(each.attributes):
        rest = each.attributes[match.end() :]
        listed = re.match(r"\{([^}]*)\}", rest)
        names = listed[1] if listed else re.split(r"[, ]", rest, maxsplit=1)[0]
        yield from _NAMES.findall(names)


def _operands(each: _Instruction) -> list[str]:
    return re.findall(r"%([\w.\-]+)", each.operands) or _NAMES.findall(each.operands)


def _dims(kind: str) -> list[int]:
    shape = _SHAPE.search(kind)
    return _numbers(shape[2]) if shape else []


def _arrays(kind: str) -> list[float]:
    """Returns the bytes of each array of a type."""
    return [math.prod(_numbers(dims)) * _bits(dtype) / 8 for dtype, dims in _SHAPE.findall(kind)]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    width = re.match(r"[a-z]+(\d+)", dtype)
    if width is None:
        raise Unparsed(dtype)
    return int(width[1])


def _payload(each: _Instruction, operation: str, types: StringMap) -> float:
    """Returns the bytes of the full (unsharded) arrays of a collective."""
    if operation in ("all-gather", "collective-broadcast"):
        arrays = _arrays(each.type)
        if each.opcode.endswith("-start") and len(arrays) > 1:  # the operands and the results
            arrays = arrays[len(arrays) // 2 :]
    else:
        arrays = [size for name in _operands(each) for size in _arrays(types.get(name, ""))] or _arrays(each.operands)
    if not arrays:
        raise Unparsed(each.line)
    return arrays[0] if operation == "collective-permute" else sum(arrays)


def _groups(attributes: str, operation: str, devices: int) -> Groups:
    """Parses the groups of communicating devices in any of the compiler's notations."""
    if operation == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
        if pairs is None:
            raise Unparsed(attributes)
        return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[1])) or ((0,),)
    listed = re.search(r"replica_groups=(.*)", attributes)
    if listed is None:
        raise Unparsed(attributes)
    text = listed[1]
    if plain := re.match(r"\{((?:\{[\d,]*\},?)*)\}", text):
        groups = [tuple(_numbers(own)) for own in re.findall(r"\{([\d,]*)\}", plain[1])]
        return tuple(group for group in groups if group) or (tuple(range(devices)),)
    if iota := re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        ids = _ordered(iota[2], iota[3])
        shape = _numbers(iota[1])
        if ids.size != math.prod(shape):
            raise Unparsed(text)
        return _rows(ids, shape[-1])
    if mesh := re.match(
        r"@?mesh[\[<]([^\]>]*)[\]>](?:, device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?|[\d,]+)\))? \{([^}]*)\}", text
    ):
        return _of_mesh(mesh[1], mesh[2], mesh[3])
    raise Unparsed(text)


def _ordered(dims: str, order: str | None) -> np.ndarray:
    """Returns 0, 1, 2, ... reshaped to the given dimensions and transposed."""
    sizes = _numbers(dims)
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return ids.transpose(_numbers(order)) if order else ids


def _rows(ids: np.ndarray, size: int) -> Groups:
    return tuple(map(tuple, ids.reshape(-1, size).tolist()))


def _of_mesh(sizes: str, device_ids: str | None, named: str) -> Groups:
    """Returns groups along mesh axes or parts of axes. For example, ``'a':(2)4`` is the middle 4 of 2 × 4 × rest."""
    axes = {name: int(size) for name, size in re.findall(r"'?([\w.\-]+)'?=(\d+)", sizes)}
    count = math.prod(axes.values())
    if device_ids is None:
        ids = np.arange(count)
    elif turned := re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", device_ids):
        ids = _ordered(turned[1], turned[2])
    else:
        ids = np.array(_numbers(device_ids))
    if ids.size != count:
        raise Unparsed(device_ids or sizes)
    parts: dict[str, list[tuple[int, int]]] = {}  # for each axis, the stride and the size of each part
    for name, before, size in re.findall(r"'?([\w.\-]+)'?(?::\((\d+)\)(\d+))?", named):
        if name not in axes:
            raise Unparsed(named)
        parts.setdefault(name, []).append((int(before), int(size)) if before else (1, axes[name]))
    dims: list[int] = []
    within = []
    for name, size in axes.items():
        edges = sorted({1, size, *(e for before, own in parts.get(name, []) for e in (before, before * own))})
        for low, high in itertools.pairwise(edges):
            if high % low:
                raise Unparsed(named)
            if any(before <= low and high <= before * own for before, own in parts.get(name, [])):
                within.append(len(dims))
            dims.append(high // low)
    ids = np.moveaxis(ids.reshape(dims), within, range(-len(within), 0))
    return _rows(ids, math.prod(dims[i] for i in within))


def _numbers(text: str) -> list[int]:
    return [int(number.removeprefix("<=")) for number in text.split(",") if number]


def _cycles(each: _Instruction) -> float:
    found = re.search(r'"estimated_cycles":"(\d+)"', each.attributes)
    return float(found[1]) if found else 0.0
