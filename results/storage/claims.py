"""Claims: the right to write to a study, which is valid until the next claim. See ``results.storage.parts``."""

import contextlib
import datetime
import functools
import hashlib
import os
import socket
import uuid
from collections.abc import Iterable, Mapping

import pyarrow as pa

from results import durable
from results.aliases import Json
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.plan import Plan
from results.plans.trial_request import largest_request
from results.printing import quoted
from results.rules import ledger
from results.rules.ledger import Endings, TrialEnding
from results.storage import compaction, envelope, parts
from results.storage.commits import Commit, Tables, list_study, newest_commit, read_table, retry, to_frame
from results.storage.compaction import TABLES, Piece
from results.storage.parts import MOST, Listing, Part, claim_file, commit_file, commit_number, table_file

State = tuple[Listing, Commit | None, list[Part]]  # the listing, the newest commit, and the later parts that count


class TakenOver(Exception):
    """Raised if another process claimed the study. Earlier writes by this process count, and later ones do not."""


class Claim:
    """The right to write to a study until the next claim. Create it with ``results.store.claim``.

    Attributes:
      settled: ids of the trials that do not need to run again.
      number: claim number, which is also the token of its parts and the number of its run. It is set by the first
        write.
    """

    def __init__(self, store: Folder, name: str):
        self._folder, self._name = store / name, name

        def look() -> tuple[State, Endings]:
            found = state(store, name)
            return found, outcomes(self._folder, *found[1:])

        (self._listing, self._base, self._parts), trials = retry(look)
        self._next = len(self._parts) + (self._base.parts if self._base else 0)
        self._held: dict[Part, Piece] = {}  # parts written by this process, kept to avoid reading them
        self.number: int | None = None
        self.settled = ledger.settled_ids(trials)

    @property
    def visible(self) -> bool:
        """Whether a commit record includes all data that count."""
        return self._base is not None and not self._parts

    def tables(self) -> Tables:
        """The stored tables of the study, whether or not they are visible. Empty if nothing is stored."""
        return _frames(self._stored())

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """Stores finished trials with all their rows durably, as one part.

        Args:
          tables: studies (one row), trials and measurements, as built by ``results.plans.schema.build``.

        Raises:
          TakenOver: another process claimed the study.
        """
        if self.number is None:
            self.number = self._claim("run")
        self._write(compaction.with_run(Piece(**tables), self.number), self.number)

    def commit(self, study: Plan) -> None:
        """Merges the last commit and the later parts, and makes the result visible.

        Args:
          study: the requested study. The largest numbers of trials and repeats over all its requests count.

        Raises:
          TakenOver: another process claimed the study.
        """
        number = self._claim("commit")
        stored = self._stored()
        self._check_newest(number)
        before = [self._base.request] if self._base else []
        study = study.with_request(largest_request([study.request, *before, *self._listing.requests]))
        whole = compaction.merge(stored, study)
        durable.create(self._folder / commit_file(number), durable.seal(self._record(number, study, whole)))
        self._base = retry(self._newest)
        _remove_merged(self._base)
        self.number, self._parts, self._held = None, [], {}

    def _write(self, piece: Piece, number: int) -> None:
        part = Part(self._next, number)
        created = durable.create(self._folder / part.file, compaction.part_bytes(piece))
        assert created, part  # only this process writes under this token
        self._check_newest(number)
        self._next += 1
        self._parts.append(part)
        self._held[part] = piece

    def _adopt(self, number: int) -> None:
        """Rewrites stored parts that claim ``number`` cut off because they were written after it listed the folder.

        Their writer did not see a newer claim and reported them as stored. Only the newest such writer matters: when it
        took over, it rewrote the parts of earlier writers in the same way.
        """
        merged = self._base.parts if self._base else 0
        there = [part for part in list_study(self._folder).parts if part.seq >= merged and part.token < number]
        newest = max((part.token for part in there), default=0)
        pieces = []
        for part in sorted(part for part in there if part.token == newest and part not in self._parts):
            with contextlib.suppress(FileNotFoundError, Damaged):
                pieces.append(compaction.read_part(self._folder / part.file))
        if not pieces:
            return
        counting = ledger.settled_ids(join_endings(piece.trials for piece in self._stored()))
        if ids := ledger.settled_ids(join_endings(piece.trials for piece in pieces)) - counting:
            self._write(compaction.select_trials(compaction.merge(pieces), ids), number)

    def _stored(self) -> list[Piece]:
        """Reads all data that count. Retries if a stalled process has committed parts in the meantime."""

        def look() -> list[Piece]:
            try:
                return pieces(self._folder, self._base, self._parts, self._held)
            except FileNotFoundError:
                _, self._base, counting = state(self._folder.parent, self._name)
                self._parts = [part for part in counting if part.seq < self._next]
                raise

        return retry(look)

    def _record(self, number: int, study: Plan, whole: Piece) -> Json:
        """Writes the tables of a commit and returns its record."""
        request = study.request
        files = {
            table: self._file(table_file(table, number), compaction.parquet_bytes(content), len(content))
            for table, content in whole._asdict().items()
        }
        envelope_and_rows = envelope.build(study, whole, {table: file["sha256"] for table, file in files.items()})
        files["envelope"] = self._file(table_file("envelope", number), *envelope_and_rows)
        return {
            "name": self._name,
            "number": number,
            "parts": self._next,
            "schema": schema.SCHEMA_VERSION,
            "plan": study.plan(),
            "trials": request.trials,
            **(request.repeats.record() if request.repeats.confirm else {}),
            "files": files,
            "metrics": {f.name: str(f.type) for f in list(whole.measurements.schema)[len(schema.MEASUREMENTS) :]},
            "ledger": ledger.tally(request, join_endings([whole.trials]))._asdict(),
        }

    def _newest(self) -> Commit:
        """Returns the newest commit. Raises FileNotFoundError if one of its files is missing."""
        newest = newest_commit(self._folder.parent, self._name)
        assert newest is not None
        for file in newest.files.values():
            file.path.stat()
        return newest

    def _claim(self, purpose: str) -> int:
        number = max(self._listing.claims, default=0) + 1
        durable.make_folder(self._folder)
        if not durable.create(self._folder / claim_file(number), claim_bytes(number, self._next, purpose)):
            raise self._taken_over(number)
        self._listing = self._listing._replace(claims=(*self._listing.claims, number))
        self._adopt(number)
        return number

    def _check_newest(self, number: int) -> None:
        newest = max(list_study(self._folder).claims)
        if newest > number:
            raise self._taken_over(newest)

    def _taken_over(self, number: int) -> TakenOver:
        other = durable.read_sealed(self._folder / claim_file(number))
        return TakenOver(f"{self._name} was taken over by process {other.get('pid')} on {other.get('host')}")

    def _file(self, name: str, data: bytes | memoryview, rows: int) -> Json:
        durable.create(self._folder / name, data)
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "rows": rows}


