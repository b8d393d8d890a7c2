"""Names of the files in a study's folder, and the rule for which parts count. Stalled writers cannot do any harm.

    claim-<number>.json          created exclusively; its number is a fencing token, `parts` its cut-off
    part-<seq>-<token>.arrows    part number seq of the study, written under claim `token`
    checkpoint-<trial>...        a trial under way, for the process that resumes the study, or the part of a host
    attempt-<number>.log         log of an unfinished attempt; see ``results.storage.attempts``
    confirm-<number>.json        requested repeats of the best trial; with -<top>, of the best candidates
    commit-<number>.json         the commit record, with the number of the claim that sealed the study

A claim records the number of parts that counted when it was made. A part counts unless a later claim cuts it off, by
recording a number at or below the part's number. A late write by a stalled process is harmless: any later claim either
includes it or excludes it, and all readers agree. After claiming a study, a process lists the folder again. It rewrites
finished trials that its claim cut off, because their writer may have reported them as stored. Sealing a study for a
commit is also a claim, which fixes the set of parts.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from results import durable
from results.aliases import Strings
from results.bad_input import BadInput
from results.durable import Folder
from results.plans.trial_request import NO_REPEATS, Repeats, TrialRequest

MOST = 999_999  # maximum number of claims and of parts of a study, in six digits


class Part(NamedTuple):
    """The name of a part: its position in the study, and the claim under which it was written."""

    seq: int
    token: int

    @property
    def file(self) -> str:
        return f"part-{_digits(self.seq)}-{_digits(self.token)}.arrows"


class Listing(NamedTuple):
    """The names in a study's folder, sorted and grouped by kind.

    Attributes:
      plans: requested numbers of trials.
      confirms: requested repeats of the best trials.
      claims, commits, attempts: numbers of each.
      parts: all parts, whether or not they count.
      checkpoints: (trial, name) of each checkpoint.
      others: all other names.
    """

    plans: tuple[int, ...]
    confirms: tuple[Repeats, ...]
    claims: tuple[int, ...]
    commits: tuple[int, ...]
    parts: tuple[Part, ...]
    checkpoints: tuple[tuple[int, str], ...]
    attempts: tuple[int, ...]
    others: Strings

    @property
    def requests(self) -> list[TrialRequest]:
        """The requests for trials and for repeats of the best trials."""
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
    """Returns the commit number in the name of a record or a table, or None for other names."""
    match = _OF_COMMIT.fullmatch(name)
    return int(match[1]) if match else None


def table_file(table: str, number: int) -> str:
    """Returns the name of a commit's file: a table, or the envelope."""
    return f"{table}-{number:06d}.{'arrow' if table == 'envelope' else 'parquet'}"


def checkpoint_file(trial: int, index: int = 0, count: int = 1, step: int | None = None) -> str:
    """Returns the name of a trial's checkpoint from process ``index`` of ``count``.

    If names contain a step, the checkpoint is complete once there is a file from each process.
    """
    if step is not None:
        return f"checkpoint-{trial:09d}-{step}-{index}-of-{count}"
    return f"checkpoint-{trial:09d}" if count == 1 else f"checkpoint-{trial:09d}-{index}-of-{count}"


def complete_checkpoints(trial: int, names: Iterable[str]) -> list[tuple[int, int]]:
    """Returns (step, count) for each complete multi-part checkpoint of a trial, newest first."""
    parts_of_steps: dict[tuple[int, int], set[int]] = {}
    for match in filter(None, map(_PATTERNS["checkpoint"].fullmatch, names)):
        if match[2] and int(match[1]) == trial:
            parts_of_steps.setdefault((int(match[2]), int(match[4])), set()).add(int(match[3]))
    return sorted((key for key, parts in parts_of_steps.items() if parts == set(range(key[1]))), reverse=True)


def attempt_file(number: int) -> str:
    return f"attempt-{number}.log"


def _digits(number: int) -> str:
    """Formats a number with six digits. Raises BadInput for more digits, because ``listing`` would ignore the name."""
    if number > MOST:
        raise BadInput(f"a study holds at most {MOST:,} claims and parts. Merge it into another store.")
    return f"{number:06d}"


_PATTERNS = {  # by the first word of the name, whose plural is the field of ``Listing``
    "plan": re.compile(r"plan-([0-9]{9})\.json"),
    "confirm": re.compile(r"confirm-([0-9]{6})(?:-([0-9]{3}))?\.json"),
    "claim": re.compile(r"claim-([0-9]{6})\.json"),
    "commit": re.compile(r"commit-([0-9]{6})\.json"),
    "checkpoint": re.compile(r"checkpoint-([0-9]{9})(?:(?:-([0-9]+))?-([0-9]+)-of-([0-9]+))?"),
    "attempt": re.compile(r"attempt-([1-9][0-9]{0,5})\.log"),
    "part": re.compile(r"part-([0-9]{6})-([0-9]{6})\.arrows"),
}
_OF_COMMIT = re.compile(r"(?:commit|studies|trials|measurements|envelope)-([0-9]{6})\.(?:json|parquet|arrow)")


_MADE_OF: dict[str, Callable[..., Any]] = {
    "part": Part,
    "confirm": lambda confirm, top=1: Repeats(top, confirm),
}


def listing(names: Iterable[str]) -> Listing:
    """Lists the names in a study's folder by kind."""
    by_kind: dict[str, list] = {kind: [] for kind in Listing._fields}
    for name in sorted(names):
        word = name.partition("-")[0]
        match = _PATTERNS[word].fullmatch(name) if word in _PATTERNS else None
        if match is None:
            by_kind["others"].append(name)
            continue
        numbers = [int(digits) for digits in match.groups() if digits]
        if word == "checkpoint":
            by_kind["checkpoints"].append((numbers[0], name))
        else:
            by_kind[f"{word}s"].append(_MADE_OF[word](*numbers) if word in _MADE_OF else numbers[0])
    return Listing(**{kind: tuple(members) for kind, members in by_kind.items()})


def list_study(folder: Folder) -> Listing:
    """Lists a study's folder, which may be missing."""
    try:
        return listing(durable.system(folder).names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return listing(())


def counting_parts(parts: Iterable[Part], cutoffs: Mapping[int, int], merged: int) -> list[Part]:
    """Returns the parts that count after a commit, in order.

    Args:
      parts: all listed parts.
      cutoffs: cutoff of each claim, by claim number.
      merged: number of parts included in the commit.

    Raises:
      LookupError: a part in the middle is missing.
    """
    valid = surviving_parts(parts, cutoffs, merged)
    if [part.seq for part in valid] != list(range(merged, merged + len(valid))):
        raise LookupError(f"parts {[part.seq for part in valid]} are not consecutive from {merged}")
    return valid


def surviving_parts(parts: Iterable[Part], cutoffs: Mapping[int, int], merged: int) -> list[Part]:
    """Like ``counting_parts``, but parts may be missing."""
    return [
        part
        for part in sorted(parts)
        if part.seq >= max(merged, cutoffs.get(part.token, part.seq + 1))
        and all(part.seq < cutoff for number, cutoff in cutoffs.items() if number > part.token)
    ]
