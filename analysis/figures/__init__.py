"""Figures: the registry of them, and what draws each."""
