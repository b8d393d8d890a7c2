"""The envelope of a study: the few measurements that determine when the study first reached any given target.

It is written with every commit. It contains unchanged rows of the merged tables, from search trials but not from
repeats of the best trials. A row is omitted if another row dominates it under every rule. The dominating row must have
the same or an earlier step, the same or a lower value, and be from the same trial or a trial with a smaller id. Rows
are compared by two steps. Their own step determines steps_high. The step of the previous evaluation with the same
metric determines steps_low: the minimum of steps_low over all rows at the target belongs to the first such row of some
trial. A row whose metrics were previously measured at different steps is repeated for each of these steps, with NaN for
the other metrics. The released rule counts the first k COMPLETE trials, and k is chosen later. Among these trials, a
row can therefore be omitted only because of a smaller id.

An envelope is valid only for the files whose sha256 it contains and for the rules that it lists. Readers ignore other
envelopes. An envelope is an Arrow stream of two batches. The first has the rows for the rule `minimum`, so that little
needs to be read for this rule. The second has the other rows.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from results import bounds, durable
from results.aliases import Fields, StringMap
from results.bad_input import first_line
from results.durable import Damaged, Folder
from results.grouping import grouped
from results.plans import schema
from results.plans.plan import Plan
from results.plans.study import METRICS, Target
from results.rules.answers import Answer, Reached, Rule
from results.rules.confirmation import SEARCH
from results.rules.descriptions import METRIC_TYPES, StudyDescription, of_study
from results.storage import compaction
from results.storage.commit_records import File
from results.storage.compaction import Piece
from results.storage.decisive_rows import NOT_COMPLETE, decisive, row_before, starts_of, taken
from results.storage.parts import table_file

FORMAT = 1
BATCHES = {"minimum": 1, "released": 2}  # number of leading batches that a rule reads
KEY = b"scaling_limits_envelope"
HASHED = ("trials", "measurements")  # tables it is built from
# Columns of the tables that it is built from.
NEEDED = frozenset({"seconds_per_epoch", "emulated", "trial", "role", "status", "step", *METRICS})
COLUMNS = ("trial", "rank", "step_before", "step")  # followed by the metrics, in their own types


class Envelope(NamedTuple):
    """An envelope as read for a rule. ``rows`` has the columns ``COLUMNS``, then the metrics of ``description``."""

    description: StudyDescription
    rows: Sequence[pa.RecordBatch]


def build(study: Plan, tables: Piece, hashes: StringMap) -> tuple[bytes, int]:
    """Returns the content of a study's envelope file, and its number of rows.

    Args:
      study: the plan.
      tables: the study's merged tables, with at least the columns ``NEEDED``.
      hashes: sha256 of the table files, by table.
    """
    searched = _without_repeats(tables)
    trial, step = (searched.measurements[name].to_numpy() for name in ("trial", "step"))
    starts = starts_of(trial)
    complete = searched.trials["trial"].to_numpy()[searched.trials["status"].to_numpy() == "COMPLETE"]
    rank = np.where(np.isin(trial, complete), np.searchsorted(complete, trial), NOT_COMPLETE).astype(np.int32)
    metrics = {f.name: str(f.type) for f in searched.measurements.schema if f.name in METRICS}
    columns = {name: searched.measurements[name] for name in metrics}
    values = {name: column.to_numpy() for name, column in columns.items()}
    plain = np.where(starts, -1, np.arange(len(starts)) - 1)
    before = {name: row_before(starts, column) if column.null_count else plain for name, column in columns.items()}
    keep = decisive(starts, step, rank, [(values[name], before[name]) for name in metrics])
    head = {
        "format": FORMAT,
        "schema": schema.SCHEMA_VERSION,
        "rules": BATCHES,
        "sha256": {table: hashes[table] for table in HASHED},
        "about": of_study(study, searched.studies, searched.trials, metrics, len(tables.measurements)).record(),
    }
    batches = [_batch(rows, (trial, rank, step), values, before) for rows in keep]
    return _content(batches[0].schema, head, batches), sum(batch.num_rows for batch in batches)


def commit_files(
    study: Plan, tables: Piece, folder: Folder, number: int
) -> tuple[dict[str, File], dict[str, bytes | memoryview]]:
    """Returns the files of a commit with a number, which are the tables and the envelope, and their contents."""
    contents: dict[str, bytes | memoryview] = {}
    files = {}

    def add(table: str, content: bytes | memoryview, rows: int) -> None:
        path = folder / table_file(table, number)
        files[table] = File(path, hashlib.sha256(content).hexdigest(), len(content), rows)
        contents[table] = content

    for table, rows in tables._asdict().items():
        add(table, compaction.parquet_bytes(rows), len(rows))
    add("envelope", *build(study, tables, {table: files[table].sha256 for table in HASHED}))
    return files, contents


def rebind(data: bytes, hashes: StringMap) -> bytes:
    """Returns an envelope from ``build`` with the ``hashes`` of other files that contain the same rows."""
    stream = pa.ipc.RecordBatchStreamReader(data)
    head = json.loads(stream.schema.metadata[KEY]) | {"sha256": {table: hashes[table] for table in HASHED}}
    return _content(stream.schema, head, stream)


def _content(columns: pa.Schema, head: Any, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Returns the content of an envelope file, with the head in the metadata of the schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.with_metadata({KEY: json.dumps(head)})) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def read(source: pa.Buffer) -> pa.Table:
    """Returns all rows of an envelope without copying. If it is invalid, may raise any exception."""
    bounds.check_stream(pa.BufferReader(source))
    table = pa.ipc.open_stream(source).read_all()
    table.validate(full=True)
    return table


def head_of(columns: pa.Schema) -> Any:
    """Returns the head of an envelope as plain data. If it is invalid, may raise any exception."""
    text = columns.metadata[KEY]
    if len(text) > durable.RECORD_BYTES:
        raise ValueError("the head is too long")
    return json.loads(text.decode())


def parse(data: bytes, record: bytes, rule: Rule) -> Envelope | None:
    """Returns an envelope's rows for ``rule``, or None if it is invalid or does not belong to the files in ``record``.

    Args:
      data: the file's content, or a long enough prefix of it.
      record: text that contains the sha256 of the study's files, such as its commit record.
      rule: the rule for which to read rows.
    """
    try:
        bounds.check_stream(pa.BufferReader(data), 0)
        stream = pa.ipc.RecordBatchStreamReader(data)
        head = head_of(stream.schema)
        if not is_readable(head):
            return None
        if any(head["sha256"][table].encode() not in record for table in HASHED):
            return None
        description, count = StudyDescription(**head["about"]), head["rules"][rule.name]
        bounds.check_stream(pa.BufferReader(data), count)
        rows = [stream.read_next_batch() for _ in range(count)]
        return Envelope(description, rows) if rows and description.is_plain else None
    except (AttributeError, KeyError, TypeError, ValueError, OSError, StopIteration, RecursionError, pa.ArrowException):
        return None


def is_readable(head: Fields) -> bool:
    """Returns whether this software can read the format and schema in an envelope's head."""
    return head["format"] == FORMAT and schema.OLDEST_SCHEMA <= head["schema"] <= schema.SCHEMA_VERSION


