"""What a compiled program does: its collectives, products and loops, read from the text of the compiler's HLO.

Every number is of one device. Bodies of loops count as often as they turn, where the compiler says so; a loop whose
turns it does not know, such as one over a number of steps that is an argument, counts once, and is told apart. What
cannot be read is kept and counted, and ``check`` raises for it: nothing is guessed.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
_BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "token": 0, "opaque": 0}
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{\s*$")
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=")
_NAMES = re.compile(r"%?([\w.\-]+)")
_SCATTERS = re.compile(r"all-reduce-scatter")
# Libraries that do products: those that say which axes they sum over can be read, as XLA calls them on GPUs.
_LIBRARIES = re.compile(r"gemm|matmul|cublas|cudnn|conv|fmha|attention|triton|cutlass|tpu_custom_call", re.IGNORECASE)


class Unparsed(ValueError):
    """A compiled program says something that this module cannot read."""


class Collective(NamedTuple):
    """An exchange between devices.

    Attributes:
      operation: one of ``COLLECTIVES``.
      bytes: of the whole array that is summed, gathered, scattered or sent, for each device of a group.
      groups: devices that exchange with each other, by their places in the order of the mesh; of a permutation pairs.
      turns: of the loops around it, outermost first; None where the compiler does not know.
      name: of the instruction.
    """

    operation: str
    bytes: float
    groups: tuple[tuple[int, ...], ...]
    turns: tuple[int | None, ...]
    name: str

    @property
    def times(self) -> int:
        """How often it is done, taking loops whose turns nobody knows once."""
        return math.prod(turn for turn in self.turns if turn is not None)

    @property
    def size(self) -> int:
        """Devices of the largest group."""
        return max(map(len, self.groups))

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends each time by the best algorithm on a ring: 2 (n−1)/n of a sum over n devices."""
        share = (self.size - 1) / self.size
        if self.operation == "all-reduce":
            return 2 * share * self.bytes
        if self.operation in ("collective-permute", "collective-broadcast"):
            return self.bytes
        return share * self.bytes


class Product(NamedTuple):
    """A matrix product or convolution: its operations, two for each product of two numbers, and the loops around it."""

    flops: int
    turns: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
      devices: that run it.
      collectives, products: in it.
      cycles: that the compiler's schedule estimates, of TPUs; 0 elsewhere.
      loops: whose turns the compiler knows, and others.
      unparsed: lines that were not understood.
    """

    devices: int
    collectives: tuple[Collective, ...]
    products: tuple[Product, ...]
    cycles: float
    loops: tuple[int, int]
    unparsed: tuple[str, ...]

    def check(self) -> "Compiled":
        """Itself; raises Unparsed if there is anything that was not understood."""
        if self.unparsed:
            raise Unparsed(
                f"{len(self.unparsed)} lines of the compiled program cannot be read: {self.unparsed[0][:200]}"
            )
        return self

    @property
    def flops(self) -> int:
        """Operations of all products, taking loops whose turns nobody knows once."""
        return sum(each.flops * math.prod(t for t in each.turns if t is not None) for each in self.products)


def read(text: str) -> Compiled:
    """Reads the text of a compiled program, as ``jax.stages.Compiled.as_text`` gives it.

    Args:
      text: of a module of HLO after the partitioner.
    """
    devices = (
        math.prod(int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])) or 1
    )
    return _Reader(_computations(text), devices, _lines_of_collectives(text)).compiled()


def axes_of(collective: Collective, mesh: Mapping[str, int]) -> str:
    """The axes of a mesh that a collective is over, joined by ``+``; ``mixed`` where its groups are no product of axes.

    Args:
      collective: of a program for this mesh, whose devices are numbered along its axes, the last one fastest.
      mesh: sizes of the axes, in order.
    """
    shape = tuple(mesh.values())
    varying: set[int] = set()
    for group in collective.groups:
        places = np.array(np.unravel_index(group, shape))
        own = {i for i, along in enumerate(places) if len(set(along.tolist())) > 1}
        if collective.operation != "collective-permute" and math.prod(shape[i] for i in own) != len(group):
            return "mixed"
        varying |= own
    if collective.operation != "collective-permute" and math.prod(shape[i] for i in varying) != collective.size:
        return "mixed"
    return "+".join(name for i, name in enumerate(mesh) if i in varying) or "none"


def totals(
    collectives: Sequence[Collective], mesh: Mapping[str, int]
) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Count, bytes and bytes on the wire of collectives, by operation and axes."""
    sums: dict[tuple[str, str], tuple[int, float, float]] = {}
    for each in collectives:
        key = each.operation, axes_of(each, mesh)
        count, whole, wire = sums.get(key, (0, 0.0, 0.0))
        sums[key] = count + each.times, whole + each.times * each.bytes, wire + each.times * each.wire_bytes
    return sums


