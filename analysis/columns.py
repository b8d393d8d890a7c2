"""Columns: the names of the columns of every table that a command prints, and what each means."""

# Parts of the seconds of an epoch, in the law that `epochs --fit` fits.
TIMES = ("serial", "parallel", "communication")

# Of steps, by the rules minimum and released.
STEPS = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "batch_size": "global batch size, examples",
    "target_metric": "the error that has to come down",
    "target_value": "how far down: reached at or below this value; by --rule released, below it",
    "steps_low": "the best trial crossed the target after more steps than this ...",
    "steps_high": "... and at most this many; both empty if no trial reached the target, 0 if met at the start",
    "trial": "the trial that needed the fewest steps; of equals the one with the smallest number",
    "complete": "trials that reached every target or used up their budget",
    "infeasible": "trials that diverged",
    "incomplete": "trials that were pruned, lost, failed or ran out of time",
    "seconds_per_epoch": "of the newest run that measured it; empty where devices were emulated",
}
NAMING = tuple(STEPS)[:6]
# What repeats on fresh seeds say beside it, by the rule minimum; see ``fitting.confirmations``.
CONFIRMED = {
    "confirmed_low": "the median of the repeats that report lies above this number of steps ...",
    "confirmed_high": "... and at or below this; empty if half of them or more never reached the target",
    "confirmed_trial": "the trial that they repeat; empty, as all of these are, where none reports",
    "repeats": "that report, each on a fresh seed",
    "repeats_reached": "how many of these reached the target",
}
# At the end, by the rules minimum and released, and by every rule.
BEST = {
    "best_value": "the lowest value of the metric that any trial which counts had; empty if none was measured",
}
DIFFERS = {
    "differs": "what tells its curve from others with the same names and target, such as pruning=exact",
}
# After the naming columns, by the rule median.
MEDIANS = {
    "steps_low": "the median of the best of so many trials lies above this number of steps ...",
    "steps_high": "... and at or below this; both empty if half of such searches, or more, never reach the target",
    "band_low": "95 % sure: the true median is above this; empty if trials_per_point is too large for a lower end",
    "band_high": "95 % sure: the true median is at or below this; empty if too few trials ran or reached",
    "trials_per_point": "trials per search: the k' of the median best of k'",
    "trials": "trials it is estimated from: the first that count, equally many of every study of a curve",
    "reached": "how many of these reached the target",
    "undecided": "how many were stopped before they could tell; every interval holds whatever they had come to",
    "success": "share of the trials that reached",
    "success_low": "95 % sure: a trial reaches with more than this probability ...",
    "success_high": "... and with less than this",
    "expected_steps_low": "E[steps | reached] / P(reached): above this many steps until a trial reaches ...",
    "expected_steps_high": "... and at most this many, without the error of sampling; empty if nobody knows",
    "relative_improvement": "how much more the best of half the trials takes than the best of all: .1 is 10 %",
    "sampled_enough": "yes: the best no longer falls from half of the trials to all; no: it does; or unclear",
    "at_edge": "ends of ranges the best trials crowd at: learning_rate high; with ? perhaps; no; or unclear",
}
MEDIAN_COLUMNS = {name: STEPS[name] for name in NAMING} | MEDIANS

# Of fit; before those of its fit, a row of a store's curve says which fit it is.
PAIRS = {
    "estimate": "selected: from the steps of the best trials; confirmed: from their repeats with new seeds",
    "trials_per_point": "trials of each study in the search; empty if unknown",
}
FITS = {
    "s_min": "the plateau: the fewest steps that any batch size can do with",
    "critical_batch_size": "where the line of perfect scaling meets the plateau, examples",
    "critical_batch_size_low": "its 90 % interval; an end that the data leave open is empty",
    "critical_batch_size_high": "each end alone is a 95 % bound",
    "sharpness": "of the knee: 1 is a hyperbola, more is sharper",
    "verdict": "identified, at_least (the low end), at_most (the high end) or not_identified",
    "half_trials_octaves": "how far it moves if half of the trials count, in factors of two; empty if unknown",
    "model_error_octaves": "part of the interval: how far the fitted shape may lead astray, in factors of two",
    "doubts": "what the fit assumes and the data do not bear out, by name; `fit --checks` says what was seen",
    "reason": "how many trials each point is the best of, what was left out, what is in the way",
}
# Of fit --checks, after the curve.
CHECKS = {
    "assumption": "its name",
    "seen": "the number that speaks for or against it, in words; of slopes with a 95 % interval",
    "outcome": "pass, doubt or cannot tell",
}

