"""Counts the costs of a program in its jaxpr, before compilation: FLOPs, memory traffic and approximate peak memory."""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal, jaxprs_in_params
from jax.tree_util import tree_leaves

from results.costs.counts import Work

_Size = Callable[[Sequence[Any]], Any]  # bytes of an array, given its variable in each program

# Operations that compilers do not fuse with their neighbours, so that their results are written to memory. Fused
# operations are elementwise.
_APART = {
    *("dot_general", "conv_general_dilated", "sort", "top_k", "gather", "scatter", "scatter-add", "scatter_add"),
    *("dynamic_slice", "dynamic_update_slice", "concatenate", "cumsum", "cumlogsumexp", "cumprod", "cummax"),
    *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
    *("reduce_window", "reduce_window_sum", "reduce_window_max", "select_and_scatter_add", "cummin"),
    *("select_and_gather_add", "eigh", "cholesky", "lu", "qr", "triangular_solve", "rng_bit_generator"),
    *("threefry2x32", "random_bits", "all_gather", "all_gather_invariant", "all_to_all", "psum", "psum_invariant"),
    *("ppermute", "reduce_scatter", "ffi_call"),
}
_PICK = ("gather", "dynamic_slice")  # these read as many bytes as they return
_PUT = ("scatter", "scatter-add", "scatter_add", "dynamic_update_slice")  # write as many bytes as their updates have
_FREE = ("name", "reshape", "squeeze", "broadcast_in_dim", "stop_gradient", "expand_dims")
_PRODUCTS = ("dot_general", "conv_general_dilated")
# Operations whose result is a weight if their first operand is one.
_MOVES = {
    *("convert_element_type", "reduce_precision", "copy", "transpose", "rev", "slice", "dynamic_slice", "pad"),
    *("all_gather", "all_gather_invariant", "pvary", "sharding_constraint", "optimization_barrier", *_FREE),
}


def of(jaxpr: Any, parameters: int = 0) -> Work:
    """Returns the work of a program, with two FLOPs per multiply-add of matmuls and convolutions.

    The work of a loop body is multiplied by the trip count, or counted once if it is unknown. For a conditional, only
    the FLOPs of the most expensive branch are counted. FLOPs of all other operations, such as sums and exponentials,
    are excluded, as is usual for model FLOPs.

    Args:
      jaxpr: result of ``jax.make_jaxpr``.
      parameters: number of leading arguments that are weights.
    """
    program = _open(jaxpr)
    return _work(program, [i < parameters for i in range(len(program.invars))])[0]


def equations(jaxpr: Any) -> int:
    """Returns the number of operations in the text of a program. The compiler processes each of them once."""
    count = 0
    for equation in _open(jaxpr).eqns:
        inner = list(jaxprs_in_params(equation.params))
        count += sum(map(equations, inner)) if inner else 1
    return count


def held_bytes(jaxpr: Any) -> int:
    """Returns the peak bytes of a program if every operation writes its result to memory.

    Arguments and results are included. An array is live from the operation that returns it until the last one that
    reads it. Compiled programs usually need less memory because operations are fused, but may need slightly more
    because of copies. If the program is partitioned across devices, the result is the peak memory of one device.
    """
    program = _open(jaxpr)
    return int(max(_peak([share], _bytes_of_one, given=True) for share in list(_shares(program)) or [program]))


def held_bytes_between(few: Any, more: Any, places: np.ndarray) -> np.ndarray:
    """Returns the peak bytes of programs, interpolated between two programs that differ only in the sizes of arrays.

    The bytes of each array are interpolated, or extrapolated. Peaks are computed as in ``held_bytes``.

    Args:
      few, more: results of ``jax.make_jaxpr`` with the same operations.
      places: float64[N], positions of the programs, where ``few`` is at 0 and ``more`` is at 1.
    """

    def bytes_between(variables: Sequence[Any]) -> np.ndarray:
        first, last = map(array_bytes, variables)
        return first + (last - first) * places

    return _peak([_open(few), _open(more)], bytes_between, given=True)


