"""Files of points: reads steps to target against batch size from a CSV file, or from columns, and fits the curves."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import BEST, CONFIRMED, DIFFERS
from analysis.fitting.curves import Points
from analysis.fitting.fits import PointsFit, of_points
from analysis.workload_studies import CURVE_COLUMNS
from results import bounds, progress
from results.bad_input import BadInput, meaning, nearest
from results.printing import Report, say

POINTS_COLUMNS = ("batch_size", "steps", "steps_low", "steps_high")
# `steps --csv` also writes these columns for each point; they do not separate curves.
BESIDE_POINTS = (
    *("trial", "complete", "infeasible", "incomplete", "seconds_per_epoch"),
    *(*CONFIRMED, *BEST),
)
_LOGS = "Logs of runs are imported with `python -m results import runs PATH --map FILE`."


def of_file(file: Path, report: Report | None = None) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Returns the names of the curves in a CSV file of points, one row per curve, and their fits.

    Args:
      file: the file.
      report: called with progress lines.

    Raises:
      BadInput: the file cannot be read, lacks a column, or contains values other than positive numbers.
    """
    rows = read_points(file)
    empty = {name for name in DIFFERS if name in rows and rows[name].isna().all()}
    grouping = [column for column in rows.columns if column not in {*POINTS_COLUMNS, *BESIDE_POINTS, *empty}]
    groups = [group for _, group in rows.groupby(grouping, sort=False, dropna=False)] if grouping else [rows]
    for column in [column_name for column_name in grouping if _splits(rows, column_name, grouping)]:
        say(f"note: column {column} splits the points into {len(groups)} curves. Remove it if they are one curve.")
    names = pd.concat([group[grouping].head(1) for group in groups], ignore_index=True)
    return names, [of_points(_points(group)) for group in progress.track(groups, "fit", " curves", report)]


def _splits(rows: pd.DataFrame, column: str, grouping: Sequence[str]) -> bool:
    """Returns whether batch sizes would occur only once in each curve without a column that is not a usual name."""
    other_columns = [column_name for column_name in grouping if column_name != column]
    return (
        column not in CURVE_COLUMNS
        and rows[column].nunique() > 1
        and not rows.duplicated([*other_columns, "batch_size"]).any()
    )


def of_steps(batch_size: pd.Series, steps: pd.Series, steps_low: pd.Series | None = None) -> PointsFit:
    """Fits steps to target [n] at batch sizes [n], in any order.

    Args:
      batch_size: batch sizes, in examples.
      steps: steps to target, or their upper ends.
      steps_low: lower ends. By default, steps are exact.
    """
    ends = {"steps_low": steps if steps_low is None else steps_low, "steps_high": steps}
    return of_points(_points(pd.DataFrame({"batch_size": batch_size} | ends).astype(np.float64)))


def read_points(file: Path) -> pd.DataFrame:
    """Reads a file's rows: batch_size, steps_low and steps_high as float64 (NaN if not reached), the others as text.

    A column steps has the upper ends. The steps are exact without a column steps_low.
    """
    try:
        rows = pd.read_csv(io.BytesIO(bounds.text(file)), dtype=str)
    except OSError as error:
        logs = f". {_LOGS}" if file.is_dir() else ""
        raise BadInput(f"cannot read --points {file} ({error.strerror}){meaning(file)}{logs}") from None
    except ValueError as error:  # empty, not text, or ragged
        raise BadInput(f"--points {file} is not a CSV table ({str(error).strip()})") from None
    columns = list(map(str, rows.columns))
    if {"steps", "steps_high"} <= set(columns):
        raise BadInput(f"--points {file} has columns steps and steps_high, which mean the same. Keep one of them.")
    ends = ["steps_low", "steps" if "steps" in columns else "steps_high"]
    exact = "steps" in columns and "steps_low" not in columns
    for column in ["batch_size", "steps"] if exact else ["batch_size", *ends]:
        if column not in columns:
            instead = "" if column == "batch_size" else ", or a column steps"
            logs = f". {_LOGS}" if column != "batch_size" and "step" in columns else ""
            raise BadInput(f"--points {file} lacks a column {column}{instead}; {nearest(column, columns)}{logs}")
        numbers = pd.to_numeric(rows[column], errors="coerce").astype(np.float64)
        small = numbers < 0 if column in ("steps_low", "steps_high") else numbers <= 0
        missing = rows[column].isna() if column == "batch_size" else False
        _refuse(file, (numbers.isna() & rows[column].notna()) | small | np.isinf(numbers) | missing, column, rows)
        rows[column] = numbers
    if exact:
        rows = rows.assign(steps_low=rows["steps"])
    rows = rows.rename(columns={"steps": "steps_high"})
    crossed = rows["steps_low"] > rows["steps_high"]
    if crossed.any():
        row = int(np.argmax(crossed))
        low, high = (f"{rows[end].iloc[row]:g}" for end in ("steps_low", "steps_high"))
        raise BadInput(f"--points {file}: line {row + 2} has steps_low {low} above {ends[1]} {high}. Swap them.")
    if rows.empty:
        raise BadInput(f"--points {file} has no rows")
    return rows


def _refuse(file: Path, wrong: pd.Series, column: str, rows: pd.DataFrame) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        value = rows[column].iloc[row]
        words = "empty" if pd.isna(value) else repr(value)
        raise BadInput(f"--points {file}: {column} in line {row + 2} is {words}. It must be a positive number.")


def _points(rows: pd.DataFrame) -> Points:
    rows = rows.sort_values("batch_size")
    finished = rows[rows["steps_high"] > 0]
    at_start = sorted(set(rows.loc[rows["steps_high"] == 0, "batch_size"]))
    twice = sorted(set(finished.loc[finished["batch_size"].duplicated(), "batch_size"]))
    refusal = f"several rows at {text.batch_sizes(twice)}: add a column that separates their curves" if twice else ""
    dropped = sorted(set(rows["batch_size"]) - set(finished["batch_size"]) - set(at_start))
    notes = ["points without trials: all batch sizes have equal weights"]
    if at_start:
        notes.append(f"met at the start, before any step, at {text.batch_sizes(at_start)}, left out")
    if dropped:
        notes.append(f"left out: {text.batch_sizes(dropped)}, at which no trial reached the target")
    high = finished["steps_high"].to_numpy()
    low = finished["steps_low"].fillna(0).to_numpy()  # without a lower end, the steps are only bounded
    return Points(finished["batch_size"].to_numpy(), low, high, np.ones(len(high)), None, tuple(notes), refusal)
