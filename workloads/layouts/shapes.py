"""Shapes of decoder Transformers: presets by name, and the named axes of their tensors and operations."""

import dataclasses
from collections.abc import Mapping

from results.bad_input import check_choice
from workloads.layouts.notation import Tensors


@dataclasses.dataclass(frozen=True)
class Shape:
    """The numbers of a decoder Transformer.

    Attributes:
      layers, embed, heads, kv, mlp, vocab: number of blocks, width, heads and the width of each, width of the hidden
        layer of a block, and number of tokens that there are.
      gated: whether the hidden layer is a product of two, as in Llama.
      tied: whether the last product is with the table of tokens, or with a matrix of its own.
    """

    layers: int
    embed: int
    heads: int
    kv: int
    mlp: int
    vocab: int
    gated: bool = False
    tied: bool = False

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(_product(self.sizes(1, 1), axes) for axes in parameters(self).values())

    def sizes(self, batch: int, length: int) -> dict[str, int]:
        """Sizes of all named axes of its tensors for a batch of sequences."""
        return {
            "batch": batch,
            "length": length,
            "act_length": length,
            "memory_length": length,
            "act_embed": self.embed,
            "layers": self.layers,
            "embed": self.embed,
            "heads": self.heads,
            "kv": self.kv,
            "mlp": self.mlp,
            "vocab": self.vocab,
        }

    def flops(self, batch: int, length: int) -> int:
        """Operations of all matrix products of a step of training: two for each product of two numbers, and twice as
        many backward as forward. Scores of attention count whole, masked or not, as they are computed."""
        projections = 4 * self.embed * self.heads * self.kv
        hidden = (3 if self.gated else 2) * self.embed * self.mlp
        attention = 2 * length * self.heads * self.kv
        per_token = self.layers * (projections + hidden + attention) + self.embed * self.vocab
        return 3 * 2 * batch * length * per_token


SHAPES: dict[str, Shape] = {
    "tiny": Shape(layers=2, embed=32, heads=4, kv=8, mlp=64, vocab=64),
    "small": Shape(layers=4, embed=128, heads=8, kv=16, mlp=512, vocab=1024),
    # Vaswani et al. 2017, arXiv 1706.03762, table 3 and section 5.1, as a decoder alone.
    "transformer_base": Shape(layers=6, embed=512, heads=8, kv=64, mlp=2048, vocab=37000, tied=True),
    # github.com/tensorflow/mesh, mesh_tensorflow/bert/config/base.json and xxl_v2.json, whose bert.py rounds the
    # number of tokens up to a multiple of 128.
    "mesh_tf_bert": Shape(layers=12, embed=768, heads=12, kv=64, mlp=3072, vocab=30592, tied=True),
    "mesh_tf_bert_xxl": Shape(layers=24, embed=4096, heads=64, kv=64, mlp=16384, vocab=30592, tied=True),
    # Touvron et al. 2023, arXiv 2302.13971, table 2.
    "llama_7b": Shape(layers=32, embed=4096, heads=32, kv=128, mlp=11008, vocab=32000, gated=True),
}

# Activations and operations of every shape, by the names of their axes.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "tokens": ("batch", "length"),
    "residual": ("batch", "act_length", "act_embed"),
    "normed": ("batch", "length", "act_embed"),
    "queries": ("batch", "length", "heads", "kv"),
    "keys": ("batch", "memory_length", "heads", "kv"),
    "scores": ("batch", "heads", "length", "memory_length"),
    "hidden": ("batch", "length", "mlp"),
    "logits": ("batch", "length", "vocab"),
}
# Weights are gathered before they are used, so an operation runs over the activations' axes and those that it makes.
OPERATIONS: dict[str, tuple[str, ...]] = {
    "lookup": ("batch", "length", "vocab", "act_embed"),
    "project": ("batch", "length", "act_embed", "heads", "kv"),
    "project_memory": ("batch", "memory_length", "act_embed", "heads", "kv"),
    "attend": ("batch", "heads", "length", "memory_length", "kv"),
    "hide": ("batch", "length", "act_embed", "mlp"),
    "predict": ("batch", "length", "act_embed", "vocab"),
}

# Layouts by name, for meshes with the axes data and model, or data alone.
PRESETS: dict[str, str] = {
    "replicated": "",
    "data_parallel": "batch:data",
    "fsdp": "batch:data;embed:data",  # ZeRO-3: of parameters and their optimizer each device keeps a part
    "tensor_parallel": "heads:model;mlp:model;vocab:model",
    "megatron": "batch:data;heads:model;mlp:model;vocab:model",
    "fsdp_megatron": "batch:data;embed:data;heads:model;mlp:model;vocab:model",
    "sequence_parallel": "batch:data;heads:model;mlp:model;vocab:model;act_length:model",
}


def parameters(shape: Shape) -> dict[str, tuple[str, ...]]:
    """The axes of every parameter of a shape, by name; those of all blocks lie along ``layers``."""
    into, out = ("layers", "embed", "heads", "kv"), ("layers", "heads", "kv", "embed")
    hidden = dict.fromkeys(("enter", "gate") if shape.gated else ("enter",), ("layers", "embed", "mlp"))
    return {
        "table": ("vocab", "embed"),
        "scale_attention": ("layers", "embed"),
        "query": into,
        "key": into,
        "value": into,
        "out": out,
        "scale_hidden": ("layers", "embed"),
        **hidden,
        "leave": ("layers", "mlp", "embed"),
        "scale_last": ("embed",),
        **({} if shape.tied else {"predict": ("embed", "vocab")}),
    }


def tensors(shape: Shape, batch: int, length: int) -> Tensors:
    """All named axes of a shape, for layouts to be checked against."""
    return Tensors(shape.sizes(batch, length), parameters(shape) | ACTIVATIONS, OPERATIONS)


def layout_text(text: str) -> str:
    """The text of a layout, which may be the name of a preset."""
    if text and ":" not in text:
        check_choice("layout", text, PRESETS)
    return PRESETS.get(text, text)


def _product(sizes: Mapping[str, int], axes: tuple[str, ...]) -> int:
    product = 1
    for axis in axes:
        product *= sizes[axis]
    return product
