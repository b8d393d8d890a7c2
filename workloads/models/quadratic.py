"""A quadratic bowl whose gradient noise is shaped like its curvature. The expected loss has a closed form."""

from typing import Any

from workloads.workload import Array, Model, Params, State, Variables


def quadratic(classes: int, noise: float) -> Model:
    """Returns the noisy quadratic model with loss ½ Σ hᵢ θᵢ² (Zhang et al. 2019, arXiv 1907.04164, section 3).

    Curvatures are hᵢ = 1/i. The gradient h θ + noise · √h ε has covariance noise² · diag(h) / batch size. Every trial
    starts at θ = 1. The expected loss after t steps of gradient descent with rate α is therefore ½ Σ hᵢ mᵢ, where
    mᵢ starts at 1 and each step sets mᵢ ← (1 − α hᵢ)² mᵢ + α² noise² hᵢ / batch size.

    Args:
      classes: not used, but all models must accept it.
      noise: standard deviation of the noise. 0 gives gradient descent without noise.

    Returns:
      A model that takes inputs ε float32[B, D], one vector per example. Its output is the loss of each example,
      float32[B]. It has D parameters.

    Raises:
      ValueError: ``noise`` is negative.
    """
    del classes
    if noise < 0:
        raise ValueError(f"noise must be at least 0, not {noise}")

    def init(key: Array, inputs: Array) -> Variables:
        import jax.numpy as jnp

        del key
        return jnp.ones(inputs.shape[-1], jnp.float32), ()

    def apply(
        theta_D: Params, state: State, epsilon_BxD: Array, keys: Array | None, train: bool
    ) -> tuple[Array, State]:
        import jax.numpy as jnp

        del keys, train
        theta_D, epsilon_BxD = (array.astype(jnp.float32) for array in (theta_D, epsilon_BxD))  # may have been rounded
        h_D = 1.0 / jnp.arange(1, len(theta_D) + 1, dtype=jnp.float32)
        return jnp.sum(0.5 * h_D * theta_D**2 + noise * jnp.sqrt(h_D) * epsilon_BxD * theta_D, axis=-1), state

    def names(inputs: Array) -> Any:
        from jax.sharding import PartitionSpec

        return PartitionSpec("embed")

    return Model(init, apply, axes=names)
