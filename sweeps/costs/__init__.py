"""Estimates the costs of a sweep from counts, from stored runs, and while the sweep is running."""
