"""Checkpoints of running trials, written atomically and restored only if their key matches.

Each trial has one file, in the folder of its study or a given folder. The file contains a line of JSON (key, step,
rows, shapes and dtypes of the arrays), the bytes of the arrays, and the sha256 of both. Arrays of every dtype are
restored bit by bit. The remaining state of a search is reconstructed from stored trials and these rows.
"""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from harness.processes import multihost
from harness.step.programs import Programs
from harness.trials.scheduler import Live, Saved, TrialScheduler
from results import durable
from results.aliases import Fields
from results.durable import Folder
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial
from results.printing import say
from results.storage import parts
from results.storage.commits import list_study

Row = dict[str, float]  # measurements by name
FORMAT = 2
DIGEST_BYTES = 32
Part = tuple[int, int]  # index and count
WHOLE = (0, 1)  # saved by the leader
SHARE = 0.01  # approximate share of a run's time that saving may take


class Checkpoint(NamedTuple):
    """The state of a trial.

    Attributes:
      step: number of steps taken so far (epochs for a factorization).
      rows: measurements so far, as JSON-compatible data.
      arrays: all arrays required to resume training.
    """

    step: int
    rows: list[Row]
    arrays: list[np.ndarray]


class Checkpoints:
    """The checkpoints of a study's trials.

    Args:
      folder: a local path or an fsspec URL. It is created when the first checkpoint is saved.
      seconds: minimum time between saves.
    """

    def __init__(self, folder: Folder, seconds: float = 60.0):
        self.folder = folder
        self._seconds = self._interval = seconds
        self._last = time.perf_counter()

    def due(self) -> bool:
        """Returns whether the next save is due."""
        return time.perf_counter() - self._last >= self._interval

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Returns a context for saving. The longer a save takes, the longer the wait until the next one.

        If the disk or network fails, a one-line warning is printed and training continues. Earlier checkpoints are
        kept.
        """
        began = time.perf_counter()
        try:
            yield
        except OSError as error:
            say(f"running trials are not saved: {error}")
        self._last = time.perf_counter()
        self._interval = max(self._seconds, (self._last - began) / SHARE if self._seconds else 0.0)

    def save(self, trial: int, key: str, checkpoint: Checkpoint, part: Part = WHOLE) -> None:
        """Saves a checkpoint, replacing the previous one.

        Args:
          trial: id of the trial.
          key: hash of everything that determines the trial's numbers.
          checkpoint: the state to save.
          part: (index, count), used if each of ``count`` processes saves the arrays on its own devices.
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

    def load(self, trial: int, key: str, part: Part = WHOLE) -> Checkpoint | None:
        """The checkpoint of a trial, or None if it is missing, damaged, or has another key."""
        if part != WHOLE:
            return self._load(trial, key, part)
        return multihost.broadcast(self._load(trial, key, part) if multihost.leads() else None)

    def _load(self, trial: int, key: str, part: Part) -> Checkpoint | None:
        try:
            path = self.folder / parts.checkpoint_file(trial, *part)
            durable.check_file(path)
            with path.open("rb") as file:
                _about(file.readline(durable.RECORD_BYTES), key)  # checked before reading further
            return _read(durable.read(path), key)
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            return None  # the content is untrusted

    def remove(self, trials: Iterable[int]) -> None:
        """Removes the checkpoints of all processes for trials whose rows are now stored."""
        ended = set(trials)
        if not ended or not multihost.leads():
            return
        for trial, file in list_study(self.folder).checkpoints:
            if trial in ended:
                with contextlib.suppress(OSError):  # a leftover file only takes up space
                    (self.folder / file).unlink(missing_ok=True)


def key_of(plan: Fields, trial: Any, *further: Any) -> str:
    """Returns the key of a checkpoint: the sha256 of everything that determines the trial's results.

    The key excludes lanes and the mesh, because a trial may resume in a different lane and with a different batch
    partition.

    Args:
      plan: fields that identify the study.
      trial: a ``Trial``.
      further: additional JSON-compatible data.
    """
    device = jax.devices()[0]
    where = [jax.__version__, device.platform, device.device_kind]
    about = [plan, trial.id, trial.seed, dict(trial.metaparameters), *where, *further]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _about(line: bytes, key: str) -> Any:
    """Parses the first line of a checkpoint. Raises an exception of any type if its key differs."""
    about = json.loads(line)
    if (about["format"], about["key"]) != (FORMAT, key):
        raise ValueError("of another trial")
    return about


