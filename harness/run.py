"""A run of a study: its settings, its progress and the record of its measurements."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.scheduler import TrialOutcome
from results.plans.study import Trial

STRATEGIES = ("map", "vmap")
STARTING = "starting"
COMPILING = "compiling"
TRAINING = "training"
_NONE: Mapping[int, int] = {}

# Options of the user's own data set or ratings, as plain data. None if the plan has all of them.
Source = Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run. On a CPU, only ``shards`` and ``microbatches`` change the numbers of a finished trial.

    Attributes:
      lanes: number of trials side by side, rounded up to a multiple of the devices they are divided over. The default
        depends on the study.
      lane_strategy: ``map``, ``vmap``, or ``auto``, which is map on a CPU and vmap on GPUs and TPUs.
      time_limit_seconds: limit after which unfinished trials end as INCOMPLETE(time_limit). None means no limit.
      flush_seconds: interval at which finished trials are handed over while others train.
      shards: number of devices that each batch is divided over. More than 1 changes results within rounding. None means
        as few as memory allows.
      microbatches: number of parts that each shard of a batch is processed in, one after another, to save memory. More
        than 1 changes results within rounding. None means as few as memory allows.
      checkpoint_seconds: least interval between checkpoints of trials under way. None saves only when the run is
        stopped. A resumed run gives the same numbers.
      checkpoint_dir: folder or URL of the checkpoints. None stores them with the results of their study.
    """

    lanes: int | None = None
    lane_strategy: str = "auto"
    time_limit_seconds: float | None = None
    flush_seconds: float = 15.0
    shards: int | None = None
    microbatches: int | None = None
    checkpoint_seconds: float | None = 60.0
    checkpoint_dir: str | None = None


class RunProgress(NamedTuple):
    """The progress of a run of a study.

    Attributes:
      doing: the current activity: STARTING (imports, data), COMPILING or TRAINING.
      ended: number of ended trials, by the steps that each took.
      live: number of trials under way, by the steps that each has taken.
      steps: steps taken in this run, summed over trials.
      train_seconds: seconds spent on these steps.
      seconds: seconds since the first step began, including evaluations and everything else.
    """

    doing: str = STARTING
    ended: Mapping[int, int] = _NONE
    live: Mapping[int, int] = _NONE
    steps: int = 0
    train_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def trials_ended(self) -> int:
        return sum(self.ended.values())


@dataclasses.dataclass(frozen=True)
class Record:
    """The measurements of a run of a study, or a part of them: some finished trials with all their evaluations.

    Attributes:
      trials: the trials with their seeds and metaparameters.
      outcomes: outcome of each of these trials, by id.
      trial, step: int32[rows], the trial and step of each evaluation, sorted by (trial, step).
      metrics: values[rows] by name: float32 metrics, then further columns of the kind (see ``results.plans.kinds``).
      compile_seconds: seconds spent on building programs in this run. For a factorization, before its first epoch.
      train_seconds, evaluate_seconds, run_seconds: seconds in training, in evaluations and in total, without compiling.
      trial_steps: steps taken, summed over trials. This number and the seconds cover all trials of the run so far, even
        in a partial record. All are None if the run took no step.
      steps_per_epoch: steps that see as many examples as the training set has. None for an endless stream.
      lanes, lane_strategy, shards, microbatches: the values used. None if the kind has no lanes.
    """

    trials: Sequence[Trial]
    outcomes: dict[int, TrialOutcome]
    trial: np.ndarray
    step: np.ndarray
    metrics: dict[str, np.ndarray]
    compile_seconds: float | None = None
    train_seconds: float | None = None
    evaluate_seconds: float | None = None
    run_seconds: float | None = None
    trial_steps: int | None = None
    steps_per_epoch: float | None = None
    lanes: int | None = None
    lane_strategy: str | None = None
    shards: int | None = None
    microbatches: int | None = None


OnProgress = Callable[[RunProgress], None]
OnFinished = Callable[[Record], None]


def unmeasured(trials: Sequence[Trial], end: TrialOutcome) -> Record:
    """The record of trials that all ended with this outcome before any measurement."""
    empty = np.empty(0, np.int32)
    return Record(trials, {trial.id: end for trial in trials}, empty, empty, {})
