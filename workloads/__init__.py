"""Workloads: data sets, models, optimizers, and the pure functions they combine into."""
