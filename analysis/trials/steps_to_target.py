"""Steps to target: the answers in a store, one per study and target."""

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from analysis import kind_views, text
from analysis.columns import STEPS as COLUMNS
from analysis.trials import rerun_targets
from results import printing, store
from results.bad_input import BadInput, check_choice
from results.catalog.overview import Overview, survey
from results.durable import Folder
from results.located import located
from results.plans import kinds
from results.plans.recorded import SOURCE_LISTS, Recorded, same_runs
from results.plans.study import RERUNS, Target, TargetRequest, decimal
from results.rules.answers import MINIMUM, Rule, check_chooses
from results.rules.descriptions import StudyDescription
from results.store import read_table

Wanted: TypeAlias = Target | Literal["reruns"] | None  # None stands for each study's own targets


LOGS = ("*tfevents*", "trainer_state.json", "*.csv", "*.jsonl")  # files that other trainers write


@located
def load(folder: Folder, request: TargetRequest = None, rule: Rule = MINIMUM) -> tuple[Overview, Wanted]:
    """Opens a store with at least one run. Also returns the requested target, if any.

    Raises:
      BadInput: there is no store, no study has run yet, no study recorded the metric, the metric uses test data
        although one of our own studies has validation data, or no trial can reach the value.
    """
    overview = survey(folder, rule)
    descriptions = overview.descriptions
    overview = overview._replace(
        descriptions={
            name: description
            for name, description in descriptions.items()
            if kind_views.PRESENTATIONS[description.kind].answers
        }
    )
    if descriptions and not overview.descriptions:
        raise BadInput(f"no study in {folder} has steps to target: its kinds have no targets")
    if not descriptions:
        fill = f"python -m sweeps store={printing.quoted(folder)}"
        raise BadInput(f"no study in {folder} has run yet. Fill it with `{fill}`.{_other_files(folder)}")
    if request is None or request == RERUNS:
        return overview, request
    check_choice("metric", request[0], recorded_metrics(overview))
    for description in overview.descriptions.values():
        if not _is_recorded(description) and request[0] in description.metrics:
            check_chooses(request[0], description.metrics)
    target = Target(*request)
    target.check_possible("--value")
    return overview, target


def recorded_metrics(overview: Overview) -> list[str]:
    """Returns all metrics that were measured by any study, sorted."""
    return sorted({metric for description in overview.descriptions.values() for metric in description.metrics})


def targets(overview: Overview, request: Wanted) -> dict[Target, list[StudyDescription]]:
    """Returns each target with its studies: their own targets, or the requested one if their workload has its metric.

    Raises:
      BadInput: no study has a target and no target was requested, or there is no target that reruns reach.
    """
    studies: dict[Target, list[StudyDescription]] = {}
    descriptions = overview.descriptions.values()
    if request == RERUNS:
        return rerun_targets.targets(overview)
    if request is not None:
        workloads = {_workload(description) for description in descriptions if request.metric in description.metrics}
        return {request: [description for description in descriptions if _workload(description) in workloads]}
    for description in descriptions:
        for target in description.targets:
            studies.setdefault(Target(*target), []).append(description)
    if not studies:
        raise BadInput(f"no study has a target. Set one with --metric and --value{_proposal(overview)}.")
    return studies


def _proposal(overview: Overview) -> str:
    """Returns a target for an error message: the hardest that some trial of each study reaches, and all metrics."""
    metrics = recorded_metrics(overview)
    for metric in sorted(metrics, key=lambda name: (not name.startswith("validation"), name.startswith("test"))):
        lowest = overview.lowest(metric, set(overview.descriptions))
        hardest = max(lowest.values(), default=math.nan)
        if len(lowest) == len(overview.descriptions) and 0 < hardest < math.inf:
            digit = 10.0 ** (math.floor(math.log10(hardest)) - 2)
            value = decimal(float(f"{math.ceil(hardest / digit) * digit:.3g}"))
            words = f"such as --metric {metric} --value {value}, which every batch size reaches"
            return f", {words} (recorded metrics: {', '.join(metrics)})"
    return f" (recorded metrics: {', '.join(metrics)})"


