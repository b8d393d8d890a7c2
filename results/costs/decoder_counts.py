"""Counts of a decoder with grouped-query attention, windows and experts: parameters, FLOPs and memory traffic.

The counts are derived from shapes, without JAX. For a mixture of experts, each token is assumed to reach all its
experts, so no tokens are dropped. Attention is causal and blocked, so scores never reach main memory.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

ATTENTION = "attention"  # name of the attention kernel in lists of kept tensors
NAMES = ("query", "key", "value", ATTENTION, "out", "gate", "up", "down")  # tensors that the backward pass can keep
# Passes of blocked attention. The backward pass computes the scores again and multiplies four more times.
FORWARD, BACKWARD = 1.0, 2.5


class Decoder(NamedTuple):
    """The shape of a decoder.

    Attributes:
      layers, width: number of blocks, and width of the residual stream.
      heads, key_heads, head_width: number of query heads, number of key and value heads, and head width.
      hidden: width of the hidden layer, or of one expert.
      vocabulary: number of tokens in the vocabulary.
      gated: whether the hidden layer has a gate.
      tied: whether the embedding table is also the output layer.
      experts, active_experts: number of experts in a block, and number of experts that a token uses. Zero if there are
        no experts.
      shared_hidden: width of the expert that all tokens use.
      dense_layers, dense_hidden: number of blocks without experts, and their hidden width.
      window: number of tokens that local layers attend to. Zero if all layers are global.
      global_layers: number of layers that attend to all tokens, if there is a window.
      global_head_width, global_key_heads: attention shape of global layers, if it differs. Global layers use their keys
        as values too.
      query_rank, key_rank, rope_width: widths in latent attention: compressed queries, compressed keys and values, and
        the part of keys with positions. Zero for plain attention.
    """

    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    gated: bool = True
    tied: bool = False
    experts: int = 0
    active_experts: int = 0
    shared_hidden: int = 0
    dense_layers: int = 0
    dense_hidden: int = 0
    window: int = 0
    global_layers: int = 0
    global_head_width: int = 0
    global_key_heads: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rope_width: int = 0


class Product(NamedTuple):
    """A matmul of an activation with a parameter.

    Attributes:
      name: name of the result, for lists of kept tensors.
      inner, outer: widths of the input and of the output.
      used: number of such matmuls that a token uses in one pass.
      stored: number of such matrices in the model.
    """

    name: str
    inner: int
    outer: int
    used: int
    stored: int

    @property
    def parameters(self) -> int:
        """Number of stored parameters."""
        return self.inner * self.outer * self.stored

    @property
    def active(self) -> int:
        """Number of parameters that a token uses."""
        return self.inner * self.outer * self.used


def products(decoder: Decoder) -> tuple[Product, ...]:
    """Returns the matmuls with parameters, in all layers and in the output layer."""
    read_out = Product("predict", decoder.width, decoder.vocabulary, 1, 0 if decoder.tied else 1)
    return *_projections(decoder), *_hidden(decoder), read_out


def _projections(decoder: Decoder) -> Iterator[Product]:
    """Yields the projections in attention."""
    wide, heads, local = decoder.width, decoder.heads, decoder.layers
    if decoder.query_rank:
        key = decoder.head_width + decoder.rope_width
        for name, inner, outer in (
            ("query", wide, decoder.query_rank),
            ("query", decoder.query_rank, heads * key),
            ("key", wide, decoder.key_rank + decoder.rope_width),
            ("key", decoder.key_rank, 2 * heads * decoder.head_width),
            ("out", heads * decoder.head_width, wide),
        ):
            yield Product(name, inner, outer, local, local)
        return
    if decoder.global_head_width:
        global_layers, local = decoder.global_layers, decoder.layers - decoder.global_layers
        queries, keys = heads * decoder.global_head_width, decoder.global_key_heads * decoder.global_head_width
        yield Product("query", wide, queries, global_layers, global_layers)
        yield Product("key", wide, keys, global_layers, global_layers)
        yield Product("out", queries, wide, global_layers, global_layers)
    queries, keys = heads * decoder.head_width, decoder.key_heads * decoder.head_width
    yield Product("query", wide, queries, local, local)
    yield Product("key", wide, keys, local, local)
    yield Product("value", wide, keys, local, local)
    yield Product("out", queries, wide, local, local)


def _hidden(decoder: Decoder) -> Iterator[Product]:
    """Yields the matmuls of hidden layers and experts."""
    wide = decoder.width
    if not decoder.experts:
        yield from _pair(decoder, decoder.hidden, decoder.layers, decoder.layers)
        return
    mixed = decoder.layers - decoder.dense_layers
    yield Product("router", wide, decoder.experts, mixed, mixed)
    yield from _pair(decoder, decoder.hidden, mixed * decoder.active_experts, mixed * decoder.experts)
    if decoder.shared_hidden:
        yield from _pair(decoder, decoder.shared_hidden, mixed, mixed)
    if decoder.dense_layers:
        yield from _pair(decoder, decoder.dense_hidden, decoder.dense_layers, decoder.dense_layers)


def _pair(decoder: Decoder, hidden: int, used: int, stored: int) -> Iterator[Product]:
    if decoder.gated:
        yield Product("gate", decoder.width, hidden, used, stored)
    yield Product("up", decoder.width, hidden, used, stored)
    yield Product("down", hidden, decoder.width, used, stored)


def active_parameters(decoder: Decoder) -> int:
    """Returns the number of parameters that multiply a token."""
    return sum(product.active for product in products(decoder))


def stored_parameters(decoder: Decoder) -> int:
    """Returns the number of parameters of all matmuls and of the embedding table, without norms and biases."""
    return sum(product.parameters for product in products(decoder)) + decoder.vocabulary * decoder.width


def attention_flops(decoder: Decoder, length: int, *, causal: bool = True, block: int = 0) -> float:
    """Returns the attention FLOPs of one token in a forward pass.

    Args:
      decoder: shape of the decoder.
      length: number of tokens in a sequence.
      causal: whether masked scores are skipped. If not, each token attends to the whole sequence, or to two windows.
      block: number of tokens in a block of queries or keys. Only pairs of blocks that are fully masked are skipped, as
        in ``workloads.models.attention``. If 0, exactly the masked scores are skipped.
    """
    window = decoder.window or length
    if block:
        seen, near = scores_in_blocks(length, 0, block), scores_in_blocks(length, decoder.window, block)
    else:
        seen = length / 2 if causal else length
        near = window * (1 - window / (2 * length)) if causal else min(2 * window, length)
    global_layers = decoder.global_layers if decoder.window else decoder.layers
    widths = 2 * decoder.head_width + decoder.rope_width  # of keys and of values
    wide = 2 * decoder.global_head_width or widths
    return 2 * decoder.heads * (global_layers * wide * seen + (decoder.layers - global_layers) * widths * near)


def scores_in_blocks(length: int, window: int, block: int) -> float:
    """Returns the number of scores that blocked causal attention computes per token, as an average over a sequence."""
    block = min(block, length)
    blocks = -(-length // block)
    reach = (window + block - 2) // block if window else blocks  # earlier blocks that a block attends to
    return sum(min(place, reach) + 1 for place in range(blocks)) * block**2 / length


def product_flops(decoder: Decoder, kept: Container[str]) -> float:
    """Returns the matmul FLOPs of one token in a step, two per multiply-add.

    Args:
      decoder: shape of the decoder.
      kept: names of tensors that the backward pass does not recompute, from ``NAMES``.
    """
    return sum(2 * product.active * _passes(product.name, kept) for product in products(decoder))


def attention_passes(kept: Container[str]) -> float:
    """Returns the number of attention passes in a step, relative to a forward pass."""
    return FORWARD + BACKWARD + (0 if ATTENTION in kept else FORWARD)


def _passes(name: str, kept: Container[str]) -> int:
    """Returns how many matmuls a product takes in a step. The last result of a block is never recomputed."""
    return 3 if name in kept or name in ("down", "predict") else 4


def activation_traffic(decoder: Decoder, ways: int, kept: Container[str]) -> float:
    """Returns the activation elements per token that matmuls and attention read and write on one device in a step.

    Args:
      decoder: shape of the decoder.
      ways: number of devices that share each matmul, by tensor parallelism.
      kept: names of tensors that the backward pass does not recompute.
    """
    total = 0.0
    for product in products(decoder):
        widths = product.inner + product.outer / ways
        if product.name in ("out", "down"):  # these sum over the divided axis
            widths = product.inner / ways + product.outer
        total += _passes(product.name, kept) * product.used * widths
    rows = 2 * decoder.layers * (decoder.heads + decoder.key_heads) * decoder.head_width / ways
    return total + attention_passes(kept) * rows


def weight_traffic(decoder: Decoder, ways: int, expert_ways: int, kept: Container[str]) -> float:
    """Returns the number of elements of weights and their gradients that one device reads and writes in a step.

    Args:
      decoder: shape of the decoder.
      ways: number of devices that share each matmul, by tensor parallelism.
      expert_ways: number of devices across which the experts are split.
      kept: names of tensors that the backward pass does not recompute.
    """
    total = 0.0
    for product in products(decoder):
        matrices = max(product.used, product.stored / expert_ways)
        total += _passes(product.name, kept) * matrices * product.inner * product.outer / ways
    return total
