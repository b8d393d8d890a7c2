"""The names in a study's folder, and which of its parts count. A stalled writer can do no harm.

    claim-<number>.json          created exclusively; its number is a fencing token, and `parts` its cut-off
    part-<seq>-<token>.arrows    the seq-th part of the study, written under claim `token`
    checkpoint-<trial>           a trial under way, for whoever goes on with the study, and for nobody else
    attempt-<number>.log         what a process printed that did not come to its end; see ``results.storage.attempts``
    confirm-<number>.json        how often the best trial is asked to be run again; with -<top>, the best of so many
    commit-<number>.json         the commit record; its number is that of the claim that sealed the study

A claim says how many parts counted at the moment it was made. A part counts unless a later claim cut it off, that is,
says that fewer parts than up to this one existed. So it does not matter when a late write of a stalled process lands:
either a later claim saw it, or a later claim cut it off, and everybody who lists the folder comes to the same verdict.
Whoever claims looks once more and takes over the finished trials that it cut off, as their writer was told they count.
Sealing a study for its commit is a claim too: from then on the set of parts under it is fixed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from results.bad_input import BadInput
from results.plans.trial_request import NO_REPEATS, Repeats, TrialRequest

MOST = 999_999  # parts of a study, and claims: as many as six digits tell apart


class Part(NamedTuple):
    """A part by its name: its place in the study, and the claim it was written under."""

    seq: int
    token: int

    @property
    def file(self) -> str:
        return f"part-{_digits(self.seq)}-{_digits(self.token)}.arrows"


class Listing(NamedTuple):
    """The names in a study's folder, sorted by their meaning.

    Attributes:
      plans: numbers of trials that were asked for.
      confirms: how the best trials were asked to be run again.
      claims, commits: their numbers.
      parts: all of them, counting or not.
      checkpoints: (trial, name) of each.
      attempts: their numbers.
      others: names of everything else.
    """

    plans: tuple[int, ...]
    confirms: tuple[Repeats, ...]
    claims: tuple[int, ...]
    commits: tuple[int, ...]
    parts: tuple[Part, ...]
    checkpoints: tuple[tuple[int, str], ...]
    attempts: tuple[int, ...]
    others: tuple[str, ...]

    @property
    def requests(self) -> list[TrialRequest]:
        """The requests: trials, and repeats of the best of them."""
        return [TrialRequest(trials, max(self.confirms, default=NO_REPEATS)) for trials in self.plans]


def plan_file(trials: int) -> str:
    return f"plan-{trials:09d}.json"


def confirm_file(repeats: Repeats) -> str:
    among = f"-{repeats.top:03d}" if repeats.top > 1 else ""
    return f"confirm-{repeats.confirm:06d}{among}.json"


def claim_file(number: int) -> str:
    return f"claim-{_digits(number)}.json"


def commit_file(number: int) -> str:
    return f"commit-{_digits(number)}.json"


def commit_number(name: str) -> int | None:
    """The number of the commit that a record or a table belongs to, by its name; None if it is neither."""
    match = _OF_COMMIT.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_file(trial: int, index: int = 0, count: int = 1) -> str:
    """The name of a checkpoint of a trial, by process ``index`` of ``count``."""
    return f"checkpoint-{trial:09d}" if count == 1 else f"checkpoint-{trial:09d}-{index}-of-{count}"


def attempt_file(number: int) -> str:
    return f"attempt-{number}.log"


def _digits(number: int) -> str:
    """Six of them; BadInput for a number that has more, as nobody would see a file of such a name."""
    if number > MOST:
        raise BadInput(f"a study holds at most {MOST:,} claims and parts. Merge it into another store.")
    return f"{number:06d}"


_KINDS = {  # by how a name begins
    "plan": ("plans", re.compile(r"plan-([0-9]{9})\.json")),
    "confirm": ("confirms", re.compile(r"confirm-([0-9]{6})(?:-([0-9]{3}))?\.json")),
    "claim": ("claims", re.compile(r"claim-([0-9]{6})\.json")),
    "commit": ("commits", re.compile(r"commit-([0-9]{6})\.json")),
    "checkpoint": ("checkpoints", re.compile(r"checkpoint-([0-9]{9})(?:-([0-9]+)-of-([0-9]+))?")),
    "attempt": ("attempts", re.compile(r"attempt-([1-9][0-9]{0,5})\.log")),
    "part": ("parts", re.compile(r"part-([0-9]{6})-([0-9]{6})\.arrows")),
}
_OF_COMMIT = re.compile(r"(?:commit|studies|trials|measurements|envelope)-([0-9]{6})\.(?:json|parquet|arrow)")


_MADE_OF: dict[str, Callable[..., Any]] = {
    "parts": Part,
    "confirms": lambda confirm, top=1: Repeats(top, confirm),
}


def listing(names: Iterable[str]) -> Listing:
    """Sorts the names of a study's folder by what they stand for."""
    by_kind: dict[str, list] = {kind: [] for kind in Listing._fields}
    for name in sorted(names):
        kind, pattern = _KINDS.get(name.partition("-")[0], ("others", None))
        if pattern is None or (match := pattern.fullmatch(name)) is None:
            by_kind["others"].append(name)
            continue
        if kind == "checkpoints":
            by_kind[kind].append((int(match[1]), name))
            continue
        numbers = [int(digits) for digits in match.groups() if digits]
        by_kind[kind].append(_MADE_OF[kind](*numbers) if kind in _MADE_OF else numbers[0])
    return Listing(**{kind: tuple(members) for kind, members in by_kind.items()})


def counting_parts(parts: Iterable[Part], cutoffs: Mapping[int, int], merged: int) -> list[Part]:
    """The parts that count beyond a commit, in order.

    Args:
      parts: as listed.
      cutoffs: of every claim, by its number.
      merged: how many parts the commit holds already.

    Raises:
      LookupError: one is missing between others.
    """
    valid = surviving_parts(parts, cutoffs, merged)
    if [part.seq for part in valid] != list(range(merged, merged + len(valid))):
        raise LookupError(f"parts {[part.seq for part in valid]} are not all from {merged} on")
    return valid


def surviving_parts(parts: Iterable[Part], cutoffs: Mapping[int, int], merged: int) -> list[Part]:
    """The same as ``counting_parts``, also if some are missing."""
    return [
        part
        for part in sorted(parts)
        if part.seq >= max(merged, cutoffs.get(part.token, part.seq + 1))
        and all(part.seq < cutoff for number, cutoff in cutoffs.items() if number > part.token)
    ]
