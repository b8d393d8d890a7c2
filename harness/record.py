"""Record: the measurements of a run of a study, of any kind."""

import dataclasses

import numpy as np

from harness.frontier import Ended


@dataclasses.dataclass(frozen=True)
class Record:
    """The measurements of a run of a study, or a part of them: some finished trials with all their evaluations.

    Attributes:
      ended: how each of these trials ended, by its id.
      trial, step: int32[rows], which evaluation a row is; sorted by (trial, step).
      metrics: values[rows] by name: float32 metrics, then further columns of the kind (see ``results.plans.kinds``).
      compile_seconds: spent on building programs in this run; of a factorization what the first epoch of its process
        took beyond those after it.
      train_seconds, evaluate_seconds, run_seconds: inside training, inside evaluations, and in all, without compiling.
      trial_steps: steps taken, summed over trials. This and the seconds are of the run so far, and of all its trials,
        also where the record is of a part.
      steps_per_epoch: that see as many examples as there are; None of a stream without end.
      lanes, lane_strategy: as they were; None where there are no lanes.
    """

    ended: dict[int, Ended]
    trial: np.ndarray
    step: np.ndarray
    metrics: dict[str, np.ndarray]
    compile_seconds: float
    train_seconds: float
    evaluate_seconds: float
    run_seconds: float
    trial_steps: int
    steps_per_epoch: float | None
    lanes: int | None = None
    lane_strategy: str | None = None
