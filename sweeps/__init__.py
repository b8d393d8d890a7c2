"""Sweeps: turns a command line or plain arguments into plans, and runs the plans."""

import results  # noqa: F401  (refuses a Python that is too old)
from sweeps.library import measure, study, sweep

__all__ = ["measure", "study", "sweep"]
