"""Compaction: merges a study's last commit and its parts into one Arrow table and one Parquet file per table."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from results import bounds, durable
from results.bad_input import BadInput, first_line
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.plan import Plan
from results.rules import answers, confirmation
from results.storage import migrations

TABLES = ("studies", "trials", "measurements")
_DIGEST_BYTES = 32


class Piece(NamedTuple):
    """The tables of one part or one commit."""

    studies: pa.Table
    trials: pa.Table
    measurements: pa.Table


def part_bytes(piece: Piece) -> bytes:
    """Returns the content of a part's file: three Arrow streams, followed by their sha256."""
    sink = pa.BufferOutputStream()
    for table in piece:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    payload = memoryview(sink.getvalue())
    return b"".join([payload, hashlib.sha256(payload).digest()])


def read_part(path: Folder) -> Piece:
    """Reads the tables of a part. Raises Damaged if the file does not match its hash."""
    data = durable.read(path)
    payload, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise Damaged(f"{path} is not what was written. Drop it with `python -m results repair`.")
    source = pa.BufferReader(payload)
    tables = []
    try:
        for name in TABLES:
            bounds.check_stream(source)
            with pa.ipc.open_stream(source) as stream:
                table = stream.read_all()
                table.validate(full=True)
                tables.append(migrations.upgrade(name, table, path))
    except BadInput:
        raise
    except (ValueError, pa.ArrowException) as error:  # ValueError: a column's name is not text
        raise Damaged(f"{path} is not a readable part ({first_line(error)})") from None
    return Piece(*tables)


def merge(pieces: Sequence[Piece], study: Plan | None = None) -> Piece:
    """Merges pieces into one. If a trial occurs several times, only the last copy counts, with its own measurements.

    Args:
      pieces: pieces to merge, oldest first.
      study: study with the current request, which determines whether repeats are requested or extra. If the study uses
        pruning, the curves of pruned trials are cut.

    Returns:
      The studies table with the last row of each run, sorted trials, and measurements sorted by (trial, step).
    """
    studies = _join([piece.studies for piece in pieces])
    trials = _join([piece.trials for piece in pieces])
    piece_of_row = np.repeat(np.arange(len(pieces)), [len(piece.trials) for piece in pieces])
    last = _last_rows(trials["trial"].to_numpy())
    if len(last) < len(trials):
        ids, piece_of = trials["trial"].to_numpy()[last], piece_of_row[last]
        kept = [select_trials(piece, ids[piece_of == i].tolist()) for i, piece in enumerate(pieces)]
        measurements = _join([piece.measurements for piece in kept])
    else:
        measurements = _join([piece.measurements for piece in pieces])
    order = _order(measurements["trial"].to_numpy(), measurements["step"].to_numpy())
    merged = Piece(
        studies.take(pa.array(_last_rows(studies["run"].to_numpy()))),
        trials.take(pa.array(last)),
        measurements if order is None else measurements.take(pa.array(order)),
    )
    if study is not None and study.search.targets:
        merged = with_roles(study, merged)
    if study is not None and study.search.pruning == "exact":
        merged = _cut_pruned(study, merged)
    return merged


def parquet_bytes(table: pa.Table) -> memoryview:
    """Returns a table as Parquet bytes. Strings and ids are dictionaries. Ids use Snappy, other columns use zstd.

    Every query reads the sorted ids. Zstd would not compress them any better, and Snappy decodes in two thirds of the
    time.
    """
    table = table.cast(
        pa.schema([f.with_nullable(f.name not in schema.NEVER_NULL) for f in table.schema], table.schema.metadata)
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **parquet_options(table.schema))
    return memoryview(sink.getvalue())


def parquet_options(columns: pa.Schema) -> dict[str, Any]:
    """Returns the encoding for a table with these columns, as PyArrow writer arguments. See ``parquet_bytes``."""
    texts = [f.name for f in columns if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    ids = [name for name in ("trial", "step") if name in columns.names]
    # Byte-stream splitting makes these floats larger, and readers such as fastparquet do not support it.
    return {
        "compression": dict.fromkeys(columns.names, "zstd") | dict.fromkeys(ids, "snappy"),
        "compression_level": {name: 3 for name in columns.names if name not in ids},
        "use_dictionary": texts + ids + [name for name in ("batch_size",) if name in columns.names],
    }


def with_run(piece: Piece, number: int) -> Piece:
    """Returns the piece with its run number filled in."""
    return piece._replace(
        studies=_with_column(piece.studies, "run", number), trials=_with_column(piece.trials, "run", number)
    )


def rename_study(piece: Piece, study: str) -> Piece:
    """Returns the piece with a different study name."""
    return Piece(*(_with_column(table, "study", study) for table in piece))


def select_trials(piece: Piece, trials: Collection[int]) -> Piece:
    """Returns the rows of the given trials, and all rows of the studies table."""
    ids = np.fromiter(trials, np.int64, len(trials))

    def rows(table: pa.Table) -> pa.Table:
        return table.filter(pa.array(np.isin(table["trial"].to_numpy(), ids)))

    return piece._replace(trials=rows(piece.trials), measurements=rows(piece.measurements))


def _with_column(table: pa.Table, column: str, value: object) -> pa.Table:
    """Returns a table with a column set to the values of an array, or to a single value in all rows."""
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    if isinstance(value, np.ndarray):
        return table.set_column(index, field, pa.array(value, field.type, from_pandas=True))
    return table.set_column(index, field, schema.constant(field, value, len(table)))


def _join(tables: Sequence[pa.Table]) -> pa.Table:
    # Missing columns become null, and dictionaries are unified.
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()


def _last_rows(ids: np.ndarray) -> np.ndarray:
    """Returns the row index of the last occurrence of each id, sorted by id."""
    _, from_the_end = np.unique(ids[::-1], return_index=True)
    return len(ids) - 1 - from_the_end


def _order(trial: np.ndarray, step: np.ndarray) -> np.ndarray | None:
    """Returns row indices sorted by (trial, step), or None if the rows are already sorted."""
    trial_change, step_change = np.diff(trial), np.diff(step)
    if np.all((trial_change > 0) | ((trial_change == 0) & (step_change >= 0))):
        return None
    return np.lexsort((step, trial))


def with_roles(study: Plan, whole: Piece) -> Piece:
    """Returns the piece with the role ``confirm`` for requested repeats and ``extra`` for the others."""
    roles = whole.trials["role"].to_numpy(zero_copy_only=False)
    repeats = roles != confirmation.SEARCH
    if not repeats.any():
        return whole
    wanted = confirmation.requested_ids(study, whole.trials.to_pandas(), whole.measurements.to_pandas())
    asked = np.isin(whole.trials["trial"].to_numpy(), wanted)
    roles = np.where(repeats, np.where(asked, confirmation.CONFIRM, confirmation.EXTRA), roles)
    return whole._replace(trials=_with_column(whole.trials, "role", roles))


def _cut_pruned(study: Plan, whole: Piece) -> Piece:
    trials, stay = answers.prune(study, whole.trials.to_pandas(), whole.measurements.to_pandas())
    if stay.all():
        return whole
    table = whole.trials
    for name in ("status", "reason", "steps"):
        table = _with_column(table, name, trials[name].to_numpy())
    return whole._replace(trials=table, measurements=whole.measurements.filter(pa.array(stay)))
