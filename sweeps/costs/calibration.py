"""Calibrates predictions by comparing the measured seconds per step in a store with predicted seconds."""

import bisect
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.costs import questions
from harness.costs.questions import Question
from harness.kinds import RUNNERS
from harness.run import Settings
from results import printing, tables
from results.bad_input import BadInput, number_of
from results.costs import predictions
from results.costs.predictions import Calibration, Seconds
from results.durable import Folder
from results.grouping import grouped
from results.plans.kinds import KINDS, of_kind
from results.plans.plan import Plan
from results.store import Commit, read_table
from sweeps.configured_study import Say

COLUMNS = (
    "device_kind",
    "study",
    "trial_steps",
    "measured_seconds_per_step",
    "predicted_seconds_per_step",
    "predicted_seconds_per_step_low",
    "predicted_seconds_per_step_high",
    "measured_over_predicted",
    "within_range",
    "predictor",
)
_HEADER = ("study", "trial-steps", "measured s a step", "predicted s a step", "measured / predicted", "in range")
_DIVISION = ("shards", "microbatches", "mesh", "layout")  # older tables lack the mesh and the layout
_TOGETHER = ("device_kind", "backend", "device_count", "lanes", "lane_strategy", *_DIVISION)
SAMPLED = 24  # maximum number of a store's studies that scale a prediction


class Device(NamedTuple):
    """A kind of device, by its name in stores, and its backend."""

    kind: str
    backend: str


class Known(NamedTuple):
    """Ratios of measured seconds to uncalibrated predictions on a device, for steps and for compilation."""

    steps: Calibration | None = None
    compiling: Calibration | None = None


def lanes_of(settings: Settings, device: Device, trials: int, *, streamed: bool = False) -> int:
    """Returns the number of trials that share a step: 1 on CPUs unless batched. For streamed data, the default is 1."""
    if device.backend == "cpu" and settings.lane_strategy != "vmap":
        return 1
    return settings.lanes or (1 if streamed else max(1, min(32, trials)))


def commits(folder: Folder) -> list[Commit]:
    """Returns the measured studies of a store or release whose costs can be counted. Empty if there is no store.

    Raises:
      BadInput: the folder is not a store.
    """
    from results import store

    if not folder.is_dir():
        return []
    released = store.released_commits(folder)
    return [
        commit
        for commit in (store.committed(folder) if released is None else released)
        if not KINDS[commit.study.kind].recorded and RUNNERS[commit.study.kind].counts is not None
    ]


class Measured(NamedTuple):
    """Measured times and uncalibrated predictions for a stored study on one kind of device.

    Attributes:
      device: device of the runs.
      study: plan of the study.
      seconds, compiling: measured seconds per trial-step, and measured seconds of compilation (None if all programs
        were cached).
      predicted, predicted_compiling: uncalibrated predictions of ``seconds`` and ``compiling``.
      trial_steps: number of measured steps.
      flops: FLOPs of a step on one device.
    """

    device: Device
    study: Plan
    seconds: float
    compiling: float | None
    predicted: Seconds
    predicted_compiling: float
    trial_steps: int
    flops: float

    @property
    def ratio(self) -> float:
        """Ratio of measured to predicted seconds."""
        return self.seconds / self.predicted.middle

    @property
    def within(self) -> bool:
        """Whether the measured seconds are within the predicted range."""
        return self.predicted.low <= self.seconds <= self.predicted.high


class MeasuredRun(NamedTuple):
    """The total time of all runs of a study on one kind of device."""

    commit: Commit
    device: Device
    devices: int
    settings: Settings
    train_seconds: float
    trial_steps: int
    calls: float  # per step
    compile_seconds: float | None


