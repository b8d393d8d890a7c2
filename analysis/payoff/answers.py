"""Answers: how far adding devices pays off, for each kind of device and each curve in a store, a file or a paper."""

import collections
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import kind_views, text
from analysis.columns import DIFFERS, PAYOFF, PAYOFF_TIMES
from analysis.cores import core_counts, factorizations
from analysis.cores.core_counts import CoreCurve
from analysis.fitting import curve_fits, curves, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.extents import GAIN, UNKNOWN, Extent, Extents
from analysis.fitting.fits import PointsFit
from analysis.payoff import known_runs, step_times, time_files, time_to_target
from analysis.payoff.known_runs import KnownTimes
from analysis.payoff.step_times import BASES, MEASURED, NAMES, PREDICTED, PUBLISHED, Basis, StepTimes
from analysis.payoff.time_to_target import LastDoubling, PayOff
from analysis.trials import steps
from results import progress, store
from results.aliases import Json, Strings
from results.bad_input import BadInput, check_choice
from results.durable import Folder
from results.located import located
from results.papers import published_numbers
from results.plans import definitions
from results.plans.recorded import EXAMPLES, SEQUENCES
from results.plans.study import TargetRequest
from results.printing import Report

(DIFFERING,) = DIFFERS  # the column that separates subjects with the same names
LIMITS = (
    "A doubling pays off if it makes training faster by {gain} % or more (100 % is perfect). Intervals "
    "are of 90 %, and each end is a 95 % bound.",
    f"pays up to: {definitions.PAYS_UP_TO}, for any hardware. efficient up to: {definitions.EFFICIENT_UP_TO}. Both "
    "hold for any smooth shape.",
)
HOURS_INTERVAL, PRICE_INTERVAL, BEATEN = "90 % of hours", "90 % of price", "beaten"  # columns for a reader
BEFORE, RUNS = "before step 1", "runs"  # columns of runs with given steps
OF_FRONT = (
    "beaten: another number of devices is as fast and as cheap, and better in one. All others are on the Pareto front."
)
OF_TIMES = (
    "measured, predicted, published devices: the number after the last doubling that pays off, with seconds per step "
    "of this origin, at the fastest batch size, if the curve has the fitted shape. Times without communication are a "
    "best case for any network. Runs with given steps need no curve."
)
GPT3 = "gpt3"  # the paper whose runs have given steps
OF_GPT3 = (
    "runs start from a checkpoint after {examples:,} sequences, which was trained before",
    "the clock starts after initialization, which took {least:.0f} to {most:.0f} minutes",
)
Times = StepTimes | KnownTimes


class Subject(NamedTuple):
    """A curve or a factorization to be analyzed for pay-off.

    Attributes:
      names: values of the columns that identify the subject in tables.
      title: name in pictures.
      steps: the fit of steps to target against batch size, with its points, or the epochs of a factorization.
      notes: notes for the user.
      times: measured seconds per step, or published runs.
    """

    names: Json
    title: str
    steps: PointsFit | float
    notes: Strings
    times: tuple[Times, ...] = ()

    @property
    def verdict(self) -> text.Verdict:
        """The verdict on the curve. A factorization's epochs are exact, so they count as identified."""
        return self.steps.verdict if isinstance(self.steps, PointsFit) else "identified"


class Answer(NamedTuple):
    """The pay-off of a subject on one device kind.

    Attributes:
      subject: the curve or factorization.
      device_kind: device kind, or empty if no device was timed.
      gain: required speed-up per doubling, as a fraction.
      pays, efficient: batch sizes up to which doubling both the batch and the devices pays off, and up to which batches
        are efficient, for any shape of the curve.
      measured, predicted, published: time to target based on seconds per step from this source, or None.
      predicted_by: source of the predicted seconds per step.
      notes: notes for the user.
    """

    subject: Subject
    device_kind: str
    gain: float
    pays: Extent
    efficient: Extent
    measured: PayOff | None
    predicted: PayOff | None
    predicted_by: str
    notes: Strings
    published: PayOff | None = None

    def of(self, basis: Basis) -> PayOff | None:
        """Returns ``measured``, ``predicted`` or ``published``."""
        found = {MEASURED: self.measured, PREDICTED: self.predicted, PUBLISHED: self.published}
        return found[basis]

    def extents_in_words(self) -> tuple[str, str]:
        """Formats *pays up to* and *efficient up to* as ``fit`` does, without best estimates of bounds.

        These are in ``notes``, because tables are narrow. Both are empty for a factorization.
        """
        curve = self.subject.steps
        if not isinstance(curve, PointsFit):
            return "", ""
        pays, efficient = (fits.bound_in_words(one, curve) for one in (self.pays, self.efficient))
        return pays, efficient

    @property
    def is_timed(self) -> bool:
        """Whether there is an answer in numbers of devices, from any source of step times."""
        return any(self.of(basis) for basis in BASES)


