"""Labels: names of factorizations in pictures, and the properties that distinguish them."""

from collections.abc import Sequence

from analysis import text
from analysis.cores import factorizations
from analysis.cores.factorizations import MeasuredFactorization
from analysis.plotting.picture import Skipped

SYMBOLS = {"unobserved_weight": "α", "norm_penalty": "λ"}


def title(one: MeasuredFactorization) -> str:
    """Returns a title with the data, dimensions, solver and number formats."""
    return f"{one.study.dataset} · d = {one.study.dim} · {solver(one)} · {formats(one)}"


def names(one: MeasuredFactorization, *, with_solver: bool = True) -> tuple[str, ...]:
    """Returns the parts of a file name. The solver is omitted if the picture compares solvers."""
    study = one.study
    formats = dict.fromkeys((study.table_dtype, study.solver_dtype))
    start = (study.dataset, f"d{study.dim}")
    return (*start, study.solver, *formats) if with_solver else (*start, *formats)


def solver(one: MeasuredFactorization) -> str:
    """Returns the solver and its number of steps, such as ``rotated_cg (2 steps)``."""
    name, steps = one.study.solver, one.study.cg_steps
    return f"{name} ({span([steps], 'step')})" if name in factorizations.CONJUGATE else name


def formats(one: MeasuredFactorization) -> str:
    """Returns the number formats, such as ``bfloat16 tables, float32 solver``, or one format if both are equal."""
    table, own = one.study.table_dtype, one.study.solver_dtype
    return table if table == own else f"{table} tables, {own} solver"


def size(one: MeasuredFactorization) -> str:
    """Returns the size of generated data, such as ``rows 50,000 · links 2,000,000``, or "" for other data."""
    options = one.study.dataset_options
    return " · ".join(f"{name} {options[name]:,}" for name in ("rows", "columns", "links") if name in options)


def line(*words: str | None) -> str:
    """Joins the nonempty ``words`` to form the second line of a title."""
    return " · ".join(filter(None, words))


def span(counts: Sequence[int], noun: str) -> str:
    """Formats a count or a range of counts, such as ``8 epochs`` or ``3–8 epochs``."""
    least, most = min(counts), max(counts)
    return f"{least if least == most else f'{least}–{most}'} {noun}{'s' * (most > 1)}"


def _metaparameter(one: MeasuredFactorization, name: str, symbol: str) -> str:
    ranged = one.study.space[name]
    if ranged.scale != "DISCRETE":
        return f"{symbol} searched over {ranged.low:g} … {ranged.high:g}"
    return f"{symbol} = {', '.join(f'{value:g}' for value in ranged.values)}"


def distinguish(several: Sequence[MeasuredFactorization], always: int = 0) -> list[str]:
    """Returns labels with the properties that differ. Always includes the first ``always`` of dim, solver, formats."""
    properties = [
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
            _evaluated(one.study.evaluation_rows),
            f"seed {one.study.seed}",
        )
        for one in several
    ]
    # If they do not differ, the dimension is shown.
    shown = [i for i, own in enumerate(zip(*properties, strict=True)) if i < always or len(set(own)) > 1] or [0]
    return [", ".join(own[i] for i in shown if own[i]) for own in properties]


def _evaluated(rows: int | None) -> str:
    return f"{rows:,} rows evaluated" if rows else ""


def skip_emulated(what: str, studies: Sequence[MeasuredFactorization]) -> Skipped:
    """Returns the note for a picture from which studies on emulated cores were omitted."""
    emulated = text.first_few(list(map(factorizations.emulated_label, studies)))
    return Skipped(f"{what} on emulated cores", f"times on emulated cores do not measure speed: {emulated}")
