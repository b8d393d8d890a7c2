"""Shapes of decoder Transformers: presets, and the named axes of their tensors and operations."""

import dataclasses
import math
import tomllib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from workloads import losses, workload
from workloads.base import check_choice
from workloads.layouts.notation import Tensors
from workloads.workload import Array, ArrayShape, Dataset


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a decoder Transformer.

    Attributes:
      layers: number of blocks.
      embed: width of the residual stream.
      heads: number of attention heads.
      kv: width of a head.
      mlp: width of the hidden layer of a block.
      vocab: number of tokens in the vocabulary.
      gated: whether the hidden layer is gated, as in Llama.
      tied: whether the output layer uses the embedding matrix.
      key_heads: number of key and value heads, or 0 if each attention head has separate keys and values.
      window: number of tokens that a token attends to, or 0 for all earlier tokens.
    """

    layers: int
    embed: int
    heads: int
    kv: int
    mlp: int
    vocab: int
    gated: bool = False
    tied: bool = False
    key_heads: int = 0
    window: int = 0

    @property
    def options(self) -> dict[str, int | bool]:
        """Returns the options of the model ``transformer_rotary``."""
        set_sizes = {name: getattr(self, name) for name in OMITTED if getattr(self, name)}
        return set_sizes | {
            "layers": self.layers,
            "d_model": self.embed,
            "heads": self.heads,
            "kv": self.kv,
            "d_ff": self.mlp,
            "gated": self.gated,
            "tied": self.tied,
        }

    def plan(self) -> dict[str, int | bool]:
        """Returns the sizes as listed in plans. Plans omit sizes that were added later, unless they are set."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value or name not in OMITTED}

    @property
    def has_key_heads(self) -> bool:
        """Returns whether several heads share their keys and values."""
        return 0 < self.key_heads < self.heads

    @property
    def parameters(self) -> int:
        """Returns the number of parameters."""
        sizes = self.sizes(1, 1)
        return sum(math.prod(sizes[axis] for axis in axes) for axes in parameters(self).values())

    def sizes(self, batch: int, length: int) -> dict[str, int]:
        """Returns the sizes of all named axes for a batch of sequences of ``length`` tokens."""
        key_heads = {"key_heads": self.key_heads} if self.has_key_heads else {}
        return key_heads | {
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
        """Returns the FLOPs of all matmuls in a training step.

        A multiply-add counts as two FLOPs, and the backward pass as twice the forward pass. Masked attention scores are
        counted because they are computed. Blocked attention computes fewer scores. See
        ``results.costs.decoder_counts``.
        """
        projections = 2 * self.embed * (self.heads + (self.key_heads or self.heads)) * self.kv
        hidden = (3 if self.gated else 2) * self.embed * self.mlp
        attention = 2 * length * self.heads * self.kv
        per_token = self.layers * (projections + hidden + attention) + self.embed * self.vocab
        return 3 * 2 * batch * length * per_token


OMITTED = ("key_heads", "window")  # sizes that plans omit at 0

_PRESETS = Path(__file__).with_name("shapes.toml")
SHAPES = {name: Shape(**sizes) for name, sizes in tomllib.loads(_PRESETS.read_text()).items()}

# Axes of the activations of all shapes.
ACTIVATIONS = {
    "tokens": ("batch", "length"),
    "residual": ("batch", "act_length", "act_embed"),
    "normed": ("batch", "length", "act_embed"),
    "queries": ("batch", "length", "heads", "kv"),
    "keys": ("batch", "memory_length", "heads", "kv"),
    "scores": ("batch", "heads", "length", "memory_length"),
    "hidden": ("batch", "length", "mlp"),
    "logits": ("batch", "length", "vocab"),
}
# Axes of the operations. Weights are gathered before use, so operations use the axes of activations.
OPERATIONS = {
    "lookup": ("batch", "length", "vocab", "act_embed"),
    "project": ("batch", "length", "act_embed", "heads", "kv"),
    "project_memory": ("batch", "memory_length", "act_embed", "heads", "kv"),
    "attend": ("batch", "heads", "length", "memory_length", "kv"),
    "hide": ("batch", "length", "act_embed", "mlp"),
    "predict": ("batch", "length", "act_embed", "vocab"),
}

# Named layouts for meshes with axes data and model, or data only.
PRESETS = {
    "replicated": "",
    "data_parallel": "batch:data",
    "fsdp": "batch:data;embed:data",  # ZeRO-3: parameters and optimizer state are also sharded
    "tensor_parallel": "heads:model;mlp:model;vocab:model",
    "megatron": "batch:data;heads:model;mlp:model;vocab:model",
    "fsdp_megatron": "batch:data;embed:data;heads:model;mlp:model;vocab:model",
    "sequence_parallel": "batch:data;heads:model;mlp:model;vocab:model;act_length:model",
}


def parameters(shape: Shape) -> dict[str, tuple[str, ...]]:
    """Returns the axes of each parameter of a shape. The parameters of all blocks are stacked along ``layers``."""
    into = ("layers", "embed", "heads", "kv")
    of_keys = ("layers", "embed", _key_axis(shape), "kv")
    out = ("layers", "heads", "kv", "embed")
    hidden = ("layers", "embed", "mlp")
    by_name = {
        "table": ("vocab", "embed"),
        "scale_attention": ("layers", "embed"),
        "query": into,
        "key": of_keys,
        "value": of_keys,
        "out": out,
        "scale_hidden": ("layers", "embed"),
        "enter": hidden,
        "gate": hidden,
        "leave": ("layers", "mlp", "embed"),
        "scale_last": ("embed",),
        "predict": ("embed", "vocab"),
    }
    if not shape.gated:
        del by_name["gate"]
    if shape.tied:
        del by_name["predict"]
    return by_name


def dataset(shape: Shape, length: int) -> Dataset:
    """Returns a data set of sequences of ``length`` tokens. Only its shapes are used."""
    tokens = ArrayShape((length,), np.dtype(np.int32))
    splits = workload.shapes((1, 1, None), tokens, tokens)
    return Dataset(
        load=lambda: splits,
        version=lambda: "",
        train_examples=None,
        evaluation_examples=1,
        classes=shape.vocab,
        splits=("validation",),
        loss=_cross_entropy,
        metrics=losses.CLASSIFICATION,
        shapes=lambda: splits,
    )


def _cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Like ``losses.softmax_cross_entropy``, but without smoothing. If classes are sharded, it saves an all-reduce."""
    import jax
    import jax.numpy as jnp

    del label_smoothing
    is_label = jnp.arange(logits.shape[-1]) == labels[..., None]
    return jax.nn.logsumexp(logits, axis=-1) - jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)


def tensors(shape: Shape, batch: int, length: int) -> Tensors:
    """Returns all named axes of a shape, which layouts are checked against."""
    activations, operations = dict(ACTIVATIONS), dict(OPERATIONS)
    if shape.has_key_heads:
        activations["shared_keys"] = ("batch", "memory_length", "key_heads", "kv")
        operations["project_memory"] = ("batch", "memory_length", "act_embed", "key_heads", "kv")
    return Tensors(shape.sizes(batch, length), parameters(shape) | activations, operations)


def _key_axis(shape: Shape) -> str:
    return "key_heads" if shape.has_key_heads else "heads"


def layout_text(text: str, axes: Collection[str] = ()) -> str:
    """Returns the text of a layout, given its text or the name of a preset.

    Args:
      text: pairs of names, or the name of a preset.
      axes: names of all axes. If several heads share their keys, presets shard ``key_heads`` like ``heads``.
    """
    if text and ":" not in text:
        check_choice("layout", text, PRESETS)
    if text in PRESETS and "key_heads" in axes:
        return PRESETS[text].replace("heads:model", "heads:model;key_heads:model")
    return PRESETS.get(text, text)
