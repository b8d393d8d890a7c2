"""Compares the results of two stores or releases for the same studies, and finds contradictions."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import contradictions, kind_views, text, workload_studies
from analysis.columns import COMPARE as COLUMNS
from analysis.contradictions import Finding, pair_up
from analysis.cores import measured_factorizations
from analysis.fitting import curves
from analysis.trials import steps_to_target, trials
from analysis.trials.trials import StudyTrials
from results import store, tables
from results.aliases import Fields, Json
from results.bad_input import BadInput, number_of
from results.durable import Folder, Location, location
from results.grouping import grouped
from results.plans.study import Target, TargetRequest, decimal, digest

RESULTS = {
    "differ": "differ",
    "agree": "agree within their intervals",
    "not_judged": "not judged",
    "same": "the same",
    "only_a": "only in A",
    "only_b": "only in B",
}
STEPS, CRITICAL, SECONDS, RECALLS = "steps", "critical_batch_size", "seconds_per_epoch", ("recall_20", "recall_50")
NAMING = ("what", "dataset", "model", "optimizer", "batch_size", "cores", "target_metric", "target_value")
PLAN = "plan"  # row key, not a column
BLOCKS = {"steps to target": (STEPS,), "critical batch sizes": (CRITICAL,), "factorizations": (SECONDS, *RECALLS)}


def table(a: Location, b: Location, request: TargetRequest = None) -> pd.DataFrame:
    """Returns a table with the columns ``COLUMNS``: answers, critical batch sizes and factorizations in A and B.

    Args:
      a, b: folders of stores or releases.
      request: metric and value to use instead of the studies' own targets.

    Raises:
      BadInput: one of the folders is not a store, or they have no study in common.
    """
    first, second = (_Contents(location(folder), request) for folder in (a, b))
    rows = [*_answers(first, second), *_curves(first, second), *_factorizations(first, second)]
    result = pd.DataFrame(_separated(rows), columns=list(COLUMNS))
    if result["result"].isin(["only_a", "only_b"]).all():
        raise BadInput(f"{a} and {b} have nothing in common: no workload at a batch size and target, no factorization")
    for name in ("a_low", "a_high", "b_low", "b_high"):
        numbers = result[name].to_numpy(np.float64)
        result[name] = np.where(np.isfinite(numbers), numbers, np.nan)
    return result.astype({"batch_size": "Int64", "cores": "Int64"})


def _separated(rows: Sequence[Json]) -> list[Json]:
    """Adds the plan fields that distinguish rows with the same names."""
    groups: dict[tuple[Any, ...], dict[str, Fields]] = {}
    for row in rows:
        groups.setdefault(_names(row), {})[digest(row[PLAN])] = row[PLAN]
    return [row | {"differs": workload_studies.distinction(digest(row[PLAN]), groups[_names(row)])} for row in rows]


def _names(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(str(row.get(name)) for name in NAMING)


def differs(table: pd.DataFrame) -> bool:
    """Returns whether any result in A contradicts one in B."""
    return bool((table["result"] == "differ").any())


class _Contents:
    """The contents of a store or release: trials by study name, curves and factorizations."""

    def __init__(self, folder: Folder, request: TargetRequest):
        commits = store.catalogue(folder)
        self.factorized = measured_factorizations.load(folder)
        self.answers: dict[tuple[Any, ...], list[StudyTrials]] = {}
        self.curves = []
        over_batches = {commit.name for commit in kind_views.drawn_as(kind_views.BATCH, commits)}
        if commits and not over_batches:
            return
        overview, target = steps_to_target.load(folder, request)
        commit_of = {commit.name: commit for commit in commits}
        for own_target, descriptions in steps_to_target.targets(overview, target).items():
            batched = [description for description in descriptions if description.study in over_batches]
            own_trials = trials.of_commits([commit_of[description.study] for description in batched], own_target)
            for description in batched:
                key = (
                    description.dataset,
                    description.model,
                    description.optimizer,
                    own_target,
                    description.batch_size,
                )
                self.answers.setdefault(key, []).append(own_trials[description.study])
        self.curves = curves.of_store(overview, target)


def _answers(a: _Contents, b: _Contents) -> Iterator[Json]:
    def order(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return *key[:3], key[3].metric, key[3].value, key[4]

    for key in sorted(a.answers.keys() | b.answers.keys(), key=order):
        first, second = a.answers.get(key, []), b.answers.get(key, [])
        for pair in pair_up(
            first, second, lambda trials_of_study: trials_of_study.study.plan_json, contradictions.stream, _unit
        ):
            plan = (pair.a or pair.b).study.plan()
            yield _row(STEPS, key[:4], contradictions.of_answers(pair), plan) | {"batch_size": key[4]}


def _unit(trials_of_study: StudyTrials) -> Hashable:
    return trials_of_study.study.batch_unit


def _curves(a: _Contents, b: _Contents) -> Iterator[Json]:
    sides = [grouped(contents.curves, contradictions.curve_names) for contents in (a, b)]
    for key in sides[0] | sides[1]:
        for pair in pair_up(
            sides[0].get(key, []),
            sides[1].get(key, []),
            lambda curve: curve.key,
            lambda curve: (curve.unit, curve.distinction),
            lambda curve: curve.unit,
        ):
            yield _row(CRITICAL, key, contradictions.of_curves(pair), (pair.a or pair.b).shared)


def _factorizations(a: _Contents, b: _Contents) -> Iterator[Json]:
    for pair in pair_up(a.factorized, b.factorized, contradictions.plan_of, contradictions.comparison_key):
        study = (pair.a or pair.b).study
        naming = *study.labels[:2], study.solver, None
        yield _row(SECONDS, naming, contradictions.of_times(pair), study.plan()) | {"cores": study.cores}
        for name in RECALLS:
            yield _row(name, naming, contradictions.of_recalls(pair, name), study.plan()) | {"cores": study.cores}


def _row(what: str, naming: Sequence[Any], finding: Finding, plan: Mapping[str, object]) -> Json:
    dataset, model, optimizer, target = naming
    row = {"what": what, "dataset": dataset, "model": model, "optimizer": optimizer, PLAN: plan}
    row |= {"result": finding.result, "why": finding.why}
    if isinstance(target, Target):
        row |= {"target_metric": target.metric, "target_value": target.value}
    for name, side in (("a", finding.a), ("b", finding.b)):
        if side is not None:
            row |= {f"{name}_{field}": value for field, value in side._asdict().items()}
    return row


def as_text(table: pd.DataFrame, a: object, b: object) -> str:
    """Formats the tables as text: all rows except equal answers, and the number of rows with each result."""
    blocks = [f"A: {a}\nB: {b}"]
    for title, what in BLOCKS.items():
        block = table[table["what"].isin(what)]
        counts = block["result"].value_counts()
        results = [f"{counts[result]:,} {words}" for result, words in RESULTS.items() if result in counts]
        lines = [f"{title}: {', '.join(results)}"] if results else []
        for result in ("only_a", "only_b"):
            names = [_naming(row) for row in block[block["result"] == result].to_dict("records")]
            if names:
                lines.append(f"{RESULTS[result]}: {text.first_few(names, '; ')}")
        is_same = (block["what"] == STEPS) & (block["result"] == "same")
        shown = block[~block["result"].isin(["only_a", "only_b"]) & ~is_same]
        if len(shown):
            lines.append(_shown(shown))
        if lines:
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _shown(rows: pd.DataFrame) -> str:
    """Formats rows as a table, contradictions first, with the reasons below."""
    order = rows["result"].map({result: i for i, result in enumerate(RESULTS)})
    records = rows.iloc[np.argsort(order.to_numpy(), kind="stable")].to_dict("records")
    distinctions = text.telling([row["differs"] for row in records], [_names(row) for row in records])
    whys = list(dict.fromkeys(row["why"] for row in records if row["why"]))
    lines = [
        [
            row["result"].replace("_", " "),
            f"[{whys.index(row['why']) + 1}]" if row["why"] else "",
            *(_statement(row, side) for side in "ab"),
            ", ".join(filter(None, (_naming(row), words))),
        ]
        for row, words in zip(records, distinctions, strict=True)
    ]
    header = ["", "by", "A", "B", "of"]
    shown = tables.table(header, lines, left=header, prose=["A", "B", "of"])
    return "\n".join([shown, *(f"[{i}] {why}" for i, why in enumerate(whys, 1))])


def _naming(row: Mapping[Any, Any]) -> str:
    words = [f"{row['dataset']} · {row['model']} · {row['optimizer']}"]
    if not pd.isna(row["batch_size"]):
        words.append(f"batch size {row['batch_size']:,}")
    if not pd.isna(row["cores"]):
        words.append(number_of(row["cores"], "core"))
    if not pd.isna(row["target_metric"]):
        words.append(f"{row['target_metric']} ≤ {decimal(row['target_value'])}")
    if row["what"] in BLOCKS["factorizations"]:
        words.append(row["what"].replace("_", " "))
    return ", ".join(words)


def _statement(row: Mapping[Any, Any], side: str) -> str:
    """Formats the result of A or B: an interval of steps, a critical batch size, or a number and its source."""
    low, high, words = (row[f"{side}_{name}"] for name in ("low", "high", "words"))
    if not isinstance(words, str):
        return ""
    if row["what"] == CRITICAL:
        return text.statement(words, "", text.number(low), text.number(high)).lstrip()
    if row["what"] == STEPS:
        if pd.isna(low):
            return words
        return f"({low:,.0f}, .." if pd.isna(high) else text.interval(low, high)
    if pd.isna(low):
        return f"unknown ({words})"
    shown = text.number(low, 4) if low == high else f"{text.number(low)} .. {text.number(high)}"
    return f"{shown} ({words})"
