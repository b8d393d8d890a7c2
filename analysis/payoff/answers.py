"""Answers: how far more devices pay off, for every curve of a store, a file of points or a paper, and every device."""

import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import kind_views, text, workload_studies
from analysis.columns import DIFFERS, PAYOFF, PAYOFF_TIMES
from analysis.cores import core_counts, factorizations
from analysis.cores.core_counts import CoreCurve
from analysis.fitting import curve_fits, curves, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from analysis.payoff import step_times, time_to_target
from analysis.payoff.step_times import BASES, MEASURED, NAMES, PREDICTED, StepTimes
from analysis.payoff.time_to_target import NOTHING, LastDoubling, PayOff
from analysis.trials import steps
from results import cli, store
from results.bad_input import BadInput, check_choice
from results.durable import Folder, located
from results.papers import published_numbers
from results.plans.plan import Plan

GAIN = 0.20
(DIFFERING,) = DIFFERS  # the name of a subject that tells it from those with the same names
LIMITS = (
    "A doubling pays off while it makes training faster by {gain:g} % or more; 100 % is perfect. Numbers are those "
    "that the last such doubling leads to, with 90 % intervals.",
    "batch size: devices and batch doubled together at the same seconds per step, so that no hardware is in it.",
)
HOURS_INTERVAL, PRICE_INTERVAL, BEATEN = "90 % of hours", "90 % of price", "beaten"  # columns for a reader
OF_FRONT = (
    "beaten: another number of devices is as fast and as cheap, and better in one. All others are on the Pareto front."
)
OF_TIMES = (
    "measured, predicted devices: by seconds per step of so many, at the batch size that is there soonest. Without "
    "communication is a best case: no network makes training on so many devices faster."
)


class Subject(NamedTuple):
    """What is asked how far it pays off.

    Attributes:
      names: columns of tables that tell it from others.
      title: in pictures.
      steps: the fit of steps to target over batch size, with its points; or, of a factorization, its epochs.
      notes: what a reader has to know.
      times: seconds per step that were measured of it.
    """

    names: dict[str, Any]
    title: str
    steps: PointsFit | float
    notes: tuple[str, ...]
    times: tuple[StepTimes, ...] = ()

    @property
    def verdict(self) -> text.Verdict:
        """Of its curve; the epochs of a factorization are known."""
        return self.steps.verdict if isinstance(self.steps, PointsFit) else "identified"


class Answer(NamedTuple):
    """How far a subject pays off on a kind of device.

    Attributes:
      subject: what was asked.
      device_kind: empty where no device was timed.
      gain: that a doubling has to have, as a share.
      batch: up to which batch size it pays off to double batch and devices together.
      measured, predicted: time to target by measured seconds per step and by predicted ones; None where there are none.
      predicted_by: who says so.
      notes: what a reader has to know.
    """

    subject: Subject
    device_kind: str
    gain: float
    batch: LastDoubling
    measured: PayOff | None
    predicted: PayOff | None
    predicted_by: str
    notes: tuple[str, ...]

    def of(self, basis: str) -> PayOff | None:
        """What measured or predicted times come to."""
        return self.measured if basis == MEASURED else self.predicted


@located
def of_store(folder: Folder, request: tuple[str, float] | None = None, where: Sequence[str] = ()) -> list[Subject]:
    """The curves of a store, as selected and as confirmed, and its factorizations over cores.

    Args:
      folder: of the store.
      request: metric and value of a target other than the studies' own.
      where: conditions on studies over batch sizes, as in ``workload_studies.of_store``; with any, no factorization is.

    Raises:
      BadInput: there is no store, or nothing in it that could pay off.
    """
    kinds = {commit.kind for commit in store.catalogue(folder)}
    drawn = {source for kind in kinds for source in kind_views.PRESENTATIONS[kind].figures}
    subjects: list[Subject] = []
    if kind_views.BATCH in drawn or kind_views.CORES not in drawn or where:
        every = curves.of_store(*steps.load(folder, request))
        if where:
            wanted = {commit.name for one in workload_studies.of_store(folder, where) for commit in one.commits}
            every = [one for one in every if any(commit.name in wanted for commit in one.workload.commits)]
        subjects = of_curves([curve_fits.of_curve(one) for one in every])
    if kind_views.CORES in drawn and not where:
        subjects += of_core_curves(core_counts.curves(factorizations.load(folder)))
    return subjects


