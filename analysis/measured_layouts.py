"""Layouts: the studies of kind ``layout`` in a store, with counted, predicted and measured costs."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import LAYOUTS as COLUMNS
from results import store
from results.aliases import Json, Row
from results.bad_input import BadInput, number_of
from results.costs import closed_forms, collectives, predictions
from results.costs.counts import Work
from results.costs.hardware import backend_of, described, hardware_of
from results.durable import Folder
from results.located import located
from results.plans import kinds
from results.plans.layout import COUNTING, EMULATED, LayoutStudy
from results.printing import quoted
from results.store import Commit, read_table, retry

# Relative tolerances above the error from summing in a different order. A bfloat16 has eight bits of precision.
SAME_LOSS = {"float32": 1e-5, "bfloat16": 2.0**-8}
SECONDS = tuple(f"predicted_{name}_seconds" for name in ("compute", "memory", "exchange", "step"))


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredLayout:
    """A study of kind ``layout`` that has run.

    Attributes:
      study: the study's plan.
      losses: float64[steps], losses of the first trial, each before a step. Empty if no step ran.
      row: values of the measurement columns at the last step of the first trial, by name. Missing values are None.
      device: row of the hardware table for the device that timed the steps, if it has one.
    """

    study: LayoutStudy
    losses: np.ndarray
    row: Json
    device: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the layout was rejected."""
        return self.row["refusal"] is not None

    def number(self, name: str) -> float:
        """Returns a column as a number, or NaN if it is missing."""
        value = self.row.get(name)
        return math.nan if value is None else float(value)

    @functools.cached_property
    def collectives(self) -> list[Json]:
        """The operation, axes, count, bytes and wire_bytes of each collective."""
        return list(json.loads(self.row.get("collectives") or "[]"))

    @property
    def family(self) -> tuple[object, ...]:
        """The fields that determine the loss. All studies in a family should have equal losses."""
        plan = self.study
        return plan.stream, plan.seed, plan.precision


@located
def load(folder: Folder) -> list[MeasuredLayout]:
    """Loads the studies of kind ``layout`` that have run from a store or release, sorted by model, mesh and layout.

    Raises:
      BadInput: there is no store, it has a newer schema, or it is damaged.
    """

    def read() -> list[MeasuredLayout]:
        commits = kinds.of_kind(store.catalogue(folder), LayoutStudy.kind)
        layouts = anchored([layout for commit in commits if (layout := _measured(commit)) is not None])
        return sorted(
            layouts,
            key=lambda measured: (
                measured.study.labels.model,
                measured.study.engine,
                measured.study.mesh,
                measured.study.layout,
            ),
        )

    return retry(read)


def _measured(commit: Commit) -> MeasuredLayout | None:
    table = read_table(commit, "measurements").to_pandas()
    if not len(table):
        return None
    rows = table[table["trial"] == table["trial"].min()].sort_values("step")
    row = {str(name): None if pd.isna(value) else value for name, value in rows.iloc[-1].items()}
    losses = rows["train_loss"].to_numpy(np.float64) if "train_loss" in rows else np.empty(0)
    (study,) = kinds.of_type([commit.study], LayoutStudy)
    device = None if row["step_seconds"] is None else _timed_on(commit)
    return MeasuredLayout(study, losses, row | (predicted(study, row) if row["refusal"] is None else {}), device)


def _timed_on(commit: Commit) -> str | None:
    """Returns the row of the hardware table for the device of the last run, if it has one."""
    *_, run = read_table(commit, "studies").to_pylist()
    return "cpu" if run["backend"] == "cpu" else hardware_of(run["device_kind"])


def predicted(study: LayoutStudy, row: Row) -> Row:
    """Predicts the columns of a step from its counted columns and the shape of its model."""
    hardware = described(row["hardware"])
    assert hardware is not None  # rows of the table, with options
    mesh = {name: int(size) for name, size in pairs(study.mesh).items()}
    columns = ("operation", "axes", "count", "bytes", "wire_bytes")
    counted = [tuple(collective[name] for name in columns) for collective in json.loads(row["collectives"])]
    links, far = collectives.seconds_of_totals(hardware, mesh, counted, study.chips)
    backend = backend_of(row["hardware"].partition(";")[0])
    rates = predictions.rates(row["hardware"], backend, study.precision)
    assert rates is not None  # all rows of the table have rates
    work = _work(study, row, mesh)
    parts, step = predictions.parts(work, rates, links), predictions.seconds(work, rates, links=links, far=far)
    return {
        "predicted_compute_seconds": float(parts.products),
        "predicted_memory_seconds": float(parts.memory),
        "predicted_exchange_seconds": float(parts.links),
        "predicted_step_seconds": step.middle,
        "predicted_step_seconds_low": step.low,
        "predicted_step_seconds_high": step.high,
        "predicted_anchors": 0,
        "predicted_fits": row["peak_bytes"] <= hardware.memory_bytes,
    }


