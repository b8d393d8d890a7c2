"""Parses the collectives, matmuls, convolutions and loops of a compiled program from its HLO text.

All numbers are per device. The costs of a loop's body are multiplied by the loop's trip count. The body of a loop with
an unknown trip count, such as a traced number of steps, is counted once, and the loop is listed separately. Lines that
cannot be parsed are kept, so ``check`` can raise an error.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from harness.compiled import device_groups, jaxpr_cost
from harness.compiled.device_groups import Unparsed, numbers
from results.aliases import Strings
from results.costs.collectives import COLLECTIVES, Collective, Turns, times

_BITS = {"pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "token": 0, "opaque": 0}
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{\s*$")
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|\w+_computations?)=(?:\{([^}]*)\}|([^, ]*))")
_NAMES = re.compile(r"%?([\w.\-]+)")
_TRIP_COUNT = re.compile(r'"?known_trip_count"?:\{"?n"?:"?(\d+)"?\}')
_REDUCING = ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map")  # call scalar computations
# Libraries for matmuls and convolutions. Only calls that list their contracted axes, as XLA's GPU backend emits them,
# can be parsed.
_LIBRARIES = re.compile(r"gemm|matmul|cublas|cudnn|conv|fmha|attention|triton|cutlass|tpu_custom_call", re.IGNORECASE)


@dataclasses.dataclass
class Compiled:
    """A compiled program.

    Attributes:
      devices: number of devices that run it.
      collectives: the program's collectives.
      flops: FLOPs of all matmuls and convolutions, two per multiply-add.
      cycles: cycles in the compiler's schedule on TPUs, 0 on other devices.
      loops: number of loops with a known trip count, and number with an unknown one.
      unparsed: lines that could not be parsed.
    """

    devices: int
    collectives: tuple[Collective, ...] = ()
    flops: int = 0
    cycles: float = 0.0
    loops: tuple[int, int] = (0, 0)
    unparsed: Strings = ()

    def check(self) -> "Compiled":
        """Returns self. Raises Unparsed if any line could not be parsed."""
        if self.unparsed:
            count = len(self.unparsed)
            raise Unparsed(f"{count} lines of the compiled program cannot be read: {self.unparsed[0][:200]}")
        return self


def read(text: str) -> Compiled:
    """Parses a compiled program from the text returned by ``jax.stages.Compiled.as_text``.

    Args:
      text: HLO module after partitioning.
    """
    counts = re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.split("\n", 1)[0])
    entry, computations = _computations(text)
    reader = _Reader(computations, Compiled(math.prod(map(int, counts)) or 1))
    reader.visit(entry, ())
    lines = {line.strip() for line in text.splitlines() if "replica_groups=" in line or "source_target_pairs=" in line}
    if missed := lines - reader.seen:
        reader.program.unparsed += (f"{len(missed)} collectives that are never called or are not instructions",)
    return reader.program


class _Instruction(NamedTuple):
    name: str
    type: str
    opcode: str
    given: str  # text between the parentheses
    attributes: str
    line: str

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.given) or _NAMES.findall(self.given)


Computation = dict[str, _Instruction]  # instructions by name, in order


class _Reader:
    """Traverses all computations of a program, starting at the entry computation.

    Attributes:
      program: the counts so far.
      seen: lines of the collectives visited so far.
    """

    def __init__(self, computations: Mapping[str, Computation], program: Compiled):
        self._computations = computations
        self.program = program
        self.seen: set[str] = set()

    def visit(self, name: str, turns: Turns) -> None:
        """Adds the counts of a computation that is called inside loops with the given trip counts."""
        if name not in self._computations:
            self.program.unparsed += (f"computation {name} is missing",)
            return
        computation = self._computations[name]
        for instruction in computation.values():
            opcode = instruction.opcode.removesuffix("-start")
            try:
                if opcode in COLLECTIVES:
                    self.seen.add(instruction.line)
                    self._collective(instruction, opcode, name, turns, computation)
                elif opcode in ("dot", "convolution") or _is_library(instruction):
                    self.program.flops += _flops(instruction, computation) * times(turns)
                elif opcode == "while":
                    self._loop(instruction, turns, computation)
            except Unparsed:
                self.program.unparsed += (instruction.line,)
            if cycles := re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes):
                self.program.cycles += float(cycles[1]) * times(turns)
            if not opcode.endswith(("-done", "-update")) and opcode not in ("while", *COLLECTIVES, *_REDUCING):
                for called in _called(instruction):
                    self.visit(called, turns)

    def _loop(self, loop: _Instruction, turns: Turns, computation: Computation) -> None:
        body, condition = (re.search(rf"{name}=%?([\w.\-]+)", loop.attributes) for name in ("body", "condition"))
        if body is None or condition is None:
            raise Unparsed(loop.line)
        count = _TRIP_COUNT.search(loop.attributes)
        inside, test = (self._computations.get(match[1], {}) for match in (body, condition))
        turn = int(count[1]) if count else _counted(loop, computation, inside, test)
        with_count, without = self.program.loops
        self.program.loops = (with_count, without + 1) if turn is None else (with_count + 1, without)
        self.visit(body[1], (*turns, turn))

    def _collective(
        self, instruction: _Instruction, operation: str, name: str, turns: Turns, computation: Computation
    ) -> None:
        groups = device_groups.read(instruction.attributes, self.program.devices)
        if operation == "all-reduce" and "all-reduce-scatter" in name:  # each device keeps one part of the sum
            operation = "reduce-scatter"
        if any(len(group) > 1 for group in groups):  # otherwise, there is no communication
            size = _payload(instruction, operation, computation)
            self.program.collectives += (Collective(operation, size, groups, turns, instruction.name),)


def _counted(loop: _Instruction, outside: Computation, body: Computation, condition: Computation) -> int | None:
    """Returns the trip count of a loop that counts up to a constant, or None for any other loop."""
    try:
        compare = _root(condition, "compare")
        counter, end = (_source(name, condition) for name in compare.operands)
        place = _index(counter)
        start = _element(outside[loop.operands[0]], place, outside)
        first, last = _constant(start), _constant(end)
        grown = _element(_root(body, "tuple"), place, body)
        terms = [_source(name, body) for name in grown.operands]
        counters = [term for term in terms if term.opcode == "get-tuple-element" and _index(term) == place]
        (step,) = (_constant(term) for term in terms if term.opcode == "constant")
    except (LookupError, ValueError):
        return None
    if grown.opcode != "add" or not counters or "direction=LT" not in compare.attributes or step < 1:
        return None
    return max(0, -(-(last - first) // step))


def _checked(instruction: _Instruction, opcode: str) -> _Instruction:
    """Returns the instruction. Raises ValueError if it has another opcode."""
    if instruction.opcode != opcode:
        raise ValueError(instruction.line)
    return instruction


def _root(computation: Computation, opcode: str) -> _Instruction:
    (root,) = (instruction for instruction in computation.values() if instruction.line.startswith("ROOT"))
    return _checked(root, opcode)


def _source(name: str, computation: Computation) -> _Instruction:
    """Returns the named instruction. If it is a copy, its source is returned."""
    instruction = computation[name]
    while instruction.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
        instruction = computation[instruction.operands[0]]
    return instruction


def _element(elements: _Instruction, place: int, computation: Computation) -> _Instruction:
    """Returns the instruction that computes an element of a tuple."""
    return _source(_checked(elements, "tuple").operands[place], computation)


def _index(element: _Instruction) -> int:
    return int(re.findall(r"index=(\d+)", _checked(element, "get-tuple-element").attributes)[0])


def _constant(instruction: _Instruction) -> int:
    return int(_checked(instruction, "constant").given)


def _is_library(instruction: _Instruction) -> bool:
    """Returns whether an instruction calls a library for matmuls or convolutions."""
    target = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
    return instruction.opcode == "custom-call" and target is not None and bool(_LIBRARIES.search(target[1]))


def _flops(product: _Instruction, computation: Computation) -> int:
    """Returns the FLOPs of a matmul or convolution."""
    operands = [_dims(computation[name].type) for name in product.operands if name in computation]
    out = _dims(product.type)
    if len(operands) < 2:
        raise Unparsed(product.line)
    if product.opcode == "convolution":
        return _flops_of_convolution(product.attributes, operands[0], operands[1], out)
    contracted = re.search(r"lhs_contracting_dim(?:s=\{|ensions\":\[)([\d,\"]*)", product.attributes)
    if contracted is None and product.opcode != "dot":
        raise Unparsed(product.line)
    summed = [operands[0][int(i)] for i in re.findall(r"\d+", contracted[1])] if contracted else []
    return 2 * math.prod(out) * math.prod(summed)


def _flops_of_convolution(attributes: str, inputs: Sequence[int], kernel: Sequence[int], out: Sequence[int]) -> int:
    """Returns the FLOPs of a convolution, excluding zeros from padding and dilation.

    The TPU compiler turns batched matmuls into convolutions, and most of their taps multiply zeros.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", (re.search(r"window=\{([^}]*)\}", attributes) or [""])[0]))
    if labels is None or "batch_group_count" in attributes:
        raise Unparsed(attributes)
    if list(map(len, labels.groups())) != [len(inputs), len(kernel), len(out)]:
        raise Unparsed(attributes)
    axes = range(len(out) - 2)

    def along(name: str, default: int) -> list[int]:
        sizes = window[name].split("x") if name in window else [str(default) for _ in axes]
        return [int(size.split("_")[0]) for size in sizes]

    sizes, strides, spread, dilation = (along(name, 1) for name in ("size", "stride", "lhs_dilate", "rhs_dilate"))
    pads = along("pad", 0)
    flops = 2 * out[labels[3].index("b")] * out[labels[3].index("f")] * kernel[labels[2].index("i")]
    for i in axes:
        count, outputs = inputs[labels[1].index(str(i))], out[labels[3].index(str(i))]
        flops *= jaxpr_cost.taps(count, outputs, sizes[i], strides[i], pads[i], spread[i], dilation[i])
    return flops