def of_curves(fitted: Sequence[CurveFits]) -> list[Subject]:
    """Every fit of these curves, with the seconds per step that their runs measured."""
    subjects = []
    for one in fitted:
        times = tuple(step_times.of_commits(one.curve.workload.commits))
        for of, points_fit in curve_fits.answers(one):
            names = curve_fits.naming([(one.curve, of, one.selected.points.trials)]).to_dict("records")[0]
            names |= {DIFFERING: one.curve.distinction}
            title = f"{one.curve.workload.title} · {one.curve.target_text} · {of}"
            notes = (one.curve.distinction,) if one.curve.distinction else ()
            subjects.append(Subject({str(key): value for key, value in names.items()}, title, points_fit, notes, times))
    return subjects


def of_core_curves(core_curves: Sequence[CoreCurve]) -> list[Subject]:
    """Factorizations to their last epoch, on numbers of real cores."""
    subjects = []
    formats = {curve.representative.study.table_dtype for curve in core_curves}
    for curve in core_curves:
        times = step_times.of_core_curve(curve)
        if times is None:
            continue
        one = curve.representative
        study: Plan = one.study
        names = dict(zip(NAMES, kind_views.labels(study), strict=True))
        title = f"{' · '.join(names.values())} · {one.result('epoch'):.0f} epochs"
        differs = [f"table_dtype={one.study.table_dtype}"] * (len(formats) > 1) + [curve.distinction]
        names |= {DIFFERING: ", ".join(filter(None, differs))}
        notes = (curve.distinction,) if curve.distinction else ()
        subjects.append(Subject(names, title, one.result("epoch"), notes, (times,)))
    return subjects


def of_file(file: Path) -> list[Subject]:
    """The curves in a file of points, as ``fits.of_file`` reads it."""
    return _of_fits(*fits.of_file(file))


def of_paper(source: str) -> list[Subject]:
    """The curves that a paper published, as ``results/papers`` has them.

    Raises:
      BadInput: there is no such paper, or it has none.
    """
    every = published_numbers.points()
    every = every[every["steps"].notna() & every["batch_size"].notna()]
    check_choice("paper", source, sorted(set(every["source"])))
    points = every[every["source"] == source]
    naming = ["dataset", "model", "optimizer", "metric", "target_value"]
    groups = list(points.groupby(naming, sort=False))
    names = pd.DataFrame([key for key, _ in groups], columns=[*naming[:3], "target_metric", "target_value"])
    return _of_fits(names, [fits.of_steps(own["batch_size"], own["steps"]) for _, own in groups])


def _of_fits(names: pd.DataFrame, points_fits: Sequence[PointsFit]) -> list[Subject]:
    rows = [{str(key): value for key, value in row.items()} for row in names.to_dict("records")]
    rows = rows or [{} for _ in points_fits]
    return [
        Subject(row, " · ".join(str(value) for value in row.values()), one, ())
        for row, one in zip(rows, points_fits, strict=True)
    ]


def answers(
    subjects: Sequence[Subject],
    gain: float = GAIN,
    measured: Path | None = None,
    predicted: Path | None = None,
    *,
    choosable: bool = False,
) -> list[Answer]:
    """How far all subjects pay off, each on every kind of device that there are times of.

    Args:
      subjects: curves and factorizations.
      gain: by which a doubling has to make it faster, as a share; in (0, 1).
      measured: a file of measured step times, which count instead of those of the store.
      predicted: a file of predicted ones, which count instead of those without communication.
      choosable: whether a user could have chosen some of the subjects by --where, which an error then says.

    Raises:
      BadInput: a file is invalid, or does not say which of several workloads it is of.
    """
    tables = {
        basis: step_times.read(file, basis) for file, basis in ((measured, MEASURED), (predicted, PREDICTED)) if file
    }
    given = {basis: _times_of(rows, subjects, basis, choosable=choosable) for basis, rows in tables.items()}
    result = []
    for i, one in enumerate(subjects):
        own = given[MEASURED][i] if MEASURED in given else list(one.times)
        if PREDICTED in given:
            others = given[PREDICTED][i]
        else:
            others = [each for each in map(step_times.without_communication, own) if each]
        kinds = sorted({each.device_kind for each in (*own, *others)}) or [""]
        result += [_answer(one, kind, gain, own, others) for kind in kinds]
    return result


