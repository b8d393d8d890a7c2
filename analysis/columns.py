"""Names and meanings of the columns in every printed table."""

from results import definitions

# Components of the seconds per epoch, in the law that `epochs --fit` fits.
TIMES = ("serial", "parallel", "communication")

# Meanings shared by several tables.
_DATASET = "name of the data set"
_MODEL = "name of the model, then its options"
_OPTIMIZER = "name of the optimizer"
_INTERVAL = "its 90 % interval (an open end is empty)"
_BOUND = "each end by itself is a 95 % bound"
_VERDICT = "identified, at_least (the low end), at_most (the high end) or not_identified"
_SHARE = "share of data sets with this verdict"
_REASON = "how the curve differs from similar ones, what was left out, and why there is no better answer"

# Columns of steps, by the rules minimum and released.
STEPS = {
    "dataset": _DATASET,
    "model": _MODEL,
    "optimizer": _OPTIMIZER,
    "batch_size": "global batch size, in the column unit",
    "target_metric": "the error to bring down",
    "target_value": "the target: reached at or below this value, or strictly below with --rule released",
    "steps_low": "the best trial crossed the target after more steps than this ...",
    "steps_high": "... and at most this many. Both are empty if no trial reached it, and 0 if met at the start",
    "trial": "the trial that needed the fewest steps (the smallest number on ties)",
    "complete": "trials that reached every target or used up their budget",
    "infeasible": "trials that diverged",
    "incomplete": "trials that were pruned, lost, failed or ran out of time",
    "seconds_per_epoch": "from the newest run that measured it (empty for emulated devices)",
}
# Results of repeats with new seeds, by the minimum rule; see ``fitting.confirmations``.
CONFIRMED = {
    "confirmed_low": "the median of the reporting repeats lies above this number of steps ...",
    "confirmed_high": "... and at or below this. It is empty if at least half of them never reached the target",
    "confirmed_trial": "the trial that they repeat (empty, like all these columns, without such repeats)",
    "repeats": "reporting repeats, each with a new seed",
    "repeats_reached": "repeats that reached the target",
}
# At the end.
BEST = {
    "best_value": "the lowest value of the metric over the trials that count (empty if not measured)",
}
UNIT = {"unit": "unit of the batch sizes: examples, sequences with their length, or tokens"}
DIFFERS = {
    "differs": "fields that separate its curve from others with the same names and target, such as pruning=exact",
}

# Columns of fit, before those of the fit itself: which fit of the curve it is.
PAIRS = {
    "estimate": "selected (from the steps of the best trials) or confirmed (from their repeats with new seeds)",
    "trials_per_point": "trials of each study in the search (empty if unknown)",
}
_EXTENT_VERDICT = "identified if both ends are inside the data, else at_least, at_most or not_identified"
FITS = {
    "pays_up_to": definitions.PAYS_UP_TO.format(gain=20),
    "pays_up_to_low": _INTERVAL,
    "pays_up_to_high": _BOUND,
    "pays_verdict": _EXTENT_VERDICT,
    "efficient_up_to": definitions.EFFICIENT_UP_TO,
    "efficient_up_to_low": _INTERVAL,
    "efficient_up_to_high": _BOUND,
    "efficient_verdict": _EXTENT_VERDICT,
    "pays_halved_by": "multiple of the trials that would halve the interval of pays_up_to (inf: more than 32, "
    "empty: open or unknown luck)",
    "efficient_halved_by": "the same for efficient_up_to",
    "s_min": "the plateau: the fewest steps at any batch size",
    "critical_batch_size": definitions.CRITICAL_BATCH_SIZE,
    "critical_batch_size_low": _INTERVAL,
    "critical_batch_size_high": _BOUND,
    "sharpness": "sharpness of the knee: 1 is a hyperbola, and more is sharper",
    "verdict": _VERDICT,
    "half_trials_octaves": "its shift, in factors of two, if only half of the trials count (empty if unknown)",
    "model_error_octaves": "the part of the interval due to the fitted shape, in factors of two",
    "doubts": "assumptions that the data contradict, by name (`fit --checks` shows the evidence)",
    "reason": "trials per point, what was left out, and why there is no better verdict",
}
# Columns of fit --checks, after the curve.
CHECKS = {
    "assumption": "its name",
    "seen": "the evidence for or against it, in words (slopes have a 95 % interval)",
    "outcome": "pass, doubt or cannot tell",
}

