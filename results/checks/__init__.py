"""Checks: verifies all files and tables, and repairs torn files."""
