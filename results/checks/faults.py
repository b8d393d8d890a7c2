"""Faults of files, and the findings of checking a study's folder."""

import collections
import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from results import durable
from results.bad_input import BadInput, printable
from results.catalog.point_rows import Row
from results.durable import Folder
from results.plans.plan import Plan
from results.plans.trial_request import Repeats
from results.rules.ledger import Ledger, TrialEnding
from results.storage.commits import Commit
from results.storage.folders import Entry
from results.storage.parts import Part

OnBytes = Callable[[int], None]

TORN = "is not what was written: torn, or a byte has changed"
CHUNK = 1 << 18  # stays in a processor's cache between being read and being hashed


class Fault(NamedTuple):
    """A fault of a file; ``torn`` if its bytes are not those written, so that its content is meaningless.

    An envelope as older software made it counts as torn, too: repair makes it again.
    """

    path: Folder
    what: str
    torn: bool = False

    @property
    def line(self) -> str:
        return printable(f"{self.path}: {self.what}")


class ClaimRecord(NamedTuple):
    """The content of a claim: its cut-off and its purpose."""

    parts: int
    purpose: str


@dataclasses.dataclass
class Findings:
    """The findings of checking a study's folder.

    Attributes:
      place: the study's folder, or another that was looked at.
      faults: in the order they were met.
      leftovers: how many files there are that nobody needs, and that are no fault, by kind.
      files, bytes: that were looked at.
      ledger: of the study, with the parts that no commit holds yet.
      plans, studies: that are intact, by their number of trials.
      confirms: what repeats of the best trials were asked for, by what is intact.
      claims: that are intact, by their number.
      commit: the newest that is intact with all its files.
      parts: that are intact.
      endings: how every trial that counts ended, by its id.
      believed: how many envelopes were trusted by their hashes, and not rebuilt.
      software: that wrote the documents of a release, if it is another version than this.
      points: of a study of a release, the rows that its tables tell of its points.
    """

    place: Folder
    faults: list[Fault] = dataclasses.field(default_factory=list)
    leftovers: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    files: int = 0
    bytes: int = 0
    ledger: Ledger | None = None
    plans: dict[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    studies: dict[int, Plan] = dataclasses.field(default_factory=dict)
    confirms: list[Repeats] = dataclasses.field(default_factory=list)
    claims: dict[int, ClaimRecord] = dataclasses.field(default_factory=dict)
    commit: Commit | None = None
    parts: list[Part] = dataclasses.field(default_factory=list)
    endings: dict[int, TrialEnding] = dataclasses.field(default_factory=dict)
    believed: int = 0
    software: str | None = None
    points: list[Row] = dataclasses.field(default_factory=list)

    def fault(self, path: Folder, what: str, *, torn: bool = False) -> None:
        self.faults.append(Fault(path, what, torn))

    def temporary(self, path: Folder, entry: Entry) -> None:
        """Counts a temporary file as that of an active writer, unless it is too old."""
        if time.time() - entry.modified > durable.LEFTOVER_SECONDS:
            self.fault(path, "was left by a killed process more than a day ago", torn=True)
        else:
            self.leftovers["temporary"] += 1


def sha256(path: Folder, on_bytes: OnBytes, until: int | None = None) -> str:
    """The hash of a file, or of its first ``until`` bytes, as hex."""
    digest, buffer, remaining = hashlib.sha256(), memoryview(bytearray(CHUNK)), until
    with open(path, "rb", buffering=0) if isinstance(path, Path) else path.open("rb") as stream:
        file: Any = stream
        while count := file.readinto(buffer if remaining is None or remaining > CHUNK else buffer[:remaining]):
            digest.update(buffer[:count])
            on_bytes(count)
            remaining = None if remaining is None else remaining - count
    return digest.hexdigest()


def brief(error: Exception) -> str:
    """An error in a few words, with the name of its type unless it is our own."""
    words = (str(error).splitlines() or [""])[0]
    return (words if isinstance(error, BadInput) else f"{type(error).__name__}: {words}")[:160]
