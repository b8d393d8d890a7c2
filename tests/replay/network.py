"""A fully connected network, its losses, their gradients by hand and its metrics: NumPy in float64, without JAX."""

from collections.abc import Mapping

import numpy as np

# By name: "<layer>.kernel" [in, out] and "<layer>.bias" [out], with layers numbered from 0.
Params = Mapping[str, np.ndarray]


def _layers(params: Params) -> int:
    return len(params) // 2


def _forward(params: Params, inputs: np.ndarray) -> list[np.ndarray]:
    """What goes into every layer, [B, in] each, and the logits [B, classes] last."""
    values = [inputs]
    for layer in range(_layers(params)):
        linear = values[-1] @ params[f"{layer}.kernel"] + params[f"{layer}.bias"]
        values.append(linear if layer == _layers(params) - 1 else np.maximum(linear, 0.0))
    return values


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def gradient(params: Params, inputs: np.ndarray, labels: np.ndarray, label_smoothing: float) -> dict[str, np.ndarray]:
    """Of the mean cross-entropy against smoothed labels: of its share, each label gives equal parts to all classes.

    Args:
      params: of the network.
      inputs: float64[B, in].
      labels: int[B].
      label_smoothing: in [0, 1].
    """
    values = _forward(params, inputs)
    *inner, logits = values
    wanted = np.full(logits.shape, label_smoothing / logits.shape[1])
    wanted[np.arange(len(labels)), labels] += 1.0 - label_smoothing
    return _slopes(params, inner, (np.exp(_log_probabilities(logits)) - wanted) / len(labels))


def gradient_of_squares(
    params: Params, inputs: np.ndarray, labels: np.ndarray, label_smoothing: float = 0.0
) -> dict[str, np.ndarray]:
    """Of the mean squared error of one number; shapes as in ``gradient``, but labels float64[B]."""
    *inner, predicted = _forward(params, inputs)
    return _slopes(params, inner, 2 * (predicted - labels[:, None]) / len(labels))


def _slopes(params: Params, inner: list[np.ndarray], behind: np.ndarray) -> dict[str, np.ndarray]:
    """The gradient by parameter, from what goes into every layer and the gradient by the last one's outputs."""
    slopes = {}
    for layer in reversed(range(_layers(params))):
        slopes[f"{layer}.kernel"] = inner[layer].T @ behind
        slopes[f"{layer}.bias"] = behind.sum(axis=0)
        behind = (behind @ params[f"{layer}.kernel"].T) * (inner[layer] > 0)
    return slopes


def predicted(params: Params, inputs: np.ndarray) -> np.ndarray:
    """The one number that a network predicts, float64[B]."""
    return _forward(params, inputs)[-1][:, 0]


def metrics(params: Params, inputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean cross-entropy in nats, and the share of examples whose largest logit is not their label's."""
    logits = _forward(params, inputs)[-1]
    of_label = _log_probabilities(logits)[np.arange(len(labels)), labels]
    return {"loss": float(-of_label.mean()), "error": float((logits.argmax(axis=1) != labels).mean())}
