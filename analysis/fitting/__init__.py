"""Fitted curves of steps against batch size: regimes, intervals, verdicts, and how often they hold."""
