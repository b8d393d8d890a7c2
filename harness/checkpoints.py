"""Checkpoints of factorizations on disk: written atomically, and restored only if their key matches.

One file per trial: a line of JSON (key, epochs, rows, shapes and dtypes of the arrays), the arrays' bytes, and the
sha256 of all that. Arrays are kept bitwise identical, whatever their dtype.
"""

import contextlib
import hashlib
import json
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from results import durable
from workloads import caches

FORMAT = 1
FORGOTTEN_SECONDS = 30 * 24 * 3600  # no sweep is resumed after so long
DIGEST_BYTES = 32


class Checkpoint(NamedTuple):
    """The state of a trial after some epochs.

    Attributes:
      epochs: that are done.
      rows: what each of them took and what was measured after it, as plain JSON data.
      arrays: all that the next epoch needs.
    """

    epochs: int
    rows: list[dict[str, float]]
    arrays: list[np.ndarray]


class Checkpoints:
    """The checkpoints of a study's trials, each a file in a folder of the cache.

    Args:
      store: folder of the store that results go to.
      study: name of the study.
    """

    def __init__(self, store: Path, study: str):
        place = hashlib.sha256(f"{store.resolve()}/{study}".encode()).hexdigest()[:16]
        self.folder = caches.folder("checkpoints") / f"{study}-{place}"

    def save(self, trial: int, key: str, checkpoint: Checkpoint) -> None:
        """Saves a checkpoint, replacing the previous one.

        Args:
          trial: its id.
          key: hash of everything that decides the trial's numbers.
          checkpoint: to be kept.
        """
        _forget(self.folder.parent)
        durable.make_folder(self.folder)
        about = [[list(array.shape), str(array.dtype)] for array in checkpoint.arrays]
        line = {"format": FORMAT, "key": key, "epochs": checkpoint.epochs, "rows": checkpoint.rows, "arrays": about}
        pieces = [json.dumps(line).encode() + b"\n", *map(_bytes, checkpoint.arrays)]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        durable.replace(self._path(trial), *pieces, digest.digest())

    def load(self, trial: int, key: str) -> Checkpoint | None:
        """The checkpoint of a trial; None if there is none, it is damaged, or of another key."""
        try:
            return _read(durable.read(self._path(trial)), key)
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            return None  # the content is untrusted

    def remove(self, trial: int) -> None:
        """Removes the checkpoint of a trial, whose rows are stored now."""
        self._path(trial).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are still there, or it never was
            self.folder.rmdir()

    def _path(self, trial: int) -> Path:
        return self.folder / f"trial-{trial:06d}"


def _read(data: bytes, key: str) -> Checkpoint:
    """The checkpoint in a file; raises an exception of any type if it is not one with this key."""
    payload = memoryview(data)[:-DIGEST_BYTES]
    if hashlib.sha256(payload).digest() != data[-DIGEST_BYTES:]:
        raise ValueError("damaged")
    start = data.index(b"\n") + 1
    about = json.loads(data[:start])
    if (about["format"], about["key"]) != (FORMAT, key):
        raise ValueError("of another trial")
    arrays = []
    for shape, dtype in about["arrays"]:
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("without a shape")
        kind = jnp.dtype(dtype)  # which knows bfloat16
        count = math.prod(shape)
        arrays.append(np.frombuffer(payload, kind, count, start).reshape(shape))
        start += count * kind.itemsize
    if len(about["rows"]) != about["epochs"] or not all(map(_is_row, about["rows"])):
        raise ValueError("without a row for each epoch")
    return Checkpoint(about["epochs"], about["rows"], arrays)


def _is_row(row: Any) -> bool:
    """Whether a value maps names to numbers that fit in 64 bits."""
    return isinstance(row, dict) and all(
        type(value) is float or (type(value) is int and abs(value) < 2**63) for value in row.values()
    )


def _bytes(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _forget(folder: Path) -> None:
    """Removes old checkpoints of sweeps that were never resumed."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > FORGOTTEN_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def key_of(*parts: Sequence[Any] | Any) -> str:
    """A key: sha256 of plain JSON data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
