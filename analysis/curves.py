"""Curves of steps to target over batch size: which studies belong to one, and the points they give."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import steps
from analysis.regimes import from_zero
from analysis.weights import relative_weights
from results import scan, store
from results.commits import Commit, read_table
from results.overview import Overview
from results.plans import AnyStudy
from results.recorded import Recorded
from results.study import REASONS_TO_RERUN, Target, canonical, digest

# A curve varies these and nothing else of a study's plan: budgets and search spaces may have to follow the batch size,
# and so does what a source tells beside.
VARIED = ("batch_size", "budget_steps", "evaluation_spacing", "space", "details")


class Curve(NamedTuple):
    """The studies that differ in batch size, and in nothing else that matters (``VARIED``), for one target.

    Attributes:
      dataset, model, optimizer: as the table of steps shows them.
      target: what was to be reached.
      key: digest of what the studies share.
      distinction: what tells this curve from those that look alike in a table, such as ``seed=1``; empty if none do.
      pruned: whether losing trials were cut short.
      exact: whether the trials ran far enough to decide this target.
      batch_sizes: of its studies, sorted.
      trials: one row per trial that counts: study, batch_size, budget_steps, trial, steps_low, steps_high (NaN where
        the target was not reached). A trial that was lost, failed or ran out of time counts only if it reached the
        target.
    """

    dataset: str
    model: str
    optimizer: str
    target: Target
    key: str
    distinction: str
    pruned: bool
    exact: bool
    batch_sizes: tuple[int, ...]
    trials: pd.DataFrame


class Points(NamedTuple):
    """What a fit is made from: one point per batch size, sorted.

    Attributes:
      batch_size: float64[n], examples.
      low, high: float64[n], the steps to target lie in (low, high].
      weights: float64[n], relative weights of ln steps.
      trials: how many trials each point is the best of; None if unknown.
      notes: what a reader of the fit has to know.
      refusal: why no fit, and no picture, would be honest; empty if it would be.
    """

    batch_size: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    trials: int | None
    notes: tuple[str, ...]
    refusal: str


def curves(held: Overview, asked: Target | None = None) -> list[Curve]:
    """The curves of a store, sorted as the table of steps is."""
    commits = {commit.name: commit for commit in store.catalogue(held.folder)}
    alike: dict[tuple[str, str, str, Target], dict[str, list[Commit]]] = {}
    table = steps.table(held, asked)
    for row in table[table["batch_size"].notna()].to_dict("records"):
        looks = (row["dataset"], row["model"], row["optimizer"], Target(row["target_metric"], row["target_value"]))
        commit = commits[row["study"]]
        alike.setdefault(looks, {}).setdefault(digest(shared_plan(commit.study)), []).append(commit)
    return [
        _curve(looks, key, members, distinction(key, plans))
        for looks, lookalikes in alike.items()
        for plans in [{other: shared_plan(some[0].study) for other, some in lookalikes.items()}]
        for key, members in sorted(lookalikes.items())
    ]


def shared_plan(study: AnyStudy) -> dict[str, object]:
    """What all studies of a curve agree on: the plan without ``VARIED``."""
    return {field: value for field, value in study.plan().items() if field not in VARIED}


def points(curve: Curve) -> Points:
    """The best of equally many trials at every batch size that some trial finished."""
    reached = curve.trials[curve.trials["steps_high"].notna()]
    finished = curve.trials[curve.trials["batch_size"].isin(reached["batch_size"])]
    counts = finished.groupby("batch_size").size()
    k = int(counts.min()) if len(counts) else 0
    refusal = _refusal(curve, reached, counts)
    if refusal:
        nothing = np.empty(0)
        return Points(nothing, nothing, nothing, nothing, None, (), refusal)
    first = finished if curve.pruned else finished[finished.groupby("study").cumcount() < k]
    best = first.groupby("batch_size")[["steps_low", "steps_high"]].min().dropna()
    notes = [f"at {k} trial{'s' * (k > 1)}"] if k else []
    dropped = sorted(set(curve.batch_sizes) - set(best.index))
    if dropped:
        sizes = ", ".join(str(size) for size in dropped)
        notes.append(f"no trial reached the target at batch size {sizes}, dropped")
    low, high = best["steps_low"].to_numpy(np.float64), best["steps_high"].to_numpy(np.float64)
    weights = np.ones(len(best))
    if curve.pruned:
        notes.append("pruned, so trials beside the best are cut short: batch sizes weigh alike")
    elif len(best):
        weights = relative_weights(from_zero(low), high, _trial_steps(first[first["batch_size"].isin(best.index)], k))
    return Points(best.index.to_numpy(np.float64), low, high, weights, k or None, tuple(notes), refusal)


def unreached(curve: Curve, points: Points) -> tuple[list[float], list[float]]:
    """Batch sizes of a curve that gave no point, and the budgets its trials had there, steps."""
    rows = curve.trials[~curve.trials["batch_size"].isin(points.batch_size)]
    budgets = rows.groupby("batch_size")["budget_steps"].max()
    return [float(size) for size in budgets.index], [float(budget) for budget in budgets]


def _curve(looks: tuple[str, str, str, Target], key: str, members: Sequence[Commit], distinction: str) -> Curve:
    dataset, model, optimizer, target = looks
    studies = [commit.study for commit in members]
    return Curve(
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        target=target,
        key=key,
        distinction=distinction,
        pruned=studies[0].pruning == "exact",
        exact=all(steps.is_exact(study.targets, target) for study in studies),
        batch_sizes=tuple(sorted({study.batch_size for study in studies if study.batch_size})),
        trials=_outcomes(members, target).sort_values(["batch_size", "study", "trial"]),
    )


def _outcomes(members: Sequence[Commit], target: Target) -> pd.DataFrame:
    """The trials that count for ``target``: study, batch_size, budget_steps, trial, steps_low, steps_high."""
    rows = []
    for commit in members:
        ended = read_table(commit, "trials").select(["trial", "reason", "steps"]).to_pandas()
        rows.append(
            ended.assign(
                study=commit.name, batch_size=commit.study.batch_size, budget_steps=_budget(commit.study, ended)
            )
        )
    intervals = scan.intervals(members, target).astype({"steps_low": float, "steps_high": float})
    trials = pd.concat(rows).merge(intervals, on=["study", "trial"], how="left")
    counts = trials["steps_high"].notna() | ~trials["reason"].isin(REASONS_TO_RERUN)
    return trials.loc[counts, ["study", "batch_size", "budget_steps", "trial", "steps_low", "steps_high"]]


def _budget(study: AnyStudy, trials: pd.DataFrame) -> int:
    """The most steps a trial may take; of a study whose source does not say that, the most that one took."""
    if not isinstance(study, Recorded):
        return study.budget_steps
    most = trials["steps"].max()
    return 1 if pd.isna(most) else int(most)


def _trial_steps(first: pd.DataFrame, k: int) -> np.ndarray:
    """Steps to target [n, k] of k trials at each of n batch sizes, sorted; infinite where not reached."""
    steps_to_target = (first["steps_low"].clip(lower=0.5) + first["steps_high"]) / 2
    return steps_to_target.fillna(np.inf).to_numpy(np.float64).reshape(-1, k)


def _refusal(curve: Curve, reached: pd.DataFrame, counts: pd.Series) -> str:
    if not curve.exact:
        return (
            "trials stopped once they had decided the targets of their own study, too early to decide this one: "
            "plan it as a target"
        )
    studies = reached.groupby("batch_size")["study"].nunique()
    several = [str(size) for size in studies.index[studies > 1]]
    if several:
        return (
            f"several studies at batch size {', '.join(several)} differ in budget, search space or source: "
            "keep one of them in the store"
        )
    if curve.pruned and counts.nunique() > 1:
        most = int(counts.max())
        fewer = ", ".join(f"{size} ({count})" for size, count in counts[counts < most].items())
        return (
            "pruned studies with different numbers of trials have no minimum over equally many: "
            f"run batch size {fewer} with trials={most} like the others"
        )
    return ""


def distinction(key: str, plans: Mapping[str, Mapping[str, Any]]) -> str:
    """The fields, with their values, in which the plan ``key`` differs from any other of ``plans``; empty if none."""
    own = plans[key]
    fields = [field for field in own if any(plan.get(field) != own[field] for plan in plans.values())]
    return ", ".join(f"{field}={_brief(field, own[field])}" for field in fields)


def _brief(field: str, value: Any) -> str:
    if field == "targets":
        return " and ".join(f"{target['metric']} ≤ {target['value']:g}" for target in value) or "none"
    return value if isinstance(value, str) else canonical(value)
