"""Contradictions: determines whether two stores' results for the same quantity can both be true.

Studies with equal seeds ran the same trials. They contradict each other if the censoring intervals of any trial are
disjoint, even if the studies are pruned. Independent searches contradict each other if the 90 % bands of their median
best of k' trials are disjoint. Both bands use the same k and k'. Critical batch sizes contradict each other if the
intervals that their verdicts report are disjoint. Times on the same kind of device contradict each other if the slowest
epoch in one store is faster than the fastest epoch in the other.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from scipy import special

from analysis.cores import measured_factorizations
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.fitting import fits
from analysis.fitting.curves import Curve
from analysis.fitting.fits import PointsFit
from analysis.trials import trials
from analysis.trials.trials import StudyTrials
from results.als import COMPUTATION

FEWEST_EPOCHS = 3  # minimum epochs for judging times
TAIL = 0.05  # error probability of each end of a 90 % band
REACHED, NOT_REACHED = "reached", "not reached"

T = TypeVar("T")


class Reading(NamedTuple):
    """The result from one store: an interval (infinite if open or not reached), and a word that describes it."""

    low: float
    high: float
    words: str = ""


class Pair(NamedTuple):
    """The same quantity in A and B. A side is None if its store lacks the quantity.

    ``why`` is set if both stores have candidates, but these cannot be matched one to one.
    """

    a: Any
    b: Any
    why: str = ""

    @property
    def alone(self) -> bool:
        """Whether a side is missing."""
        return self.a is None or self.b is None


class Finding(NamedTuple):
    """The result of comparing a pair.

    Attributes:
      a, b: result from each store, or None if it is missing.
      result: same, agree, differ, not_judged, only_a or only_b.
      why: basis of the result, or the reason why the pair was not judged.
    """

    a: Reading | None
    b: Reading | None
    result: str
    why: str


def pair_up(a: Sequence[T], b: Sequence[T], *identities: Callable[[T], Hashable]) -> list[Pair]:
    """Matches items of A and B by the first identity that is unique on both sides."""
    pairs = []
    for identity in identities:
        counts = [Counter(map(identity, side)) for side in (a, b)]
        both = [key for key, count in counts[0].items() if count == counts[1][key] == 1]
        first, second = ({identity(result): result for result in side} for side in (a, b))
        pairs += [Pair(first[key], second[key]) for key in both]
        a, b = ([result for result in side if identity(result) not in both] for side in (a, b))
    remaining = [set(map(identities[-1], side)) for side in (a, b)]
    why = "several similar ones in one place" if remaining[0] & remaining[1] else ""
    return [*pairs, *(Pair(result, None, why) for result in a), *(Pair(None, result, why) for result in b)]


def stream(study: StudyTrials) -> Hashable:
    """Returns the random seed of a study. Studies with the same trials have the same seed."""
    return study.study.stream


def of_answers(pair: Pair) -> Finding:
    """Compares the answers in a pair of ``StudyTrials``."""
    if pair.alone:
        return _alone(
            pair, lambda trials_of_study: _best(trials_of_study.rows[trials_of_study.rows["role"] == trials.ROLES[0]])
        )
    if stream(pair.a) == stream(pair.b):
        return _same_stream(pair.a, pair.b)
    if "exact" in (pair.a.study.pruning, pair.b.study.pruning):
        why = "independent searches, one of them pruned and so without a band"
        return Finding(_best(pair.a.rows_in_k), _best(pair.b.rows_in_k), "not_judged", why)
    return _by_bands(pair.a, pair.b)


def of_curves(pair: Pair) -> Finding:
    """Compares the critical batch sizes in a pair of ``Curve``."""
    if pair.alone:
        return _alone(pair, lambda curve: stated_interval(fits.of_curve(curve)))
    fitted = {"A": fits.of_curve(pair.a), "B": fits.of_curve(pair.b)}
    a, b = map(stated_interval, fitted.values())
    why = [f"{name}: {fit.reason}" for name, fit in fitted.items() if fit.verdict == "not_identified"]
    if why:
        return Finding(a, b, "not_judged", "; ".join(why))
    return Finding(a, b, _verdict(a, b), "90 % intervals, and 95 % bounds where one end is open")


def of_times(pair: Pair) -> Finding:
    """Compares the seconds per epoch in a pair of ``MeasuredFactorization``, from the fastest epoch to the slowest."""
    if pair.alone:
        return _alone(pair, _seconds)
    a, b = _seconds(pair.a), _seconds(pair.b)
    hardware = [
        factorization.hardware
        for factorization in pair[:2]
        if factorization.hardware and factorization.hardware.device_kind is not None
    ]
    obstacles = {
        "a device is unknown": len(hardware) < 2,
        "emulated cores": any(machine.emulated for machine in hardware),
        "different devices": len(
            {(machine.backend, machine.device_kind, machine.physical_cores) for machine in hardware}
        )
        > 1,
        f"fewer than {FEWEST_EPOCHS} epochs": min(len(factorization.seconds) for factorization in pair[:2])
        < FEWEST_EPOCHS,
    }
    for why, is_there in obstacles.items():
        if is_there:
            return Finding(a, b, "not_judged", why)
    result = "differ" if a.low > b.high or b.low > a.high else "agree"
    return Finding(a, b, result, "from the fastest epoch to the slowest, on devices of one kind")


def of_recalls(pair: Pair, name: str) -> Finding:
    """Compares recall_20 or recall_50 of the best trial at its last epoch in a pair of ``MeasuredFactorization``."""
    if pair.alone:
        return _alone(pair, lambda factorization: _recall(factorization, name))
    a, b = _recall(pair.a, name), _recall(pair.b, name)
    return Finding(a, b, "same", "") if a == b else Finding(a, b, "not_judged", "recalls have no interval")


def plan_of(factorization: MeasuredFactorization) -> Hashable:
    """Returns the identity of a factorization."""
    return factorization.study.plan_json


def comparison_key(factorization: MeasuredFactorization) -> Hashable:
    """Returns all properties that must match for two factorizations to be comparable, whatever their searches."""
    study = factorization.study
    shared = (*COMPUTATION, "cores", "evaluation_rows", "fold_in_ridge")
    return (
        study.dataset,
        measured_factorizations.data_label(factorization),
        *(getattr(study, field) for field in shared),
    )


def curve_names(curve: Curve) -> tuple[Any, ...]:
    """Returns the names of a curve and its target."""
    return curve.dataset, curve.model, curve.optimizer, curve.target


def stated_interval(points_fit: PointsFit) -> Reading:
    """Returns the interval that a verdict reports, open on both sides if not identified."""
    fit, verdict = points_fit.fit, points_fit.verdict
    low, high = (fit.low, fit.high) if fit else (np.nan, np.nan)
    return Reading(
        low if verdict in ("identified", "at_least") else 0.0,
        high if verdict in ("identified", "at_most") else np.inf,
        verdict,
    )


def _same_stream(a: StudyTrials, b: StudyTrials) -> Finding:
    """Compares the trials that both stores have. The intervals of their steps to target must overlap."""
    rows_a, rows_b = a.rows_in_k, b.rows_in_k
    both = np.intersect1d(rows_a["trial"].to_numpy(), rows_b["trial"].to_numpy())
    if not len(both):
        return Finding(_best(rows_a), _best(rows_b), "not_judged", "the same stream, but no trial in both")
    shared = [rows[rows["trial"].isin(both)] for rows in (rows_a, rows_b)]
    (low_a, high_a), (low_b, high_b) = (trials.bounds(rows) for rows in shared)
    disjoint = _beyond(low_a, high_b) & np.isfinite(high_b) | _beyond(low_b, high_a) & np.isfinite(high_a)
    uneven = max(len(rows_a), len(rows_b)) > len(both)
    # Pruning uses the best of all trials in a study to decide which trials to cut short.
    cut = uneven and "exact" in (a.study.search.pruning, b.study.search.pruning)
    reading_a, reading_b = map(_best, (rows_a, rows_b) if cut else shared)
    why = "the same stream: censoring intervals" + (f" of the {len(both)} trials in both" if uneven else "")
    if disjoint.any():
        return Finding(reading_a, reading_b, "differ", f"{why}, of which {disjoint.sum()} cannot be from one run")
    return Finding(reading_a, reading_b, "agree" if cut else _verdict(reading_a, reading_b), why)


def _best(rows: pd.DataFrame) -> Reading:
    """Returns the answer under the minimum rule."""
    reached = rows[rows["outcome"] == trials.REACHED]
    if not len(reached):
        return Reading(np.inf, np.inf, NOT_REACHED)
    return Reading(float(reached["steps_low"].min()), float(reached["steps_high"].min()), REACHED)


def _by_bands(a: StudyTrials, b: StudyTrials) -> Finding:
    count = min(a.k, b.k)
    if not count:
        return Finding(_best(a.rows_in_k), _best(b.rows_in_k), "not_judged", "no trial that counts in one place")
    best = largest_with_band(count)
    bands = [band(*trials.bounds(trials_of_study.rows_in_k.iloc[:count]), best) for trials_of_study in (a, b)]
    if np.isnan(bands).all(axis=1).any():
        trials_are = "1 trial is" if count == 1 else f"{count} trials are"
        why = f"independent, but {trials_are} too few for a band"
        return Finding(_best(a.rows_in_k), _best(b.rows_in_k), "not_judged", why)
    reading_a, reading_b = (
        Reading(np.nan_to_num(start), end if end < np.inf else np.inf, REACHED if np.isfinite(end) else "no upper end")
        for start, end in bands
    )
    why = f"independent: 90 % bands of the median best of {best}, from {count} trials each"
    return Finding(reading_a, reading_b, _verdict(reading_a, reading_b), why)


def largest_with_band(n: int) -> int:
    """Returns the largest k >= 1 for which the band from n trials has a lower end: .5^(n/k) ≤ .05, so k ≤ .23 n."""
    return max(1, int(n / math.log2(1 / TAIL)))


def band(low: np.ndarray, high: np.ndarray, k: int) -> tuple[float, float]:
    """Returns a 90 % band for the median number of steps of the best trial in random searches of k trials.

    The best of k random trials is at most x with probability 1 − (1 − F(x))^k, so its median is the quantile q = 1 −
    .5^(1/k) of single trials. The band uses ranks, without assuming a distribution of steps: the number of trials below
    this quantile has the distribution Binomial(n, q). It is valid for any steps within the trials' intervals.

    Args:
      low, high: float64[n]. Trial i needed more than low[i] and at most high[i] steps. Both are +inf if the trial never
        reached the target.
      k: 1 ≤ k ≤ n.

    Returns:
      The ends of (first, second], each a 95 % bound. An end is NaN if there are too few trials for it.
    """
    n = len(low)
    chance_of_fewer = special.bdtr(np.arange(n), n, -np.expm1(-math.log(2) / k))  # P(at most 0, 1, ... n - 1 trials)
    first, last = int((chance_of_fewer <= TAIL).sum()), int((chance_of_fewer < 1 - TAIL).sum())
    return np.sort(low)[first - 1] if first else math.nan, np.sort(high)[last] if last < n else math.nan


def _verdict(a: Reading, b: Reading) -> str:
    """Compares intervals that are open below and closed above."""
    if a[:2] == b[:2]:
        return "same"
    return "differ" if _beyond(a.low, b.high) or _beyond(b.low, a.high) else "agree"


def _beyond(low: Any, high: Any) -> Any:
    """Returns whether an interval starting at ``low`` lies above one ending at ``high``. From 0, it may include 0."""
    return (low >= high) & (low > 0)


def _alone(pair: Pair, read: Callable[[Any], Reading]) -> Finding:
    a, b = (None if side is None else read(side) for side in pair[:2])
    if pair.why:
        return Finding(a, b, "not_judged", pair.why)
    return Finding(a, b, "only_b" if a is None else "only_a", "")


def _seconds(factorization: MeasuredFactorization) -> Reading:
    device = factorization.device or "unknown device"
    words = f"{device}, emulated" if factorization.hardware and factorization.hardware.emulated else device
    seconds = factorization.seconds
    return Reading(seconds.min(), seconds.max(), words) if len(seconds) else Reading(np.nan, np.nan, words)


def _recall(factorization: MeasuredFactorization, name: str) -> Reading:
    value = factorization.result(name)
    return Reading(value, value, f"trial {factorization.chosen}" if factorization.chosen is not None else "no trial")
