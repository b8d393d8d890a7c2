"""Saves and restores the trials that are in the lanes of a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from harness.processes import multihost
from harness.step.programs import Programs
from harness.trials.checkpoints import WHOLE, Checkpoint, Checkpoints, Row, key_of, same_shapes
from harness.trials.scheduler import Live, Saved, TrialScheduler
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial


class _Piece(NamedTuple):
    """A part of an array of all lanes: its lanes, its values, and its place (the array's index, and the offsets)."""

    lanes: range
    array: np.ndarray
    place: tuple[int, list[int]]


def _pieces(leaves: Sequence[jax.Array]) -> Iterator[_Piece]:
    """Yields the parts of arrays on devices of this process. A part with several copies is yielded once."""
    for number, leaf in enumerate(leaves):
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                lanes, *index = shard.index
                place = number, [part.start or 0 for part in index]
                yield _Piece(range(*lanes.indices(leaf.shape[0])), np.asarray(shard.data), place)


class Saver:
    """Saves and restores the trials that are in lanes. Each checkpoint holds the rows and the carry of a trial.

    Args:
      study, programs, scheduler: the running study, its programs and its scheduler.
      rows: measurements of the run as (trial, step, float32[metrics]). ``resume`` appends the rows of resumed trials.
      checkpoints: the study's checkpoints. With None, trials are not saved.

    Attributes:
      has_saved: whether this run has saved a trial. In a multi-host run, only the leader's value is reliable.
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
        self.has_saved = False
        self._waiting: dict[int, Checkpoint] = {}  # resumed trials that are not yet assigned to a lane
        self._saved: dict[int, int] = {}  # step of the latest checkpoint by trial

    def resume(self, trials: Sequence[Trial]) -> None:
        """Resumes each of the given trials that has a checkpoint. Call it before they run."""
        if self._checkpoints is None:
            return
        names = self._programs.metrics
        saved = {}
        for trial in trials:
            checkpoint = self._checkpoints.load_newest(trial.id, self._key(trial), self._programs.lane_shapes)
            if checkpoint is not None and self._could_be(checkpoint):
                self._waiting[trial.id], self._saved[trial.id] = checkpoint, checkpoint.step
                evaluations = []
                for row in checkpoint.rows:
                    values = np.array([row[name] for name in names], np.float32)
                    self._rows.append((trial.id, int(row["step"]), values))
                    evaluations.append(dict(zip(names, values, strict=True)))
                saved[trial.id] = Saved(checkpoint.step, evaluations)
        self._scheduler.resume(trials, saved)

    def restored(self, carry: Any, live_trials: Sequence[Live]) -> Any:
        """Returns the carry after copying the arrays of resumed trials into their lanes."""
        resumed = [live for live in live_trials if live.trial.id in self._waiting]
        lanes = {live.lane: self._waiting.pop(live.trial.id).arrays for live in resumed}
        return self._programs.put(carry, lanes) if lanes else carry

    def due(self) -> bool:
        return self._checkpoints is not None and self._checkpoints.due()

    def save(self, carry: Any) -> bool:
        """Saves the trials that are in lanes. Returns False if there is no checkpoint to resume from."""
        if self._checkpoints is None:
            return False
        with self._checkpoints.saving():
            live_trials = [live for live in self._scheduler.live if live.step > self._saved.get(live.trial.id, 0)]
            rows: dict[int, list[Row]] = {live.trial.id: [] for live in live_trials}
            for trial, step, measured in self._rows:
                if trial in rows:
                    metrics = zip(self._programs.metrics, map(float, measured), strict=True)
                    rows[trial].append({"step": step, **dict(metrics)})
            self._save_all(carry, live_trials, rows)
        return bool(self._saved)

    def _save_all(self, carry: Any, live_trials: Sequence[Live], rows: Mapping[int, list[Row]]) -> None:
        """Saves trials. If their state is split across hosts, each host saves its own parts."""
        assert self._checkpoints is not None
        in_parts = multihost.are_many() and bool(self._programs.division.layout)
        steps = {live.trial.id: live.step for live in live_trials}
        failure: OSError | None = None
        try:
            if in_parts:
                pieces = list(_pieces(jax.tree.leaves(carry)))
            else:
                leaves = jax.tree.leaves(multihost.on_host(carry)) if live_trials else []
                pieces = [_Piece(range(len(leaf)), leaf, (0, [])) for leaf in leaves]
            for live in live_trials:
                held = [piece for piece in pieces if live.lane in piece.lanes]
                arrays = [piece.array[live.lane - piece.lanes.start] for piece in held]
                places = [piece.place for piece in held] if in_parts else None
                checkpoint = Checkpoint(live.step, rows[live.trial.id], arrays, places)
                part = multihost.place() if in_parts else WHOLE
                self._checkpoints.save(live.trial.id, self._key(live.trial), checkpoint, part)
        except OSError as error:
            failure = error
        has_failed = failure is not None
        if in_parts:
            has_failed = any(multihost.longest(float(has_failed)))  # on any host
        if not has_failed:
            self._saved |= steps
            self.has_saved |= bool(steps)
            if in_parts:
                self._checkpoints.remove_older(steps)
        if failure is not None:
            raise failure

    def remove(self, finished: Collection[int]) -> None:
        """Removes the checkpoints of stored trials, unless they ran out of time and may be resumed later."""
        if self._checkpoints is not None:
            ended = {i for i in finished if self._scheduler.outcomes[i].reason != "time_limit"} & self._saved.keys()
            self._checkpoints.remove(ended)
            for i in ended:
                del self._saved[i]

    def _could_be(self, checkpoint: Checkpoint) -> bool:
        """Returns whether a checkpoint has the expected arrays and rows. Checkpoints are untrusted."""
        grid = self._scheduler.grid
        count = len(checkpoint.rows)
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
