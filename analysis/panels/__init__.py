"""Panels: pictures of many, and what each of them draws."""
