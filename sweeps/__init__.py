"""Turns command lines or keyword arguments into plans, and runs these plans."""

import results  # noqa: F401  (rejects old versions of Python)
from sweeps.library import measure, study, sweep

__all__ = ["measure", "study", "sweep"]
