"""Steps to target: the answers of a store, one per study and target."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import presentations, text
from analysis.columns import STEPS as COLUMNS
from results import command_line, store
from results.bad_input import BadInput, check_choice
from results.durable import Folder
from results.plans import kinds
from results.plans.recorded import SOURCE_LISTS, Recorded, same_runs
from results.plans.study import Target
from results.reading import overview
from results.reading.overview import Overview
from results.rules.answers import MINIMUM, Rule
from results.rules.choice import check_chooses
from results.rules.descriptions import StudyDescription
from results.storage.commits import read_table


def load(
    folder: Folder, asked: tuple[str, float] | None = None, rule: Rule = MINIMUM
) -> tuple[Overview, Target | None]:
    """A store that holds at least one run, and the target (metric, value) asked for instead of its own.

    Raises:
      BadInput: there is no store, nothing in it has run yet, no study recorded the metric, or it is of test where a
        study of ours has validation.
    """
    held = overview.survey(folder, rule)
    descriptions = held.descriptions
    held = held._replace(
        descriptions={
            name: each for name, each in descriptions.items() if presentations.PRESENTATIONS[each.kind].answers
        }
    )
    if descriptions and not held.descriptions:
        raise BadInput(f"no study in {folder} is of a kind that has steps to target")
    if not descriptions:
        raise BadInput(f"no study in {folder} has run yet; fill it with `python -m sweeps store={folder}`")
    if asked is None:
        return held, None
    check_choice("metric", asked[0], recorded_metrics(held))
    for one in held.descriptions.values():
        if one.source is None and asked[0] in one.metrics:
            check_chooses(asked[0], one.metrics)
    return held, Target(*asked)


def recorded_metrics(held: Overview) -> list[str]:
    """Metrics measured by any study, sorted."""
    return sorted({metric for one in held.descriptions.values() for metric in one.metrics})


def targets(held: Overview, asked: Target | None) -> dict[Target, list[StudyDescription]]:
    """The studies that each target is of: their own, or the one asked for where the workload has the metric.

    Raises:
      BadInput: no study has a target and none was asked for.
    """
    studies: dict[Target, list[StudyDescription]] = {}
    if asked is not None:
        workloads = {_workload(one) for one in held.descriptions.values() if asked.metric in one.metrics}
        return {asked: [one for one in held.descriptions.values() if _workload(one) in workloads]}
    for one in held.descriptions.values():
        for own in one.targets:
            studies.setdefault(Target(*own), []).append(one)
    if not studies:
        metrics = ", ".join(recorded_metrics(held))
        raise BadInput(f"no study has a target; ask for one with --metric and --value (recorded metrics: {metrics})")
    return studies


def without_pruned(held: Overview, asked: Target | None, what: str) -> tuple[Overview, list[str]]:
    """The studies with whole curves of all trials, and a note that names the others, if any.

    Raises:
      BadInput: there are only others, and ``what`` needs whole curves.
    """
    names = {one.study for descriptions in targets(held, asked).values() for one in descriptions}
    ours = {name for name in names if held.descriptions[name].source is None}  # nobody publishes pruned studies
    commits = store.catalogue(held.folder) if ours else []
    pruned = [commit.name for commit in commits if commit.name in ours and commit.study.pruning == "exact"]
    why = f"{what} needs whole curves, and pruning cut those of losing trials short: {text.first_few(pruned)}; "
    why += "run them with pruning=off, or ask for --rule minimum"
    if len(pruned) == len(names):
        raise BadInput(why)
    whole = {name: one for name, one in held.descriptions.items() if name not in pruned}
    return held._replace(descriptions=whole), [f"not in the table, as {why}"] if pruned else []


def table(held: Overview, asked: Target | None = None) -> pd.DataFrame:
    """The table of ``COLUMNS`` followed by ``study`` (its name).

    Whole numbers are Int64, so that a study that never reached its target has empty cells.
    """
    rows = []
    for target, descriptions in targets(held, asked).items():
        answers = held.answers(target, {one.study for one in descriptions})
        for one in descriptions:
            workload = (*_workload(one), one.batch_size, target.metric, target.value)
            counts = (one.complete, one.infeasible, one.incomplete)
            answer = answers.get(one.study, (None, None, None))
            rows.append((*workload, *answer, *counts, one.seconds_per_epoch, one.study))
    whole = ("batch_size", "steps_low", "steps_high", "trial", "complete", "infeasible", "incomplete")
    table = pd.DataFrame(rows, columns=[*COLUMNS, "study"])
    table = table.astype(dict.fromkeys(whole, "Int64") | {"seconds_per_epoch": np.float64})
    order = ["dataset", "model", "optimizer", "target_metric", "target_value", "batch_size", "study"]
    return table.sort_values(order, ignore_index=True)


def is_exact(own: Sequence[Target], target: Target, rule: Rule = MINIMUM) -> bool:
    """Whether a study measured enough to tell, whose trials stop once they have decided the targets ``own``."""
    values = [t.value for t in own if t.metric == target.metric]
    return not own or any(target.value > value or (target.value == value and not rule.strict) for value in values)


def notes(held: Overview, shown: pd.DataFrame, asked: Target | None) -> list[str]:
    """Notes for a reader of the table ``shown``, a sentence each."""
    rule, descriptions = held.rule, [held.descriptions[name] for name in dict.fromkeys(shown["study"])]
    ends_at = {a.study: [Target(*own) for own in a.targets] if a.stop == "target" else [] for a in descriptions}
    few = [one for one in descriptions if rule.first is not None and one.complete < rule.first]
    return notes_by_any_rule(held, shown, asked) + text.notes(
        {
            "trials stopped once they had decided their own targets, so steps to this one may be too many or missing": [
                name for name, own in ends_at.items() if asked and not is_exact(own, asked, rule)
            ],
            f"fewer than {rule.first} trials are COMPLETE, and all of them count": [
                f"{one.study} ({one.complete})" for one in few
            ],
        }
    )


def notes_by_any_rule(held: Overview, shown: pd.DataFrame, asked: Target | None) -> list[str]:
    """Notes for a reader of any table of answers ``shown`` (study, steps_high), a sentence each."""
    published = [name for name, one in held.descriptions.items() if one.source is not None and not one.targets]
    reached = set(shown.loc[shown["steps_high"].notna(), "study"])
    single = [name for name in dict.fromkeys(shown["study"]) if _only_ends(held.descriptions[name])]
    at_start = list(dict.fromkeys(shown.loc[shown["steps_high"].eq(0).fillna(False), "study"]))
    notes = {
        "not in the table, as no run has ended yet": held.waiting,
        "not in the table, as published studies have no targets of their own; --metric and --value ask for one": (
            published if asked is None else []
        ),
        "met at the start, before any step, and so in no fit": at_start,
        "only the end of each trial was published, and not the evaluation before it, so steps_low is 0 and says "
        "nothing": [name for name in single if name in reached],
    }
    return text.notes(notes) + (_lists(held, single) if single else [])


def _lists(held: Overview, names: Collection[str]) -> list[str]:
    """Notes on studies that list the same runs, and on those joined from several lists of a source."""
    commits = [commit for commit in store.catalogue(held.folder) if commit.name in names]
    again = same_runs(kinds.of_type([commit.study for commit in commits], Recorded))
    joined = [commit.name for commit in commits if SOURCE_LISTS in read_table(commit, "trials").column_names]
    runs = {
        "the very same runs, listed under contradicting metaparameters": [" and ".join(pair) for pair in again],
        f"joined from several lists of the same runs, see {SOURCE_LISTS} in the table of trials": joined,
    }
    return [f"{what}: {'; '.join(which)}" for what, which in runs.items() if which]


def readable(table: pd.DataFrame, rule: Rule = MINIMUM) -> str:
    """The table for a reader: interval and target in one column each."""
    whole = ["trial", "complete", "infeasible", "incomplete"]
    header = ["dataset", "model", "optimizer", "target", "batch size", "steps", "confirmed", *whole, "seconds/epoch"]
    rows = [
        [
            *(row["dataset"], row["model"], row["optimizer"]),
            f"{row['target_metric']} {rule.sign} {row['target_value']:g}",
            "" if pd.isna(row["batch_size"]) else f"{row['batch_size']:,}",
            "not reached" if pd.isna(row["steps_high"]) else text.interval(row["steps_low"], row["steps_high"]),
            _confirmed(row),
            *("" if pd.isna(row[column]) else f"{row[column]:,}" for column in whole),
            text.number(row["seconds_per_epoch"]),
        ]
        for row in table.to_dict("records")
    ]
    return command_line.table(header, rows, left=header[:4])


def _confirmed(row: Mapping[Any, Any]) -> str:
    """The median of repeats as an interval, or that most of them never got there; empty if there are none."""
    if pd.isna(row.get("repeats")):  # a table that was not asked for them has no such column
        return ""
    if pd.isna(row["confirmed_high"]):
        return f"{row['repeats_reached']} of {row['repeats']} reached"
    return text.interval(row["confirmed_low"], row["confirmed_high"])


def _workload(one: StudyDescription) -> tuple[str, str, str]:
    return one.dataset, one.model, one.optimizer


def _only_ends(one: StudyDescription) -> bool:
    """Whether a study that others measured has no more than one measurement a trial."""
    return one.source is not None and one.rows <= one.complete + one.infeasible + one.incomplete
