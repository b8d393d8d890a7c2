"""Answers: how far adding devices pays off, for each kind of device and each subject."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.fitting import fits
from analysis.fitting.extents import GAIN, UNKNOWN, Extent, Extents
from analysis.payoff import known_runs, step_times, time_files, time_to_target
from analysis.payoff.known_runs import KnownTimes
from analysis.payoff.step_times import BASES, MEASURED, NAMES, PREDICTED, PUBLISHED, Basis, StepTimes
from analysis.payoff.subjects import Subject, Times, given_times
from analysis.payoff.time_to_target import PayOff
from results import progress
from results.aliases import Strings
from results.bad_input import BadInput, number_of
from results.printing import Report


class Answer(NamedTuple):
    """The pay-off of a subject on one device kind.

    Attributes:
      subject: the curve or factorization.
      device_kind: device kind, or empty if no device was timed.
      gain: required speed-up per doubling, as a fraction.
      pays, efficient: batch sizes up to which doubling both the batch and the devices pays off, and up to which batches
        are efficient, for any shape of the curve.
      pay_offs: time to target by the origin of the seconds per step, measured before predicted before published.
        Origins without times in the range of the curve are missing.
      predicted_by: source of the predicted seconds per step.
      notes: notes for the user.
    """

    subject: Subject
    device_kind: str
    gain: float
    pays: Extent
    efficient: Extent
    pay_offs: Mapping[Basis, PayOff]
    predicted_by: str
    notes: Strings


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
    for i, subject in enumerate(progress.track(subjects, "payoff", " curves", report)):
        times = [origin for origin in subject.times if origin.basis not in given]
        for times_of_subjects in given.values():
            times += times_of_subjects[i]
        if PREDICTED not in given:
            measured_steps = [steps for steps in times if isinstance(steps, StepTimes) and steps.basis == MEASURED]
            times += filter(None, map(step_times.without_communication, measured_steps))
        extents = None
        if subject.curve:
            extents = fits.extents_of(subject.curve.points, gain, assume_nothing=assume_nothing)
        for kind in sorted({origin.device_kind for origin in times}) or [""]:
            result.append(_answer(subject, kind, gain, extents or Extents(UNKNOWN, UNKNOWN), times))
    return result


def _times_of(rows: pd.DataFrame, subjects: Sequence[Subject], basis: Basis, *, choosable: bool) -> list[list[Times]]:
    """Returns the times of each subject: rows with its name and, unless it is a factorization, a batch size."""
    named = [name for name in NAMES if name in rows]
    workloads = {tuple(subject.names.get(name) for name in NAMES[:2]) for subject in subjects}
    if not named and len(workloads) > 1:
        words = text.first_few(sorted(" ".join(map(str, names)) for names in workloads))
        remedy = "Add columns dataset and model"
        if choosable:
            remedy += ", or choose one workload with --where model=NAME"
        raise BadInput(f"--{basis}: the file does not name a workload, and there are several ({words}). {remedy}.")
    result: list[list[Times]] = []
    used = np.zeros(len(rows), bool)
    for subject in subjects:
        matching = rows["batch_size"].notna() == (subject.curve is not None)
        for name in named:
            matching &= rows[name] == str(subject.names.get(name))
        used |= matching.to_numpy()
        if time_files.STEPS in rows:
            result.append([*given_times(rows[matching], subject.steps, f"--{basis}")])
        else:
            result.append([*step_times.of_rows(rows[matching], f"--{basis}")])
    if not used.all():
        raise _unmatched(rows, int(np.argmin(used)), subjects, basis)
    return result


def _unmatched(rows: pd.DataFrame, row: int, subjects: Sequence[Subject], basis: str) -> BadInput:
    """Returns the error for a row that does not belong to any subject. Rows are counted from 0."""
    names = {name: str(rows[name][row]) for name in NAMES if name in rows}
    if not any(
        names.items() <= {name: str(value) for name, value in subject.names.items()}.items() for subject in subjects
    ):
        why = f"is of no curve ({', '.join(names.values())}). Name data set and model as the table does."
    elif np.isnan(rows["batch_size"][row]):
        why = "has no batch_size. Only steps of a factorization go without one."
    else:
        why = "has a batch_size, but a step of a factorization takes all data. Leave the cell empty."
    return BadInput(f"--{basis}: row {row + 1} {why}")


def _answer(subject: Subject, kind: str, gain: float, extents: Extents, times: Sequence[Times]) -> Answer:
    notes = list(subject.notes)
    if subject.curve and subject.verdict != "identified":
        # A reason begins with the distinction of the curve. Without times, the fitted shape does not matter.
        notes = [subject.curve.reason] if kind or not subject.fit else [*notes, *subject.curve.points.notes]
    if subject.fit:
        notes += _beyond_the_data(extents, subject.fit.batch_size)
    pay_offs: dict[Basis, PayOff] = {}
    predicted_by = ""
    divided = any(isinstance(origin, StepTimes) and origin.divided for origin in times)
    for origin in sorted(times, key=lambda origin: BASES.index(origin.basis)):
        if origin.device_kind != kind:
            continue
        if origin.basis == PREDICTED:
            predicted_by = origin.by
        else:
            notes += origin.notes
        pay_off = _pay_off(subject, origin, gain)
        if pay_off:
            pay_offs[origin.basis] = pay_off
            notes += _notes(subject, origin, pay_off, as_share=divided)
        elif subject.fit or not subject.curve:
            notes.append(f"no {origin.basis} step times at batch sizes of the curve")
    notes = [note for note in dict.fromkeys(notes) if note]
    return Answer(subject, kind, gain, *extents, pay_offs, predicted_by, tuple(notes))


def _notes(subject: Subject, times: Times, pay_off: PayOff, *, as_share: bool) -> list[str]:
    """Returns notes on the answer computed from ``times``. See ``_beyond`` for ``as_share``."""
    numbers = time_to_target.judged(pay_off.devices)
    notes = _missing(times.basis, pay_off.devices, numbers)
    if len(numbers) > 1:
        verdict = subject.verdict if isinstance(times, StepTimes) else "identified"
        notes += _open_ends(verdict, pay_off.last, f"{times.basis} devices", numbers)
    if subject.fit and isinstance(times, StepTimes):
        sizes = subject.fit.batch_size
        notes += _gaps(times.within(sizes[0], sizes[-1]))
        notes += _beyond(times, sizes, as_share=as_share)
    return notes


def _beyond_the_data(extents: Extents, batch_sizes: np.ndarray) -> list[str]:
    """Returns notes on extents with an open end."""
    notes = []
    for name, extent in zip(("pays", "efficient"), extents, strict=True):
        best = "" if np.isnan(extent.best) else f" (best estimate {text.number(extent.best)})"
        for end, which, size in ((extent.high, "largest", batch_sizes[-1]), (extent.low, "smallest", batch_sizes[0])):
            if np.isnan(end):
                notes.append(
                    f"{name} up to: the interval reaches the {which} batch size in the data, {size:,.10g}{best}"
                )
    return notes


def _open_ends(verdict: text.Verdict, last: Extent, what: str, numbers: np.ndarray) -> list[str]:
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
        return [f"{basis} only on {number_of(int(devices[0]), 'device')}, so no doubling was observed"]
    last, larger = numbers[-1], devices[devices > numbers[-1]]
    if not len(larger):
        return []
    timed = f"{basis} on {last:,.0f} and {larger[0]:,.0f} devices but not on {2 * last:,.0f}"
    return [f"{timed}, so no doubling beyond {last:,.0f} is judged"]


def _gaps(times: StepTimes) -> list[str]:
    """Returns notes on gaps between timed batch sizes."""
    return [
        f"no batch size was timed on {number_of(int(count), 'device')} between {before:,.10g} and {after:,.10g}, so "
        "only bounds hold between them"
        for count, before, after in times.gaps()
    ]


def _beyond(times: StepTimes, batch_sizes: np.ndarray, *, as_share: bool) -> list[str]:
    """Returns notes on batch sizes in a file that lie outside the curve. Stores may have such sizes without a note.

    ``as_share``: whether smaller batch sizes on one device are used as one device's share of a larger batch.
    """
    if times.by != f"--{times.basis}":
        return []
    smaller, larger = times.batch_size < batch_sizes[0], times.batch_size > batch_sizes[-1]
    shares = smaller & (times.devices == 1) & (as_share and times.basis == MEASURED)
    return [
        f"{times.basis} at {text.batch_sizes(np.unique(times.batch_size[rows]))}, outside the curve: {use}"
        for rows, use in ((shares, "used only as one device's share"), ((smaller | larger) & ~shares, "not used"))
        if rows.any()
    ]


def _pay_off(subject: Subject, times: Times, gain: float) -> PayOff | None:
    if isinstance(times, KnownTimes):
        return known_runs.pay_off(times, gain)
    if isinstance(subject.steps, float):
        return time_to_target.pay_off(times, subject.steps, gain, "identified")
    fit = subject.fit
    return time_to_target.pay_off(times, time_to_target.step_curves(fit), gain, fit.verdict) if fit else None
