"""Checks: verification of all files and tables, and repair of torn files."""
