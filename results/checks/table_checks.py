"""Checks the three tables of a study in parts, commits and releases."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results import bounds
from results.plans import kinds, plan_columns, schema
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.search_space import Range
from results.plans.study import METRICS, REASONS_TO_RERUN
from results.plans.trial_request import MOST_REPEATS
from results.rules import confirmation
from results.rules.confirmation import CONFIRM, EXTRA, SEARCH
from results.storage import migrations

_FROM_PLAN = ("dataset", "model", "optimizer", "batch_size", "plan")  # columns of studies that derive from the plan
_METRIC_TYPES = (pa.float32(), pa.float64())  # ours are float32; published metrics may be either


class Rows(NamedTuple):
    """A table whose columns are read when they are needed.

    Attributes:
      schema: schema of the stored table.
      length: number of rows.
      read: function that returns the named columns.
    """

    schema: pa.Schema
    length: int
    read: Callable[[Sequence[str]], pa.Table]


def table_rows(table: pa.Table) -> Rows:
    return Rows(table.schema, len(table), lambda names: table.select(list(names)))


def parquet_rows(file: bounds.Parquet, *, cached: bool) -> Rows:
    """Returns the rows of a Parquet file. If ``cached``, each column is read once, when first requested."""
    columns: dict[str, pa.ChunkedArray] = {}

    def read(names: Sequence[str]) -> pa.Table:
        new = [name for name in names if name not in columns]
        columns.update(zip(new, file.read(new).columns if new else (), strict=True))
        return pa.table({name: columns[name] for name in names}, metadata=file.schema_arrow.metadata)

    return Rows(file.schema_arrow, file.metadata.num_rows, read if cached else file.read)


def flaws(
    study: Plan, tables: Mapping[str, Rows], runs: frozenset[int] | None = None, *, whole: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields the table and the description of each flaw in a study's tables. A description follows the table's path.

    Args:
      study: the plan, with the planned trials.
      tables: studies, trials and measurements.
      runs: valid run numbers, or None if unknown.
      whole: whether the tables contain the whole study, instead of only a part of it.
    """
    wrong = [(table, what) for table in schema.COLUMNS for what in _shape(table, tables[table].schema, study)]
    if wrong:
        yield from wrong
        return
    recorded = KINDS[study.kind].recorded
    metaparameters = [] if recorded else tables["trials"].schema.names[len(schema.TRIALS) :]
    studies = needed("studies", tables["studies"], ("study", "run", *_FROM_PLAN))
    trials = needed("trials", tables["trials"], [*(column.name for column in schema.TRIALS), *metaparameters])
    curves = scan(tables["measurements"], 0 if recorded else 1)  # our own trials are never evaluated at step 0
    names = {"studies": _texts(studies["study"]), "trials": _texts(trials["study"]), "measurements": curves.studies}
    for table, stored in names.items():
        if foreign := stored - {study.name}:
            yield (table, f"holds rows of another study, {min(map(str, foreign))[:80]!r}")
    for table, rows in (("studies", studies), ("trials", trials)):
        nulls = [column for column in schema.NEVER_NULL if column in rows.column_names and rows[column].null_count]
        for column in nulls:
            yield (table, f"{rows[column].null_count} rows have no {column}")
        if nulls:
            return
    yield from (("studies", what) for what in _studies(study, studies, runs))
    of_trials = list(_trials(study, trials, set(studies["run"].to_pylist())))
    of_trials += _roles(study, trials, whole)
    yield from (("trials", what) for what in of_trials)
    yield from (("measurements", what) for what in curves.flaws)
    ids = trials["trial"].to_numpy()
    orphans = curves.trials[:0] if np.array_equal(curves.trials, ids) else np.setdiff1d(curves.trials, ids)
    if len(orphans):
        yield ("measurements", f"holds rows of {_some('trial', orphans)}, which trials does not have")
    if not recorded and not (of_trials or curves.flaws or len(orphans)):
        yield from (("trials", what) for what in _ends(trials, curves))


def needed(table: str, rows: Rows, columns: Sequence[str]) -> pa.Table:
    """Returns the named columns of all rows, in the current schema. Tables with an older schema keep all columns."""
    content = rows.read(columns if schema.is_of_today(rows.schema) else rows.schema.names)
    return migrations.upgrade(table, content, table)


class TrialSpans(NamedTuple):
    """The measurements of a study, by trial.

    Attributes:
      studies: study names in the rows.
      trials: trial ids, int32[trials], sorted if there are no flaws.
      last: last step of each trial, int32[trials].
      flaws: flaws in the rows.
    """

    studies: set
    trials: np.ndarray
    last: np.ndarray
    flaws: list[str]


