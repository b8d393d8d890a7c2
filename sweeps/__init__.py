"""Sweeps: from a command line to plans, and from plans to runs on this machine."""
