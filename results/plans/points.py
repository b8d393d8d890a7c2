"""Points: the answers of a release's studies, one row per study and target, ready for fitting."""

import pyarrow as pa

from results.plans.schema import COUNTING, KIND, PROVENANCE, TIMING, Column

_FIT = "examples; null unless identified"
_VERDICT = (
    "identified: critical_batch_size, in [critical_low, critical_high]; at_least: critical_low or more; at_most: "
    "critical_high or less; not_identified: the data give no bound"
)
_LOW = "lower end of its 90 % interval, or the bound of at_least; null if open or not stated"
_HIGH = "upper end of its 90 % interval, or the bound of at_most; null if open or not stated"
_DOUBTS = "assumptions of the fit that the data do not support, as `analysis fit` names them; null if there are none"

POINTS = (
    Column("study", pa.string(), "name of the study, as in the other tables"),
    Column("kind", pa.string(), KIND),
    Column("source", pa.string(), "origin of the study: scaling-limits, or a source of published studies"),
    Column("licence", pa.string(), "SPDX identifier of its terms"),
    Column(
        "records",
        pa.string(),
        "name in its source, which distinguishes studies at one place of a curve; null for our own, and if the source "
        "has none",
    ),
    Column("dataset", pa.string(), f"name of the data set; {COUNTING}"),
    Column("dataset_version", pa.string(), "version of the data; null if the name identifies it, or it is unknown"),
    Column("dataset_options", pa.string(), "options that the data were generated or read with, JSON; else null"),
    Column("model", pa.string(), "name of the model, then its options"),
    Column("optimizer", pa.string(), "name of the optimizer; als for every factorization, whose solver is in solver"),
    Column("schedule", pa.string(), "decay of the learning rate: constant, linear or cosine; null if unknown"),
    Column(
        "pruning", pa.string(), "exact: losing trials were stopped early, without changing answers; off: they were not"
    ),
    Column("stop", pa.string(), "end of trials: target, or budget only; null for studies of others"),
    Column("batch_size", pa.int32(), "global batch size, examples; null if each step takes all data"),
    Column("cores", pa.int32(), "factorizations: number of devices"),
    Column("solver", pa.string(), "factorizations: cg, rotated_cg, cholesky, lu or qr"),
    Column("dim", pa.int32(), "factorizations: length of a row of the tables"),
    Column("table_dtype", pa.string(), "factorizations: type of the tables, float32 or bfloat16"),
    Column("solver_dtype", pa.string(), "factorizations: type that the solver computes in"),
    Column("mesh", pa.string(), "layouts: axes of the device mesh and their sizes, such as data:2;model:4"),
    Column("layout", pa.string(), "layouts: axes of tensors, each with the mesh axis that it is split over"),
    Column("engine", pa.string(), "layouts: cpu-emulated, device, or tpu-aot and the topology compiled for"),
    Column("target_metric", pa.string(), "the error that has to fall; null without a target"),
    Column("target_value", pa.float64(), "the value to reach, at or below it, in the metric's own type"),
    Column(
        "reached",
        pa.bool_(),
        "whether any trial of the search reached the target; null without a target, and if the source does not report "
        "the length of its trials",
    ),
    Column(
        "steps_low",
        pa.int32(),
        "selected: the best trial crossed the target after more steps than this; if none reached it, none did in this "
        "number of steps; null if all diverged, or reached is null",
    ),
    Column(
        "steps_high", pa.int32(), "selected: and at or before this step; null if none reached it; 0: met at the start"
    ),
    Column("examples", pa.int64(), "steps_high times batch_size: examples seen"),
    Column("trial", pa.int32(), "the selected trial; for a factorization, the one that validation chose"),
    Column("seed", pa.uint32(), "seed of the selected trial; null if not published"),
    Column("trials", pa.int32(), "trials of the search: complete + infeasible + incomplete"),
    Column("complete", pa.int32(), "trials of the search that reached every target, or their budget"),
    Column("infeasible", pa.int32(), "trials of the search that diverged, or whose layout was rejected"),
    Column("incomplete", pa.int32(), "trials of the search that were pruned, lost, failed or ran out of time"),
    Column("confirmed_trial", pa.int32(), "the trial whose repeats, with fresh seeds, report; null if there are none"),
    Column("confirmed_low", pa.float64(), "confirmed: the median of these repeats lies above this number of steps"),
    Column("confirmed_high", pa.float64(), "confirmed: and at or below this; null if half of them never reached"),
    Column("repeats", pa.int32(), "number of repeats that report, each with its own seed"),
    Column("repeats_reached", pa.int32(), "number of these that reached the target"),
    Column("curve", pa.string(), "name of the point's curve over batch sizes, or cores; null if it is on none"),
    Column("critical_batch_size", pa.float64(), f"critical batch size of that curve, as selected, {_FIT}"),
    Column("critical_low", pa.float64(), _LOW),
    Column("critical_high", pa.float64(), _HIGH),
    Column("verdict", pa.string(), f"verdict on that curve over batch sizes, as selected. {_VERDICT}"),
    Column("doubts", pa.string(), f"as selected: {_DOUBTS}"),
    Column("confirmed_critical_batch_size", pa.float64(), f"critical batch size of that curve, as confirmed, {_FIT}"),
    Column("confirmed_critical_low", pa.float64(), _LOW),
    Column("confirmed_critical_high", pa.float64(), _HIGH),
    Column("confirmed_verdict", pa.string(), "verdict on that curve, as confirmed; null without repeats"),
    Column("confirmed_doubts", pa.string(), f"as confirmed: {_DOUBTS}"),
    Column(
        "seconds_per_epoch",
        pa.float64(),
        "as in studies, from the newest run that measured it: mean over all its trials and steps; null if emulated",
        category=TIMING,
    ),
    Column(
        "median_epoch_seconds",
        pa.float64(),
        "factorizations: median seconds of solving in an epoch of the selected trial, without compiling and "
        "evaluating; null if emulated",
        category=TIMING,
    ),
    Column("device_kind", pa.string(), "device of the measurements; null if unknown", category=PROVENANCE),
    Column("comparable", pa.string(), "do not put different values into one curve; null for studies of others"),
)  # then one float64 column per metaparameter of the selected trial, under its own name

_OF_A_FIT = ("critical_batch_size", "critical_low", "critical_high", "verdict", "doubts")
FITS = {prefix: tuple(f"{prefix}{name}" for name in _OF_A_FIT) for prefix in ("", "confirmed_")}
# Columns that depend on the whole curve; all others follow from the tables of the study itself.
OF_CURVES = frozenset({"curve", *(name for names in FITS.values() for name in names)})