COVERAGE = {
    "knee": "position of the true critical batch size among the batch sizes tried",
    "shape": "shape of the true curve",
    "batch_sizes": "number of batch sizes",
    "noise": "size of the luck in the best of 32 trials",
    "grid": "spacing of evaluations",
    "points": "points of the search: own for each batch size, shared by all, or shared without the fit's knowledge",
    "datasets": "simulated data sets",
    "covered": "share of statements (identified, at_least, at_most) that hold (empty without any)",
    "identified": _SHARE,
    "at_least": _SHARE,
    "at_most": _SHARE,
    "not_identified": "share of data sets without a statement",
    "octaves": "median width of the interval if identified, in factors of two (empty without any)",
    "wrong": "share of data sets that are identified although the interval misses the truth",
    "failed": "share of data sets in which a check of the shape or of the search failed and changed the verdict",
    "named": "share in which the check that the curve violates failed (empty if it violates no check)",
}
EXTENT_COVERAGE = {
    "shape": "shape of the true curve",
    "batch_sizes": "number of batch sizes, an octave apart",
    "luck": "luck that the search was made for: standard deviation of ln steps of the best of half of 64 trials",
    "seen_luck": "luck that the jackknife saw, averaged over data sets",
    "datasets": "simulated data sets",
    "answer": "pays, efficient, the same from convex curves only, or critical (the knee of the fitted curve)",
    "holds": "share of intervals that contain the truth (an open end contains everything beyond it)",
    "bound_holds": "share of lower ends, or 95 % bounds, that are below the truth",
    "octaves": "median width of the interval in factors of two (one with an open end counts as 10)",
    "two_sided": "share of intervals with both ends inside the data",
    "wrong": "share of data sets with both ends inside the data and the truth outside",
}
NARROWING = {
    "shape": "shape of the true curve",
    "luck": "luck of a search of 64 trials, as in --of extents",
    "batch_sizes": "number of batch sizes, an octave apart (21: half an octave)",
    "way": "how the trials were spent, or `expected by fit` from a search of 64 trials",
    "times": "number of trials at each batch size, as a multiple of 64",
    "datasets": "simulated data sets",
    "answer": "pays or efficient",
    "octaves": "median width of the interval in factors of two (one with an open end counts as 10)",
    "two_sided": "share of intervals with both ends inside the data",
    "holds": "share of intervals that contain the truth",
}
# Columns of suggest, a row per suggestion.
SUGGESTIONS = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "target_metric": "metric of the target",
    "target_value": "its value",
    **UNIT,
    **DIFFERS,
    "pays_up_to": "present answer, as in fit",
    "pays_up_to_low": _INTERVAL,
    "pays_up_to_high": _BOUND,
    "pays_verdict": _EXTENT_VERDICT,
    "octaves": "width of that interval in factors of two (empty if an end is open)",
    "suggestion": "batch size (a new one), trials (more at a batch size), or repeats (of the best trial, at every one)",
    "batch_size": "batch size of the further trials (empty for repeats)",
    "trials": "number of further trials",
    "expected_octaves": "expected width with them (one with an open end counts as 10)",
    "device_hours": "their expected cost (empty without seconds per step)",
    "cost_share": "their expected cost as a share of that of all trials so far, in device-hours or else in examples",
    "command": "command of the sweep, or the runs to make",
    "reason": "why there is no suggestion",
}
SUGGESTED = {
    "shape": "shape of the true curve",
    "luck": "luck of a search of 64 trials, as in --of extents",
    "grid_cost": "examples until an interval of one octave with more trials at 11 batch sizes, in searches of 64 there",
    "cost": "examples until then if each first row of `suggest` is followed, from 5 batch sizes on, in the same unit",
    "ratio": "cost as a share of grid_cost, or of 32 if only grid_cost is infinite (both are infinite beyond 32)",
    "followed": "number of suggestions that were followed",
    "holds": "whether the last interval contains the truth",
}
COVERAGE_OF_CORES = {
    "law": "law of seconds per epoch, with shares relative to an epoch on one core",
    "core_counts": "numbers of cores that were timed (two nodes have half of the largest each)",
    "spread": "relative spread of epochs (runs differ by another 3 %)",
    "datasets": "simulated data sets",
    "critical_cores": "the true value (empty if half of the cores' time is never lost)",
    "covered": "share of statements on critical_cores (identified, at_least, at_most) that hold (empty without any)",
    **{f"{name}_covered": f"share of intervals of {name}_seconds that hold" for name in TIMES},
    "identified": _SHARE,
    "at_least": _SHARE,
    "at_most": _SHARE,
    "not_identified": "share of data sets without a statement",
    "misfit": "share of data sets whose fit reports that the law misfits",
    "octaves": "median width of the interval if identified, in factors of two (empty without any)",
}

