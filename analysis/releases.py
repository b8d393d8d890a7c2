"""Shipped data: the releases in this repository, or the store named in their place."""

import os
from pathlib import Path

from results import durable
from results.bad_input import BadInput
from results.durable import Folder

ROOT = Path(__file__).resolve().parents[1]  # of the repository
VARIABLE = "SCALING_LIMITS_STORE"


def release() -> Folder:
    """The release of what this software measured itself; ``$SCALING_LIMITS_STORE`` names another store or release.

    Raises:
      BadInput: it is not there, as in an installation without the repository.
    """
    name = os.environ.get(VARIABLE)
    return durable.location(name) if name else _there("published", f"or name a store by {VARIABLE}=DIR")


def mlperf() -> Folder:
    """The release of MLPerf's reference convergence points.

    Raises:
      BadInput: it is not there.
    """
    return _there("mlperf", "or import the points by `python -m results import mlperf-rcp`")


def _there(name: str, instead: str) -> Folder:
    folder = ROOT / "results" / name
    if not folder.is_dir():
        raise BadInput(f"no release at {folder}; use a checkout of the repository, which has it, {instead}")
    return folder