def _read(data: bytes, key: str) -> Checkpoint:
    """Parses a checkpoint file. Raises an exception of any type if it is invalid or its key differs."""
    payload = memoryview(data)[:-DIGEST_BYTES]
    if hashlib.sha256(payload).digest() != data[-DIGEST_BYTES:]:
        raise ValueError("damaged")
    start = data.index(b"\n") + 1
    about = _about(data[:start], key)
    arrays = []
    for shape, dtype in about["arrays"]:
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("without a shape")
        kind = jnp.dtype(dtype)  # unlike NumPy, JAX has bfloat16
        count = math.prod(shape)
        arrays.append(np.frombuffer(payload, kind, count, start).reshape(shape))
        start += count * kind.itemsize
    if type(about["step"]) is not int or about["step"] < 1 or not all(map(_is_row, about["rows"])):
        raise ValueError("without a step, or with invalid rows")
    return Checkpoint(about["step"], about["rows"], arrays)


def _is_row(row: Any) -> bool:
    """Returns whether a value is a dict of numbers that fit in 64 bits."""
    return isinstance(row, dict) and all(
        type(value) is float or (type(value) is int and abs(value) < 2**63) for value in row.values()
    )


def _bytes(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def same_shapes(arrays: Sequence[np.ndarray], others: Iterable[Any]) -> bool:
    """Returns whether saved arrays match the shapes and dtypes of other arrays or shape structs."""
    return [(array.shape, array.dtype) for array in arrays] == [(tuple(a.shape), a.dtype) for a in others]


class Saver:
    """Saves and restores the trials in lanes. Each checkpoint holds a trial's rows and its carry.

    Args:
      study, programs, scheduler: the study that runs, its programs and its scheduler.
      rows: measurements of the run as (trial, step, float32[metrics]). ``resume`` adds the rows of resumed trials.
      checkpoints: the study's checkpoints. With None, trials are not saved.
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
        self._waiting: dict[int, Checkpoint] = {}  # resumed trials that are not yet assigned to a lane
        self._saved: dict[int, int] = {}  # step of the latest checkpoint by trial

    def resume(self, trials: Sequence[Trial]) -> None:
        """Resumes each of the given trials that has a checkpoint. Call it before they run."""
        if self._checkpoints is None:
            return
        names = self._programs.metrics
        saved = {}
        for trial in trials:
            found = self._checkpoints.load(trial.id, self._key(trial))
            if found is not None and self._could_be(found):
                self._waiting[trial.id], self._saved[trial.id] = found, found.step
                evaluations = []
                for row in found.rows:
                    values = np.array([row[name] for name in names], np.float32)
                    self._rows.append((trial.id, int(row["step"]), values))
                    evaluations.append(dict(zip(names, values, strict=True)))
                saved[trial.id] = Saved(found.step, evaluations)
        self._scheduler.resume(trials, saved)

    def restored(self, carry: Any, live_trials: Sequence[Live]) -> Any:
        """Returns the carry after copying the arrays of resumed trials into their lanes."""
        resumed = [live for live in live_trials if live.trial.id in self._waiting]
        lanes = {live.lane: self._waiting.pop(live.trial.id).arrays for live in resumed}
        return self._programs.put(carry, lanes) if lanes else carry

    def due(self) -> bool:
        return self._checkpoints is not None and self._checkpoints.due()

    def save(self, carry: Any) -> bool:
        """Saves the trials in lanes. Returns False if there is no checkpoint to resume from."""
        if self._checkpoints is None:
            return False
        with self._checkpoints.saving():
            live_trials = [live for live in self._scheduler.live if live.step > self._saved.get(live.trial.id, 0)]
            rows: dict[int, list[Row]] = {live.trial.id: [] for live in live_trials}
            for trial, step, measured in self._rows:
                if trial in rows:
                    metrics = zip(self._programs.metrics, map(float, measured), strict=True)
                    rows[trial].append({"step": step, **dict(metrics)})
            leaves = jax.tree.leaves(multihost.on_host(carry)) if live_trials else []
            for live in live_trials:
                checkpoint = Checkpoint(live.step, rows[live.trial.id], [leaf[live.lane] for leaf in leaves])
                self._checkpoints.save(live.trial.id, self._key(live.trial), checkpoint)
                self._saved[live.trial.id] = live.step
        return bool(self._saved)

    def remove(self, finished: Collection[int]) -> None:
        """Removes the checkpoints of stored trials, except trials that ran out of time and may be resumed later."""
        if self._checkpoints is not None:
            ended = {i for i in finished if self._scheduler.outcomes[i].reason != "time_limit"} & self._saved.keys()
            self._checkpoints.remove(ended)
            for i in ended:
                del self._saved[i]

    def _could_be(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint, which is untrusted, has the expected arrays and rows."""
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
