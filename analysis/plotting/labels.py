"""Labels: names of factorizations in pictures, and the properties that distinguish them."""

from collections.abc import Sequence

from analysis import text
from analysis.cores import measured_factorizations
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.plotting.picture import Skipped

SYMBOLS = {"unobserved_weight": "α", "norm_penalty": "λ"}


def title(factorization: MeasuredFactorization) -> str:
    """Returns a title with the data, dimensions, solver and number formats."""
    study = factorization.study
    return f"{study.dataset} · d = {study.dim} · {solver(factorization)} · {formats(factorization)}"


def names(factorization: MeasuredFactorization, *, with_solver: bool = True) -> tuple[str, ...]:
    """Returns the parts of a file name. The solver is omitted if the picture compares solvers."""
    study = factorization.study
    formats = dict.fromkeys((study.table_dtype, study.solver_dtype))
    start = (study.dataset, f"d{study.dim}")
    return (*start, study.solver, *formats) if with_solver else (*start, *formats)


def solver(factorization: MeasuredFactorization) -> str:
    """Returns the solver and its number of steps, such as ``rotated_cg (2 steps)``."""
    name, steps = factorization.study.solver, factorization.study.cg_steps
    return f"{name} ({span([steps], 'step')})" if name in measured_factorizations.CONJUGATE else name


def formats(factorization: MeasuredFactorization) -> str:
    """Returns the number formats, such as ``bfloat16 tables, float32 solver``, or one format if both are equal."""
    table, solver_format = factorization.study.table_dtype, factorization.study.solver_dtype
    return table if table == solver_format else f"{table} tables, {solver_format} solver"


def size(factorization: MeasuredFactorization) -> str:
    """Returns the size of generated data, such as ``rows 50,000 · links 2,000,000``, or "" for other data."""
    options = factorization.study.dataset_options
    return " · ".join(f"{name} {options[name]:,}" for name in ("rows", "columns", "links") if name in options)


def span(counts: Sequence[int], noun: str) -> str:
    """Formats a count or a range of counts, such as ``8 epochs`` or ``3–8 epochs``."""
    return f"{text.span(counts)} {noun}{'s' * (max(counts) > 1)}"


def _metaparameter(factorization: MeasuredFactorization, name: str, symbol: str) -> str:
    ranged = factorization.study.space[name]
    if ranged.scale != "DISCRETE":
        return f"{symbol} searched over {ranged.low:g} … {ranged.high:g}"
    return f"{symbol} = {', '.join(f'{value:g}' for value in ranged.values)}"


def distinguish(several: Sequence[MeasuredFactorization], always: int = 0) -> list[str]:
    """Returns labels with the properties that differ. Always includes the first ``always`` of dim, solver, formats."""
    properties = [
        (
            f"d = {factorization.study.dim}",
            solver(factorization),
            formats(factorization),
            factorization.study.dataset,
            size(factorization),
            f"{factorization.study.ridge} ridge",
            factorization.study.gather,
            f"{factorization.study.kernel} kernel",
            *(_metaparameter(factorization, name, symbol) for name, symbol in SYMBOLS.items()),
            f"{factorization.study.epochs} epochs",
            _evaluated(factorization.study.evaluation_rows),
            f"seed {factorization.study.seed}",
        )
        for factorization in several
    ]
    # If they do not differ, the dimension is shown.
    shown = [i for i, values in enumerate(zip(*properties, strict=True)) if i < always or len(set(values)) > 1] or [0]
    return [", ".join(values[i] for i in shown if values[i]) for values in properties]


def _evaluated(rows: int | None) -> str:
    return f"{rows:,} rows evaluated" if rows else ""


def skip_emulated(what: str, studies: Sequence[MeasuredFactorization]) -> Skipped:
    """Returns the note for a picture from which studies on emulated cores were omitted."""
    emulated = text.first_few(list(map(measured_factorizations.emulated_label, studies)))
    return Skipped(f"{what} on emulated cores", f"times on emulated cores do not measure speed: {emulated}")
