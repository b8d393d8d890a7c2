"""Fits: the critical batch size of every curve in a store or in a file of points."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import BEST, CHECKS as CHECK_COLUMNS, CONFIRMED, DIFFERS, FITS as COLUMNS
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
from analysis.workload_studies import CURVE_COLUMNS
from results import bounds, definitions, progress
from results.bad_input import BadInput, meaning, nearest, number_of
from results.printing import Report, say

POINTS_COLUMNS = ("batch_size", "steps", "steps_low", "steps_high")
# `steps --csv` also writes these columns for each point; they do not separate curves.
BESIDE_POINTS = (
    *("trial", "complete", "infeasible", "incomplete", "seconds_per_epoch"),
    *(*CONFIRMED, *BEST),
)
OF_SEARCH = ("trials", "search", "space")  # assumptions that do not concern the curve's shape
KEPT = ("pays up to", "efficient up to", "critical batch size")
LEAST = ("sharpness", "half the trials", "model error", "s_min", "verdict")  # a narrow terminal drops these first
MEANING = (
    f"pays up to: {definitions.PAYS_UP_TO}.\nefficient up to: {definitions.EFFICIENT_UP_TO}.\nBoth hold {{shape}}, "
    "with a 90 % interval. Each end is a 95 % bound."
)
SHAPE = {False: "for any smooth shape: an average over 150,000 curves", True: "for any convex curve"}
LIMITS = (
    f"critical batch size: {definitions.CRITICAL_BATCH_SIZE}, if the curve is a hyperbola, or one with a softer or "
    "sharper knee. Assumed: slope -1 at small batch sizes, a flat plateau, a knee equally sharp on both sides, a "
    "search equally hard at every batch size."
    "\nIf the data contradict one of these, no interval is reported.\nThese checks can miss. A true slope of -0.85 "
    "shifts the estimate by 0.75 octaves. It is detected in half of low-noise curves and rarely in noisy ones.\n"
    "Look at the figures as well as the numbers, and at `fit --checks`."
)


_LOGS = "Logs of runs are imported with `python -m results import runs PATH --map FILE`."


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
        found = f"only {number_of(n, f'{usable}batch size')}" if n else "no usable batch size"
        notes.append(f"{found}, but a fit needs {FEWEST_BATCH_SIZES}")
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


def halved_by(points: Points, gain: float = GAIN) -> tuple[float, float]:
    """Returns the factors by which to multiply the trials to halve the intervals of ``extents_of``, NaN if unknown."""
    found = narrowed(points, gain)
    return found.halved_by if found else (float("nan"), float("nan"))


def minimum_variance(points: Points) -> np.ndarray | None:
    """Returns the jackknife variances of a curve's points (their selection variance), if there are enough trials."""
    if points.sample is None or points.sample.low.shape[1] < samples.FEWEST_TRIALS:
        return None
    variance = weights.minimum_variance(samples.trial_steps(points.sample.low, points.sample.high))
    return variance if (variance > 0).any() else None


def of_curve(curve: Curve) -> PointsFit:
    """Fits a curve from a store."""
    return of_points(curves.points(curve), curve.distinction)


def of_file(file: Path, report: Report | None = None) -> tuple[pd.DataFrame, list[PointsFit]]:
    """Returns the names of the curves in a CSV file of points, one row per curve, and their fits.

    Args:
      file: the file.
      report: called with progress lines.

    Raises:
      BadInput: the file cannot be read, lacks a column, or contains values other than positive numbers.
    """
    rows = read_points(file)
    empty = {name for name in DIFFERS if name in rows and rows[name].isna().all()}
    grouping = [column for column in rows.columns if column not in {*POINTS_COLUMNS, *BESIDE_POINTS, *empty}]
    groups = [group for _, group in rows.groupby(grouping, sort=False, dropna=False)] if grouping else [rows]
    for column in [each for each in grouping if _splits(rows, each, grouping)]:
        say(f"note: column {column} splits the points into {len(groups)} curves. Remove it if they are one curve.")
    names = pd.concat([group[grouping].head(1) for group in groups], ignore_index=True)
    return names, [of_points(_points(group)) for group in progress.track(groups, "fit", " curves", report)]


