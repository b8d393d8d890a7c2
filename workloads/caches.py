"""Caches: the folder of everything that can be rebuilt, and the hashes by which its files are checked."""

import hashlib
import os
from pathlib import Path


def folder(kind: str) -> Path:
    """The folder of one kind of cache: in SCALING_LIMITS_CACHE, or else within the user's cache folder."""
    home = os.environ.get("SCALING_LIMITS_CACHE")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scaling-limits")
    return Path(home).expanduser() / kind


def file_digest(file: Path) -> str:
    """sha256 of a file, in hex digits."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
