"""Estimated costs of a sweep, from counts, from stored runs, and while it runs."""