@located
def of_store(
    folder: Folder, request: TargetRequest = None, where: Sequence[str] = (), report: Report | None = None
) -> list[Subject]:
    """Returns the selected and confirmed curves in a store, and its factorizations over cores.

    Args:
      folder: folder of the store.
      request: metric and value to use instead of the studies' own targets.
      where: conditions on batch-size studies (see ``workload_studies.of_store``). With any condition, factorizations
        are omitted.
      report: called with progress lines.

    Raises:
      BadInput: there is no store, or the pay-off cannot be computed for any of its studies.
    """
    began = time.monotonic()
    drawn = kind_views.drawn(store.catalogue(folder))
    subjects = []
    if kind_views.BATCH in drawn or kind_views.CORES not in drawn or where:
        every = curves.meeting(curves.of_store(*steps.load(folder, request)), folder, where)
        subjects = of_curves(curve_fits.of_curves(every, report, began))
    if kind_views.CORES in drawn and not where:
        subjects += of_core_curves(core_counts.curves(factorizations.load(folder)))
    return subjects


def of_curves(fitted: Sequence[CurveFits]) -> list[Subject]:
    """Returns every fit of these curves, with the seconds per step that were measured in their runs."""
    subjects = []
    for one in fitted:
        times = tuple(step_times.of_commits(one.curve.workload.commits))
        distinction = one.curve.distinction
        names, points_fits = curve_fits.rows([one])
        for row, points_fit in zip(_records(names), points_fits, strict=True):
            title = f"{one.curve.workload.title} · {one.curve.target_text} · {row['estimate']}"
            subjects.append(Subject(row | {DIFFERING: distinction}, title, points_fit, (distinction,), times))
    return subjects


def of_core_curves(core_curves: Sequence[CoreCurve]) -> list[Subject]:
    """Returns factorizations by number of real cores. Their target is the last epoch."""
    subjects = []
    formats = {curve.representative.study.table_dtype for curve in core_curves}
    for curve in core_curves:
        times = step_times.of_core_curve(curve)
        if times is None:
            continue
        study = curve.representative.study
        epochs = curve.representative.result("epoch")
        names = dict(zip(NAMES, kind_views.labels(study), strict=True))
        title = f"{' · '.join(names.values())} · {epochs:.0f} epochs"
        differs = [curve.distinction] if curve.distinction else []
        if len(formats) > 1:
            differs.insert(0, f"table_dtype={curve.representative.study.table_dtype}")
        names[DIFFERING] = ", ".join(differs)
        subjects.append(Subject(names, title, epochs, (curve.distinction,), (times,)))
    return subjects


def of_file(file: Path, report: Report | None = None) -> list[Subject]:
    """Returns the curves in a file of points, as read by ``fits.of_file``."""
    return _of_fits(*fits.of_file(file, report))


def of_paper(source: str, report: Report | None = None) -> list[Subject]:
    """Returns the curves published in a paper, from ``results/papers``. ``report`` is called with progress lines.

    Raises:
      BadInput: there is no such paper, or it has no curves.
    """
    every = published_numbers.points()
    every = every[every["steps"].notna() & every["batch_size"].notna()]
    check_choice("paper", source, sorted({*every["source"], GPT3}))
    if source == GPT3:
        return [of_gpt3()]
    naming = ["dataset", "model", "optimizer", "metric", "target_value"]
    groups = list(every[every["source"] == source].groupby(naming, sort=False))
    names = pd.DataFrame([key for key, _ in groups], columns=[*naming[:3], "target_metric", "target_value"])
    names["unit"] = EXAMPLES
    tracked = progress.track(groups, "fit", " curves", report)
    return _of_fits(names, [fits.of_steps(own["batch_size"], own["steps"]) for _, own in tracked])