COVERAGE = {
    "knee": "where the true critical batch size is, in the batch sizes that were tried",
    "shape": "of the true curve",
    "batch_sizes": "how many",
    "noise": "how much luck there is in the best of 32 trials",
    "grid": "of evaluations",
    "points": "of the search: own ones of each batch size, shared by all of them, or shared without the fit's knowing",
    "datasets": "how many were simulated",
    "covered": "share of statements (identified, at_least, at_most) that hold; empty if there were none",
    "identified": "share of data sets with this verdict",
    "at_least": "likewise",
    "at_most": "likewise",
    "not_identified": "likewise: no statement at all",
    "octaves": "median width of the interval where identified, in factors of two; empty if there were none",
    "wrong": "share of data sets that are identified and whose interval does not hold the truth",
    "failed": "share of data sets in which a check of the shape or of the search failed, and changed the verdict",
    "named": "share in which that check failed which the curve breaks; empty where it breaks none",
}
COVERAGE_OF_CORES = {
    "law": "of seconds per epoch; shares are of an epoch on one core",
    "core_counts": "numbers of cores that were timed; two nodes have half of the most each",
    "spread": "of epochs, relative; runs differ by 3 % besides",
    "datasets": "how many were simulated",
    "critical_cores": "the true ones; empty if half of the cores' time is never lost",
    "covered": "share of statements on them (identified, at_least, at_most) that hold; empty if there were none",
    **{f"{name}_covered": f"share of intervals of {name}_seconds that hold" for name in TIMES},
    "identified": "share of data sets with this verdict",
    "at_least": "likewise",
    "at_most": "likewise",
    "not_identified": "likewise: no statement at all",
    "misfit": "share of data sets whose fit says that the law misfits",
    "octaves": "median width of the interval where identified, in factors of two; empty if there were none",
}

EPOCHS = {
    "dataset": "name of the ratings",
    "dim": "length of a row of both tables",
    "solver": "of a row's least squares",
    "table_dtype": "number format of the tables",
    "cores": "devices that share tables and work",
    "seconds_per_epoch": "median over all epochs, the first too, of both half-epochs; without compiling and evaluating",
    "recall_20": "Recall@20 on held-out links of test at the last epoch: hits / min(20, held out), mean over rows",
    "recall_50": "Recall@50, likewise",
    "objective": "what is minimized, with its ridge, at the last epoch",
    "emulated": "whether there were more devices than physical cores: then seconds say nothing about speed",
    "device_kind": "what JAX calls the device",
    "study": "name of the study",
    "trial": "the trial shown: best validation_recall_20 at its last epoch; of equals the one with the smallest number",
    "unobserved_weight": "its weight on all pairs, α",
    "norm_penalty": "its ridge, λ",
    "epochs": "that it ran",
    "seconds_low": "the quarter of its epochs that was fastest took at most this ...",
    "seconds_high": "... and the slowest quarter at least this",
    "chosen_by": "held-out rows whose Recall@20 chose the trial: validation, or test, where 0.1 measured nothing else",
    "validation_recall_20": "Recall@20 on held-out links of validation at the last epoch",
    "validation_recall_50": "Recall@50, likewise",
    "bytes_per_core": "bytes of both tables and all work that each core holds",
    "peak_bytes_per_core": "bytes that each core holds at most, as the compiler tells",
    "solver_dtype": "number format of the solver",
    "cg_steps": "of the solvers cg and rotated_cg",
    "ridge": "frequency (by the links of a row) or constant",
    "gather": "how cores get at rows of the other table",
    "kernel": "what computed sums over links: xla, or a fused program of C++",
    "data": "numbers the data were generated from, or else the version of the data",
    "backend": "cpu, gpu or tpu",
    "physical_cores": "physical cores the process could run on",
    "affinity": "logical processors it was bound to",
    "complete": "trials that ran all epochs",
    "infeasible": "trials that diverged: a table or the objective was not finite",
    "incomplete": "trials that were lost, failed or ran out of time",
}
# Of epochs --fit.
CORE_COUNTS = {
    "dataset": "name of the ratings",
    "dim": "length of a row of both tables",
    "solver": "of a row's least squares",
    "table_dtype": "number format of the tables",
    "device_kind": "what JAX calls the device; different ones never share a curve",
    "core_counts": "numbers of cores on the curve; emulated ones are not",
    "speedup": "over the fewest cores, at the most cores",
    "efficiency": "that speed-up over what perfect scaling would have given",
    "serial_seconds": "of an epoch, on every core, however many there are",
    "serial_seconds_low": "its 90 % interval; each end alone is a 95 % bound",
    "serial_seconds_high": "likewise",
    "parallel_seconds": "of an epoch, shared among the cores",
    "parallel_seconds_low": "likewise",
    "parallel_seconds_high": "likewise",
    "communication_seconds": "of an epoch, for every core beside the first",
    "communication_seconds_low": "likewise",
    "communication_seconds_high": "likewise",
    "critical_cores": "where an epoch takes twice what perfect scaling from one core makes of it; empty if nowhere",
    "critical_cores_low": "its 90 % interval; an end that the data leave open is empty",
    "critical_cores_high": "likewise",
    "verdict": "identified, at_least (the low end), at_most (the high end) or not_identified",
    "misfit": "what the law misses: rounds (communication as log2 c), step (beyond half of the cores), scatter; none",
    "reason": "what tells the curve from those alike, what was left out, what is in the way",
}

