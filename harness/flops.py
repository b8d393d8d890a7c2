"""Floating-point operations of matrix products and convolutions, counted in a program before it is compiled."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from workloads.workload import Examples, Workload


def step_flops(workload: Workload, batch_size: int) -> int:
    """The operations of a step of training, as ``matrix_flops`` counts those of a batch's loss and its gradient."""
    train = workload.shapes.train
    assert train is not None  # an endless stream has no shapes of its own
    batch = Examples(*(jax.ShapeDtypeStruct((batch_size, *a.shape[1:]), a.dtype) for a in train))
    params, state = jax.eval_shape(workload.init, jax.random.key(0))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch_size))

    def loss(params: Any, state: Any, batch: Examples, keys: Any) -> Any:
        return workload.loss(params, state, batch, None, keys, jnp.float32(0))[0]

    return matrix_flops(jax.make_jaxpr(jax.grad(loss))(params, state, batch, keys))


def matrix_flops(jaxpr: Any) -> int:
    """The operations of all matrix products and convolutions of a program: two for each product of two numbers.

    A loop with a known number of turns counts them all, one without counts one turn, and of branches the costliest
    counts. Everything else, such as sums and exponentials, is left out, as for model FLOPs.

    Args:
      jaxpr: of ``jax.make_jaxpr``.
    """
    total = 0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            ((contracted, _), _) = params["dimension_numbers"]
            sizes = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(sizes[i] for i in contracted)
        elif name == "conv_general_dilated":
            total += 2 * _products_of_convolution(equation)
        elif name == "scan":
            total += params["length"] * matrix_flops(params["jaxpr"])
        elif name == "cond":
            total += max(matrix_flops(branch) for branch in params["branches"])
        else:
            total += sum(matrix_flops(inner) for inner in jaxprs_in_params(params))
    return total


def _products_of_convolution(equation: Any) -> int:
    """Products of two numbers in a convolution, but those with the zeros of padding and dilation."""
    lhs, rhs, out = (var.aval.shape for var in (*equation.invars, equation.outvars[0]))
    params = equation.params
    numbers = params["dimension_numbers"]
    products = out[numbers.out_spec[0]] * out[numbers.out_spec[1]] * rhs[numbers.rhs_spec[1]]
    dimensions = zip(
        numbers.lhs_spec[2:],
        numbers.rhs_spec[2:],
        numbers.out_spec[2:],
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        strict=True,
    )
    for i, k, o, stride, (before, _), spread, apart in dimensions:
        # Places of the window over a number, not over padding or between the numbers of a dilated image.
        last = (lhs[i] - 1) * spread
        places = (at * stride - before + tap * apart for at in range(out[o]) for tap in range(rhs[k]))
        products *= sum(0 <= place <= last and place % spread == 0 for place in places)
    return products
