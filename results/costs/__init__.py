"""Costs of a step: counts, hardware tables, and the seconds predicted from both, without JAX."""
