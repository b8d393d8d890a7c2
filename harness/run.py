"""A run of a study: its settings, how far it has come, and the record of what it measured."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness.scheduler import TrialOutcome
from results.plans.study import Trial

STRATEGIES = ("map", "vmap")
STARTING, COMPILING, TRAINING = "starting", "compiling", "training"
_NONE: Mapping[int, int] = {}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run. On a CPU only ``shards`` and ``microbatches`` change a number of a trial that finishes.

    Attributes:
      lanes: trials side by side; None chooses. Rounded up to a multiple of the devices they are divided over.
      lane_strategy: ``map``, ``vmap``, or ``auto``: map on a CPU, vmap elsewhere.
      time_limit_seconds: after which what is unfinished ends as INCOMPLETE(time_limit); None is no limit.
      flush_seconds: how often trials that have finished are handed over while others go on.
      shards: devices that each batch is divided over; more than 1 change results within rounding. None: as few as
        memory allows.
      microbatches: parts that each shard of a batch is taken in, one after the other, to save memory; likewise.
      checkpoint_seconds: how often trials under way are saved, at most; None: only where the run is stopped. A run that
        goes on from there gives the same numbers.
      checkpoint_dir: folder or URL that they are saved in; None: beside the results of their study.
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
      doing: what its process does now: STARTING (imports, data), COMPILING or TRAINING.
      ended: how many trials ended, by the steps that each took.
      live: how many trials are under way, by the steps that each has taken.
      steps: taken in this run, summed over trials.
      train_seconds: spent on these steps.
      seconds: since the first of them began, with evaluations and all else.
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
      trials: with their seeds and metaparameters.
      outcomes: how each of these trials ended, by its id.
      trial, step: int32[rows], which evaluation a row is; sorted by (trial, step).
      metrics: values[rows] by name: float32 metrics, then further columns of the kind (see ``results.plans.kinds``).
      compile_seconds: spent on building programs in this run; of a factorization before its first epoch.
      train_seconds, evaluate_seconds, run_seconds: inside training, inside evaluations, and in all, without compiling.
      trial_steps: steps taken, summed over trials. This and the seconds are of the run so far, and of all its trials,
        also where the record is of a part. All are None where nothing ran.
      steps_per_epoch: that see as many examples as there are; None of a stream without end.
      lanes, lane_strategy, shards, microbatches: as they were; None where there are no lanes.
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


def unmeasured(trials: Sequence[Trial], end: TrialOutcome) -> Record:
    """The record of trials that all ended so before anything of them was measured."""
    nothing = np.empty(0, np.int32)
    return Record(trials, {trial.id: end for trial in trials}, nothing, nothing, {})
