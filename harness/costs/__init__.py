"""Counting and measuring costs with JAX."""
