"""Curves of seconds per epoch over cores: their studies and fits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import text, workload_studies
from analysis.columns import CORE_COUNTS as COLUMNS, TIMES
from analysis.cores import scaling
from analysis.cores.factorizations import MeasuredFactorization
from analysis.workload_studies import shared_plan

UNKNOWNS = (
    f"A fit needs {scaling.FEWEST_COUNTS} core counts, because an epoch has three unknowns: its serial, parallel and "
    "communication time."
)
NO_OPTIONS = ("dataset_version",)  # redundant with the options for generated data


class CoreCurve(NamedTuple):
    """Studies that differ only in the number of cores, on the same device.

    Attributes:
      members: timed studies on real cores, sorted by cores.
      emulated: studies on emulated cores, sorted by cores.
      distinction: fields that distinguish this curve from similar ones in a table, or empty.
    """

    members: tuple[MeasuredFactorization, ...]
    emulated: tuple[MeasuredFactorization, ...]
    distinction: str

    @property
    def representative(self) -> MeasuredFactorization:
        return (*self.members, *self.emulated)[0]

    @property
    def cores(self) -> np.ndarray:
        """Core counts of the members, float64[n]."""
        return np.array([one.study.cores for one in self.members], np.float64)

    @property
    def seconds(self) -> np.ndarray:
        """Median seconds per epoch, float64[n]."""
        return np.array([np.median(one.seconds) for one in self.members])

    @property
    def speedup(self) -> np.ndarray:
        """Speed-up over the fewest cores, float64[n]."""
        return self.seconds[:1] / self.seconds

    @property
    def efficiency(self) -> np.ndarray:
        """Speed-up relative to perfect scaling, float64[n]."""
        return self.speedup * self.cores[:1] / self.cores


class CoreCurveFit(NamedTuple):
    """A curve with its fit (None if the data do not support a fit), verdict and notes."""

    curve: CoreCurve
    fit: scaling.LawFit | None
    verdict: text.Verdict
    reason: str


def curves(factorizations: Sequence[MeasuredFactorization]) -> list[CoreCurve]:
    """Returns the curves of factorizations, in order. Studies that were never timed are omitted."""
    timed = [one for one in factorizations if one.hardware and len(one.seconds)]
    result = []
    for group in workload_studies.alike(timed, _names, lambda one: shared_plan(one.study, ()), _in_words):
        by_cores = sorted(group.members, key=lambda one: one.study.cores)
        real = tuple(one for one in by_cores if is_real(one))
        others = tuple(one for one in by_cores if not is_real(one))
        result.append(CoreCurve(real, others, group.distinction))
    return result


def _names(one: MeasuredFactorization) -> tuple[Any, ...]:
    study, hardware = one.study, one.hardware
    kind = hardware and (hardware.backend, hardware.device_kind)
    return study.dataset, study.dim, study.solver, study.table_dtype, kind


def is_real(one: MeasuredFactorization) -> bool:
    """Returns whether all cores in the study are known to be real. Otherwise, its times are not meaningful."""
    return one.hardware is not None and one.hardware.emulated is False


def _in_words(shared: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describes the plan shared by a curve. Data options and ranges become separate fields."""
    plan = dict(shared)
    options, space = plan.pop("dataset_options"), plan.pop("space")
    if options:
        plan = {field: value for field, value in plan.items() if field not in NO_OPTIONS}
    ranges = {name: _range(space[name]) for name in space}
    return {name: f"{value:,}" if isinstance(value, int) else value for name, value in options.items()} | plan | ranges


def _range(plan: Mapping[str, Any]) -> str:
    if "values" in plan:
        return " or ".join(f"{value:g}" for value in plan["values"])
    return f"{plan['low']:g} … {plan['high']:g}"


def of_curve(curve: CoreCurve) -> CoreCurveFit:
    """Fits a curve if the data support a fit, and adds notes for the user."""
    notes = [curve.distinction] if curve.distinction else []
    if curve.emulated:
        counts = ", ".join(str(one.study.cores) for one in curve.emulated)
        notes.append(f"{counts} cores are emulated and left out, because their times do not measure speed")
    count = len(curve.members)
    if count < scaling.FEWEST_COUNTS:
        plural = "" if count == 1 else "s"
        notes.append(f"{count} real core count{plural}, but a fit needs {scaling.FEWEST_COUNTS}")
        return CoreCurveFit(curve, None, "not_identified", "; ".join(notes))
    epochs = [one.seconds for one in curve.members]
    fit = scaling.fit(curve.cores, curve.seconds, scaling.spread(epochs))
    if max(map(len, epochs)) == 1:
        notes.append("one epoch at every number of cores, so its noise is unknown")
    if fit.verdict == "at_least":
        notes.append(f"less than half of the cores' time is lost up to {text.count(fit.critical_cores.low)} cores")
    if fit.doubt:
        notes.append(fit.doubt)
    if fit.slows and fit.fastest_cores < 4 * curve.cores[-1]:
        notes.append(f"by the fit, more than {text.count(fit.fastest_cores)} cores slow an epoch down")
    return CoreCurveFit(curve, fit, fit.verdict, "; ".join(notes))


