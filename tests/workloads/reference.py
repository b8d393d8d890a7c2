"""Forward passes of networks in plain NumPy and float64, from the papers' definitions. Shares no code with the models.

Parameters are nested dicts of arrays by the names of Flax's layers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Params = Any


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def dense(layer: Params, x: np.ndarray) -> np.ndarray:
    product = x @ layer["kernel"]
    return product + layer["bias"] if "bias" in layer else product


def convolved(layer: Params, x: np.ndarray, stride: int = 1) -> np.ndarray:
    """A square convolution of odd size, with half of its size as padding on each side."""
    kernel = layer["kernel"]
    size = len(kernel)
    half = size // 2
    padded = np.pad(x, ((0, 0), (half, half), (half, half), (0, 0)))
    height, width = (-(-n // stride) for n in x.shape[1:3])
    total = np.zeros((len(x), height, width, kernel.shape[-1]))
    for row in range(size):
        for column in range(size):
            rows = slice(row, row + stride * (height - 1) + 1, stride)
            columns = slice(column, column + stride * (width - 1) + 1, stride)
            total += padded[:, rows, columns] @ kernel[row, column]
    return total + layer["bias"] if "bias" in layer else total


def pooled(x: np.ndarray, size: int, stride: int, padding: int) -> np.ndarray:
    """The largest value of each window."""
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(x, edges, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
    return windows[:, ::stride, ::stride].max(axis=(-2, -1))


def simple_cnn(params: Params, x: np.ndarray, factors: np.ndarray | float = 1.0) -> np.ndarray:
    """Logits. ``factors`` [B, width] multiply the fully connected layer: 0 or 1 / (1 − rate) under dropout."""
    for number in range(sum(name.startswith("Conv") for name in params)):
        x = pooled(relu(convolved(params[f"Conv_{number}"], x)), 2, 2, 0)
    hidden = relu(dense(params["Dense_0"], x.reshape(len(x), -1)))
    return dense(params["Dense_1"], hidden * factors)


def ghost_norm(layer: Params, x: np.ndarray, group: int) -> np.ndarray:
    """Each channel of each group of neighbours minus its mean, over its deviation, in training."""
    parts = []
    for first in range(0, len(x), group):
        part = x[first : first + group]
        mean, variance = part.mean(axis=(0, 1, 2)), part.var(axis=(0, 1, 2))
        parts.append((part - mean) / np.sqrt(variance + 1e-5) * layer["scale"] + layer["bias"])
    return np.concatenate(parts)


def _of_layer(params: Params, at: int) -> Params:
    """One of several layers that are stored as one."""
    return {name: _of_layer(one, at) if isinstance(one, dict) else one[at] for name, one in params.items()}


def pre_activated_resnet(params: Params, x: np.ndarray, blocks: Sequence[int], group: int) -> np.ndarray:
    """Logits in training: He et al. 2016 (arXiv 1603.05027), stride 2 in the 3×3 convolutions."""

    def block(layers: Params, x: np.ndarray, stride: int) -> np.ndarray:
        first = relu(ghost_norm(layers["GhostNorm_0"], x, group))
        inner = relu(ghost_norm(layers["GhostNorm_1"], convolved(layers["Conv_0"], first), group))
        inner = relu(ghost_norm(layers["GhostNorm_2"], convolved(layers["Conv_1"], inner, stride), group))
        shortcut = convolved(layers["Conv_3"], first, stride) if "Conv_3" in layers else x
        return shortcut + convolved(layers["Conv_2"], inner)

    x = pooled(convolved(params["Conv_0"], x, 2), 3, 2, 1)
    for stage, count in enumerate(blocks):
        x = block(params[f"Block_{stage}"], x, 1 if stage == 0 else 2)
        for at in range(count - 1):
            x = block(_of_layer(params[f"stacked_{stage}"], at), x, 1)
    x = relu(ghost_norm(params["GhostNorm_0"], x, group))
    return dense(params["Dense_0"], x.mean(axis=(1, 2)))


def read_out(params: Params, features: np.ndarray) -> np.ndarray:
    """Logits by the embedding, or by a matrix of their own, with or without a bias."""
    if "read_out" not in params:
        return features @ params["Embed_0"]["embedding"].T
    return features @ params["read_out"] + params.get("read_out_bias", 0.0)


def lstm_projected(params: Params, tokens: np.ndarray) -> np.ndarray:
    """Logits of Sak et al. (2014), with the forget gate's bias of 1."""
    embedding = params["Embed_0"]["embedding"]
    width, size = params["projection"].shape
    memory, h, features = np.zeros((len(tokens), width)), np.zeros((len(tokens), size)), []
    for t in range(tokens.shape[1]):
        gates = dense(params["Dense_0"], embedding[tokens[:, t]] * np.sqrt(size)) + h @ params["recurrent"]
        write, keep, new, show = np.split(gates, 4, axis=1)
        memory = sigmoid(keep + 1) * memory + sigmoid(write) * np.tanh(new)
        h = (sigmoid(show) * np.tanh(memory)) @ params["projection"]
        features.append(h)
    return read_out(params, np.stack(features, axis=1))


