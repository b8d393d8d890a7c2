"""Requests: the requested numbers of trials and of repeats of the best trials. Requests are not part of a plan."""

from collections.abc import Iterable
from typing import NamedTuple

from results.aliases import Fields
from results.bad_input import BadInput

MOST_TRIALS = 1_000_000
MOST_REPEATS = 1_000
MOST_CANDIDATES = 100


class Repeats(NamedTuple):
    """The requested repeats of the best trials in a search. If there are two requests, the larger one applies.

    Attributes:
      top: number of best trials that are candidates.
      confirm: number of repeats. If there are several candidates, half of the repeats are used to choose one of them,
        and the other half report on it.
    """

    top: int = 1
    confirm: int = 0

    @property
    def choosing(self) -> int:
        """The number of repeats per candidate that are used to choose one of several candidates."""
        return self.confirm // 2

    def candidates(self, trials: int) -> int:
        """Returns the number of candidates in a search with ``trials`` trials."""
        return min(self.top, trials)

    def trials_repeated(self, repeat: int, trials: int) -> int:
        """Returns the number of trials that have a ``repeat``-th repeat, counting from 1."""
        if repeat > self.confirm:
            return 0
        return self.candidates(trials) if repeat <= self.choosing else 1

    def record(self) -> dict[str, int]:
        """Returns plain data. As in older records, ``confirm_top`` is omitted if there is only one candidate."""
        return {"confirm": self.confirm} if self.top == 1 else {"confirm": self.confirm, "confirm_top": self.top}

    @classmethod
    def of_record(cls, record: Fields) -> "Repeats":
        """Returns the repeats stored in a ``record``. The default is zero repeats."""
        return cls(int(record.get("confirm_top", 1)), int(record.get("confirm", 0)))


NO_REPEATS = Repeats()


class TrialRequest(NamedTuple):
    """A request for the trials of a search and for repeats of its best trials."""

    trials: int
    repeats: Repeats = NO_REPEATS

    @property
    def planned(self) -> int:
        """The number of trials, including repeats."""
        repeats = self.repeats
        return self.trials + sum(repeats.trials_repeated(k, self.trials) for k in range(1, repeats.confirm + 1))


def largest_request(asked: Iterable[TrialRequest]) -> TrialRequest:
    """Combines several requests: the largest number of trials, and the largest repeats."""
    pairs = list(asked)
    return TrialRequest(max(request.trials for request in pairs), max(request.repeats for request in pairs))


def check_repeats(confirm: int, top: int, *, pruned: bool) -> None:
    """Raises BadInput for an invalid number of repeats or candidates."""
    how = f"half of the repeats choose among confirm_top={top} trials, half report"
    if confirm > MOST_REPEATS:
        raise BadInput(f"confirm must be at most {MOST_REPEATS}, not {confirm}")
    if top > MOST_CANDIDATES:
        raise BadInput(f"confirm_top must be at most {MOST_CANDIDATES}, not {top}")
    if top > 1 and pruned:
        raise BadInput(f"confirm_top={top}: exact pruning finds only the winner. Use confirm_top=1 or pruning=off.")
    if top > 1 and confirm % 2:
        raise BadInput(f"confirm must be even, not {confirm}: {how}")