def _other_files(folder: Folder) -> str:
    """Returns the end of the error message for a folder with other files, such as logs from other programs."""
    if not folder.is_dir():
        return ""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    inner = (inside for path in visible if path.is_dir() for inside in path.iterdir())
    if any(fnmatch.fnmatch(path.name, pattern) for path in (*visible, *inner) for pattern in LOGS):
        map_words = f"python -m results import runs {printing.quoted(folder)} --suggest-map --map runs.yaml"
        return f" To import the logs of your own runs, start with `{map_words}`."
    if any(path.is_file() for path in visible):
        return " Steps measured elsewhere go into a CSV file: python -m analysis fit --points FILE"
    return ""


def without_pruned(overview: Overview, request: Wanted, what: str) -> tuple[Overview, list[str]]:
    """Returns the studies without pruning and, if any are pruned, a note with their names.

    Raises:
      BadInput: all studies are pruned, but ``what`` needs complete curves.
    """
    names = {description.study for descriptions in targets(overview, request).values() for description in descriptions}
    # Only our own commits need to be opened.
    measured_here = {name for name in names if not _is_recorded(overview.descriptions[name])}  # others are not pruned
    commits = store.catalogue(overview.folder) if measured_here else []
    pruned = [
        commit.name for commit in commits if commit.name in measured_here and commit.study.search.pruning == "exact"
    ]
    why = f"{what} needs whole curves, but pruning cut those of losing trials short: {text.first_few(pruned)}. "
    why += "Run them with pruning=off, or use --rule minimum."
    if len(pruned) == len(names):
        raise BadInput(why)
    unpruned = {name: description for name, description in overview.descriptions.items() if name not in pruned}
    return overview._replace(descriptions=unpruned), [f"not in the table: {why}"] if pruned else []


def table(overview: Overview, request: Wanted = None) -> pd.DataFrame:
    """Returns a table with the columns ``COLUMNS``, followed by ``study`` (the study's name).

    Integer columns are Int64, so studies that never reached their target have empty cells.
    """
    rows = []
    for target, descriptions in targets(overview, request).items():
        answers = overview.answers(target, {description.study for description in descriptions})
        for description in descriptions:
            workload = (*_workload(description), description.batch_size, target.metric, target.value)
            counts = (description.complete, description.infeasible, description.incomplete)
            answer = answers.get(description.study, (None, None, None))
            rows.append((*workload, *answer, *counts, description.seconds_per_epoch, description.study))
    integers = ("batch_size", "steps_low", "steps_high", "trial", "complete", "infeasible", "incomplete")
    table = pd.DataFrame(rows, columns=[*COLUMNS, "study"])
    table = table.astype(dict.fromkeys(integers, "Int64") | {"seconds_per_epoch": np.float64})
    order = ["dataset", "model", "optimizer", "target_metric", "target_value", "batch_size", "study"]
    return table.sort_values(order, ignore_index=True)


def add_best(table: pd.DataFrame, overview: Overview) -> pd.DataFrame:
    """Adds ``best_value`` to a table of answers (study, target_metric, ...): the best value of any trial, or NaN."""
    lowest = {
        metric: overview.lowest(str(metric), set(rows["study"]))
        for metric, rows in table.groupby("target_metric", sort=False)
    }
    pairs = zip(table["target_metric"], table["study"], strict=True)
    return table.assign(best_value=[lowest[metric].get(name, np.nan) for metric, name in pairs])


def is_exact(own_targets: Sequence[Target], target: Target, rule: Rule = MINIMUM) -> bool:
    """Returns whether trials that stop once they have decided ``own_targets`` also decide ``target``."""
    values = [t.value for t in own_targets if t.metric == target.metric]
    return not own_targets or any(
        target.value > value or (target.value == value and not rule.strict) for value in values
    )


