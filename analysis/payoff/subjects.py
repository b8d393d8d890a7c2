"""Subjects of pay-off: the curves and factorizations of a store, a file or a paper, with their seconds per step."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import kind_views, text
from analysis.columns import DIFFERS
from analysis.cores import core_counts, measured_factorizations
from analysis.cores.core_counts import CoreCurve
from analysis.fitting import curve_fits, curves, points_file
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from analysis.fitting.regimes import Fit
from analysis.payoff import known_runs, step_times, time_files
from analysis.payoff.known_runs import KnownTimes
from analysis.payoff.step_times import NAMES, PUBLISHED, Basis, StepTimes
from analysis.trials import steps_to_target
from results import progress, store
from results.aliases import Json, Strings
from results.bad_input import BadInput, check_choice
from results.durable import Folder
from results.located import located
from results.papers import published_numbers
from results.plans.recorded import EXAMPLES, SEQUENCES
from results.plans.study import TargetRequest
from results.printing import Report

(DIFFERING,) = DIFFERS  # the column that separates subjects with the same names
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

    @property
    def curve(self) -> PointsFit | None:
        """The fit of steps to target, or None for a factorization, whose steps use all data."""
        return self.steps if isinstance(self.steps, PointsFit) else None

    @property
    def fit(self) -> Fit | None:
        """The fitted curve, or None for a factorization or if the data do not support a fit."""
        return self.curve.fit if self.curve else None


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
        selected = curves.meeting(curves.of_store(*steps_to_target.load(folder, request)), folder, where)
        subjects = of_curves(curve_fits.of_curves(selected, report, began))
    if kind_views.CORES in drawn and not where:
        subjects += of_core_curves(core_counts.curves(measured_factorizations.load(folder)))
    return subjects


def of_curves(fitted: Sequence[CurveFits]) -> list[Subject]:
    """Returns every fit of these curves, with the seconds per step that were measured in their runs."""
    subjects = []
    for curve_fit in fitted:
        curve = curve_fit.curve
        times = tuple(step_times.of_commits(curve.workload.commits))
        names, points_fits = curve_fits.rows([curve_fit])
        for row, points_fit in zip(_records(names), points_fits, strict=True):
            title = f"{curve.workload.title} · {curve.target_text} · {row['estimate']}"
            row[DIFFERING] = curve.distinction
            subjects.append(Subject(row, title, points_fit, (curve.distinction,), times))
    return subjects


def of_core_curves(core_curves: Sequence[CoreCurve]) -> list[Subject]:
    """Returns factorizations by number of real cores. Their target is the last epoch."""
    subjects = []
    formats = {curve.representative.study.table_dtype for curve in core_curves}
    for curve in core_curves:
        times = step_times.of_core_curve(curve)
        if times is None:
            continue
        study, distinction = curve.representative.study, curve.distinction
        epochs = curve.representative.result("epoch")
        names = dict(zip(NAMES, kind_views.labels(study), strict=True))
        title = f"{' · '.join(names.values())} · {epochs:.0f} epochs"
        table_format = f"table_dtype={study.table_dtype}" if len(formats) > 1 else ""
        names[DIFFERING] = ", ".join(filter(None, (table_format, distinction)))
        subjects.append(Subject(names, title, epochs, (distinction,), (times,)))
    return subjects


def of_file(file: Path, report: Report | None = None) -> list[Subject]:
    """Returns the curves in a file of points, as read by ``points_file.of_file``."""
    return _of_fits(*points_file.of_file(file, report))


def of_paper(source: str, report: Report | None = None) -> list[Subject]:
    """Returns the curves published in a paper, from ``results/papers``. ``report`` is called with progress lines.

    Raises:
      BadInput: there is no such paper, or it has no curves.
    """
    points = published_numbers.points().dropna(subset=["steps", "batch_size"])
    check_choice("paper", source, sorted({*points["source"], GPT3}))
    if source == GPT3:
        return [of_gpt3()]
    naming = ["dataset", "model", "optimizer", "metric", "target_value"]
    groups = list(points[points["source"] == source].groupby(naming, sort=False))
    names = pd.DataFrame([key for key, _ in groups], columns=[*naming[:3], "target_metric", "target_value"])
    names["unit"] = EXAMPLES
    tracked = progress.track(groups, "fit", " curves", report)
    return _of_fits(names, [points_file.of_steps(rows["batch_size"], rows["steps"]) for _, rows in tracked])


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
    groups = [group for _, group in rows.groupby(named, sort=False)] if named else [rows]
    return [_of_runs({name: group[name].iloc[0] for name in named}, group, f"--{basis}") for group in groups]


def _of_runs(names: Json, rows: pd.DataFrame, source: str, notes: Strings = ()) -> Subject:
    """Returns the subject for runs with given steps. It has a curve over batch size if the rows have batch sizes."""
    with_batch = rows[rows["batch_size"].notna()]
    steps = known_runs.curve(with_batch) if len(with_batch) else float(rows["steps"].median())
    times = tuple(given_times(rows, steps, source, notes))
    return Subject(names, " · ".join(map(str, names.values())), steps, (), times)


def given_times(rows: pd.DataFrame, steps: PointsFit | float, source: str, notes: Strings = ()) -> list[KnownTimes]:
    """Returns the times of runs with given steps. Adds a note on the critical batch size of their curve ``steps``."""
    if isinstance(steps, PointsFit):
        notes = tuple(filter(None, (*notes, known_runs.critical(rows, steps))))
    return known_runs.of_rows(rows, source, notes)


def _of_fits(names: pd.DataFrame, points_fits: Sequence[PointsFit]) -> list[Subject]:
    rows = _records(names) or [{} for _ in points_fits]
    return [
        Subject(row, " · ".join(map(str, row.values())), points_fit, ())
        for row, points_fit in zip(rows, points_fits, strict=True)
    ]


def _records(names: pd.DataFrame) -> list[Json]:
    return [{str(key): value for key, value in row.items()} for row in names.to_dict("records")]
