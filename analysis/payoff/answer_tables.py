"""Tables of pay-off: the answers, and the time and device-hours for every number of devices, as data and as text."""

import collections
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import PAYOFF, PAYOFF_TIMES
from analysis.fitting import fit_tables
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.extents import GAIN
from analysis.fitting.fits import PointsFit
from analysis.payoff import time_to_target
from analysis.payoff.answers import Answer
from analysis.payoff.step_times import BASES, NAMES, PREDICTED, Basis
from analysis.payoff.subjects import DIFFERING
from analysis.payoff.time_to_target import PayOff
from results import definitions
from results.aliases import Json
from results.bad_input import BadInput, check_choice

LIMITS = (
    "A doubling pays off if it makes training faster by {gain} % or more (100 % is perfect). Intervals "
    "are of 90 %, and each end is a 95 % bound.",
    f"pays up to: {definitions.PAYS_UP_TO}, for any hardware. efficient up to: {definitions.EFFICIENT_UP_TO}. Both "
    "hold for any smooth shape.",
)
HOURS_INTERVAL, PRICE_INTERVAL, BEATEN = "90 % of hours", "90 % of price", "beaten"  # columns for a reader
ANY_DEVICE = ""  # the key of a price for every kind of device
BEFORE, RUNS = "before step 1", "runs"  # columns of runs with given steps
OF_FRONT = (
    "beaten: another number of devices is as fast and as cheap, and better in one. All others are on the Pareto front."
)
OF_TIMES = (
    "measured, predicted, published devices: the number after the last doubling that pays off, with seconds per step "
    "of this origin, at the fastest batch size, if the curve has the fitted shape. Times without communication are a "
    "best case for any network. Runs with given steps need no curve."
)


def table(answers: Sequence[Answer]) -> pd.DataFrame:
    """Returns one row per answer: the names of the subject, then the columns ``PAYOFF``."""
    rows = []
    for answer in answers:
        row = {"gain_percent": 100 * answer.gain, "device_kind": answer.device_kind or None}
        row |= {"predicted_by": answer.predicted_by or None, "reason": "; ".join(answer.notes)}
        lasts = [("batch", "batch_size", answer.pays), ("efficient", "efficient_batch_size", answer.efficient)]
        lasts += [(basis, f"{basis}_devices", pay_off.last) for basis, pay_off in answer.pay_offs.items()]
        for prefix, name, last in lasts:
            row |= dict(zip((name, f"{name}_low", f"{name}_high", f"{prefix}_verdict"), last, strict=True))
        rows.append(row)
    return _named(answers, pd.DataFrame(rows, columns=list(PAYOFF)))


def of_fits(names: pd.DataFrame, points_fits: Sequence[PointsFit]) -> pd.DataFrame:
    """Returns the table of fits (see ``fit_tables.table``), followed by the answers in words (``fit_tables.KEPT``)."""
    words = [(*points_fit.extents_in_words, points_fit.hyperbola_in_words) for points_fit in points_fits]
    return fit_tables.table(names, list(points_fits)).join(pd.DataFrame(words, columns=fit_tables.KEPT))


def of_curves(fitted: Sequence[CurveFits]) -> pd.DataFrame:
    """Returns ``of_fits`` for the selected answers of curves, indexed by data set, model and optimizer."""
    names = pd.DataFrame([curve.curve.workload[:3] for curve in fitted], columns=NAMES)
    return of_fits(names, [curve.selected for curve in fitted]).set_index(list(NAMES))


