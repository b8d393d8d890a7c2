"""Points: what the studies of a release answer, a row for every study and target, as whoever fits laws wants them."""

import pyarrow as pa

from results.plans.schema import PROVENANCE, TIMING, Column

_FIT = "examples; null unless it is identified"

POINTS = (
    Column("study", pa.string(), "name of the study, as in the other tables"),
    Column("kind", pa.string(), "batch (over batch sizes), cores (over cores) or recorded (measured by others)"),
    Column("source", pa.string(), "who measured it: scaling-limits, or a source of published studies"),
    Column("licence", pa.string(), "SPDX identifier of its terms"),
    Column("dataset", pa.string(), "name of the data set"),
    Column("dataset_version", pa.string(), "which data these are; null where their name says it, or nobody does"),
    Column("model", pa.string(), "name of the model, then its options"),
    Column("optimizer", pa.string(), "name of the optimizer"),
    Column("schedule", pa.string(), "how the learning rate decays: constant, linear or cosine; null if unknown"),
    Column("batch_size", pa.int32(), "global batch size, examples; null where all data are taken at once"),
    Column("cores", pa.int32(), "of a factorization, the devices it is spread over"),
    Column("target_metric", pa.string(), "the error that has to come down; null where there is no target"),
    Column("target_value", pa.float64(), "how far down: reached at or below this value, in the metric's own type"),
    Column("reached", pa.bool_(), "whether any trial of the search reached the target; null without a target"),
    Column(
        "steps_low",
        pa.int32(),
        "selected: the best trial crossed the target after more steps than this; where none reached, no trial did in "
        "this many; null if all diverged",
    ),
    Column("steps_high", pa.int32(), "selected: and at or before this step; null where none reached, 0: at the start"),
    Column("examples", pa.int64(), "steps_high times batch_size: examples seen"),
    Column("trial", pa.int32(), "the trial that was selected; of a factorization, the one that validation chose"),
    Column("seed", pa.uint32(), "of the selected trial; null if not published"),
    Column(
        "trials", pa.int32(), "of the search, which the selected one is the best of: complete + infeasible + incomplete"
    ),
    Column("complete", pa.int32(), "trials of the search that reached every target, or their budget"),
    Column("infeasible", pa.int32(), "trials of the search that diverged"),
    Column("incomplete", pa.int32(), "trials of the search that were pruned, lost, failed or ran out of time"),
    Column("confirmed_trial", pa.int32(), "the trial that was run again on fresh seeds to report; null if none was"),
    Column("confirmed_low", pa.float64(), "confirmed: the median of these repeats lies above this number of steps"),
    Column("confirmed_high", pa.float64(), "confirmed: and at or below this; null if half of them never reached"),
    Column("repeats", pa.int32(), "how many repeats report, each on a seed of its own"),
    Column("repeats_reached", pa.int32(), "how many of these reached the target"),
    Column("curve", pa.string(), "name of the curve over batch sizes that the point is on; null where it is on none"),
    Column("critical_batch_size", pa.float64(), f"of that curve, as selected, {_FIT}"),
    Column("critical_low", pa.float64(), "lower end of its 90 % interval; null if open or not stated"),
    Column("critical_high", pa.float64(), "upper end of its 90 % interval; null if open or not stated"),
    Column("verdict", pa.string(), "of that curve, as selected, such as identified or not_identified"),
    Column("confirmed_critical_batch_size", pa.float64(), f"of that curve, as confirmed, {_FIT}"),
    Column("confirmed_critical_low", pa.float64(), "lower end of its 90 % interval; null if open or not stated"),
    Column("confirmed_critical_high", pa.float64(), "upper end of its 90 % interval; null if open or not stated"),
    Column("confirmed_verdict", pa.string(), "of that curve, as confirmed; null if nothing was"),
    Column("seconds_per_epoch", pa.float64(), "of the newest run that measured it; null if emulated", says=TIMING),
    Column("device_kind", pa.string(), "the device that was measured on; null if unknown", says=PROVENANCE),
    Column("comparable", pa.string(), "results of different ones are not to be put into one curve; null of others'"),
)  # then one float64 column per metaparameter of the selected trial, under its own name
