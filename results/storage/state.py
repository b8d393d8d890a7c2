"""The state of a study in a store: its newest commit, and the later parts that count."""

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from results import durable
from results.durable import Damaged, Folder
from results.printing import quoted
from results.rules.ledger import Endings, TrialEnding
from results.storage import compaction, parts
from results.storage.commits import Commit, Tables, list_study, newest_commit, read_table, retry, to_frame
from results.storage.compaction import TABLES, Piece
from results.storage.parts import MOST, Listing, Part, claim_file


class StudyState(NamedTuple):
    """The data of a study that count, whether or not they are visible.

    Attributes:
      folder: the study's folder.
      listing: names in the folder.
      base: the newest commit, if there is one.
      parts: the later parts that count, in order.
    """

    folder: Folder
    listing: Listing
    base: Commit | None
    parts: list[Part]

    @property
    def next_part(self) -> int:
        """The number of the next part, which is the number of parts so far."""
        return (self.base.parts if self.base else 0) + len(self.parts)

    @property
    def visible(self) -> bool:
        """Whether a commit record includes all data that count."""
        return self.base is not None and not self.parts

    def pieces(self, held: Mapping[Part, Piece] = {}) -> list[Piece]:
        """Returns the tables of the commit and of each part. ``held`` contains parts that do not have to be read."""
        committed = [Piece(*(read_table(self.base, table) for table in TABLES))] if self.base else []
        return committed + [held.get(part) or compaction.read_part(self.folder / part.file) for part in self.parts]

    def stored(self, table: str) -> list[pa.Table]:
        """Returns one of the tables, of the commit and of each part."""
        committed = [read_table(self.base, table)] if self.base else []
        return committed + [getattr(compaction.read_part(self.folder / part.file), table) for part in self.parts]

    def endings(self) -> Endings:
        """Returns the ending of every trial, by id. If a trial occurs several times, the last copy counts."""
        return join_endings(self.stored("trials"))


def read_state(store: Folder, name: str) -> StudyState:
    """Reads the state of a study. Raises Damaged if a part or a claim is missing."""
    folder = store / name

    def look() -> StudyState:
        listing = list_study(folder)
        newest = max(listing.claims, default=0)
        if len(listing.claims) != newest:  # a listing is not a snapshot, so it missed a claim
            raise LookupError(f"some of the claims 1 to {newest} are missing")
        base = newest_commit(store, name)
        merged = base.parts if base else 0
        waiting = [part for part in listing.parts if part.seq >= merged]
        cutoffs = {number: _cutoff(folder / claim_file(number)) for number in listing.claims} if waiting else {}
        return StudyState(folder, listing, base, parts.counting_parts(waiting, cutoffs, merged))

    try:
        return retry(look)
    except LookupError as error:
        remedy = f"Repair it with `python -m results repair --store {quoted(store)}`."
        raise Damaged(f"{folder}: {error}. {remedy}") from None


def _cutoff(path: Folder) -> int:
    cutoff = durable.read_sealed(path).get("parts")
    if type(cutoff) is not int or not 0 <= cutoff <= MOST:
        raise Damaged(f"{path} is not a claim. Check everything with `python -m results verify`.")
    return cutoff


def frames(pieces: list[Piece]) -> Tables:
    """Merges pieces into data frames. Empty if there are no pieces."""
    import pandas as pd

    return Tables(*map(to_frame, compaction.merge(pieces))) if pieces else Tables(*[pd.DataFrame()] * 3)


def join_endings(tables: Iterable[pa.Table]) -> Endings:
    """Returns the ending of every trial in some trials tables, by id. The last copy of a trial counts."""
    endings: Endings = {}
    ending = functools.cache(TrialEnding)  # there are few distinct ones
    for table in tables:
        fields = (table[name].to_numpy() for name in TrialEnding._fields)
        for trial, how in zip(table["trial"].to_pylist(), map(ending, *fields), strict=True):
            endings.pop(trial, None)  # the dictionary keeps the order in which trials were stored
            endings[trial] = how
    return endings