def _times_of(rows: pd.DataFrame, subjects: Sequence[Subject], basis: str, *, choosable: bool) -> list[list[StepTimes]]:
    """Times of every subject: the rows that name it, with a batch size or, of a factorization, without one."""
    named = [name for name in NAMES if name in rows]
    workloads = {tuple(one.names.get(name) for name in NAMES[:2]) for one in subjects}
    if not named and len(workloads) > 1:
        words = text.first_few(sorted(" ".join(map(str, each)) for each in workloads))
        choose = "choose one with --where model=NAME, or " * choosable
        raise BadInput(
            f"--{basis}: the file does not say whose times it has, and there are several workloads ({words}); "
            f"{choose}give it columns dataset and model"
        )
    result, used = [], np.zeros(len(rows), bool)
    for one in subjects:
        mine = rows["batch_size"].notna() == isinstance(one.steps, PointsFit)
        for name in named:
            mine &= rows[name] == str(one.names.get(name))
        used |= mine.to_numpy()
        result.append(step_times.of_rows(rows[mine], f"--{basis}"))
    if not used.all():
        raise _of_nobody(rows, int(np.argmin(used)), subjects, basis)
    return result


def _of_nobody(rows: pd.DataFrame, row: int, subjects: Sequence[Subject], basis: str) -> BadInput:
    """Why a row, from 0, is of no subject: what it lacks, has too much, or is called."""
    names = {name: str(rows[name][row]) for name in NAMES if name in rows}
    if any(all(str(one.names.get(name)) == value for name, value in names.items()) for one in subjects):
        if np.isnan(rows["batch_size"][row]):
            why = "has no batch_size, which a step of a curve over batch sizes has; a factorization alone goes without"
        else:
            why = "has a batch_size, but a step of a factorization takes all data; leave the cell empty"
        return BadInput(f"--{basis}: row {row + 1} {why}")
    words = ", ".join(names.values())
    return BadInput(f"--{basis}: row {row + 1} is of no curve ({words}); name data set and model as the table does")


def _answer(
    one: Subject, kind: str, gain: float, measured: Sequence[StepTimes], predicted: Sequence[StepTimes]
) -> Answer:
    fit = one.steps.fit if isinstance(one.steps, PointsFit) else None
    batch = time_to_target.last_batch_size(fit, gain) if fit else NOTHING
    notes = list(one.notes)
    if isinstance(one.steps, PointsFit) and one.verdict != "identified":
        notes = [one.steps.reason]  # which begins with what tells the curve apart
    notes += _open_ends(one, batch, "batch size", fit.batch_size) if fit else []
    found: dict[str, PayOff | None] = dict.fromkeys(BASES)
    by = ""
    for times in (*measured, *predicted):
        if times.device_kind != kind:
            continue
        found[times.basis] = pay_off = _pay_off(one, times, gain)
        notes += [*times.notes] if times.basis == MEASURED else []
        by = times.by if times.basis == PREDICTED else by
        if pay_off is None and (fit or not isinstance(one.steps, PointsFit)):
            notes.append(f"no {times.basis} step times at batch sizes of the curve")
        elif pay_off is not None:
            numbers = time_to_target.judged(pay_off.devices)
            notes += _missing(times.basis, pay_off.devices, numbers)
            notes += _open_ends(one, pay_off.last, f"{times.basis} devices", numbers) if len(numbers) > 1 else []
        if fit and pay_off:
            notes += _gaps(times.within(fit.batch_size[0], fit.batch_size[-1]))
            notes += _beyond(times, fit.batch_size, as_share=any(each.divided for each in predicted))
    notes = [note for note in dict.fromkeys(notes) if note]
    return Answer(one, kind, gain, batch, found[MEASURED], found[PREDICTED], by, tuple(notes))


