"""Launchers, one per file: ways to run the studies of a sweep in parallel."""
