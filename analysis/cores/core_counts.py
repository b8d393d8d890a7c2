"""Curves of seconds per epoch over cores: their studies and fits."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import text, workload_studies
from analysis.columns import CORE_COUNTS as COLUMNS, TIMES
from analysis.cores import scaling
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.workload_studies import shared_plan
from results.bad_input import number_of

UNKNOWNS = (
    f"A fit needs {scaling.FEWEST_COUNTS} core counts, because an epoch has three unknowns: its serial, parallel and "
    "communication time."
)
NO_OPTIONS = ("dataset_version",)  # redundant with the options for generated data


@dataclasses.dataclass(frozen=True, eq=False)
class CoreCurve:
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

    @functools.cached_property
    def cores(self) -> np.ndarray:
        """Core counts of the members, float64[n]."""
        return np.array([member.study.cores for member in self.members], np.float64)

    @functools.cached_property
    def seconds(self) -> np.ndarray:
        """Median seconds per epoch, float64[n]."""
        return np.array([np.median(member.seconds) for member in self.members])

    @property
    def speedup(self) -> np.ndarray:
        """Speed-up over the fewest cores, float64[n]."""
        return self.seconds[:1] / self.seconds

    @property
    def efficiency(self) -> np.ndarray:
        """Speed-up relative to perfect scaling, float64[n]."""
        return self.speedup * self.cores[:1] / self.cores

    @functools.cached_property
    def fit(self) -> scaling.LawFit | None:
        """The law, or None if the data do not support a fit."""
        if len(self.members) < scaling.FEWEST_COUNTS:
            return None
        return scaling.fit(self.cores, self.seconds, scaling.spread([member.seconds for member in self.members]))

    @property
    def verdict(self) -> text.Verdict:
        """The verdict on the critical number of cores."""
        return self.fit.verdict if self.fit else "not_identified"

    @property
    def reason(self) -> str:
        """Notes for the user on the fit, or the reason why the data do not support one."""
        notes = [self.distinction] if self.distinction else []
        if self.emulated:
            counts = ", ".join(str(study.study.cores) for study in self.emulated)
            notes.append(f"{counts} cores are emulated and left out, because their times do not measure speed")
        fit, count = self.fit, len(self.members)
        if fit is None:
            counts = number_of(count, "real core count")
            return "; ".join([*notes, f"{counts}, but a fit needs {scaling.FEWEST_COUNTS}"])
        if max(len(member.seconds) for member in self.members) == 1:
            notes.append("one epoch at every number of cores, so its noise is unknown")
        if fit.verdict == "at_least":
            notes.append(f"less than half of the cores' time is lost up to {text.count(fit.critical_cores.low)} cores")
        if fit.doubt:
            notes.append(fit.doubt)
        if fit.slows and fit.fastest_cores < 4 * self.cores[-1]:
            notes.append(f"by the fit, more than {text.count(fit.fastest_cores)} cores slow an epoch down")
        return "; ".join(notes)

    @property
    def critical_in_words(self) -> str:
        """The critical number of cores as ``12.0 [11.2, 13.1]`` or ``at least 8``, or empty if unknown."""
        if self.fit is None or self.verdict == "not_identified":
            return ""
        return text.statement(self.verdict, *map(text.count, self.fit.critical_cores))


def curves(factorizations: Sequence[MeasuredFactorization]) -> list[CoreCurve]:
    """Returns the curves of factorizations, in order. Studies that were never timed are omitted."""
    timed = [measured for measured in factorizations if measured.hardware and len(measured.seconds)]
    result = []
    for group in workload_studies.alike(timed, _names, lambda measured: shared_plan(measured.study, ()), _in_words):
        by_cores = sorted(group.members, key=lambda measured: measured.study.cores)
        real, emulated = (tuple(run for run in by_cores if is_real(run) is wanted) for wanted in (True, False))
        result.append(CoreCurve(real, emulated, group.distinction))
    return result


def _names(factorization: MeasuredFactorization) -> tuple[Any, ...]:
    study, hardware = factorization.study, factorization.hardware
    kind = hardware and (hardware.backend, hardware.device_kind)
    return study.dataset, study.dim, study.solver, study.table_dtype, kind


def is_real(measured: MeasuredFactorization) -> bool:
    """Returns whether all cores of the study are known to be real. Otherwise, its times are not meaningful."""
    return measured.hardware is not None and measured.hardware.emulated is False


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


def table(curves: Sequence[CoreCurve]) -> pd.DataFrame:
    """Returns one row per curve with ``COLUMNS``."""
    return pd.DataFrame(map(_row, curves), columns=list(COLUMNS)).astype({"dim": "Int64"})


def _row(curve: CoreCurve) -> dict[str, Any]:
    study = curve.representative.study
    row = {name: getattr(study, name) for name in ("dataset", "dim", "solver", "table_dtype")}
    row |= {"device_kind": curve.representative.device, "verdict": curve.verdict, "reason": curve.reason}
    row["core_counts"] = " ".join(str(member.study.cores) for member in curve.members)
    if len(curve.members) > 1:
        row |= {"speedup": curve.speedup[-1], "efficiency": curve.efficiency[-1]}
    if curve.fit:
        row["misfit"] = curve.fit.misfit
        for name in (*TIMES, "critical_cores"):
            column = f"{name}_seconds" if name in TIMES else name
            for end, number in zip(("", "_low", "_high"), getattr(curve.fit, name), strict=True):
                row[f"{column}{end}"] = number if math.isfinite(number) else None
    return row


def fits(studies: Sequence[MeasuredFactorization]) -> tuple[pd.DataFrame, str]:
    """Returns a table of all curves' fits, and the same table formatted as text."""
    core_curves = curves(studies)
    return table(core_curves), as_text(core_curves)


def as_text(curves: Sequence[CoreCurve]) -> str:
    """Formats the fits as text: one line per fit, then speed-ups, reasons and the requirements for a fit."""
    rows, remarks = [], []
    for i, curve in enumerate(curves, start=1):
        study, members, fit = curve.representative.study, curve.members, curve.fit
        cells = {"": str(i), "dataset": study.dataset, "dim": str(study.dim), "solver": study.solver}
        cells |= {"dtype": study.table_dtype, "device": curve.representative.device or ""}
        cells["cores"] = ",".join(str(member.study.cores) for member in members)
        cells |= {f"{name} seconds": _interval(getattr(fit, name)) if fit else "" for name in TIMES}
        doubt = ", law misfits" if fit and fit.doubt else ""
        cells |= {"critical cores": curve.critical_in_words, "verdict": curve.verdict.replace("_", " ") + doubt}
        rows.append(cells)
        if len(members) > 1:
            gains = zip(members[1:], curve.speedup[1:], curve.efficiency[1:], strict=True)
            words = [f"{m.study.cores} cores {s:.2f} × ({e:.0%})" for m, s, e in gains]
            remarks.append((i, f"speed-up over {members[0].study.cores} (efficiency): {', '.join(words)}"))
        if curve.reason:
            remarks.append((i, curve.reason))
    notes = text.grouped(remarks)
    if any(curve.fit is None for curve in curves):
        notes.append(UNKNOWNS)
    left = ["dataset", "solver", "dtype", "device", "verdict"]
    shown = text.table(rows, left, prose=["verdict"], kept=["critical cores", "verdict"])
    return "\n".join([shown, "", *notes])


def _interval(interval: scaling.Interval) -> str:
    best, low, high = (text.number(value) for value in interval)
    return f"{best} [{low}, {high}]"
