"""Distinctions: what tells rows of a table of answers apart whose names, batch sizes and targets are the same."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import workload_studies
from results import store
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.study import digest
from results.reading.overview import Overview

CURVE = ("dataset", "model", "optimizer", "target_metric", "target_value")
ALONG = "batch_size"  # which tables have a column for
LONGEST = 24  # characters of a value


def add(table: pd.DataFrame, overview: Overview) -> pd.DataFrame:
    """A table of answers with ``columns.DIFFERS`` and ``apart``, sorted so that rows of a curve are beside each other.

    What makes another curve is in both. What may differ along a curve, such as its search space, is only ``apart``, and
    only where a curve has several studies at one batch size.

    Args:
      table: rows (``CURVE``, batch_size, study, ...).
      overview: the store.
    """
    names = set(table["study"])
    plans = {commit.name: commit.study for commit in store.catalogue(overview.folder) if commit.name in names}
    differs, apart = dict[Hashable, str](), dict[Hashable, str]()
    for _, rows in table.groupby(list(CURVE), sort=False):
        own = {at: plans[name] for at, name in rows["study"].items() if name in plans}
        shared = {at: _shared(plan) for at, plan in own.items()}
        curves = {digest(plan): plan for plan in shared.values()}
        same: dict[tuple[str, object], list[Hashable]] = {}
        for at, plan in shared.items():
            differs[at] = workload_studies.distinction(digest(plan), curves)
            same.setdefault((digest(plan), own[at].batch_size), []).append(at)
        for members in same.values():
            for at, words in zip(members, _telling([_varied(own[at]) for at in members]), strict=True):
                apart[at] = ", ".join(filter(None, (differs[at], words)))
    columns = {name: [of.get(at, "") for at in table.index] for name, of in (("differs", differs), ("apart", apart))}
    return table.assign(**columns).sort_values([*CURVE, "differs", ALONG, "study"], ignore_index=True)


def _telling(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """As few fields, with their values, as tell some plain data apart; of equal ones those with short values first."""
    every = dict.fromkeys(field for content in contents for field in content)
    words = {field: [json.dumps(content.get(field), sort_keys=True) for content in contents] for field in every}
    chosen, told = list[str](), 1
    for field in sorted(words, key=lambda field: max(map(len, words[field])) > LONGEST):
        count = len(set(zip(*(words[each] for each in (*chosen, field)), strict=True)))
        if count > told:
            chosen, told = [*chosen, field], count
    return [", ".join(f"{field}={words[field][i][:LONGEST]}" for field in chosen) for i in range(len(contents))]


def _shared(study: Plan) -> dict[str, object]:
    """The plan that a curve shares, with what it runs along unless the table shows that."""
    along = KINDS[study.kind].along
    beside = {} if along == ALONG else {along: study.plan()[along]}
    return workload_studies.shared_plan(study) | beside


def _varied(study: Plan) -> dict[str, Any]:
    """What may differ along a curve, each number under a name of its own, such as space.learning_rate.low."""
    plan = study.plan()
    return dict(_leaves({field: plan[field] for field in workload_studies.VARIED if field in plan}, ""))


def _leaves(content: Mapping[str, Any], within: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value