EPOCHS = {
    "dataset": "name of the ratings",
    "dim": "length of a row of both tables",
    "solver": "solver of each row's least squares",
    "table_dtype": "number format of the tables",
    "cores": "devices that share tables and work",
    "seconds_per_epoch": "median over all epochs of both half-epochs, without compilation and evaluation",
    "recall_20": "Recall@20 on held-out links of test at the last epoch: hits / min(20, held out), mean over rows",
    "recall_50": "Recall@50, in the same way",
    "objective": "the minimized objective, with its ridge, at the last epoch",
    "emulated": "true if there were more devices than physical cores, which makes the seconds meaningless",
    "device_kind": "JAX's name of the device",
    "study": "name of the study",
    "trial": "the trial shown: best validation_recall_20 at its last epoch (smallest number on ties)",
    "unobserved_weight": "its weight on all pairs, α",
    "norm_penalty": "its ridge, λ",
    "epochs": "epochs it ran",
    "seconds_low": "lower quartile of the seconds of its epochs",
    "seconds_high": "upper quartile of the seconds of its epochs",
    "chosen_by": "held-out rows whose Recall@20 chose the trial: validation, or test if 0.1 measured only that",
    "validation_recall_20": "Recall@20 on held-out links of validation at the last epoch",
    "validation_recall_50": "Recall@50, in the same way",
    "bytes_per_core": "bytes of both tables and all work on each core",
    "peak_bytes_per_core": "peak bytes on each core, from the compiler",
    "solver_dtype": "number format of the solver",
    "cg_steps": "steps of the solvers cg and rotated_cg",
    "ridge": "frequency (by the links of a row) or constant",
    "gather": "how cores read rows of the other table",
    "kernel": "implementation of sums over links: xla, or a fused C++ program",
    "data": "options that generated the data, or else the version of the data",
    "backend": "cpu, gpu or tpu",
    "physical_cores": "physical cores available to the process",
    "affinity": "logical processors it was bound to",
    "complete": "trials that ran all epochs",
    "infeasible": "trials that diverged: a table or the objective was not finite",
    "incomplete": "trials that were lost, failed or ran out of time",
}
# Columns of epochs --fit.
CORE_COUNTS = {
    "dataset": "name of the ratings",
    "dim": "length of a row of both tables",
    "solver": "solver of each row's least squares",
    "table_dtype": "number format of the tables",
    "device_kind": "JAX's name of the device (different devices never share a curve)",
    "core_counts": "numbers of cores on the curve, without emulated ones",
    "speedup": "speed-up over the fewest cores, at the most cores",
    "efficiency": "that speed-up relative to perfect scaling",
    "serial_seconds": "seconds of an epoch on every core, whatever their number",
    "serial_seconds_low": "its 90 % interval",
    "serial_seconds_high": "upper end",
    "parallel_seconds": "seconds of an epoch that the cores share",
    "parallel_seconds_low": "its 90 % interval",
    "parallel_seconds_high": "upper end",
    "communication_seconds": "seconds of an epoch for every core after the first",
    "communication_seconds_low": "its 90 % interval",
    "communication_seconds_high": "upper end",
    "critical_cores": f"{definitions.CRITICAL_CORES} (empty if never)",
    "critical_cores_low": _INTERVAL,
    "critical_cores_high": "upper end",
    "verdict": _VERDICT,
    "misfit": "the term that the law lacks: rounds (communication as log2 c), step (beyond half of the cores), "
    "scatter, or none",
    "reason": _REASON,
}

