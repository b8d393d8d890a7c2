"""Record: the measurements of a run of a study, of any kind."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from harness.scheduler import TrialOutcome
from results.plans.study import Trial


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
