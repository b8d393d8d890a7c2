"""Reads compiled programs and compiles ahead of time."""
