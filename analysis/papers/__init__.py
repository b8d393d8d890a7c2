"""Figures of papers, drawn again from a store."""
