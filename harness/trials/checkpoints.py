"""Checkpoints of running trials, written atomically and restored only if their key matches.

Each trial has one file, in the folder of its study or in a given folder. The file contains a line of JSON (key, step,
rows, shapes and dtypes of the arrays), the bytes of the arrays, and the sha256 of both. Arrays of all dtypes are
restored exactly. All other state of a search is reconstructed from stored trials and these rows.
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
      arrays: all arrays required to resume training, or only the pieces that one process holds.
      places: index of the array, and index of the first element in it, for each piece.
    """

    step: int
    rows: list[Row]
    arrays: list[np.ndarray]
    places: list[tuple[int, list[int]]] | None = None


class Checkpoints:
    """The checkpoints of a study's trials.

    Args:
      folder: a local path or the URL of a folder in a bucket. It is created when the first checkpoint is saved.
      seconds: minimum time between saves.
    """

    def __init__(self, folder: Folder, seconds: float = 60.0):
        self.folder = folder
        self._seconds = self._interval = seconds
        self._last = time.perf_counter()
        self._fails = False

    def due(self) -> bool:
        """Returns whether the next save is due."""
        return time.perf_counter() - self._last >= self._interval

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Returns a context for saving. The longer a save takes, the longer the wait until the next save.

        If the disk or network fails, training continues, and earlier checkpoints are kept. A one-line warning is
        printed, and printed again only after a save has worked.
        """
        began = time.perf_counter()
        try:
            yield
            self._fails = False
        except OSError as error:
            if not self._fails:
                say(f"running trials are not saved: {error}")
            self._fails = True
        self._last = time.perf_counter()
        self._interval = max(self._seconds, (self._last - began) / SHARE if self._seconds else 0.0)

    def save(self, trial: int, key: str, checkpoint: Checkpoint, part: Part = WHOLE) -> None:
        """Saves a checkpoint, replacing the previous one.

        Args:
          trial: id of the trial.
          key: hash of everything that determines the trial's numbers.
          checkpoint: the state to save.
          part: (index, count) if each of ``count`` processes saves the arrays on its own devices.
        """
        if part == WHOLE and checkpoint.places is None and not multihost.leads():
            return
        durable.make_folder(self.folder)
        about = [[list(array.shape), str(array.dtype)] for array in checkpoint.arrays]
        line = {"format": FORMAT, "key": key, "step": checkpoint.step, "rows": checkpoint.rows, "arrays": about}
        step = None
        if checkpoint.places is not None:
            line["places"] = checkpoint.places
            step = checkpoint.step
        pieces = [json.dumps(line).encode() + b"\n", *map(_bytes, checkpoint.arrays)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        path = self.folder / parts.checkpoint_file(trial, *part, step)
        durable.replace(path, *pieces, digest.digest(), check=multihost.check_pulse)

    def remove_older(self, steps: Mapping[int, int]) -> None:
        """Removes checkpoints of trials, except checkpoints that were saved in parts at the given steps."""
        if multihost.leads():
            for trial, name in list_study(self.folder).checkpoints:
                if trial in steps and not name.startswith(f"{parts.checkpoint_file(trial)}-{steps[trial]}-"):
                    (self.folder / name).unlink(missing_ok=True)

    def load(self, trial: int, key: str, part: Part = WHOLE) -> Checkpoint | None:
        """Returns the checkpoint of a trial, or None if it is missing, damaged, or has another key."""
        if part != WHOLE:
            return self._load(trial, key, part)
        return multihost.broadcast(self._load(trial, key, part) if multihost.leads() else None)

    def load_newest(self, trial: int, key: str, shapes: Sequence[Any]) -> Checkpoint | None:
        """Returns the newest checkpoint of a trial, with whole arrays even if it was saved in parts.

        Every process must call this, and reads the parts of all processes.

        Args:
          trial: id of the trial.
          key: as in ``save``.
          shapes: shape and dtype of each whole array.
        """
        found = self.load(trial, key)
        names = [name for _, name in list_study(self.folder).checkpoints] if multihost.leads() else []
        for step, count in multihost.broadcast(parts.complete_checkpoints(trial, names)):
            if found is not None and found.step >= step:
                break
            pieces = [self._load(trial, key, (i, count), step) for i in range(count)]
            joined = _joined([piece for piece in pieces if piece is not None], shapes)
            is_missing = len(pieces) != count or None in pieces or joined is None
            if not any(multihost.longest(float(is_missing))):
                return joined
        return found

    def _load(self, trial: int, key: str, part: Part, step: int | None = None) -> Checkpoint | None:
        try:
            path = self.folder / parts.checkpoint_file(trial, *part, step)
            durable.check_file(path)
            with path.open("rb") as file:
                _about(file.readline(durable.RECORD_BYTES), key)  # checked before reading further
            return _read(durable.read(path), key)
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            return None  # the content is untrusted

    def remove(self, trials: Iterable[int]) -> None:
        """Removes all processes' checkpoints of trials whose rows are now stored."""
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
      further: additional JSON-compatible data to hash.
    """
    device = jax.devices()[0]
    where = [jax.__version__, device.platform, device.device_kind]
    about = [plan, trial.id, trial.seed, dict(trial.metaparameters), *where, *further]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _about(line: bytes, key: str) -> Any:
    """Parses the first line of a checkpoint. Raises an exception of any type if the key differs."""
    about = json.loads(line)
    if (about["format"], about["key"]) != (FORMAT, key):
        raise ValueError("of another trial")
    return about


def _read(data: bytes, key: str) -> Checkpoint:
    """Parses a checkpoint file. Raises an exception of any type if the file is invalid or its key differs."""
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
    places = about.get("places")
    if places is not None and [len(start) for _, start in places] != [array.ndim for array in arrays]:
        raise ValueError("with places of other arrays")
    return Checkpoint(about["step"], about["rows"], arrays, places)


def _joined(pieces: Sequence[Checkpoint], shapes: Sequence[Any]) -> Checkpoint | None:
    """Returns a checkpoint with whole arrays, if the pieces fill them exactly. Pieces are untrusted."""
    whole = [np.empty(shape.shape, shape.dtype) for shape in shapes]
    filled = [0 for _ in whole]
    for piece in pieces:
        for array, (number, start) in zip(piece.arrays, piece.places or (), strict=True):
            if not 0 <= number < len(whole):
                return None
            shape = whole[number].shape
            ends = [at + size for at, size in zip(start, array.shape, strict=True)]
            if array.ndim != len(shape) or array.dtype != whole[number].dtype:
                return None
            if any(at < 0 or end > size for at, end, size in zip(start, ends, shape, strict=True)):
                return None
            whole[number][tuple(map(slice, start, ends))] = array
            filled[number] += array.size
    if not pieces or filled != [array.size for array in whole]:
        return None
    return Checkpoint(pieces[0].step, pieces[0].rows, whole)


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


class _Piece(NamedTuple):
    """A part of an array of all lanes, held by this process: its lanes, its values and its place in the array."""

    lanes: range
    array: np.ndarray
    place: tuple[int, list[int]]


def _own_pieces(leaves: Sequence[jax.Array]) -> Iterator[_Piece]:
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
            found = self._checkpoints.load_newest(trial.id, self._key(trial), self._programs.lane_shapes)
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
        steps = {live.trial.id: live.step for live in live_trials}
        if not (multihost.are_many() and self._programs.division.layout):
            leaves = jax.tree.leaves(multihost.on_host(carry)) if live_trials else []
            for live in live_trials:
                checkpoint = Checkpoint(live.step, rows[live.trial.id], [leaf[live.lane] for leaf in leaves])
                self._checkpoints.save(live.trial.id, self._key(live.trial), checkpoint)
            self._saved |= steps
            self.has_saved |= bool(steps)
            return
        failure: OSError | None = None
        try:
            pieces = list(_own_pieces(jax.tree.leaves(carry)))
            for live in live_trials:
                kept = [piece for piece in pieces if live.lane in piece.lanes]
                arrays = [piece.array[live.lane - piece.lanes.start] for piece in kept]
                checkpoint = Checkpoint(live.step, rows[live.trial.id], arrays, [piece.place for piece in kept])
                self._checkpoints.save(live.trial.id, self._key(live.trial), checkpoint, multihost.place())
        except OSError as error:
            failure = error
        if not any(multihost.longest(float(failure is not None))):  # all hosts have saved
            self._saved |= steps
            self.has_saved |= bool(steps)
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
