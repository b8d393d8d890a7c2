"""Compares published training steps with predictions, or gives the reason why a step is not compared."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import PUBLISHED_STEPS as COLUMNS
from results.bad_input import BadInput
from results.costs import decoder_counts, step_model
from results.costs.decoder_counts import Decoder
from results.costs.hardware import CORES, HARDWARE
from results.costs.predictions import class_of
from results.costs.step_constants import ANCHORED_RANGE, CONSTANTS, DENSE as DENSE_CLASS, RANGES
from results.costs.step_model import AXES, Step, Terms
from results.papers import published_numbers

COMPARED = "compared"
# Reasons why a row is not compared, in the order in which they are checked.
REASONS = (
    "compared by plan",
    "no decoder",
    "per-layer table",
    "mixture not stated",
    "shape or mesh not stated",
    "length not stated",
    "pipeline stages",
    "device not in the table",
)
# Sets of rows whose errors are reported separately.
DENSE, MIXTURE, GPU, GPU_MIXTURE = "dense on TPUs", "mixture on TPUs", "GPUs", "mixture on GPUs"
_ROWS = {"v4": "v4p"}  # chips whose row of the hardware table has another name
_YES = ("gated", "tied")
# What the policies of MaxText's own table keep for the backward pass.
_POLICIES = {
    "full": "",
    "minimal": "query;key;value;out;gate;up;down",
    "qkv_proj_offloaded": "query;key;value",
}
_LLAMA = {"7B": "llama3.1-8b", "70B": "llama3.1-70b"}  # KempnerForge's names of models


class PublishedStep(NamedTuple):
    """A published step that can be compared.

    Attributes:
      row, source, model, chip: row, source, model and chip, as named in the tables of ``results.papers``.
      framework: name of the framework that ran the step, or of the source if it does not name one.
      chips: number of chips.
      mesh: mesh as text.
      subset: ``DENSE``, ``MIXTURE``, ``GPU`` or ``GPU_MIXTURE``.
      step: the step as described to the cost model.
      seconds: published seconds, or seconds derived from published FLOPs per second.
      stated: whether the source reports the seconds directly.
      validation: whether the row was read after the model was chosen and fitted, so that it only checks predictions.
    """

    row: str
    source: str
    framework: str
    model: str
    chip: str
    chips: int
    mesh: str
    subset: str
    step: Step
    seconds: float
    stated: bool
    validation: bool = False


def load() -> tuple[list[PublishedStep], dict[str, str]]:
    """Returns the steps that can be compared, and the status of each row of ``step_times.csv``."""
    shapes = decoders()
    compared, statuses = [], {}
    for row in _records(published_numbers.step_times()):
        statuses[row["row"]] = _status(row, shapes)
        if statuses[row["row"]] == COMPARED:
            compared.append(_published(row, shapes[row["model"]]))
    return compared + _of_layouts(shapes), statuses


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table. Missing values are None."""
    rows: list[dict[str, Any]] = table.astype(object).replace({pd.NA: None}).to_dict("records")  # type: ignore[assignment]
    return rows


def decoders() -> dict[str, Decoder]:
    """Returns the shapes of published decoders, by model."""
    return {row.pop("model"): _decoder(row) for row in _records(published_numbers.decoders())}


def _decoder(row: Mapping[str, Any]) -> Decoder:
    sizes: dict[str, Any] = {name: int(value or 0) for name, value in row.items() if name not in _YES}
    return Decoder(**sizes, **{name: row[name] == "yes" for name in _YES})


def _status(row: Mapping[str, Any], shapes: Mapping[str, Decoder]) -> str:
    """Returns the status of a row: ``COMPARED`` or one of ``REASONS``."""
    is_stated = row["model"] in shapes and row["mesh"] is not None
    stages = sizes(row["mesh"] or "").get("pipeline", 1)
    checks = (
        row["architecture"] == "resnet",
        row["architecture"] == "other",
        row["architecture"] == "per-layer tables",
        row["architecture"] == "mixture" and not is_stated,
        not is_stated,
        row["sequence_length"] is None,
        stages > 1 and row["virtual_stages"] is None,
        _ROWS.get(row["chip"], row["chip"]) not in HARDWARE,
    )
    return next((reason for reason, applies in zip(REASONS, checks, strict=True) if applies), COMPARED)