def taps(count: int, outputs: int, size: int, stride: int, pad: int, spread: int, apart: int) -> int:
    """Returns the number of (output, tap) pairs along an axis that read an input instead of padding or dilation.

    Args:
      count, outputs: number of inputs and number of outputs.
      size, stride, pad: window size, stride, and amount of padding before the first input.
      spread, apart: dilation of the inputs, and of the window.
    """
    starts = np.arange(outputs) * stride - pad
    last = (count - 1) * spread
    places = (starts + tap * apart for tap in range(size))
    return sum(int(np.count_nonzero((place >= 0) & (place <= last) & (place % spread == 0))) for place in places)


def peak_bytes(program: Any) -> int:
    """Returns the device memory of a compiled program, including arguments and results, or 0 if it is not reported."""
    stats = program.memory_analysis()
    if stats is None:
        return 0
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(stats.argument_size_in_bytes + results + stats.temp_size_in_bytes)


def device_bytes(arrays: Any) -> int:
    """Returns the bytes that arrays occupy on each device of their mesh."""
    return sum(math.prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in tree_leaves(arrays))


def _shares(jaxpr: Any) -> Iterator[Any]:
    """Returns the per-device programs within a program: one for each part that is partitioned across devices."""
    for equation in jaxpr.eqns:
        for inner in map(_open, jaxprs_in_params(equation.params)):
            if equation.primitive.name == "shard_map":
                yield inner
            else:
                yield from _shares(inner)


def _work(jaxpr: Any, given: Sequence[bool]) -> tuple[Work, list[bool]]:
    """Returns the work of a program, and which of its results are weights.

    Args:
      jaxpr: the program.
      given: whether each argument is a weight.
    """
    total = Work()
    weights = {var for var, is_weight in zip(jaxpr.invars, given, strict=True) if is_weight}
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        params = equation.params
        are_weights = [not isinstance(var, Literal) and var in weights for var in equation.invars]
        inner = [_open(program) for program in jaxprs_in_params(params)]
        if inner and name not in _APART:
            # The last arguments are those of the inner program. A condition has the choice before them.
            inner_works = [
                _work(program, [*[False] * len(program.invars), *are_weights][len(are_weights) :]) for program in inner
            ]
            works = [work for work, _ in inner_works]
            if name == "cond":
                added = _of_branches(works)
            else:
                added = functools.reduce(Work.plus, works).times(params["length"] if name == "scan" else 1)
            for _, results in inner_works:
                weights |= {var for var, is_weight in zip(equation.outvars, results, strict=False) if is_weight}
        else:
            if are_weights and are_weights[0] and name in _MOVES:
                weights.add(equation.outvars[0])
            if name in _FREE:
                continue
            added = _of_operation(equation, name, are_weights)
        total = total.plus(added)
    return total, [not isinstance(var, Literal) and var in weights for var in jaxpr.outvars]


def _of_branches(works: Sequence[Work]) -> Work:
    """Returns the work of a conditional: that of its most expensive branch, but with the smallest matmul operands.

    This matters for convolutions: their branch for CPUs copies windows into a larger matrix.
    """
    largest = max(works, key=lambda each: each.bytes)
    smallest = min((work for work in works if work.bytes > work.other_bytes), key=_in_matmuls, default=largest)
    flops = max(work.flops for work in works)
    return smallest._replace(
        flops=flops, other_bytes=largest.bytes - _in_matmuls(smallest), operations=largest.operations
    )


def _in_matmuls(work: Work) -> float:
    return work.bytes - work.other_bytes


