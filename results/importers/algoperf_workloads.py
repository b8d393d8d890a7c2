"""AlgoPerf's workloads: data sets, models, metrics as errors, and the submissions' batch sizes."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa


class BenchmarkWorkload(NamedTuple):
    """A workload of the benchmark, with the batch size of its baselines."""

    dataset: str
    model: str
    batch_size: int


# In the order AlgoPerf uses to match a variant's name, such as fastmri_tanh, to its workload.
WORKLOADS = {
    "criteo1tb": BenchmarkWorkload("criteo1tb", "dlrm", 262_144),
    "fastmri": BenchmarkWorkload("fastmri", "unet", 32),
    "imagenet_resnet": BenchmarkWorkload("imagenet", "resnet", 1024),
    "imagenet_vit": BenchmarkWorkload("imagenet", "vit", 1024),
    "librispeech_conformer": BenchmarkWorkload("librispeech", "conformer", 256),
    "librispeech_deepspeech": BenchmarkWorkload("librispeech", "deepspeech", 256),
    "ogbg": BenchmarkWorkload("ogbg", "gnn", 512),
    "wmt": BenchmarkWorkload("wmt", "transformer", 128),
    "finewebedu_lm": BenchmarkWorkload("finewebedu", "lm", 64),
    "mnist": BenchmarkWorkload("mnist", "mlp", 16),
}
_SMALLER = {"imagenet_resnet_silu": 512, "imagenet_resnet_gelu": 512}  # variants with their own baseline
_RETURNED = re.compile(
    r"""^[ \t]*(?:el)?if[ \t]+\w+[ \t]*==[ \t]*["'](\w{1,60})["'][ \t]*:[ \t]*(?:\#.*)?\r?\n"""
    r"""[ \t]*return[ \t]+([0-9]{1,12}(?:_[0-9]{1,12}){0,6})[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)
# Part of every such study's plan, so a change would rename the studies.
BASELINE = "of AlgoPerf's baselines, as the submission's own get_batch_size is not there to be read"


class Metric(NamedTuple):
    """A source metric and its conversion to an error."""

    kind: str
    error: Callable[[float], float]


def _one_minus(value: float, scale: int = 1) -> float:
    """Returns 1 - value / scale in decimal arithmetic: accuracy 0.7 becomes error 0.3, not 0.30000000000000004."""
    return float(1 - Decimal(repr(value)) / scale)


METRICS = {
    "loss": Metric("loss", float),
    "ctc_loss": Metric("loss", float),
    "accuracy": Metric("error", _one_minus),
    "wer": Metric("word_error_rate", float),
    "ssim": Metric("ssim_error", _one_minus),
    "mean_average_precision": Metric("average_precision_error", _one_minus),
    "bleu": Metric("bleu_error", lambda bleu: _one_minus(bleu, scale=100)),
}
SPLITS = ("train", "validation", "test")
COLUMNS = {f"{split}/{name}": f"{split}_{m.kind}" for split in SPLITS for name, m in METRICS.items()}


def errors(column: str, values: pa.Array) -> pa.Array:
    """Converts a source column to errors, float64. Nulls and NaN are kept."""
    error = METRICS[column.split("/")[1]].error
    if error is float:
        return values
    return pa.array([v if v is None or not abs(v) < 1e300 else error(v) for v in values.to_pylist()], pa.float64())


def base(workload: str) -> str | None:
    """Returns the workload of a variant, or None if it is unknown."""
    return next((name for name in WORKLOADS if name in workload), None)


def names(workload: str) -> tuple[str, str]:
    """Returns a workload's data set and model. The model's name includes the variant."""
    variant_of = base(workload)
    if variant_of is None:
        return workload, workload
    change = workload.replace(variant_of, "", 1).strip("_")
    return WORKLOADS[variant_of].dataset, "_".join(filter(None, [WORKLOADS[variant_of].model, change]))


def batch_sizes(source: str) -> dict[str, int]:
    """Returns the batch sizes in a submission's get_batch_size function, by workload.

    The code is searched but never run. One of the published submissions is not even valid Python. Only `if
    workload_name == NAME:` (or elif) with `return NUMBER` on the next line is recognized.
    """
    functions = source.partition("def get_batch_size(")[2]
    sizes = {name: int(size) for name, size in _RETURNED.findall(functions)}
    return {name: size for name, size in sizes.items() if 0 < size < 2**31}


def batch_size(workload: str, chosen: dict[str, int]) -> tuple[int, str] | None:
    """Returns a workload's batch size and its source, or None if the batch size is unknown.

    Args:
      workload: name of the workload.
      chosen: the submission's batch sizes, from ``batch_sizes``.
    """
    variant_of = base(workload)
    for name in (workload, variant_of):
        if name in chosen:
            return chosen[name], "get_batch_size of the submission"
    return None if variant_of is None else (_SMALLER.get(workload, WORKLOADS[variant_of].batch_size), BASELINE)
