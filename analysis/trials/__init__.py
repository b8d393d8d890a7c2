"""Trials of a search: when each reached a target, and summaries of them."""
