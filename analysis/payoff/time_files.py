"""Files of step times: seconds per step that were measured, predicted or published, with or without steps to target.

If there is a column ``steps``, each row is a run with given steps to target. In this case, several rows may describe
the same system, because its runs are pooled, and the interval of the seconds per step is optional.
"""

import io
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.payoff.step_times import BASES, NAMES, NUMBERS, PREDICTED, Basis
from results import bounds
from results.bad_input import BadInput, first_line, meaning, nearest

COLUMNS = ("device_kind", *NUMBERS, "basis")
INTERVAL = ("low", "high")  # optional for runs with given steps
STEPS = "steps"
# Optional columns of runs with given steps.
OF_RUNS = ("steps_low", "seconds_before_first_step", "seconds_to_target")
SYSTEM = "system"
FROM_ZERO = OF_RUNS[:2]  # columns in which 0 is a number like others


def read(file: Path, basis: Basis) -> pd.DataFrame:
    """Reads a CSV or Parquet file of step times, with the columns ``COLUMNS`` and any of ``NAMES``.

    A file with a column ``STEPS`` may also have the columns ``OF_RUNS`` and ``SYSTEM``, and does not need ``INTERVAL``.

    Args:
      file: path of the file.
      basis: required basis of all rows.

    Raises:
      BadInput: the file cannot be read or lacks a column, or a row has another basis, a value that is not a positive
        number, or an interval in the wrong order.
    """
    flag = f"--{basis} {file}"
    rows = _table(file, flag)
    names = list(map(str, rows.columns))
    if "says" in names and "basis" not in names:
        raise BadInput(f"{flag}: the column says is now named basis. Rename it.")
    known = STEPS in names
    _check_columns(names, flag, basis, known=known)
    if rows.empty:
        raise BadInput(f"{flag} has no rows")
    optional = (STEPS, *OF_RUNS, SYSTEM) if known else ()
    rows = rows[[name for name in (*NAMES, *COLUMNS, *optional) if name in names]].reset_index(drop=True)
    _check_words(rows, flag, basis)
    _check_numbers(rows, flag)
    if known:
        _check_steps(rows, flag)
        return rows
    twice = rows.duplicated([name for name in rows if name not in NUMBERS[2:]])
    if twice.any():
        raise BadInput(
            f"{flag}: row {_row(twice)} has the same devices and batch size as an earlier one. Keep one of them."
        )
    return rows


def _table(file: Path, flag: str) -> pd.DataFrame:
    try:
        return _parquet(file) if file.suffix == ".parquet" else pd.read_csv(io.BytesIO(bounds.text(file)))
    except OSError as error:
        reason = error.strerror or str(error).strip()  # PyArrow's message ends with an empty line
        raise BadInput(f"cannot read {flag} ({reason}){meaning(file)}") from None
    except ValueError as error:  # empty, not text, ragged, or not Parquet
        raise BadInput(f"{flag} is not a table in CSV or Parquet ({first_line(error)})") from None


def _check_columns(names: list[str], flag: str, basis: Basis, *, known: bool) -> None:
    if known and basis == PREDICTED:
        raise BadInput(f"{flag} has a column steps, but predicted times use the steps of a curve. Remove the column.")
    for column in COLUMNS:
        if column not in names and not (known and column in INTERVAL):
            raise BadInput(f"{flag} lacks a column {column}; {nearest(column, names)}")
    for column in OF_RUNS:
        if column in names and not known:
            raise BadInput(f"{flag} has a column {column} but no column steps, which it needs. Add it.")
    lone = [column for column in INTERVAL if column in names]
    if known and len(lone) == 1:
        missing_end = INTERVAL[1 - INTERVAL.index(lone[0])]
        raise BadInput(f"{flag} has a column {lone[0]} but no column {missing_end}. Add it, or remove {lone[0]}.")


def _parquet(file: Path) -> pd.DataFrame:
    with open(file, "rb") as opened:
        return bounds.Parquet(opened).read().to_pandas()


def _row(wrong: "pd.Series[bool] | np.ndarray") -> int:
    """Returns the number of the first invalid row, counting from 1."""
    return int(np.argmax(wrong)) + 1


def _check_words(rows: pd.DataFrame, flag: str, basis: Basis) -> None:
    wrong_basis = rows["basis"] != basis
    if wrong_basis.any():
        row = _row(wrong_basis)
        stated = rows["basis"].iloc[row - 1]
        right = f"Give it with --{stated}." if stated in BASES else f"It must be {basis}."
        raise BadInput(f"{flag}: row {row} has basis {stated!r}, but --{basis} takes only {basis} times. {right}")
    for name in ("device_kind", *(name for name in (*NAMES, SYSTEM) if name in rows)):
        if rows[name].isna().any():
            raise BadInput(f"{flag}: {name} in row {_row(rows[name].isna())} is empty. Name it.")
        rows[name] = rows[name].astype(str)


def _check_numbers(rows: pd.DataFrame, flag: str) -> None:
    for name in (*NUMBERS, STEPS, *OF_RUNS):
        if name not in rows:
            continue
        numbers = pd.to_numeric(rows[name], errors="coerce").astype(np.float64)
        empty = rows[name].isna() & (name in ("batch_size", "seconds_to_target"))
        wrong = ~(np.isfinite(numbers) & ((numbers > 0) | ((numbers == 0) & (name in FROM_ZERO)))) & ~empty
        if name == "devices":
            wrong = wrong | (numbers != np.round(numbers))
        if wrong.any():
            row = _row(wrong)
            stated = rows[name].iloc[row - 1]
            shown = "empty" if pd.isna(stated) else repr(str(stated))
            raise BadInput(f"{flag}: {name} in row {row} is {shown}. It must be {_right(name)}.")
        rows[name] = numbers
    if not set(INTERVAL) <= set(rows):
        return
    disordered = (rows["low"] > rows["seconds_per_step"]) | (rows["seconds_per_step"] > rows["high"])
    if disordered.any():
        low, middle, high = rows[["low", "seconds_per_step", "high"]].iloc[_row(disordered) - 1]
        stated = f"low={low:g}, seconds_per_step={middle:g} and high={high:g}"
        raise BadInput(f"{flag}: row {_row(disordered)} has {stated}. They must be in rising order.")


def _right(name: str) -> str:
    """Describes the numbers that a column may contain."""
    if name == "devices":
        return "an integer"
    return "0 or a positive number" if name in FROM_ZERO else "a positive number"


def _check_steps(rows: pd.DataFrame, flag: str) -> None:
    if "steps_low" not in rows:
        return
    crossed = rows["steps_low"] > rows[STEPS]
    if crossed.any():
        row = _row(crossed)
        low, high = rows[["steps_low", STEPS]].iloc[row - 1]
        right = "It must be the steps of the evaluation before the target."
        raise BadInput(f"{flag}: row {row} has steps_low {low:g} above steps {high:g}. {right}")