def has_empty_interval(table: pa.Table) -> bool:
    """Returns whether the interval of any row is empty. [0, 0] is valid: the target was met at the start.

    Args:
      table: rows of an envelope.
    """
    before, step = table["step_before"].to_numpy(), table["step"].to_numpy()
    return bool(np.any((before < 0) | (before > step) | ((before == step) & (step > 0))))


def is_same(data: bytes, table: pa.Table) -> bool:
    """Returns whether an envelope equals a newly built one, batch by batch.

    Args:
      data: the new envelope, from ``build``.
      table: all rows of the existing envelope, in any readable schema.
    """
    built = pa.ipc.open_stream(data).read_all()
    heads = [json.loads(envelope.schema.metadata[KEY]) | {"schema": None} for envelope in (built, table)]
    lengths = [[len(chunk) for chunk in envelope["step"].chunks] for envelope in (built, table)]
    if heads[0] != heads[1] or lengths[0] != lengths[1] or not built.schema.equals(table.schema):
        return False
    pairs = zip(built.columns, table.columns, strict=True)
    return all(np.array_equal(a.to_numpy(), b.to_numpy(), equal_nan=True) for a, b in pairs)


def answers(envelopes: Sequence[Envelope], target: Target, rule: Rule) -> dict[str, Answer]:
    """Returns the answer of each study that has one, by name. A scan would give the same result.

    Args:
      envelopes: envelopes of studies, read for ``rule``.
      target: metric and value, compared in the type of each study's column.
      rule: rule that determines which trials count and when they reach the target.
    """
    measured = [envelope for envelope in envelopes if target.metric in envelope.description.metrics]
    by_study = {}
    for metrics, members in grouped(measured, lambda envelope: tuple(envelope.description.metrics.items())).items():
        table = _rows(members, metrics)
        trial, before, step = (table[name].to_numpy() for name in ("trial", "step_before", "step"))
        reached = target.reached(table[target.metric].to_numpy(), strict=rule.strict)
        at_target = np.flatnonzero(reached & _counts(table, rule))
        ends = np.cumsum([sum(map(len, envelope.rows)) for envelope in members])
        for envelope, rows in zip(members, np.split(at_target, np.searchsorted(at_target, ends)[:-1]), strict=True):
            # Some rows follow the first of their trial, but never change the answer.
            if answer := Reached(trial[rows], before[rows], step[rows]).answer():
                by_study[envelope.description.study] = answer
    return by_study


