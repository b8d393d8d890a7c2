"""RunProgress: how far a run of a study has come, as its process reports it after each evaluation."""

from collections.abc import Mapping
from typing import NamedTuple

STARTING, COMPILING, TRAINING = "starting", "compiling", "training"
_NONE: Mapping[int, int] = {}


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
