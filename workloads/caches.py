"""Caches: the folder of everything that can be rebuilt, and the hashes by which its files are checked."""

import hashlib
import os
from pathlib import Path

from results import durable
from results.bad_input import BadInput


def folder(kind: str) -> Path:
    """The folder of one kind of cache: in SCALING_LIMITS_CACHE, or else within the user's cache folder.

    Raises:
      BadInput: it is in the home folder of a user who has none.
    """
    named = os.environ.get("SCALING_LIMITS_CACHE")
    if not named:
        named = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/scaling-limits"
    try:
        return durable.local(named) / kind
    except BadInput:
        raise BadInput("this user has no home folder; say where caches may be by SCALING_LIMITS_CACHE=DIR") from None


def file_digest(file: Path) -> str:
    """sha256 of a file, in hex digits."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
