"""Parses compiled programs, and compiles programs ahead of time."""
