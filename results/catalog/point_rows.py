"""Rows of a release's points table, derived from the tables of one study. Fits of curves are added elsewhere.

Export and `results verify` both use these functions.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from results.aliases import Row
from results.catalog import licences
from results.plans import plan_columns, schema
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.plan_columns import targets
from results.plans.points import POINTS
from results.plans.study import ACCIDENTS, Target
from results.rules import answers, confirmation
from results.rules.answers import Reached
from results.rules.confirmation import CONFIRM, SEARCH
from results.storage.commits import Commit
from results.storage.compaction import Piece

Trials = Mapping[int, Row]  # rows of the trials table, by id
FROM_PLANS = ("dataset_version", "schedule", "cores", "solver", "dim", "table_dtype", "solver_dtype", "mesh", "layout")
CHOOSING = ("validation_recall_20_error", "test_recall_20_error")  # the first one measured selects factorization trials
HALVES = ("row_half_seconds", "column_half_seconds")
ENDED = ("COMPLETE", "INFEASIBLE")  # a trial that ended like this will never reach another target


def of_study(commit: Commit, study: Plan, tables: Piece) -> list[Row]:
    """Returns the rows of a study without fits: one per target, or a single row if there are no targets.

    Args:
      commit: the study's commit.
      study: the study's plan.
      tables: the study's tables.
    """
    rows = tables.trials.select(["trial", "run", "role", "status", "reason", "steps"]).to_pylist()
    trials = {row["trial"]: row for row in rows}
    common = _of_plan(commit, study) | _counts(trials) | _of_runs(tables.studies)
    goals = targets(study)
    if goals:
        return [common | _answered(commit, study, target, trials, tables) for target in goals]
    chosen = _chosen(trials, tables.measurements)
    if chosen is None:
        return [common]
    timed = _median_seconds(chosen, trials, tables)
    return [common | _of_trial(chosen, trials, tables) | {"median_epoch_seconds": timed}]


def table(rows: Iterable[Row]) -> pa.Table:
    """Returns the points table, sorted by study and target: the columns ``POINTS``, then metaparameters."""
    ordered = sorted(rows, key=lambda row: (row["study"], row.get("target_metric") or "", row.get("target_value") or 0))
    names = [column.name for column in POINTS]
    tuned = sorted({name for row in ordered for name in row} - set(names))
    data = {name: [row.get(name) for row in ordered] for name in (*names, *tuned)}
    return schema.build(POINTS, data, dict.fromkeys(tuned, pa.float64()))


def _of_plan(commit: Commit, study: Plan) -> Row:
    plan, terms = commit.plan, licences.terms(commit.plan)
    options, details = plan.get("dataset_options"), plan.get("details") or {}
    records = details.get("records")
    return (
        {name: plan.get(name) for name in FROM_PLANS}
        | plan_columns.names(study)
        | {
            "study": study.name,
            "kind": study.kind,
            "source": terms.source,
            "licence": terms.licence,
            "records": "; ".join(map(str, records)) if isinstance(records, list) else None,
            "dataset_options": json.dumps(options, sort_keys=True) if options else None,
            "pruning": study.search.pruning,
            "stop": None if KINDS[study.kind].recorded else study.search.stop,
            "engine": plan.get("engine"),
            "comparable": plan.get("comparable"),
        }
    )


def _counts(trials: Trials) -> Row:
    statuses = _in_role(SEARCH, trials, "status")
    counts = {status.lower(): statuses.count(status) for status in (*ENDED, "INCOMPLETE")}
    return {"trials": len(statuses), **counts}


def _in_role(role: str, trials: Trials, column: str) -> list[Any]:
    """Returns the values of a column for the trials with a given role."""
    return [row[column] for row in trials.values() if row["role"] == role]


def _of_runs(runs: pa.Table) -> Row:
    """Returns the speed and the device, as recorded by the newest run that has them."""
    emulated = runs["emulated"].to_pylist()
    seconds = [None if e else s for e, s in zip(emulated, runs["seconds_per_epoch"].to_pylist(), strict=True)]
    return {"seconds_per_epoch": _last(seconds), "device_kind": _last(runs["device_kind"].to_pylist())}


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def _answered(commit: Commit, study: Plan, target: Target, trials: Trials, tables: Piece) -> Row:
    at_target = answers.of_table(tables.measurements, target)
    searched = _in_role(SEARCH, trials, "trial")
    answer = at_target.of(searched).answer()
    row = {"target_metric": target.metric, "target_value": target.value}
    if answer is None:
        is_measured = target.metric in tables.measurements.column_names
        return row | (_not_within(trials, searched) if is_measured else {})
    row |= {"reached": True, "steps_low": answer.steps_low, "steps_high": answer.steps_high}
    size = plan_columns.names(study)["batch_size"]
    row["examples"] = answer.steps_high * size if size else None
    row |= _of_trial(answer.trial, trials, tables)
    return row | (_confirmed(study, target, trials, at_target) if commit.repeats.confirm else {})


def _not_within(trials: Trials, searched: Sequence[int]) -> Row:
    """Returns a lower bound on the steps to target if no trial reached the target. Diverged trials do not count."""
    steps = [trials[trial]["steps"] for trial in searched if trials[trial]["status"] != "INFEASIBLE"]
    if None in steps:
        return {}
    return {"reached": False, "steps_low": min(steps, default=None)}


def _of_trial(trial: int, trials: Trials, tables: Piece) -> Row:
    """Returns the selected trial, with its seed and metaparameters."""
    (row,) = tables.trials.slice(list(trials).index(trial), 1).to_pylist()
    tuned = tables.trials.column_names[len(schema.TRIALS) :]
    return {name: row[name] for name in ("trial", "seed", *tuned)}


def _confirmed(study: Plan, target: Target, trials: Trials, at_target: Reached) -> Row:
    """Returns the result of the repeats of the best trials."""
    repeats = _in_role(CONFIRM, trials, "trial")
    high = dict(zip(at_target.trial.tolist(), at_target.high.tolist(), strict=True))
    low = dict(zip(at_target.trial.tolist(), at_target.low.tolist(), strict=True))
    ended = {trial for trial in repeats if trial in high or trials[trial]["status"] in ENDED}
    valid = {trial for trial in repeats if trial in ended or trials[trial]["reason"] not in ACCIDENTS}
    low |= {trial: trials[trial]["steps"] for trial in valid - ended}  # stopped early, so it needs more steps
    searched = {trial: high[trial] for trial in _in_role(SEARCH, trials, "trial") if trial in high}
    reports = confirmation.reporting(study, target, searched, {trial: high.get(trial, math.inf) for trial in valid})
    if not reports:
        return {}
    median = confirmation.median(*([ends.get(trial, math.inf) for trial in reports.ids] for ends in (low, high)))
    return {
        "confirmed_trial": reports.chosen,
        "confirmed_low": finite(median[0]),
        "confirmed_high": finite(median[1]),
        "repeats": len(reports.ids),
        "repeats_reached": sum(trial in high for trial in reports.ids),
    }


def finite(value: float) -> float | None:
    """Returns a number for a column in which NaN and infinity are stored as null."""
    return float(value) if math.isfinite(value) else None


def _chosen(trials: Trials, measured: pa.Table) -> int | None:
    """Returns the trial selected on validation data, like ``analysis.cores.measured_factorizations``, or None."""
    if HALVES[0] not in measured.column_names or not len(measured):
        return None
    trial = measured["trial"].to_numpy()
    values = [measured[name].to_numpy() for name in CHOOSING if name in measured.column_names]
    value = next((column for column in values if not np.isnan(column).all()), None)
    if value is None:
        return None
    last = np.flatnonzero(np.append(trial[1:] != trial[:-1], True))
    recall = dict(zip(trial[last].tolist(), (np.float32(1) - value[last]).tolist(), strict=True))
    for wanted in ("COMPLETE", "INCOMPLETE"):
        candidates = [i for i in recall if trials[i]["status"] == wanted]
        if candidates:
            return max(candidates, key=lambda i: (-math.inf if math.isnan(recall[i]) else recall[i], -i))
    return None


def _median_seconds(chosen: int, trials: Trials, tables: Piece) -> float | None:
    """Returns a trial's median solve time per epoch in seconds, or None if cores were emulated or not timed."""
    runs = dict(zip(tables.studies["run"].to_pylist(), tables.studies["emulated"].to_pylist(), strict=True))
    if runs.get(trials[chosen]["run"], True):
        return None
    is_chosen = tables.measurements["trial"].to_numpy() == chosen
    rows, columns = (tables.measurements[name].to_numpy()[is_chosen] for name in HALVES)
    seconds = [float(str(value)) for value in rows + columns if math.isfinite(value)]  # float32 digits, as decimals
    return float(statistics.median(seconds)) if seconds else None
