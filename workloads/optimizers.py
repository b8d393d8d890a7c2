"""Optimizers as optax update rules with traced metaparameters, and learning-rate schedules.

The kind and length of a schedule are also traced, so all schedules share one program. Functions import JAX and optax
when they are called, so the registry can be read without them.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from workloads.workload import STACKED, Array, Params

# The number of each kind of schedule in a program.
SCHEDULES = {"constant": 0, "linear": 1, "cosine": 2}
# Metaparameters of decaying schedules, with values that disable decay: length in budgets, and final factor.
NO_DECAY = {"decay_fraction": 1.0, "end_learning_rate_factor": 1.0}
TUNED_DECAY = tuple(NO_DECAY)
LAYERS = ".stacked_layers"  # key of the list of stacked layers in the path of an optimizer's state


def heavy_ball(learning_rate: Array, momentum: Array, nesterov: Array, weight_decay: Array) -> Any:
    """Returns gradient descent with momentum. The optimizers sgd, momentum and nesterov share this program.

    Each step sets v ← momentum · v + g. The update is −learning_rate · v, or −learning_rate · (momentum · v + g) for
    Nesterov momentum (Polyak 1964; Nesterov 1983 as in Sutskever et al. 2013), as in ``optax.sgd``. The gradient g
    includes weight_decay · params.

    Args:
      learning_rate, momentum, nesterov, weight_decay: float32[]. ``nesterov`` is 1 or 0.
    """
    import jax
    import jax.numpy as jnp
    import optax

    def init(params: Params) -> optax.TraceState:
        return optax.TraceState(trace=jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: optax.OptState, params: Params = None) -> tuple[Any, optax.OptState]:
        assert isinstance(state, optax.TraceState)
        grads = jax.tree.map(lambda g, p: g + weight_decay * p, grads, params)
        trace = jax.tree.map(lambda g, v: g + momentum * v, grads, state.trace)
        ahead = jax.tree.map(lambda g, v: jnp.where(nesterov > 0, g + momentum * v, v), grads, trace)
        return jax.tree.map(lambda u: -learning_rate * u, ahead), optax.TraceState(trace=trace)

    return optax.GradientTransformation(init, update)


def adam(learning_rate: Array, b1: Array, b2: Array, eps: Array, weight_decay: Array) -> Any:
    """Returns ``optax.adam`` (Kingma & Ba 2015) on gradients that include weight_decay · params."""
    import optax

    return _chain(optax.add_decayed_weights(weight_decay), optax.adam(learning_rate, b1, b2, eps))


def adamw(learning_rate: Array, b1: Array, b2: Array, eps: Array, weight_decay: Array) -> Any:
    """Returns ``optax.adamw``, Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""
    import optax

    return _chain(optax.adamw(learning_rate, b1, b2, eps, weight_decay=weight_decay))


def lars(learning_rate: Array, momentum: Array, trust_coefficient: Array, weight_decay: Array) -> Any:
    """Returns ``optax.lars``, layer-wise adaptive rates (You et al. 2017, arXiv 1708.03888).

    As in the authors' LARSOptimizer for TensorFlow, biases and norm parameters do not have a trust ratio or weight
    decay, and use momentum with the plain learning rate. With weight decay, the denominator of a trust ratio is the
    norm of the sum of gradient and decay, as in optax. The paper adds the two norms instead.
    """
    import optax

    return _of_layers(
        optax.lars(
            learning_rate,
            weight_decay,
            adaptation_mask,
            trust_coefficient,
            trust_ratio_mask=adaptation_mask,
            momentum=momentum,
        )
    )


def lamb(learning_rate: Array, b1: Array, b2: Array, eps: Array, weight_decay: Array) -> Any:
    """Returns LAMB (You et al. 2020, arXiv 1904.00962), built from the four parts of ``optax.lamb``.

    As in the authors' code for BERT, biases and norm parameters do not have a trust ratio or weight decay, and use
    Adam. ``optax.lamb`` can mask only the weight decay.
    """
    import optax

    return _of_layers(
        optax.scale_by_adam(b1, b2, eps),
        optax.add_decayed_weights(weight_decay, adaptation_mask),
        optax.masked(optax.scale_by_trust_ratio(), adaptation_mask),
        optax.scale_by_learning_rate(learning_rate),
    )


