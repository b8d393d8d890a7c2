"""Trials of a search: when each trial reached a target, and summaries over trials."""