def measured(commits: Iterable[Commit], say: Say = lambda line: None) -> list[Measured]:
    """Returns measured studies, with predictions from tables but not from probes.

    Studies that cannot be counted and devices that are not in a table are skipped.
    """
    runs = [run for commit in commits for run in runs_of(commit)]
    asked = [Question(run.commit.study.plan(), run.commit.trials, None, run.settings) for run in runs]
    studies = []
    for run, answer in zip(runs, questions.ask(asked, say=say, refuses=False), strict=True):
        if answer is None or questions.REFUSED in answer:
            continue
        counts = questions.counts_of(answer)
        rates = predictions.rates(*run.device, counts.precision)
        if rates is None:
            continue
        # The devices of a group share a step. Different groups run different trials.
        groups = max(1, run.devices // counts.devices)
        lanes = max(1, lanes_of(run.settings, run.device, run.settings.lanes or 1) // groups)
        call = predictions.around(rates.call_seconds, rates.factor).times(run.calls / lanes)
        predicted = predictions.seconds(counts.step, rates, lanes).plus(call)
        studies.append(
            Measured(
                run.device,
                run.commit.study,
                run.train_seconds * min(groups, run.commit.trials) / run.trial_steps,
                run.compile_seconds,
                predicted,
                predictions.compiling_seconds(counts.equations, rates),
                run.trial_steps,
                counts.step.flops,
            )
        )
    return studies


def runs_of(commit: Commit) -> list[MeasuredRun]:
    """Returns the runs of a study, summed by device and batch partition. Emulated devices are excluded."""
    if RUNNERS[commit.study.kind].counts is None:
        return []
    calls = _calls(commit)
    usable = [
        row
        for row in read_table(commit, "studies").to_pylist()
        if row["emulated"] is False and row["trial_steps"] and row["train_seconds"]
    ]
    together = grouped(usable, lambda row: tuple(map(row.get, _TOGETHER)))
    runs = []
    for (kind, backend, devices, lanes, strategy, *division), rows in together.items():
        compiled = [row["compile_seconds"] for row in rows if row["compile_seconds"]]
        given = {name: value for name, value in zip(_DIVISION, division, strict=True) if value}
        settings = Settings(lanes=lanes, lane_strategy=strategy or "auto", **given)
        runs.append(
            MeasuredRun(
                commit,
                Device(kind or "unknown", backend or "cpu"),
                devices or 1,
                settings if RUNNERS[commit.study.kind].lanes else Settings(),
                sum(row["train_seconds"] for row in rows),
                sum(row["trial_steps"] for row in rows),
                calls,
                statistics.median(compiled) if compiled else None,
            )
        )
    return runs


def _calls(commit: Commit) -> float:
    """Returns the number of program calls per step of a study. Each evaluation counts as a call."""
    grid = RUNNERS[commit.study.kind].evaluations(commit.study)
    taken = list(filter(None, read_table(commit, "trials")["steps"].to_pylist())) or [commit.study.budget_steps]
    return sum(bisect.bisect_right(grid, steps) for steps in taken) / sum(taken)


class StoreRatios:
    """The runs in a store by which predictions are scaled."""

    def __init__(self, commits: Sequence[Commit], say: Say):
        self._commits = commits
        self._say = say
        self._measured: dict[tuple, list[Measured]] = {}

    def of(self, device: Device, study: Plan, flops: float) -> Known:
        """Returns the ratios of runs on the same kind of device (and of the same model, if there are enough such runs).

        Only runs of a similar size are used.

        Args:
          device: device that the study runs on.
          study: plan of the study.
          flops: FLOPs of a step on one device.
        """
        for model, fewest in ((_model(study), predictions.FEWEST), (None, 1)):
            runs = [run for run in self._of_model(device, study.kind, model) if predictions.alike(run.flops, flops)]
            if len(runs) >= fewest:
                ranges = [math.sqrt(run.predicted.high / run.predicted.low) for run in runs]
                steps = predictions.calibration([run.ratio for run in runs], max(ranges))
                compiled = [run.compiling / run.predicted_compiling for run in runs if run.compiling]
                return Known(steps, predictions.calibration(compiled))
        return Known()

    def _of_model(self, device: Device, kind: str, model: tuple[str, str] | None) -> list[Measured]:
        """Returns the measured studies of one kind on a device, for one model or for all models."""
        key = device, kind, model
        if key not in self._measured:
            chosen = [c for c in of_kind(self._commits, kind) if model is None or _model(c.study) == model]
            runs = measured(_spread(chosen, device), self._say)
            self._measured[key] = [run for run in runs if run.device == device]
        return self._measured[key]


def _model(study: Plan) -> tuple[str, str]:
    return study.labels[:2]


def _spread(commits: Sequence[Commit], device: Device) -> list[Commit]:
    """Returns an evenly spaced sample of the studies that were measured on a device."""
    measured_there = [commit for commit in commits if any(run.device == device for run in runs_of(commit))]
    stride = math.ceil(len(measured_there) / SAMPLED)
    return measured_there[::stride] if stride else []


def show(store: Folder) -> int:
    """Prints the calibration of all device kinds in a store or release. Returns the exit code 0.

    Raises:
      BadInput: there are no runs to compare.
    """
    studies = measured(commits(store), printing.say)
    studies.sort(key=lambda run: (run.device.kind, printing.numbered(run.study.name)))
    if not studies:
        raise BadInput(f"store={store} has no runs with usable times. Run a sweep into it first.")
    printing.show(COLUMNS, [_cells(run) for run in studies], lambda: _text(studies))
    return 0


def _cells(run: Measured) -> tuple:
    return (
        run.device.kind,
        run.study.name,
        run.trial_steps,
        run.seconds,
        *run.predicted,
        run.ratio,
        run.within,
        predictions.PREDICTOR,
    )


def _text(studies: list[Measured]) -> str:
    parts = []
    for device in dict.fromkeys(run.device for run in studies):
        of_device = [run for run in studies if run.device == device]
        rows = [
            (
                run.study.name,
                run.trial_steps,
                f"{run.seconds:.3g}",
                f"{run.predicted.low:.2g} – {run.predicted.high:.2g}",
                f"{run.ratio:.2f}",
                "yes" if run.within else "no",
            )
            for run in of_device
        ]
        overall = predictions.calibration([run.ratio for run in of_device])
        assert overall is not None
        ratios = sorted(run.ratio for run in of_device)
        logs = [math.log(ratio) for ratio in ratios]
        deviation = math.exp(statistics.stdev(logs)) if len(logs) > 1 else 1.0
        spread = f"from {ratios[0]:.2f} to {ratios[-1]:.2f}, standard deviation × ÷ {deviation:.2f}"
        inside = sum(run.within for run in of_device)
        parts += [
            f"{device.kind}, uncalibrated predictions from tables (predictor {predictions.PREDICTOR}):",
            tables.table(_HEADER, rows, ("study", "in range")),
            f"{number_of(len(of_device), 'study')}: measured is {overall.scale:.2f} × predicted, {spread}; "
            f"{inside} in range",
            "",
        ]
    return "\n".join(parts[:-1])
