"""Costs of a training step: counts, hardware tables and the step time predicted from both, without JAX."""
