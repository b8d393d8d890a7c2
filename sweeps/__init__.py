"""Sweeps: from a command line, or plain arguments, to plans, and from plans to runs on this machine."""

import results  # noqa: F401  (refuses a Python that is too old)
from sweeps.library import measure, study, sweep

__all__ = ["measure", "study", "sweep"]
