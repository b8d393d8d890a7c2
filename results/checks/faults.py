"""Faults in files, and the findings of a check of a study's folder."""

import collections
import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from results import durable
from results.aliases import OnCount
from results.bad_input import BadInput, first_line, printable
from results.catalog.point_rows import Row
from results.durable import Folder
from results.plans.plan import Plan
from results.plans.trial_request import Repeats
from results.rules.ledger import Endings, Ledger
from results.storage import parts
from results.storage.commits import Commit
from results.storage.folders import Entry
from results.storage.parts import Listing, Part

OnBytes = OnCount

TORN = "is not what was written: torn, or a byte has changed"


class Fault(NamedTuple):
    """A fault in a file.

    Attributes:
      path: the file.
      what: description of the fault, as a predicate that follows the path.
      torn: whether the bytes differ from those that were written, so the content is meaningless. Envelopes written by
        older software count as torn too, because `repair` rebuilds them.
    """

    path: Folder
    what: str
    torn: bool = False

    @property
    def line(self) -> str:
        return printable(f"{self.path}: {self.what}")


class ClaimRecord(NamedTuple):
    """The content of a claim: its cutoff (a number of parts) and its purpose."""

    parts: int
    purpose: str


@dataclass
class Findings:
    """The findings of a check of a study's folder.

    Attributes:
      place: the checked folder or file, usually a study's folder.
      faults: faults, in the order in which they were found.
      leftovers: number of unnecessary but harmless files, by kind.
      files, bytes: number and total size of the checked files.
      ledger: ledger of the study, which includes uncommitted parts.
      listing: names in the study's folder.
      studies: studies with intact plans, by number of trials.
      confirms: intact requests for repeats of the best trials.
      claims: intact claims, by number.
      commit: newest commit whose files are all intact.
      parts: intact parts.
      endings: ending of every valid trial, by id.
      believed: number of envelopes that were checked only by hash, without rebuilding them.
      software: version of the software that wrote a release's documents, if it differs from this version.
      points: the points of a release's study, derived from its tables.
    """

    place: Folder
    faults: list[Fault] = field(default_factory=list)
    leftovers: collections.Counter[str] = field(default_factory=collections.Counter)
    files: int = 0
    bytes: int = 0
    ledger: Ledger | None = None
    listing: Listing = field(default_factory=lambda: parts.listing(()))
    studies: dict[int, Plan] = field(default_factory=dict)
    confirms: list[Repeats] = field(default_factory=list)
    claims: dict[int, ClaimRecord] = field(default_factory=dict)
    commit: Commit | None = None
    parts: list[Part] = field(default_factory=list)
    endings: Endings = field(default_factory=dict)
    believed: int = 0
    software: str | None = None
    points: list[Row] = field(default_factory=list)

    @property
    def cutoffs(self) -> dict[int, int]:
        """The cutoff of each intact claim (a number of parts), by claim number."""
        return {number: claim.parts for number, claim in self.claims.items()}

    @property
    def merged(self) -> int:
        """The number of parts in the commit."""
        return self.commit.parts if self.commit else 0

    @property
    def runs(self) -> frozenset[int] | None:
        """The possible claim numbers of runs. They are unknown if a claim is damaged."""
        if len(self.claims) < len(self.listing.claims):
            return None
        return frozenset(number for number, claim in self.claims.items() if claim.purpose != "commit")

    def fault(self, path: Folder, what: str, *, torn: bool = False) -> None:
        self.faults.append(Fault(path, what, torn))

    @contextlib.contextmanager
    def reading(self, path: Folder) -> Iterator[None]:
        """Turns an OSError into a fault in the file."""
        try:
            yield
        except OSError as error:
            self.fault(path, f"cannot be read ({error.strerror})")

    def temporary(self, path: Folder, entry: Entry) -> None:
        """Counts a temporary file as part of a write in progress, unless it is too old."""
        if time.time() - entry.modified > durable.LEFTOVER_SECONDS:
            self.fault(path, "was left by a killed process more than a day ago", torn=True)
        else:
            self.leftovers["temporary"] += 1


def brief(error: Exception) -> str:
    """Shortens an error to one line. Includes the name of its type unless the error is one of ours."""
    words = first_line(error)
    return (words if isinstance(error, BadInput) else f"{type(error).__name__}: {words}")[:160]


def symptom(error: BadInput, *subjects: object) -> str:
    """Returns the first sentence of an error, without a leading subject (such as a path) and the remedy."""
    text = str(error)
    for subject in subjects:
        text = text.removeprefix(f"{subject} ")
    return re.split(r"; |\. ", text)[0]
