"""Fits: the points of a curve with its extents, its critical batch size and the verdict on it."""

from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import (
    FEWEST_BATCH_SIZES,
    assumptions,
    convex_profile,
    curves,
    extents,
    narrowing,
    regimes,
    samples,
    weights,
)
from analysis.fitting.assumptions import Check
from analysis.fitting.curves import Curve, Points
from analysis.fitting.extents import GAIN, UNKNOWN, Extent, Extents
from analysis.fitting.narrowing import Narrowing
from results.bad_input import number_of

OF_SEARCH = ("trials", "search", "space")  # assumptions that do not concern the curve's shape


class PointsFit(NamedTuple):
    """The points of a curve and their fit, which is None if the data do not support a fit.

    Attributes:
      extents: how far larger batches pay off and stay efficient, for any shape of the curve, if there are enough batch
        sizes.
      shift: octaves by which the critical batch size changes if only half of the trials are used, or NaN if unknown.
      checks: checks of the fit's assumptions, or empty if there is no fit.
    """

    points: Points
    fit: regimes.Fit | None
    verdict: text.Verdict
    reason: str
    extents: Extents | None = None
    shift: float = float("nan")
    checks: tuple[Check, ...] = ()

    @property
    def doubts(self) -> list[str]:
        """The names of assumptions that the data contradict."""
        return [check.assumption for check in self.checks if check.outcome == "doubt"]

    @property
    def search_doubts(self) -> list[str]:
        """The contradicted assumptions about the search, on which answers for any shape also depend."""
        return [name for name in self.doubts if name in OF_SEARCH]

    @property
    def pays(self) -> Extent:
        """The extent up to which doubling pays off."""
        return self.extents.pays if self.extents else UNKNOWN

    @property
    def critical_in_words(self) -> str:
        """The critical batch size as ``64 [58, 70]``, ``at least 9,170``, or ``unknown``."""
        fit = self.fit
        if fit is None:
            return "unknown"
        return text.statement(self.verdict, *map(text.number, (fit.critical_batch_size, fit.low, fit.high)))

    @property
    def hyperbola_in_words(self) -> str:
        """The critical batch size with its doubts, such as ``64 [58, 70], in doubt``."""
        return text.with_doubt(self.critical_in_words, self.verdict, in_doubt=bool(self.doubts))

    @property
    def verdict_in_words(self) -> str:
        """The verdict on the critical batch size, such as ``identified, in doubt``."""
        return text.verdict_in_words(self.verdict, in_doubt=bool(self.doubts))

    @property
    def extents_in_words(self) -> tuple[str, str]:
        """*pays up to* and *efficient up to*: ``96 [64, 210]``, ``at least 64 (best 96), in doubt`` or ``unknown``."""
        in_doubt = bool(self.search_doubts)
        pays, efficient = (extent_in_words(extent, in_doubt=in_doubt) for extent in self.extents or (UNKNOWN, UNKNOWN))
        return pays, efficient

    @property
    def pays_in_words(self) -> str:
        """*pays up to* as ``96 [64, 210]``, ``at least 64, in doubt`` or ``unknown``."""
        return self.bound_in_words(self.pays)

    def bound_in_words(self, extent: Extent) -> str:
        """Formats an extent of the curve as ``96 [64, 210]``, ``at least 64, in doubt`` or ``unknown``."""
        return text.with_doubt(text.bound(*extent), extent.verdict, in_doubt=bool(self.search_doubts))


