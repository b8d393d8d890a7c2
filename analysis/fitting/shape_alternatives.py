"""Alternative shapes: the fitted curve with one additional parameter, called size. Size 0 is the fitted curve itself.

slope: ln (S / S_min) is multiplied by (1 + size), so steps fall as B^-(1 + size) at small batch sizes. plateau: ln S
rises by size times ln B beyond four critical batch sizes. knee: the knee is e^size times as sharp on the
perfect-scaling side as on the plateau side. In all cases, the line at small batch sizes meets the plateau at B*.
"""

from typing import Literal, NamedTuple

import numpy as np

from analysis.fitting.profiles import HIGHEST, LOWEST, OCTAVE, excess

Bend = Literal["straight", "slope", "plateau", "knee"]
BENDS: tuple[Bend, ...] = ("slope", "plateau", "knee")

FROM = 2 * OCTAVE  # a tilted plateau starts this far beyond the critical batch size
TURN = 3.0  # sharpness of the turn at that point
LARGEST = 3.0  # maximum size of a bend
STRIDE = 1.0  # maximum change in ln B*, ln a and size per step
ITERATIONS = 10  # iterations of the Levenberg-Marquardt method; four times more hardly change any check
CONVERGED = 1e-5  # relative decrease of the misfit at which to stop
DIFFERENCE = 1e-4


class Bent(NamedTuple):
    """The best-fitting alternative curve for each of d data sets.

    Attributes:
      ln_critical, size: float64[d], parameters of the curve.
      misfit: float64[d], weighted residual sum of squares including the prior.
      squares: float64[d], the same sum, but without the prior.
      spread: float64[d, 2], standard deviations of ln_critical and size for residuals with variance 1.
      sharpness: float64[d].
    """

    ln_critical: np.ndarray
    size: np.ndarray
    misfit: np.ndarray
    squares: np.ndarray
    spread: np.ndarray
    sharpness: np.ndarray


def curve(bend: Bend, parameters: np.ndarray, ln_batch: np.ndarray) -> np.ndarray:
    """Returns ln S up to a constant, float64[d, n], for curves ``parameters`` = (ln B*, ln a, size) [d, 3]."""
    ln_below_knee, a, size = parameters[:, :1] - ln_batch, np.exp(parameters[:, 1:2]), parameters[:, 2:]
    if bend == "knee":
        return _lopsided(ln_below_knee, a * np.exp(-size / 2), a * np.exp(size / 2))
    excess_above = excess(ln_below_knee, a)
    if bend == "slope":
        return (1 + size) * excess_above
    if bend == "plateau":
        return excess_above + size * excess(-ln_below_knee - FROM, TURN)
    return excess_above


def _lopsided(ln_below_knee: np.ndarray, plateau: np.ndarray, perfect: np.ndarray) -> np.ndarray:
    """Joins two half-knees with the sharpnesses ``plateau`` and ``perfect``. Their slopes are equal at the joint."""
    share = perfect / (plateau + perfect)  # fraction of the turn on the plateau side
    # Moves the turn so that the halves meet and their asymptotes still meet at B*.
    mean = 2 * OCTAVE * ((1 - share) / perfect - share / plateau)
    moved = ln_below_knee + mean
    flat = 2 * share * excess(np.minimum(moved, 0), plateau)
    steep = np.maximum(moved, 0)
    return np.where(moved < 0, flat, ln_below_knee + 2 * (1 - share) * (excess(steep, perfect) - steep))


def fit(
    bend: Bend, ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, start: np.ndarray, noise: np.ndarray
) -> Bent:
    """Computes the least-squares fits of d data sets, with the prior ln a ~ N(0, 1).

    Args:
      bend: the additional parameter.
      ln_batch: [n].
      ln_steps, weights: [d, n], data and weights. Weights have mean 1.
      start: [d, 2], initial values of ln B* and ln a.
      noise: [d], residual variance, which sets the weight of the prior.
    """
    free = 2 if bend == "straight" else 3
    parameters = np.concatenate([start, np.zeros((len(start), 1))], axis=1)
    bounds = np.array([[-np.inf, np.log(LOWEST), -LARGEST], [np.inf, np.log(HIGHEST), LARGEST]])
    rest, misfit = _rest(bend, parameters, ln_batch, ln_steps, weights, noise)
    damping, done = np.full(len(parameters), 1e-3), np.zeros(len(parameters), bool)
    # Each data set has its own damping, which decreases after a good step and increases after a bad one.
    for _ in range(ITERATIONS):
        normal, pull = _normal(bend, parameters, ln_batch, weights, noise, rest, free)
        damped = normal + damping[:, None, None] * normal * np.eye(free)
        moved = parameters.copy()
        moved[:, :free] += np.clip(np.linalg.solve(damped, pull[..., None])[..., 0], -STRIDE, STRIDE)
        moved = np.clip(moved, *bounds)
        new_rest, new_misfit = _rest(bend, moved, ln_batch, ln_steps, weights, noise)
        better = new_misfit < misfit
        done |= better & (misfit - new_misfit < CONVERGED * misfit)
        parameters, rest = np.where(better[:, None], moved, parameters), np.where(better[:, None], new_rest, rest)
        misfit, damping = np.where(better, new_misfit, misfit), np.where(better, damping / 5, damping * 10)
        if done.all():
            break
    # The curvature at the solution gives the spread.
    normal, _ = _normal(bend, parameters, ln_batch, weights, noise, rest, free)
    variance = np.einsum("dii->di", np.linalg.inv(normal))[:, [0, free - 1]]
    squares = (weights * rest**2).sum(axis=1)
    return Bent(
        parameters[:, 0], parameters[:, 2], misfit, squares, np.sqrt(np.maximum(variance, 0)), np.exp(parameters[:, 1])
    )


def squares(ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Returns weighted residual sums of squares [d] around the original curves ``start`` [d, 2] (see ``fit``)."""
    parameters = np.concatenate([start, np.zeros((len(start), 1))], axis=1)
    return _rest("straight", parameters, ln_batch, ln_steps, weights, np.zeros(len(parameters)))[1]


def _rest(
    bend: Bend,
    parameters: np.ndarray,
    ln_batch: np.ndarray,
    ln_steps: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the residuals [d, n] from curves at their best height, and the misfits [d]."""
    rest = ln_steps - curve(bend, parameters, ln_batch)
    rest -= (weights * rest).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    return rest, (weights * rest**2).sum(axis=1) + noise * parameters[:, 1] ** 2


def _normal(
    bend: Bend,
    parameters: np.ndarray,
    ln_batch: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
    rest: np.ndarray,
    free: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the normal equations of a Gauss-Newton step: matrices [d, free, free] and right-hand sides [d, free]."""
    shifts = DIFFERENCE * np.concatenate([np.eye(3)[:free], -np.eye(3)[:free]])
    neighbours = (parameters + shifts[:, None]).reshape(-1, 3)
    curves = curve(bend, neighbours, ln_batch).reshape(2, free, *rest.shape)
    moves = np.moveaxis(curves[0] - curves[1], 0, 2) / (2 * DIFFERENCE)  # [d, n, free]
    moves -= (weights[..., None] * moves).sum(axis=1, keepdims=True) / weights.sum(axis=1)[:, None, None]
    weighed = weights[..., None] * moves
    normal = np.einsum("dni,dnj->dij", weighed, moves)
    pull = np.einsum("dni,dn->di", weighed, rest)
    normal[:, 1, 1] += noise
    pull[:, 1] -= noise * parameters[:, 1]
    # A parameter that the data do not determine, such as a plateau beyond them, keeps its value.
    return normal + 1e-9 * np.eye(free), pull
