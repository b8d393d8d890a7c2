"""Points: the answers in a release, with one row per study and target, ready for fitting."""

from results.plans import definitions
from results.plans.schema import BOOL, COUNTING, FLOAT64, INT32, INT64, KIND, TEXT, UINT32, Column

_FIT = "in the unit of the batch size, or null unless identified"
_VERDICT = (
    "identified: critical_batch_size, in [critical_low, critical_high]; at_least: critical_low or more; at_most: "
    "critical_high or less; not_identified: the data give no bound"
)
_EXTENT = (
    "in its unit, with a 90 % interval that holds whatever the curve's shape. Identified if both ends are among the "
    "batch sizes tried, at_least if only the lower one is, at_most if only the upper one is, else not_identified"
)
_PAYS = f"{definitions.PAYS_UP_TO.format(gain=20)}, {_EXTENT}"
_EFFICIENT = f"{definitions.EFFICIENT_UP_TO}, {_EXTENT}"
_BEST_EXTENT = "null if the best estimate is beyond the batch sizes tried"
_LOW = "lower end of its 90 % interval, or the bound of at_least, or null if open or not stated"
_HIGH = "upper end of its 90 % interval, or the bound of at_most, or null if open or not stated"
_DOUBTS = "assumptions of the fit that the data do not support, as `analysis fit` names them, or null if there are none"


def _extent(prefix: str, name: str, meaning: str) -> tuple[Column, ...]:
    """Returns the columns of one answer: its best value, interval and verdict."""
    how = "as confirmed" if prefix else "as selected"
    return (
        Column(f"{prefix}{name}_up_to", FLOAT64, f"{how}: {meaning}, {_BEST_EXTENT}"),
        Column(f"{prefix}{name}_low", FLOAT64, "lower end of its 90 % interval and 95 % bound, or null if open"),
        Column(f"{prefix}{name}_high", FLOAT64, "upper end of its 90 % interval and 95 % bound, or null if open"),
        Column(f"{prefix}{name}_verdict", TEXT, "its verdict, or null without a fit"),
    )


def _extents(prefix: str) -> tuple[Column, ...]:
    return _extent(prefix, "pays", _PAYS) + _extent(prefix, "efficient", _EFFICIENT)


