"""The settings, progress and measurements of a run of a study."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness.trials.scheduler import TrialOutcome
from results.aliases import Fields
from results.plans.study import Trial

STRATEGIES = ("map", "vmap")
STARTING = "starting"
COMPILING = "compiling"
TRAINING = "training"
_NONE: Mapping[int, int] = {}

# Options of the user's own data set or ratings, as plain data, or None if the plan contains all of them.
Source = Fields | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run. On a CPU, only ``shards`` and ``microbatches`` affect the results of a finished trial.

    Attributes:
      lanes: number of trials to run concurrently, rounded up to a multiple of the number of devices they are split
        across. The default depends on the study.
      lane_strategy: ``map``, ``vmap``, or ``auto``, which means map on a CPU and vmap on GPUs and TPUs.
      time_limit_seconds: time limit after which unfinished trials end as INCOMPLETE(time_limit), or None for no limit.
      flush_seconds: interval at which finished trials are reported while others train.
      shards: number of devices that each batch is split across. Values above 1 change results within rounding. The
        default (None) is the smallest number for which the trial fits in memory.
      mesh: mesh of devices for each trial, such as ``data:2 model:4``. Batches are split across the ``data`` axis. By
        default, the mesh has only this axis, of size ``shards``.
      layout: tensor axes of the model that are sharded across mesh axes, such as ``embed:data mlp:model``, or the name
        of a preset. A layout changes results within rounding.
      microbatches: number of parts that each shard of a batch is split into. They are processed one after another to
        save memory. Values above 1 change results within rounding. The default (None) is the smallest number for which
        the trial fits in memory.
      checkpoint_seconds: minimum interval between checkpoints of running trials. With None, trials are saved only when
        the run is stopped. Resuming does not change results.
      checkpoint_dir: folder or URL of the checkpoints. By default (None), they are stored with the results of their
        study.
    """

    lanes: int | None = None
    lane_strategy: str = "auto"
    time_limit_seconds: float | None = None
    flush_seconds: float = 15.0
    shards: int | None = None
    microbatches: int | None = None
    checkpoint_seconds: float | None = 60.0
    checkpoint_dir: str | None = None
    mesh: str | None = None
    layout: str | None = None


class RunProgress(NamedTuple):
    """The progress of a run of a study.

    Attributes:
      doing: current activity: STARTING (imports, data), COMPILING or TRAINING.
      ended: number of ended trials, by steps taken.
      live: number of running trials, by steps taken so far.
      steps: number of steps taken in this run, summed over trials.
      train_seconds: seconds spent on these steps.
      seconds: seconds since the first step began, including evaluations and all other work.
      saved: whether steps of this run were saved in a checkpoint, or stored as finished trials.
    """

    doing: str = STARTING
    ended: Mapping[int, int] = _NONE
    live: Mapping[int, int] = _NONE
    steps: int = 0
    train_seconds: float = 0.0
    seconds: float = 0.0
    saved: bool = False

    @property
    def trials_ended(self) -> int:
        return sum(self.ended.values())


@dataclasses.dataclass(frozen=True)
class Record:
    """Measurements of a run of a study, or of some of its finished trials, including all of their evaluations.

    Attributes:
      trials: trials with their seeds and metaparameters.
      outcomes: outcomes of these trials, by id.
      trial, step: int32[rows], trial and step of each evaluation, sorted by (trial, step).
      metrics: arrays [rows] by name: float32 metrics, followed by additional columns of the study's kind (see
        ``results.plans.kinds``).
      compile_seconds: seconds spent on building programs in this run (for a factorization, before its first epoch).
      train_seconds, evaluate_seconds, run_seconds: seconds spent on training, on evaluations and in total, excluding
        compilation.
      trial_steps: number of steps taken, summed over trials. Even in a partial record, this number and the seconds
        cover all trials of the run so far. All of them are None if the run did not take a step.
      steps_per_epoch: number of steps that process one training set's worth of examples, or None for an endless stream.
      lanes, lane_strategy, shards, microbatches: values that were used, or None if the study's kind does not have
        lanes.
      mesh, layout: texts of the mesh and the layout that were used, if tensors were divided.
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
    mesh: str | None = None
    layout: str | None = None


OnProgress = Callable[[RunProgress], None]
OnFinished = Callable[[Record], None]


def unmeasured(trials: Sequence[Trial], end: TrialOutcome) -> Record:
    """Returns the record of trials that all ended with the same outcome before any measurement."""
    empty = np.empty(0, np.int32)
    return Record(trials, {trial.id: end for trial in trials}, empty, empty, {})
