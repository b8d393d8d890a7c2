"""Points: what the studies of a release answer, a row for every study and target, as whoever fits laws wants them."""

import pyarrow as pa

from results.plans.schema import COUNTING, KIND, PROVENANCE, TIMING, Column

_FIT = "examples; null unless it is identified"
_VERDICT = (
    "identified: critical_batch_size, in [critical_low, critical_high]; at_least: it is critical_low or more; at_most: "
    "critical_high or less; not_identified: nothing is known of it"
)
_LOW = "lower end of its 90 % interval, or the bound of at_least; null if open or not stated"
_HIGH = "upper end of its 90 % interval, or the bound of at_most; null if open or not stated"
_DOUBTS = "assumptions of that fit that the data do not bear out, as `analysis fit` calls them; null if none"
_OF_A_FACTORIZATION = "of a factorization"
_OF_A_LAYOUT = "of a layout"

POINTS = (
    Column("study", pa.string(), "name of the study, as in the other tables"),
    Column("kind", pa.string(), KIND),
    Column("source", pa.string(), "who measured it: scaling-limits, or a source of published studies"),
    Column("licence", pa.string(), "SPDX identifier of its terms"),
    Column(
        "records",
        pa.string(),
        "what its source calls it, which tells studies at one place of a curve apart; null of our own, and where the "
        "source does not tell",
    ),
    Column("dataset", pa.string(), f"name of the data set; {COUNTING}"),
    Column("dataset_version", pa.string(), "which data these are; null where their name says it, or nobody does"),
    Column("dataset_options", pa.string(), "numbers that the data were generated from, or read with, JSON; else null"),
    Column("model", pa.string(), "name of the model, then its options"),
    Column("optimizer", pa.string(), "name of the optimizer; als for every factorization, which a solver tells apart"),
    Column("schedule", pa.string(), "how the learning rate decays: constant, linear or cosine; null if unknown"),
    Column("pruning", pa.string(), "exact: losing trials were cut short, which changes no answer; off: they were not"),
    Column("stop", pa.string(), "what ended trials: their target, or the budget alone; null of others' studies"),
    Column("batch_size", pa.int32(), "global batch size, examples; null where all data are taken at once"),
    Column("cores", pa.int32(), f"{_OF_A_FACTORIZATION}, the devices it is spread over"),
    Column("solver", pa.string(), f"{_OF_A_FACTORIZATION}: cg, rotated_cg, cholesky, lu or qr"),
    Column("dim", pa.int32(), f"{_OF_A_FACTORIZATION}, the length of a row of its tables"),
    Column("table_dtype", pa.string(), f"{_OF_A_FACTORIZATION}, the type of its tables: float32 or bfloat16"),
    Column("solver_dtype", pa.string(), f"{_OF_A_FACTORIZATION}, the type that its solver computes in"),
    Column("mesh", pa.string(), f"{_OF_A_LAYOUT}: axes of the mesh of devices and their sizes, such as data:2;model:4"),
    Column("layout", pa.string(), f"{_OF_A_LAYOUT}: axes of tensors and those of the mesh that they are split over"),
    Column("engine", pa.string(), f"{_OF_A_LAYOUT}: cpu-emulated, device, or tpu-aot and the topology compiled for"),
    Column("target_metric", pa.string(), "the error that has to come down; null where there is no target"),
    Column("target_value", pa.float64(), "how far down: reached at or below this value, in the metric's own type"),
    Column(
        "reached",
        pa.bool_(),
        "whether any trial of the search reached the target; null without a target, and where nobody tells how far "
        "its trials went",
    ),
    Column(
        "steps_low",
        pa.int32(),
        "selected: the best trial crossed the target after more steps than this; where none reached, no trial did in "
        "this many; null if all diverged, or reached is null",
    ),
    Column("steps_high", pa.int32(), "selected: and at or before this step; null where none reached, 0: at the start"),
    Column("examples", pa.int64(), "steps_high times batch_size: examples seen"),
    Column("trial", pa.int32(), "the trial that was selected; of a factorization, the one that validation chose"),
    Column("seed", pa.uint32(), "of the selected trial; null if not published"),
    Column(
        "trials", pa.int32(), "of the search, which the selected one is the best of: complete + infeasible + incomplete"
    ),
    Column("complete", pa.int32(), "trials of the search that reached every target, or their budget"),
    Column("infeasible", pa.int32(), "trials of the search that diverged; of layouts, that were refused"),
    Column("incomplete", pa.int32(), "trials of the search that were pruned, lost, failed or ran out of time"),
    Column("confirmed_trial", pa.int32(), "the trial that was run again on fresh seeds to report; null if none was"),
    Column("confirmed_low", pa.float64(), "confirmed: the median of these repeats lies above this number of steps"),
    Column("confirmed_high", pa.float64(), "confirmed: and at or below this; null if half of them never reached"),
    Column("repeats", pa.int32(), "how many repeats report, each on a seed of its own"),
    Column("repeats_reached", pa.int32(), "how many of these reached the target"),
    Column("curve", pa.string(), "name of the curve over batch sizes, or cores, that the point is on; null: on none"),
    Column("critical_batch_size", pa.float64(), f"of that curve, as selected, {_FIT}"),
    Column("critical_low", pa.float64(), _LOW),
    Column("critical_high", pa.float64(), _HIGH),
    Column("verdict", pa.string(), f"of that curve over batch sizes, as selected. {_VERDICT}"),
    Column("doubts", pa.string(), f"as selected: {_DOUBTS}"),
    Column("confirmed_critical_batch_size", pa.float64(), f"of that curve, as confirmed, {_FIT}"),
    Column("confirmed_critical_low", pa.float64(), _LOW),
    Column("confirmed_critical_high", pa.float64(), _HIGH),
    Column("confirmed_verdict", pa.string(), "of that curve, as confirmed, in the same words; null if nothing was"),
    Column("confirmed_doubts", pa.string(), f"as confirmed: {_DOUBTS}"),
    Column(
        "seconds_per_epoch",
        pa.float64(),
        "as in studies, of the newest run that measured it: a mean over all of its trials and steps; null if emulated",
        says=TIMING,
    ),
    Column(
        "median_epoch_seconds",
        pa.float64(),
        f"{_OF_A_FACTORIZATION}: seconds of solving in an epoch, the median over the epochs of the selected trial, "
        "without compiling and evaluating; null if emulated",
        says=TIMING,
    ),
    Column("device_kind", pa.string(), "the device that was measured on; null if unknown", says=PROVENANCE),
    Column("comparable", pa.string(), "results of different ones are not to be put into one curve; null of others'"),
)  # then one float64 column per metaparameter of the selected trial, under its own name

_OF_A_FIT = ("critical_batch_size", "critical_low", "critical_high", "verdict", "doubts")
FITS = {prefix: tuple(f"{prefix}{name}" for name in _OF_A_FIT) for prefix in ("", "confirmed_")}
# Columns that a fit of the whole curve tells; all others follow from the tables of the study alone.
OF_CURVES = frozenset({"curve", *(name for names in FITS.values() for name in names)})