def sizes(mesh: str) -> dict[str, int]:
    """Returns the axis sizes of a published mesh, with the names used by ``Step.mesh``."""
    result: dict[str, int] = {}
    for pair in filter(None, mesh.split(";")):
        name, _, size = pair.partition(":")
        axis = "between" if name.startswith("dcn_") else AXES[name]
        result[axis] = result.get(axis, 1) * int(size or 1)
    return result


def _published(row: Mapping[str, Any], decoder: Decoder) -> PublishedStep:
    chip, chips = row["chip"], int(row["chips"])
    length, batch = int(row["sequence_length"]), int(row["batch_size"])
    evaluated = 0.0
    if row["evaluation_sequences"]:
        evaluated = row["evaluation_sequences"] / (row["steps_between_evaluations"] * batch)
    step = Step(
        decoder,
        length,
        batch,
        _ROWS.get(chip, chip),
        chips * CORES.get(chip, 1),
        int(row["slices"] or 1),
        sizes(row["mesh"]),
        row["precision"],
        frozenset(filter(None, (row["kept"] or "").split(";"))),
        int(row["micro_batch"] or 1),
        int(row["virtual_stages"] or 1),
        evaluated,
    )
    seconds = row["step_seconds"] or row["step_seconds_derived"]
    if seconds is None:
        seconds = flops(decoder, length) * batch * length / (chips * row["tflops_per_chip"] * 1e12)
    on_gpus = HARDWARE[step.row].axes == 1
    dense, mixture = (GPU, GPU_MIXTURE) if on_gpus else (DENSE, MIXTURE)
    subset = mixture if decoder.experts else dense
    stated = row["step_seconds"] is not None
    names = row["row"], row["source"], row["framework"] or row["source"], row["model"], chip, chips, row["mesh"]
    return PublishedStep(*names, subset, step, float(seconds), stated, row["validation"] == "yes")


def flops(decoder: Decoder, length: int, *, causal: bool = False) -> float:
    """Returns the model FLOPs per token in a step, counted as in the sources: three passes, usually full attention."""
    attention = decoder_counts.attention_flops(decoder, length, causal=causal)
    return 6 * decoder_counts.active_parameters(decoder) + 3 * attention


def _of_layouts(shapes: Mapping[str, Decoder]) -> list[PublishedStep]:
    """Returns the steps of ``layouts.csv`` whose shapes are known. Those of KempnerForge were not used for the fit.

    The shapes of MaxText's models are derived from MaxText's global scale. KempnerForge's are Llama 3.
    """
    compared = []
    for row in _records(published_numbers.layouts()):
        if row["source"] == "maxtext-2024" or row["model"] not in (*shapes, *_LLAMA):
            continue
        is_maxtext = row["source"] == "maxtext"
        groups = row["chips"] if is_maxtext else sizes(row["mesh"]).get("fsdp", 1)  # that process different sequences
        unstated = dict.fromkeys(("evaluation_sequences", "virtual_stages", "step_seconds_derived"), None)
        columns = {
            "row": f"{row['source']} {row['row']}",
            "framework": "MaxText" if is_maxtext else "KempnerForge",
            "validation": None if is_maxtext else "yes",
            "model": _LLAMA.get(row["model"], row["model"]),
            "chip": row["hardware"],
            "mesh": row["mesh"] if row["slices"] == 1 else row["mesh"].replace("data:", "dcn_data:"),
            "sequence_length": row["length"],
            "batch_size": row["micro_batch"] * (row["accumulation"] or 1) * groups,
            "precision": "bf16",
            "kept": _POLICIES[row["rematerialization"]],
            "micro_batch": None,
            "step_seconds": None if is_maxtext else row["step_seconds"],
        }
        compared.append(_published(row | unstated | columns, shapes[columns["model"]]))
    return compared


def arrays(steps: Sequence[PublishedStep]) -> Terms:
    """Returns the terms of several steps as arrays, with one entry per step."""
    return Terms(*map(np.array, zip(*(step_model.terms(step.step) for step in steps), strict=True)))