def claim_bytes(number: int, parts: int, purpose: str) -> bytes:
    """Returns the content of this process's claim file. ``parts`` is the cutoff."""
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    who = {"host": socket.gethostname(), "pid": os.getpid(), "at": at, "token": uuid.uuid4().hex}
    return durable.seal({"claim": number, "parts": parts, "purpose": purpose, **who})


def state(store: Folder, name: str) -> State:
    """Returns the listing of a study's folder, the newest commit, and the later parts that count."""

    def look() -> State:
        listing = list_study(store / name)
        if len(listing.claims) != max(listing.claims, default=0):  # a listing is not a snapshot, so it missed a claim
            raise LookupError(f"some of the claims 1 to {max(listing.claims)} are missing")
        base = newest_commit(store, name)
        merged = base.parts if base else 0
        waiting = [part for part in listing.parts if part.seq >= merged]
        cutoffs = {number: _cutoff(store / name, number) for number in listing.claims} if waiting else {}
        return listing, base, parts.counting_parts(waiting, cutoffs, merged)

    try:
        return retry(look)
    except LookupError as error:
        raise Damaged(
            f"{store / name}: {error}. Repair it with `python -m results repair --store {quoted(store)}`."
        ) from None


def _cutoff(folder: Folder, number: int) -> int:
    path = folder / claim_file(number)
    parts = durable.read_sealed(path).get("parts")
    if type(parts) is not int or not 0 <= parts <= MOST:
        raise Damaged(f"{path} is not a claim. Check everything with `python -m results verify`.")
    return parts


def pieces(folder: Folder, base: Commit | None, parts: list[Part], in_memory: Mapping[Part, Piece]) -> list[Piece]:
    """Returns the tables of a commit and of parts. ``in_memory`` contains parts that do not have to be read."""
    committed_piece = [Piece(*(read_table(base, table) for table in TABLES))] if base else []
    return committed_piece + [in_memory.get(part) or compaction.read_part(folder / part.file) for part in parts]


def tables(folder: Folder, base: Commit | None, parts: list[Part]) -> Tables:
    """Returns the merged tables of a commit and of parts. If a trial occurs several times, the last copy counts."""
    return _frames(pieces(folder, base, parts, {}))


def _frames(stored: list[Piece]) -> Tables:
    import pandas as pd

    return Tables(*map(to_frame, compaction.merge(stored))) if stored else Tables(*[pd.DataFrame()] * 3)


def outcomes(folder: Folder, base: Commit | None, parts: list[Part]) -> Endings:
    """Returns the ending of every stored trial, by id. If a trial occurs several times, the last copy counts."""
    tables = [read_table(base, "trials")] if base else []
    tables += [compaction.read_part(folder / part.file).trials for part in parts]
    return join_endings(tables)


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


def remove_leftovers(folder: Folder) -> None:
    """Removes old files that are no longer needed: temporary files, and files replaced by a newer commit.

    Only commits older than the newest one are removed. Tables with a larger number belong to a writer that is still
    active, may have stalled, or has a different clock. They are removed only if all files of the newest commit exist
    and this commit is at least a day old, because an export may still be reading the previous one.
    """
    listing = list_study(folder)
    _remove_old(folder, [name for name in listing.others if name.startswith(durable.TEMPORARY)])
    newest = retry(lambda: newest_commit(folder.parent, folder.name))
    if newest is None or not all(file.path.exists() for file in newest.files.values()):
        return
    if not durable.is_leftover(folder / commit_file(newest.number)):
        return
    tables = [name for name in listing.others if (commit_number(name) or newest.number) < newest.number]
    _remove_old(folder, tables + [part.file for part in listing.parts if part.seq < newest.parts])
    _remove_old(folder, [commit_file(number) for number in listing.commits if number < newest.number])


def _remove_old(folder: Folder, names: list[str]) -> None:
    for name in names:
        if durable.is_leftover(folder / name):
            (folder / name).unlink(missing_ok=True)


def _remove_merged(newest: Commit) -> None:
    """Removes the parts that a commit includes. Readers that find a part missing retry, and then see the commit."""
    folder = newest.files["studies"].path.parent
    for part in list_study(folder).parts:
        if part.seq < newest.parts:
            (folder / part.file).unlink(missing_ok=True)
