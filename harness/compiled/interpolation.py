"""Interpolates the costs of a program between two sizes at which it has the same operations.

If each dimension of each array is an affine function of the size, then FLOPs, bytes and operation counts are too. The
peak memory is a maximum of affine functions. Interpolating it is also exact, because the arrays are interpolated
instead of the peaks.
"""

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import jaxprs_in_params

from harness.compiled import jaxpr_cost
from results.costs.counts import Work

Program = Callable[[int], Any]  # returns the jaxpr of a size
FEWEST = 4  # with fewer sizes, counting each of them is faster
KEPT = 4  # programs in memory
CHECKED = 3  # random sizes between two counted ones


class ProgramCost(NamedTuple):
    """Costs of a program: its work, its peak bytes, and the number of operations in its text."""

    work: Work
    held_bytes: float
    equations: int


class Outline(NamedTuple):
    """The operations of a program in order, and the dimensions of their results."""

    operations: tuple[str, ...]
    dimensions: np.ndarray


def counted(jaxpr: Any, parameters: int = 0) -> ProgramCost:
    """Returns the costs of a program whose first ``parameters`` arguments are weights."""
    return ProgramCost(jaxpr_cost.of(jaxpr, parameters), jaxpr_cost.held_bytes(jaxpr), jaxpr_cost.equations(jaxpr))


class Piece(NamedTuple):
    """A range of sizes, from ``first`` to ``last``, within which costs are interpolated."""

    first: int
    last: int
    few: Any
    more: Any


def costs(
    sizes: Sequence[int],
    program: Program,
    part: Program | None = None,
    pieces: list[Piece] | None = None,
    parameters: int = 0,
) -> dict[int, ProgramCost]:
    """Returns the costs of a program at each size. Only some of the programs are traced.

    The costs of the smallest and the largest program are counted. If both have the same operations and ``part`` is
    affine at random sizes between them, all other sizes are interpolated. Otherwise, the sizes are split in half, and
    each half is handled in the same way.

    Args:
      sizes: distinct sizes.
      program: function that returns the program of a size.
      part: function that returns the part of the program that determines all other parts and is faster to trace. By
        default, only the operations of counted programs are compared.
      pieces: pieces known from earlier calls for the same program. New pieces are added to it.
      parameters: number of leading arguments of the program that are weights.
    """
    pieces = [] if pieces is None else pieces
    program = functools.lru_cache(KEPT)(program)
    part = None if part is None else functools.lru_cache(KEPT)(part)
    costs_by_size: dict[int, ProgramCost] = {}
    left = [sorted(sizes)]
    while left:
        span = left.pop()
        first, last = span[0], span[-1]
        piece_around = next((piece for piece in pieces if piece.first <= first and last <= piece.last), None)
        if piece_around is None and len(span) < FEWEST:
            costs_by_size |= {size: counted(program(size), parameters) for size in span if size not in costs_by_size}
            continue
        if piece_around is None and _is_affine(span, program, part):
            piece_around = Piece(first, last, program(first), program(last))
            pieces.append(piece_around)
        if piece_around is None:
            middle = len(span) // 2
            left += [span[: middle + 1], span[middle:]]
        else:
            costs_by_size |= _between(span, piece_around, parameters)
    return costs_by_size


def outline(jaxpr: Any) -> Outline:
    """Returns the outline of a program and all programs nested in it."""
    operations: list[str] = []
    dimensions: list[int] = []
    for name, sizes in _walk(getattr(jaxpr, "jaxpr", jaxpr)):
        operations.append(f"{name}{len(sizes)}")
        dimensions += sizes
    return Outline(tuple(operations), np.array(dimensions, np.int64))


def _walk(jaxpr: Any) -> Iterator[tuple[str, list[int]]]:
    for var in (*jaxpr.invars, *jaxpr.constvars):
        yield "argument", list(getattr(var.aval, "shape", ()))
    for equation in jaxpr.eqns:
        for var in equation.outvars:
            yield f"{equation.primitive.name} {getattr(var.aval, 'dtype', '')}", list(getattr(var.aval, "shape", ()))
        if "length" in equation.params:
            yield "turns", [equation.params["length"]]
        for inner in jaxprs_in_params(equation.params):
            yield from _walk(getattr(inner, "jaxpr", inner))


def _is_affine(sizes: Sequence[int], program: Program, part: Program | None) -> bool:
    """Returns whether programs between the first and the last size can be interpolated."""
    first, last = sizes[0], sizes[-1]
    if part is not None:
        ends = outline(part(first)), outline(part(last))
        if ends[0].operations != ends[1].operations:
            return False
        inside = sizes[1:-1]
        for size in random.Random(first).sample(inside, min(CHECKED, len(inside))):
            middle = outline(part(size))
            if middle.operations != ends[0].operations:
                return False
            (a, b), c = (end.dimensions for end in ends), middle.dimensions
            if not np.array_equal((c - a) * (last - first), (b - a) * (size - first)):
                return False
    return outline(program(first)).operations == outline(program(last)).operations


def _between(sizes: Sequence[int], piece: Piece, parameters: int) -> dict[int, ProgramCost]:
    """Returns the costs at sizes within a piece."""
    first, last = piece.first, piece.last
    ends = counted(piece.few, parameters), counted(piece.more, parameters)
    held = jaxpr_cost.held_bytes_between(piece.few, piece.more, (np.array(sizes) - first) / (last - first))
    costs_by_size = {}
    for size, peak in zip(sizes, held, strict=True):
        both = zip(*(map(int, end.work) for end in ends), strict=True)
        work = [(low * (last - size) + high * (size - first)) // (last - first) for low, high in both]
        costs_by_size[size] = ProgramCost(Work(work[0], *map(float, work[1:])), round(peak), ends[0].equations)
    return costs_by_size
