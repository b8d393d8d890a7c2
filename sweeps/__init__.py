"""Sweeps: from a command line, or plain arguments, to plans, and from plans to runs on this machine."""

from sweeps.library import measure, study, sweep

__all__ = ["measure", "study", "sweep"]