def _splits(rows: pd.DataFrame, column: str, grouping: Sequence[str]) -> bool:
    """Returns whether batch sizes would occur only once in each curve without a column that is not a usual name."""
    others = [each for each in grouping if each != column]
    return (
        column not in CURVE_COLUMNS
        and rows[column].nunique() > 1
        and not rows.duplicated([*others, "batch_size"]).any()
    )


def of_steps(batch_size: pd.Series, steps: pd.Series, steps_low: pd.Series | None = None) -> PointsFit:
    """Fits steps to target [n] at batch sizes [n], in any order.

    Args:
      batch_size: batch sizes, in examples.
      steps: steps to target, or their upper ends.
      steps_low: lower ends. By default, steps are exact.
    """
    ends = {"steps_low": steps if steps_low is None else steps_low, "steps_high": steps}
    return of_points(_points(pd.DataFrame({"batch_size": batch_size} | ends).astype(np.float64)))


def read_points(file: Path) -> pd.DataFrame:
    """Reads a file's rows: batch_size, steps_low and steps_high as float64 (NaN if not reached), the others as text.

    A column steps has the upper ends. The steps are exact without a column steps_low.
    """
    try:
        rows = pd.read_csv(io.BytesIO(bounds.text(file)), dtype=str)
    except OSError as error:
        logs = f". {_LOGS}" if file.is_dir() else ""
        raise BadInput(f"cannot read --points {file} ({error.strerror}){meaning(file)}{logs}") from None
    except ValueError as error:  # empty, not text, or ragged
        raise BadInput(f"--points {file} is not a CSV table ({str(error).strip()})") from None
    columns = list(map(str, rows.columns))
    if {"steps", "steps_high"} <= set(columns):
        raise BadInput(f"--points {file} has columns steps and steps_high, which mean the same. Keep one of them.")
    ends = ["steps_low", "steps" if "steps" in columns else "steps_high"]
    exact = "steps" in columns and "steps_low" not in columns
    for column in ["batch_size", "steps"] if exact else ["batch_size", *ends]:
        if column not in columns:
            instead = "" if column == "batch_size" else ", or a column steps"
            logs = f". {_LOGS}" if column != "batch_size" and "step" in columns else ""
            raise BadInput(f"--points {file} lacks a column {column}{instead}; {nearest(column, columns)}{logs}")
        numbers = pd.to_numeric(rows[column], errors="coerce").astype(np.float64)
        small = numbers < 0 if column in ("steps_low", "steps_high") else numbers <= 0
        missing = rows[column].isna() if column == "batch_size" else False
        _refuse(file, (numbers.isna() & rows[column].notna()) | small | np.isinf(numbers) | missing, column, rows)
        rows[column] = numbers
    if exact:
        rows = rows.assign(steps_low=rows["steps"])
    rows = rows.rename(columns={"steps": "steps_high"})
    crossed = rows["steps_low"] > rows["steps_high"]
    if crossed.any():
        row = int(np.argmax(crossed))
        low, high = (f"{rows[end].iloc[row]:g}" for end in ("steps_low", "steps_high"))
        raise BadInput(f"--points {file}: line {row + 2} has steps_low {low} above {ends[1]} {high}. Swap them.")
    if rows.empty:
        raise BadInput(f"--points {file} has no rows")
    return rows


def _refuse(file: Path, wrong: pd.Series, column: str, rows: pd.DataFrame) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        value = rows[column].iloc[row]
        words = "empty" if pd.isna(value) else repr(value)
        raise BadInput(f"--points {file}: {column} in line {row + 2} is {words}. It must be a positive number.")


def _points(rows: pd.DataFrame) -> Points:
    rows = rows.sort_values("batch_size")
    finished = rows[rows["steps_high"] > 0]
    at_start = sorted(set(rows.loc[rows["steps_high"] == 0, "batch_size"]))
    twice = sorted(set(finished.loc[finished["batch_size"].duplicated(), "batch_size"]))
    refusal = f"several rows at {text.batch_sizes(twice)}: add a column that separates their curves" if twice else ""
    dropped = sorted(set(rows["batch_size"]) - set(finished["batch_size"]) - set(at_start))
    notes = ["points without trials: all batch sizes have equal weights"]
    if at_start:
        notes.append(f"met at the start, before any step, at {text.batch_sizes(at_start)}, left out")
    if dropped:
        notes.append(f"left out: {text.batch_sizes(dropped)}, at which no trial reached the target")
    high = finished["steps_high"].to_numpy()
    low = finished["steps_low"].fillna(0).to_numpy()  # without a lower end, the steps are only bounded
    return Points(finished["batch_size"].to_numpy(), low, high, np.ones(len(high)), None, tuple(notes), refusal)