def gpt3_rows() -> pd.DataFrame:
    """Returns the published runs of GPT-3 175B as rows with given steps, in the format of ``time_files.read``.

    The first block of a run is split into the seconds before the first step and a block of median length.
    """
    runs = published_numbers.gpt3_runs()
    block = runs["steps_between_evaluations"]
    rows = runs[[*NAMES, "target_metric", "target_value", "batch_size", "steps", "seconds_per_step"]].assign(
        device_kind=runs["chip"],
        devices=runs["chips"],
        system=runs["source"] + " " + runs["system"],
        steps_low=runs["steps"] - block,
        seconds_before_first_step=runs["first_block_seconds"] - block * runs["seconds_per_step"],
        seconds_to_target=60 * runs["minutes"],
    )
    numbers = rows.select_dtypes("number").columns
    return rows.astype(dict.fromkeys(numbers, np.float64)).assign(basis=PUBLISHED)


def of_gpt3() -> Subject:
    """Returns GPT-3 175B on three kinds of TPUs, as published by Google in MLPerf Training."""
    runs, rows = published_numbers.gpt3_runs(), gpt3_rows()
    (examples,) = set(runs["start_step"] * runs["batch_size"])
    initial = runs["init_seconds"] / 60
    numbers = {"examples": examples, "least": initial.min(), "most": initial.max()}
    notes = tuple(words.format(**numbers) for words in OF_GPT3)
    names = {name: rows[name].iloc[0] for name in (*NAMES, "target_metric", "target_value")}
    names["unit"] = f"{SEQUENCES} of {runs['length'].iloc[0]:,} tokens"
    return _of_runs(names, rows, "MLPerf Training", notes)


def of_runs(file: Path, basis: Basis) -> list[Subject]:
    """Returns the workloads in a file of runs with given steps, each with a curve if there are enough batch sizes.

    Args:
      file: path of the file, as read by ``time_files.read``.
      basis: basis of the rows, measured or published.

    Raises:
      BadInput: the file is invalid, or has no column steps.
    """
    rows = time_files.read(file, basis)
    if time_files.STEPS not in rows:
        raise BadInput(
            f"--{basis} {file} has no column steps, so the steps to the target are unknown. Add it, or give --store, "
            "--points or --paper."
        )
    named = [name for name in NAMES if name in rows]
    groups = [own for _, own in rows.groupby(named, sort=False)] if named else [rows]
    return [_of_runs({name: own[name].iloc[0] for name in named}, own, f"--{basis}") for own in groups]


def _of_runs(names: Json, rows: pd.DataFrame, by: str, notes: Strings = ()) -> Subject:
    """Returns the subject for runs with given steps. It has a curve over batch size if the rows have batch sizes."""
    with_batch = rows[rows["batch_size"].notna()]
    steps = known_runs.curve(with_batch) if len(with_batch) else float(rows["steps"].median())
    times = tuple(_given_times(rows, steps, by, notes))
    return Subject(names, " · ".join(map(str, names.values())), steps, (), times)


def _given_times(rows: pd.DataFrame, steps: PointsFit | float, by: str, notes: Strings = ()) -> list[KnownTimes]:
    """Returns the times of runs with given steps. Adds a note on the critical batch size of their curve ``steps``."""
    if isinstance(steps, PointsFit):
        notes = tuple(filter(None, (*notes, known_runs.critical(rows, steps))))
    return known_runs.of_rows(rows, by, notes)


def _of_fits(names: pd.DataFrame, points_fits: Sequence[PointsFit]) -> list[Subject]:
    rows = _records(names) or [{} for _ in points_fits]
    return [
        Subject(row, " · ".join(map(str, row.values())), one, ()) for row, one in zip(rows, points_fits, strict=True)
    ]


def _records(names: pd.DataFrame) -> list[Json]:
    return [{str(key): value for key, value in row.items()} for row in names.to_dict("records")]


