"""The update rules in NumPy, float64, from their papers' formulas: no JAX, no Optax.

A rule is a generator of (parameters to train, parameters to evaluate): it starts from the initial ones, is sent a
gradient there and the learning rate of the step, and yields what comes of it.
"""

from collections.abc import Callable, Generator, Mapping
from itertools import count

import numpy as np

Arrays = dict[str, np.ndarray]
Metaparameters = Mapping[str, float]
Rule = Generator[tuple[Arrays, Arrays], tuple[Arrays, float], None]


def _zeros(params: Arrays) -> Arrays:
    return {name: np.zeros_like(p) for name, p in params.items()}


def _is_kernel(name: str) -> bool:
    return name.endswith(".kernel")


def _sgd(params: Arrays, m: Metaparameters) -> Rule:
    while True:
        gradient, rate = yield params, params
        params = {k: p - rate * (gradient[k] + m["weight_decay"] * p) for k, p in params.items()}


def _momentum(params: Arrays, m: Metaparameters, nesterov: bool = False) -> Rule:
    velocity = _zeros(params)
    while True:
        gradient, rate = yield params, params
        slope = {k: gradient[k] + m["weight_decay"] * p for k, p in params.items()}
        velocity = {k: m["momentum"] * v + slope[k] for k, v in velocity.items()}
        ahead = {k: slope[k] + m["momentum"] * v for k, v in velocity.items()} if nesterov else velocity
        params = {k: p - rate * ahead[k] for k, p in params.items()}


def _nesterov(params: Arrays, m: Metaparameters) -> Rule:
    return _momentum(params, m, nesterov=True)


class _Moments:
    """Adam's averages of gradients and of their squares, without the bias of their start at zero."""

    def __init__(self, params: Arrays, b1: float, b2: float, eps: float, nesterov: bool = False):
        self.first, self.second, self.steps = _zeros(params), _zeros(params), 0
        self.b1, self.b2, self.eps, self.nesterov = b1, b2, eps, nesterov

    def direction(self, gradient: Arrays) -> Arrays:
        """Takes in a gradient; Adam's direction, or with ``nesterov`` that of NAdam (Dozat 2016)."""
        self.steps += 1
        t, b1, b2 = self.steps, self.b1, self.b2
        self.first = {k: b1 * f + (1 - b1) * gradient[k] for k, f in self.first.items()}
        self.second = {k: b2 * s + (1 - b2) * gradient[k] ** 2 for k, s in self.second.items()}
        found = {}
        for k, first in self.first.items():
            mean = first / (1 - b1**t)
            if self.nesterov:
                mean = b1 * first / (1 - b1 ** (t + 1)) + (1 - b1) * gradient[k] / (1 - b1**t)
            found[k] = mean / (np.sqrt(self.second[k] / (1 - b2**t)) + self.eps)
        return found


def _adam(params: Arrays, m: Metaparameters) -> Rule:
    moments = _Moments(params, m["b1"], m["b2"], m["eps"])
    while True:
        gradient, rate = yield params, params
        direction = moments.direction({k: gradient[k] + m["weight_decay"] * p for k, p in params.items()})
        params = {k: p - rate * direction[k] for k, p in params.items()}


def _adamw(params: Arrays, m: Metaparameters) -> Rule:
    moments = _Moments(params, m["b1"], m["b2"], m["eps"])
    while True:
        gradient, rate = yield params, params
        direction = moments.direction(gradient)
        params = {k: p - rate * (direction[k] + m["weight_decay"] * p) for k, p in params.items()}


def _lars(params: Arrays, m: Metaparameters) -> Rule:
    velocity = _zeros(params)
    while True:
        gradient, rate = yield params, params
        for k, p in params.items():
            slope, own_rate = gradient[k], rate
            if _is_kernel(k):
                slope = slope + m["weight_decay"] * p
                own_rate = rate * m["trust_coefficient"] * np.linalg.norm(p) / np.linalg.norm(slope)
            velocity[k] = m["momentum"] * velocity[k] + own_rate * slope
        params = {k: p - velocity[k] for k, p in params.items()}


def _lamb(params: Arrays, m: Metaparameters) -> Rule:
    moments = _Moments(params, m["b1"], m["b2"], m["eps"])
    while True:
        gradient, rate = yield params, params
        direction = moments.direction(gradient)
        stepped = {}
        for k, p in params.items():
            towards, ratio = direction[k], 1.0
            if _is_kernel(k):
                towards = towards + m["weight_decay"] * p
                ratio = float(np.linalg.norm(p) / np.linalg.norm(towards))
            stepped[k] = p - rate * ratio * towards
        params = stepped


def _orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Five steps of the quintic Newton-Schulz iteration with Jordan's coefficients, on the wide side."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (np.sqrt(np.sum(x**2)) + 1e-8)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


def _muon(params: Arrays, m: Metaparameters) -> Rule:
    beta, decay = m["beta"], m["weight_decay"]
    average = {k: np.zeros_like(p) for k, p in params.items() if _is_kernel(k)}
    others = _Moments({k: p for k, p in params.items() if k not in average}, 0.9, 0.999, 1e-8, nesterov=True)
    for t in count(1):
        gradient, rate = yield params, params
        towards = others.direction(gradient)
        for k in average:
            average[k] = beta * average[k] + (1 - beta) * gradient[k]
            ahead = beta * average[k] / (1 - beta ** (t + 1)) + (1 - beta) * gradient[k] / (1 - beta**t)
            inputs, outputs = ahead.shape
            towards[k] = np.sqrt(max(1.0, outputs / inputs)) * _orthogonal(ahead)
        params = {k: p - rate * (towards[k] + decay * p) for k, p in params.items()}


def _schedule_free(params: Arrays, m: Metaparameters) -> Rule:
    """Of Defazio et al. 2024: y, where gradients are taken; z, which steps; x, their average, which is evaluated."""
    y, z, x = params, params, params
    weights = largest = 0.0
    while True:
        gradient, rate = yield y, x
        largest = max(largest, rate)
        weights += largest**2
        share = largest**2 / weights
        z = {k: v - rate * (gradient[k] + m["weight_decay"] * y[k]) for k, v in z.items()}
        x = {k: (1 - share) * v + share * z[k] for k, v in x.items()}
        y = {k: m["b1"] * x[k] + (1 - m["b1"]) * v for k, v in z.items()}


RULES: dict[str, Callable[[Arrays, Metaparameters], Rule]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adam": _adam,
    "adamw": _adamw,
    "lars": _lars,
    "lamb": _lamb,
    "muon": _muon,
    "schedule_free": _schedule_free,
}
