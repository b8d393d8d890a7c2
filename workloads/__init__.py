"""Workloads: data sets, models, optimizers, and pure functions that combine them."""