class _Instruction(NamedTuple):
    name: str
    type: str
    opcode: str
    operands: str
    attributes: str
    line: str


class _Reader:
    """Goes through a program from its entry, into everything that it calls."""

    def __init__(self, computations: tuple[str, dict[str, list[_Instruction]]], devices: int, lines: int):
        self._entry, self._computations = computations
        self._devices, self._lines = devices, lines
        self._collectives: list[Collective] = []
        self._products: list[Product] = []
        self._cycles = 0.0
        self._loops = [0, 0]
        self._unparsed: list[str] = []
        self._read: set[str] = set()  # lines of collectives that were come to

    def compiled(self) -> Compiled:
        """What was found."""
        self._visit(self._entry, ())
        found = len(self._read)
        if found < self._lines:
            self._unparsed.append(f"{self._lines - found} collectives that nothing calls, or that are no instructions")
        return Compiled(
            self._devices,
            tuple(self._collectives),
            tuple(self._products),
            self._cycles,
            (self._loops[0], self._loops[1]),
            tuple(self._unparsed),
        )

    def _visit(self, computation: str, turns: tuple[int | None, ...]) -> None:
        own = self._computations.get(computation)
        if own is None:
            self._unparsed.append(f"computation {computation} is not there")
            return
        types = {each.name: each.type for each in own}
        for each in own:
            kind = each.opcode.removesuffix("-start")
            if kind in COLLECTIVES:
                self._collective(each, kind, computation, turns, types)
            elif each.opcode in ("dot", "convolution") or _is_library(each):
                self._product(each, turns, types)
            self._cycles += _cycles(each) * math.prod(turn for turn in turns if turn is not None)
            if each.opcode == "while":
                self._loop(each, turns, own)
            elif not each.opcode.endswith(("-done", "-update")) and kind not in (*COLLECTIVES, *_REDUCING):
                for called in _called(each):
                    self._visit(called, turns)

    def _loop(self, each: _Instruction, turns: tuple[int | None, ...], beside: Sequence[_Instruction]) -> None:
        known = re.search(r'"?known_trip_count"?:\{"?n"?:"?(\d+)"?\}', each.attributes)
        body, condition = (re.search(rf"{name}=%?([\w.\-]+)", each.attributes) for name in ("body", "condition"))
        if body is None or condition is None:
            self._unparsed.append(each.line)
            return
        turn = int(known[1]) if known else self._counted(each, beside, body[1], condition[1])
        self._loops[turn is None] += 1
        self._visit(body[1], (*turns, turn))

    def _counted(self, each: _Instruction, beside: Sequence[_Instruction], body: str, condition: str) -> int | None:
        """The turns of a loop that counts from a constant, by another, while it is below a third; None of any other."""
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
        turns: tuple[int | None, ...],
        types: Mapping[str, str],
    ) -> None:
        self._read.add(each.line)
        try:
            groups = _groups(each.attributes, operation, self._devices)
            arrays = _payload(each, operation, types)
        except Unparsed:
            self._unparsed.append(each.line)
            return
        if operation == "all-reduce" and _SCATTERS.search(computation):  # of whose sum each device keeps a part
            operation = "reduce-scatter"
        if all(len(group) == 1 for group in groups):
            return  # nobody to exchange with
        self._collectives.append(Collective(operation, arrays, groups, turns, each.name))

    def _product(self, each: _Instruction, turns: tuple[int | None, ...], types: Mapping[str, str]) -> None:
        operands = [_dims(types[name]) for name in _operands(each) if name in types]
        out = _dims(each.type)
        if len(operands) < 2:
            self._unparsed.append(each.line)
            return
        if each.opcode != "convolution":
            contracted = re.search(r"lhs_contracting_dim(?:s=\{|ensions\":\[)([\d,\"]*)", each.attributes)
            if contracted is None and each.opcode != "dot":
                self._unparsed.append(each.line)
                return
            summed = [operands[0][int(i)] for i in re.findall(r"\d+", contracted[1])] if contracted else []
            flops = 2 * math.prod(out) * math.prod(summed)
        else:
            products = _products_of_convolution(each.attributes, operands[0], operands[1], out)
            if products is None:
                self._unparsed.append(each.line)
                return
            flops = 2 * products
        self._products.append(Product(flops, turns))


