"""The folder of caches: everything that can be rebuilt."""

import os
from pathlib import Path


def folder(kind: str) -> Path:
    """The folder of one kind of cache: in SCALING_LIMITS_CACHE, or else within the user's cache folder."""
    home = os.environ.get("SCALING_LIMITS_CACHE")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scaling-limits")
    return Path(home).expanduser() / kind