def answers(
    subjects: Sequence[Subject],
    gain: float = GAIN,
    measured: Path | None = None,
    predicted: Path | None = None,
    *,
    published: Path | None = None,
    assume_nothing: bool = False,
    choosable: bool = False,
    report: Report | None = None,
) -> list[Answer]:
    """Returns the pay-off of each subject on each device kind for which there are times.

    Args:
      subjects: curves and factorizations.
      gain: required speed-up per doubling, as a fraction in (0, 1).
      measured: file of measured step times, used instead of the times in the store.
      predicted: file of predicted step times, used instead of the predictions without communication.
      published: file of published step times, used instead of the times in the paper.
      assume_nothing: whether ``pays`` and ``efficient`` allow every convex curve (see ``fits.extents_of``).
      choosable: whether a user can select subjects with --where. If so, error messages mention this option.
      report: called with progress lines.

    Raises:
      BadInput: a file is invalid, or does not specify which of several workloads it belongs to.
    """
    files = {MEASURED: measured, PREDICTED: predicted, PUBLISHED: published}
    given = {
        basis: _times_of(time_files.read(file, basis), subjects, basis, choosable=choosable)
        for basis, file in files.items()
        if file
    }
    result = []
    for i, one in enumerate(progress.track(subjects, "payoff", " curves", report)):
        times = [each for each in one.times if each.basis not in given]
        for own in given.values():
            times += own[i]
        if PREDICTED not in given:
            times += _without_communication(times)
        kinds = sorted({each.device_kind for each in times}) or [""]
        extents = _extents(one, gain, assume_nothing=assume_nothing)
        result += [_answer(one, kind, gain, extents, times) for kind in kinds]
    return result


def _without_communication(times: Sequence[Times]) -> list[StepTimes]:
    measured = [each for each in times if isinstance(each, StepTimes) and each.basis == MEASURED]
    return [each for each in map(step_times.without_communication, measured) if each]


def _times_of(rows: pd.DataFrame, subjects: Sequence[Subject], basis: Basis, *, choosable: bool) -> list[list[Times]]:
    """Returns the times of each subject: rows with its name and, unless it is a factorization, a batch size."""
    named = [name for name in NAMES if name in rows]
    workloads = {tuple(one.names.get(name) for name in NAMES[:2]) for one in subjects}
    if not named and len(workloads) > 1:
        words = text.first_few(sorted(" ".join(map(str, each)) for each in workloads))
        remedy = "Add columns dataset and model"
        if choosable:
            remedy += ", or choose one workload with --where model=NAME"
        raise BadInput(f"--{basis}: the file does not name a workload, and there are several ({words}). {remedy}.")
    result: list[list[Times]] = []
    used = np.zeros(len(rows), bool)
    for one in subjects:
        mine = rows["batch_size"].notna() == isinstance(one.steps, PointsFit)
        for name in named:
            mine &= rows[name] == str(one.names.get(name))
        used |= mine.to_numpy()
        if time_files.STEPS in rows:
            result.append([*_given_times(rows[mine], one.steps, f"--{basis}")])
        else:
            result.append([*step_times.of_rows(rows[mine], f"--{basis}")])
    if not used.all():
        raise _unmatched(rows, int(np.argmin(used)), subjects, basis)
    return result


def _unmatched(rows: pd.DataFrame, row: int, subjects: Sequence[Subject], basis: str) -> BadInput:
    """Returns the error for a row that does not belong to any subject. Rows are counted from 0."""
    names = {name: str(rows[name][row]) for name in NAMES if name in rows}
    if not any(all(str(one.names.get(name)) == value for name, value in names.items()) for one in subjects):
        why = f"is of no curve ({', '.join(names.values())}). Name data set and model as the table does."
    elif np.isnan(rows["batch_size"][row]):
        why = "has no batch_size. Only steps of a factorization go without one."
    else:
        why = "has a batch_size, but a step of a factorization takes all data. Leave the cell empty."
    return BadInput(f"--{basis}: row {row + 1} {why}")


def _extents(one: Subject, gain: float, *, assume_nothing: bool) -> Extents:
    found = None
    if isinstance(one.steps, PointsFit):
        found = fits.extents_of(one.steps.points, gain, assume_nothing=assume_nothing)
    return found or Extents(UNKNOWN, UNKNOWN)


