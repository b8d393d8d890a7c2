"""By k: how the critical batch size moves with the number of trials that every point is the best of.

A minimum falls as the search grows, and more where fewer trials reach the target. The first k trials of each study are
a search of k of their own, so that studies whose losing trials were not cut short tell of every k up to their number;
pruned ones tell of that number alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from analysis.fitting import curve_fits, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.curves import Curve
from analysis.fitting.fits import PointsFit
from results.bad_input import BadInput

FEWEST = 8  # trials; fewer are hardly a search


class AtK(NamedTuple):
    """The fit of a curve whose points are the best of k trials each."""

    one: CurveFits
    k: int
    selected: PointsFit


def numbers(one: CurveFits) -> list[int]:
    """Powers of two that a curve tells of, from ``FEWEST`` on, and how many trials it has."""
    count = one.selected.points.trials or 0
    if one.curve.pruned or count < FEWEST:
        return [count] if count else []
    powers = [2**i for i in range(FEWEST.bit_length() - 1, count.bit_length()) if 2**i < count]
    return [*powers, count]


def refit(curves: Sequence[CurveFits], ks: Sequence[int] = ()) -> list[AtK]:
    """Every curve by k, sorted by k within a curve.

    Args:
      curves: curves.
      ks: numbers of trials; those at which a curve cannot be fitted are left out. Empty: those of ``numbers``.
    """
    return [
        AtK(one, k, one.selected if k == one.selected.points.trials else fits.of_curve(first_trials(one.curve, k)))
        for one in curves
        for k in sorted(set(ks or numbers(one)))
        if _tells(one, k)
    ]


def rows(curves: Sequence[CurveFits], ks: Sequence[int]) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Names of curves and numbers of trials, a row for every k of each curve, with the fits.

    Raises:
      BadInput: no curve tells of any number of trials that is asked for.
    """
    refits = refit(curves, ks)
    if not refits:
        available = sorted({k for one in curves for k in numbers(one)})
        wanted, there_are = (", ".join(map(str, each)) for each in (ks, available))
        raise BadInput(f"no curve can be fitted at the best of {wanted} trials; available: {there_are or 'none'}")
    return curve_fits.naming([(at.one.curve, curve_fits.SELECTED, at.k) for at in refits]), [
        at.selected for at in refits
    ]


def notes(curves: Sequence[CurveFits], ks: Sequence[int]) -> list[str]:
    """A note that names the requested numbers of trials that no curve has."""
    missing = [k for k in sorted(set(ks)) if not any(_tells(one, k) for one in curves)]
    return [f"no curve can be fitted at the best of {', '.join(map(str, missing))} trials"] if missing else []


def table(refits: Sequence[AtK]) -> pd.DataFrame:
    """Critical batch sizes in words: a row for every curve, a column for every k."""
    groups = curve_fits.comparable_groups([at.one for at in refits], "optimizer", "targets", "pruning")
    apart = {one.curve.key: " ".join(names[4:]) for names, members in groups for one in members}
    names = curve_fits.naming([(at.one.curve, curve_fits.SELECTED, at.k) for at in refits])
    names["words"] = [fits.critical_in_words(at.selected) for at in refits]
    names["of"] = [apart[at.one.curve.key] for at in refits]
    keys = ["dataset", "model", "optimizer", "target_value", *(["of"] if names["of"].any() else [])]
    return names.pivot_table(index=keys, columns="best_of", values="words", aggfunc=", ".join, sort=False)


def first_trials(curve: Curve, k: int) -> Curve:
    """The curve of the first k trials of each study, of those that count."""
    return curve._replace(trials=curve.trials[curve.trials.groupby("study").cumcount() < k])


def _tells(one: CurveFits, k: int) -> bool:
    count = one.selected.points.trials or 0
    return k == count or (k < count and not one.curve.pruned)
