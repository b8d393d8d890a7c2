"""Networks with long short-term memory that predict the next token, one of them with a projected output."""

from typing import Any

from workloads.models.options import check_share, check_whole
from workloads.workload import Array, Model, Product, flax_model, flax_model_in_training


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


def lstm_projected(classes: int, d_model: int, width: int, dropout: float) -> Model:
    """An embedding and an LSTM layer whose output is projected (Sak et al. 2014, arXiv 1402.1128).

    ``d_model=512`` and ``width=2048`` is LSTM-2048-512 of Jozefowicz et al. (2016, arXiv 1602.02410). Unlike there, the
    embedding is also the read-out, as in ``transformer_decoder``, and there are neither peepholes nor clipped cells.

    Args:
      classes: size of the vocabulary V.
      d_model: size D of the embedding and of the projected output, which goes into the next step.
      width: size W of the memory.
      dropout: probability of each value of embedding and output to be dropped in training, in [0, 1).

    Returns:
      A model of inputs int32[B, T]; outputs at t depend on inputs up to t. They are a ``Product`` of features
      [B, T, D] and kernel [D, V], as logits [B, T, V] may not fit. Memory and output start at zero; 1 is added to what
      goes into a forget gate, so that fresh networks remember. Parameters: V × D + 4 × W × (2 × D + 1) + W × D.

    Raises:
      ValueError: an option is not a positive whole number, or ``dropout`` is not in [0, 1).
    """
    check_whole(d_model=d_model, width=width)
    check_share(dropout=dropout)

    def network() -> Any:
        from flax import linen as nn

        from workloads.models.layers import dropout as dropped

        class LSTMProjected(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
                # As read-out its rows have length 1, about; as input each value has the size that gates expect.
                embed = nn.Embed(classes, d_model, embedding_init=nn.initializers.normal(d_model**-0.5))
                x_BxTxD = dropped(embed(tokens_BxT) * d_model**0.5, keys_B, dropout, 0)
                # All that does not wait for the step before is one product, outside the recurrence.
                gates_TxBx4W = nn.Dense(4 * width)(x_BxTxD.swapaxes(0, 1))
                lecun_normal = nn.initializers.lecun_normal()
                recurrent_Dx4W = self.param("recurrent", lecun_normal, (d_model, 4 * width))
                projection_WxD = self.param("projection", lecun_normal, (width, d_model))
                h_BxTxD = _projected_recurrence(gates_TxBx4W, recurrent_Dx4W, projection_WxD).swapaxes(0, 1)
                return Product(dropped(h_BxTxD, keys_B, dropout, 1), embed.embedding.T)

        return LSTMProjected()

    return flax_model_in_training(network)


def _projected_recurrence(gates_TxBx4W: Array, recurrent_Dx4W: Array, projection_WxD: Array) -> Array:
    """Outputs [T, B, D] of gates before what the recurrence adds: input, forget, memory, output."""
    import jax
    import jax.numpy as jnp

    def step(carry: tuple[Array, Array], gates_Bx4W: Array) -> tuple[tuple[Array, Array], Array]:
        memory_BxW, h_BxD = carry
        write, keep, new, show = jnp.split(gates_Bx4W + h_BxD @ recurrent_Dx4W, 4, axis=-1)
        memory_BxW = jax.nn.sigmoid(keep + 1.0) * memory_BxW + jax.nn.sigmoid(write) * jnp.tanh(new)
        h_BxD = (jax.nn.sigmoid(show) * jnp.tanh(memory_BxW)) @ projection_WxD
        return (memory_BxW, h_BxD), h_BxD

    B, (W, D) = gates_TxBx4W.shape[1], projection_WxD.shape
    zeros = (jnp.zeros((B, W), gates_TxBx4W.dtype), jnp.zeros((B, D), gates_TxBx4W.dtype))
    return jax.lax.scan(step, zeros, gates_TxBx4W)[1]