def _open_ends(one: Subject, last: LastDoubling, what: str, numbers: np.ndarray) -> list[str]:
    """Why an end is not stated that the curve itself would allow: numbers [k], rising, do not go far enough."""
    ends = ((time_to_target.LOWER, "smallest", numbers[0]), (time_to_target.UPPER, "largest", numbers[-1]))
    return [
        f"{what}: the interval of the last doubling reaches the {which} that there is, {end:,.10g}"
        for stating, which, end in ends
        if one.verdict in stating and last.verdict not in stating
    ]


def _missing(basis: str, devices: np.ndarray, numbers: np.ndarray) -> list[str]:
    """Why no doubling beyond the ``numbers`` of devices is judged, of all ``devices`` that there are."""
    if len(devices) == 1:
        return [f"{basis} on {devices[0]:,.0f} device{'s' * bool(devices[0] > 1)} only, so that no doubling was seen"]
    last, further = numbers[-1], devices[devices > numbers[-1]]
    if not len(further):
        return []
    there = f"{basis} on {last:,.0f} and on {further[0]:,.0f} devices, not on {2 * last:,.0f}"
    return [f"{there}: no doubling beyond {last:,.0f} is judged"]


def _gaps(times: StepTimes) -> list[str]:
    """The gaps between batch sizes that were timed."""
    return [
        f"no batch size was timed on {count:,.0f} device{'s' * bool(count > 1)} between {before:,.10g} and "
        f"{after:,.10g}: only bounds hold between them"
        for count, before, after in times.gaps()
    ]


def _beyond(times: StepTimes, batch_sizes: np.ndarray, *, as_share: bool) -> list[str]:
    """Notes on batch sizes of a file beyond those of the curve; a store may have them for want of an answer there.

    ``as_share``: smaller batch sizes on one device are taken as its share of a larger batch.
    """
    if times.by != f"--{times.basis}":
        return []
    first, last = float(batch_sizes[0]), float(batch_sizes[-1])
    shares = (times.batch_size < first) & (times.devices == 1) & (as_share and times.basis == MEASURED)
    unused = ((times.batch_size < first) | (times.batch_size > last)) & ~shares
    return [
        f"{times.basis} at {text.batch_sizes(np.unique(times.batch_size[rows]))}, which the curve does not reach: {use}"
        for rows, use in ((shares, "used only as one device's share"), (unused, "not used"))
        if rows.any()
    ]


def _pay_off(one: Subject, times: StepTimes, gain: float) -> PayOff | None:
    if not isinstance(one.steps, PointsFit):
        return time_to_target.pay_off(times, one.steps, gain, "identified")
    fit = one.steps.fit
    if fit is None:
        return None
    return time_to_target.pay_off(times, time_to_target.step_curves(fit), gain, fit.verdict)


def table(found: Sequence[Answer]) -> pd.DataFrame:
    """A row for every answer: the names of its subject, then ``PAYOFF``."""
    rows = []
    for one in found:
        row: dict[str, Any] = {"gain_percent": 100 * one.gain, "device_kind": one.device_kind or None}
        row |= {"predicted_by": one.predicted_by or None, "reason": "; ".join(one.notes)}
        each: list[tuple[str, LastDoubling | None]] = [("batch_size", one.batch)]
        each += [
            (f"{basis}_devices", pay_off.last if pay_off else None) for basis in BASES for pay_off in [one.of(basis)]
        ]
        for name, last in each:
            if last is not None:
                row |= {name: last.best, f"{name}_low": last.low, f"{name}_high": last.high}
                row |= {f"{name.removesuffix('_size').removesuffix('_devices')}_verdict": last.verdict}
        rows.append(row)
    return _named(found, pd.DataFrame(rows, columns=list(PAYOFF)))


