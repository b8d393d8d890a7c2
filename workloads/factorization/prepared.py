"""Caches prepared ratings on disk by the hash of their original data. They are memory-mapped when loaded."""

import hashlib
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from workloads import caches
from workloads.base import BadInput, durable
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings, RatingsSource, Size

FORMAT = 1  # format of the folders, part of their names
PARTS = ("train", "history", "heldout")


class Corrupted(Exception):
    """The content of a folder has changed. The message names the changed file."""


def check(source: RatingsSource) -> None:
    """Raises those errors of ``load`` that are predictable, unless the ratings are already prepared."""
    if not _place(source).exists():
        source.check()


def load(source: RatingsSource) -> Ratings:
    """Returns the ratings of a source, and prepares them first if necessary.

    Files are verified by their hashes. If a file has changed, the ratings are prepared again, and a remark is added.

    Returns:
      Ratings whose arrays are read-only and memory-mapped. Their pages are loaded when they are read.
    """
    place = _place(source)
    remarks: tuple[str, ...] = ()
    try:
        return _read(place)
    except FileNotFoundError:
        pass
    except Corrupted as error:
        remarks = (f"the prepared {source.name} in {place} was corrupted ({error}) and has been prepared again",)
        _discard(place)
    source.check()
    ratings = source.build()
    try:
        _write(place, ratings)
        del ratings  # the memory-mapped files replace them
        loaded = _read(place)
    except (OSError, Corrupted) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadInput(
            f"prepared ratings cannot be stored in {place.parent}: {reason}. Choose another folder with "
            "SCALING_LIMITS_CACHE=DIR."
        ) from None
    return loaded._replace(remarks=remarks + loaded.remarks)


def size(source: RatingsSource) -> Size | None:
    """Returns the size of ratings without reading them, from their source or from prepared files."""
    told = source.size()
    if told is not None:
        return told
    try:
        train = _links(_place(source), "train", json.loads((_place(source) / "contents.json").read_text())["columns"])
    except (BadInput, OSError, ValueError, KeyError, TypeError):
        return None
    return Size(train.row_count, train.column_count, len(train.columns))


def _place(source: RatingsSource) -> Path:
    return caches.folder("ratings") / f"{source.name}-{FORMAT}-{source.version().removeprefix('sha256:')}"


def _write(place: Path, ratings: Ratings) -> None:
    """Writes the ratings atomically. If another process has already written them, its files are kept."""
    durable.make_folder(place.parent)
    durable.remove_leftovers(place.parent)
    try:
        with durable.new_folder(place) as folder:
            files = {}
            for part in PARTS:
                links: Links = getattr(ratings, part)
                for name, array in (("starts", links.starts), ("columns", links.columns)):
                    path = folder / f"{part}.{name}.npy"
                    np.save(path, array)
                    durable.sync(path)
                    files[path.name] = durable.sha256(path)
            contents = {
                "columns": ratings.train.column_count,
                "merged": ratings.merged,
                "remarks": list(ratings.remarks),
                "files": files,
            }
            text = json.dumps(contents | {"sha256": _seal(contents)}, indent=1)
            durable.create(folder / "contents.json", text.encode())
    except OSError:
        if not place.is_dir():
            raise


def _read(place: Path) -> Ratings:
    """Reads prepared ratings. Raises FileNotFoundError if they do not exist, and Corrupted if they have changed."""
    if not place.exists():
        raise FileNotFoundError(place)
    try:
        contents = json.loads((place / "contents.json").read_text())
        seal = contents.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise Corrupted("contents.json cannot be read") from None
    if seal != _seal(contents):
        raise Corrupted("contents.json has changed")
    for name, digest in contents["files"].items():
        try:
            intact = durable.sha256(place / name) == digest
        except OSError as error:
            raise Corrupted(f"{name}: {error.strerror}") from None
        if not intact:
            raise Corrupted(f"{name} has changed")
    parts = {part: _links(place, part, contents["columns"]) for part in PARTS}
    return Ratings(**parts, merged=contents["merged"], remarks=tuple(contents["remarks"]))


def _links(place: Path, part: str, column_count: int) -> Links:
    arrays = (np.load(place / f"{part}.{name}.npy", mmap_mode="r") for name in ("starts", "columns"))
    starts, columns = (np.asarray(array) for array in arrays)  # plain arrays rather than memmaps
    return Links(starts, columns, column_count)


def _seal(contents: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _discard(place: Path) -> None:
    """Removes a folder atomically."""
    grave = place.parent / f"{durable.TEMPORARY}{uuid.uuid4().hex}"
    try:
        place.rename(grave)
    except FileNotFoundError:  # removed by another process
        return
    except OSError as error:
        raise BadInput(f"{place} is corrupted and cannot be removed: {error.strerror}. Remove it.") from None
    if grave.is_dir():
        shutil.rmtree(grave, ignore_errors=True)
    else:
        grave.unlink(missing_ok=True)