def layer_norm(layer: Params, x: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * layer["scale"] + layer["bias"]


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int = 0) -> np.ndarray:
    """Causal attention of [B, T, H, K], with keys and values of G heads, to a window or to all earlier tokens."""
    _, T, H, K = q.shape
    k, v = (np.repeat(x, H // k.shape[2], axis=2) for x in (k, v))
    apart = np.arange(T)[:, None] - np.arange(T)
    scores = np.einsum("bthk,bshk->bhts", q, k) / np.sqrt(K)
    scores = np.where((apart >= 0) & (apart < (window or T)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhts,bshk->bthk", weights, v)


def transformer(params: Params, tokens: np.ndarray, heads: int) -> np.ndarray:
    """Logits of a decoder with learned positions, GELU by tanh, and no biases."""
    embedding = params["Embed_0"]["embedding"]
    B, T = tokens.shape
    x = embedding[tokens] + params["positions"]
    for number in range(sum(name.startswith("Dense") for name in params) // 4):
        qkv, out, into, out_of = (params[f"Dense_{4 * number + at}"] for at in range(4))
        y = dense(qkv, norm_without_bias(params[f"LayerNorm_{2 * number}"], x))
        q, k, v = np.moveaxis(y.reshape(B, T, 3, heads, -1), 2, 0)
        x = x + dense(out, attention(q, k, v).reshape(x.shape))
        inner = dense(into, norm_without_bias(params[f"LayerNorm_{2 * number + 1}"], x))
        inner = inner / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = x + dense(out_of, inner)
    last = sum(name.startswith("LayerNorm") for name in params) - 1
    return norm_without_bias(params[f"LayerNorm_{last}"], x) @ embedding.T


def norm_without_bias(layer: Params, x: np.ndarray) -> np.ndarray:
    return layer_norm({"scale": layer["scale"], "bias": 0.0}, x)


def rotated(x: np.ndarray) -> np.ndarray:
    """Pairs of halves of [B, T, H, K] as complex numbers, turned by position × 10,000^(−2k / K)."""
    half = x.shape[-1] // 2
    turns = np.exp(1j * np.outer(np.arange(x.shape[1]), 1e4 ** (-np.arange(half) / half)))
    z = (x[..., :half] + 1j * x[..., half:]) * turns[:, None]
    return np.concatenate([z.real, z.imag], axis=-1)


def transformer_rotary(params: Params, tokens: np.ndarray, window: int = 0, *, gated: bool, tied: bool) -> np.ndarray:
    """Logits of a decoder with RMS norms and rotary positions. Its heads are those of the kernels."""

    def norm(layer: Params, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-6) * layer["scale"]

    embedding = params["Embed_0"]["embedding"]
    x = embedding[tokens] * (np.sqrt(embedding.shape[1]) if tied else 1.0)
    for number in range(len(params["stacked"]["Dense_0"]["kernel"])):
        layers = _of_layer(params["stacked"], number)
        y = norm(layers["RMSNorm_0"], x)
        q, k, v = (np.einsum("btd,dhk->bthk", y, layers[f"DenseGeneral_{at}"]["kernel"]) for at in range(3))
        of_heads = attention(rotated(q), rotated(k), v, window)
        x = x + np.einsum("bthk,hkd->btd", of_heads, layers["DenseGeneral_3"]["kernel"])
        y = norm(layers["RMSNorm_1"], x)
        first, *others, last = (layers[f"Dense_{at}"] for at in range(3 if gated else 2))
        inner = dense(first, y)
        if gated:
            inner = inner * sigmoid(inner) * dense(others[0], y)
        else:
            inner = inner / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = x + dense(last, inner)
    x = norm(params["RMSNorm_0"], x)
    return x @ embedding.T if tied else dense(params["Dense_0"], x)


def transformer_decoder(params: Params, tokens: np.ndarray, heads: int) -> np.ndarray:
    """Logits of the decoder of Vaswani et al. (2017), with norms before each layer."""
    embedding = params["Embed_0"]["embedding"]
    T, D = tokens.shape[1], embedding.shape[1]
    place, at = np.meshgrid(np.arange(T), np.arange(D), indexing="ij")
    angle = place / 10_000.0 ** (2 * (at // 2) / D)
    x = embedding[tokens] * np.sqrt(D) + np.where(at % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)
    for number in range(len(params["stacked"]["Dense_0"]["kernel"])):
        layers = _of_layer(params["stacked"], number)
        qkv = dense(layers["Dense_0"], layer_norm(layers["LayerNorm_0"], x))
        q, k, v = np.moveaxis(qkv.reshape(len(tokens), T, 3, heads, D // heads), 2, 0)
        x = x + dense(layers["Dense_1"], attention(q, k, v).reshape(x.shape))
        inner = relu(dense(layers["Dense_2"], layer_norm(layers["LayerNorm_1"], x)))
        x = x + dense(layers["Dense_3"], inner)
    return read_out(params, layer_norm(params["LayerNorm_0"], x))


def cross_entropy(logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0) -> float:
    """Mean −Σ q ln p. The label has 1 − s of q, and each of the K − 1 others s / (K − 1)."""
    classes = logits.shape[-1]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    is_label = labels[..., None] == np.arange(classes)
    wanted = np.where(is_label, 1.0 - smoothing, smoothing / (classes - 1))
    return float(-(wanted * log_p).sum(axis=-1).mean())
