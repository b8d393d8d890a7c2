"""The three tables in a store: the type, unit and meaning of every column."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from results.aliases import Fields, StringMap
from results.bad_input import BadInput, TooOld
from results.plans.study import METRICS

SCHEMA_VERSION = 5
OLDEST_SCHEMA = 4  # oldest schema that this software reads
VERSION_KEY = b"scaling_limits_schema"
METADATA = {VERSION_KEY: str(SCHEMA_VERSION).encode()}  # of every table


class Column(NamedTuple):
    """A column in a table.

    Attributes:
      name, type, meaning: name, type and meaning as stored.
      otherwise: default value for rows.
    """

    name: str
    type: pa.DataType
    meaning: str
    otherwise: str | None = None


TEXT, BOOL = pa.string(), pa.bool_()
INT32, INT64, UINT32, FLOAT32, FLOAT64 = pa.int32(), pa.int64(), pa.uint32(), pa.float32(), pa.float64()
_CATEGORY = pa.dictionary(INT32, TEXT)
KIND = "batch (over batch sizes), cores (over cores), layout (one step on a mesh) or recorded (measured by others)"
COUNTING = "counting: consecutive numbers, on which a few steps of a layout check its costs rather than train a model"
STUDIES = (
    Column("study", _CATEGORY, "name of the study: readable slug and short hash of its plan"),
    Column("run", INT32, "number of the run and of its claim. A study grows by runs"),
    Column("dataset", TEXT, f"name of the data set; {COUNTING}"),
    Column("model", TEXT, "name of the model, then its options"),
    Column("optimizer", TEXT, "name of the optimizer"),
    Column("batch_size", INT32, "global batch size in the unit of column unit, or null if each step takes all data"),
    Column("budget_steps", INT32, "maximum number of steps of a trial"),
    Column("evaluation_ratio", FLOAT64, "factor by which the steps between evaluations grow"),
    Column("evaluation_spacing", FLOAT64, "minimum steps per evaluation, from the limit on its cost"),
    Column("pruning", TEXT, "exact: losing trials are stopped early; off: they are not"),
    Column("planned_trials", INT32, "trials requested when the run was made"),
    Column("plan", TEXT, "the whole identity of the study, JSON"),
    Column("started_at", TEXT, "start of the run, UTC, ISO 8601"),
    Column("code_version", TEXT, "version of this software"),
    Column("git_commit", TEXT, "commit of this software, with +dirty for uncommitted changes, or null outside git"),
    Column("python_version", TEXT, "version of Python"),
    Column("package_versions", TEXT, "versions of the packages that computed, JSON"),
    Column("backend", TEXT, "cpu, gpu or tpu, or null if the run failed before it had one"),
    Column("device_kind", TEXT, "JAX's name of the device, or the processor model for a CPU"),
    Column("device_count", INT32, "devices that the run used"),
    Column("emulated", BOOL, "more devices than physical cores: times do not measure speed"),
    Column("physical_cores", INT32, "physical cores that it could use"),
    Column("affinity", TEXT, "logical processors the process was bound to, such as 0,1"),
    Column("lanes", INT32, "trials advanced by one program call"),
    Column("lane_strategy", TEXT, "map (sequential) or vmap (batched)"),
    Column("shards", INT32, "devices that each batch was divided over"),
    Column("microbatches", INT32, "sequential parts of each shard of a batch"),
    Column("mesh", TEXT, "batch: mesh of each trial, such as data:2, or null without a layout. Since schema 5"),
    Column(
        "layout", TEXT, "batch: tensor axes that were divided over the mesh, such as mlp:model, or null. Since schema 5"
    ),
    Column("compile_seconds", FLOAT64, "seconds spent building programs, cached or not"),
    Column("run_seconds", FLOAT64, "seconds from the first program call to the last, without compiling"),
    Column("train_seconds", FLOAT64, "the part of run_seconds inside training steps"),
    Column("evaluate_seconds", FLOAT64, "the part of run_seconds inside evaluations"),
    Column(
        "trial_steps",
        INT64,
        "training steps of the run, summed over trials. It differs from the sum of steps in trials: stored curves of "
        "pruned trials are shorter, a later run may repeat a trial, and a rejected layout takes no steps",
    ),
    Column(
        "seconds_per_step", FLOAT64, "train_seconds / trial_steps. With several lanes, the reciprocal of throughput"
    ),
    Column(
        "seconds_per_epoch",
        FLOAT64,
        "seconds_per_step times training examples over batch size: of all trials together, or null without epochs",
    ),
)

TRIALS = (
    Column("study", _CATEGORY, "name of the study"),
    Column("trial", INT32, "number of the trial within its study, from 0; k million + i repeats trial i"),
    Column("run", INT32, "number of the run that made the trial, as in studies"),
    Column("role", TEXT, "search, or confirm: a repeat of one of its best trials with a fresh seed", "search"),
    Column("seed", UINT32, "seed of initial parameters and data order, or null if not published"),
    Column(
        "status",
        TEXT,
        "COMPLETE (the trial reached all targets, or its budget), INFEASIBLE (it diverged, or its layout was rejected) "
        "or INCOMPLETE (it ended early)",
    ),
    Column("reason", TEXT, "reason for INCOMPLETE: pruned, time_limit, lost, failed or unstated. Else null"),
    Column("steps", INT32, "steps at the last evaluation, or null if its source does not specify them"),
)  # then one float64 column per metaparameter, under its own name

MEASUREMENTS = (
    Column("study", _CATEGORY, "name of the study"),
    Column("trial", INT32, "number of the trial within its study"),
    Column("step", INT32, "training steps before this evaluation, or epochs for a factorization"),
)  # then one column per metric, under its own name: float32 as computed here, float64 as published elsewhere

_MEAN = "without compiling, mean over the epochs since the previous measurement"
# Factorization measurements have these columns after their metrics: the costs of the epochs.
COSTS = (
    Column("row_half_seconds", FLOAT32, f"seconds of solving all rows, {_MEAN}"),
    Column("column_half_seconds", FLOAT32, f"seconds of solving all columns, {_MEAN}"),
    Column("evaluation_seconds", FLOAT32, "seconds of evaluating, without compiling"),
    Column("bytes_per_core", INT64, "bytes of both tables and all work on each core"),
    Column("peak_bytes_per_core", INT64, "peak bytes on each core, reported by the compiler"),
)

COLUMNS = {"studies": STUDIES, "trials": TRIALS, "measurements": MEASUREMENTS}  # by table
EXTRA_ROLE = "extra: a repeat that the study's request no longer includes"  # a third ``role``, listed if a trial has it

NEVER_NULL = ("study", "run", "trial", "role", "status", "step")  # in any of the tables

# A metaparameter becomes a column of `trials`, so it cannot have one of these names; see also ``kinds.reserved``.
RESERVED = frozenset(c.name for c in (*STUDIES, *TRIALS, *MEASUREMENTS)) | frozenset(METRICS)


def build(columns: tuple[Column, ...], data: Fields, extra: Mapping[str, pa.DataType]) -> pa.Table:
    """Returns an Arrow table of ``columns`` followed by ``extra``, with the schema version in its metadata.

    Args:
      columns: STUDIES, TRIALS or MEASUREMENTS.
      data: lists or arrays of equal length, by column name. If one of ``columns`` is missing, it is filled with its
        ``otherwise`` or, if there is none, with null.
      extra: types of the additional columns: metaparameters for trials, metrics for measurements.
    """
    fields = [pa.field(c.name, c.type) for c in columns]
    fields += [pa.field(name, kind) for name, kind in extra.items()]
    schema = pa.schema(fields, metadata=METADATA)
    rows = len(next(iter(data.values()), ()))
    values = {c.name: [c.otherwise] * rows for c in columns if c.otherwise is not None} | dict(data)
    return pa.Table.from_arrays([_array(values.get(f.name), f.type, rows) for f in schema], schema=schema)


def empty(columns: tuple[Column, ...], extra: StringMap = MappingProxyType({})) -> pa.Schema:
    """Returns the schema of a table. ``extra`` maps additional columns to the names of their Arrow types."""
    return build(columns, {}, {name: pa.type_for_alias(kind) for name, kind in extra.items()}).schema


def constant(column: pa.Field, value: object, rows: int) -> pa.Array:
    """Returns an array that repeats one value ``rows`` times, with the type of a column."""
    if column.type == _CATEGORY:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], pa.string()))
    return pa.repeat(pa.scalar(value, column.type), rows)


def version(schema: pa.Schema) -> int:
    """Returns the schema version of a file, or 0 if this software did not write it."""
    return int((schema.metadata or {}).get(VERSION_KEY, b"0"))


def is_of_today(schema: pa.Schema) -> bool:
    """Returns whether a file has the current schema version."""
    return bool((schema.metadata or {}).get(VERSION_KEY) == METADATA[VERSION_KEY])


def check_number(path: object, number: int) -> None:
    """Raises BadInput unless this software can read schema version ``number``."""
    if number < 1:
        raise BadInput(f"{path} has the unknown schema {number}")
    if number > SCHEMA_VERSION:
        raise BadInput(f"{path} has schema {number}, but this software reads up to {SCHEMA_VERSION}. Upgrade it.")
    if number < OLDEST_SCHEMA:
        raise TooOld(path, f"has schema {number}, which scaling-limits 0.1 wrote")


def _array(values: Any, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(kind)
    return pa.array(values, pa.string()).dictionary_encode() if kind == _CATEGORY else pa.array(values, kind)