def times_table(answers: Sequence[Answer], prices: Mapping[str, float] = MappingProxyType({})) -> pd.DataFrame:
    """Returns one row per device count and answer: the names of the subject, then the columns ``PAYOFF_TIMES``.

    Args:
      answers: the answers.
      prices: hourly price by device kind, or by ``ANY_DEVICE``.
    """
    rows, owners = [], []
    for answer in answers:
        by_count: dict[float, Json] = {}
        for basis in answer.pay_offs:
            for row in _time_rows(answer, basis, prices):
                count = row.pop("devices")
                by_count.setdefault(count, {}).update({f"{basis}_{name}": value for name, value in row.items()})
        for count in sorted(by_count):
            shared = {"device_kind": answer.device_kind, "devices": count, "predicted_by": answer.predicted_by or None}
            rows.append(shared | by_count[count])
            owners.append(answer)
    return _named(owners, pd.DataFrame(rows, columns=list(PAYOFF_TIMES)).astype({"devices": "Int64"}))


def _time_rows(answer: Answer, basis: Basis, prices: Mapping[str, float]) -> list[Json]:
    """Returns devices, batch_size and on_front, and the values and intervals of seconds, device_hours and price."""
    pay_off = answer.pay_offs[basis]
    hourly = prices.get(answer.device_kind, prices.get(ANY_DEVICE, np.nan))
    front = time_to_target.on_front(pay_off.seconds, pay_off.device_hours)
    rows = []
    for i, count in enumerate(pay_off.devices.tolist()):
        row = {"devices": count, "batch_size": pay_off.batch_size[i], "on_front": "yes" if front[i] else "no"}
        for end, seconds in (("", pay_off.seconds), ("_low", pay_off.low), ("_high", pay_off.high)):
            hours = count * seconds[i] / 3600
            row |= {f"seconds{end}": seconds[i], f"device_hours{end}": hours, f"price{end}": hourly * hours}
        for name, values in (("before_first_step", pay_off.before), ("runs", pay_off.runs)):
            row[name] = np.nan if values is None else values[i]
        rows.append(row)
    return rows


def _named(owners: Sequence[Answer], values: pd.DataFrame) -> pd.DataFrame:
    names = pd.DataFrame([answer.subject.names for answer in owners], index=range(len(owners)))
    if "trials_per_point" in names:
        names["trials_per_point"] = names["trials_per_point"].astype("Int64")
    return pd.concat([names, values], axis=1)


def parse_prices(words: Sequence[str], kinds: Sequence[str]) -> dict[str, float]:
    """Parses prices per device-hour, such as ``2.5`` and ``TPU v4=3.22``, by device kind or ``ANY_DEVICE``.

    Raises:
      BadInput: a price is not a positive number, or its device is not among ``kinds``.
    """
    prices = {}
    for word in words:
        kind, equals, number = word.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            price = np.nan
        if not (np.isfinite(price) and price > 0):
            raise BadInput(f"--price takes a price per device-hour, such as 2.5 or 'TPU v4=3.22', not {word!r}")
        if equals:
            check_choice("device of --price", kind, kinds)
        prices[kind if equals else ANY_DEVICE] = price
    return prices


def as_text(answers: Sequence[Answer]) -> str:
    """Formats the answers as text: one line per answer, then notes and the meanings of the numbers."""
    naming = [str(name) for name in _named(answers, pd.DataFrame()) if name not in ("trials_per_point", DIFFERING)]
    names = [answer.subject.names for answer in answers]
    alike = [tuple(str(subject_names.get(name)) for name in naming if name != "estimate") for subject_names in names]
    distinctions = text.telling([str(subject_names.get(DIFFERING, "")) for subject_names in names], alike)
    rows, remarks = [], []
    for i, (answer, distinction) in enumerate(zip(answers, distinctions, strict=True), start=1):
        cells = {"": str(i)}
        for name in naming:
            value = answer.subject.names.get(name)
            cells[name] = "" if pd.isna(value) else str(value)
        cells[DIFFERING] = distinction
        for heading, extent in (("pays up to", answer.pays), ("efficient up to", answer.efficient)):
            # Best estimates of bounds are in the notes, because tables are narrow.
            cells[heading] = answer.subject.curve.bound_in_words(extent) if answer.subject.curve else ""
        cells["device"] = answer.device_kind
        for basis in BASES:
            cells[f"{basis} devices"] = answer.pay_offs[basis].last_in_words if basis in answer.pay_offs else ""
        rows.append(cells)
        remarks += [(i, note) for note in answer.notes]
        if PREDICTED in answer.pay_offs:
            remarks.append((i, f"predicted by {answer.predicted_by}"))
    # Notes that apply to all rows need no row numbers.
    counts = collections.Counter(remark for _, remark in remarks)
    common = [words for words, count in counts.items() if count == len(answers) > 1]
    notes = [*common, *text.grouped((row, words) for row, words in remarks if words not in common)]
    left = [*naming, DIFFERING, "device"]
    kept = ["pays up to", "efficient up to", *(f"{basis} devices" for basis in BASES)]
    shown = text.table(rows, left, [*left, *kept], least=left[::-1], kept=kept)
    meaning = [words.format(gain=f"{100 * (answers[0].gain if answers else GAIN):g}") for words in LIMITS]
    if any(answer.pay_offs for answer in answers):
        meaning.append(OF_TIMES)
    return "\n".join([shown, "", *notes, "", *meaning])


