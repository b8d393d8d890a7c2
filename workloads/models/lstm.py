"""A network with long short-term memory that predicts the next token."""

from typing import Any

from workloads.workload import Array, Model, flax_model


def lstm(classes: int, d_model: int) -> Model:
    """An embedding, one LSTM layer (Hochreiter & Schmidhuber 1997, with forget gates), and a linear read-out.

    Args:
      classes: size of the vocabulary V.
      d_model: size D of the embedding, of the memory and of the output.

    Returns:
      A model of inputs int32[B, T]; logits float32[B, T, V] at t depend on inputs up to t. Memory and output start
      at zero; 1 is added to what goes into a forget gate, so that fresh networks remember. Parameters:
      V × D + 4 × D × (2 × D + 1) + (D + 1) × V.

    Raises:
      ValueError: ``d_model`` is not a positive whole number.
    """
    if not isinstance(d_model, int) or d_model < 1:
        raise ValueError(f"d_model must be a whole number of at least 1, not {d_model!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        class LSTM(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array) -> Array:
                B, T = tokens_BxT.shape
                x_TBxD = nn.Embed(classes, d_model)(tokens_BxT.T).reshape(T * B, d_model)
                # All that does not wait for the step before is one product, outside the recurrence.
                gates_TxBx4D = nn.Dense(4 * d_model)(x_TBxD).reshape(T, B, 4 * d_model)
                recurrent_Dx4D = self.param("recurrent", nn.initializers.lecun_normal(), (d_model, 4 * d_model))
                h_TxBxD = _recurrence(gates_TxBx4D, recurrent_Dx4D)
                logits_TBxV = nn.Dense(classes, dtype=jnp.float32)(h_TxBxD.reshape(T * B, d_model))
                return logits_TBxV.reshape(T, B, classes).swapaxes(0, 1)

        return LSTM()

    return flax_model(network)


def _recurrence(gates_TxBx4D: Array, recurrent_Dx4D: Array) -> Array:
    """Outputs [T, B, D] of gates before what the recurrence adds: input, forget, memory, output."""
    import jax
    import jax.numpy as jnp

    def step(carry: tuple[Array, Array], gates_Bx4D: Array) -> tuple[tuple[Array, Array], Array]:
        memory_BxD, h_BxD = carry
        write, keep, new, show = jnp.split(gates_Bx4D + h_BxD @ recurrent_Dx4D, 4, axis=-1)
        memory_BxD = jax.nn.sigmoid(keep + 1.0) * memory_BxD + jax.nn.sigmoid(write) * jnp.tanh(new)
        h_BxD = jax.nn.sigmoid(show) * jnp.tanh(memory_BxD)
        return (memory_BxD, h_BxD), h_BxD

    zeros_BxD = jnp.zeros((gates_TxBx4D.shape[1], len(recurrent_Dx4D)), gates_TxBx4D.dtype)
    return jax.lax.scan(step, (zeros_BxD, zeros_BxD), gates_TxBx4D)[1]
