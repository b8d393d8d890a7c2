"""The ledger of an import: every file, row and run that was found, and its whereabouts."""

from collections import Counter
from collections.abc import Collection, Sequence

from results.bad_input import number_of
from results.importers.runs.identity import Matches
from results.importers.runs.runs import Run
from results.importers.untrusted import ImportWarnings


def lines(
    found: Sequence[Run], matches: Collection[Matches], warnings: ImportWarnings, *, changed: int, replace: bool
) -> list[str]:
    """Returns the lines about files, rows and runs.

    Args:
      found: all runs that could be read, including copies.
      matches: the runs of each study and their numbers in the store.
      warnings: the numbers of files, and of runs that could not be read.
      changed: number of runs whose stored rows differ.
      replace: whether these were replaced, and not refused.
    """
    left_out = sum((run.left_out for run in found), Counter[str]())
    rows = sum(len(series.step) for run in found for series in run.logged.values())
    numbered = sum(len(match.replacing() if replace else match.numbered) for match in matches)
    new, extended = sum(len(match.new) for match in matches), sum(len(match.extended) for match in matches)
    refused = warnings.refused if replace else warnings.refused + changed
    terms = (
        f"{new:,} new + {numbered - new - extended - changed:,} already stored + {extended:,} extended + "
        f"{len(found) - numbered:,} copies + {refused:,} refused"
    )
    if replace:
        terms += f" + {changed:,} replaced"
    return [
        _line("file", warnings.files, "read", warnings.skipped, "skipped"),
        _line("row", rows, "used", left_out, "left out"),
        f"{number_of(len(found) + warnings.refused, 'run')} in {number_of(len(matches), 'study')} = {terms}",
    ]


def _line(noun: str, total: int, used: str, others: Counter[str], unused: str) -> str:
    """Returns a line such as ``12 files = 9 read + 3 skipped (2 hidden, 1 unusable)``."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in others.items() if count)
    line = f"{number_of(total, noun)} = {total - others.total():,} {used} + {others.total():,} {unused}"
    return f"{line} ({reasons})" if reasons else line