def _computations(text: str) -> tuple[str, dict[str, Computation]]:
    """Returns the name of the entry computation, and all computations by name."""
    computations: dict[str, Computation] = {}
    entry = ""
    current = None
    for line in text.splitlines():
        if not line.startswith((" ", "}")) and (head := _COMPUTATION.match(line)):
            current = computations.setdefault(head[2], {})
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (instruction := _instruction(line)) is not None:
            current[instruction.name] = instruction
    return entry, computations


def _instruction(line: str) -> _Instruction | None:
    if (match := _INSTRUCTION.match(line)) is None:
        return None
    text = match[2]
    end = _closing(text) if text.startswith("(") else text.find(" ")
    shape, text = text[:end], text[end:].lstrip()
    if (opcode := re.match(r"([a-z][\w\-]*)\(", text)) is None:
        return None
    start = opcode.end()
    closing = _closing(text[start - 1 :]) + start - 1
    return _Instruction(match[1], shape, opcode[1], text[start : closing - 1], text[closing:], line.strip())


def _closing(text: str) -> int:
    """Returns the position after the parenthesis that closes the first opening parenthesis."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return i + 1
    return len(text)


def _called(instruction: _Instruction) -> Iterator[str]:
    """Returns the names of the computations that an instruction calls."""
    for match in _CALLED.finditer(instruction.attributes):
        yield from _NAMES.findall(match[1] or match[2])


def _dims(shape: str) -> list[int]:
    match = _SHAPE.search(shape)
    return numbers(match[2]) if match else []


def _arrays(shape: str) -> list[float]:
    """Returns the bytes of each array of a type."""
    return [math.prod(numbers(dims)) * _bits(dtype) / 8 for dtype, dims in _SHAPE.findall(shape)]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    width = re.match(r"[a-z]+(\d+)", dtype)
    if width is None:
        raise Unparsed(dtype)
    return int(width[1])


def _payload(instruction: _Instruction, operation: str, computation: Computation) -> float:
    """Returns the bytes of the full (unsharded) arrays of a collective."""
    if operation in ("all-gather", "collective-broadcast"):
        arrays = _arrays(instruction.type)
        if instruction.opcode.endswith("-start") and len(arrays) > 1:  # the operands and the results
            arrays = arrays[len(arrays) // 2 :]
    else:
        types = [computation[name].type for name in instruction.operands if name in computation]
        arrays = [size for shape in types for size in _arrays(shape)] or _arrays(instruction.given)
    if not arrays:
        raise Unparsed(instruction.line)
    return arrays[0] if operation == "collective-permute" else sum(arrays)
