"""Samples: the trials that count for a curve's target, and the trials from which each point is computed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.fitting import weights
from analysis.fitting.regimes import from_zero
from analysis.fitting.shapes import TrialEvidence
from analysis.trials import edges, trials
from analysis.trials.edges import Edge
from analysis.trials.trials import StudyTrials
from results.aliases import Strings
from results.plans.kinds import KINDS, along
from results.plans.plan import Plan
from results.plans.search_space import SearchSpace
from results.plans.study import REASONS_TO_RERUN

SHARED = 0.5  # fraction of points common to all batch sizes above which their luck counts as shared
FEWEST_TRIALS = 8  # minimum trials per batch size; fewer show less than the residuals do
NEAR = 2.0  # maximum ratio to the best trial's steps for trials near it


Point = tuple[float, ...]  # position in a search space

_CONTINUOUS = ("LINEAR", "LOG", "REVERSE_LOG")
_DIGITS = 6  # published metaparameters are rounded


class Sample(NamedTuple):
    """The first k trials at each of n batch sizes.

    Attributes:
      low, high: float64[n, k], bounds on steps to target, which lie in (low, high]. NaN if the trial did not reach the
        target. Search points used at all batch sizes come first, one per column. The other trials are in order.
      common: fraction of search points that are used at all batch sizes, or NaN if unknown.
      repeated: fraction of search points that are also used at another batch size, or NaN if unknown.
    """

    low: np.ndarray
    high: np.ndarray
    common: float
    repeated: float

    @property
    def is_shared(self) -> bool:
        """Whether the batch sizes used the same search points, so that their noise is correlated."""
        return self.common >= SHARED


def best(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the points of a curve from its trials: the interval of the fewest steps, and the relative weights.

    Args:
      low, high: float64[..., n, k], NaN if a trial did not reach the target. At each of the n batch sizes, at least one
        trial reached it.

    Returns:
      low, high and weights, float64[..., n] each.
    """
    ends = np.fmin.reduce(low, axis=-1), np.fmin.reduce(high, axis=-1)
    return *ends, weights.relative_weights(from_zero(ends[0]), ends[1], trial_steps(low, high))


