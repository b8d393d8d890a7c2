"""Learning-rate decay whose kind and length are traced, so that one program serves every choice of them."""

from workloads.workload import Array

# The number a program is given for each kind.
SCHEDULES = {"constant": 0, "linear": 1, "cosine": 2}
# Metaparameters of a schedule that decays: the length in budgets, and the final factor; their values without decay.
NO_DECAY = {"decay_fraction": 1.0, "end_learning_rate_factor": 1.0}
TUNED = tuple(NO_DECAY)


def factor(kind: Array, step: Array, decay_steps: Array, end_factor: Array) -> Array:
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
