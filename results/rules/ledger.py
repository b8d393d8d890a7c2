"""The ledger of a study: planned = complete + infeasible + incomplete, by reason, + missing.

Planned are the trials of the search and the repeats of its best.
"""

import collections
from collections.abc import Mapping
from typing import NamedTuple

from results.plans.study import REASONS, REASONS_TO_RERUN
from results.plans.trial_request import TrialRequest
from results.rules import confirmation
from results.rules.confirmation import CONFIRM, SEARCH


class TrialEnding(NamedTuple):
    """The ending of a trial, and its role, one of ``results.rules.confirmation.ROLES``."""

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
        return self.settled < self.planned

    @property
    def settled(self) -> int:
        """Trials that need no other run."""
        return self.planned - self.missing - sum(getattr(self, reason) for reason in REASONS_TO_RERUN)


def settled_ids(endings: Mapping[int, TrialEnding]) -> frozenset[int]:
    """Ids of the trials that need no other run, from how each of a study's trials ended."""
    return confirmation.settled_ids(endings, (how.reason for how in endings.values()))


def tally(request: TrialRequest, endings: Mapping[int, TrialEnding]) -> Ledger:
    """The ledger of a study, from how each of its trials ended, by its id, in the order they were stored.

    A larger search may have found other best trials. Until a commit gives the repeats of those before the role
    ``extra``, of the k-th repeats as many count as are asked for, those that were stored last.
    """
    ways = collections.Counter(endings.values())  # few differ
    if any(how.role != SEARCH for how in ways):
        by_number: dict[int, list[TrialEnding]] = collections.defaultdict(list)
        for at, how in endings.items():
            if how.role == CONFIRM:
                by_number[confirmation.repeat(at)].append(how)
        ways = collections.Counter({how: count for how, count in ways.items() if how.role == SEARCH})
        for k, repeats in by_number.items():
            ways.update(repeats[max(0, len(repeats) - request.repeats.trials_repeated(k, request.trials)) :])
    counts: collections.Counter[str | None] = collections.Counter()
    for how, count in ways.items():
        counts[how.reason if how.status == "INCOMPLETE" else how.status] += count
    kinds = {kind.lower(): counts[kind] for kind in ("COMPLETE", "INFEASIBLE", *REASONS)}
    return Ledger(planned=request.planned, **kinds, missing=request.planned - counts.total())
