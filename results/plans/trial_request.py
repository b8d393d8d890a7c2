"""Requests: what is wanted of a study beside its plan, trials and repeats of the best of them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from results.bad_input import BadInput

MOST_TRIALS = 1_000_000
MOST_REPEATS = 1_000
MOST_CANDIDATES = 100


class Repeats(NamedTuple):
    """The repeats requested of the best trials of a search; of two requests, the larger tuple counts.

    Attributes:
      top: how many of the best are candidates.
      confirm: with one candidate how often it is repeated; with several, half of that chooses among them, and the other
        half reports the one that was chosen.
    """

    top: int = 1
    confirm: int = 0

    @property
    def choosing(self) -> int:
        """The repeats of every candidate that choose among several; the further ones of the chosen report."""
        return self.confirm // 2

    def candidates(self, trials: int) -> int:
        """The number of candidates that a search of so many trials has."""
        return min(self.top, trials)

    def trials_repeated(self, repeat: int, trials: int) -> int:
        """The number of trials that are run for the ``repeat``-th time, counted from 1."""
        if repeat > self.confirm:
            return 0
        return self.candidates(trials) if repeat <= self.choosing else 1

    def record(self) -> dict[str, int]:
        """Plain data; with one candidate without ``confirm_top``, as in the first records."""
        return {"confirm": self.confirm} if self.top == 1 else {"confirm": self.confirm, "confirm_top": self.top}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Repeats":
        """The inverse of ``record``; no repeats where it has none."""
        return cls(int(record.get("confirm_top", 1)), int(record.get("confirm", 0)))


NO_REPEATS = Repeats()


class TrialRequest(NamedTuple):
    """A request for trials of a search, and for repeats of the best of them."""

    trials: int
    repeats: Repeats = NO_REPEATS

    @property
    def planned(self) -> int:
        """Trials in all."""
        repeats = self.repeats
        return self.trials + sum(repeats.trials_repeated(k, self.trials) for k in range(1, repeats.confirm + 1))


def largest_request(asked: Iterable[TrialRequest]) -> TrialRequest:
    """The most trials, and the most repeats, of any that were asked for."""
    pairs = list(asked)
    return TrialRequest(max(one.trials for one in pairs), max(one.repeats for one in pairs))


def check_repeats(confirm: int, top: int, *, pruned: bool) -> None:
    """Raises BadInput unless so many repeats of so many candidates make sense."""
    how = f"half of the repeats choose among confirm_top={top} trials, half report"
    if confirm > MOST_REPEATS:
        raise BadInput(f"confirm must be at most {MOST_REPEATS}, not {confirm}")
    if top > MOST_CANDIDATES:
        raise BadInput(f"confirm_top must be at most {MOST_CANDIDATES}, not {top}")
    if top > 1 and pruned:
        raise BadInput(f"confirm_top={top}: exact pruning finds only the winner. Use confirm_top=1 or pruning=off.")
    if top > 1 and confirm % 2:
        raise BadInput(f"confirm must be even, not {confirm}: {how}")
