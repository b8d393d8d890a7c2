"""Optimizers: update rules of traced metaparameters, in optax's form, and schedules, by which learning rates decay.

The kind and the length of a schedule are traced too, so that one program serves every choice of them.
"""

import operator
from collections.abc import Callable
from typing import Any

from workloads.workload import STACKED, Array, Params

# The number a program is given for each kind of schedule.
SCHEDULES = {"constant": 0, "linear": 1, "cosine": 2}
# Metaparameters of a schedule that decays: the length in budgets, and the final factor; their values without decay.
NO_DECAY = {"decay_fraction": 1.0, "end_learning_rate_factor": 1.0}
TUNED_DECAY = tuple(NO_DECAY)


def heavy_ball(learning_rate: Array, momentum: Array, nesterov: Array, weight_decay: Array) -> Any:
    """Gradient descent with momentum, in one program for all of sgd, momentum and nesterov.

    v ← momentum · v + g; the update is −learning_rate · v, or for Nesterov's −learning_rate · (momentum · v + g)
    (Polyak 1964; Nesterov 1983 as in Sutskever et al. 2013), as in ``optax.sgd``; g holds weight_decay · params.

    Args:
      learning_rate, momentum, nesterov, weight_decay: float32[]; ``nesterov`` is 1 or 0.
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
    """Adam (Kingma & Ba 2015) on gradients that hold weight_decay · params; ``optax.adam``."""
    import optax

    return _chain(optax.add_decayed_weights(weight_decay), optax.adam(learning_rate, b1, b2, eps))


def adamw(learning_rate: Array, b1: Array, b2: Array, eps: Array, weight_decay: Array) -> Any:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); ``optax.adamw``."""
    import optax

    return _chain(optax.adamw(learning_rate, b1, b2, eps, weight_decay=weight_decay))


def lars(learning_rate: Array, momentum: Array, trust_coefficient: Array, weight_decay: Array) -> Any:
    """Layer-wise adaptive rates (You et al. 2017, arXiv 1708.03888); ``optax.lars``.

    Biases and parameters of norms have neither a trust ratio nor weight decay, as in the authors' own LARSOptimizer
    for TensorFlow: they move by momentum at the plain learning rate. Where there is weight decay a trust ratio has
    the norm of gradient and decay together below it, as Optax has; the paper adds the norms of the two.
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
    """LAMB (You et al. 2020, arXiv 1904.00962); ``optax.lamb``.

    Biases and parameters of norms have neither a trust ratio nor weight decay, as in the authors' own code for BERT:
    they move as Adam moves them. ``optax.lamb`` can leave out the decay alone, so its four parts are put together here.
    """
    import optax

    return _of_layers(
        optax.scale_by_adam(b1, b2, eps),
        optax.add_decayed_weights(weight_decay, adaptation_mask),
        optax.masked(optax.scale_by_trust_ratio(), adaptation_mask),
        optax.scale_by_learning_rate(learning_rate),
    )


def adaptation_mask(params: Params) -> Any:
    """A mask of the parameters with layer-wise rates: bool by parameter, False for biases and parameters of norms.

    They are recognised by the names that every layer of Flax gives them, ``bias`` and ``scale``, as in the code of
    LARS: by the number of dimensions the one vector of the noisy quadratic, its only layer, would be left out, too.
    """
    import jax

    def by_name(path: tuple[Any, ...], param: Array) -> bool:
        return jax.tree_util.keystr(path[-1:], simple=True) not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(by_name, params)


def muon(learning_rate: Array, beta: Array, weight_decay: Array) -> Any:
    """Muon (Jordan et al. 2024) on matrices, NAdam with decoupled weight decay on all else; ``optax.contrib.muon``.

    All else, biases and the kernels of convolutions among it, goes by Adam with Nesterov momentum (Dozat 2016), at the
    same learning rate, with b1 0.9, b2 0.999 and eps 1e-8.
    """
    from optax import contrib

    return _of_layers(contrib.muon(learning_rate, beta=beta, weight_decay=weight_decay, adam_weight_decay=weight_decay))


def schedule_free(learning_rate: Array, b1: Array, weight_decay: Array) -> Any:
    """Schedule-free SGD (Defazio et al. 2024), evaluated at ``average`` parameters; ``optax.contrib``."""
    import optax
    from optax import contrib

    return _chain(
        optax.add_decayed_weights(weight_decay), contrib.schedule_free(optax.sgd(learning_rate), learning_rate, b1)
    )


def average(params: Params, state: Any) -> Params:
    """The parameters a schedule-free optimizer is evaluated at: its running average."""
    import jax
    from optax import contrib

    with jax.numpy_dtype_promotion("standard"):
        return contrib.schedule_free_eval_params(state[-1], params)


def _of_layers(*parts: Any) -> Any:
    """As ``_chain``, of an update rule that treats every layer alone, by its norm or its shape: stacked ones, too."""
    import jax
    import jax.numpy as jnp
    import optax

    rule = _chain(*parts)

    def apart(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        return {name: layers(below) if name.startswith(STACKED) else apart(below) for name, below in tree.items()}

    def layers(stack: Any) -> list[Any]:
        count = len(jax.tree.leaves(stack)[0])
        return [jax.tree.map(operator.itemgetter(i), stack) for i in range(count)]

    def together(tree: Any) -> Any:
        if isinstance(tree, list):
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tree)
        return {name: together(below) for name, below in tree.items()} if isinstance(tree, dict) else tree

    def update(grads: Any, state: Any, params: Params = None) -> tuple[Any, Any]:
        updates, state = rule.update(apart(grads), state, apart(params))
        return together(updates), state

    return optax.GradientTransformation(lambda params: rule.init(apart(params)), update)


def _chain(*parts: Any) -> Any:
    """Optax's transformations in a row, under the dtype promotion they are written for (float32 ** int32)."""
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
    """The factor of the initial learning rate at a step; Shallue et al. 2018 decay linearly.

    Args:
      kind: int32[], a value of SCHEDULES.
      step: int32[], steps already taken.
      decay_steps: float32[], over which the factor falls from 1 to ``end_factor``; it stays there.
      end_factor: float32[].

    Returns:
      float32[].
    """
    import jax.numpy as jnp

    progress = jnp.clip(step.astype(jnp.float32) / jnp.maximum(decay_steps, 1.0), 0.0, 1.0)
    remaining = jnp.where(kind == SCHEDULES["cosine"], 0.5 * (1.0 + jnp.cos(jnp.pi * progress)), 1.0 - progress)
    return jnp.where(kind == SCHEDULES["constant"], 1.0, end_factor + (1.0 - end_factor) * remaining)