def table(core_fits: Sequence[CoreCurveFit]) -> pd.DataFrame:
    """Returns one row per curve with ``COLUMNS``."""
    return pd.DataFrame([_row(one) for one in core_fits], columns=list(COLUMNS)).astype({"dim": "Int64"})


def _row(core_fit: CoreCurveFit) -> dict[str, Any]:
    curve, fit = core_fit.curve, core_fit.fit
    hardware = curve.representative.hardware
    row = {name: getattr(curve.representative.study, name) for name in ("dataset", "dim", "solver", "table_dtype")}
    row |= {"device_kind": hardware and hardware.device_kind, "verdict": core_fit.verdict, "reason": core_fit.reason}
    row["core_counts"] = " ".join(str(one.study.cores) for one in curve.members)
    if len(curve.members) > 1:
        row |= {"speedup": curve.speedup[-1], "efficiency": curve.efficiency[-1]}
    if fit:
        row["misfit"] = fit.misfit
        intervals = {f"{name}_seconds": getattr(fit, name) for name in TIMES} | {"critical_cores": fit.critical_cores}
        for name, interval in intervals.items():
            for end, value in zip(("", "_low", "_high"), interval, strict=True):
                row[f"{name}{end}"] = value if math.isfinite(value) else None
    return row


def fits(studies: Sequence[MeasuredFactorization]) -> tuple[pd.DataFrame, str]:
    """Returns a table of all curves' fits, and the same table formatted as text."""
    core_fits = [of_curve(curve) for curve in curves(studies)]
    return table(core_fits), as_text(core_fits)


def as_text(core_fits: Sequence[CoreCurveFit]) -> str:
    """Formats the fits as text: one line per fit, then speed-ups, reasons and the requirements for a fit."""
    rows, remarks = [], []
    for i, one in enumerate(core_fits, start=1):
        study, hardware, members = one.curve.representative.study, one.curve.representative.hardware, one.curve.members
        cells = {"": str(i), "dataset": study.dataset, "dim": str(study.dim), "solver": study.solver}
        cells |= {"dtype": study.table_dtype, "device": (hardware and hardware.device_kind) or ""}
        cells["cores"] = ",".join(str(member.study.cores) for member in members)
        cells |= {f"{name} seconds": _interval(getattr(one.fit, name)) if one.fit else "" for name in TIMES}
        rows.append(cells | {"critical cores": in_words(one), "verdict": _verdict(one)})
        if len(members) > 1:
            gains = zip(members[1:], one.curve.speedup[1:], one.curve.efficiency[1:], strict=True)
            words = [f"{m.study.cores} cores {s:.2f} × ({e:.0%})" for m, s, e in gains]
            remarks.append((i, f"speed-up over {members[0].study.cores} (efficiency): {', '.join(words)}"))
        if one.reason:
            remarks.append((i, one.reason))
    notes = text.grouped(remarks)
    if any(one.fit is None for one in core_fits):
        notes.append(UNKNOWNS)
    left = ["dataset", "solver", "dtype", "device", "verdict"]
    shown = text.table(rows, left, prose=["verdict"], kept=["critical cores", "verdict"])
    return "\n".join([shown, "", *notes])


def in_words(core_fit: CoreCurveFit) -> str:
    """Formats the critical number of cores, as ``12.0 [11.2, 13.1]`` or ``at least 8``, or empty if unknown."""
    fit = core_fit.fit
    if fit is None or core_fit.verdict == "not_identified":
        return ""
    return text.statement(core_fit.verdict, *map(text.count, fit.critical_cores))


def _verdict(core_fit: CoreCurveFit) -> str:
    """Describes the verdict, and whether the law fits poorly."""
    doubt = ", law misfits" if core_fit.fit and core_fit.fit.doubt else ""
    return core_fit.verdict.replace("_", " ") + doubt


def _interval(interval: scaling.Interval) -> str:
    best, low, high = (text.number(value) for value in interval)
    return f"{best} [{low}, {high}]"
