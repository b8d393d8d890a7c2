"""Curves of steps to target over batch size: which studies belong to one, and the points they give."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import studies, workloads
from analysis.fitting import outcomes, samples
from analysis.fitting.samples import Sample
from analysis.trials import steps
from analysis.trials.edges import Edge
from results import store
from results.plans import kinds
from results.plans.study import Target, digest
from results.reading.overview import Overview
from results.storage.commits import Commit


class Curve(NamedTuple):
    """The studies that differ in batch size, and in nothing else that matters (``workloads.VARIED``), for one target.

    Attributes:
      dataset, model, optimizer: as the table of steps shows them.
      target: what was to be reached.
      shared: what the plans of its studies agree on; see ``workloads.shared_plan``.
      distinction: what tells this curve from those that look alike in a table, such as ``seed=1``; empty if none do.
      pruned: whether losing trials were cut short.
      exact: whether the trials ran far enough to decide this target.
      batch_sizes: of its studies, sorted.
      trials: one row per trial that counts: study, batch_size, budget_steps, trial, steps_low, steps_high (NaN where
        the target was not reached) and point, its place in its search space (see ``samples.coordinates``). A trial that
        was lost, failed or ran out of time counts only if it reached the target; one that confirms another does not.
      notes: what a reader of the trials has to know.
      at_edge: by batch size, as in ``Points``.
    """

    dataset: str
    model: str
    optimizer: str
    target: Target
    shared: Mapping[str, object]
    distinction: str
    pruned: bool
    exact: bool
    batch_sizes: tuple[int, ...]
    trials: pd.DataFrame
    notes: tuple[str, ...] = ()
    at_edge: Mapping[int | None, Sequence[Edge] | None] = MappingProxyType({})

    @property
    def key(self) -> str:
        """Digest of ``shared``."""
        return digest(self.shared)


class Points(NamedTuple):
    """What a fit is made from: one point per batch size, sorted.

    Attributes:
      batch_size: float64[n], examples.
      low, high: float64[n], the steps to target lie in (low, high].
      weights: float64[n], relative weights of ln steps.
      trials: how many trials each point is the best of; None if unknown.
      notes: what a reader of the fit has to know.
      refusal: why no fit, and no picture, would be honest; empty if it would be.
      sample: the trials themselves; None where they are not known, or were cut short.
      counts: int[n], how many trials there were to take the best of equally many from; None if unknown.
      at_edge: for each batch size the ends of its search space that the best trials crowd at; None where nothing tells.
    """

    batch_size: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    trials: int | None
    notes: tuple[str, ...]
    refusal: str
    sample: Sample | None = None
    counts: np.ndarray | None = None
    at_edge: tuple[Sequence[Edge] | None, ...] = ()


def curves(held: Overview, asked: Target | None = None) -> list[Curve]:
    """The curves of a store, sorted as the table of steps is."""
    commits = {commit.name: commit for commit in store.catalogue(held.folder)}
    alike: dict[tuple[str, str, str, Target], dict[str, list[Commit]]] = {}
    table = steps.table(held, asked)
    drawn = {about.study for about in kinds.of_kind(held.abouts.values(), *studies.drawn_as(studies.BATCH))}
    for row in table[table["study"].isin(drawn)].to_dict("records"):
        looks = (row["dataset"], row["model"], row["optimizer"], Target(row["target_metric"], row["target_value"]))
        commit = commits[row["study"]]
        alike.setdefault(looks, {}).setdefault(digest(workloads.shared_plan(commit.study)), []).append(commit)
    return [
        _curve(looks, shared[key], members, workloads.distinction(key, shared))
        for looks, lookalikes in alike.items()
        for shared in [{other: workloads.shared_plan(some[0].study) for other, some in lookalikes.items()}]
        for key, members in sorted(lookalikes.items())
    ]


def points(curve: Curve) -> Points:
    """The best of equally many trials at every batch size that some trial finished."""
    at_start = met_at_start(curve)
    reached = curve.trials[curve.trials["steps_high"].notna() & ~curve.trials["batch_size"].isin(at_start)]
    finished = curve.trials[curve.trials["batch_size"].isin(reached["batch_size"])]
    counts = finished.groupby("batch_size").size()
    k = int(counts.min()) if len(counts) else 0
    refusal = _refusal(curve, finished, counts)
    if refusal:
        return nothing(refusal=refusal)
    first = finished if curve.pruned else finished[finished.groupby("study").cumcount() < k]
    at = first[first["batch_size"].isin(first.loc[first["steps_high"].notna(), "batch_size"])]
    notes = [f"at {k} trial{'s' * (k > 1)}"] if k else []
    sizes = at["batch_size"].unique()
    if at_start:
        notes.append(f"met at the start, before any step, at batch size {', '.join(map(str, at_start))}, left out")
    dropped = sorted(set(curve.batch_sizes) - set(sizes) - set(at_start))
    if dropped:
        notes.append(f"no trial reached the target at batch size {', '.join(map(str, dropped))}, dropped")
    notes += curve.notes
    if not len(sizes):
        return nothing(refusal="; ".join(notes)) if at_start else nothing(tuple(notes))
    sample = None
    if curve.pruned:
        notes.append("pruned, so trials beside the best are cut short: batch sizes weigh alike")
        low, high = (at.groupby("batch_size")[end].min().to_numpy(np.float64) for end in ("steps_low", "steps_high"))
        weights = np.ones(len(sizes))
    else:
        sample = _sample(at, (len(sizes), k))
        low, high, weights = samples.best(sample.low, sample.high)
        if sample.is_shared:
            notes.append("all batch sizes tried the same points: the interval allows for luck they share")
    return Points(
        batch_size=np.asarray(sizes, np.float64),
        low=low,
        high=high,
        weights=weights,
        trials=k,
        notes=tuple(notes),
        refusal="",
        sample=sample,
        counts=counts[sizes].to_numpy(),
        at_edge=tuple(curve.at_edge.get(int(size)) for size in sizes),
    )


def met_at_start(curve: Curve) -> list[int]:
    """Batch sizes at which a trial was at the target before its first step, whose answer is no point of a fit."""
    return sorted({int(size) for size in curve.trials.loc[curve.trials["steps_high"] == 0, "batch_size"]})


def _sample(first: pd.DataFrame, shape: tuple[int, int]) -> Sample:
    """The first k trials at n batch sizes, in one table sorted by batch size."""
    points = [group["point"].tolist() for _, group in first.groupby("batch_size")]
    order, common, repeated = samples.align(points)
    low, high = (first[end].to_numpy(np.float64).reshape(shape) for end in ("steps_low", "steps_high"))
    low, high = (np.take_along_axis(ends, order, axis=1) for ends in (low, high))
    return Sample(low, high, common, repeated)


def nothing(notes: tuple[str, ...] = (), refusal: str = "") -> Points:
    """No points."""
    return Points(np.empty(0), np.empty(0), np.empty(0), np.empty(0), None, notes, refusal)


def unreached(curve: Curve, points: Points) -> tuple[list[float], list[float]]:
    """Batch sizes of a curve that gave no point, and the budgets its trials had there, steps."""
    rows = curve.trials[~curve.trials["batch_size"].isin([*points.batch_size, *met_at_start(curve)])]
    budgets = rows.groupby("batch_size")["budget_steps"].max()
    return [float(size) for size in budgets.index], [float(budget) for budget in budgets]


def _curve(
    looks: tuple[str, str, str, Target], shared: Mapping[str, object], members: Sequence[Commit], distinction: str
) -> Curve:
    dataset, model, optimizer, target = looks
    studies = [commit.study for commit in members]
    found = outcomes.of(members, target)
    return Curve(
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        target=target,
        shared=shared,
        distinction=distinction,
        pruned=studies[0].pruning == "exact",
        exact=all(steps.is_exact(study.ends_at, target) for study in studies),
        batch_sizes=tuple(sorted({study.batch_size for study in studies if study.batch_size})),
        trials=found.trials,
        notes=found.notes,
        at_edge=found.at_edge,
    )


def _refusal(curve: Curve, finished: pd.DataFrame, counts: pd.Series) -> str:
    if not curve.exact:
        return (
            "trials stopped once they had decided the targets of their own study, too early to decide this one: "
            "plan it as a target"
        )
    studies = finished.groupby("batch_size")["study"].nunique()
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
