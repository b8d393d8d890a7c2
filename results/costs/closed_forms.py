"""Costs of a layout in closed form: FLOPs, memory and collectives of a training step, without JAX or a compiler.

The model is the decoder used in layout studies, whose tensors have named axes. A layout splits each axis across at most
one mesh axis. The rules follow XLA's partitioner:

- A matmul and its two gradients are products over named axes. A product is sharded across the mesh axes that split its
  axes. If a summed axis is split, the output is all-reduced.
- If a product needs a whole parameter that is sharded, the parameter is gathered for the forward and for the backward
  pass.
- If the next product needs a whole activation that is sharded, the activation is gathered.

Gradients of parameters are sums over the batch, so the cost of data parallelism follows from the first rule.
``docs/layouts.md`` lists the cases in which the partitioner behaves differently.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from results.costs.collectives import Axes, Collective, Groups, Totals, summed
from results.costs.counts import Work
from results.costs.decoder_counts import scores_in_blocks

Names = tuple[str, ...]
Sent = dict[tuple[str, str, int, str], int]  # bytes of a collective by operation, mesh axis, times and name
# Axes of activations. The residual stream has the axis act_length in place of length.
STREAM: Names = ("batch", "length", "act_embed")
QUERIES: Names = ("batch", "length", "heads", "kv")
KEYS: Names = ("batch", "memory_length", "heads", "kv")
SCORES: Names = ("batch", "heads", "length", "memory_length")
HIDDEN: Names = ("batch", "length", "mlp")
LOGITS: Names = ("batch", "length", "vocab")
TOKENS: Names = ("batch", "length")
KEY_HEADS = "key_heads"  # axis of keys and values that several heads share
_WIDTH = 4  # bytes of float32 and int32
NUMBERS = 10  # of a step: those of steps of the trial and of Adam, three of the schedule, and five metaparameters


class Matmul(NamedTuple):
    """A matmul, which sums over the axes that are missing from its result.

    Attributes:
      name: name of its parameter, or of its result if it multiplies two activations.
      given, weight, result: axes of the first factor, the second factor and the result.
    """

    name: str
    given: Names
    weight: Names
    result: Names


# Matmuls of a block. Those in one row share their input, so their collectives are combined. Keys and values have the
# axis length until they are gathered.
BLOCK = (
    (
        Matmul("query", STREAM, ("act_embed", "heads", "kv"), QUERIES),
        Matmul("key", STREAM, ("act_embed", "heads", "kv"), QUERIES),
        Matmul("value", STREAM, ("act_embed", "heads", "kv"), QUERIES),
    ),
    (Matmul("scores", QUERIES, KEYS, SCORES),),
    (Matmul("attended", SCORES, KEYS, QUERIES),),
    (Matmul("out", QUERIES, ("heads", "kv", "act_embed"), STREAM),),
    (
        Matmul("enter", STREAM, ("act_embed", "mlp"), HIDDEN),
        Matmul("gate", STREAM, ("act_embed", "mlp"), HIDDEN),
    ),
    (Matmul("leave", HIDDEN, ("mlp", "act_embed"), STREAM),),
)
PREDICT = Matmul("predict", STREAM, ("act_embed", "vocab"), LOGITS)
# Copies of each activation of a block that XLA for CPUs holds at the peak, fitted to compiled layouts.
_SCORES = 4
_COPIES = ((6, STREAM), (4, ("batch", "act_length", "act_embed")), (4, QUERIES), (_SCORES, SCORES), (4, HIDDEN))
# Traffic of Adam relative to the bytes of parameters and moments: it reads the parameter, both moments and the
# gradient, and writes all but the gradient.
STATE_TRAFFIC = 7 / 3


class Costs(NamedTuple):
    """Costs of one training step on one device.

    Attributes:
      work: FLOPs of matmuls, two per multiply-add, and the bytes that they read and write.
      argument_bytes: bytes of parameters, of both of Adam's moments, of the batch, and of ``NUMBERS``.
      activation_bytes: estimated bytes of activations and gradients at peak memory.
      collectives: collectives of the step. Each one lists only its first group, because all groups are alike.
      totals: count, bytes and wire bytes of the collectives, by operation and mesh axis.
    """

    work: Work
    argument_bytes: int
    activation_bytes: int
    collectives: tuple[Collective, ...]
    totals: Totals

    @property
    def flops(self) -> int:
        """FLOPs of matmuls."""
        return int(self.work.flops)


def sizes_of(shape: Mapping[str, int], batch: int, length: int) -> dict[str, int]:
    """Returns the size of each named axis.

    Args:
      shape: numbers of layers, heads and tokens, and widths, as defined in ``workloads.layouts.shapes.Shape``.
      batch, length: number of sequences, and number of tokens per sequence.
    """
    widths = {name: shape[name] for name in ("layers", "embed", "heads", "kv", "mlp", "vocab")}
    if 0 < shape.get(KEY_HEADS, 0) < shape["heads"]:
        widths[KEY_HEADS] = shape[KEY_HEADS]
    lengths = dict.fromkeys(("length", "act_length", "memory_length"), length)
    return {"batch": batch, **lengths, "act_embed": shape["embed"], **widths}


def work(
    sizes: Mapping[str, int],
    mesh: Axes,
    layout: Mapping[str, str],
    *,
    gated: bool,
    tied: bool,
    width: int = _WIDTH,
    rematerialized: bool = False,
    attention_block: int = 0,
    window: int = 0,
) -> Work:
    """Returns the work of all matmuls in a training step of a decoder, on one device.

    Args:
      sizes, mesh, layout, width, rematerialized, attention_block, window: see ``closed_form``.
      gated: whether the hidden layer has a gate.
      tied: whether the embedding table is also the output layer.
    """
    parameters: dict[str, Names] = {"gate": ()} if gated else {}
    parameters |= {} if tied else {"predict": ()}
    step = _Step(sizes, parameters, mesh, layout, width, rematerialized, attention_block, window)
    step.add_products(joined=False)
    return step.work


def closed_form(
    sizes: Mapping[str, int],
    parameters: Mapping[str, Names],
    mesh: Axes,
    layout: Mapping[str, str],
    *,
    width: int = _WIDTH,
    rematerialized: bool = False,
    joined: bool = False,
    attention_block: int = 0,
    window: int = 0,
    accumulation: int = 1,
) -> Costs:
    """Returns the costs of a training step of a decoder.

    Args:
      sizes: size of each named axis. The batch is the global batch.
      parameters: axes of each parameter, as defined in ``workloads.layouts.shapes``. If there is no ``predict``, the
        embedding table is also the output layer. If there is a ``gate``, the hidden layer is gated.
      mesh: sizes of the mesh axes, in order.
      layout: mesh axis across which each tensor axis is split. The layout must be valid.
      width: bytes per number in activations and in collectives: 4 on CPUs, which send bfloat16 as float32, and 2 for
        bfloat16 on TPUs.
      rematerialized: whether the backward pass recomputes blocks.
      joined: whether the gradients of an activation are added up before they are summed over devices, as on TPUs. On
        CPUs, they are summed over devices first.
      attention_block: number of tokens per block in blocked attention, or 0 if all scores are stored. Blocks of scores
        stay on the chip. The backward pass computes them again, and skips those that are fully masked.
      window: number of tokens that a token attends to, or 0 for all earlier tokens. It saves work only with blocks.
      accumulation: number of parts in which a device processes its share of the batch. Gradients are summed over
        devices once. It must divide the batch.
    """
    sizes = {**sizes, "batch": sizes["batch"] // accumulation}
    step = _Step(sizes, parameters, mesh, layout, width, rematerialized, attention_block, window)
    step.add_products(joined)
    step.add_parameters()
    step.add_activations()
    step.add_norms()
    step.add_table()
    step.add_loss()
    arguments = sum(map(step.elements, parameters.values()))
    tokens = accumulation * step.elements(("batch",)) * 2 * sizes["length"]  # inputs and labels
    parts = {
        (operation, axis, times if name.startswith("gradients") else accumulation * times, name): size
        for (operation, axis, times, name), size in step.sent.items()
    }
    return Costs(
        step.work.times(accumulation)._replace(state_bytes=STATE_TRAFFIC * 3 * _WIDTH * arguments),
        _WIDTH * (3 * arguments + tokens + NUMBERS),
        step.activation_bytes(arguments),
        *_collectives(parts, mesh),
    )


class _Step:
    """The FLOPs and collectives of a step, which are accumulated part by part."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        parameters: Mapping[str, Names],
        mesh: Axes,
        layout: Mapping[str, str],
        width: int,
        rematerialized: bool,
        attention_block: int,
        window: int,
    ):
        self.work = Work()
        self._sizes, self._parameters, self._mesh, self._width = sizes, parameters, mesh, width
        self._layers = sizes["layers"]
        self._again = rematerialized
        self._tied = "predict" not in parameters
        self._blocked = attention_block > 0
        self._seen = self._held = 1.0  # shares of all scores that are computed, and that are in memory
        if self._blocked:
            block = min(attention_block, sizes["length"])
            self._seen = scores_in_blocks(sizes["length"], window, block) / sizes["length"]
            self._held = (block / sizes["length"]) ** 2
        self._heads = KEY_HEADS if KEY_HEADS in sizes else "heads"  # axis of keys and values
        self._layout = {name: axis for name, axis in layout.items() if mesh[axis] > 1}
        self._own = {name: size // mesh.get(layout.get(name, ""), 1) for name, size in sizes.items()}
        self._length, self._stream, self._memory = map(self._layout.get, ("length", "act_length", "memory_length"))
        embed, self._wide = map(self._layout.get, ("embed", "act_embed"))
        differ = embed != self._wide
        self._gathered = embed if differ else None  # parameters are gathered over this axis
        self._sliced = self._wide if differ else None  # each device uses a slice of whole parameters
        self.sent: Sent = {}

    def add_products(self, joined: bool) -> None:
        """Adds the products of all matmuls, and the all-reduces of those that sum over a split axis."""
        for row in BLOCK:
            first = row[0].name
            for matmul in row:
                if matmul.name == "gate" and "gate" not in self._parameters:
                    continue
                if matmul.name in ("key", "value"):
                    matmul = matmul._replace(weight=self._keys(matmul.weight), result=self._keys(matmul.result))
                self._add(matmul, "result", f"result of {first}", self._layers)
                if self._again and matmul.name != "leave":  # nothing needs its result again
                    self._add(matmul, "result", f"result of {first} again", self._layers)
                if self._blocked and matmul.name == "scores":  # the backward pass computes them again
                    self._add(matmul, "result", f"result of {first} again", self._layers)
                summed = matmul.name == first or not joined
                self._add(matmul, "given", f"input of {first}", self._layers, summed=summed)
                name = "gradients of keys and values" if matmul.weight == KEYS else "gradients"
                self._add(matmul, "weight", name, self._layers)
        self._add(PREDICT, "result", "result of predict", 1)
        self._add(PREDICT, "given", "input of predict", 1)
        self._add(PREDICT, "weight", "gradients", 1, summed=not (joined and self._tied))  # summed with the table

    def _add(self, matmul: Matmul, output: str, name: str, times: int, *, summed: bool = True) -> None:
        """Adds one product of a matmul: the result, or the gradient of ``given`` or of ``weight``."""
        split = self._split(matmul, output)
        kept: Names = getattr(matmul, output)
        sizes = {axis: self._sizes[axis] for axis in (*matmul.given, *matmul.weight, *matmul.result)}
        for array_axis, axis in split.items():
            sizes[array_axis] //= self._mesh[axis]
        given, weight, result = (
            times * self._width * math.prod(sizes[array_axis] for array_axis in axes)
            for axes in (matmul.given, matmul.weight, matmul.result)
        )
        flops = 2 * times * math.prod(sizes.values())
        if matmul.name == "scores":
            self.work = self.work.plus(Work(self._seen * flops, given + weight, 0.0 if self._blocked else result))
        elif matmul.name == "attended":
            self.work = self.work.plus(Work(self._seen * flops, weight + result, 0.0 if self._blocked else given))
        else:
            self.work = self.work.plus(Work(flops, given + result, 0.0, weight))
        for axis in {axis for array_axis, axis in split.items() if summed and array_axis not in kept}:
            self._send("all-reduce", axis, math.prod(sizes[array_axis] for array_axis in kept), times, name)

    def _split(self, matmul: Matmul, output: str) -> dict[str, str]:
        """Returns the mesh axis across which each axis of a product is split.

        These are the mesh axes given by the layout, except for the length, which keys and the residual stream split
        differently.
        """
        axes = {*matmul.given, *matmul.weight, *matmul.result}
        split = {name: axis for name, axis in self._layout.items() if name in axes}
        length = split.pop("length", None)
        if matmul.name in ("key", "value") and self._memory:
            length = self._memory
        elif matmul.name == "value" and output == "given":
            length = None  # the gradient of values is whole
        elif matmul.name == "query" and output != "result":
            length = length or self._memory  # to be added to the gradients of the other projections
        elif matmul.name in ("out", "leave") and output != "given" and self._stream not in split.values():
            length = length or self._stream  # each device uses a slice of the input
        elif matmul.name == "predict" and output == "result" and self._sliced and not self._tied:
            del split["act_embed"]  # its input is gathered
        return split | {"length": length} if length else split

    def _keys(self, axes: Names) -> Names:
        """Returns the axes of keys, given those of queries: several heads may share their keys and values."""
        return tuple(self._heads if axis == "heads" else axis for axis in axes)

    def add_parameters(self) -> None:
        """Adds the gathers of parameters, and of gradients that devices compute in slices."""
        over_layers = self._layout.get("layers")
        for name, axes in self._parameters.items():
            stacked = axes[0] == "layers"
            scale = name.startswith("scale")
            if self._gathered and (name != "table" or self._tied):
                times = self._layers if stacked else 1
                if stacked or scale:
                    times *= 3 if self._again and stacked and scale else 2
                elements = self.elements(axes[1:] if stacked else axes, "embed")
                self._send("all-gather", self._gathered, elements, times, name)
            if self._sliced:
                self._send("all-gather", self._sliced, self.elements(axes, "embed", "layers"), 1, f"gradient of {name}")
            if over_layers and stacked:
                times = 1 if scale else 2
                self._send("all-gather", over_layers, self.elements(axes, "layers"), times, f"layers of {name}")

    def add_activations(self) -> None:
        """Adds the gathers of activations that the next product needs unsharded."""
        if self._length and not self._memory:
            keys = self.elements(self._keys(KEYS), "memory_length")
            self._send("all-gather", self._length, keys, 2 * self._layers, "keys and values")
        if self._memory and not self._length:
            self._send("all-gather", self._memory, self.elements(STREAM), self._layers, "gradient of projections")
        for axis in (self._length, self._stream):
            if axis and self._length != self._stream:
                times = (6 if self._again and axis == self._stream else 4) * self._layers + 2
                self._send("all-gather", axis, self.elements(STREAM, "length"), times, "residual stream")
        if self._sliced and not self._tied:
            self._send("all-gather", self._sliced, self.elements(STREAM, "act_embed"), 1, "input of predict")

    def add_norms(self) -> None:
        """Adds the all-reduces of norms, of gradients of their scales, and of softmax."""
        for name in (label for label in self._parameters if label.startswith("scale")):
            times = 1 if name == "scale_last" else self._layers
            for axis in self._over("batch", "length", "act_length"):
                self._send("all-reduce", axis, self.elements(("act_embed",)), times, "gradients")
            if self._wide:
                passes = [name, f"gradient of {name}"]
                if self._again and times > 1:
                    passes.append("norms again")
                for label in passes:
                    self._send("all-reduce", self._wide, self.elements(("batch", "act_length")), times, label, _WIDTH)
        if self._memory:
            rows = self.elements(("batch", "heads", "length"))
            for label in ("largest score", "sum of scores", "gradient of scores"):
                self._send("all-reduce", self._memory, rows, self._layers, label, _WIDTH)

    def add_table(self) -> None:
        """Adds the lookup in the embedding table, and the gradient of the table."""
        looked_up = self.elements(STREAM)
        if "vocab" in self._layout:
            self._send("all-reduce", self._layout["vocab"], looked_up, 1, "lookup")
        summed = self._over("batch", "length")
        if self._gathered in summed:  # each device looks up a slice of the embeddings of all tokens
            self._send("all-gather", self._gathered, self.elements(TOKENS, "batch"), 1, "tokens", _WIDTH)
            self._send("all-to-all", self._gathered, looked_up, 2, "lookup")
        elif self._gathered:
            self._send("all-gather", self._gathered, looked_up, 1, "lookup")
        table = self.elements(("vocab", "embed" if self._gathered else "act_embed"))
        for axis in summed - {self._gathered}:
            self._send("all-reduce", axis, table, 1, "gradients", _WIDTH)

    def add_loss(self) -> None:
        """Adds the all-reduces of the cross-entropy."""
        for axis in self._over("batch", "length"):
            self._send("all-reduce", axis, 1, 1, "gradients", _WIDTH)
        if "vocab" in self._layout:
            over, tokens = self._layout["vocab"], self.elements(TOKENS)
            self._send("all-reduce", over, tokens, 1, "largest logit")
            for label in ("sum of logits", "input of predict"):
                self._send("all-reduce", over, tokens, 1, label, _WIDTH)

    def activation_bytes(self, parameters: int) -> int:
        """Returns the estimated bytes of activations, and of gradients with the same size as the parameters."""
        block = sum(copies * self.elements(axes) for copies, axes in _COPIES)
        block -= int((1 - self._held) * _SCORES * self.elements(SCORES))
        if "gate" in self._parameters:
            block += 4 * self.elements(HIDDEN)
        blocks = self._layers * block
        if self._again:
            blocks = block + self._layers * self.elements(("batch", "act_length", "act_embed"))
        return self._width * (blocks + 2 * self.elements(LOGITS)) + _WIDTH * parameters

    def elements(self, axes: Iterable[str], *whole: str) -> int:
        """Returns the number of elements of a tensor on one device. The axes in ``whole`` are not split."""
        return math.prod(self._sizes[axis] if axis in whole else self._own[axis] for axis in axes)

    def _over(self, *names: str) -> set[str]:
        """Returns the mesh axes that split these axes."""
        return {self._layout[name] for name in names if name in self._layout}

    def _send(self, operation: str, axis: str, elements: int, times: int, name: str, width: int = 0) -> None:
        """Adds a collective. Collectives with the same name are combined."""
        key = operation, axis, times, name
        self.sent[key] = self.sent.get(key, 0) + elements * (width or self._width)


def _collectives(sent: Sent, mesh: Axes) -> tuple[tuple[Collective, ...], Totals]:
    """Returns the collectives and their totals."""
    collectives = []
    rows = []
    for (operation, axis, times, name), size in sorted(sent.items()):
        collective = Collective(operation, float(size), _first_group(tuple(mesh.items()), axis), (times,), name)
        collectives.append(collective)
        rows.append((operation, axis, times, float(times * size), times * collective.wire_bytes))
    return tuple(collectives), summed(rows)


@functools.lru_cache
def _first_group(mesh: tuple[tuple[str, int], ...], axis: str) -> Groups:
    """Returns the group of the first device along a mesh axis. The last mesh axis varies fastest."""
    stride = 1
    for name, size in reversed(mesh):
        if name == axis:
            return (tuple(range(0, size * stride, stride)),)
        stride *= size
    raise KeyError(axis)