def times_table(found: Sequence[Answer], price: "Prices | None" = None) -> pd.DataFrame:
    """A row for every number of devices of every answer: the names of its subject, then ``PAYOFF_TIMES``.

    Args:
      found: the answers.
      price: of an hour of each kind of device.
    """
    rows: list[dict[str, Any]] = []
    owners: list[Answer] = []
    for one in found:
        counts = sorted({count for basis in BASES if (pay_off := one.of(basis)) for count in pay_off.devices.tolist()})
        own: dict[float, dict[str, Any]] = {
            count: {"device_kind": one.device_kind, "devices": count, "predicted_by": one.predicted_by or None}
            for count in counts
        }
        for basis in BASES:
            pay_off = one.of(basis)
            if pay_off is None:
                continue
            front = time_to_target.on_front(pay_off.seconds, pay_off.device_hours)
            hour = price.of(one.device_kind) if price else float("nan")
            for i, count in enumerate(pay_off.devices.tolist()):
                values = {"batch_size": pay_off.batch_size[i], "on_front": "yes" if front[i] else "no"}
                for end, seconds in (("", pay_off.seconds), ("_low", pay_off.low), ("_high", pay_off.high)):
                    hours = count * seconds[i] / 3600
                    values |= {f"seconds{end}": seconds[i], f"device_hours{end}": hours, f"price{end}": hour * hours}
                own[count] |= {f"{basis}_{name}": value for name, value in values.items()}
        rows += own.values()
        owners += [one] * len(own)
    return _named(owners, pd.DataFrame(rows, columns=list(PAYOFF_TIMES)).astype({"devices": "Int64"}))


def _named(owners: Sequence[Answer], values: pd.DataFrame) -> pd.DataFrame:
    names = pd.DataFrame([one.subject.names for one in owners], index=range(len(owners)))
    if "trials_per_point" in names:
        names["trials_per_point"] = names["trials_per_point"].astype("Int64")
    return pd.concat([names, values], axis=1)


class Prices(NamedTuple):
    """What a device-hour costs: of any device, or of each kind that is named."""

    any_device: float | None
    of_kind: dict[str, float]

    def of(self, kind: str) -> float:
        """NaN where no price is known."""
        every = float("nan") if self.any_device is None else self.any_device
        return self.of_kind.get(kind, every)


def prices(words: Sequence[str], kinds: Sequence[str]) -> Prices | None:
    """Prices of words such as ``2.5`` and ``TPU v4=3.22``; None of none.

    Raises:
      BadInput: a price is no positive number, or of a device that is not there.
    """
    any_device: float | None = None
    of_kind: dict[str, float] = {}
    for word in words:
        kind, equals, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not (np.isfinite(value) and value > 0):
            raise BadInput(f"--price takes a price per device-hour, such as 2.5 or 'TPU v4=3.22', not {word!r}")
        if equals:
            check_choice("device of --price", kind, kinds)
            of_kind[kind] = value
        else:
            any_device = value
    return Prices(any_device, of_kind) if words else None


