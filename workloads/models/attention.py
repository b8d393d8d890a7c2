"""Causal attention for decoders. Scores are either stored all at the same time or computed in blocks."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workloads import axes, devices
from workloads.workload import Array, ArrayPair

_SCORES = ("batch", "heads", "length", "memory_length")
_BLOCKS = ("", "batch", "heads", "", "kv")
_KEY_BLOCKS = ("", "batch", "key_heads", "", "kv")


class Band(NamedTuple):
    """The blocks of scores that are computed.

    Attributes:
      block: number of tokens in a block of queries or keys.
      window: number of tokens that a query attends to, including its own. With 0, it attends to all earlier tokens.
    """

    block: int
    window: int

    def pairs(self, length: int) -> np.ndarray:
        """Returns the pairs of query and key blocks that have scores, int32[P, 2], starting at the diagonal."""
        blocks = -(-length // self.block)
        reach = (self.window + self.block - 2) // self.block if self.window else blocks
        pairs = [(i, j) for i in range(blocks) for j in range(i, max(-1, i - reach - 1), -1)]
        return np.array(pairs, np.int32)


def causal_attention(
    q_BxTxHxK: Array,
    k_BxTxGxK: Array,
    v_BxTxGxK: Array,
    *,
    wide_products: bool = True,
    window: int = 0,
    block: int = 0,
) -> Array:
    """Returns causal attention: means of the values, weighted by softmax(q · k / √K) (Vaswani et al. 2017).

    On a GPU, bfloat16 inputs use cuDNN's attention if it supports their shapes. In all other cases,
    ``jax.nn.dot_product_attention`` is not used, because its gradient in bfloat16 cannot be lowered under strict dtype
    promotion (JAX 0.10).

    Args:
      q_BxTxHxK: queries of H heads.
      k_BxTxGxK, v_BxTxGxK: keys and values of G heads, in the dtype of the queries. G divides H, and each is shared by
        H / G neighboring query heads (Ainslie et al. 2023, arXiv 2305.13245).
      wide_products: whether the products q · k are float32. Otherwise, they have the dtype of the inputs, which takes
        less memory. In blocked attention, they are always float32.
      window: number of tokens that a token attends to, including itself. With 0, it attends to all earlier tokens.
      block: number of tokens in a block of ``blocked_attention``. With 0, all scores are stored.

    Returns:
      [B, T, H, K] in the dtype of the inputs.
    """
    _, T, H, K = q_BxTxHxK.shape
    if q_BxTxHxK.dtype == jnp.bfloat16 and devices.has_flash_attention() and T % 2 == 0 and K % 8 == 0 and K <= 128:
        return jax.nn.dot_product_attention(
            q_BxTxHxK,
            k_BxTxGxK,
            v_BxTxGxK,
            is_causal=True,
            local_window_size=(window - 1, 0) if window else None,
            implementation="cudnn",
        )
    if block:
        return blocked_attention(q_BxTxHxK, k_BxTxGxK, v_BxTxGxK, Band(min(block, T), window))
    k_BxTxHxK, v_BxTxHxK = (_for_heads(x, H, 2, positions="memory_length") for x in (k_BxTxGxK, v_BxTxGxK))
    if wide_products:
        products_BxHxTxS = _products(q_BxTxHxK, k_BxTxHxK)
    else:
        products_BxHxTxS = jnp.einsum("bthk,bshk->bhts", q_BxTxHxK, k_BxTxHxK)
    products_BxHxTxS = axes.activation(products_BxHxTxS, *_SCORES).astype(jnp.float32)
    seen_TxS = jnp.tri(T, dtype=bool)  # computed where it is used, since a constant takes memory
    if window:
        seen_TxS &= ~jnp.tri(T, k=-window, dtype=bool)
    scores_BxHxTxS = jnp.where(seen_TxS, products_BxHxTxS / math.sqrt(K), -jnp.inf)
    weights_BxHxTxS = axes.activation(jax.nn.softmax(scores_BxHxTxS).astype(v_BxTxHxK.dtype), *_SCORES)
    y_BxTxHxK = jnp.einsum("bhts,bshk->bthk", weights_BxHxTxS, v_BxTxHxK)
    return axes.kept(y_BxTxHxK, axes.ATTENTION)


def blocked_attention(q_BxTxHxK: Array, k_BxTxGxK: Array, v_BxTxGxK: Array, band: Band) -> Array:
    """Returns causal attention block by block, with memory proportional to T (Dao et al. 2022, arXiv 2205.14135).

    A loop visits all pairs of query blocks and key blocks that have scores. It keeps the maximum and the sum of the
    weights of each query (Rabe & Staats 2021, arXiv 2112.05682). The backward pass recomputes the scores.

    Args:
      q_BxTxHxK, k_BxTxGxK, v_BxTxGxK: queries, keys and values, as in ``causal_attention``.
      band: blocks and window.
    """
    T = q_BxTxHxK.shape[1]

    def cut(x_BxTxHxK: Array, names: tuple[str, ...]) -> Array:
        """Returns [N, B, H, b, K]. Padding follows the last token, so no token attends to it."""
        gathered = axes.activation(x_BxTxHxK, "batch", "", *names[2::2])
        padded = jnp.pad(gathered, ((0, 0), (0, -T % band.block), (0, 0), (0, 0)))
        B, _, H, K = padded.shape
        return axes.activation(padded.reshape(B, -1, band.block, H, K).transpose(1, 0, 3, 2, 4), *names)

    grouped = k_BxTxGxK.shape[2] != q_BxTxHxK.shape[2]
    k, v = (cut(x, _KEY_BLOCKS if grouped else _BLOCKS) for x in (k_BxTxGxK, v_BxTxGxK))
    y_NxBxHxbxK = _blocked(cut(q_BxTxHxK, _BLOCKS), k, v, band)
    _, B, H, _, K = y_NxBxHxbxK.shape
    y_BxTxHxK = y_NxBxHxbxK.transpose(1, 0, 3, 2, 4).reshape(B, -1, H, K)[:, :T]
    return axes.activation(y_BxTxHxK, "batch", "", "heads", "kv")


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _blocked(q: Array, k: Array, v: Array, band: Band) -> Array:
    """Returns [N, B, H, b, K], given queries [N, B, H, b, K], and keys and values [N, B, G, b, K]."""
    return _blocked_forward(q, k, v, band)[0]


def _blocked_forward(q: Array, k: Array, v: Array, band: Band) -> tuple[Array, tuple[Array, ...]]:
    H = q.shape[2]

    def add(carry: tuple[Array, ...], pair: Array) -> tuple[tuple[Array, ...], None]:
        i, j = pair
        maximum, total, y = (_at(x, i) for x in carry)
        scores_BxHxbxb = _scores(_at(q, i), _for_heads(_at(k, j), H, 1), i, j, band)
        most_now = jnp.maximum(maximum, scores_BxHxbxb.max(axis=-1))
        before = jnp.exp(maximum - most_now)
        weights_BxHxbxb = jnp.exp(scores_BxHxbxb - most_now[..., None])
        total = total * before + weights_BxHxbxb.sum(axis=-1)
        summed = _wide("bhts,bhsk->bhtk", weights_BxHxbxb.astype(v.dtype), _for_heads(_at(v, j), H, 1))
        y = y * before[..., None] + summed
        return tuple(_put(x, new, i) for x, new in zip(carry, (most_now, total, y), strict=True)), None

    # A row starts at the diagonal, where each query has at least one score, so that the maximum is finite.
    start = (jnp.full(q.shape[:-1], -jnp.inf), jnp.zeros(q.shape[:-1]), jnp.zeros(q.shape))
    (maximum, total, y), _ = lax.scan(add, start, band.pairs(len(q) * band.block))
    y = axes.kept((y / total[..., None]).astype(q.dtype), axes.ATTENTION)
    log_total = axes.kept(maximum + jnp.log(total), axes.ATTENTION)
    return y, (q, k, v, y, log_total)


def _blocked_backward(band: Band, kept: tuple[Array, ...], gradient: Array) -> tuple[Array, ...]:
    q, k, v, y, log_total = kept
    H, G = q.shape[2], k.shape[2]
    # The gradient of a score is weight × (gradient of the weight − their weighted mean), and the mean is y · gradient.
    mean = jnp.sum(y.astype(jnp.float32) * gradient.astype(jnp.float32), axis=-1)

    def summed(x_BxHxbxK: Array) -> Array:
        """Returns the sum over the heads that share a key."""
        B, _, b, K = x_BxHxbxK.shape
        return x_BxHxbxK if G == H else x_BxHxbxK.reshape(B, G, H // G, b, K).sum(axis=2)

    def add(carry: tuple[Array, ...], pair: Array) -> tuple[tuple[Array, ...], None]:
        i, j = pair
        q_i, y_i = _at(q, i), _at(gradient, i)
        k_j, v_j = (_for_heads(_at(x, j), H, 1) for x in (k, v))
        weights = jnp.exp(_scores(q_i, k_j, i, j, band) - _at(log_total, i)[..., None])
        of_weights = _wide("bhtk,bhsk->bhts", y_i, v_j)
        of_scores = (weights * (of_weights - _at(mean, i)[..., None]) / math.sqrt(q.shape[-1])).astype(q.dtype)
        of_q = _wide("bhts,bhsk->bhtk", of_scores, k_j)
        of_k = summed(_wide("bhts,bhtk->bhsk", of_scores, q_i))
        of_v = summed(_wide("bhts,bhtk->bhsk", weights.astype(q.dtype), y_i))
        places = (i, j, j)
        return tuple(
            _put(x, _at(x, place) + new, place) for x, new, place in zip(carry, (of_q, of_k, of_v), places, strict=True)
        ), None

    zeros = tuple(jnp.zeros(x.shape) for x in (q, k, v))
    gradients, _ = lax.scan(add, zeros, band.pairs(len(q) * band.block))
    return tuple(x.astype(q.dtype) for x in gradients)


_blocked.defvjp(_blocked_forward, _blocked_backward)


def _scores(q_BxHxbxK: Array, k_BxHxbxK: Array, i: Array, j: Array, band: Band) -> Array:
    """Returns the scores of block ``i`` of queries and block ``j`` of keys, float32[B, H, b, b]."""
    apart_bxb = (i - j) * band.block + np.subtract.outer(*[np.arange(band.block, dtype=np.int32)] * 2)
    seen_bxb = apart_bxb >= 0
    if band.window:
        seen_bxb &= apart_bxb < band.window
    products_BxHxbxb = _wide("bhtk,bhsk->bhts", q_BxHxbxK, k_BxHxbxK)
    return jnp.where(seen_bxb, products_BxHxbxb / math.sqrt(q_BxHxbxK.shape[-1]), -jnp.inf)


def _wide(sum_of: str, a: Array, b: Array) -> Array:
    return jnp.einsum(sum_of, a, b, preferred_element_type=jnp.float32)


def _at(blocks: Array, i: Array) -> Array:
    return lax.dynamic_index_in_dim(blocks, i, keepdims=False)


def _put(blocks: Array, new: Array, i: Array) -> Array:
    return lax.dynamic_update_index_in_dim(blocks, new, i, axis=0)


def _for_heads(x: Array, heads: int, axis: int, positions: str = "") -> Array:
    """Returns keys or values, repeated for each head that shares them."""
    if x.shape[axis] == heads:
        return x
    names = ["batch", "", "", "kv"]
    names[axis], names[3 - axis] = "heads", positions
    return axes.activation(jnp.repeat(x, heads // x.shape[axis], axis=axis), *names)


@jax.custom_vjp
def _products(q_BxTxHxK: Array, k_BxSxHxK: Array) -> Array:
    """Returns q · k, float32[B, H, T, S]."""
    return jnp.einsum("bthk,bshk->bhts", q_BxTxHxK, k_BxSxHxK, preferred_element_type=jnp.float32)


def _forward(q_BxTxHxK: Array, k_BxSxHxK: Array) -> tuple[Array, ArrayPair]:
    return _products(q_BxTxHxK, k_BxSxHxK), (q_BxTxHxK, k_BxSxHxK)


def _backward(inputs: ArrayPair, gradient_BxHxTxS: Array) -> ArrayPair:
    # Both factors are bfloat16, as in the forward pass. JAX would multiply in float32, which is slower.
    q_BxTxHxK, k_BxSxHxK = inputs
    gradient_BxHxTxS = gradient_BxHxTxS.astype(q_BxTxHxK.dtype)
    return (
        jnp.einsum("bhts,bshk->bthk", gradient_BxHxTxS, k_BxSxHxK),
        jnp.einsum("bhts,bthk->bshk", gradient_BxHxTxS, q_BxTxHxK),
    )


_products.defvjp(_forward, _backward)
