"""Numbers, intervals, verdicts and names as text."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal

from results.cli import numbered
from results.plans.study import Target
from results.rules.answers import Rule

Verdict = Literal["identified", "at_least", "at_most", "not_identified"]
LONG = 24  # characters of a value that is told only if shorter ones do not tell things apart
VERDICTS: tuple[str, ...] = ("identified", "at_least", "at_most", "not_identified")


def number(value: float, digits: int = 3) -> str:
    """A number to ``digits`` significant digits, written out with thousands set apart, or empty for NaN."""
    if math.isnan(value):
        return ""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:#.{digits}g}"


def interval(low: float, high: float) -> str:
    """Steps to target: ``(43, 48]``, or ``[0, 0]`` of what was there before the first step."""
    return f"({low:,.0f}, {high:,.0f}]" if high > 0 else "[0, 0]"


def first_few(names: Sequence[str]) -> str:
    """The first three of ``names``, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def batch_sizes(sizes: Iterable[float]) -> str:
    """Batch sizes by name: ``batch size 64`` or ``batch sizes 64, 1,024``."""
    numbers = [f"{size:,.10g}" for size in sizes]
    return f"batch size{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def grouped(remarks: Iterable[tuple[int, str]]) -> list[str]:
    """Remarks on numbered rows, each once, after the numbers of all rows that it is on: ``rows 2, 3: at 64 trials``."""
    rows: dict[str, list[int]] = {}
    for row, remark in remarks:
        rows.setdefault(remark, []).append(row)
    return [
        f"row{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}: {remark}" for remark, numbers in rows.items()
    ]


def telling(distinctions: Sequence[str], groups: Sequence[Hashable]) -> list[str]:
    """As few fields of distinctions, such as ``seed=1, stop=target``, as tell those of one group apart."""
    fields = [dict(each.split("=", 1) for each in re.split(r", (?=[\w.]+=)", words) if words) for words in distinctions]
    result = [""] * len(fields)
    for group in dict.fromkeys(groups):
        members = [i for i, own in enumerate(groups) if own == group]
        chosen, told = list[str](), 1
        every = dict.fromkeys(field for i in members for field in fields[i])
        for field in sorted(every, key=lambda field: max(len(fields[i].get(field, "")) for i in members) > LONG):
            count = len({tuple(fields[i].get(each) for each in (*chosen, field)) for i in members})
            if count > told:
                chosen, told = [*chosen, field], count
        for i in members:
            result[i] = ", ".join(f"{field}={fields[i][field]}" for field in chosen if field in fields[i])
    return result


def notes(studies: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each thing to know that is true of any study: what it is, and the first few of them."""
    return [f"{what}: {first_few(sorted(names, key=numbered))}" for what, names in studies.items() if names]


def statement(verdict: str, best: str, low: str, high: str) -> str:
    """A verdict with its numbers: ``64 [58, 70]``, ``at least 9,170``, ``at most 8`` or ``not identified``."""
    words = {"identified": f"{best} [{low}, {high}]", "at_least": f"at least {low}", "at_most": f"at most {high}"}
    return words.get(verdict, "not identified")


def verdict(low_inside: bool, high_inside: bool) -> Verdict:
    """The verdict of an interval by which of its ends lie within what was measured."""
    verdicts: dict[tuple[bool, bool], Verdict] = {
        (True, True): "identified",
        (True, False): "at_least",
        (False, True): "at_most",
        (False, False): "not_identified",
    }
    return verdicts[low_inside, high_inside]


def goal(target: Target, rule: Rule) -> str:
    """In words: ``validation error ≤ 0.01``, or ``validation average precision > 0.31``, kept as an error."""
    metric, value = as_quality(target.metric, target.value)
    sign = rule.sign
    if metric != target.metric:
        sign = {"<": ">", "≤": "≥"}[sign]
    return f"{metric.replace('_', ' ')} {sign} {value:g}"


def as_quality(metric: str, value: float) -> tuple[str, float]:
    """A metric and a value as a reader knows them: an error of a quality in [0, 1] is turned back into that."""
    for kind in ("average_precision", "recall_20", "recall_50"):
        if metric.endswith(f"{kind}_error"):
            return metric.removesuffix("_error"), float(f"{1 - value:.12g}")
    return metric, value