def as_text(found: Sequence[Answer]) -> str:
    """The answers for a reader: a line each, then what there is to know, and what the numbers mean."""
    table_of = _named(found, pd.DataFrame(index=range(len(found))))
    naming = [str(name) for name in table_of if name not in ("trials_per_point", DIFFERING)]
    alike = [tuple(str(one.subject.names.get(name)) for name in naming if name != "estimate") for one in found]
    apart = text.telling([str(one.subject.names.get(DIFFERING, "")) for one in found], alike)
    header = ["", *naming, DIFFERING, "batch size", "device", *(f"{basis} devices" for basis in BASES)]
    rows, remarks = [], []
    for i, one in enumerate(found, start=1):
        names = ["" if pd.isna(value := one.subject.names.get(name)) else str(value) for name in naming]
        words = [pay_off.last.in_words() if pay_off else "" for pay_off in map(one.of, BASES)]
        batch = one.batch.in_words() if isinstance(one.subject.steps, PointsFit) else ""
        rows.append([str(i), *names, apart[i - 1], batch, one.device_kind, *words])
        remarks += [(i, note) for note in one.notes]
        remarks += [(i, f"predicted by {one.predicted_by}")] if one.predicted else []
    # What holds of all rows needs no numbers of them.
    counts = collections.Counter(remark for _, remark in remarks)
    common = [words for words, count in counts.items() if count == len(found) > 1]
    notes = [*common, *text.grouped(one for one in remarks if one[1] not in common)]
    said = [i for i in range(len(header)) if i == 0 or any(row[i] for row in rows)]
    header, rows = [header[i] for i in said], [[row[i] for i in said] for row in rows]
    left = [name for name in (*naming, DIFFERING, "device") if name in header]
    kept = [name for name in ("batch size", *(f"{basis} devices" for basis in BASES)) if name in header]
    shown = cli.table(header, rows, left=left, least=tuple(left[::-1]), kept=kept)
    meaning = [words.format(gain=100 * (found[0].gain if found else GAIN)) for words in LIMITS]
    meaning += [OF_TIMES] * any(one.measured or one.predicted for one in found)
    return "\n".join([shown, "", *notes, "", *meaning])


def times_as_text(found: Sequence[Answer], price: Prices | None = None) -> str:
    """Time to target and device-hours for a reader, a block per answer; rows off the Pareto front are beaten."""
    blocks = []
    for one in found:
        lines = [" · ".join(filter(None, (one.subject.title, one.device_kind)))]
        for basis in BASES:
            pay_off = one.of(basis)
            if pay_off is None:
                continue
            by = f" by {one.predicted_by}" if basis == PREDICTED else ""
            lines += ["", f"{basis}{by}; the last doubling that pays off leads to: {pay_off.last.in_words()}"]
            lines.append(_block(pay_off, price.of(one.device_kind) if price else float("nan")))
        if not (one.measured or one.predicted):
            lines.append(f"no times: {'; '.join(one.notes) or 'no device was timed'}")
        elif one.notes:
            lines += ["", "; ".join(one.notes)]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, OF_FRONT])


def _block(pay_off: PayOff, hour: float) -> str:
    front = time_to_target.on_front(pay_off.seconds, pay_off.device_hours)
    gains = dict(zip((2 * pay_off.gains.devices).tolist(), np.transpose(pay_off.gains[1:]).tolist(), strict=True))
    rows = []
    for i, count in enumerate(pay_off.devices.tolist()):
        ends = np.array([pay_off.seconds[i], pay_off.low[i], pay_off.high[i]])
        gain = "{:.0%} [{:.0%}, {:.0%}]".format(*(each - 1 for each in gains[count])) if count in gains else ""
        hours = ends * count / 3600
        batch = "" if np.isnan(pay_off.batch_size[i]) else f"{pay_off.batch_size[i]:,.10g}"
        cells = {"devices": f"{count:,.0f}", "batch": batch, "seconds": _interval(ends)}
        cells |= {"device-hours": text.number(hours[0]), HOURS_INTERVAL: _ends(hours)}
        cells |= {"price": text.number(hours[0] * hour), PRICE_INTERVAL: _ends(hours * hour)}
        rows.append(cells | {"faster by": gain, BEATEN: "" if front[i] else "yes"})
    header = [name for name in rows[0] if any(row[name] for row in rows)]
    # A narrow terminal keeps what was asked for; relative to them, hours and price are as uncertain as seconds.
    least = [HOURS_INTERVAL, PRICE_INTERVAL, *["device-hours"] * ("price" in header), "batch", "faster by"]
    kept = [name for name in header if name not in least]
    return cli.table(header, [[row[name] for name in header] for row in rows], [BEATEN], least=least, kept=kept)


def _interval(values: np.ndarray) -> str:
    """The best of three values with its ends."""
    return f"{text.number(values[0])} {_ends(values)}"


def _ends(values: np.ndarray) -> str:
    """The ends of an interval, empty if there is none."""
    return "" if np.isnan(values).any() else f"[{text.number(values[1])}, {text.number(values[2])}]"
