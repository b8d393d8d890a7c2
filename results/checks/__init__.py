"""Checks: what must hold of every file and table, verifying it, and repairing what is torn."""
