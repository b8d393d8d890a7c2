"""The ledger of a study: planned = complete + infeasible + incomplete (by reason) + missing.

The planned trials are the trials of the search plus the repeats of the best trials.
"""

import collections
from collections.abc import Iterable
from typing import NamedTuple

from results.grouping import grouped
from results.plans.study import REASONS, REASONS_TO_RERUN
from results.plans.trial_request import TrialRequest
from results.rules import confirmation
from results.rules.confirmation import CONFIRM, SEARCH


class TrialEnding(NamedTuple):
    """The ending and role of a trial. The role is one of ``results.rules.confirmation.ROLES``."""

    role: str
    status: str
    reason: str | None


Endings = dict[int, TrialEnding]  # by trial, in the order in which the trials were stored


class Ledger(NamedTuple):
    """Numbers of trials by ending. The first field is the sum of the others."""

    planned: int = 0
    complete: int = 0
    infeasible: int = 0
    pruned: int = 0
    time_limit: int = 0
    lost: int = 0
    failed: int = 0
    unstated: int = 0
    missing: int = 0

    @property
    def adds_up(self) -> bool:
        return self.planned == sum(self[1:]) and min(self) >= 0

    @property
    def unfinished(self) -> bool:
        """Whether any trials would run if the study were requested again."""
        return self.settled < self.planned

    @property
    def settled(self) -> int:
        """The number of trials that do not need to run again."""
        return self.planned - self.missing - sum(getattr(self, reason) for reason in REASONS_TO_RERUN)


def settled_ids(endings: Endings) -> frozenset[int]:
    """Returns the ids of trials that do not need to run again, given the ending of each trial."""
    return confirmation.settled_ids(endings, [how.reason for how in endings.values()])


def tally(request: TrialRequest, endings: Endings) -> Ledger:
    """Returns the ledger of a study.

    A larger search may have different best trials. Earlier repeats get the role ``extra`` only at the next commit.
    Until then, only the newest k-th repeats count, up to the requested number.

    Args:
      request: the requested trials and repeats.
      endings: ending of each trial by id, in the order in which the trials were stored.
    """
    ways = collections.Counter(endings.values())  # few of them are distinct
    if any(how.role != SEARCH for how in ways):
        confirmed = [trial for trial, how in endings.items() if how.role == CONFIRM]
        ways = collections.Counter(how for how in endings.values() if how.role == SEARCH)
        for k, repeats in grouped(confirmed, confirmation.repeat).items():
            first = max(0, len(repeats) - request.repeats.trials_repeated(k, request.trials))
            ways.update(endings[trial] for trial in repeats[first:])
    counts = collections.Counter[str | None]()
    for how, count in ways.items():
        counts[how.reason if how.status == "INCOMPLETE" else how.status] += count
    kinds = {kind.lower(): counts[kind] for kind in ("COMPLETE", "INFEASIBLE", *REASONS)}
    return Ledger(planned=request.planned, **kinds, missing=request.planned - counts.total())


def total(ledgers: Iterable[Ledger]) -> Ledger:
    """Returns the sum of several ledgers."""
    return Ledger(*map(sum, zip(*ledgers, strict=True)))
