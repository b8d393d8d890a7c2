"""The ledger of an import: every file, row and run that was found, and its whereabouts."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

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
    skipped = sum(warnings.skipped.values())
    left_out = sum((run.left_out for run in found), Counter[str]())
    rows = sum(len(series.step) for run in found for series in run.logged.values())
    sizes = [len(match.replacing() if replace else match.numbered) for match in matches]
    new, extended = (sum(len(getattr(match, name)) for match in matches) for name in ("new", "extended"))
    counts = {
        "new": new,
        "already stored": sum(sizes) - new - extended - changed,
        "extended": extended,
        "copies": len(found) - sum(sizes),
        "refused": warnings.refused,
    }
    if replace:
        counts["replaced"] = changed
    else:
        counts["refused"] += changed
    terms = " + ".join(f"{count:,} {name}" for name, count in counts.items())
    total = len(found) + warnings.refused
    files, used = warnings.files - skipped, rows - left_out.total()
    return [
        f"{number_of(warnings.files, 'file')} = {files:,} read + {_reasons(warnings.skipped, 'skipped')}",
        f"{number_of(rows, 'row')} = {used:,} used + {_reasons(left_out, 'left out')}",
        f"{number_of(total, 'run')} in {number_of(len(matches), 'study')} = {terms}",
    ]


def _reasons(counts: Mapping[str, int], verb: str) -> str:
    """Returns a total with its reasons, such as ``3 skipped (2 hidden, 1 unusable)``."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
    return f"{sum(counts.values()):,} {verb}{f' ({reasons})' if reasons else ''}"