def _answer(one: Subject, kind: str, gain: float, extents: Extents, times: Sequence[Times]) -> Answer:
    fit = one.steps.fit if isinstance(one.steps, PointsFit) else None
    notes = list(one.notes)
    if isinstance(one.steps, PointsFit) and one.verdict != "identified":
        # A reason begins with the distinction of the curve. Without times, the fitted shape does not matter.
        notes = [one.steps.reason] if kind or not fit else [*notes, *one.steps.points.notes]
    if fit:
        notes += _beyond_the_data(extents, fit.batch_size)
    found: dict[Basis, PayOff | None] = dict.fromkeys(BASES)
    predicted_by = ""
    divided = any(isinstance(each, StepTimes) and each.divided for each in times)
    for own in sorted(times, key=lambda each: BASES.index(each.basis)):
        if own.device_kind != kind:
            continue
        found[own.basis] = pay_off = _pay_off(one, own, gain)
        if own.basis == PREDICTED:
            predicted_by = own.by
        else:
            notes += own.notes
        notes += _notes(one, own, pay_off, as_share=divided)
    notes = [note for note in dict.fromkeys(notes) if note]
    measured, predicted, published = (found[basis] for basis in (MEASURED, PREDICTED, PUBLISHED))
    return Answer(one, kind, gain, *extents, measured, predicted, predicted_by, tuple(notes), published)


def _notes(one: Subject, times: Times, pay_off: PayOff | None, *, as_share: bool) -> list[str]:
    """Returns notes on the answer computed from ``times``. See ``_beyond`` for ``as_share``."""
    fit = one.steps.fit if isinstance(one.steps, PointsFit) else None
    if pay_off is None:
        answerable = fit or not isinstance(one.steps, PointsFit)
        return [f"no {times.basis} step times at batch sizes of the curve"] if answerable else []
    numbers = time_to_target.judged(pay_off.devices)
    notes = _missing(times.basis, pay_off.devices, numbers)
    if len(numbers) > 1:
        verdict = one.verdict if isinstance(times, StepTimes) else "identified"
        notes += _open_ends(verdict, pay_off.last, f"{times.basis} devices", numbers)
    if fit and isinstance(times, StepTimes):
        notes += _gaps(times.within(fit.batch_size[0], fit.batch_size[-1]))
        notes += _beyond(times, fit.batch_size, as_share=as_share)
    return notes


def _beyond_the_data(extents: Extents, batch_sizes: np.ndarray) -> list[str]:
    """Returns notes on extents with an open end."""
    notes = []
    for name, one in zip(("pays", "efficient"), extents, strict=True):
        best = "" if np.isnan(one.best) else f" (best estimate {text.number(one.best)})"
        for end, which, size in ((one.high, "largest", batch_sizes[-1]), (one.low, "smallest", batch_sizes[0])):
            if np.isnan(end):
                notes.append(
                    f"{name} up to: the interval reaches the {which} batch size in the data, {size:,.10g}{best}"
                )
    return notes


def _open_ends(verdict: text.Verdict, last: LastDoubling, what: str, numbers: np.ndarray) -> list[str]:
    """Returns notes on interval ends inside the curve but outside the ascending ``numbers`` [k] that were timed."""
    ends = ((time_to_target.LOWER, "smallest", numbers[0]), (time_to_target.UPPER, "largest", numbers[-1]))
    return [
        f"{what}: the interval of the last doubling reaches the {which} value in the data, {end:,.10g}"
        for stating, which, end in ends
        if verdict in stating and last.verdict not in stating
    ]


def _missing(basis: str, devices: np.ndarray, numbers: np.ndarray) -> list[str]:
    """Returns notes on doublings that were not judged, beyond ``numbers`` of ``devices``."""
    if len(devices) == 1:
        return [f"{basis} only on {devices[0]:,.0f} device{_s(devices[0])}, so no doubling was observed"]
    last, further = numbers[-1], devices[devices > numbers[-1]]
    if not len(further):
        return []
    there = f"{basis} on {last:,.0f} and {further[0]:,.0f} devices but not on {2 * last:,.0f}"
    return [f"{there}, so no doubling beyond {last:,.0f} is judged"]


def _gaps(times: StepTimes) -> list[str]:
    """Returns notes on gaps between timed batch sizes."""
    return [
        f"no batch size was timed on {count:,.0f} device{_s(count)} between {before:,.10g} and {after:,.10g}, so only "
        "bounds hold between them"
        for count, before, after in times.gaps()
    ]


def _s(count: float) -> str:
    return "s" if count > 1 else ""


