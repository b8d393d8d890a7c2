"""Checkpoints of trials that are under way: written atomically, restored only if their key matches; and their saver.

One file per trial, beside the parts of its study or in a folder that is told: a line of JSON (key, step, rows, shapes
and dtypes of the arrays), the arrays' bytes, and the sha256 of all that. Arrays are kept bitwise identical, whatever
their dtype. What a search knows beyond that follows from stored trials and these rows.
"""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from harness import multihost
from harness.programs import Programs
from harness.scheduler import Live, Saved, TrialScheduler
from results import durable
from results.cli import say
from results.durable import Folder
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial
from results.storage import parts
from results.storage.commits import list_study

FORMAT = 2
DIGEST_BYTES = 32
WHOLE = (0, 1)  # saved by the process that leads
SHARE = 0.01  # of the time of a run that saving may take, about


class Checkpoint(NamedTuple):
    """The state of a trial.

    Attributes:
      step: that it has come to; of a factorization, an epoch.
      rows: what was measured so far, as plain JSON data.
      arrays: all that the next step needs.
    """

    step: int
    rows: list[dict[str, float]]
    arrays: list[np.ndarray]


class Checkpoints:
    """The checkpoints of a study's trials.

    Args:
      folder: that they are in, local or of an fsspec file system; made once there is something to save.
      seconds: between one time that they are saved and the next, at least.
    """

    def __init__(self, folder: Folder, seconds: float = 60.0):
        self.folder = folder
        self._seconds = self._interval = seconds
        self._last = time.perf_counter()

    def due(self) -> bool:
        """Whether it is time to save."""
        return time.perf_counter() - self._last >= self._interval

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Around a time of saving; the longer it takes the longer it is to the next.

        If a disk or a network gives out, one line says so and training goes on: what was saved before still is.
        """
        began = time.perf_counter()
        try:
            yield
        except OSError as error:
            say(f"trials under way are not saved: {error}")
        self._last = time.perf_counter()
        self._interval = max(self._seconds, (self._last - began) / SHARE if self._seconds else 0.0)

    def save(self, trial: int, key: str, checkpoint: Checkpoint, part: tuple[int, int] = WHOLE) -> None:
        """Saves a checkpoint, replacing the previous one.

        Args:
          trial: its id.
          key: hash of everything that decides the trial's numbers.
          checkpoint: to be kept.
          part: of so many processes, each of which saves what its own devices hold, which this is: (index, count).
        """
        if part == WHOLE and not multihost.leads():
            return
        durable.make_folder(self.folder)
        about = [[list(array.shape), str(array.dtype)] for array in checkpoint.arrays]
        line = {"format": FORMAT, "key": key, "step": checkpoint.step, "rows": checkpoint.rows, "arrays": about}
        pieces = [json.dumps(line).encode() + b"\n", *map(_bytes, checkpoint.arrays)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        path = self.folder / parts.checkpoint_file(trial, *part)
        durable.replace(path, *pieces, digest.digest(), check=multihost.check_pulse)

    def load(self, trial: int, key: str, part: tuple[int, int] = WHOLE) -> Checkpoint | None:
        """The checkpoint of a trial; None if there is none, it is damaged, or of another key."""
        if part != WHOLE:
            return self._load(trial, key, part)
        return multihost.broadcast(self._load(trial, key, part) if multihost.leads() else None)

    def _load(self, trial: int, key: str, part: tuple[int, int]) -> Checkpoint | None:
        try:
            path = self.folder / parts.checkpoint_file(trial, *part)
            durable.check_file(path)
            with path.open("rb") as file:
                _about(file.readline(durable.RECORD_BYTES), key)  # before all of it is read
            return _read(durable.read(path), key)
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            return None  # the content is untrusted

    def remove(self, trials: Iterable[int]) -> None:
        """Removes the checkpoints of trials, whose rows are stored now, of all processes."""
        ended = set(trials)
        for trial, file in list_study(self.folder).checkpoints if ended and multihost.leads() else ():
            if trial in ended:
                with contextlib.suppress(OSError):  # it only takes room
                    (self.folder / file).unlink(missing_ok=True)


def key_of(plan: Mapping[str, Any], trial: Any, *further: Any) -> str:
    """A key: the sha256 of a plan, a trial, and whatever else decides its numbers.

    Not in it are lanes and the mesh, as a trial may go on in another lane, and with another division of its batches.

    Args:
      plan: the identity of the study.
      trial: a ``Trial``.
      further: plain JSON data.
    """
    device = jax.devices()[0]
    where = [jax.__version__, device.platform, device.device_kind]
    about = [plan, trial.id, trial.seed, dict(trial.metaparameters), *where, *further]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _about(line: bytes, key: str) -> Any:
    """The first line of a checkpoint; raises an exception of any type if it is not of this key."""
    about = json.loads(line)
    if (about["format"], about["key"]) != (FORMAT, key):
        raise ValueError("of another trial")
    return about


def _read(data: bytes, key: str) -> Checkpoint:
    """The checkpoint in a file; raises an exception of any type if it is not one with this key."""
    payload = memoryview(data)[:-DIGEST_BYTES]
    if hashlib.sha256(payload).digest() != data[-DIGEST_BYTES:]:
        raise ValueError("damaged")
    start = data.index(b"\n") + 1
    about = _about(data[:start], key)
    arrays = []
    for shape, dtype in about["arrays"]:
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("without a shape")
        kind = jnp.dtype(dtype)  # which knows bfloat16
        count = math.prod(shape)
        arrays.append(np.frombuffer(payload, kind, count, start).reshape(shape))
        start += count * kind.itemsize
    if type(about["step"]) is not int or about["step"] < 1 or not all(map(_is_row, about["rows"])):
        raise ValueError("without a step, or with rows that are none")
    return Checkpoint(about["step"], about["rows"], arrays)


def _is_row(row: Any) -> bool:
    """Whether a value maps names to numbers that fit in 64 bits."""
    return isinstance(row, dict) and all(
        type(value) is float or (type(value) is int and abs(value) < 2**63) for value in row.values()
    )


def _bytes(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def same_shapes(arrays: Sequence[np.ndarray], others: Iterable[Any]) -> bool:
    """Whether saved arrays have the shapes and dtypes of others, which may be shapes alone."""
    return [(array.shape, array.dtype) for array in arrays] == [(tuple(a.shape), a.dtype) for a in others]


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
        with self._checkpoints.saving():
            self._save(self._checkpoints, carry, changed)
        return bool(self._saved)

    def _save(self, checkpoints: Checkpoints, carry: Any, live_trials: Sequence[Live]) -> None:
        rows: dict[int, list[dict[str, float]]] = {live.trial.id: [] for live in live_trials}
        for trial, step, measured in self._rows:
            if trial in rows:
                metrics = zip(self._programs.metrics, map(float, measured), strict=True)
                rows[trial].append({"step": step, **dict(metrics)})
        leaves = jax.tree.leaves(multihost.on_host(carry)) if live_trials else []
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