def _is_library(each: _Instruction) -> bool:
    """Whether an instruction calls a library that does products."""
    target = re.search(r'custom_call_target="([^"]*)"', each.attributes) if each.opcode == "custom-call" else None
    return target is not None and _LIBRARIES.search(target[1]) is not None


def _constant(each: _Instruction | None) -> int | None:
    """The whole number that an instruction is; None if it is another."""
    number = re.fullmatch(r"-?\d+", each.operands) if each is not None and each.opcode == "constant" else None
    return int(number[0]) if number else None


def _element(tuple_: _Instruction | None, index: int, beside: Mapping[str, _Instruction]) -> _Instruction | None:
    """What was put into a place of a tuple, behind copies of it."""
    if tuple_ is None or tuple_.opcode != "tuple":
        return None
    return _behind(beside.get(_operands(tuple_)[index]), beside)


def _behind(each: _Instruction | None, beside: Mapping[str, _Instruction]) -> _Instruction | None:
    """What an instruction copies, or itself."""
    while each is not None and each.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
        each = beside.get(_operands(each)[0])
    return each


def _products_of_convolution(
    attributes: str, given: Sequence[int], kernel: Sequence[int], out: Sequence[int]
) -> int | None:
    """Products of two numbers in a convolution, but those with the zeros of padding and dilation; None if unreadable.

    Products of matrices with axes of batches are convolutions to the compiler of TPUs, most of whose taps meet zeros.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", (re.search(r"window=\{([^}]*)\}", attributes) or [""])[0]))
    if labels is None or [len(each) for each in labels.groups()] != [len(given), len(kernel), len(out)]:
        return None
    if "batch_group_count" in attributes:
        return None
    places = [str(i) for i in range(len(out) - 2)]
    sizes = [int(size) for size in window.get("size", "").split("x") if size] or [1] * len(places)
    strides, spread, apart = (
        [int(each) for each in window[name].split("x")] if name in window else [1] * len(places)
        for name in ("stride", "lhs_dilate", "rhs_dilate")
    )
    pads = [int(each.split("_")[0]) for each in window["pad"].split("x")] if "pad" in window else [0] * len(places)
    products = out[labels[3].index("b")] * out[labels[3].index("f")] * kernel[labels[2].index("i")]
    for i, place in enumerate(places):
        at = np.arange(out[labels[3].index(place)]) * strides[i] - pads[i]
        last = (given[labels[1].index(place)] - 1) * spread[i]
        met = 0
        for tap in range(sizes[i]):
            over = at + tap * apart[i]
            met += int(np.count_nonzero((over >= 0) & (over <= last) & (over % spread[i] == 0)))
        products *= met
    return products


_REDUCING = ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map")  # which call a few scalars


def _computations(text: str) -> tuple[str, dict[str, list[_Instruction]]]:
    """The name of the entry, and the instructions of every computation by its name."""
    found: dict[str, list[_Instruction]] = {}
    entry, current = "", None
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
    kind, rest = rest[:end], rest[end:].lstrip()
    opcode = re.match(r"([a-z][\w\-]*)\(", rest)
    if opcode is None:
        return None
    closing = _closing(rest[opcode.end() - 1 :]) + opcode.end() - 1
    return _Instruction(match[1], kind, opcode[1], rest[opcode.end() : closing - 1], rest[closing:], line.strip())


def _closing(text: str) -> int:
    """The place after the parenthesis that closes the first."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return i + 1
    return len(text)


def _lines_of_collectives(text: str) -> int:
    """How many lines say which devices exchange something."""
    return sum(
        "replica_groups=" in line or "source_target_pairs=" in line for line in set(map(str.strip, text.splitlines()))
    )


def _called(each: _Instruction) -> Iterator[str]:
    """Names of the computations that an instruction calls."""
    for match in _CALLED.finditer(each.attributes):
        rest = each.attributes[match.end() :]
        listed = re.match(r"\{([^}]*)\}", rest)
        names = listed[1] if listed else re.split(r"[, ]", rest, maxsplit=1)[0]
        yield from _NAMES.findall(names)


def _operands(each: _Instruction) -> list[str]:
    marked: list[str] = re.findall(r"%([\w.\-]+)", each.operands)
    return marked or _NAMES.findall(each.operands)


def _dims(kind: str) -> list[int]:
    shape = _SHAPE.search(kind)
    return [int(size.removeprefix("<=")) for size in shape[2].split(",") if size] if shape else []


def _arrays(kind: str) -> list[float]:
    """The bytes of each array of a type."""
    return [
        math.prod(int(size.removeprefix("<=")) for size in dims.split(",") if size) * _bits(dtype) / 8
        for dtype, dims in _SHAPE.findall(kind)
    ]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    width = re.match(r"[a-z]+(\d+)", dtype)
    if width is None:
        raise Unparsed(dtype)
    return int(width[1])


