"""Steps to target: the answers of a store, one per study and target."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import text
from results import answers, store
from results.bad_input import BadInput, check_choice
from results.study import Study, Target, digest

COLUMNS = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "batch_size": "global batch size, examples",
    "target_metric": "the error that has to come down",
    "target_value": "how far down: reached at or below this value",
    "steps_low": "the best trial crossed the target after more steps than this ...",
    "steps_high": "... and at most this many; both empty if no trial reached the target",
    "trial": "the trial that needed the fewest steps; of equals the one with the smallest number",
    "complete": "trials that reached every target or used up their budget",
    "infeasible": "trials that diverged",
    "incomplete": "trials that were pruned, lost, failed or ran out of time",
    "seconds_per_epoch": "of the newest run that measured it; empty where devices were emulated",
}
# A curve varies these and nothing else of a study's plan: budgets and search spaces may have to follow the batch size.
VARIED = ("batch_size", "budget_steps", "evaluation_spacing", "space")


def load(folder: Path, asked: tuple[str, float] | None = None) -> tuple[store.Tables, Target | None]:
    """All tables of a store that holds at least one run, and the target (metric, value) asked for instead of its own.

    Raises:
      BadInput: there is no store, nothing in it has run yet, or no study recorded the metric.
    """
    tables = store.read(folder)
    if not len(tables.studies):
        raise BadInput(f"no study in {folder} has run yet; fill it with `python -m sweeps store={folder}`")
    if asked is None:
        return tables, None
    check_choice("metric", asked[0], recorded_metrics(tables))
    return tables, Target(*asked)


def plans(tables: store.Tables) -> dict[str, Study]:
    """The studies that have a run, by name."""
    newest = tables.studies.drop_duplicates("study", keep="last")
    return {
        name: Study.from_plan(json.loads(plan), int(trials))
        for name, plan, trials in zip(newest["study"], newest["plan"], newest["planned_trials"], strict=True)
    }


def shared_plan(study: Study) -> dict[str, object]:
    """What all studies of a curve agree on: the plan without ``VARIED``."""
    return {field: value for field, value in study.plan().items() if field not in VARIED}


def recorded_metrics(tables: store.Tables) -> list[str]:
    """Metrics measured by any study, sorted."""
    return sorted(set(tables.measurements.columns) - {"study", "trial", "step"})


def targets(tables: store.Tables, asked: Target | None) -> dict[str, tuple[Target, ...]]:
    """The targets of each study, by name of the study: its own, or the one asked for.

    Raises:
      BadInput: no study has a target and none was asked for.
    """
    found = {name: study.targets if asked is None else (asked,) for name, study in plans(tables).items()}
    if not any(found.values()):
        known = ", ".join(recorded_metrics(tables))
        raise BadInput(f"no study has a target; ask for one with --metric and --value (recorded metrics: {known})")
    return found


def is_exact(study: Study, target: Target) -> bool:
    """Whether the study measured enough to tell: its trials stop once they have decided its own targets."""
    own = [t.value for t in study.targets if t.metric == target.metric]
    return not study.targets or (bool(own) and target.value >= min(own))


def table(tables: store.Tables, asked: Target | None = None) -> pd.DataFrame:
    """The table of ``COLUMNS`` followed by ``study`` (its name) and ``curve`` (what is alike along a curve, digested).

    Whole numbers are Int64, so that a study that never reached its target has empty cells.
    """
    wanted = pd.DataFrame(
        [(name, t.metric, t.value) for name, own in targets(tables, asked).items() for t in own],
        columns=["study", "target_metric", "target_value"],
    )
    keys = ["study", "target_metric", "target_value"]
    best = [
        _best(answers.intervals(tables.measurements, Target(metric, value))).assign(
            target_metric=metric, target_value=value
        )
        for metric, value in wanted[keys[1:]].drop_duplicates().itertuples(index=False)
    ]
    rows = wanted.merge(_about(tables), on="study").merge(pd.concat(best), on=keys, how="left")
    rows = rows.sort_values(
        ["dataset", "model", "optimizer", "target_metric", "target_value", "batch_size", "curve", "study"],
        ignore_index=True,
    )
    whole = ["batch_size", "steps_low", "steps_high", "trial", "complete", "infeasible", "incomplete"]
    return rows.astype(dict.fromkeys(whole, "Int64"))[[*COLUMNS, "study", "curve"]]


def _best(trials: pd.DataFrame) -> pd.DataFrame:
    """The answer of each study that has one, from the trials that reached its target."""
    winner = trials.sort_values(["study", "steps_high", "trial"]).drop_duplicates("study")
    lowest = trials.groupby("study")["steps_low"].min()
    return winner.assign(steps_low=winner["study"].map(lowest))


def _about(tables: store.Tables) -> pd.DataFrame:
    """One row per study: its workload, its curve, its counts of trials and its seconds per epoch."""
    newest = tables.studies.drop_duplicates("study", keep="last")
    about = newest[["study", "dataset", "model", "optimizer", "batch_size"]].copy()
    curves = {name: digest(shared_plan(study)) for name, study in plans(tables).items()}
    about["curve"] = about["study"].map(curves)
    for status in ("COMPLETE", "INFEASIBLE", "INCOMPLETE"):
        counts = tables.trials.loc[tables.trials["status"] == status, "study"].value_counts()
        about[status.lower()] = about["study"].map(counts).fillna(0)
    timed = tables.studies[tables.studies["seconds_per_epoch"].notna()].drop_duplicates("study", keep="last")
    seconds = timed["seconds_per_epoch"].where(~timed["emulated"].astype(bool))
    about["seconds_per_epoch"] = about["study"].map(dict(zip(timed["study"], seconds, strict=True))).astype(np.float64)
    return about


def notes(folder: Path, tables: store.Tables, asked: Target | None) -> list[str]:
    """What a reader of the table has to know, a sentence each."""
    studies = plans(tables)
    found = []
    waiting = sorted(set(store.names(folder)) - set(studies))
    if waiting:
        found.append(f"not in the table, as no run has ended yet: {_some(waiting)}")
    inexact = [name for name, study in studies.items() if asked and not is_exact(study, asked)]
    if inexact:
        found.append(
            "trials stopped once they had decided their own targets, so steps to this one may be too many or missing: "
            + _some(inexact)
        )
    return found


def readable(table: pd.DataFrame) -> str:
    """The table for a reader: interval and target in one column each."""
    whole = ["trial", "complete", "infeasible", "incomplete"]
    header = ["dataset", "model", "optimizer", "target", "batch size", "steps", *whole, "seconds/epoch"]
    rows = [
        [
            *(row["dataset"], row["model"], row["optimizer"]),
            f"{row['target_metric']} ≤ {row['target_value']:g}",
            f"{row['batch_size']:,}",
            "not reached" if pd.isna(row["steps_high"]) else f"({row['steps_low']:,}, {row['steps_high']:,}]",
            *("" if pd.isna(row[column]) else f"{row[column]:,}" for column in whole),
            text.number(row["seconds_per_epoch"]),
        ]
        for row in table.to_dict("records")
    ]
    return text.aligned(header, rows, left=header[:4])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