def _of_operation(equation: Any, name: str, known: Sequence[bool]) -> Work:
    """Returns the work of an operation, given whether each operand is a weight."""
    if name not in _PRODUCTS:
        return Work(other_bytes=_bytes_moved(equation, name) if name in _APART else 0.0, operations=1.0)
    flops = 2 * (_products if name == "dot_general" else _products_of_convolution)(equation)
    sizes = [float(array_bytes(var)) for var in (*equation.invars, *equation.outvars)]
    if any(known):
        kinds = [*known, False]
    elif name == "dot_general" and equation.params["dimension_numbers"][1][0]:
        largest = max(sizes)
        return Work(flops, sum(sizes) - largest, largest, operations=1.0)
    else:
        kinds = [False, False, True]  # the gradient of a weight
    weights = sum(size for size, is_weight in zip(sizes, kinds, strict=True) if is_weight)
    return Work(flops, sum(sizes) - weights, weight_bytes=weights, operations=1.0)


def _bytes_moved(equation: Any, name: str) -> float:
    out = sum(map(array_bytes, equation.outvars))
    if name in _PICK:
        return 2 * out + sum(map(array_bytes, equation.invars[1:]))
    if name in _PUT:
        return 2 * sum(map(array_bytes, equation.invars[1:]))
    return out + sum(map(array_bytes, equation.invars))


def _bytes_of_one(variables: Sequence[Any]) -> int:
    return array_bytes(variables[0])


def _peak(programs: Sequence[Any], size: _Size, *, given: bool) -> Any:
    """Returns the maximum number of bytes that are live at the same time, with or without the arguments.

    Args:
      programs: programs that consist of the same operations.
      size: function that returns the bytes of an array, as a number or as an array of numbers.
      given: whether arguments are included.
    """
    first = programs[0]
    last: dict[Any, int] = {}
    for i, equation in enumerate(first.eqns):
        last |= {var: i for var in equation.invars if not isinstance(var, Literal)}
    last |= {var: len(first.eqns) for var in first.outvars if not isinstance(var, Literal)}
    arguments = {*first.invars, *first.constvars}
    held = sum(size(counterparts) for counterparts in _same(programs, _arguments)) if given else 0
    peak = held
    sizes = {}  # of live arrays
    ends: dict[int, list[Any]] = {}
    for var, i in last.items():
        ends.setdefault(i, []).append(var)
    for i, equations in enumerate(zip(*(program.eqns for program in programs), strict=True)):
        inner = zip(*(map(_open, jaxprs_in_params(level.params)) for level in equations), strict=True)
        peaks = [_peak(level, size, given=False) for level in inner]
        for counterparts in _same(equations, operator.attrgetter("outvars")):
            if counterparts[0] in last:
                sizes[counterparts[0]] = size(counterparts)
        out = sum(sizes[var] for var in equations[0].outvars if var in last)
        for level in (*peaks, out):
            peak = np.maximum(peak, held + level)
        held = held + out - sum(sizes.pop(var) for var in ends.get(i, ()) if var not in arguments)
    return peak


def _arguments(program: Any) -> list[Any]:
    return [*program.invars, *program.constvars]


def _same(owners: Sequence[Any], variables: Callable[[Any], Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yields each variable with its counterparts in the other programs."""
    return zip(*map(variables, owners), strict=True)


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def array_bytes(var: Any) -> int:
    """Returns the bytes of an array in a program."""
    shape = getattr(var.aval, "shape", None)
    if shape is None:
        return 0
    return math.prod(shape) * int(getattr(var.aval.dtype, "itemsize", 4))


def matrix_flops(jaxpr: Any) -> int:
    """Returns the FLOPs of all matmuls and convolutions of a program (see ``of``), given by ``jax.make_jaxpr``."""
    return int(of(jaxpr).flops)


def _products(equation: Any) -> int:
    """Returns the multiply-adds of a matmul."""
    ((contracted, _), _) = equation.params["dimension_numbers"]
    sizes = equation.invars[0].aval.shape
    return math.prod(equation.outvars[0].aval.shape) * math.prod(sizes[i] for i in contracted)


def _products_of_convolution(equation: Any) -> int:
    """Returns the multiply-adds of a convolution, excluding zeros from padding and dilation."""
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
    for i, k, o, stride, (before, _), spread, window in dimensions:
        products *= taps(lhs[i], out[o], rhs[k], stride, before, spread, window)
    return products
