"""Counts and measures costs with JAX."""