# Of payoff, after the names of the curve.
PAYOFF = {
    "gain_percent": "that a doubling has to make it faster by; 100 is perfect",
    "batch_size": "that the last such doubling leads to, of batch and devices together at the same seconds per step",
    "batch_size_low": "its 90 % interval; an end that the data leave open is empty",
    "batch_size_high": "each end alone is a 95 % bound",
    "batch_verdict": "identified, at_least (the low end), at_most (the high end) or not_identified",
    "device_kind": "what JAX calls the device; empty where none was timed",
    "measured_devices": "that the last such doubling leads to, by seconds per step that were measured",
    "measured_devices_low": "its 90 % interval, likewise",
    "measured_devices_high": "likewise",
    "measured_verdict": "likewise; empty where nothing was measured",
    "predicted_devices": "that the last such doubling leads to, by seconds per step that were predicted",
    "predicted_devices_low": "its 90 % interval, likewise",
    "predicted_devices_high": "likewise",
    "predicted_verdict": "likewise; empty where nothing was predicted",
    "predicted_by": "--predicted, or times of 1 device, without communication: a best case of time on any network",
    "reason": "what tells the curve from those alike, what was left out, what is in the way",
}
# Of payoff --times, a row for every number of devices.
_TO_TARGET = {
    "batch_size": "with which so many devices are at the target soonest, examples; empty of a factorization",
    "seconds": "to the target, by {} seconds per step; of a factorization to its last epoch",
    "seconds_low": "its 90 % interval, of the curve and of the seconds per step together",
    "seconds_high": "likewise",
    "device_hours": "devices times these seconds over 3600",
    "device_hours_low": "likewise",
    "device_hours_high": "likewise",
    "price": "of these device-hours; empty without --price",
    "price_low": "likewise",
    "price_high": "likewise",
    "on_front": "yes: no other number of devices is faster without costing more, or cheaper without being slower",
}
PAYOFF_TIMES = {
    "device_kind": "what JAX calls the device",
    "devices": "how many",
    **{
        f"{basis}_{name}": words.format(basis)
        for basis in ("measured", "predicted")
        for name, words in _TO_TARGET.items()
    },
    "predicted_by": PAYOFF["predicted_by"],
}

COMPARE = {
    "what": "steps, critical_batch_size, seconds_per_epoch, recall_20 or recall_50",
    "dataset": "name of the data set, or of the ratings",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer; of a factorization its solver",
    "batch_size": "of steps: global batch size, examples",
    "cores": "of a factorization",
    "target_metric": "the error that has to come down",
    "target_value": "how far down",
    "differs": "the fields that tell it from others with the same names, such as schedule=linear; empty without any",
    "a_low": "what A says lies between this ...",
    "a_high": "... and this; an end that is open, or was never reached, is empty",
    "a_words": "what kind of statement that is: reached or not, a verdict, a device, a trial",
    "b_low": "what B says lies between this ...",
    "b_high": "... and this",
    "b_words": "likewise",
    "result": "same, agree (within the intervals), differ, not_judged, only_a or only_b",
    "why": "how it was judged, or why not",
}

# Of layouts.
LAYOUTS = {
    "model": "name of the shape of the Transformer",
    "batch_size": "global batch size, sequences",
    "length": "of a sequence, tokens",
    "mesh": "axes of the mesh and their sizes",
    "layout": "axes of tensors, and those of the mesh that they are split over",
    "engine": "cpu-emulated, device or tpu-aot with its topology",
    "refusal": "kind of the error for which it was refused; empty where it was not",
    "explanation": "of a refusal",
    "redundancy": "counted: operations of matrix products over all devices, over those of a step done once",
    "wire_bytes": "counted: bytes that a device sends in a step, by the best algorithm on a ring",
    "argument_bytes": "counted: parameters, optimizer and batch of each device",
    "temporary_bytes": "counted: all else that each device keeps at once",
    "peak_bytes": "counted: what each device holds at most",
    "collectives": "counted: operation, axes, count, bytes and wire bytes, JSON",
    "hardware": "that seconds are predicted for",
    "predicted_compute_seconds": "predicted: matrix products",
    "predicted_memory_seconds": "predicted: what is held, read and written once",
    "predicted_exchange_seconds": "predicted: collectives",
    "predicted_step_seconds": "predicted: a step, with nothing done at the same time",
    "predicted_fits": "predicted: whether what is held is within the device's memory",
    "scheduled_cycles": "predicted: cycles that the compiler of TPUs estimates",
    "step_seconds": "measured: median of a step; empty where nothing was timed",
    "step_seconds_low": "measured: lower quartile",
    "step_seconds_high": "measured: upper quartile",
    "loss": "measured: before the last step",
    "gradient_difference": "measured: of the first gradient from one device's, relative, the largest of all parameters",
    "same_loss": "whether all losses are those of other layouts of the step, within 1e-5 (bfloat16: 2⁻⁸); empty alone",
    "study": "name of the study",
}
