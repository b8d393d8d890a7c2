"""The three tables of a store: every column with its type, its unit and its meaning."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from results.bad_input import BadInput, TooOld
from results.plans.study import METRICS

SCHEMA_VERSION = 4
OLDEST_SCHEMA = 4  # that this software reads
VERSION_KEY = b"scaling_limits_schema"


RESULT, PROVENANCE, TIMING = "result", "provenance", "timing"


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      name, type, meaning: as stored.
      otherwise: what is written where nothing is said.
      says: what the values are: a result, which is the same wherever and however often a study was stopped and gone on
        with, the provenance of results, or what they took.
    """

    name: str
    type: pa.DataType
    meaning: str
    otherwise: str | None = None
    says: str = RESULT


_TEXT = pa.dictionary(pa.int32(), pa.string())
KIND = "batch (over batch sizes), cores (over cores), layout (one step on a mesh) or recorded (measured by others)"
COUNTING = "counting is that of layouts, numbers in order, whose few steps check costs and are no result of training"

STUDIES = (
    Column("study", _TEXT, "name of the study: readable slug and short hash of its plan"),
    Column(
        "run", pa.int32(), "number of the run, the claim under which it wrote; a study grows by runs", says=PROVENANCE
    ),
    Column("dataset", pa.string(), f"name of the data set; {COUNTING}"),
    Column("model", pa.string(), "name of the model, then its options"),
    Column("optimizer", pa.string(), "name of the optimizer"),
    Column("batch_size", pa.int32(), "global batch size, examples; null where all data are taken at once"),
    Column("budget_steps", pa.int32(), "the most steps a trial takes"),
    Column("evaluation_ratio", pa.float64(), "evaluations are at steps growing by this factor"),
    Column("evaluation_spacing", pa.float64(), "steps per evaluation that the cap on their cost left at least"),
    Column("pruning", pa.string(), "exact: curves of losing trials are cut short; off: they are not"),
    Column("planned_trials", pa.int32(), "trials asked for when the run was made", says=PROVENANCE),
    Column("plan", pa.string(), "the whole identity of the study, JSON"),
    Column("started_at", pa.string(), "when the run began, UTC, ISO 8601", says=PROVENANCE),
    Column("code_version", pa.string(), "version of this software", says=PROVENANCE),
    Column(
        "git_commit",
        pa.string(),
        "commit of this software, with +dirty for uncommitted changes; null outside git",
        says=PROVENANCE,
    ),
    Column("python_version", pa.string(), "version of Python", says=PROVENANCE),
    Column("package_versions", pa.string(), "versions of the packages that computed, JSON", says=PROVENANCE),
    Column("backend", pa.string(), "cpu, gpu or tpu; null if the run failed before it had one", says=PROVENANCE),
    Column(
        "device_kind", pa.string(), "what JAX calls the device; of a CPU, the model of the processor", says=PROVENANCE
    ),
    Column("device_count", pa.int32(), "devices the run used", says=PROVENANCE),
    Column("emulated", pa.bool_(), "more devices than physical cores: times say nothing about speed", says=PROVENANCE),
    Column("physical_cores", pa.int32(), "physical cores the process could run on", says=PROVENANCE),
    Column("affinity", pa.string(), "logical processors the process was bound to, such as 0,1", says=PROVENANCE),
    Column("lanes", pa.int32(), "trials advanced by one program call", says=PROVENANCE),
    Column("lane_strategy", pa.string(), "map (one after the other) or vmap (batched)", says=PROVENANCE),
    Column("shards", pa.int32(), "devices that each batch was divided over", says=PROVENANCE),
    Column(
        "microbatches",
        pa.int32(),
        "parts that each shard of a batch was taken in, one after the other",
        says=PROVENANCE,
    ),
    Column("compile_seconds", pa.float64(), "seconds spent building programs, cached or not", says=TIMING),
    Column(
        "run_seconds", pa.float64(), "seconds from the first program call to the last, without compiling", says=TIMING
    ),
    Column("train_seconds", pa.float64(), "the part of run_seconds inside training steps", says=TIMING),
    Column("evaluate_seconds", pa.float64(), "the part of run_seconds inside evaluations", says=TIMING),
    Column(
        "trial_steps",
        pa.int64(),
        "training steps that the run took, summed over trials. Not the sum of steps in trials: rules cut pruned curves "
        "shorter, a later run may take a trial again, and a layout that is refused takes none",
        says=TIMING,
    ),
    Column(
        "seconds_per_step",
        pa.float64(),
        "train_seconds / trial_steps; with several lanes the reciprocal of throughput",
        says=TIMING,
    ),
    Column(
        "seconds_per_epoch",
        pa.float64(),
        "seconds_per_step times training examples over batch size: of all trials together; null without epochs",
        says=TIMING,
    ),
)

