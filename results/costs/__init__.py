"""Costs of a step: counted numbers, tables of hardware, and the seconds predicted from both, without JAX."""