def table(
    names: pd.DataFrame,
    points_fits: list[PointsFit],
    gain: float = GAIN,
    *,
    assume_nothing: bool = False,
    report: Report | None = None,
) -> pd.DataFrame:
    """Returns a table with one row per curve: its ``names``, and ``COLUMNS`` of its fit. See ``extents_of``.

    ``report`` is called with progress lines.
    """
    rows = []
    for one in progress.track(points_fits, "pays and efficient up to", " curves", report):
        found = extents_of(one.points, gain, assume_nothing=assume_nothing) or (UNKNOWN, UNKNOWN)
        numbers = (*one.fit[:5], one.fit.model_error) if one.fit else (float("nan"),) * 6
        of_fit = (*numbers[:5], one.verdict, one.shift, numbers[5], ", ".join(doubts(one)), one.reason)
        rows.append((*found[0], *found[1], *halved_by(one.points, gain), *of_fit))
    return pd.concat([names, pd.DataFrame(rows, columns=list(COLUMNS))], axis=1)


def doubts(points_fit: PointsFit) -> list[str]:
    """Returns the names of assumptions that the data contradict."""
    return [check.assumption for check in points_fit.checks if check.outcome == "doubt"]


def extent_doubts(points_fit: PointsFit) -> list[str]:
    """Returns the contradicted assumptions about the search, on which answers for any shape also depend."""
    return [name for name in doubts(points_fit) if name in OF_SEARCH]


def checks(names: pd.DataFrame, points_fits: list[PointsFit]) -> pd.DataFrame:
    """Returns a table with one row per assumption of each fit: the curve's ``names``, then ``CHECK_COLUMNS``."""
    rows = [(i, *check) for i, one in enumerate(points_fits) for check in one.checks]
    table = pd.DataFrame(rows, columns=["curve", *CHECK_COLUMNS])
    return names.loc[table.pop("curve")].reset_index(drop=True).join(table)


def checks_as_text(names: pd.DataFrame, points_fits: list[PointsFit]) -> str:
    """Formats the assumptions of every fit as text: one list per fit, headed by its number in ``as_text``."""
    lines = []
    for i, one in enumerate(points_fits):
        name = " · ".join(str(value) for value in names.iloc[i] if not pd.isna(value))
        lines += [f"{i + 1}: {name}: {one.verdict.replace('_', ' ')}" if name else f"{i + 1}: {one.verdict}"]
        lines += [assumptions.listing(one.checks) if one.checks else one.reason, ""]
    return "\n".join(lines[:-1])


def as_text(table: pd.DataFrame, gain: float = GAIN, *, assume_nothing: bool = False) -> str:
    """Formats the fits as text: one line per fit, then reasons and doubts by row, then the assumptions."""
    naming = [column for column in table.columns if column not in COLUMNS]
    rows = []
    reasons, doubts = [], []
    for i, row in enumerate(table.to_dict("records"), start=1):
        shift, error = row["half_trials_octaves"], row["model_error_octaves"]
        cells = {"": str(i)} | {name: "" if pd.isna(row[name]) else str(row[name]) for name in naming}
        in_doubt = not set(OF_SEARCH).isdisjoint(row["doubts"].split(", "))
        for heading, name in (("pays up to", "pays"), ("efficient up to", "efficient")):
            best, low, high = (row[f"{name}_up_to{end}"] for end in ("", "_low", "_high"))
            extent = Extent(best, low, high, row[f"{name}_verdict"])
            cells[heading] = extent_in_words(extent, in_doubt=in_doubt)
        best, low, high = (row[f"critical_batch_size{end}"] for end in ("", "_low", "_high"))
        cells["critical batch size"] = text.answer(best, low, high, row["verdict"])
        cells |= {
            "verdict": text.verdict_in_words(row["verdict"], in_doubt=bool(row["doubts"])),
            "s_min": text.number(row["s_min"]),
            "sharpness": text.number(row["sharpness"]),
            "half the trials": "" if pd.isna(shift) else f"{shift:+.2f} octaves",
            "model error": "" if pd.isna(error) else f"{error:.2f} octaves",
        }
        rows.append(cells)
        if row["reason"]:
            reasons.append((i, row["reason"]))
        for assumption in filter(None, row["doubts"].split(", ")):
            doubts.append((i, f"in doubt: {assumption}, because {assumptions.FINDINGS[assumption]}"))
    notes = text.grouped(reasons) + text.grouped(doubts)
    if doubts:
        notes.append("`fit --checks` shows the evidence for each doubt")
    notes += what_to_pay_for(table)
    shown = text.table(rows, [*naming, "verdict"], least=LEAST, kept=KEPT)
    meaning = MEANING.format(gain=f"{100 * gain:g}", shape=SHAPE[assume_nothing])
    return "\n".join([shown, "", *notes, "", meaning, LIMITS])