def _beyond(times: StepTimes, batch_sizes: np.ndarray, *, as_share: bool) -> list[str]:
    """Returns notes on batch sizes in a file that lie outside the curve. Stores may have such sizes without a note.

    ``as_share``: whether smaller batch sizes on one device are used as one device's share of a larger batch.
    """
    if times.by != f"--{times.basis}":
        return []
    below, above = times.batch_size < batch_sizes[0], times.batch_size > batch_sizes[-1]
    shares = below & (times.devices == 1) & (as_share and times.basis == MEASURED)
    return [
        f"{times.basis} at {text.batch_sizes(np.unique(times.batch_size[rows]))}, outside the curve: {use}"
        for rows, use in ((shares, "used only as one device's share"), ((below | above) & ~shares, "not used"))
        if rows.any()
    ]


def _pay_off(one: Subject, times: Times, gain: float) -> PayOff | None:
    if isinstance(times, KnownTimes):
        return known_runs.pay_off(times, gain)
    if not isinstance(one.steps, PointsFit):
        return time_to_target.pay_off(times, one.steps, gain, "identified")
    fit = one.steps.fit
    return time_to_target.pay_off(times, time_to_target.step_curves(fit), gain, fit.verdict) if fit else None


def table(found: Sequence[Answer]) -> pd.DataFrame:
    """Returns one row per answer: the names of the subject, then the columns ``PAYOFF``."""
    rows = []
    for one in found:
        row = {"gain_percent": 100 * one.gain, "device_kind": one.device_kind or None}
        row |= {"predicted_by": one.predicted_by or None, "reason": "; ".join(one.notes)}
        lasts: list[tuple[str, str, Extent | LastDoubling]] = [
            ("batch", "batch_size", one.pays),
            ("efficient", "efficient_batch_size", one.efficient),
        ]
        for basis in BASES:
            pay_off = one.of(basis)
            if pay_off:
                lasts.append((basis, f"{basis}_devices", pay_off.last))
        for prefix, name, last in lasts:
            row |= {name: last.best, f"{name}_low": last.low, f"{name}_high": last.high}
            row[f"{prefix}_verdict"] = last.verdict
        rows.append(row)
    return _named(found, pd.DataFrame(rows, columns=list(PAYOFF)))


def times_table(found: Sequence[Answer], price: "Prices | None" = None) -> pd.DataFrame:
    """Returns one row per device count and answer: the names of the subject, then the columns ``PAYOFF_TIMES``.

    Args:
      found: the answers.
      price: hourly price of each device kind.
    """
    rows = []
    owners = []
    for one in found:
        own: dict[float, Json] = {}
        for basis in BASES:
            for row in _time_rows(one, basis, price):
                count = row.pop("devices")
                own.setdefault(count, {}).update({f"{basis}_{name}": value for name, value in row.items()})
        for count in sorted(own):
            shared = {"device_kind": one.device_kind, "devices": count, "predicted_by": one.predicted_by or None}
            rows.append(shared | own[count])
            owners.append(one)
    return _named(owners, pd.DataFrame(rows, columns=list(PAYOFF_TIMES)).astype({"devices": "Int64"}))


def _time_rows(one: Answer, basis: Basis, price: "Prices | None") -> list[Json]:
    """Returns devices, batch_size and on_front, and the values and intervals of seconds, device_hours and price."""
    pay_off = one.of(basis)
    if pay_off is None:
        return []
    hour = price.of(one.device_kind) if price else float("nan")
    front = time_to_target.on_front(pay_off.seconds, pay_off.device_hours)
    rows = []
    for i, count in enumerate(pay_off.devices.tolist()):
        row = {"devices": count, "batch_size": pay_off.batch_size[i], "on_front": "yes" if front[i] else "no"}
        for end, seconds in (("", pay_off.seconds), ("_low", pay_off.low), ("_high", pay_off.high)):
            hours = count * seconds[i] / 3600
            row |= {f"seconds{end}": seconds[i], f"device_hours{end}": hours, f"price{end}": hour * hours}
        for name, values in (("before_first_step", pay_off.before), ("runs", pay_off.runs)):
            row[name] = float("nan") if values is None else values[i]
        rows.append(row)
    return rows


def _named(owners: Sequence[Answer], values: pd.DataFrame) -> pd.DataFrame:
    names = pd.DataFrame([one.subject.names for one in owners], index=range(len(owners)))
    if "trials_per_point" in names:
        names["trials_per_point"] = names["trials_per_point"].astype("Int64")
    return pd.concat([names, values], axis=1)