def notes(overview: Overview, shown: pd.DataFrame, request: Wanted) -> list[str]:
    """Returns notes on the table ``shown``, of one sentence each."""
    rule, descriptions = overview.rule, [overview.descriptions[name] for name in dict.fromkeys(shown["study"])]
    # Trials that ended at their targets may not have reached a harder one.
    ends_at = {
        a.study: [Target(*targets_of_study) for targets_of_study in a.targets] if a.stop == "target" else []
        for a in descriptions
    }
    few = [description for description in descriptions if rule.first is not None and description.complete < rule.first]
    published = [
        name
        for name, description in overview.descriptions.items()
        if _is_recorded(description) and not description.targets
    ]
    reached = set(shown.loc[shown["steps_high"].notna(), "study"])
    single = [description.study for description in descriptions if _only_ends(description)]
    general = {
        "not in the table, because no run has ended yet": overview.waiting,
        "not in the table, because published studies have no targets (set one with --metric and --value)": (
            published if request is None else []
        ),
        "met at the start, before any step, so not used in fits": list(
            dict.fromkeys(shown.loc[shown["steps_high"].eq(0).fillna(False), "study"])
        ),
        "only the end of each trial was published, not the evaluation before it, so steps_low is 0": [
            name for name in single if name in reached
        ],
    }
    by_rule = text.notes(
        {
            "trials stopped once they had decided their targets, so steps to this one may be too many or missing": [
                name
                for name, targets_of_study in ends_at.items()
                if isinstance(request, Target) and not is_exact(targets_of_study, request, rule)
            ],
            f"fewer than {rule.first} trials are COMPLETE, so all of them count": [
                f"{description.study} ({description.complete})" for description in few
            ],
        }
    )
    return text.notes(general) + (_lists(overview, single) if single else []) + by_rule


def _lists(overview: Overview, names: Collection[str]) -> list[str]:
    """Returns notes on studies that list the same runs, and on studies that combine several lists from a source."""
    commits = [commit for commit in store.catalogue(overview.folder) if commit.name in names]
    duplicates = same_runs(kinds.of_type([commit.study for commit in commits], Recorded))
    joined = [commit.name for commit in commits if SOURCE_LISTS in read_table(commit, "trials").column_names]
    runs = {
        "identical runs, listed with contradicting metaparameters": [" and ".join(pair) for pair in duplicates],
        f"joined from several lists of the same runs (see {SOURCE_LISTS} in the table of trials)": joined,
    }
    return [f"{what}: {'; '.join(which)}" for what, which in runs.items() if which]


NAMES = ("dataset", "model", "optimizer", "target", "unit", "differs")  # columns for a reader
LEAST = ("seconds/epoch", "trial", "incomplete", "infeasible", "complete")  # columns that a narrow terminal drops first


def as_text(table: pd.DataFrame, rule: Rule = MINIMUM) -> str:
    """Formats the table as text, with the interval and the target in one column each."""
    rows = []
    for row in table.to_dict("records"):
        cells = names(row, rule) | {"batch size": whole(row["batch_size"])}
        if pd.isna(row["steps_high"]):
            cells |= {"steps": "not reached", "best value": text.number(row.get("best_value", np.nan))}
        else:
            cells |= {"steps": text.interval(row["steps_low"], row["steps_high"]), "best value": ""}
        cells["confirmed"] = _confirmed(row)
        cells |= {name: whole(row[name]) for name in ("trial", "complete", "infeasible", "incomplete")}
        rows.append(cells | {"seconds/epoch": text.number(row["seconds_per_epoch"])})
    return text.table(
        rows, NAMES, ("unit", "differs", "best value"), least=LEAST, kept=("steps", "best value", "differs")
    )


def whole(number: Any) -> str:
    """Formats an integer, or returns an empty string if it is missing."""
    return "" if pd.isna(number) else f"{number:,}"


def names(row: Mapping[Any, Any], rule: Rule = MINIMUM) -> dict[str, str]:
    """Returns the cells of ``NAMES``: workload, target, and any fields that distinguish the row from similar ones."""
    cells = {name: row[name] for name in NAMES[:3]}
    cells["target"] = f"{row['target_metric']} {rule.sign} {decimal(row['target_value'])}"
    return cells | {"unit": row.get("unit", ""), "differs": row.get("apart", "")}


def _confirmed(row: Mapping[Any, Any]) -> str:
    """Formats the median of repeats as an interval, or else the number that reached the target. "" without repeats."""
    if pd.isna(row.get("repeats")):  # some tables lack this column
        return ""
    if pd.isna(row["confirmed_high"]):
        return f"{row['repeats_reached']} of {row['repeats']} reached"
    return text.interval(row["confirmed_low"], row["confirmed_high"])


def _workload(description: StudyDescription) -> tuple[str, str, str]:
    return description.dataset, description.model, description.optimizer


def _is_recorded(description: StudyDescription) -> bool:
    return kinds.KINDS[description.kind].recorded


def _only_ends(description: StudyDescription) -> bool:
    """Returns whether a published study has at most one measurement per trial."""
    return (
        _is_recorded(description)
        and description.rows <= description.complete + description.infeasible + description.incomplete
    )
