"""The saver of a run of networks: its trials to checkpoints and back."""

from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np

from harness import hosts
from harness.checkpoints import Checkpoint, Checkpoints, key_of, same_shapes
from harness.programs import Programs
from harness.scheduler import Live, Saved, TrialScheduler
from results.command_line import say
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial


class Saver:
    """The trials in lanes as checkpoints, each with its rows and its carry.

    Args:
      study, programs, scheduler: of the run.
      rows: its measurements so far, (trial, step, float32[metrics]); those of trials that go on are added.
      checkpoints: of the study; None: nothing is saved.
    """

    def __init__(
        self,
        study: BatchStudy,
        programs: Programs,
        scheduler: TrialScheduler,
        rows: list[tuple[int, int, np.ndarray]],
        checkpoints: Checkpoints | None,
    ):
        self._study, self._programs, self._scheduler, self._rows = study, programs, scheduler, rows
        self._checkpoints = checkpoints
        self._waiting: dict[int, Checkpoint] = {}  # of trials that were saved, and whose carries are in no lane yet
        self._saved: dict[int, int] = {}  # the step of each checkpoint that is there

    def resume(self, trials: Sequence[Trial]) -> None:
        """Has trials that are about to be run go on where they were saved."""
        for trial in trials if self._checkpoints else ():
            assert self._checkpoints is not None
            found = self._checkpoints.load(trial.id, self._key(trial))
            if found is not None and self._could_be(found):
                self._waiting[trial.id], self._saved[trial.id] = found, found.step
                rows = [np.array([row[m] for m in self._programs.metrics], np.float32) for row in found.rows]
                steps = [int(row["step"]) for row in found.rows]
                self._rows += [(trial.id, step, row) for step, row in zip(steps, rows, strict=True)]
        self._scheduler.resume(
            trials,
            {
                i: Saved(one.step, [{m: np.float32(row[m]) for m in self._programs.metrics} for row in one.rows])
                for i, one in self._waiting.items()
            },
        )

    def restored(self, carry: Any, live_trials: Sequence[Live]) -> Any:
        """The carry with those of trials that go on in their lanes."""
        lanes = {
            live.lane: self._waiting.pop(i).arrays for live in live_trials if (i := live.trial.id) in self._waiting
        }
        return self._programs.put(carry, lanes) if lanes else carry

    def due(self) -> bool:
        return self._checkpoints is not None and self._checkpoints.due()

    def save(self, carry: Any) -> bool:
        """Saves the trials in lanes; False if there is nothing to go on with."""
        if self._checkpoints is None:
            return False
        changed = [live for live in self._scheduler.live if live.step > self._saved.get(live.trial.id, 0)]
        try:
            with self._checkpoints.saving():
                self._save(self._checkpoints, carry, changed)
        except OSError as error:  # a disk or a network that gave out; what was saved before still is
            say(f"trials under way are not saved: {error}")
        return bool(self._saved)

    def _save(self, checkpoints: Checkpoints, carry: Any, live_trials: Sequence[Live]) -> None:
        rows: dict[int, list[dict[str, float]]] = {live.trial.id: [] for live in live_trials}
        for trial, step, measured in self._rows:
            if trial in rows:
                metrics = zip(self._programs.metrics, map(float, measured), strict=True)
                rows[trial].append({"step": step, **dict(metrics)})
        leaves = jax.tree.leaves(hosts.on_host(carry)) if live_trials else []
        for live in live_trials:
            checkpoint = Checkpoint(live.step, rows[live.trial.id], [leaf[live.lane] for leaf in leaves])
            checkpoints.save(live.trial.id, self._key(live.trial), checkpoint)
            self._saved[live.trial.id] = live.step

    def remove(self, finished: Collection[int]) -> None:
        """Removes the checkpoints of trials that are stored; one that ran out of time may go on some day."""
        if self._checkpoints is not None:
            ended = {i for i in finished if self._scheduler.outcomes[i].reason != "time_limit"} & self._saved.keys()
            self._checkpoints.remove(ended)
            for i in ended:
                del self._saved[i]

    def _could_be(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint, which is untrusted, has the arrays and the rows it must."""
        grid, count = self._scheduler.grid, len(checkpoint.rows)
        names = {"step", *self._programs.metrics}
        return (
            same_shapes(checkpoint.arrays, self._programs.lane_shapes)
            and all(row.keys() == names for row in checkpoint.rows)
            and count < len(grid)
            and [row["step"] for row in checkpoint.rows] == grid[:count].tolist()
            and (count == 0 or grid[count - 1] <= checkpoint.step)
            and checkpoint.step < grid[count]
        )

    def _key(self, trial: Trial) -> str:
        return key_of(self._study.plan(), trial, self._programs.metrics)
