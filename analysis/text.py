"""Formatting of numbers, intervals, verdicts and names as text."""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

from results import grouping, tables
from results.aliases import StringMap
from results.plans.study import Target
from results.printing import numbered
from results.rules.answers import Rule

Verdict = Literal["identified", "at_least", "at_most", "not_identified"]
LONG = 24  # length above which a value is shown only if shorter values do not separate things
VERDICTS = ("identified", "at_least", "at_most", "not_identified")


def number(value: float, digits: int = 3) -> str:
    """Formats a number with ``digits`` significant digits and thousands separators. Empty for NaN."""
    if math.isnan(value):
        return ""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:#.{digits}g}"


def count(value: float) -> str:
    """Formats a number of devices, cores or examples. Integers are written in full, others with three digits."""
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def interval(low: float, high: float) -> str:
    """Formats steps to target as ``(43, 48]``, or as ``[0, 0]`` if the target was met before the first step."""
    return f"({low:,.0f}, {high:,.0f}]" if high > 0 else "[0, 0]"


def first_few(names: Sequence[str], comma: str = ", ") -> str:
    """Formats the first three of ``names`` and the number of remaining ones."""
    return comma.join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def sentence(words: str) -> str:
    """Returns words as a sentence, with a capital letter and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def joined(*words: str | None) -> str:
    """Joins the nonempty ``words`` on one line, with dots between them."""
    return " · ".join(filter(None, words))


def span(counts: Sequence[float], dash: str = "–") -> str:
    """Formats the range of some counts, such as ``64`` or ``32–1,024``."""
    ends = dict.fromkeys((min(counts), max(counts)))
    return dash.join(f"{end:,.0f}" for end in ends)


def batch_sizes(sizes: Iterable[float]) -> str:
    """Lists batch sizes: ``batch size 64`` or ``batch sizes 64, 1,024``."""
    numbers = [f"{size:,.10g}" for size in sizes]
    return ("batch sizes " if len(numbers) > 1 else "batch size ") + ", ".join(numbers)


def grouped(remarks: Iterable[tuple[int, str]]) -> list[str]:
    """Groups notes on numbered rows. Each note is listed once, with its rows, such as ``rows 2, 3: one seed``."""
    notes = []
    for remark, pairs in grouping.grouped(remarks, lambda remark_of_row: remark_of_row[1]).items():
        noun = "rows" if len(pairs) > 1 else "row"
        notes.append(f"{noun} {', '.join(str(row) for row, _ in pairs)}: {remark}")
    return notes


def telling(distinctions: Sequence[str], groups: Sequence[Hashable]) -> list[str]:
    """Returns the fewest fields, such as ``seed=1, stop=target``, that distinguish the members of each group."""
    fields = [dict(pair.split("=", 1) for pair in re.split(r", (?=[\w.]+=)", words) if words) for words in distinctions]
    result = [""] * len(fields)
    for group in dict.fromkeys(groups):
        members = [i for i, label in enumerate(groups) if label == group]
        chosen = separating([fields[i] for i in members])
        for i in members:
            result[i] = ", ".join(f"{field}={fields[i][field]}" for field in chosen if field in fields[i])
    return result


def separating(contents: Sequence[StringMap]) -> list[str]:
    """Returns the fewest fields that distinguish ``contents``. Fields with short values come first."""
    chosen, distinct = list[str](), 1
    all_fields = dict.fromkeys(field for content in contents for field in content)
    for field in sorted(all_fields, key=lambda field: max(len(content.get(field, "")) for content in contents) > LONG):
        count = len({tuple(content.get(name) for name in (*chosen, field)) for content in contents})
        if count > distinct:
            chosen, distinct = [*chosen, field], count
    return chosen


def table(rows: Sequence[StringMap], left: Iterable[str], optional: Iterable[str] = (), **shown: Any) -> str:
    """Formats rows of cells as text, like ``tables.table``. Omits ``optional`` columns that are empty."""
    first = rows[0] if rows else {"": ""}
    header = [name for name in first if name not in set(optional) or any(row[name] for row in rows)]
    return tables.table(header, [[row[name] for name in header] for row in rows], left, **shown)


def notes(studies: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a sentence for each note that applies to any study. It lists the first few of these studies."""
    return [f"{remark}: {first_few(sorted(names, key=numbered))}" for remark, names in studies.items() if names]


def statement(verdict: str, best: str, low: str, high: str) -> str:
    """Formats a verdict with its numbers: ``64 [58, 70]``, ``at least 9,170``, ``at most 8`` or ``not identified``."""
    words = {"identified": f"{best} [{low}, {high}]", "at_least": f"at least {low}", "at_most": f"at most {high}"}
    return words.get(verdict, "not identified")


IN_WORDS: dict[str, str] = {
    "identified": "identified",
    "at_least": "lower bound",
    "at_most": "upper bound",
    "not_identified": "unknown",
}


def verdict_in_words(verdict: str, *, in_doubt: bool = False) -> str:
    """Formats a verdict as ``identified``, ``lower bound``, ``upper bound`` or ``unknown``, possibly ``in doubt``."""
    return with_doubt(IN_WORDS[verdict], verdict, in_doubt=in_doubt)


def with_doubt(words: str, verdict: str, *, in_doubt: bool) -> str:
    """Appends ``in doubt`` to an answer or its verdict, if there is an answer and if it is uncertain."""
    return f"{words}, in doubt" if in_doubt and verdict != "not_identified" else words


def bound(best: float, low: float, high: float, verdict: str, form: Callable[[float], str] = number) -> str:
    """Formats an answer: ``96 [64, 210]``, ``at least 64``, ``at most 8`` or ``unknown``."""
    return "unknown" if verdict == "not_identified" else statement(verdict, *map(form, (best, low, high)))


def answer(best: float, low: float, high: float, verdict: str, form: Callable[[float], str] = number) -> str:
    """Formats an answer: ``96 [64, 210]``, ``at least 64 (best 96)``, ``at most 8 (best 4)`` or ``unknown (best 9)``.

    The best estimate is omitted if it is NaN or the bound itself. ``form`` formats a number.
    """
    words = bound(best, low, high, verdict, form)
    is_stated = verdict == "identified" or best in (low, high)
    return words if is_stated or math.isnan(best) else f"{words} (best {form(best)})"


def verdict(low_inside: bool, high_inside: bool) -> Verdict:
    """Returns the verdict on an interval, given which of its ends lie within the measured range."""
    if low_inside:
        return "identified" if high_inside else "at_least"
    return "at_most" if high_inside else "not_identified"


def goal(target: Target, rule: Rule) -> str:
    """Formats a target: ``validation error ≤ 0.01``, or ``validation average precision > 0.31`` for its error."""
    metric, value = as_quality(target.metric, target.value)
    sign = rule.sign
    if metric != target.metric:
        sign = {"<": ">", "≤": "≥"}[sign]
    return f"{metric.replace('_', ' ')} {sign} {value:g}"


def as_quality(metric: str, value: float) -> tuple[str, float]:
    """Returns a metric and value for display. Errors of a quality in [0, 1] are converted back to the quality."""
    for kind in ("average_precision", "recall_20", "recall_50"):
        if metric.endswith(f"{kind}_error"):
            return metric.removesuffix("_error"), float(f"{1 - value:.12g}")
    return metric, value