def of_points(points: Points, distinction: str = "") -> PointsFit:
    """Fits ``points`` if they support a fit, and gives the reasons for the verdict."""
    notes = [distinction, *points.notes] if distinction else [*points.notes]
    if points.refusal:
        return PointsFit(points, None, "not_identified", "; ".join([*notes, points.refusal]))
    used = points.usable()
    notes += _bounds(points)
    n = len(used.batch_size)
    if n < FEWEST_BATCH_SIZES:
        usable = "usable " if n < len(points.batch_size) or points.notes else ""
        shortage = f"only {number_of(n, f'{usable}batch size')}" if n else "no usable batch size"
        notes.append(f"{shortage}, but a fit needs {FEWEST_BATCH_SIZES}")
        if n < len(points.batch_size):
            notes.append("ask for a harder target, or evaluate more often")
        return PointsFit(points, None, "not_identified", "; ".join(notes))
    sample = used.sample
    left_out = samples.left_out(sample.low, sample.high) if sample and sample.is_shared else None
    evidence = samples.evidence(sample.low[None], sample.high[None]) if sample else None
    fit = regimes.fit(used.batch_size, used.low, used.high, used.weights, left_out, evidence)
    reason = "; ".join([*notes, *fit.caveats])
    shift = float("nan") if np.isnan(fit.critical_batch_size) else fit.shape.shift
    return PointsFit(points, fit, fit.verdict, reason, extents_of(points), shift, assumptions.check(fit, used))


def _bounds(points: Points) -> list[str]:
    """Returns notes on batch sizes at which the steps are only bounded."""
    bounded, at_first = points.only_bounded, points.low == 0
    notes = []
    if (bounded & at_first).any():
        where = text.batch_sizes(points.batch_size[bounded & at_first])
        notes.append(f"the target was met at the first evaluation at {where}, which is only a bound")
    if (bounded & ~at_first).any():
        where = text.batch_sizes(points.batch_size[bounded & ~at_first])
        notes.append(f"evaluations are more than a factor of {curves.WIDEST:g} apart at {where}, which is only a bound")
    return notes


def extents_of(points: Points, gain: float = GAIN, *, assume_nothing: bool = False) -> Extents | None:
    """Returns how far larger batches pay off and stay efficient, if enough batch sizes are usable.

    Args:
      points: points of a curve.
      gain: required speed-up per doubling, as a fraction.
      assume_nothing: whether to allow every convex curve equally, instead of averaging over the prior curves.
    """
    data = data_of(points)
    if data is None:
        return None
    method = convex_profile if assume_nothing else extents
    return method.estimate(*data[:4], gain, data.share)


def data_of(points: Points) -> extents.Data | None:
    """Returns the data for ``extents_of``, if at least ``FEWEST_BATCH_SIZES`` batch sizes are usable.

    Batch sizes with extra trials use the expected best of ``points.trials``.
    """
    used = points.usable()
    if points.refusal or len(used.batch_size) < FEWEST_BATCH_SIZES:
        return None
    ends = regimes.from_zero(used.low), used.high
    low, high, share = narrowing.expected_best(*ends, used.every, used.trials or 1)
    return extents.Data(used.batch_size, low, high, minimum_variance(used), share)


def narrowed(points: Points, gain: float = GAIN) -> Narrowing | None:
    """Returns the expected interval widths after more trials, if the selection noise can be estimated."""
    data = data_of(points)
    if data is None or data.variance is None:
        return None
    return narrowing.expected(*data[:3], data.variance, gain, data.share)


def minimum_variance(points: Points) -> np.ndarray | None:
    """Returns the jackknife variances of a curve's points (their selection variance), if there are enough trials."""
    if points.sample is None or points.sample.low.shape[1] < samples.FEWEST_TRIALS:
        return None
    variance = weights.minimum_variance(samples.trial_steps(points.sample.low, points.sample.high))
    return variance if (variance > 0).any() else None


def of_curve(curve: Curve) -> PointsFit:
    """Fits a curve from a store."""
    return of_points(curves.points(curve), curve.distinction)


def extent_in_words(extent: Extent, *, in_doubt: bool) -> str:
    """Formats one of the answers of ``extents_in_words``."""
    return text.with_doubt(text.answer(*extent), extent.verdict, in_doubt=in_doubt)


def both_in_words(selected: PointsFit, confirmed: PointsFit | None) -> str:
    """Formats the selected and, if there are reruns, the confirmed *pays up to*, without the best values of bounds."""
    words = selected.pays_in_words
    return join_answers(words, confirmed.pays_in_words) if confirmed else words


def join_answers(selected: str, confirmed: str) -> str:
    """Joins the texts of the selected and the confirmed answer."""
    return f"selected {selected}; confirmed {confirmed}"
