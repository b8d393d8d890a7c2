"""Figures: their registry, and the functions that draw them."""