def left_out(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns the argument ``left_out`` of ``regimes.fit``, from trials [..., n, k], with the same shape."""
    return weights.without_each(trial_steps(low, high))


def evidence(low: np.ndarray, high: np.ndarray) -> TrialEvidence | None:
    """Returns evidence from all trials [d, n, k], rather than only the best, if there are enough trials."""
    k = low.shape[-1]
    if k < FEWEST_TRIALS:
        return None
    steps = trial_steps(low, high)
    variance = weights.minimum_variance(steps)  # [d, n]
    is_known = np.isfinite(variance)
    mean = np.where(is_known, variance, 0).sum(axis=-1) / np.maximum(is_known.sum(axis=-1), 1)
    return TrialEvidence(
        third=weights.best_of_some(steps, k // 3),
        half=weights.best_of_some(steps, k // 2),
        variance=np.where(mean > 0, mean, np.nan),
        near=(steps <= NEAR * steps.min(axis=-1, keepdims=True)).sum(axis=-1),
        trials=k,
    )


def trial_steps(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns each trial's steps to target: the midpoint of the interval, or infinity if not reached."""
    middle = (from_zero(low) + high) / 2
    return np.where(np.isnan(middle), np.inf, middle)


def geometric_steps(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns each trial's steps to target: the geometric middle of the interval, or infinity if not reached.

    It is 0 if the target was met at the first evaluation, so that the steps are unknown, unless that is the first step.
    """
    middle = np.sqrt(np.where(high == 1, from_zero(low), low) * high)
    return np.where(np.isnan(middle), np.inf, middle)


def coordinates(space: SearchSpace, metaparameters: pd.DataFrame) -> list[Point | None]:
    """Returns each trial's position in its search space. Equal points have equal positions even in different spaces.

    Args:
      space: the ranges.
      metaparameters: metaparameters of the trials, by name.

    Returns:
      One tuple per trial, or None if unknown. A tuple contains the quantile of each metaparameter that has a continuous
      range or, if no range is continuous, the values of all metaparameters.
    """
    columns = {str(name): metaparameters[name].to_numpy(np.float64) for name in metaparameters}
    continuous = [name for name in columns if name in space and space[name].scale in _CONTINUOUS]
    varied = [name for name in continuous if space[name].low != space[name].high]
    if varied:
        positions = np.stack([edges.positions(space[name], columns[name]) for name in varied], axis=1)
    else:
        positions = metaparameters.to_numpy(np.float64)
    is_known = np.isfinite(positions).all(axis=1) & (positions.shape[1] > 0)
    rounded = np.round(positions, _DIGITS) + 0.0  # so that -0.0 is 0.0
    return [tuple(point) if is_finite else None for point, is_finite in zip(rounded.tolist(), is_known, strict=True)]


def align(points: Sequence[Sequence[Point | None]]) -> tuple[np.ndarray, float, float]:
    """Reorders trials to align the search points that all batch sizes have in common.

    Args:
      points: positions of the k trials at each of the n batch sizes, or None if unknown.

    Returns:
      int[n, k], an order of the trials in which common points come first, in the same order at each batch size. Also
      the fractions of ``common`` and ``repeated`` points (see ``Sample``).
    """
    k = len(points[0])
    keys = [
        {point: i for i, point in enumerate(coordinates_of_size) if point is not None} for coordinates_of_size in points
    ]
    unordered = np.tile(np.arange(k), (len(points), 1))
    if k < 2 or any(len(places) < k for places in keys):  # unknown, or a repeated point, which is not a search
        return unordered, float("nan"), float("nan")
    common = sorted(set.intersection(*map(set, keys)))
    times = Counter(key for places in keys for key in places)
    repeated = sum(count for count in times.values() if count > 1) / (k * len(points))
    if len(common) < SHARED * k:
        return unordered, len(common) / k, repeated
    first = np.array([[places[key] for key in common] for places in keys])
    rest = np.array([np.setdiff1d(np.arange(k), used) for used in first])
    return np.concatenate([first, rest], axis=1), len(common) / k, repeated


class Outcomes(NamedTuple):
    """The trials in a curve's studies, for a target.

    Attributes:
      trials: one row per trial that counts, sorted by batch_size, study and trial: these columns, budget_steps,
        steps_low, steps_high (NaN if the target was not reached) and point, the trial's position in its search space
        (see ``coordinates``). A trial that was lost, failed or ran out of time counts only if it reached the target.
        Repeats never count.
      notes: notes for the user.
      at_edge: ends of the search space at which the best trials cluster, by batch size, or None if unknown.
    """

    trials: pd.DataFrame
    notes: Strings
    at_edge: Mapping[int, Sequence[Edge] | None]


def collect(studies: Iterable[StudyTrials]) -> Outcomes:
    """Collects the trials in a curve's studies that count for its target."""
    rows, spacing, at_edge = [], {}, {}
    for study in studies:
        searched = study.rows[study.rows["role"] == "search"]
        spacing[study.study.name] = _examples_apart(study.study)
        counts = (searched["outcome"] == trials.REACHED) | ~searched["reason"].isin(REASONS_TO_RERUN)
        rows.append(outcomes(study, searched[counts], _budget(study.study, searched)))
        at_edge[along(study.study)] = None if study.study.search.pruning == "exact" else _at_edge(study)
    trials_of_target, notes = _bracketed(pd.concat(rows, ignore_index=True), spacing)
    return Outcomes(trials_of_target.sort_values(["batch_size", "study", "trial"]), notes, at_edge)


def outcomes(study: StudyTrials, rows: pd.DataFrame, budget_steps: int) -> pd.DataFrame:
    """Returns some trials of a study in the format of ``Outcomes.trials``, before evaluations are known apart."""
    reached = rows["outcome"] == trials.REACHED
    return rows[["trial"]].assign(
        steps_low=rows["steps_low"].where(reached),
        steps_high=rows["steps_high"].where(reached),
        study=study.study.name,
        batch_size=along(study.study),
        budget_steps=budget_steps,
        point=pd.Series(coordinates(study.study.search.space, rows[study.metaparameters]), rows.index, object),
    )


def _at_edge(study: StudyTrials) -> Sequence[Edge] | None:
    rows = study.rows_in_k
    values = {name: rows[name].to_numpy(np.float64) for name in study.metaparameters}
    return edges.find_edges(values, trials.bounds(rows)[1], study.study.search.space)


def _bracketed(rows: pd.DataFrame, spacing: Mapping[str, float | None]) -> tuple[pd.DataFrame, Strings]:
    """Adds the preceding evaluation to trials for which only the final evaluation was published.

    Args:
      rows: rows in the format of ``Outcomes.trials``.
      spacing: largest distance between evaluations in examples, by study. NaN if unknown, or None for studies with
        known evaluations.
    """
    stated = {name: value for name, value in spacing.items() if value is not None}
    widest = max((value for value in stated.values() if not np.isnan(value)), default=np.nan)
    if np.isnan(widest):
        return rows, ()
    silent = [name for name, value in stated.items() if np.isnan(value)]
    examples = rows["study"].map(stated | dict.fromkeys(silent, widest))
    before = (rows["steps_high"] - examples / rows["batch_size"]).clip(lower=0)
    sizes = sorted(set(rows.loc[rows["study"].isin(silent), "batch_size"]))
    note = f"evaluations at {text.batch_sizes(sizes)} are assumed to be as far apart as at the others"
    return rows.assign(steps_low=before.where(before.notna(), rows["steps_low"])), (note,) if sizes else ()


def _examples_apart(study: Plan) -> float | None:
    """Returns the largest distance between evaluations in examples, NaN if unknown, or None if the plan lists them."""
    details = study.plan().get("details", {})
    if "evaluation_samples" not in details:
        return None
    value = details["evaluation_samples"]
    return float("nan") if value is None else float(value)


def _budget(study: Plan, trials: pd.DataFrame) -> int:
    """Returns the maximum steps per trial. If a source does not report it, returns the most steps of any trial."""
    if not KINDS[study.kind].recorded:
        return study.budget_steps
    longest = trials["steps"].max()
    return 1 if pd.isna(longest) else int(longest)