TRIALS = (
    Column("study", _TEXT, "name of the study"),
    Column("trial", pa.int32(), "number of the trial within its study, from 0; k million + i repeats trial i"),
    Column("run", pa.int32(), "number of the run that made the trial, as in studies", says=PROVENANCE),
    Column(
        "role", pa.string(), "search, or confirm: one of the best trials of the search again, on a fresh seed", "search"
    ),
    Column("seed", pa.uint32(), "seed of its initial parameters and data order; null if not published"),
    Column(
        "status",
        pa.string(),
        "COMPLETE; INFEASIBLE: it diverged, or, of layouts, was refused; or INCOMPLETE",
    ),
    Column("reason", pa.string(), "of INCOMPLETE: pruned, time_limit, lost, failed or unstated; else null"),
    Column("steps", pa.int32(), "steps taken at its last evaluation; null where its source does not tell"),
)  # then one float64 column per metaparameter, under its own name

MEASUREMENTS = (
    Column("study", _TEXT, "name of the study"),
    Column("trial", pa.int32(), "number of the trial within its study"),
    Column("step", pa.int32(), "training steps taken before this evaluation; of a factorization, epochs"),
)  # then one column per metric, under its own name: float32 as computed here, float64 as published elsewhere

_MEAN = "without compiling; the mean of the epochs since the measurement before"
# Of measurements of factorizations, after their metrics: what these epochs took.
COSTS = (
    Column("row_half_seconds", pa.float32(), f"seconds of solving all rows, {_MEAN}", says=TIMING),
    Column("column_half_seconds", pa.float32(), f"seconds of solving all columns, {_MEAN}", says=TIMING),
    Column("evaluation_seconds", pa.float32(), "seconds of evaluating, without compiling", says=TIMING),
    Column("bytes_per_core", pa.int64(), "bytes of both tables and all work that each core holds"),
    Column("peak_bytes_per_core", pa.int64(), "bytes that each core holds at most, as the compiler tells"),
)

COLUMNS = {"studies": STUDIES, "trials": TRIALS, "measurements": MEASUREMENTS}  # by table
EXTRA_ROLE = "extra: such a trial that the study's request does not ask for any more"  # of ``role``, where there is one

NEVER_NULL = ("study", "run", "trial", "role", "status", "step")  # in any of the tables

# A metaparameter becomes a column of `trials`, so it may not be called like one; see ``kinds.reserved``, too.
RESERVED = frozenset(c.name for c in (*STUDIES, *TRIALS, *MEASUREMENTS)) | frozenset(METRICS)


def build(columns: tuple[Column, ...], data: Mapping[str, Any], extra: Mapping[str, pa.DataType]) -> pa.Table:
    """An Arrow table of ``columns`` followed by ``extra`` ones, with the schema version in its metadata.

    Args:
      columns: STUDIES, TRIALS or MEASUREMENTS.
      data: lists or arrays by column name, all of one length; a column of ``columns`` that is not there is null,
        or what it is ``otherwise``.
      extra: types of the further columns: metaparameters of trials, metrics of measurements.
    """
    fields = [pa.field(c.name, c.type) for c in columns]
    fields += [pa.field(name, kind) for name, kind in extra.items()]
    schema = pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})
    rows = len(next(iter(data.values()), ()))
    values = {c.name: [c.otherwise] * rows for c in columns if c.otherwise is not None} | dict(data)
    return pa.Table.from_arrays([_array(values.get(f.name), f.type, rows) for f in schema], schema=schema)


def empty(columns: tuple[Column, ...], extra: Mapping[str, str] = MappingProxyType({})) -> pa.Schema:
    """The columns of a table without a row; ``extra``: further ones, by Arrow's name of their type."""
    return build(columns, {}, {name: pa.type_for_alias(kind) for name, kind in extra.items()}).schema


def constant(column: pa.Field, value: object, rows: int) -> pa.Array:
    """An array of one value, ``rows`` times, in a column's type."""
    if column.type == _TEXT:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], pa.string()))
    return pa.repeat(pa.scalar(value, column.type), rows)


def version(schema: pa.Schema) -> int:
    """The schema version a file was written under; 0 if it is none of ours."""
    return int((schema.metadata or {}).get(VERSION_KEY, b"0"))


def is_of_today(schema: pa.Schema) -> bool:
    """Whether a file was written under today's schema version."""
    return bool((schema.metadata or {}).get(VERSION_KEY) == str(SCHEMA_VERSION).encode())


def check_number(path: object, number: int) -> None:
    """Raises BadInput unless ``number`` is the version of a schema that this software reads."""
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
    return pa.array(values, pa.string()).dictionary_encode() if kind == _TEXT else pa.array(values, kind)
