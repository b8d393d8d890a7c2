"""Fits: the critical batch size of every curve of a store, or of a file of points."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import curves, regimes, steps, text
from analysis.curves import Curve, Points
from results.bad_input import BadInput, nearest

COLUMNS = {
    "s_min": "the plateau: the fewest steps that any batch size can do with",
    "critical_batch_size": "where the line of perfect scaling meets the plateau, examples",
    "critical_batch_size_low": "its 90 % interval; an end that the data leave open is empty",
    "critical_batch_size_high": "each end alone is a 95 % bound",
    "sharpness": "of the knee: 1 is a hyperbola, more is sharper",
    "verdict": "identified, at_least (the low end), at_most (the high end) or not_identified",
    "reason": "how many trials each point is the best of, what was left out, what is in the way",
}
POINTS_COLUMNS = ("batch_size", "steps", "steps_low", "steps_high")
# `steps --csv` writes these beside each point; they do not tell curves apart.
BESIDE_POINTS = ("trial", "complete", "infeasible", "incomplete", "seconds_per_epoch")
LIMITS = (
    "Assumed: slope -1 at small batch sizes and a flat plateau. A search that gets harder with batch size pulls the\n"
    "critical batch size down by up to half an octave. Look at the figures beside the numbers."
)


class Judged(NamedTuple):
    """The points of a curve with their fit, which is None where none would be honest."""

    points: Points
    fit: regimes.Fit | None
    verdict: regimes.Verdict
    reason: str


def judge(points: Points, distinction: str = "") -> Judged:
    """Fits ``points`` if that is honest, and says in words what there is to know."""
    notes = [*([distinction] if distinction else []), *points.notes]
    if points.refusal:
        return Judged(points, None, "not_identified", "; ".join([*notes, points.refusal]))
    n = len(points.batch_size)
    if n < regimes.FEWEST_BATCH_SIZES:
        notes.append(f"{n} batch sizes left, a fit needs {regimes.FEWEST_BATCH_SIZES}")
        return Judged(points, None, "not_identified", "; ".join(notes))
    fit = regimes.fit(points.batch_size, points.low, points.high, points.weights)
    return Judged(points, fit, fit.verdict, "; ".join([*notes, *fit.caveats]))


def of_curve(curve: Curve) -> Judged:
    """The fit of a curve of a store."""
    return judge(curves.points(curve), curve.distinction)


def of_store(folder: Path, asked: tuple[str, float] | None = None) -> pd.DataFrame:
    """One row per curve of the store at ``folder``: what a curve is called, then ``COLUMNS``."""
    found = curves.curves(*steps.load(folder, asked))
    names = pd.DataFrame(
        [(c.dataset, c.model, c.optimizer, c.target.metric, c.target.value) for c in found],
        columns=["dataset", "model", "optimizer", "target_metric", "target_value"],
    )
    return _table(names, [of_curve(curve) for curve in found])


def of_points(file: Path) -> pd.DataFrame:
    """One row per curve of a CSV file of points: the columns that tell its curves apart, then ``COLUMNS``.

    Raises:
      BadInput: the file cannot be read, lacks a column, or holds something else than positive numbers.
    """
    rows = read_points(file)
    grouping = [column for column in rows.columns if column not in {*POINTS_COLUMNS, *BESIDE_POINTS}]
    groups = [group for _, group in rows.groupby(grouping, sort=False, dropna=False)] if grouping else [rows]
    names = pd.concat([group[grouping].head(1) for group in groups], ignore_index=True)
    return _table(names, [judge(_points(group)) for group in groups])


def read_points(file: Path) -> pd.DataFrame:
    """The rows of a file: float64 batch_size, steps_low and steps_high (NaN: never reached), all else as text."""
    try:
        rows = pd.read_csv(file, dtype=str)
    except OSError as error:
        raise BadInput(f"cannot read --points {file} ({error.strerror})") from None
    except ValueError as error:  # empty, not text, or ragged
        raise BadInput(f"--points {file} is not a CSV table ({str(error).strip()})") from None
    columns = list(map(str, rows.columns))
    ends = ["steps_low", "steps_high"]
    exact = "steps" in columns and not set(ends) <= set(columns)
    for column in ["batch_size", "steps"] if exact else ["batch_size", *ends]:
        if column not in columns:
            instead = "" if column == "batch_size" else ", or a column steps"
            raise BadInput(f"--points {file} lacks a column {column}{instead}; {nearest(column, columns)}")
        numbers = pd.to_numeric(rows[column], errors="coerce").astype(np.float64)
        small = numbers < 0 if column == "steps_low" else numbers <= 0
        missing = rows[column].isna() if column == "batch_size" else False
        _refuse(file, (numbers.isna() & rows[column].notna()) | small | np.isinf(numbers) | missing, column, rows)
        rows[column] = numbers
    if exact:
        rows = rows.assign(steps_low=rows["steps"], steps_high=rows["steps"])
    _refuse(file, rows["steps_low"] > rows["steps_high"], "steps_low", rows)
    if rows.empty:
        raise BadInput(f"--points {file} has no rows")
    return rows


def _refuse(file: Path, wrong: pd.Series, column: str, rows: pd.DataFrame) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        value = rows[column].iloc[row]
        given = "empty" if pd.isna(value) else repr(value) if isinstance(value, str) else f"{value:g}, above steps_high"
        raise BadInput(f"--points {file}: {column} in line {row + 2} is {given}; a positive number is needed")


def _points(rows: pd.DataFrame) -> Points:
    rows = rows.sort_values("batch_size")
    finished = rows[rows["steps_high"].notna()]
    twice = sorted(set(finished.loc[finished["batch_size"].duplicated(), "batch_size"]))
    refusal = f"several rows at batch size {_sizes(twice)}: add a column that tells their curves apart" if twice else ""
    dropped = sorted(set(rows["batch_size"]) - set(finished["batch_size"]))
    notes = ["points without trials: batch sizes weigh alike"]
    notes += [f"no trial reached the target at batch size {_sizes(dropped)}, dropped"] if dropped else []
    high = finished["steps_high"].to_numpy()
    low = finished["steps_low"].fillna(finished["steps_high"]).to_numpy()
    return Points(finished["batch_size"].to_numpy(), low, high, np.ones(len(high)), None, tuple(notes), refusal)


def _sizes(batch_sizes: list[float]) -> str:
    return ", ".join(f"{size:g}" for size in batch_sizes)


def _table(names: pd.DataFrame, judged: list[Judged]) -> pd.DataFrame:
    nothing = (float("nan"),) * 5
    numbers = [j.fit[:5] if j.fit else nothing for j in judged]
    words = [(j.verdict, j.reason) for j in judged]
    return pd.concat(
        [names, pd.DataFrame([n + w for n, w in zip(numbers, words, strict=True)], columns=list(COLUMNS))], axis=1
    )


def readable(table: pd.DataFrame) -> str:
    """The fits for a reader: one line each, then a reason for each and what all of them assume."""
    naming = [column for column in table.columns if column not in COLUMNS]
    header = ["", *naming, "s_min", "critical batch size", "90 % interval", "sharpness", "verdict"]
    rows, reasons = [], []
    for i, row in enumerate(table.to_dict("records"), start=1):
        low, high = (text.number(row[f"critical_batch_size_{end}"]) for end in ("low", "high"))
        interval = f"[{low or '..'}, {high or '..'}]" if low or high else ""
        numbers = [text.number(row[column]) for column in ("s_min", "critical_batch_size", "sharpness")]
        names = ["" if pd.isna(row[column]) else str(row[column]) for column in naming]
        rows.append([str(i), *names, *numbers[:2], interval, numbers[2], row["verdict"].replace("_", " ")])
        reasons.append(f"{i}: {row['reason']}")
    return "\n".join([text.aligned(header, rows, left=[*naming, "verdict"]), "", *reasons, "", LIMITS])
