"""Launchers: ways to run the studies of a sweep in parallel. Each file contains one launcher."""
