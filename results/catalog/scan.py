"""The scan: finds when trials of many studies reached a target, reading the files with little memory.

It starts threads, so a process that forks after a scan must not scan again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from results import bounds, durable
from results.aliases import Fields
from results.bad_input import first_line
from results.durable import Damaged
from results.plans.study import Target, in_type
from results.rules import answers, confirmation
from results.rules.answers import MINIMUM, Rule
from results.rules.confirmation import CONFIRM, SEARCH
from results.storage.commits import Commit, read_table

# By metric type in commit records. A target is compared in the column's own type.
_TYPES: dict[str, tuple[Any, type[np.floating]]] = {
    "float": (pl.Float32, np.float32),
    "double": (pl.Float64, np.float64),
}


def intervals(
    commits: Sequence[Commit], target: Target, rule: Rule = MINIMUM, role: str | None = SEARCH
) -> pd.DataFrame:
    """Returns the first evaluation at the target, for every trial that reached it and that ``rule`` counts.

    Args:
      commits: visible studies. Those without the metric do not have rows.
      target: metric and its value.
      rule: rule for counting and comparing trials.
      role: search, confirm (all repeats, requested or extra), or None for all trials.

    Returns:
      Rows in the format of ``answers.intervals``.

    Raises:
      Damaged: a file cannot be read.
    """
    pieces = [pl.DataFrame(schema=dict(zip(answers.COLUMNS, (pl.String, pl.Int32, pl.Int32, pl.Int32), strict=True)))]
    for kind, (column_type, dtype) in _TYPES.items():
        measured = [commit for commit in commits if commit.metrics.get(target.metric) == kind]
        value = in_type(target.value, dtype)
        columns = {"trial": pl.Int32, "step": pl.Int32, target.metric: column_type}
        for rows in _rows(measured, "measurements", columns):
            pieces.append(_collect(_first_rows(rows, target.metric, value, rule), commits))
    return _counting(pl.concat(pieces), commits, rule, role).sort("study", "trial").to_pandas()


def lowest(commits: Sequence[Commit], metric: str, rule: Rule = MINIMUM) -> dict[str, float]:
    """Returns the lowest value of a metric over search trials that ``rule`` counts, by study name."""
    values: dict[str, float] = {}
    for kind, (column_type, dtype) in _TYPES.items():
        measured = [commit for commit in commits if commit.metrics.get(metric) == kind]
        for rows in _rows(measured, "measurements", {"trial": pl.Int32, metric: column_type}):
            finite = rows.filter(pl.col(metric).is_finite())
            found = _collect(finite.group_by("study", "trial").agg(pl.col(metric).min()), commits)
            best = _counting(found, commits, rule, SEARCH).group_by("study").agg(pl.col(metric).min())
            values |= {study: float(str(dtype(value))) for study, value in best.iter_rows()}
    return values


def _counting(trials: pl.DataFrame, commits: Sequence[Commit], rule: Rule, role: str | None) -> pl.DataFrame:
    """Filters trials (study, trial, ...) by rule and role. A role of None keeps all roles."""
    if role is not None:
        confirmed = [commit.name for commit in commits if commit.repeats.confirm]
        repeats = pl.col("study").is_in(confirmed) & confirmation.is_repeat(pl.col("trial"))
        trials = trials.filter(repeats if role == CONFIRM else ~repeats)
    if rule.first is not None and len(trials):
        trials = trials.join(_first_complete(commits, rule.first), on=["study", "trial"])
    return trials


def _first_rows(rows: pl.LazyFrame, metric: str, value: np.floating, rule: Rule) -> pl.LazyFrame:
    """Returns each trial's first row at the target, unordered. Input rows are sorted by trial and step per study.

    Null means not measured and is ignored. NaN is a measured value.
    """
    rows = rows.filter(pl.col(metric).is_not_null())
    measured, target = pl.col(metric), pl.lit(value)
    reached = measured < target if rule.strict else measured <= target  # NaN is neither
    has_previous = (pl.col("trial") == pl.col("trial").shift(1)) & (pl.col("study") == pl.col("study").shift(1))
    before = pl.when(has_previous).then(pl.col("step").shift(1)).otherwise(0)
    at_target = rows.with_columns(before.alias("steps_low")).filter(reached).group_by("study", "trial")
    # Both increase along a trial, so the minima belong to its first row.
    return at_target.agg(pl.col("steps_low").min(), pl.col("step").min().alias("steps_high"))


def _first_complete(commits: Sequence[Commit], first: int) -> pl.DataFrame:
    """Returns the study and trial of each study's ``first`` COMPLETE trials, by id."""
    complete = [
        _collect(rows.filter(pl.col("status") == "COMPLETE").select("study", "trial"), commits)
        for rows in _rows(commits, "trials", {"trial": pl.Int32, "status": pl.String})
    ]
    return pl.concat(complete).filter(pl.col("trial").rank().over("study") <= first)


def _rows(commits: Sequence[Commit], table: str, columns: Fields) -> Iterator[pl.LazyFrame]:
    """Yields rows with these columns and ``study``: the name, or the path of a local file owned by one study."""
    paths = [(commit, commit.files[table].path) for commit in commits]
    local_paths = [path for commit, path in paths if isinstance(path, Path) and not commit.files[table].shared]
    local_shared = {path for commit, path in paths if isinstance(path, Path) and commit.files[table].shared}
    for file in sorted(local_shared):
        _check_bounded(file, ["study", *columns])
        names = [commit.name for commit in commits if commit.files[table].path == file]
        rows = pl.scan_parquet(file, hive_partitioning=False, glob=False).filter(pl.col("study").is_in(names))
        yield rows.select(pl.col("study"), *(pl.col(name).cast(kind) for name, kind in columns.items()))
    for local in local_paths:
        _check_bounded(local, list(columns))
    if local_paths:
        yield pl.scan_parquet(
            local_paths,
            schema=dict(columns),
            extra_columns="ignore",
            include_file_paths="study",
            hive_partitioning=False,
            glob=False,
        )
    for commit, path in paths:
        if not isinstance(path, Path):
            frame = pl.DataFrame(read_table(commit, table).select(list(columns)))
            yield frame.lazy().with_columns(study=pl.lit(commit.name))


def _check_bounded(file: Path, columns: Sequence[str]) -> None:
    """Raises Damaged if columns of a local file would take more memory than its size allows."""
    durable.check_file(file)
    try:
        with file.open("rb") as opened:
            table = bounds.Parquet(opened)
            for group in table.groups:  # the scan never holds all of them in memory
                table.check(columns, [group])
    except FileNotFoundError:
        pass  # reading the file reports this
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = first_line(error)
        raise Damaged(f"{file} cannot be read ({reason}). Check everything with `python -m results verify`.") from None


def _collect(rows: pl.LazyFrame, commits: Sequence[Commit]) -> pl.DataFrame:
    names = {str(file.path): commit.name for commit in commits for file in commit.files.values()}
    try:
        frame = rows.collect(engine="streaming")
    except (FileNotFoundError, pl.exceptions.PolarsError) as error:
        reason = first_line(error)
        raise Damaged(
            f"a file of the store cannot be read ({reason}). Check everything with `python -m results verify`."
        ) from None
    return frame.with_columns(pl.col("study").replace(names))