def lowest(envelopes: Sequence[Envelope], metric: str, rule: Rule) -> dict[str, float]:
    """Returns the lowest value of a metric over the trials that ``rule`` counts, by study.

    Args:
      envelopes: envelopes of studies, read for ``rule``.
      metric: name of the metric. Studies without it are omitted.
      rule: rule that determines which trials count.
    """
    by_study = {}
    for envelope in envelopes:
        if metric not in envelope.description.metrics:
            continue
        table = _rows([envelope], envelope.description.metrics.items())
        measured = table[metric].to_numpy()[_counts(table, rule)]
        measured = measured[np.isfinite(measured)]
        if len(measured):
            by_study[envelope.description.study] = float(
                str(measured.min())
            )  # with the digits of the column's own type
    return by_study


def _rows(envelopes: Sequence[Envelope], metrics: Iterable[tuple[str, str]]) -> pa.Table:
    """Returns all rows of envelopes with the same metrics. Raises Damaged if columns or values are invalid."""
    fields = [(name, pa.int32()) for name in COLUMNS] + [(name, METRIC_TYPES[kind]) for name, kind in metrics]
    try:
        table = pa.Table.from_batches([batch for envelope in envelopes for batch in envelope.rows], pa.schema(fields))
        table.validate()
        if any(column.null_count for column in table.columns):
            raise ValueError("a value is missing")
        if has_empty_interval(table):
            raise ValueError("an interval in it is empty")
    except (ValueError, pa.ArrowException) as error:
        reason = first_line(error)
        raise Damaged(f"an envelope is damaged ({reason}). Check it with `python -m results verify`.") from None
    return table


def _counts(table: pa.Table, rule: Rule) -> np.ndarray:
    """Returns whether the trial of each row counts under a rule."""
    rank = table["rank"].to_numpy()
    if rule.first is None:
        return np.ones(len(rank), bool)
    return (rank != NOT_COMPLETE) & (rank < rule.first)


def _batch(
    rows: np.ndarray,
    columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    values: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
) -> pa.RecordBatch:
    """Returns the rows of a study. Each row is repeated for every previous evaluation to which its metrics refer."""
    trial, rank, step = columns
    starting = {name: taken(step, before[name][rows]) for name in values}
    has_value = [~np.isnan(values[name][rows]) for name in values]
    pairs = [np.flatnonzero(has) << 32 | low[has] for has, low in zip(has_value, starting.values(), strict=True)]
    number, low = np.divmod(np.unique(np.concatenate([*pairs, np.zeros(0, np.int64)])), 1 << 32)
    low = low.astype(step.dtype)
    columns_of_metrics = {
        name: np.where(starting[name][number] == low, values[name][rows[number]], np.nan) for name in values
    }
    first = dict(zip(COLUMNS, (trial[rows[number]], rank[rows[number]], low, step[rows[number]]), strict=True))
    return pa.record_batch({name: pa.array(column) for name, column in (first | columns_of_metrics).items()})


def _without_repeats(tables: Piece) -> Piece:
    """Returns a study's tables without the repeats of its best trials."""
    role = tables.trials["role"].to_numpy(zero_copy_only=False)
    if np.all(role == SEARCH):
        return tables
    repeats = tables.trials["trial"].to_numpy()[role != SEARCH]
    measured = tables.measurements
    return tables._replace(
        trials=tables.trials.filter(pa.array(role == SEARCH)),
        measurements=measured.filter(pa.array(~np.isin(measured["trial"].to_numpy(), repeats))),
    )
