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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from harness.processes import multihost
from results import durable
from results.aliases import Fields
from results.durable import Folder
from results.printing import say
from results.storage import parts
from results.store import list_study

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
        newest = self.load(trial, key)
        names = [name for _, name in list_study(self.folder).checkpoints] if multihost.leads() else []
        for step, count in multihost.broadcast(parts.complete_checkpoints(trial, names)):
            if newest is not None and newest.step >= step:
                break
            pieces = [self._load(trial, key, (i, count), step) for i in range(count)]
            joined = _joined([piece for piece in pieces if piece is not None], shapes)
            is_missing = len(pieces) != count or None in pieces or joined is None
            if not any(multihost.longest(float(is_missing))):
                return joined
        return newest

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
    joined = [np.empty(shape.shape, shape.dtype) for shape in shapes]
    filled = [0 for _ in joined]
    for piece in pieces:
        for array, (number, start) in zip(piece.arrays, piece.places or (), strict=True):
            if not 0 <= number < len(joined):
                return None
            shape = joined[number].shape
            ends = [low + size for low, size in zip(start, array.shape, strict=True)]
            if array.ndim != len(shape) or array.dtype != joined[number].dtype:
                return None
            if any(low < 0 or end > size for low, end, size in zip(start, ends, shape, strict=True)):
                return None
            joined[number][tuple(map(slice, start, ends))] = array
            filled[number] += array.size
    if not pieces or filled != [array.size for array in joined]:
        return None
    return Checkpoint(pieces[0].step, pieces[0].rows, joined)


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