class Prices(NamedTuple):
    """Prices per device-hour: one for all devices, or one for each named kind."""

    any_device: float
    of_kind: dict[str, float]

    def of(self, kind: str) -> float:
        """Returns the price of a device kind, or NaN if it is unknown."""
        return self.of_kind.get(kind, self.any_device)


def prices(words: Sequence[str], kinds: Sequence[str]) -> Prices | None:
    """Parses prices such as ``2.5`` and ``TPU v4=3.22``. Returns None if there are no prices.

    Raises:
      BadInput: a price is not a positive number, or its device is not among ``kinds``.
    """
    any_device = float("nan")
    of_kind = {}
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
    """Formats the answers as text: one line per answer, then notes and the meanings of the numbers."""
    naming = [str(name) for name in _named(found, pd.DataFrame()) if name not in ("trials_per_point", DIFFERING)]
    alike = [tuple(str(one.subject.names.get(name)) for name in naming if name != "estimate") for one in found]
    apart = text.telling([str(one.subject.names.get(DIFFERING, "")) for one in found], alike)
    rows, remarks = [], []
    for i, (one, differs) in enumerate(zip(found, apart, strict=True), start=1):
        cells = {"": str(i)}
        for name in naming:
            value = one.subject.names.get(name)
            cells[name] = "" if pd.isna(value) else str(value)
        pays, efficient = one.extents_in_words()
        cells |= {DIFFERING: differs, "pays up to": pays, "efficient up to": efficient, "device": one.device_kind}
        for basis in BASES:
            pay_off = one.of(basis)
            cells[f"{basis} devices"] = pay_off.last.in_words() if pay_off else ""
        rows.append(cells)
        remarks += [(i, note) for note in one.notes]
        if one.predicted:
            remarks.append((i, f"predicted by {one.predicted_by}"))
    # Notes that apply to all rows need no row numbers.
    counts = collections.Counter(remark for _, remark in remarks)
    common = [words for words, count in counts.items() if count == len(found) > 1]
    notes = [*common, *text.grouped(one for one in remarks if one[1] not in common)]
    left = [*naming, DIFFERING, "device"]
    kept = ["pays up to", "efficient up to", *(f"{basis} devices" for basis in BASES)]
    shown = text.table(rows, left, [*left, *kept], least=left[::-1], kept=kept)
    meaning = [words.format(gain=f"{100 * (found[0].gain if found else GAIN):g}") for words in LIMITS]
    if any(one.is_timed for one in found):
        meaning.append(OF_TIMES)
    return "\n".join([shown, "", *notes, "", *meaning])


def times_as_text(found: Sequence[Answer], price: Prices | None = None) -> str:
    """Formats time to target and device-hours as text, one block per answer."""
    blocks = []
    for one in found:
        unit = one.subject.names.get("unit", "")
        lines = [" · ".join(filter(None, (one.subject.title, unit and f"batch sizes in {unit}", one.device_kind)))]
        for basis in BASES:
            pay_off = one.of(basis)
            if pay_off is None:
                continue
            by = f" by {one.predicted_by}" if basis == PREDICTED else ""
            lines += ["", f"{basis}{by}; devices after the last doubling that pays off: {pay_off.last.in_words()}"]
            lines.append(_block(pay_off, _time_rows(one, basis, price)))
        if not one.is_timed:
            lines.append(f"no times: {'; '.join(one.notes) or 'no device was timed'}")
        elif one.notes:
            lines += ["", "; ".join(one.notes)]
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
            rows[-1]["faster by"] = "{:.0%} [{:.0%}, {:.0%}]".format(*(each - 1 for each in gains[count]))
    # A narrow terminal keeps the requested numbers; hours and price are as uncertain as seconds, relative to them.
    least = [BEFORE, RUNS, HOURS_INTERVAL, PRICE_INTERVAL, "batch", "faster by"]
    if any(row["price"] for row in rows):
        least.insert(4, "device-hours")
    return text.table(rows, [BEATEN], rows[0], least=least, kept=set(rows[0]) - set(least))


def _ends(row: Json, name: str) -> str:
    """Formats the ends of an interval. Returns an empty string if there is no number."""
    if np.isnan([row[name], row[f"{name}_low"], row[f"{name}_high"]]).any():
        return ""
    return f"[{text.number(row[f'{name}_low'])}, {text.number(row[f'{name}_high'])}]"
