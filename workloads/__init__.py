"""Workloads: data sets, models, optimizers, and the pure functions that combine them."""
