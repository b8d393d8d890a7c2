"""Vocabulary: the names of batch sizes, rates, seeds, devices and counters in paths, columns and configs."""

import re
from collections.abc import Iterable

from results.aliases import Fields, Json
from results.importers import untrusted

# Names of values, separated by spaces, the most telling one first. In paths they are regular expressions: s=1 is a
# seed, and s1 is not.
NAMES = {
    "batch_size": "global_batch_size train_batch_size batch_size batchsize batch bs b",
    "learning_rate": "learning_rate lr base_lr peak_lr max_lr",
    "seed": "seed random_seed s(?==)",
    "weight_decay": "weight_decay wd",
    "momentum": "momentum mom",
    "optimizer": "optimizer optimizer_name optim opt",
}
OPTIMIZERS = "adamw|adam|adafactor|adagrad|lamb|lars|lion|momentum|muon|nesterov|rmsprop|sgd|shampoo|sophia"
STEPS = "global_step step iteration iter iter_num steps num_steps updates num_updates _step"
EPOCHS = "epoch epochs current_epoch training_iteration"
EXAMPLES_SEEN = "examples_seen samples_seen consumed_samples"
TIMES = "wall_time timestamp _timestamp time_total_s time seconds elapsed _runtime"
KINDS = {
    "steps": f"{STEPS} iterations iters update train_step",
    "epochs": EPOCHS,
    "examples": f"{EXAMPLES_SEEN} samples examples num_samples consumed_train_samples",
    "tokens": "tokens consumed_tokens tokens_seen num_tokens total_tokens num_input_tokens_seen",
    "seconds": f"{TIMES} runtime elapsed_time time_this_iter_s",
}
_KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
RUNS = "run run_id run_name trial trial_id"
BUDGETS = "max_steps total_steps num_steps train_steps train_iters max_iters num_iterations"
SEQUENCES = "sequence_length seq_length seq_len max_seq_length max_seq_len block_size context_length"
GLOBAL = (
    "global_batch_size global_train_batch_size total_train_batch_size total_batch_size effective_batch_size "
    "batch_size_in_tokens batch_size_tokens tokens_per_batch"
)
PER_DEVICE = (
    "per_device_train_batch_size per_device_batch_size per_gpu_train_batch_size per_gpu_batch_size "
    "train_micro_batch_size_per_gpu micro_batch_size device_batch_size local_batch_size batch_size_per_device "
    "batch_size_per_gpu"
)
REPLICAS = "data_parallel_size dp_size"
WORLD = "world_size device_count num_devices n_devices num_processes"
DEVICES = "devices gpus num_gpus n_gpus n_gpu ngpus gpus_per_node num_gpus_per_node nproc_per_node"
NODES = "num_nodes nnodes n_nodes nodes"
ACCUMULATION = (
    "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps gradient_accumulation grad_accum "
    "accumulation_steps accum_steps accum_iter update_freq"
)
SPLIT_NAMES = {
    "validation": {"validation", "val", "valid", "eval", "evaluation", "dev"},
    "test": {"test"},
    "train": {"train", "training"},
}
SPLITS = set[str]().union(*SPLIT_NAMES.values())
_EVALUATION = re.compile(r"(?<![a-z0-9])(?:(?:val|dev)(?![a-z0-9])|eval|valid|test|infer|predict)")
_MODEL_PARALLEL = re.compile(r"(tensor|pipeline|context|expert|model)(_model)?_parallel(_size)?|[tp]p(_size)?")


def kind(name: str) -> str:
    """Returns the kind of counter that a column is by its name, one of ``KINDS``, or an empty string."""
    return _KIND_OF.get(name.rpartition("/")[2].lower().strip("_ ").replace(" ", "_"), "")


def first(words: str, names: Iterable[str]) -> str:
    """Returns the first name whose last part equals one of the words, or an empty string. Shorter names come first."""
    by_word = {_last(name): name for name in sorted(names, key=len, reverse=True)}
    return next((by_word[word] for word in words.split() if word in by_word), "")


def key(words: str, entries: Fields) -> str:
    """Returns the first entry of a config that is named like one of the words and is not about evaluations."""
    training = [name for name in entries if not _EVALUATION.search(name.lower())]
    shortened = {re.sub(r"\.(name|type|train|training)$", "", name): name for name in training}
    words = " ".join(word for word in words.split() if len(word) > 1)
    return first(words, training) or shortened.get(first(words, shortened), "")


def count(words: str, entries: Fields) -> str:
    """Returns the first entry like ``key`` whose value is a positive integer, or an empty string."""
    numbers = {name: value for name, value in entries.items() if untrusted.int_or_none(untrusted.numeric(value), 1)}
    return key(words, numbers)


def batch_factors(entries: Fields) -> tuple[list[str], str]:
    """Returns the entries of a config whose product is the global batch size, and a remark about unseen factors.

    The list is empty if the config does not determine the batch size.
    """
    total, per_device, size = (count(words, entries) for words in (GLOBAL, PER_DEVICE, NAMES["batch_size"]))
    if total or (per_device and _last(size) == "train_batch_size"):
        return [total or size], ""
    if not (per_device or size):
        return [], ""
    replicas, accumulated = count(REPLICAS, entries), count(ACCUMULATION, entries)
    split = [name for name in entries if _MODEL_PARALLEL.fullmatch(_last(name)) and entries[name] not in (1, "1")]
    if split and not replicas:
        return [], f"{per_device or size} times the number of copies of the model and of accumulated batches"
    devices = [replicas] if replicas else device_factors(entries)
    factors = [name for name in (per_device or size, *devices, accumulated) if name]
    unseen = [] if devices else ["the number of devices"]
    unseen += [] if accumulated else ["the number of accumulated batches"]
    if not per_device and len(factors) > 1:
        return factors, f"if {size} is already the global batch size, write only that"
    return factors, f"if it is per device, add {' and '.join(unseen)}" if unseen else ""


def device_factors(entries: Fields) -> list[str]:
    """Returns the entries of a config whose product is the number of devices, or an empty list."""
    world, devices, nodes = (count(words, entries) for words in (WORLD, DEVICES, NODES))
    return [world] if world else [name for name in (devices, nodes) if devices and name]


def known(entries: Fields) -> int:
    """Returns how many kinds of values a config has: batch size, learning rate, seed and so on."""
    return sum(bool(key(words, entries)) for words in (*NAMES.values(), PER_DEVICE, GLOBAL))


def entries_of(config: Fields) -> Json:
    """Returns the numbers and texts in a config, with dotted names."""
    values = flat(config, ".").items()
    return {
        name: value for name, value in values if isinstance(value, str | int | float) and not isinstance(value, bool)
    }


def flat(content: Fields, separator: str, prefix: str = "") -> Json:
    """Returns the single values of nested objects. Their names are joined by a separator."""
    cells: Json = {}
    for name, value in content.items():
        cells |= (
            flat(value, separator, f"{prefix}{name}{separator}")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return cells


def chart_runs(columns: Iterable[str]) -> list[str]:
    """Returns the names of the runs in a chart that W&B exported, from columns such as ``RUN - val/loss__MIN``."""
    return [name.rpartition(" - ")[0] for name in columns if name.endswith("__MIN") and " - " in name]


def _last(name: str) -> str:
    """Returns the last part of a name in small letters, such as global_step of trainer/Global Step."""
    return re.sub(r"[^a-z0-9_]+", "_", re.split(r"[./]", name.strip())[-1].lower())
