"""A quadratic bowl with gradient noise shaped like its curvature, whose expected loss is known in closed form."""

from workloads.workload import Array, Model, Params, State


def quadratic(classes: int, noise: float) -> Model:
    """The noisy quadratic model of Zhang et al. 2019, arXiv 1907.04164, section 3: loss ½ Σ hᵢ θᵢ².

    Curvatures are hᵢ = 1/i, and the gradient h θ + noise · √h ε has covariance noise² · diag(h) / batch size. Every
    trial starts at θ = 1, so the expected loss after t steps of gradient descent with rate α is
    ½ Σ hᵢ mᵢ with mᵢ ← (1 − α hᵢ)² mᵢ + α² noise² hᵢ / batch size from mᵢ = 1.

    Args:
      classes: not used; every model has it.
      noise: standard deviation; 0 gives gradient descent without noise.

    Returns:
      A model of inputs ε float32[B, D], one vector per example, that gives a loss float32[B] each. Parameters: D.

    Raises:
      ValueError: ``noise`` is negative.
    """
    del classes
    if noise < 0:
        raise ValueError(f"noise must be at least 0, not {noise}")

    def init(key: Array, inputs: Array) -> tuple[Params, State]:
        import jax.numpy as jnp

        del key
        return jnp.ones(inputs.shape[-1], jnp.float32), ()

    def apply(
        theta_D: Params, state: State, epsilon_BxD: Array, keys: Array | None, train: bool
    ) -> tuple[Array, State]:
        import jax.numpy as jnp

        del keys, train
        theta_D, epsilon_BxD = (array.astype(jnp.float32) for array in (theta_D, epsilon_BxD))  # what is rounded, is
        h_D = 1.0 / jnp.arange(1, len(theta_D) + 1, dtype=jnp.float32)
        return jnp.sum(0.5 * h_D * theta_D**2 + noise * jnp.sqrt(h_D) * epsilon_BxD * theta_D, axis=-1), state

    return Model(init, apply)