POINTS = (
    Column("study", TEXT, "name of the study, as in the other tables"),
    Column("kind", TEXT, KIND),
    Column("source", TEXT, "origin of the study: scaling-limits, or a source of published studies"),
    Column("licence", TEXT, "SPDX identifier of its terms"),
    Column(
        "records",
        TEXT,
        "name in its source, which distinguishes studies at one point of a curve, or null if it has none",
    ),
    Column("dataset", TEXT, f"name of the data set; {COUNTING}"),
    Column("dataset_version", TEXT, "version of the data, or null if the name identifies it, or it is unknown"),
    Column("dataset_options", TEXT, "options that the data were generated or read with, JSON, or null"),
    Column("model", TEXT, "name of the model, then its options"),
    Column("optimizer", TEXT, "name of the optimizer. For a factorization it is als, and solver has its solver"),
    Column("schedule", TEXT, "decay of the learning rate: constant, linear or cosine, or null if unknown"),
    Column("pruning", TEXT, "exact: losing trials were stopped early, without changing answers; off: they were not"),
    Column("stop", TEXT, "end of trials: target, or budget only, or null for studies of others"),
    Column("batch_size", INT32, "global batch size, examples, or null if each step takes all data"),
    Column("cores", INT32, "factorizations: number of devices"),
    Column("solver", TEXT, "factorizations: cg, rotated_cg, cholesky, lu or qr"),
    Column("dim", INT32, "factorizations: length of a row of the tables"),
    Column("table_dtype", TEXT, "factorizations: type of the tables, float32 or bfloat16"),
    Column("solver_dtype", TEXT, "factorizations: type that the solver computes in"),
    Column("mesh", TEXT, "layouts: axes of the device mesh and their sizes, such as data:2;model:4"),
    Column("layout", TEXT, "layouts: axes of tensors, each with the mesh axis that it is split over"),
    Column("engine", TEXT, "layouts: cpu-emulated, device, or tpu-aot and the topology compiled for"),
    Column("target_metric", TEXT, "the error to bring down, or null without a target"),
    Column("target_value", FLOAT64, "the value to reach, at or below it, in the metric's own type"),
    Column(
        "reached",
        BOOL,
        "whether any trial of the search reached the target, or null if there is no target or the source does not "
        "report the length of its trials",
    ),
    Column(
        "steps_low",
        INT32,
        "selected: the best trial crossed the target after more steps than this. If none reached it, none did in this "
        "number of steps. Null if all diverged or reached is null",
    ),
    Column(
        "steps_high",
        INT32,
        "selected: the best trial crossed it at or before this step, or null if none reached it. 0: met at the start",
    ),
    Column("examples", INT64, "steps_high times batch_size: examples seen"),
    Column("trial", INT32, "the selected trial, which validation chooses for a factorization"),
    Column("seed", UINT32, "seed of the selected trial, or null if not published"),
    Column("trials", INT32, "trials of the search: complete + infeasible + incomplete"),
    Column("complete", INT32, "trials of the search that reached every target, or their budget"),
    Column("infeasible", INT32, "trials of the search that diverged, or whose layout was rejected"),
    Column("incomplete", INT32, "trials of the search that were pruned, lost, failed or ran out of time"),
    Column("confirmed_trial", INT32, "the trial with reporting repeats on fresh seeds, or null without repeats"),
    Column("confirmed_low", FLOAT64, "confirmed: the median of the repeats lies above this number of steps"),
    Column(
        "confirmed_high",
        FLOAT64,
        "confirmed: the median lies at or below this, or null if half of them never reached the target",
    ),
    Column("repeats", INT32, "number of reporting repeats, each with its own seed"),
    Column("repeats_reached", INT32, "number of these that reached the target"),
    Column("curve", TEXT, "name of the point's curve over batch sizes, or cores, or null if it is on none"),
    *_extents(""),
    Column("critical_batch_size", FLOAT64, f"as selected: {definitions.CRITICAL_BATCH_SIZE}, for that curve, {_FIT}"),
    Column("critical_low", FLOAT64, _LOW),
    Column("critical_high", FLOAT64, _HIGH),
    Column("verdict", TEXT, f"verdict on that curve over batch sizes, as selected. {_VERDICT}"),
    Column("doubts", TEXT, f"as selected: {_DOUBTS}"),
    *_extents("confirmed_"),
    Column(
        "confirmed_critical_batch_size",
        FLOAT64,
        f"as confirmed: {definitions.CRITICAL_BATCH_SIZE}, for that curve, {_FIT}",
    ),
    Column("confirmed_critical_low", FLOAT64, _LOW),
    Column("confirmed_critical_high", FLOAT64, _HIGH),
    Column("confirmed_verdict", TEXT, "verdict on that curve, as confirmed, or null without repeats"),
    Column("confirmed_doubts", TEXT, f"as confirmed: {_DOUBTS}"),
    Column(
        "seconds_per_epoch",
        FLOAT64,
        "as in studies, from the newest run that measured it: mean over all its trials and steps, or null if emulated",
    ),
    Column(
        "median_epoch_seconds",
        FLOAT64,
        "factorizations: median seconds of solving in an epoch of the selected trial, without compiling and "
        "evaluating, or null if emulated",
    ),
    Column("device_kind", TEXT, "device of the measurements, or null if unknown"),
    Column(
        "comparable",
        TEXT,
        "Major.Minor of the software, or null for studies of others. Different versions are not comparable",
    ),
)  # then one float64 column per metaparameter of the selected trial, under its own name

_OF_A_FIT = ("critical_batch_size", "critical_low", "critical_high", "verdict", "doubts")
FITS = {prefix: tuple(f"{prefix}{name}" for name in _OF_A_FIT) for prefix in ("", "confirmed_")}
# Columns of each answer whatever the shape: best, low, high and verdict.
EXTENTS = {
    prefix: tuple(
        tuple(f"{prefix}{answer}_{name}" for name in ("up_to", "low", "high", "verdict"))
        for answer in ("pays", "efficient")
    )
    for prefix in FITS
}
# Columns that depend on the whole curve. All others follow from the study's own tables.
OF_CURVES = frozenset(
    {
        "curve",
        *(name for names in FITS.values() for name in names),
        *(name for answers in EXTENTS.values() for names in answers for name in names),
    }
)