def adaptation_mask(params: Params) -> Any:
    """Returns a mask of the parameters that have layer-wise rates: False for biases and norm parameters.

    As in the authors' code for LARS, biases and norm parameters are identified by their names, which are ``bias`` and
    ``scale`` in Flax. A rule based on the number of dimensions would also exclude the noisy quadratic, because its only
    layer is a vector.
    """
    import jax

    def by_name(path: tuple[Any, ...], param: Array) -> bool:
        return jax.tree_util.keystr(path[-1:], simple=True) not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(by_name, params)


def muon(learning_rate: Array, beta: Array, weight_decay: Array) -> Any:
    """Returns ``optax.contrib.muon`` (Jordan et al. 2024): Muon for matrices, NAdam for all other parameters.

    The other parameters include biases and convolution kernels. NAdam (Dozat 2016) has decoupled weight decay, the same
    learning rate, b1 0.9, b2 0.999 and eps 1e-8.
    """
    from optax import contrib

    return _of_layers(contrib.muon(learning_rate, beta=beta, weight_decay=weight_decay, adam_weight_decay=weight_decay))


def schedule_free(learning_rate: Array, b1: Array, weight_decay: Array) -> Any:
    """Returns schedule-free SGD (Defazio et al. 2024), which is evaluated at the ``average`` parameters."""
    import optax
    from optax import contrib

    return _chain(
        optax.add_decayed_weights(weight_decay), contrib.schedule_free(optax.sgd(learning_rate), learning_rate, b1)
    )


def average(params: Params, state: Any) -> Params:
    """Returns the averaged parameters at which a schedule-free optimizer is evaluated."""
    import jax
    from optax import contrib

    with jax.numpy_dtype_promotion("standard"):
        return contrib.schedule_free_eval_params(state[-1], params)


class _Layers(NamedTuple):
    """Stacked layers, one by one. A node of its own, because a model's parameters may contain lists and tuples."""

    stacked_layers: list[Any]


def _of_layers(*parts: Any) -> Any:
    """Chains transformations that depend on a layer's norm or shape, and applies them to each stacked layer."""
    import jax
    import jax.numpy as jnp
    import optax

    rule = _chain(*parts)

    def is_stack(name: object) -> bool:
        return isinstance(name, str) and name.startswith(STACKED)

    def has_stack(tree: Any) -> bool:
        return isinstance(tree, dict) and any(map(is_stack, tree))

    def apart(tree: Any) -> Any:
        return jax.tree.map(parted, tree, is_leaf=has_stack)

    def parted(tree: Any) -> Any:
        if not has_stack(tree):
            return tree
        return {name: layers(subtree) if is_stack(name) else apart(subtree) for name, subtree in tree.items()}

    def layers(stack: Any) -> _Layers:
        count = len(jax.tree.leaves(stack)[0])
        return _Layers([jax.tree.map(operator.itemgetter(i), stack) for i in range(count)])

    def stacked(tree: Any) -> Any:
        return (
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *tree.stacked_layers) if isinstance(tree, _Layers) else tree
        )

    def together(tree: Any) -> Any:
        return jax.tree.map(stacked, tree, is_leaf=lambda node: isinstance(node, _Layers))

    def update(grads: Any, state: Any, params: Params = None) -> tuple[Any, Any]:
        updates, state = rule.update(apart(grads), state, apart(params))
        return together(updates), state

    return optax.GradientTransformation(lambda params: rule.init(apart(params)), update)


def _chain(*parts: Any) -> Any:
    """Chains optax's transformations under the dtype promotion that they require (float32 ** int32)."""
    import jax
    import optax

    chain = optax.chain(*parts)

    def standard(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with jax.numpy_dtype_promotion("standard"):
                return function(*arguments)

        return call

    return optax.GradientTransformation(standard(chain.init), standard(chain.update))


def decay_factor(kind: Array, step: Array, decay_steps: Array, end_factor: Array) -> Array:
    """Returns the factor that multiplies the initial learning rate at a step. Shallue et al. (2018) use linear decay.

    Args:
      kind: int32[], value in SCHEDULES.
      step: int32[], number of steps taken.
      decay_steps: float32[], number of steps over which the factor decreases from 1 to ``end_factor``. The factor is
        constant afterwards.
      end_factor: float32[].

    Returns:
      float32[].
    """
    import jax.numpy as jnp

    progress = jnp.clip(step.astype(jnp.float32) / jnp.maximum(decay_steps, 1.0), 0.0, 1.0)
    remaining = jnp.where(kind == SCHEDULES["cosine"], 0.5 * (1.0 + jnp.cos(jnp.pi * progress)), 1.0 - progress)
    return jnp.where(kind == SCHEDULES["constant"], 1.0, end_factor + (1.0 - end_factor) * remaining)