def _work(study: LayoutStudy, row: Row, mesh: Mapping[str, int]) -> Work:
    """Returns the work of a device: the counted FLOPs, and the memory traffic of matmuls, which follows from the shape.

    The closed form covers only the decoder of layout studies. For other models, each byte held in memory is assumed to
    be written once and read once.
    """
    flops = row["executed_flops"] / study.device_count
    shape = study.model_options
    if study.dataset != COUNTING:
        return Work(flops, weight_bytes=row["peak_bytes"])
    sizes = closed_forms.sizes_of(shape, study.batch_size, study.length)
    layout = {name: axis for name, axis in pairs(study.layout).items() if name in sizes and axis in mesh}
    work = closed_forms.work(
        sizes,
        mesh,
        layout,
        gated=shape["gated"],
        tied=shape["tied"],
        width=2 if study.precision == "bfloat16" else 4,
        rematerialized=study.rematerialization == "full",
        attention_block=study.attention_block,
        window=shape.get("window", 0),
    )
    state = closed_forms.STATE_TRAFFIC * row["argument_bytes"]  # most arguments are parameters and moments
    return work._replace(flops=flops, state_bytes=state)


def anchored(layouts: Sequence[MeasuredLayout]) -> list[MeasuredLayout]:
    """Scales predictions by the median ratio of measured to predicted steps of other layouts.

    The other layouts must have the same device and precision, and a step of similar size. If enough of them have the
    same model, only these are used. Predictions of measured steps are not scaled, because they are compared with the
    measurements. Steps that were timed on another device than they were predicted for do not scale others.
    """
    timed = [layout for layout in layouts if math.isfinite(layout.number("step_seconds"))]
    measured = {layout.study.name for layout in timed}
    usable = [layout for layout in timed if layout.device == _device(layout)]
    return [
        layout
        if layout.refused or layout.study.name in measured
        else _scaled(layout, [anchor for anchor in usable if _alike(layout, anchor)])
        for layout in layouts
    ]


def _alike(layout: MeasuredLayout, candidate: MeasuredLayout) -> bool:
    """Returns whether the measured step of another layout can be used to scale the prediction of this layout."""
    if (_device(layout), layout.study.precision) != (_device(candidate), candidate.study.precision):
        return False
    return predictions.alike(
        *(member.number("executed_flops") / member.study.device_count for member in (layout, candidate))
    )


def _device(layout: MeasuredLayout) -> str:
    name = layout.row["hardware"].partition(";")[0]
    return hardware_of(name) or name


def _scaled(layout: MeasuredLayout, candidates: Sequence[MeasuredLayout]) -> MeasuredLayout:
    """Scales a layout's predicted seconds so that they agree, on average, with the measured steps of other layouts."""
    same_model = [candidate for candidate in candidates if candidate.study.labels.model == layout.study.labels.model]
    anchors = same_model if len(same_model) >= predictions.FEWEST else candidates
    range_of = math.sqrt(layout.number("predicted_step_seconds_high") / layout.number("predicted_step_seconds_low"))
    ratios = [anchor.number("step_seconds") / anchor.number("predicted_step_seconds") for anchor in anchors]
    calibration = predictions.calibration(ratios, range_of)
    if calibration is None:
        return layout
    scaled = {name: layout.number(name) * calibration.scale for name in SECONDS}
    step = predictions.around(scaled["predicted_step_seconds"], calibration.factor)
    scaled |= {"predicted_step_seconds_low": step.low, "predicted_step_seconds_high": step.high}
    return dataclasses.replace(layout, row=layout.row | scaled | {"predicted_anchors": calibration.runs})


def pairs(text: str) -> dict[str, str]:
    """Returns the pairs in the text of a mesh or a layout. If several have the same name, the first one counts."""
    split = [pair.partition(":") for pair in text.split(";") if pair]
    return {name.strip(): value.strip() for name, _, value in reversed(split)}


