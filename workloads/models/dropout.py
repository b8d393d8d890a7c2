"""Dropout whose masks belong to examples, not to batches."""

import jax
import jax.numpy as jnp

from workloads.workload import Array


def dropout(x: Array, keys_B: Array | None, rate: float, layer: Array | int) -> Array:
    """Sets a share of all values to 0 and divides the others by what is kept (Srivastava et al. 2014).

    The mask of an example depends on its own key and on the layer alone, so it is the same on whatever shard or in
    whatever microbatch the example is.

    Args:
      x: [B, ...], in any dtype of floats.
      keys_B: one key for each example; None in an evaluation, where nothing is dropped.
      rate: probability to be dropped, in [0, 1).
      layer: int32[], which place in the network this is; two places with the same number have the same masks.

    Returns:
      [B, ...], of the dtype of ``x``.
    """
    if keys_B is None or rate == 0:
        return x

    def kept(key: Array) -> Array:
        return jax.random.bernoulli(jax.random.fold_in(key, layer), 1.0 - rate, x.shape[1:])

    # bfloat16 would round the divisor itself, and make every value too large or too small by the same share.
    scaled = (x.astype(jnp.float32) / (1.0 - rate)).astype(x.dtype)
    return jnp.where(jax.vmap(kept)(keys_B), scaled, jnp.zeros_like(x))
