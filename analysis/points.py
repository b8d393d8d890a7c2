"""Points of a store: what every study answers to each of its targets, beside the fit of the curve that it is on."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis import presentations, workload_studies
from analysis.cores import factorizations
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from results import store
from results.durable import Folder, located
from results.plans import kinds, schema
from results.plans.plan import Plan
from results.plans.points import POINTS
from results.plans.study import METRICS, Target
from results.reading import licences, overview
from results.rules.answers import Answer
from results.storage.commits import Commit, read_table

Fits = Mapping[str, CurveFits]


@located
def table(folder: Folder) -> pa.Table:
    """The points of a store or a release, sorted by study and target: columns ``POINTS``, then metaparameters.

    Raises:
      BadInput: there is no store, or it is damaged.
    """
    held = overview.survey(folder)
    commits = [commit for commit in store.catalogue(folder) if commit.name in held.descriptions]
    by_target: dict[Target | None, list[Commit]] = {}
    for commit in commits:
        wanted: list[Target | None] = [*targets(commit.study)]
        for own in wanted or [None]:
            by_target.setdefault(own, []).append(commit)
    chosen = _chosen(folder, commits)
    rows: list[dict[str, Any]] = []
    for target, members in by_target.items():
        names = {commit.name for commit in members}
        answers = held.answers(target, names) if target else {}
        fits = _fits(members, target) if target else {}
        for commit in members:
            answer = answers.get(commit.name)
            rows.append(_row(commit, target, answer, chosen.get(commit.name), fits.get(commit.name)))
    rows.sort(key=lambda row: (row["study"], row["target_metric"] or "", row["target_value"] or 0.0))
    known = {column.name for column in POINTS}
    tuned = sorted({name for row in rows for name in row} - known)
    data = {name: [row.get(name) for row in rows] for name in (*(column.name for column in POINTS), *tuned)}
    return schema.build(POINTS, data, dict.fromkeys(tuned, pa.float64()))


def targets(study: Plan) -> list[Target]:
    """The targets of a study: its own, or those that its source states; MLPerf's is met where nothing falls short."""
    if study.targets or not kinds.KINDS[study.kind].recorded:
        return list(study.targets)
    stated = study.plan()["details"].get("targets")
    if isinstance(stated, Mapping):
        return [Target(name, value) for name, value in sorted(stated.items()) if name in METRICS]
    return [Target("validation_shortfall", 0.0)] if study.source == "mlperf-rcp" else []


def _fits(commits: list[Commit], target: Target) -> dict[str, CurveFits]:
    """The curve that each study is on, with its fits, by the name of the study."""
    drawn = kinds.of_kind(commits, *presentations.kinds_drawn_as(presentations.BATCH))
    measured = [commit for commit in drawn if target.metric in commit.metrics]
    by_study: dict[str, CurveFits] = {}
    for workload in workload_studies.group(measured):
        fitted = curve_fits.of_workload(workload, target)
        by_study |= {commit.name: fitted for commit in workload.commits}
    return by_study


def _chosen(folder: Folder, commits: list[Commit]) -> dict[str, tuple[int | None, float | None]]:
    """Of every factorization the trial that validation chose, and its seconds per epoch on cores of its own."""
    if not kinds.of_kind(commits, "cores"):
        return {}
    found = {}
    for one in factorizations.load(folder):
        emulated = one.hardware is None or one.hardware.emulated
        middle = None if emulated or not len(one.seconds) else float(statistics.median(one.seconds))
        found[one.study.name] = (one.chosen, middle)
    return found


def _row(
    commit: Commit,
    target: Target | None,
    answer: Answer | None,
    chosen: tuple[int | None, float | None] | None,
    fitted: CurveFits | None,
) -> dict[str, Any]:
    study, plan, terms = commit.study, commit.plan, licences.terms(commit.plan)
    trials, runs = read_table(commit, "trials"), read_table(commit, "studies")
    search = trials.filter(pc.equal(trials["role"], "search"))
    statuses = search["status"].to_pylist()
    trial = answer.trial if answer else chosen[0] if chosen else None
    row = {
        "study": study.name,
        "kind": study.kind,
        "source": terms.source,
        "licence": terms.licence,
        "dataset": study.dataset,
        "dataset_version": plan.get("dataset_version"),
        "model": study.model_label,
        "optimizer": study.optimizer,
        "schedule": plan.get("schedule"),
        "batch_size": study.batch_size,
        "cores": plan.get("cores"),
        "target_metric": target and target.metric,
        "target_value": target and target.value,
        "reached": None if target is None else answer is not None,
        "steps_low": answer.steps_low if answer else _not_within(search) if target else None,
        "steps_high": answer and answer.steps_high,
        "examples": answer.steps_high * study.batch_size if answer and study.batch_size else None,
        "trial": trial,
        "trials": len(statuses),
        "complete": statuses.count("COMPLETE"),
        "infeasible": statuses.count("INFEASIBLE"),
        "incomplete": statuses.count("INCOMPLETE"),
        "seconds_per_epoch": chosen[1]
        if chosen
        else _last(runs.filter(pc.invert(_emulated(runs))), "seconds_per_epoch"),
        "device_kind": _last(runs, "device_kind"),
        "comparable": plan.get("comparable"),
    }
    if trial is not None:
        (best,) = trials.filter(pc.equal(trials["trial"], trial)).to_pylist()
        row |= {"seed": best["seed"], **{name: best[name] for name in trials.column_names[len(schema.TRIALS) :]}}
    return row | (_of_curve(study, target, fitted) if fitted and target else {})


def _not_within(search: pa.Table) -> int | None:
    """The steps that no trial reached its target in, where none did; a trial that diverged never will."""
    going = search.filter(pc.not_equal(search["status"], "INFEASIBLE"))["steps"]
    return None if not len(going) else pc.min(pc.fill_null(going, 0)).as_py()


def _of_curve(study: Plan, target: Target, fitted: CurveFits) -> dict[str, Any]:
    row: dict[str, Any] = {"curve": f"{fitted.curve.workload.title} · {target.metric} ≤ {target.value:g}"}
    for one in fitted.confirmations:
        if one.study == study.name:
            row |= {
                "confirmed_trial": one.chosen,
                "confirmed_low": _finite(one.median[0]),
                "confirmed_high": _finite(one.median[1]),
                "repeats": one.repeats,
                "repeats_reached": one.reached,
            }
    row |= dict(_of_fit("", fitted.selected))
    return row | (dict(_of_fit("confirmed_", fitted.confirmed)) if fitted.confirmed else {})


def _of_fit(prefix: str, points_fit: PointsFit) -> Iterator[tuple[str, Any]]:
    fit = points_fit.fit
    if fit is not None:
        identified = points_fit.verdict == "identified"
        yield f"{prefix}critical_batch_size", _finite(fit.critical_batch_size) if identified else None
        yield f"{prefix}critical_low", _finite(fit.low)
        yield f"{prefix}critical_high", _finite(fit.high)
    yield f"{prefix}verdict", points_fit.verdict


def _emulated(runs: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(runs["emulated"], False)


def _last(runs: pa.Table, column: str) -> Any:
    """The value of the newest run that has one."""
    return next((value for value in reversed(runs[column].to_pylist()) if value is not None), None)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
