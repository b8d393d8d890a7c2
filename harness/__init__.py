"""Runs and measures trials: search, random numbers, compiled programs, and the loops that call them."""
