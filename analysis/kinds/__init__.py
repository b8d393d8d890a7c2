"""Kinds of figures that can be drawn of any workloads over batch sizes."""
