"""Commands of python -m analysis, a module each: ``run`` takes the parsed arguments and may return an exit code."""
