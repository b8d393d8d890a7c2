"""Seconds per epoch and recall of factorizations: one row per study, that of its best trial."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import EPOCHS as COLUMNS
from analysis.cores.factorizations import SPLITS, TEST, VALIDATION, MeasuredFactorization
from results import command_line

WHOLE = ("dim", "cores", "trial", "epochs", "bytes_per_core", "peak_bytes_per_core", "cg_steps", "physical_cores")
CONJUGATE = ("cg", "rotated_cg")


def table(factorizations: Sequence[MeasuredFactorization]) -> pd.DataFrame:
    """The table of ``COLUMNS``, in the order of ``factorizations``.

    Whole numbers are Int64 and emulated is boolean, so that what is not known is an empty cell.
    """
    frame = pd.DataFrame([_row(one) for one in factorizations], columns=list(COLUMNS))
    numbers = ("complete", "infeasible", "incomplete", *WHOLE)
    return frame.astype(dict.fromkeys(numbers, "Int64") | {"emulated": "boolean"})


def _row(one: MeasuredFactorization) -> dict[str, object]:
    study, ledger = one.study, one.ledger
    fields = ("dataset", "dim", "solver", "table_dtype", "cores", "solver_dtype", "ridge", "gather", "kernel")
    row = {field: getattr(study, field) for field in fields} | {
        "study": study.name,
        "data": data(one),
        "cg_steps": study.cg_steps if study.solver in CONJUGATE else None,
        "complete": ledger.complete,
        "infeasible": ledger.infeasible,
        "incomplete": ledger.planned - ledger.complete - ledger.infeasible - ledger.missing,
        **(one.hardware._asdict() if one.hardware else {}),
    }
    if one.chosen is None:
        return row
    seconds = one.seconds
    recalls = (TEST, "recall_50", VALIDATION, "validation_recall_50")
    of_last = (*recalls, "objective", "bytes_per_core", "peak_bytes_per_core", *study.space)
    row |= {"chosen_by": SPLITS[one.chosen_by], "trial": one.chosen, "epochs": one.result("epoch")}
    row |= {name: one.result(name) for name in of_last}
    if len(seconds):
        low, middle, high = (float(f"{value:.7g}") for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
        row |= {"seconds_low": low, "seconds_per_epoch": middle, "seconds_high": high}
    return row


def data(one: MeasuredFactorization) -> str:
    """Identification of the data beyond the name of the data set: options or version."""
    options = one.study.dataset_options
    return " ".join(f"{name}={value}" for name, value in options.items()) or one.study.dataset_version


def notes(factorizations: Sequence[MeasuredFactorization], waiting: Sequence[str] = ()) -> list[str]:
    """Notes for a reader of the table of ``factorizations``, a sentence each.

    Args:
      waiting: names of studies that were asked for and have not run.
    """
    return text.notes(
        {
            "not in the table, as no run has ended yet": waiting,
            "cores are emulated, so that seconds say nothing about speed": [
                emulated_label(one) for one in factorizations if one.hardware and one.hardware.emulated
            ],
            "every trial that ended diverged, so there is none to show": [
                one.study.name for one in factorizations if one.chosen is None and one.ledger.infeasible
            ],
            # Such a trial looks better than it is: what chose it is reported of it.
            "the best trial was chosen by test, as software 0.1 measured nothing else": [
                one.study.name
                for one in factorizations
                if one.chosen_by == TEST and one.chosen is not None and len(one.trials) > 1
            ],
        }
    )


def emulated_label(one: MeasuredFactorization) -> str:
    """A study on emulated cores, such as ``NAME (4 cores on 2 physical)``."""
    cores, physical = one.study.cores, one.hardware and one.hardware.physical_cores
    return f"{one.study.name} ({cores} core{'s' * (cores > 1)}{f' on {physical} physical' if physical else ''})"


def as_text(table: pd.DataFrame) -> str:
    """The table for a reader: what tells its rows apart, and a star beside seconds of emulated cores."""
    rows = table.sort_values(["dataset", "data"], kind="stable").to_dict("records")
    of_data = ["data"] if table["data"].nunique() > 1 else []
    further = [name for name in ("cg_steps", "ridge", "gather", "kernel") if table[name].nunique(dropna=False) > 1]
    common = set.intersection(*(set(row["data"].split()) for row in rows))
    header = ["dataset", *of_data, "dim", "solver", "dtype", *further, "cores", "seconds/epoch"]
    header += ["recall@20", "recall@50", "objective", "trial", "trials", "diverged", "device"]
    lines = []
    for row in rows:
        data = " ".join(word for word in row["data"].split() if word not in common)
        cells = row | {"cg_steps": "" if pd.isna(row["cg_steps"]) else str(row["cg_steps"])}
        recalls = ["" if pd.isna(row[name]) else f"{row[name]:.4f}" for name in ("recall_20", "recall_50")]
        seconds = text.number(row["seconds_per_epoch"]) + ("*" if row["emulated"] is True else "")
        trials = row["complete"] + row["infeasible"] + row["incomplete"]
        shown = ["" if pd.isna(row[name]) else str(row[name]) for name in ("trial", "device_kind")]
        names = [
            row["dataset"],
            *([data] if of_data else []),
            str(row["dim"]),
            row["solver"],
            "/".join(dict.fromkeys([row["table_dtype"], row["solver_dtype"]])),
            *(cells[name] for name in further),
        ]
        numbers = [str(row["cores"]), seconds, *recalls, text.number(row["objective"], 5)]
        lines.append([*names, *numbers, shown[0], str(trials), str(row["infeasible"]), shown[1]])
    words = ["dataset", "solver", "dtype", "data", "ridge", "gather", "kernel", "device"]
    return command_line.table(
        header, lines, left=words, least=("device", "diverged", "trials", "trial", "recall@50"), kept=("seconds/epoch",)
    )
