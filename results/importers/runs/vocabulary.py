"""Vocabulary: the names of batch sizes, rates, seeds, devices and steps in paths, columns and configs of training code."""

import re
from collections.abc import Iterable, Mapping, Sequence

from results.aliases import Fields, Json

# Names of values, the most telling one first. One letter is a name in paths only.
NAMES = {
    "batch_size": ("global_batch_size", "train_batch_size", "batch_size", "batchsize", "batch", "bs", "b"),
    "learning_rate": ("learning_rate", "lr", "base_lr", "peak_lr", "max_lr"),
    "seed": ("seed", "random_seed"),
    "weight_decay": ("weight_decay", "wd"),
    "momentum": ("momentum", "mom"),
    "optimizer": ("optimizer", "optimizer_name", "optim", "opt"),
}
OPTIMIZERS = "adamw|adam|adafactor|adagrad|lamb|lars|lion|momentum|muon|nesterov|rmsprop|sgd|shampoo|sophia"
STEPS = ("global_step", "step", "iteration", "iter", "iter_num", "steps", "num_steps", "update", "updates", "_step")
TIMES = ("wall_time", "timestamp", "_timestamp", "time_total_s", "time", "seconds", "elapsed", "_runtime")
RUNS = ("run", "run_id", "run_name", "trial", "trial_id")
BUDGETS = ("max_steps", "total_steps", "num_steps", "train_steps", "train_iters", "max_iters", "num_iterations")
SEQUENCES = ("sequence_length", "seq_length", "seq_len", "max_seq_length", "max_seq_len", "block_size", "context_length")
EXAMPLES = {"eval", "evaluation", "val", "valid", "validation", "test", "dev", "inference"}
GLOBAL = (
    "global_batch_size",
    "global_train_batch_size",
    "total_train_batch_size",
    "total_batch_size",
    "effective_batch_size",
    "batch_size_in_tokens",
    "batch_size_tokens",
    "tokens_per_batch",
)
PER_DEVICE = (
    "per_device_train_batch_size",
    "per_device_batch_size",
    "per_gpu_train_batch_size",
    "per_gpu_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size",
    "device_batch_size",
    "local_batch_size",
    "batch_size_per_device",
    "batch_size_per_gpu",
)
REPLICAS = ("data_parallel_size", "dp_size")
ALL_DEVICES = ("world_size", "device_count", "num_devices", "n_devices", "num_processes")
DEVICES = ("devices", "gpus", "num_gpus", "n_gpus", "n_gpu", "gpus_per_node", "num_gpus_per_node", "nproc_per_node")
NODES = ("num_nodes", "nnodes", "n_nodes", "nodes")
SPLIT_MODELS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "tensor_parallel_size")
ACCUMULATION = (
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "grad_accum_steps",
    "gradient_accumulation",
    "grad_accum",
    "accumulation_steps",
    "accum_iter",
    "update_freq",
)
