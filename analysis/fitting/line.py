"""A line of a panel: one workload over batch sizes, the trials of it that count, and what they say."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.fitting import confirmations, curves, fits, outcomes, samples
from analysis.fitting.confirmations import Confirmed
from analysis.fitting.curves import Curve
from analysis.fitting.fits import Judged
from analysis.trials import steps, trials
from analysis.trials.trials import StudyTrials
from results.papers import published_points
from results.plans.study import Target
from results.rules.answers import MINIMUM, Rule
from results.storage.commits import Commit

Kept = Callable[[pd.DataFrame], np.ndarray]  # which rows of a study's trials a line is about


class Line(NamedTuple):
    """One workload over batch sizes, asked for one target.

    Attributes:
      label: what a legend calls it.
      dataset, model, optimizer: as tables show them.
      target: what was to be reached.
      rule: which trials count, and what it takes to reach the target.
      trials: that count, by batch size, without those at which the target was met at the start; rows as in
        ``searches.trials``. Of several studies at one batch size, of all.
      tuned: metaparameters that the trials have.
      pruned: whether losing trials were cut short.
      split: whether it is about some trials of the workload alone.
      missed: batch sizes at which none reached the target, and the most steps that one took there.
      judged: points and their fit, as selected.
      again: studies whose answer was confirmed, by batch size.
      confirmed: the fit of what was confirmed; None if nothing was.
    """

    label: str
    dataset: str
    model: str
    optimizer: str
    target: Target
    rule: Rule
    trials: Mapping[int, pd.DataFrame]
    tuned: tuple[str, ...]
    pruned: bool
    split: bool
    missed: Mapping[float, float]
    judged: Judged
    again: Sequence[Confirmed] = ()
    confirmed: Judged | None = None

    @property
    def drawable(self) -> bool:
        """Whether there is any point."""
        return len(self.judged.points.batch_size) > 0

    @property
    def why_nothing(self) -> str:
        """Why there is no point."""
        return self.judged.points.refusal or "no trial reached the target at any batch size"

    @property
    def sought(self) -> str:
        """The target in words; what is kept as an error of an average precision is turned back."""
        return in_words(self.target, self.rule)

    def steps_at(self, batch_size: int) -> float:
        """Steps to target as selected, the middle of their interval; NaN where there is no point."""
        points = self.judged.points
        (place,) = np.nonzero(points.batch_size == batch_size)
        return float(_middle(points.low, points.high)[place[0]]) if len(place) else math.nan


def of(label: str, commits: Sequence[Commit], target: Target, rule: Rule = MINIMUM, kept: Kept | None = None) -> Line:
    """The line of studies that differ in batch size alone.

    Args:
      label: for the legend.
      commits: the studies.
      target: metric and value.
      rule: minimum, or released, over the first so many COMPLETE trials; by both, if some batch sizes have fewer, over
        equally many at all.
      kept: takes the trials of a study and says which the line is about; None: all of them.
    """
    found = [one for one in trials.of_commits(commits, target, strict=rule.strict).values() if one.study.batch_size]
    found.sort(key=lambda one: (one.study.batch_size or 0, one.study.name))
    counted = [(one, counting(one, rule, kept)) for one in found]
    first = found[0].study
    whole = outcomes.of(commits, target) if kept is None and not rule.strict else None
    curve = Curve(
        dataset=first.dataset,
        model=first.model_label,
        optimizer=first.optimizer,
        target=target,
        shared={},
        distinction="",
        pruned=first.pruning == "exact",
        exact=all(steps.is_exact(one.study.ends_at, target, rule) for one in found),
        batch_sizes=tuple(sorted({one.study.batch_size or 0 for one in found})),
        trials=whole.trials if whole else pd.concat([_outcomes(*each) for each in counted], ignore_index=True),
        notes=whole.notes if whole else (),
        at_edge=whole.at_edge if whole else {},
    )
    points = _points(curve, rule)
    ids = curve.trials.groupby("study")["trial"]
    taken = {name: set(own if curve.pruned else own[: points.trials]) for name, own in ids}
    by_size: dict[int, list[pd.DataFrame]] = {}
    at_start = curves.met_at_start(curve)
    for one, rows in counted:
        if one.study.batch_size in at_start:
            continue
        own = rows[rows["trial"].isin(taken.get(one.study.name, set()))]
        by_size.setdefault(one.study.batch_size or 0, []).append(own)
    again = confirmations.of(commits, target) if kept is None and not rule.strict and curve.exact else ()
    return Line(
        label,
        *(curve.dataset, curve.model, curve.optimizer),
        target,
        rule,
        {size: pd.concat(rows, ignore_index=True) for size, rows in by_size.items()},
        _tuned([rows[one.metaparameters] for one, rows in counted]),
        curve.pruned,
        kept is not None,
        dict(zip(*curves.unreached(curve, points), strict=True)),
        fits.judge(points),
        again,
        confirmations.judge(again),
    )


def counting(one: StudyTrials, rule: Rule, kept: Kept | None = None) -> pd.DataFrame:
    """The trials of a study that count by ``rule``; by the released one, the first so many of those that are kept."""
    rows = one.counting
    if kept is not None:
        rows = rows[kept(rows)]
    return rows[rows["status"] == "COMPLETE"][: rule.first] if rule.strict else rows


def published(line: Line) -> tuple[np.ndarray, np.ndarray]:
    """Batch sizes and steps that a paper gives for the same workload and target; empty if none does."""
    table = _published()
    same = (table["dataset"] == line.dataset) & (table["model"] == line.model) & (table["optimizer"] == line.optimizer)
    same &= (
        (not line.split)
        & (table["metric"] == line.target.metric)
        & np.isclose(table["target_value"], line.target.value)
    )
    rows = table[same].sort_values("batch_size")
    return rows["batch_size"].to_numpy(), rows["steps"].to_numpy()


def in_words(target: Target, rule: Rule) -> str:
    """Such as ``validation error ≤ 0.01``, or ``validation average precision > 0.31``, which is kept as an error."""
    metric, value = shown(target.metric, target.value)
    sign = rule.sign
    if metric != target.metric:
        sign = {"<": ">", "≤": "≥"}[sign]
    return f"{metric.replace('_', ' ')} {sign} {value:g}"


def shown(metric: str, value: float) -> tuple[str, float]:
    """A metric and a value as a reader knows them: an error of a quality in [0, 1] is turned back into that."""
    for kind in ("average_precision", "recall_20", "recall_50"):
        if metric.endswith(f"{kind}_error"):
            return metric.removesuffix("_error"), float(f"{1 - value:.12g}")
    return metric, value


def best(line: Line) -> dict[int, pd.Series]:
    """The trial with the fewest steps at every batch size; of equals the one with the smallest number."""
    found = {}
    for size, rows in line.trials.items():
        reached = rows[rows["outcome"] == trials.REACHED]
        if len(reached):
            found[size] = reached.sort_values(["steps_high", "trial"]).iloc[0]
    return found


def _points(curve: Curve, rule: Rule) -> curves.Points:
    if curve.pruned and rule.strict:
        why = "pruned trials are not COMPLETE, and the rule released counts those alone: ask with --rule minimum"
        return curves.nothing(refusal=why)
    return curves.points(curve)


def _outcomes(one: StudyTrials, rows: pd.DataFrame) -> pd.DataFrame:
    """What a curve knows of trials: the steps of those that reached their target."""
    reached = rows["outcome"] == trials.REACHED
    return pd.DataFrame(
        {
            "study": one.study.name,
            "batch_size": one.study.batch_size,
            "budget_steps": max(1, int(one.rows["steps"].max())) if len(one.rows) else 1,
            "trial": rows["trial"],
            "steps_low": rows["steps_low"].where(reached),
            "steps_high": rows["steps_high"].where(reached),
            "point": pd.Series(samples.coordinates(one.study.space, rows[one.metaparameters]), rows.index, object),
        }
    )


def _tuned(drawn: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """Metaparameters that differ between trials."""
    every = pd.concat(drawn, ignore_index=True)
    return tuple(str(name) for name in every if every[name].nunique() > 1)


def _middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return (np.where(low == 0, 0.5, low) + high) / 2


@functools.cache
def _published() -> pd.DataFrame:
    table = published_points.points()
    rows = table[table["steps"].notna()].astype({"batch_size": float, "steps": float, "target_value": float})
    return rows.reset_index(drop=True)