def times_as_text(answers: Sequence[Answer], prices: Mapping[str, float] = MappingProxyType({})) -> str:
    """Formats time to target and device-hours as text, one block per answer."""
    blocks = []
    for answer in answers:
        unit = answer.subject.names.get("unit", "")
        lines = [text.joined(answer.subject.title, unit and f"batch sizes in {unit}", answer.device_kind)]
        for basis, pay_off in answer.pay_offs.items():
            origin = f" by {answer.predicted_by}" if basis == PREDICTED else ""
            lines += ["", f"{basis}{origin}; devices after the last doubling that pays off: {pay_off.last_in_words}"]
            lines.append(_block(pay_off, _time_rows(answer, basis, prices)))
        if not answer.pay_offs:
            lines.append(f"no times: {'; '.join(answer.notes) or 'no device was timed'}")
        elif answer.notes:
            lines += ["", "; ".join(answer.notes)]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, OF_FRONT])


def _block(pay_off: PayOff, times: Sequence[Json]) -> str:
    gains = dict(zip((2 * pay_off.gains.devices).tolist(), np.transpose(pay_off.gains[1:]).tolist(), strict=True))
    rows = []
    for row in times:
        count, batch_size = row["devices"], row["batch_size"]
        rows.append(
            {
                "devices": f"{count:,.0f}",
                "batch": "" if np.isnan(batch_size) else f"{batch_size:,.10g}",
                BEFORE: text.number(row["before_first_step"]),
                RUNS: text.count(row["runs"]),
                "seconds": f"{text.number(row['seconds'])} {_ends(row, 'seconds')}",
                "device-hours": text.number(row["device_hours"]),
                HOURS_INTERVAL: _ends(row, "device_hours"),
                "price": text.number(row["price"]),
                PRICE_INTERVAL: _ends(row, "price"),
                "faster by": "",
                BEATEN: "" if row["on_front"] == "yes" else "yes",
            }
        )
        if count in gains:
            rows[-1]["faster by"] = "{:.0%} [{:.0%}, {:.0%}]".format(*(gain - 1 for gain in gains[count]))
    # A narrow terminal keeps the requested numbers; hours and price are as uncertain as seconds, relative to them.
    optional = [BEFORE, RUNS, HOURS_INTERVAL, PRICE_INTERVAL, "batch", "faster by"]
    if any(row["price"] for row in rows):
        optional.insert(4, "device-hours")
    return text.table(rows, [BEATEN], rows[0], least=optional, kept=set(rows[0]) - set(optional))


def _ends(row: Json, name: str) -> str:
    """Formats the ends of an interval. Returns an empty string if there is no number."""
    if np.isnan([row[name], row[f"{name}_low"], row[f"{name}_high"]]).any():
        return ""
    return f"[{text.number(row[f'{name}_low'])}, {text.number(row[f'{name}_high'])}]"
