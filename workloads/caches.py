"""The cache folder for files that can be rebuilt, and cached digests of files."""

import functools
import os
from pathlib import Path

from workloads.base import BadInput, durable


def folder(kind: str) -> Path:
    """Returns the folder for one kind of cache, in SCALING_LIMITS_CACHE or the user's cache folder.

    Raises:
      BadInput: the user has no home folder, or the cache folder is not on this machine.
    """
    named = os.environ.get("SCALING_LIMITS_CACHE")
    if not named:
        named = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/scaling-limits"
    elif "://" in named:
        raise BadInput(f"SCALING_LIMITS_CACHE={named} must be a folder on this machine, not a bucket.")
    try:
        return durable.local(named) / kind
    except BadInput:
        raise BadInput("this user has no home folder. Choose a cache folder with SCALING_LIMITS_CACHE=DIR.") from None


def file_digest(file: Path) -> str:
    """Returns the sha256 of a file. A process reads the file again only if its size or modification time changes."""
    stat = file.stat()
    return _file_digest(file, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _file_digest(file: Path, size: int, time: int) -> str:
    return durable.sha256(file)