def scan(rows: Rows, earliest: int) -> TrialSpans:
    """Reads the study, trial and step of all rows. Checks that rows are sorted, unique and not below ``earliest``."""
    table = rows.read(["study", "trial", "step"])
    studies = _texts(table["study"])
    if table["trial"].null_count or table["step"].null_count:
        none = np.zeros(0, np.int32)
        return TrialSpans(studies, none, none, ["rows have no trial or no step"])
    trial, step = (table[name].to_numpy() for name in ("trial", "step"))
    change = trial[1:] != trial[:-1]
    ends, back = np.flatnonzero(change), np.flatnonzero(step[1:] <= step[:-1])
    wrong = np.union1d(back[~change[back]], ends[trial[ends + 1] < trial[ends]]) + 1
    flaws = []
    if len(wrong):
        row = wrong[0]
        twice = (trial[row], step[row]) == (trial[row - 1], step[row - 1])
        how = "occur twice" if twice else "are not sorted by (trial, step)"
        flaws.append(f"{len(wrong)} or more rows {how}; the first is row {row}")
    if len(trial) and (trial.min() < 0 or step.min() < earliest):
        flaws.append(f"rows have a step below {earliest} or a trial below 0")
    ends = np.append(ends, len(trial) - 1)[: len(trial)]
    return TrialSpans(studies, trial[ends], step[ends], flaws)


def _texts(column: pa.ChunkedArray) -> set:
    """Returns the distinct values in a text column, including None if there are nulls."""
    return {value for chunk in column.chunks for value in chunk.unique().to_pylist()}


def _shape(table: str, written: pa.Schema, study: Plan) -> Iterator[str]:
    """Yields flaws in the columns: schema columns must come first, in order, then metaparameters or metrics."""
    columns = schema.COLUMNS[table]
    kind, reserved = KINDS[study.kind], kinds.reserved()
    columns_of_kind = {column.name: column.type for column in kind.columns}
    fields = migrations.upgrade(table, written.empty_table(), table).schema
    for column, field in zip(columns, fields, strict=False):
        if (field.name, field.type) != (column.name, column.type):
            yield f"has column {field.name} ({field.type}) instead of {column.name} ({column.type})"
            return
    if len(fields) < len(columns):
        yield f"lacks the column {columns[len(fields)].name}"
    for field in list(fields)[len(columns) :]:
        if table == "studies" or (table == "trials" and field.name in reserved):
            yield f"has an unexpected column {field.name[:80]!r}"
        elif table == "trials":
            if field.type != pa.float64():
                yield f"has the metaparameter {field.name} as {field.type}, not double"
        elif field.name in columns_of_kind:
            if field.type != columns_of_kind[field.name]:
                yield f"has {field.name} as {field.type}, not {columns_of_kind[field.name]}"
        elif field.name not in METRICS:
            yield f"has a column {field.name[:80]!r}, which is not a metric"
        elif field.type not in _METRIC_TYPES[: 2 if kind.recorded else 1]:
            yield f"has the metric {field.name} as {field.type}"
    if len(set(fields.names)) < len(fields.names):
        yield "has two columns with the same name"


def _studies(study: Plan, table: pa.Table, runs: frozenset[int] | None) -> Iterator[str]:
    values = (*plan_columns.names(study).values(), study.plan_json)
    for column, value in zip(_FROM_PLAN, values, strict=True):
        if set(table[column].to_pylist()) - {value, None}:
            yield f"contradicts the plan in column {column}"
    run = table["run"].to_numpy()
    if np.any(np.diff(run) <= 0):
        yield "does not have every run once, in order"
    if runs is not None and (unknown := sorted(set(run.tolist()) - runs)):
        yield f"has {_some('run', np.array(unknown))}, which the study was never claimed for"