def absent(folder: Folder) -> BadInput:
    """Returns the error for a store without layouts."""
    fill = f"python -m sweeps +experiment=layouts/quickstart store={quoted(folder)} -m"
    return BadInput(f"no layout in {folder} has run. Fill it with `{fill}`.")


def table(layouts: Sequence[MeasuredLayout]) -> pd.DataFrame:
    """Returns a table with the columns ``COLUMNS`` and one row per study."""
    rows = []
    for layout in layouts:
        fields = {
            name: getattr(layout.study, name) for name in ("model", "batch_size", "length", "mesh", "layout", "engine")
        }
        columns = {name: layout.row.get(name) for name in COLUMNS if name in layout.row}
        loss = layout.losses[-1] if len(layout.losses) else None
        rows.append(fields | columns | {"study": layout.study.name, "loss": loss, "same_loss": _same(layout, layouts)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _same(layout: MeasuredLayout, layouts: Sequence[MeasuredLayout]) -> bool | None:
    """Returns whether the losses equal the family's medians. None if there are no losses or no other studies."""
    losses = [
        candidate.losses
        for candidate in layouts
        if candidate.family == layout.family and len(candidate.losses) == len(layout.losses)
    ]
    if not len(layout.losses) or len(losses) < 2:
        return None
    return bool(np.allclose(layout.losses, np.median(losses, axis=0), rtol=SAME_LOSS[layout.study.precision], atol=0))


def notes(layouts: Sequence[MeasuredLayout]) -> list[str]:
    """Returns notes on the table, one sentence each."""
    result = []
    refusals = [layout.row["refusal"] for layout in layouts if layout.refused]
    if refusals:
        counts = ", ".join(f"{count} {kind}" for kind, count in pd.Series(refusals).value_counts().items())
        result.append(f"{len(refusals)} of {len(layouts)} layouts were rejected: {counts}")
    differ = [layout.study.name for layout in layouts if _same(layout, layouts) is False]
    if differ:
        result.append(f"losses differ from those of other layouts without explanation: {', '.join(differ[:3])}")
    counted_once = [layout.study.name for layout in layouts if layout.number("unknown_loops") > 0]
    if counted_once:
        names = ", ".join(counted_once[:3])
        result.append(f"loops with an unknown trip count are counted once, so numbers are too low: {names}")
    scaled = sum(layout.number("predicted_anchors") > 0 for layout in layouts)
    if scaled:
        how = "scaled by measured steps of others on the same device"
        result.append(f"predictions of {number_of(scaled, 'layout')} are {how}")
    if any(layout.study.engine_name == EMULATED for layout in layouts):
        result.append(
            "emulated devices are not timed: their seconds are predicted, like those of programs compiled ahead of time"
        )
    return result


def remarks(layouts: Sequence[MeasuredLayout]) -> list[str]:
    """Returns the notes, and an explanation of why layouts were rejected."""
    result = notes(layouts)
    if any(layout.refused for layout in layouts):
        result.append("--csv explains each refusal")
    return result


def as_text(layouts: Sequence[MeasuredLayout]) -> str:
    """Formats the table of accepted layouts as text, sorted by cost."""
    shown = [layout for layout in layouts if not layout.refused]
    rows = []
    for layout in sorted(
        shown, key=lambda accepted: (accepted.study.labels.model, accepted.study.engine, accepted.number("wire_bytes"))
    ):
        names = {"model": layout.study.labels.model, "mesh": layout.study.mesh, "layout": layout.study.layout_label}
        numbers = shown_numbers(layout).items()
        cells = {name: "" if math.isnan(number) else format(number, form) for name, (number, form) in numbers}
        rows.append(names | {"engine": layout.study.engine} | cells)
    return text.table(rows, ["model", "mesh", "layout", "engine"])


def shown_numbers(layout: MeasuredLayout) -> dict[str, tuple[float, str]]:
    """Returns the numbers of a row for a reader, by heading, each with its format. Missing numbers are NaN."""
    return {
        "redundancy": (layout.number("redundancy"), ".2f"),
        "MB sent": (layout.number("wire_bytes") / 1e6, ",.2f"),
        "MB held": (layout.number("peak_bytes") / 1e6, ",.1f"),
        "predicted ms": (layout.number("predicted_step_seconds") * 1e3, ",.3f"),
        "ms": (layout.number("step_seconds") * 1e3, ",.3f"),
        "loss": (float(layout.losses[-1]) if len(layout.losses) else math.nan, ".5f"),
    }