def table(anchor: str | None = None) -> pd.DataFrame:
    """Returns a table with the columns ``COLUMNS``: the compared steps, then the other rows with their status.

    Args:
      anchor: row whose published seconds are used to scale the predictions for its chip generation.

    Raises:
      BadInput: the anchor is not compared.
    """
    steps, statuses = load()
    parts_of = step_model.parts(arrays(steps), CONSTANTS)
    classes = classes_of(steps, parts_of.step)
    scales, ranges = _scales(steps, parts_of.step, classes, anchor)
    rows = []
    for i, step in enumerate(steps):
        middle = parts_of.step[i] * scales[i]
        held = step_model.held_bytes(step.step)
        row = step._asdict() | {
            "range_class": classes[i],
            "set": step.subset,
            "precision": step.step.precision,
            "published_seconds": step.seconds,
            "published_from": "seconds" if step.stated else "speed",
            "predicted_seconds": middle,
            "predicted_low": middle / ranges[i],
            "predicted_high": middle * ranges[i],
            "ratio": middle / step.seconds,
            "status": COMPARED,
            "predicted_held_bytes": held,
            "predicted_fits": held <= HARDWARE[step.step.row].memory_bytes,
        }
        row |= {f"predicted_{name}_seconds": part[i] * scales[i] for name, part in parts_of._asdict().items()}
        if step.subset in (GPU, GPU_MIXTURE):
            row |= {"predicted_memory_seconds": math.nan, "predicted_links_seconds": math.nan}
        rows.append(row)
    published = published_numbers.step_times().set_index("row")
    for name, status in statuses.items():
        if status != COMPARED:
            names = ["source", "framework", "model", "chip", "chips", "mesh", "precision"]
            rows.append(dict(published.loc[name, names]) | {"row": name, "status": status})
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"chips": "Int64"})


def classes_of(steps: Sequence[PublishedStep], seconds: np.ndarray) -> list[str]:
    """Returns the class of each step, which determines its range, given the predicted seconds."""
    return [class_of(step.step, float(value)) for step, value in zip(steps, seconds, strict=True)]


def _scales(
    steps: Sequence[PublishedStep], seconds: np.ndarray, classes: Sequence[str], anchor: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scale of each prediction, and the factor that defines its range."""
    factors = np.array([RANGES[name] for name in classes])
    if anchor is None:
        return np.ones(len(steps)), factors
    anchors = [i for i, step in enumerate(steps) if step.row == anchor]
    if not anchors:
        raise BadInput(f"--anchor must be a compared row, such as {steps[0].row}, not {anchor}")
    (i,) = anchors
    scale = np.where([step.chip == steps[i].chip for step in steps], steps[i].seconds / seconds[i], 1.0)
    keys = [(step.chip, step.framework, name) for step, name in zip(steps, classes, strict=True)]
    near = [key == keys[i] and classes[i] == DENSE_CLASS for key in keys]
    return scale, np.where(near, ANCHORED_RANGE, factors)


def counted(rows: pd.DataFrame) -> dict[str, int]:
    """Returns the number of rows in ``step_times.csv`` by status."""
    in_table = rows[~rows["row"].str.contains(" ")]
    counts = in_table["status"].value_counts()
    return {status: int(counts[status]) for status in (COMPARED, *REASONS) if status in counts}


def as_text(rows: pd.DataFrame) -> str:
    """Formats the compared rows as text, followed by the counts of all statuses."""
    shown = []
    for row in rows[rows["status"] == COMPARED].to_dict("records"):
        cells = {name: str(row[name]) for name in ("row", "framework", "model", "chip", "chips", "mesh")}
        cells["published s"] = text.number(row["published_seconds"])
        low, high = text.number(row["predicted_low"]), text.number(row["predicted_high"])
        cells["predicted s"] = f"{text.number(row['predicted_seconds'])} ({low} – {high})"
        cells["ratio"] = f"{row['ratio']:.2f}"
        for name in ("products", "attention", "memory", "links", "slices", "bubble"):
            value = row[f"predicted_{name}_seconds"]
            cells[name] = text.number(value) if value else ""
        shown.append(cells)
    statuses = counted(rows)
    total = sum(statuses.values())
    lines = [f"{count} of {total} rows: {status}" for status, count in statuses.items()]
    from_layouts = int(rows["row"].str.contains(" ").sum())
    lines.append(f"{from_layouts} more rows of layouts.csv: {COMPARED}")
    large = int(rows["predicted_fits"].eq(False).sum())
    lines.append(f"{large} of {len(shown)} compared rows ran, but would not fit if all kept tensors were on the device")
    return "\n".join([text.table(shown, ["model", "chip"]), "", *lines])


def of_options(anchor: str | None) -> tuple[pd.DataFrame, str]:
    """Returns the table for ``layouts --published``, and the same table as text."""
    rows = table(anchor)
    return rows, as_text(rows)