def _trials(study: Plan, table: pa.Table, runs: set[int]) -> Iterator[str]:
    ids, steps = table["trial"].to_numpy(), pc.fill_null(table["steps"], 0).to_numpy()
    if np.any(np.diff(ids) <= 0) or np.any(ids < 0):
        yield "does not have every trial once, in order, from 0"
    if set(table["run"].unique().to_pylist()) - runs:
        yield "has trials of a run that studies does not have"
    ways = list(zip(table["status"].to_pylist(), table["reason"].to_pylist(), strict=True))
    for status, reason in sorted(set(ways) - KINDS[study.kind].endings, key=str):
        rows = np.array([way == (status, reason) for way in ways])
        yield f"has the unknown status {str(status)[:40]}({str(reason)[:40]}) in {_some('trial', ids[rows])}"
    wrong = {"has a negative number of steps in": steps < 0}
    if not KINDS[study.kind].recorded:
        repeats = study.request.repeats
        wrong["has results without a request in"] = (confirmation.original(ids) >= study.trials) | (
            confirmation.repeat(ids) > np.where(_is_extra(table), MOST_REPEATS, repeats.confirm)
        )
        wrong["has more steps than the budget in"] = steps > study.budget_steps
        wrong["has no steps in"] = pc.is_null(table["steps"]).to_numpy()
        wrong["has no seed in"] = pc.is_null(table["seed"]).to_numpy()
        metaparameters = table.schema.names[len(schema.TRIALS) :]
        if len(table) and sorted(metaparameters) != sorted(study.search.space):
            yield f"has the metaparameters {', '.join(metaparameters)}, not those of the plan"
        for name in set(metaparameters) & set(study.search.space):
            wrong[f"has a {name} outside its range in"] = _outside(study.search.space[name], table[name].to_numpy())
    for what, matches in wrong.items():
        if matches.any():
            yield f"{what} {_some('trial', ids[matches])}"


def _is_extra(table: pa.Table) -> np.ndarray:
    """Returns whether each trial is a repeat that is no longer requested."""
    return np.array(table["role"].to_pylist()) == EXTRA


def _roles(study: Plan, table: pa.Table, whole: bool) -> Iterator[str]:
    """Yields flaws in the repeats: ids must match roles, and metaparameters must equal those of the repeated trial."""
    ids, roles = table["trial"].to_numpy(), np.array(table["role"].to_pylist())
    repeats = np.zeros(len(ids), bool) if KINDS[study.kind].recorded else confirmation.is_repeat(ids)
    extra = _is_extra(table) if whole else np.zeros(len(ids), bool)  # every repeat in a part was requested
    wrong = np.where(extra, CONFIRM, roles) != np.where(repeats, CONFIRM, SEARCH)
    if wrong.any():
        yield f"has the wrong role in {_some('trial', ids[wrong])}: {str(roles[wrong][0])[:40]}"
    if not repeats.any():
        return
    originals, asked = confirmation.original(ids[repeats]), ids[repeats & ~extra]
    repeated = len(np.unique(confirmation.original(asked)))
    if whole and repeated > (limit := study.request.repeats.candidates(study.trials)):
        yield f"has repeats of {repeated} trials, but only {limit} are candidates"
    if whole and len(set(map(confirmation.original, confirmation.reporting_ids(study.request, asked.tolist())))) > 1:
        yield "has repeats that report on several trials, but only one was chosen"
    rows_of_originals = np.minimum(np.searchsorted(ids, originals), len(ids) - 1)
    present = ids[rows_of_originals] == originals
    if whole and not present.all():
        yield f"has repeats of missing trials: {_some('trial', ids[repeats][~present])}"
    for name in table.schema.names[len(schema.TRIALS) :]:
        values = table[name].to_numpy()
        differs = present & ~np.isclose(values[rows_of_originals], values[repeats], rtol=0, atol=0, equal_nan=True)
        if differs.any():
            yield f"has a {name} that differs from the repeated trial in {_some('trial', ids[repeats][differs])}"


def _ends(trials: pa.Table, curves: TrialSpans) -> Iterator[str]:
    """Yields flaws in our own trials: steps must match the last measurement. Only trials to rerun may lack one."""
    ids, steps = trials["trial"].to_numpy(), trials["steps"].to_numpy()
    last = np.zeros(len(ids), steps.dtype)
    last[np.searchsorted(ids, curves.trials)] = curves.last
    to_rerun = pc.is_in(trials["reason"], pa.array(REASONS_TO_RERUN)).to_numpy()
    if np.any(last != steps):
        yield f"has steps that differ from the last measurement in {_some('trial', ids[last != steps])}"
    if np.any((last == 0) & ~to_rerun):
        yield f"has no measurement of {_some('trial', ids[(last == 0) & ~to_rerun])}"


def _outside(ranged: Range, values: np.ndarray) -> np.ndarray:
    if ranged.scale == "DISCRETE":
        return ~np.isin(values, ranged.values)
    return ~((values >= ranged.low) & (values <= ranged.high))


def _some(what: str, ids: np.ndarray) -> str:
    return f"{what} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {what}s (first {ids[0]})"
