"""Fits curves of steps against batch size: regimes, intervals, verdicts, and how often these are correct."""

FEWEST_BATCH_SIZES = 5  # minimum for a fit
