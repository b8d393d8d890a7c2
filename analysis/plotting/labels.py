"""Labels: what factorizations are called in pictures, and what tells several apart."""

from collections.abc import Sequence

from analysis.cores import epochs
from analysis.cores.factorizations import Measured

SYMBOLS = {"unobserved_weight": "α", "norm_penalty": "λ"}


def title(one: Measured) -> str:
    """Data, dimensions, solver and number formats."""
    return f"{one.study.dataset} · d = {one.study.dim} · {solver(one)} · {formats(one)}"


def names(one: Measured, but: str = "") -> tuple[str, ...]:
    """Of a file: data, dimensions, solver and number formats; what a picture compares stays out, ``but``."""
    study = one.study
    solvers = () if but == "solver" else (study.solver,)
    formats = () if but == "table_dtype" else dict.fromkeys((study.table_dtype, study.solver_dtype))
    return (study.dataset, f"d{study.dim}", *solvers, *formats)


def solver(one: Measured) -> str:
    """The solver with its steps, such as ``rotated_cg (2 steps)``."""
    name, steps = one.study.solver, one.study.cg_steps
    return f"{name} ({steps} step{'s' * (steps > 1)})" if name in epochs.CONJUGATE else name


def formats(one: Measured) -> str:
    """Number formats, such as ``bfloat16 tables, float32 solver``, or the one of both."""
    table, own = one.study.table_dtype, one.study.solver_dtype
    return table if table == own else f"{table} tables, {own} solver"


def size(one: Measured) -> str:
    """How large generated data are, such as ``rows 50,000 · links 2,000,000``; empty for others."""
    options = one.study.dataset_options
    return " · ".join(f"{name} {options[name]:,}" for name in ("rows", "columns", "links") if name in options)


def line(*words: str | None) -> str:
    """Those of ``words`` that say something, as the second line of a title."""
    return " · ".join(word for word in words if word)


def span(counts: Sequence[int], noun: str) -> str:
    """Such as ``8 epochs`` or ``3–8 epochs``."""
    least, most = min(counts), max(counts)
    return f"{least if least == most else f'{least}–{most}'} {noun}{'s' * (most > 1)}"


def _metaparameter(one: Measured, name: str, symbol: str) -> str:
    ranged = one.study.space[name]
    if ranged.scale != "DISCRETE":
        return f"{symbol} searched over {ranged.low:g} … {ranged.high:g}"
    return f"{symbol} = {', '.join(f'{value:g}' for value in ranged.values)}"


def apart(several: Sequence[Measured], always: int = 0) -> list[str]:
    """Of each whatever is not the same for all, but at least the first ``always`` of dim, solver and formats."""
    looks = [
        (
            f"d = {one.study.dim}",
            solver(one),
            formats(one),
            one.study.dataset,
            size(one),
            f"{one.study.ridge} ridge",
            one.study.gather,
            f"{one.study.kernel} kernel",
            *(_metaparameter(one, name, symbol) for name, symbol in SYMBOLS.items()),
            f"{one.study.epochs} epochs",
            f"{one.study.evaluation_rows:,} rows evaluated" if one.study.evaluation_rows else "",
            f"seed {one.study.seed}",
        )
        for one in several
    ]
    shown = [i for i in range(len(looks[0])) if i < always or len({look[i] for look in looks}) > 1] or [0]
    return [", ".join(look[i] for i in shown if look[i]) for look in looks]
