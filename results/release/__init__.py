"""Exchanges studies between stores: export, merge, and releases with their documents."""