def what_to_pay_for(table: pd.DataFrame) -> list[str]:
    """Returns a note on the trials needed to halve each interval: the median over curves for which it is known."""
    words, counts = [], []
    for name in ("pays", "efficient"):
        known = table[f"{name}_halved_by"].dropna()
        if len(known):
            middle = known.median()
            times = f"about {text.number(middle, 2)} ×" if np.isfinite(middle) else "more than 32 ×"
            words.append(f"{times} the trials for {name} up to")
            counts.append(str(len(known)))
    if not words:
        return []
    return [
        f"halving the interval takes {' and '.join(words)} (median of {' and '.join(counts)} curves), if each point "
        "stays the expected best of the same number of trials. Taking the best of all trials narrows it less, and "
        "repeats cannot halve it."
    ]


def critical_in_words(points_fit: PointsFit) -> str:
    """Formats the critical batch size as ``64 [58, 70]``, ``at least 9,170``, or ``unknown``."""
    fit = points_fit.fit
    if fit is None:
        return "unknown"
    return text.statement(points_fit.verdict, *map(text.number, (fit.critical_batch_size, fit.low, fit.high)))


def hyperbola_in_words(points_fit: PointsFit) -> str:
    """Formats the critical batch size with its doubts, such as ``64 [58, 70], in doubt``."""
    return text.with_doubt(critical_in_words(points_fit), points_fit.verdict, in_doubt=bool(doubts(points_fit)))


def extents_in_words(points_fit: PointsFit) -> tuple[str, str]:
    """Formats *pays up to* and *efficient up to*.

    Returns:
      Two texts such as ``96 [64, 210]``, ``at least 64 (best 96)`` or ``unknown``, with ``, in doubt`` if an assumption
      about the search is contradicted.
    """
    in_doubt = bool(extent_doubts(points_fit))
    pays, efficient = (extent_in_words(one, in_doubt=in_doubt) for one in points_fit.extents or (UNKNOWN, UNKNOWN))
    return pays, efficient


def extent_in_words(extent: Extent, *, in_doubt: bool) -> str:
    """Formats one of the answers of ``extents_in_words``."""
    return text.with_doubt(text.answer(*extent), extent.verdict, in_doubt=in_doubt)


def bound_in_words(extent: Extent, points_fit: PointsFit) -> str:
    """Formats an answer of a curve as ``96 [64, 210]``, ``at least 64, in doubt`` or ``unknown``."""
    return text.with_doubt(text.bound(*extent), extent.verdict, in_doubt=bool(extent_doubts(points_fit)))


def pays_in_words(points_fit: PointsFit) -> str:
    """Formats the estimate *pays up to* as ``96 [64, 210]``, ``at least 64, in doubt`` or ``unknown``."""
    return bound_in_words(points_fit.extents.pays if points_fit.extents else UNKNOWN, points_fit)


def verdict_in_words(points_fit: PointsFit) -> str:
    """Formats the verdict on the critical batch size, such as ``identified, in doubt``."""
    return text.verdict_in_words(points_fit.verdict, in_doubt=bool(doubts(points_fit)))


def both_in_words(selected: PointsFit, confirmed: PointsFit | None) -> str:
    """Formats the selected and, if there are reruns, the confirmed *pays up to*, without the best values of bounds."""
    words = pays_in_words(selected)
    return join_answers(words, pays_in_words(confirmed)) if confirmed else words


def join_answers(selected: str, confirmed: str) -> str:
    """Joins the texts of the selected and the confirmed answer."""
    return f"selected {selected}; confirmed {confirmed}"