# Columns of payoff, after the names of the curve.
PAYOFF = {
    "gain_percent": "speed-up required of a doubling (100 is perfect)",
    "batch_size": f"{definitions.PAYS_UP_TO.format(gain='gain_percent')}, for any smooth shape of the curve",
    "batch_size_low": _INTERVAL,
    "batch_size_high": _BOUND,
    "batch_verdict": _EXTENT_VERDICT,
    "efficient_batch_size": FITS["efficient_up_to"],
    "efficient_batch_size_low": _INTERVAL,
    "efficient_batch_size_high": _BOUND,
    "efficient_verdict": _EXTENT_VERDICT,
    "device_kind": "JAX's name of the device (empty without times)",
    "measured_devices": "number of devices after the last doubling that pays off, by measured seconds per step",
    "measured_devices_low": _INTERVAL,
    "measured_devices_high": "upper end",
    "measured_verdict": "its verdict (empty without measured times)",
    "predicted_devices": "number of devices after the last doubling that pays off, by predicted seconds per step",
    "predicted_devices_low": _INTERVAL,
    "predicted_devices_high": "upper end",
    "predicted_verdict": "its verdict (empty without predicted times)",
    "predicted_by": "--predicted, or times of 1 device, without communication: a best case for any network",
    "published_devices": "number of devices after the last doubling that pays off, by published seconds per step",
    "published_devices_low": _INTERVAL,
    "published_devices_high": "upper end",
    "published_verdict": "its verdict (empty without published times)",
    "reason": _REASON,
}
# Columns of payoff --times, a row for every number of devices.
_TO_TARGET = {
    "batch_size": "fastest batch size on this number of devices, examples (empty for a factorization)",
    "seconds": "seconds to the target, by {} seconds per step (to the last epoch of a factorization)",
    "seconds_low": "its 90 % interval, from the curve and the seconds per step together",
    "seconds_high": "upper end",
    "device_hours": "devices times these seconds over 3600",
    "device_hours_low": "its 90 % interval",
    "device_hours_high": "upper end",
    "price": "price of these device-hours (empty without --price)",
    "price_low": "its 90 % interval",
    "price_high": "upper end",
    "before_first_step": "seconds before the first step, part of seconds (empty unless the steps of runs are given)",
    "runs": "number of runs with given steps, of which seconds is the median",
    "on_front": "yes if no other number of devices is faster without costing more, or cheaper without being slower",
}
PAYOFF_TIMES = {
    "device_kind": "JAX's name of the device",
    "devices": "number of devices",
    **{
        f"{basis}_{name}": words.format(basis)
        for basis in ("measured", "predicted", "published")
        for name, words in _TO_TARGET.items()
    },
    "predicted_by": PAYOFF["predicted_by"],
}

COMPARE = {
    "what": "steps, critical_batch_size, seconds_per_epoch, recall_20 or recall_50",
    "dataset": "name of the data set, or of the ratings",
    "model": _MODEL,
    "optimizer": "name of the optimizer, or the solver of a factorization",
    "batch_size": "global batch size, examples (only for steps)",
    "cores": "number of cores (only for a factorization)",
    "target_metric": "the error to bring down",
    "target_value": "the target value",
    "differs": "fields that separate it from others with the same names, such as schedule=linear (empty without any)",
    "a_low": "A's result lies between this ...",
    "a_high": "... and this. An end that is open or was never reached is empty",
    "a_words": "kind of the result: reached or not, a verdict, a device, a trial",
    "b_low": "B's result lies between this ...",
    "b_high": "... and this",
    "b_words": "kind of B's result",
    "result": "same, agree (within the intervals), differ, not_judged, only_a or only_b",
    "why": "how it was judged, or why not",
}

