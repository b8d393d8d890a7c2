"""Convolution and max-pooling of images, which are also fast in compiled loops on CPUs."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from workloads.workload import Array

_NHWC = ("NHWC", "HWIO", "NHWC")


def convolution(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    precision: lax.PrecisionLike = None,
) -> Array:
    """Like ``lax.conv_general_dilated`` for images, but computed as a single matmul on CPUs, including its gradients.

    Inside a compiled loop on a CPU, XLA's convolution is many times slower than a matmul of the same size. On other
    platforms, XLA's convolution is faster and is used instead.

    Args:
      lhs: images [B, H, W, C].
      rhs: kernel [P, Q, C, F].
      window_strides: strides along rows and columns.
      padding: SAME, VALID, or (before, after) for rows and columns.
      lhs_dilation, rhs_dilation, feature_group_count: not supported. Each must be None or all 1.
      dimension_numbers: NHWC, HWIO, NHWC in any spelling that JAX accepts.
      precision: precision of the matmul.

    Returns:
      [B, H', W', F].

    Raises:
      ValueError: dilation, groups or another order of dimensions was requested.
    """
    if any(d != 1 for d in (*(lhs_dilation or ()), *(rhs_dilation or ()))) or feature_group_count != 1:
        raise ValueError("convolution takes neither dilation nor groups")
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    if numbers != lax.conv_dimension_numbers(lhs.shape, rhs.shape, _NHWC):
        raise ValueError(f"convolution takes images as NHWC and kernels as HWIO, not {dimension_numbers}")
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:3], rhs.shape[:2], window_strides, padding)

    def product(lhs_BxHxWxC: Array, rhs_PxQxCxF: Array) -> Array:
        windows_BxHxWxPQC = _windows(lhs_BxHxWxC, rhs_PxQxCxF.shape[:2], window_strides, padding)
        *images, taps = windows_BxHxWxPQC.shape
        features = rhs_PxQxCxF.shape[-1]
        flat = jnp.matmul(windows_BxHxWxPQC.reshape(-1, taps), rhs_PxQxCxF.reshape(taps, features), precision=precision)
        return flat.reshape(*images, features)

    def native(lhs: Array, rhs: Array) -> Array:
        return lax.conv_general_dilated(
            lhs, rhs, window_strides, padding, dimension_numbers=numbers, precision=precision
        )

    # Chosen by the platform that the program is lowered for. The other branch is not compiled.
    return lax.platform_dependent(lhs, rhs, cpu=product, default=native)


def _windows(
    x_BxHxWxC: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]]
) -> Array:
    """Returns the window under the kernel at each output position, [B, H', W', P·Q·C]."""
    x_BxHxWxC = jnp.pad(x_BxHxWxC, ((0, 0), *padding, (0, 0)))
    # Columns first, then rows: this takes P + Q slices instead of P × Q, here and in the gradient.
    for axis in (2, 1):
        size = kernel[axis - 1]
        stride = strides[axis - 1]
        last = x_BxHxWxC.shape[axis] - size
        shifted = [lax.slice_in_dim(x_BxHxWxC, i, i + last + 1, stride, axis) for i in range(size)]
        x_BxHxWxC = jnp.concatenate(shifted, axis=-1)
    return x_BxHxWxC


def max_pool(x_BxHxWxC: Array) -> Array:
    """Returns the maximum of each 2×2 block, [B, H // 2, W // 2, C]. An odd last row or column is ignored.

    Equivalent to ``flax.linen.max_pool(x, (2, 2), (2, 2))``, but much faster on a CPU. If several values of a block
    equal its maximum, they share the gradient, whereas Flax assigns it to the first of them.

    Raises:
      ValueError: the images are smaller than a block.
    """
    B, H, W, C = x_BxHxWxC.shape
    if min(H, W) < 2:
        raise ValueError(f"images of {H}×{W} are too small to pool by 2×2")
    blocks = x_BxHxWxC[:, : H // 2 * 2, : W // 2 * 2].reshape(B, H // 2, 2, W // 2, 2, C)
    return jnp.max(blocks, axis=(2, 4))


def max_pool_3x3(x_BxHxWxC: Array) -> Array:
    """Returns the maximum of the 3×3 window around every second position, [B, ⌈H / 2⌉, ⌈W / 2⌉, C].

    Computes ``flax.linen.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))`` from six slices, whose gradients are sums.
    Gradients of overlapping windows would be slow on all platforms. Values equal to the maximum share the gradient.
    """
    x_BxHxWxC = jnp.pad(x_BxHxWxC, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf)
    for axis in (2, 1):
        last = x_BxHxWxC.shape[axis] - 3
        first, second, third = (lax.slice_in_dim(x_BxHxWxC, i, i + last + 1, 2, axis) for i in range(3))
        x_BxHxWxC = jnp.maximum(jnp.maximum(first, second), third)
    return x_BxHxWxC
