"""Figures by name, of whole stores."""