LAYOUTS = {
    "model": "name of the shape of the Transformer",
    "batch_size": "global batch size, sequences",
    "length": "length of a sequence, tokens",
    "mesh": "axes of the mesh and their sizes",
    "layout": "tensor axes, and the mesh axes that they are split over",
    "engine": "cpu-emulated, device or tpu-aot with its topology",
    "refusal": "kind of the error that rejected it (empty if it was accepted)",
    "explanation": "explanation of the refusal",
    "redundancy": "counted: matmul operations over all devices, relative to those of an undivided step",
    "wire_bytes": "counted: bytes that a device sends in a step, by the best algorithm on a ring",
    "argument_bytes": "counted: parameters, optimizer and batch of each device",
    "temporary_bytes": "counted: everything else on each device at once",
    "peak_bytes": "counted: peak bytes on each device",
    "collectives": "counted: operation, axes, count, bytes and wire bytes, JSON",
    "hardware": "hardware of the predicted seconds",
    "predicted_compute_seconds": "predicted: matmuls",
    "predicted_memory_seconds": "predicted: memory traffic, which overlaps with matmuls",
    "predicted_exchange_seconds": "predicted: collectives, which overlap with matmuls",
    "predicted_step_seconds": "predicted: a step",
    "predicted_step_seconds_low": "predicted: lower end of the 90 % range",
    "predicted_step_seconds_high": "predicted: upper end of the 90 % range",
    "predicted_anchors": "measured steps of other layouts in the store that scale the prediction",
    "predicted_fits": "predicted: true if it fits into the device's memory",
    "scheduled_cycles": "predicted: cycles estimated by the TPU compiler",
    "step_seconds": "measured: median of a step (empty if not timed)",
    "step_seconds_low": "measured: lower quartile",
    "step_seconds_high": "measured: upper quartile",
    "loss": "measured: before the last step",
    "gradient_difference": "measured: largest relative difference of the first gradient from one device's, over "
    "parameters",
    "same_loss": "true if all losses equal those of other layouts of the step, within 1e-5 (bfloat16: 2⁻⁸), "
    "or empty without another layout",
    "study": "name of the study",
}

PUBLISHED_STEPS = {
    "row": "row of results/papers/step_times.csv, or the source and row of layouts.csv",
    "source": "key of results/papers/sources.csv",
    "framework": "framework that ran the step, or the source",
    "validation": "true if the row was read after the fit, so that it only checks predictions",
    "range_class": "class of the range: dense, mixture or other",
    "model": "name of the model",
    "chip": "generation of the accelerator",
    "chips": "number of chips",
    "mesh": "axes of the mesh and their sizes, of which dcn_ axes run between slices",
    "set": "set of rows whose errors are reported together (empty if not compared)",
    "precision": "precision of matmuls",
    "status": "compared, or the reason why it is not",
    "published_seconds": "published: seconds of a step",
    "published_from": "seconds if the source states them, or speed if they follow from FLOP/s or tokens/s",
    "predicted_seconds": "predicted: seconds of a step",
    "predicted_low": "predicted: lower end of the 90 % range",
    "predicted_high": "predicted: upper end of the 90 % range",
    "ratio": "predicted over published seconds",
    "predicted_held_bytes": "predicted: bytes that a device holds, if no tensor is moved to the host",
    "predicted_fits": "predicted: true if these bytes fit into the device's memory",
    "predicted_products_seconds": "predicted: matmuls with parameters",
    "predicted_attention_seconds": "predicted: attention",
    "predicted_memory_seconds": "predicted: memory traffic, which overlaps with matmuls (empty on GPUs)",
    "predicted_links_seconds": "predicted: exchanges in a slice, which overlap with matmuls (empty on GPUs)",
    "predicted_slices_seconds": "predicted: loss between slices",
    "predicted_bubble_seconds": "predicted: idle time of pipeline stages",
}
