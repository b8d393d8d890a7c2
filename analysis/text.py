"""Numbers, intervals and names as text."""

import math
from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """A number to ``digits`` significant digits, written out with thousands set apart; empty for NaN."""
    if math.isnan(value):
        return ""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:#.{digits}g}"


def interval(low: float, high: float) -> str:
    """Steps to target: ``(43, 48]``, or ``[0, 0]`` of what was there before the first step."""
    return f"({low:,.0f}, {high:,.0f}]" if high > 0 else "[0, 0]"


def some(names: Sequence[str]) -> str:
    """The first three of ``names``, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def stated(verdict: str, best: str, low: str, high: str) -> str:
    """What a verdict states: ``64 [58, 70]``, ``at least 9,170``, ``at most 8`` or ``not identified``."""
    words = {"identified": f"{best} [{low}, {high}]", "at_least": f"at least {low}", "at_most": f"at most {high}"}
    return words.get(verdict, "not identified")
