"""LSTM networks for next-token prediction, with and without a projected output."""

import jax
from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation, are_divided, named
from workloads.models import layers
from workloads.models.layers import dense, dropout, embedding
from workloads.models.text_options import LSTM, LSTMProjected
from workloads.workload import Array, ArrayPair, Product


class LSTMNetwork(nn.Module):
    """See ``text_options.LSTM``."""

    options: LSTM

    @nn.compact
    def __call__(self, tokens_BxT: Array) -> Array:
        classes, d_model = self.options.classes, self.options.d_model
        B, T = tokens_BxT.shape
        x_TBxD = embedding(classes, d_model)(tokens_BxT.T).reshape(T * B, d_model)
        x_TBxD = activation(x_TBxD, "", "act_embed")
        # The inputs' share of the gates does not depend on earlier steps: one product outside the recurrence.
        gates_TBx4D = activation(dense(4 * d_model, "embed", "mlp")(x_TBxD), "", "mlp")
        recurrent = named(nn.initializers.lecun_normal(), "embed", "")
        recurrent_Dx4D = self.param("recurrent", recurrent, (d_model, 4 * d_model))
        h_TxBxD = _recurrence(gates_TBx4D.reshape(T, B, 4 * d_model), recurrent_Dx4D, None)
        h_TBxD = activation(h_TxBxD.reshape(T * B, d_model), "", "mlp")
        logits_TBxV = dense(classes, "mlp", "vocab", dtype=jnp.float32)(h_TBxD)
        return logits_TBxV.reshape(T, B, classes).swapaxes(0, 1)


class LSTMProjectedNetwork(nn.Module):
    """See ``text_options.LSTMProjected``."""

    options: LSTMProjected

    @nn.compact
    def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
        options = self.options
        d_model, width = options.d_model, options.width
        # Rows have norm 1, approximately, for the read-out. As inputs they are scaled to values of magnitude 1.
        embed = embedding(options.classes, d_model, nn.initializers.normal(d_model**-0.5))
        x_BxTxD = dropout(embed(tokens_BxT) * d_model**0.5, keys_B, options.dropout, 0)
        x_BxTxD = activation(x_BxTxD, "batch", "length", "act_embed")
        # The inputs' share of the gates does not depend on earlier steps: one product outside the recurrence.
        gates_TxBx4W = dense(4 * width, "embed", "mlp")(x_BxTxD.swapaxes(0, 1))
        gates_TxBx4W = activation(gates_TxBx4W, "length", "batch", "mlp")
        lecun_normal = nn.initializers.lecun_normal()
        recurrent_Dx4W = self.param("recurrent", named(lecun_normal, "embed", ""), (d_model, 4 * width))
        projection_WxD = self.param("projection", named(lecun_normal, "mlp", "embed"), (width, d_model))
        h_BxTxD = _recurrence(gates_TxBx4W, recurrent_Dx4W, projection_WxD).swapaxes(0, 1)
        return layers.read_out(self, embed, dropout(h_BxTxD, keys_B, options.dropout, 1), options.read_out)


def _recurrence(gates_TxBx4W: Array, recurrent_Dx4W: Array, projection_WxD: Array | None) -> Array:
    """Returns the outputs [T, B, D].

    Args:
      gates_TxBx4W: contribution of the inputs to the input, forget, memory and output gates.
      recurrent_Dx4W: weights of the previous output in the gates.
      projection_WxD: weights from memory to output, or None if the output has the same size as the memory.
    """
    T, B = gates_TxBx4W.shape[:2]
    D, W = len(recurrent_Dx4W), gates_TxBx4W.shape[2] // 4
    if are_divided():  # each device needs all four gates of its part of the memory
        gates_TxBx4W = activation(gates_TxBx4W.reshape(T, B, 4, W), "length", "batch", "", "mlp")
        recurrent_Dx4W = activation(recurrent_Dx4W.reshape(D, 4, W), "act_embed", "", "mlp")

    def gates(h_BxD: Array, of_input: Array) -> list[Array]:
        """Returns the four gates [B, W]."""
        if are_divided():
            of_both = of_input + jnp.einsum("bd,dgw->bgw", activation(h_BxD, "batch", "act_embed"), recurrent_Dx4W)
            return [of_both[:, i] for i in range(4)]
        return jnp.split(of_input + h_BxD @ recurrent_Dx4W, 4, axis=-1)

    def step(carry: ArrayPair, of_input: Array) -> tuple[ArrayPair, Array]:
        memory_BxW, h_BxD = carry
        write, keep, new, show = gates(h_BxD, of_input)
        memory_BxW = jax.nn.sigmoid(keep + 1.0) * memory_BxW + jax.nn.sigmoid(write) * jnp.tanh(new)
        h_BxD = activation(jax.nn.sigmoid(show) * jnp.tanh(memory_BxW), "batch", "mlp")
        if projection_WxD is not None:
            h_BxD = activation(h_BxD @ projection_WxD, "batch", "act_embed")
        return (memory_BxW, h_BxD), h_BxD

    memory_BxW = jnp.zeros((B, W), gates_TxBx4W.dtype)
    h_BxD = memory_BxW if projection_WxD is None else jnp.zeros((B, D), gates_TxBx4W.dtype)
    return jax.lax.scan(step, (memory_BxW, h_BxD), gates_TxBx4W)[1]
