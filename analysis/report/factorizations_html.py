"""The factorizations section: charts and a table."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import text
from analysis.cores import measured_factorizations as of_cores
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.plotting import labels
from analysis.report import core_charts
from analysis.report.charts import LegendChart, chart_section
from analysis.report.markup import Cell, Html, number, row, table, tag

TITLE = "Factorizations over cores"
FACTORIZATIONS = (
    "data",
    "d#",
    "solver",
    "formats",
    "cores#",
    "s per epoch#",
    "Recall@20#",
    "Recall@50#",
    "α, λ",
    "trials#",
    "device",
)
OF_CORES = (
    "Implicit ALS over cores. Seconds are medians over epochs, without compilation, of a process that has the machine "
    "to itself. Times of emulated cores do not measure speed and are not on any curve. Two core counts show a "
    "speed-up but cannot determine a law. Fitting needs three. Recall is measured on test rows. The best of several "
    "trials is chosen on validation rows."
)


def words(studies: Sequence[MeasuredFactorization]) -> list[str]:
    """Returns the search terms for factorizations."""
    return list(map(labels.title, studies))


def section(
    studies: Sequence[tuple[int, MeasuredFactorization]], charts_before: int
) -> tuple[Html, Sequence[LegendChart]]:
    """Returns the section on factorizations and its charts. ``charts_before`` is the number of preceding charts."""
    measured = [study for _, study in studies]
    charts = core_charts.core_charts(measured)
    values = of_cores.table(measured).to_dict("records")
    rows = [_row(group_number, study, columns) for (group_number, study), columns in zip(studies, values, strict=True)]
    factorization_table = table("Factorizations", FACTORIZATIONS, rows)
    notes = core_charts.notes(measured)
    return chart_section(
        "factorizations", TITLE, studies, charts_before, charts, notes, factorization_table, OF_CORES
    ), charts


def _row(group_number: int, factorization: MeasuredFactorization, values: Mapping[Hashable, Any]) -> Html:
    """Returns a factorization's table row. ``values`` is its row in ``measured_factorizations.table``."""
    recalls = _values(values, "recall_20", "recall_50")
    metaparameters = _values(values, "unobserved_weight", "norm_penalty")
    diverged = factorization.chosen is None and factorization.ledger.infeasible
    size = labels.size(factorization)
    cells: list[Cell | str] = [
        Cell(tag("span", factorization.study.dataset, tag("small", size)), f"{factorization.study.dataset} {size}"),
        number(factorization.study.dim),
        labels.solver(factorization),
        labels.formats(factorization),
        number(factorization.study.cores),
        Cell("emulated", "", "number") if values["emulated"] is True else _seconds(values),
        *(number(recall, None if recall is None else f"{recall:.4f}") for recall in recalls),
        "diverged"
        if diverged
        else ", ".join(f"{metaparameter:.2g}" for metaparameter in metaparameters if metaparameter is not None),
        number(factorization.ledger.complete + factorization.ledger.infeasible),
        str(values["device_kind"] or ""),
    ]
    return row(cells, data_groups=str(group_number))


def _values(values: Mapping[Hashable, Any], *names: str) -> list[float | None]:
    return [None if pd.isna(values[name]) else float(values[name]) for name in names]


def _seconds(values: Mapping[Hashable, Any]) -> Cell:
    """Returns a cell with the median and the middle half of the epoch times."""
    middle, low, high = _values(values, "seconds_per_epoch", "seconds_low", "seconds_high")
    if middle is None or low is None or high is None:
        return number(middle)
    spread = tag("small", f"{text.number(low)} … {text.number(high)}")
    return Cell(tag("span", text.number(middle), spread), middle, "number")
