"""Tables of fits, and of the assumptions behind them, as data and as text."""

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import CHECKS as CHECK_COLUMNS, FITS as COLUMNS
from analysis.fitting import assumptions
from analysis.fitting.extents import GAIN, UNKNOWN, Extent
from analysis.fitting.fits import OF_SEARCH, PointsFit, extent_in_words, extents_of, narrowed
from results import definitions, progress
from results.printing import Report

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
    for points_fit in progress.track(points_fits, "pays and efficient up to", " curves", report):
        fit, points = points_fit.fit, points_fit.points
        pays, efficient = extents_of(points, gain, assume_nothing=assume_nothing) or (UNKNOWN, UNKNOWN)
        widths = narrowed(points, gain)
        halved_by = widths.halved_by if widths else (np.nan, np.nan)
        numbers = (
            (*fit[:5], points_fit.verdict, points_fit.shift, fit.model_error)
            if fit
            else (*(np.nan,) * 5, points_fit.verdict, points_fit.shift, np.nan)
        )
        rows.append((*pays, *efficient, *halved_by, *numbers, ", ".join(points_fit.doubts), points_fit.reason))
    return pd.concat([names, pd.DataFrame(rows, columns=list(COLUMNS))], axis=1)


def checks(names: pd.DataFrame, points_fits: list[PointsFit]) -> pd.DataFrame:
    """Returns a table with one row per assumption of each fit: the curve's ``names``, then ``CHECK_COLUMNS``."""
    rows = [(i, *check) for i, points_fit in enumerate(points_fits) for check in points_fit.checks]
    table = pd.DataFrame(rows, columns=["curve", *CHECK_COLUMNS])
    return names.loc[table.pop("curve")].reset_index(drop=True).join(table)


def checks_as_text(names: pd.DataFrame, points_fits: list[PointsFit]) -> str:
    """Formats the assumptions of every fit as text: one list per fit, headed by its number in ``as_text``."""
    lines = []
    for i, points_fit in enumerate(points_fits):
        name = " · ".join(str(value) for value in names.iloc[i] if not pd.isna(value))
        lines += [
            f"{i + 1}: {name}: {points_fit.verdict.replace('_', ' ')}" if name else f"{i + 1}: {points_fit.verdict}"
        ]
        lines += [assumptions.listing(points_fit.checks) if points_fit.checks else points_fit.reason, ""]
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
        multiples = table[f"{name}_halved_by"].dropna()
        if len(multiples):
            middle = multiples.median()
            times = f"about {text.number(middle, 2)} ×" if np.isfinite(middle) else "more than 32 ×"
            words.append(f"{times} the trials for {name} up to")
            counts.append(str(len(multiples)))
    if not words:
        return []
    return [
        f"halving the interval takes {' and '.join(words)} (median of {' and '.join(counts)} curves), if each point "
        "stays the expected best of the same number of trials. Taking the best of all trials narrows it less, and "
        "repeats cannot halve it."
    ]