def _payload(each: _Instruction, operation: str, types: Mapping[str, str]) -> float:
    """Bytes of the whole arrays of a collective."""
    given = [size for name in _operands(each) for size in _arrays(types.get(name, ""))]
    if operation in ("reduce-scatter", "all-reduce", "all-to-all", "ragged-all-to-all", "collective-permute"):
        if not given:
            given = _arrays(each.operands)
        if not given:
            raise Unparsed(each.line)
        return given[0] if operation == "collective-permute" else sum(given)
    arrays = _arrays(each.type)
    if not arrays:
        raise Unparsed(each.line)
    return sum(arrays[len(arrays) // 2 :]) if each.opcode.endswith("-start") and len(arrays) > 1 else sum(arrays)


def _groups(attributes: str, operation: str, devices: int) -> tuple[tuple[int, ...], ...]:
    """Who exchanges with whom, in any of the spellings that there are."""
    if operation == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
        if pairs is None:
            raise Unparsed(attributes)
        return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs[1])) or ((0,),)
    said = re.search(r"replica_groups=(.*)", attributes)
    if said is None:
        raise Unparsed(attributes)
    text = said[1]
    if listed := re.match(r"\{((?:\{[\d,]*\},?)*)\}", text):
        groups = [tuple(int(i) for i in own.split(",") if i) for own in re.findall(r"\{([\d,]*)\}", listed[1])]
        return tuple(group for group in groups if group) or (tuple(range(devices)),)
    if iota := re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        return _of_iota(_numbers(iota[1]), _numbers(iota[2]), iota[3])
    if mesh := re.match(
        r"@?mesh[\[<]([^\]>]*)[\]>](?:, device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?|[\d,]+)\))? \{([^}]*)\}", text
    ):
        return _of_mesh(mesh[1], mesh[2], mesh[3])
    raise Unparsed(text)


def _of_iota(shape: Sequence[int], dims: Sequence[int], order: str | None) -> tuple[tuple[int, ...], ...]:
    """Groups as rows of a table of all numbers that is reshaped, turned and reshaped again."""
    if math.prod(shape) != math.prod(dims):
        raise Unparsed(f"{shape} of {dims}")
    ids = np.arange(math.prod(dims)).reshape(dims)
    if order is not None:
        ids = ids.transpose(_numbers(order))
    return tuple(tuple(group) for group in ids.reshape(-1, shape[-1]).tolist())


def _of_mesh(sizes: str, device_ids: str | None, named: str) -> tuple[tuple[int, ...], ...]:
    """Groups along axes of a mesh, or parts of axes: ``'a':(2)4`` are the middle 4 of 2 × 4 × rest."""
    axes = {name: int(size) for name, size in re.findall(r"'?([\w.\-]+)'?=(\d+)", sizes)}
    count = math.prod(axes.values())
    if device_ids is None:
        ids = np.arange(count)
    elif turned := re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", device_ids):
        ids = np.arange(count).reshape(_numbers(turned[1]))
        ids = ids.transpose(_numbers(turned[2])) if turned[2] else ids
    else:
        ids = np.array(_numbers(device_ids))
    if ids.size != count:
        raise Unparsed(device_ids or sizes)
    parts: dict[str, list[tuple[int, int]]] = {}  # of each axis: what is before a part, and its size
    for name, before, size in re.findall(r"'?([\w.\-]+)'?(?::\((\d+)\)(\d+))?", named):
        if name not in axes:
            raise Unparsed(named)
        parts.setdefault(name, []).append((int(before), int(size)) if before else (1, axes[name]))
    dims: list[int] = []
    within: list[int] = []
    for name, size in axes.items():
        edges = sorted({1, size, *(e for before, own in parts.get(name, []) for e in (before, before * own))})
        for low, high in itertools.pairwise(edges):
            if high % low:
                raise Unparsed(named)
            if any(before <= low and high <= before * own for before, own in parts.get(name, [])):
                within.append(len(dims))
            dims.append(high // low)
    ids = ids.reshape(dims) if dims else ids.reshape(1)
    ids = np.moveaxis(ids, within, range(-len(within), 0)) if within else ids
    size = math.prod(dims[i] for i in within)
    return tuple(tuple(group) for group in ids.reshape(-1, size).tolist())


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _cycles(each: _Instruction) -> float:
    found = re.search(r'"estimated_cycles":"(\d+)"', each.attributes)
    return float(found[1]) if found else 0.0
