"""The ledger of a study: planned = complete + infeasible + incomplete, by reason, + missing.

Planned are the trials of the search and the repeats of its best.
"""

import collections
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from results.study import APART, REASONS, REASONS_TO_RERUN


class Ending(NamedTuple):
    """How a trial ended, and whether it was one of the search or a repeat of its best."""

    role: str
    status: str
    reason: str | None


class Ledger(NamedTuple):
    """Trials by how they ended; the first is the sum of all others."""

    planned: int
    complete: int
    infeasible: int
    pruned: int
    time_limit: int
    lost: int
    failed: int
    unstated: int
    missing: int

    @property
    def adds_up(self) -> bool:
        return self.planned == sum(self[1:]) and min(self) >= 0

    @property
    def unfinished(self) -> bool:
        """Whether asking for the study again would run something."""
        return bool(self.missing or any(getattr(self, reason) for reason in REASONS_TO_RERUN))


def count(planned: int, trials: pd.DataFrame) -> Ledger:
    """The ledger of a study of ``planned`` trials from their rows (trial, role, status, reason), every trial once."""
    if not len(trials):
        return tally(planned, {})
    rows = zip(trials["role"], trials["status"], trials["reason"], strict=True)
    return tally(planned, dict(zip(trials["trial"].tolist(), itertools.starmap(Ending, rows), strict=True)))


def tally(planned: int, ended: Mapping[int, Ending]) -> Ledger:
    """The ledger of a study of ``planned`` trials, from how each ended, by its id, in the order they were stored.

    A larger search may have found another best trial; until a commit drops the repeats of the one before, of each k-th
    repeat the last that was stored counts.
    """
    counting = {(at // APART, "confirm") if how.role == "confirm" else (at, how.role): how for at, how in ended.items()}
    counts = collections.Counter(how.reason if how.status == "INCOMPLETE" else how.status for how in counting.values())
    kinds = {kind.lower(): counts[kind] for kind in ("COMPLETE", "INFEASIBLE", *REASONS)}
    return Ledger(planned=planned, **kinds, missing=planned - len(counting))
