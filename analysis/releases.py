"""Data shipped with this repository: releases, or a store to use instead."""

import os
from pathlib import Path

from results import durable
from results.bad_input import BadInput
from results.durable import Folder

ROOT = Path(__file__).resolve().parents[1]  # root of the repository
VARIABLE = "SCALING_LIMITS_STORE"


def release() -> Folder:
    """Returns the release of our measurements, or the store or release given by ``$SCALING_LIMITS_STORE``.

    Raises:
      BadInput: the release is missing, for example because the package was installed without the repository.
    """
    name = os.environ.get(VARIABLE)
    return durable.location(name) if name else _shipped("published", f"or set {VARIABLE}=DIR to a store")


def mlperf() -> Folder:
    """Returns the release of MLPerf's reference convergence points.

    Raises:
      BadInput: the release is missing.
    """
    return _shipped("mlperf", "or import the points with `python -m results import mlperf-rcp`")


def _shipped(name: str, instead: str) -> Folder:
    folder = ROOT / "results" / name
    if not folder.is_dir():
        raise BadInput(f"no release at {folder}. Use a checkout of the repository, {instead}.")
    return folder
