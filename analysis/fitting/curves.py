"""Curves of steps to target against batch size: a workload, a target, the trials that count, and the points."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import kind_views, text, workload_studies
from analysis.fitting import samples
from analysis.fitting.regimes import from_zero
from analysis.fitting.samples import Sample
from analysis.trials import steps_to_target, trials
from analysis.trials.edges import Edge
from analysis.trials.trials import StudyTrials
from analysis.workload_studies import WorkloadStudies
from results import store
from results.aliases import Strings
from results.bad_input import number_of
from results.catalog.overview import Overview
from results.durable import Folder
from results.plans.kinds import along
from results.plans.study import Target, digest
from results.rules.answers import MINIMUM, Rule

WIDEST = 4.0  # ratio of the ends of an interval of steps to target above which the interval is only a bound
TrialFilter = Callable[[pd.DataFrame], np.ndarray]  # returns a mask for the rows of a study's trials


class Curve(NamedTuple):
    """A workload at several batch sizes, with a target.

    Attributes:
      workload: the studies, which differ only in batch size and in the fields ``workload_studies.VARIED``.
      target: metric and value to reach.
      trials: one row per trial that counts: study, batch_size, budget_steps, trial, steps_low, steps_high (NaN if the
        target was not reached) and point, the trial's position in its search space (see ``samples.coordinates``). A
        trial that was lost, failed or ran out of time counts only if it reached the target. Repeats never count.
      batch_sizes: batch sizes of the studies, sorted.
      pruned: whether trials that could no longer win were stopped early.
      exact: whether the trials ran far enough to decide this target.
      rule: rule that determines which trials count and when a trial reaches the target.
      split: whether the curve uses only some of the workload's trials.
      notes: notes about the trials for the user.
      at_edge: edges of the search space, by batch size (see ``Points``).
      trials_by_rule: the studies by batch size, each with the rows of its trials that count under ``rule``.
    """

    workload: WorkloadStudies
    target: Target
    trials: pd.DataFrame
    batch_sizes: tuple[int, ...]
    pruned: bool
    exact: bool
    rule: Rule = MINIMUM
    split: bool = False
    notes: Strings = ()
    at_edge: Mapping[int, Sequence[Edge] | None] = MappingProxyType({})
    trials_by_rule: Sequence[tuple[StudyTrials, pd.DataFrame]] = ()

    @property
    def dataset(self) -> str:
        return self.workload.dataset

    @property
    def model(self) -> str:
        return self.workload.model

    @property
    def optimizer(self) -> str:
        return self.workload.optimizer

    @property
    def distinction(self) -> str:
        """Fields that distinguish this curve from curves with the same names, such as ``seed=1``, or empty."""
        return self.workload.distinction

    @property
    def unit(self) -> str:
        """The unit of the batch sizes, as text."""
        return self.workload.unit

    @property
    def shared(self) -> Mapping[str, object]:
        """The plan fields shared by the studies."""
        return workload_studies.shared_plan(self.workload.commits[0].study)

    @property
    def key(self) -> str:
        """Digest of ``shared``."""
        return digest(self.shared)

    @property
    def target_text(self) -> str:
        """The target as text. An average-precision error is shown as the average precision."""
        return text.goal(self.target, self.rule)

    @property
    def tuned(self) -> Strings:
        """The metaparameters that vary between trials."""
        values = pd.concat([rows[study.metaparameters] for study, rows in self.trials_by_rule], ignore_index=True)
        return tuple(str(name) for name in values if values[name].nunique() > 1)


class Points(NamedTuple):
    """The points of a fit, one per batch size, sorted.

    Attributes:
      batch_size: float64[n], batch sizes in examples.
      low, high: float64[n], bounds on the steps to target, which lie in (low, high].
      weights: float64[n], relative weights of ln steps.
      trials: trials per point, or None if unknown.
      notes: notes about the fit for the user.
      refusal: reason why the data do not support a fit or a picture. Empty if they do.
      sample: the individual trials, or None if they are unknown or were stopped early.
      trial_counts: int[n], number of available trials at each batch size, or None if unknown. Only the first ``trials``
        are used.
      at_edge: ends of the search space at which the best trials cluster, for each batch size, or None if unknown.
      every: float64[m] for each batch size, the steps to target of all its m trials: the geometric middle of the
        interval, 0 if it has no lower end, and infinity if not reached. Only set if some batch sizes have more than
        ``trials`` trials.
    """

    batch_size: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    trials: int | None
    notes: Strings
    refusal: str
    sample: Sample | None = None
    trial_counts: np.ndarray | None = None
    at_edge: tuple[Sequence[Edge] | None, ...] = ()
    every: tuple[np.ndarray, ...] = ()

    @property
    def only_bounded(self) -> np.ndarray:
        """Whether the steps at each batch size have a bound but no value, bool[n].

        This is so if the target was met at the first evaluation (unless that follows the first step), or if the
        evaluations before and after it are more than a factor of ``WIDEST`` apart.
        """
        bounded = self.high > WIDEST * from_zero(self.low)
        bounded |= (self.low == 0) & (self.high > 1)
        if self.every:
            bounded |= np.array([bool((steps == 0).any()) for steps in self.every])
        return bounded

    def usable(self) -> "Points":
        """Returns the points that a fit uses: those that are not ``only_bounded``."""
        kept = ~self.only_bounded
        if kept.all():
            return self
        places = np.flatnonzero(kept).tolist()
        return self._replace(
            batch_size=self.batch_size[kept],
            low=self.low[kept],
            high=self.high[kept],
            weights=self.weights[kept],
            sample=self.sample and self.sample._replace(low=self.sample.low[kept], high=self.sample.high[kept]),
            trial_counts=None if self.trial_counts is None else self.trial_counts[kept],
            at_edge=tuple(self.at_edge[i] for i in places) if self.at_edge else (),
            every=tuple(self.every[i] for i in places) if self.every else (),
        )


def of_store(overview: Overview, request: steps_to_target.Wanted = None) -> list[Curve]:
    """Returns the curves of a store, sorted like the table of steps."""
    commits = kind_views.drawn_as(kind_views.BATCH, store.catalogue(overview.folder))
    by_name = {commit.name: commit for commit in commits}
    unsorted = [
        of_workload(workload, target)
        for target, descriptions in steps_to_target.targets(overview, request).items()
        for workload in workload_studies.group(
            [by_name[description.study] for description in descriptions if description.study in by_name]
        )
    ]
    return sorted(unsorted, key=lambda curve: (*curve.workload[:3], curve.target.metric, curve.target.value))


def meeting(curves: Sequence[Curve], folder: Folder, where: Sequence[str]) -> list[Curve]:
    """Returns the curves that include a study that meets the conditions. See ``workload_studies.of_store``."""
    if not where:
        return list(curves)
    wanted = {commit.name for workload in workload_studies.of_store(folder, where) for commit in workload.commits}
    return [curve for curve in curves if any(commit.name in wanted for commit in curve.workload.commits)]


def of_workload(
    workload: WorkloadStudies, target: Target, rule: Rule = MINIMUM, kept: TrialFilter | None = None
) -> Curve:
    """Returns the curve of a workload.

    Args:
      workload: the studies.
      target: metric and its value.
      rule: minimum, or released, which uses the first ``rule.first`` COMPLETE trials. Under both rules, every batch
        size uses the same number of trials: the smallest number available at any batch size.
      kept: function that selects a study's trials for the curve, or None for all of them.
    """
    trials_of_study = trials.of_commits(workload.commits, target, strict=rule.strict)
    sized = [(along(commit.study), commit.name) for commit in workload.commits]
    by_rule = [(trials_of_study[name], trials_by_rule(trials_of_study[name], rule, kept)) for _, name in sorted(sized)]
    outcomes = samples.collect(trials_of_study.values()) if kept is None and not rule.strict else None
    return Curve(
        workload=workload,
        target=target,
        trials=outcomes.trials
        if outcomes
        else pd.concat([_outcomes(*study_rows) for study_rows in by_rule], ignore_index=True),
        batch_sizes=tuple(sorted({size for size, _ in sized})),
        pruned=workload.pruned,
        exact=all(steps_to_target.is_exact(study.study.search.ends_at, target, rule) for study, _ in by_rule),
        rule=rule,
        split=kept is not None,
        notes=outcomes.notes if outcomes else (),
        at_edge=outcomes.at_edge if outcomes else {},
        trials_by_rule=by_rule,
    )


def trials_by_rule(study: StudyTrials, rule: Rule, kept: TrialFilter | None = None) -> pd.DataFrame:
    """Returns the trials of a study that count under ``rule``. The released rule counts the first kept trials."""
    rows = study.rows_in_k
    if kept is not None:
        rows = rows[kept(rows)]
    return rows[rows["status"] == "COMPLETE"][: rule.first] if rule.strict else rows


def points(curve: Curve) -> Points:
    """Returns the best of an equal number of trials at each batch size, unless no trial finished at this size."""
    at_start = met_at_start(curve)
    reached = curve.trials[curve.trials["steps_high"].notna() & ~curve.trials["batch_size"].isin(at_start)]
    finished = curve.trials[curve.trials["batch_size"].isin(reached["batch_size"])]
    trial_counts = finished.groupby("batch_size").size()
    k = int(trial_counts.min()) if len(trial_counts) else 0
    refusal = _refusal(curve, finished, trial_counts)
    if refusal:
        return no_points(refusal=refusal)
    first = finished if curve.pruned else finished[finished.groupby("study").cumcount() < k]
    counted = first[first["batch_size"].isin(first.loc[first["steps_high"].notna(), "batch_size"])]
    notes = _notes_on_runs(curve)
    if k:
        notes.append(f"{number_of(k, 'trial')} per batch size")
    sizes = counted["batch_size"].unique()
    if at_start:
        notes.append(f"met at the start, before any step, at {text.batch_sizes(at_start)}, left out")
    dropped = sorted(set(curve.batch_sizes) - set(sizes) - set(at_start))
    if dropped:
        notes.append(f"left out: {text.batch_sizes(dropped)}, at which no trial reached the target")
    notes += curve.notes
    if not len(sizes):
        return no_points(refusal="; ".join(notes)) if at_start else no_points(tuple(notes))
    sample = None
    all_steps: tuple[np.ndarray, ...] = ()
    if curve.pruned:
        notes.append("pruned, so all trials but the best are cut short: all batch sizes have equal weights")
        fewest = counted.groupby("batch_size")[["steps_low", "steps_high"]].min()
        low, high = fewest.to_numpy(np.float64).T
        weights = np.ones(len(sizes))
    else:
        sample = _sample(counted, (len(sizes), k))
        low, high, weights = samples.best(sample.low, sample.high)
        if trial_counts[sizes].max() > k:
            all_steps = tuple(_steps(finished[finished["batch_size"] == size]) for size in sizes)
            notes.append(f"pays and efficient up to use the expected best of {k} where a batch size has more trials")
        if sample.is_shared:
            notes.append("all batch sizes tried the same points: the interval allows for their shared luck")
    return Points(
        batch_size=np.asarray(sizes, np.float64),
        low=low,
        high=high,
        weights=weights,
        trials=k,
        notes=tuple(notes),
        refusal="",
        sample=sample,
        trial_counts=trial_counts[sizes].to_numpy(),
        at_edge=tuple(curve.at_edge.get(int(size)) for size in sizes),
        every=all_steps,
    )


def _steps(rows: pd.DataFrame) -> np.ndarray:
    """Returns the steps to target of m trials, as in ``Points.every``: float64[m]."""
    return samples.geometric_steps(*(rows[end].to_numpy(np.float64) for end in ("steps_low", "steps_high")))


def _notes_on_runs(curve: Curve) -> list[str]:
    """Returns a note about imported runs whose metrics were not averaged."""
    raw = any(commit.plan.get("details", {}).get("raw") for commit in curve.workload.commits)
    return ["first crossing of every logged row, which is biased low if the metric is noisy"] if raw else []


def met_at_start(curve: Curve) -> list[int]:
    """Returns the batch sizes at which a trial met the target before its first step. A fit cannot use them."""
    return sorted({int(size) for size in curve.trials.loc[curve.trials["steps_high"] == 0, "batch_size"]})


def _sample(first: pd.DataFrame, shape: tuple[int, int]) -> Sample:
    """Returns the first k trials at each of n batch sizes, from one table sorted by batch size."""
    points = [group["point"].tolist() for _, group in first.groupby("batch_size")]
    order, common, repeated = samples.align(points)
    low, high = (first[end].to_numpy(np.float64).reshape(shape) for end in ("steps_low", "steps_high"))
    low, high = (np.take_along_axis(ends, order, axis=1) for ends in (low, high))
    return Sample(low, high, common, repeated)


def no_points(notes: Strings = (), refusal: str = "") -> Points:
    """Returns an empty set of points."""
    return Points(np.empty(0), np.empty(0), np.empty(0), np.empty(0), None, notes, refusal)


def misses(curve: Curve, points: Points) -> tuple[list[float], list[float]]:
    """Returns the batch sizes at which a curve has no point, and the step budgets of the trials at these sizes."""
    rows = curve.trials[~curve.trials["batch_size"].isin([*points.batch_size, *met_at_start(curve)])]
    budgets = rows.groupby("batch_size")["budget_steps"].max()
    return [float(size) for size in budgets.index], [float(budget) for budget in budgets]


def _outcomes(study: StudyTrials, rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of ``Curve.trials``, including the steps of trials that reached their target."""
    return samples.outcomes(study, rows, max(1, int(study.rows["steps"].max())) if len(study.rows) else 1)


def _refusal(curve: Curve, finished: pd.DataFrame, trial_counts: pd.Series) -> str:
    if curve.pruned and curve.rule.strict:
        return "pruned trials are not COMPLETE, and only those count by the rule released: use --rule minimum"
    if not curve.exact:
        return (
            "trials stopped once they had decided the targets of their study, which was too early for this one: "
            "add it to the targets of the plan"
        )
    studies = finished.groupby("batch_size")["study"].nunique()
    several = [str(size) for size in studies.index[studies > 1]]
    if several:
        return (
            f"several studies at batch size {', '.join(several)} differ in budget, search space or source: "
            "keep one of them in the store"
        )
    if curve.pruned and trial_counts.nunique() > 1:
        largest = int(trial_counts.max())
        fewer = ", ".join(f"{size} ({count})" for size, count in trial_counts[trial_counts < largest].items())
        return (
            "pruned studies with different numbers of trials have no comparable minimum: "
            f"run batch size {fewer} with trials={largest} like the others"
        )
    return ""
