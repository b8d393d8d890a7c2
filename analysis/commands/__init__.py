"""The `python -m analysis` commands, one per module: ``run`` takes parsed arguments and may return an exit code."""
