"""The ledger of a study: planned = complete + infeasible + incomplete, by reason, + missing."""

from typing import NamedTuple

import pandas as pd

from results.study import REASONS, REASONS_TO_RERUN


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
    """The ledger of a study of ``planned`` trials from their rows (trial, status, reason), every trial once."""
    if not len(trials):
        return Ledger(planned, 0, 0, 0, 0, 0, 0, 0, planned)
    ended = trials["reason"].where(trials["status"] == "INCOMPLETE", trials["status"]).value_counts()
    counts = {kind.lower(): int(ended.get(kind, 0)) for kind in ("COMPLETE", "INFEASIBLE", *REASONS)}
    return Ledger(planned=planned, **counts, missing=planned - len(trials))
