"""Curves of steps against batch size, fitted: regimes, intervals, verdicts, and how often they hold."""
