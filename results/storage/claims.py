"""Claims: the right to write to a study, which is valid until the next claim. See ``results.storage.parts``."""

import contextlib
import datetime
import os
import socket
import uuid
from collections.abc import Mapping

import pyarrow as pa

from results import durable
from results.aliases import Json
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.plan import Plan
from results.plans.trial_request import largest_request
from results.rules import ledger
from results.rules.ledger import Endings
from results.storage import commit_records, compaction, envelope
from results.storage.commits import (
    Commit,
    StudyState,
    Tables,
    frames,
    join_endings,
    list_study,
    newest_commit,
    read_state,
    retry,
)
from results.storage.compaction import Piece
from results.storage.parts import Part, claim_file, commit_file, commit_number


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
        def look() -> tuple[StudyState, Endings]:
            state = read_state(store, name)
            return state, state.endings()

        self._state, endings = retry(look)
        self._folder, self._next = self._state.folder, self._state.next_part
        self._held: dict[Part, Piece] = {}  # parts written by this process, kept to avoid reading them
        self.number: int | None = None
        self.settled = ledger.settled_ids(endings)

    @property
    def visible(self) -> bool:
        """Whether a commit record includes all data that count."""
        return self._state.visible

    def tables(self) -> Tables:
        """The stored tables of the study, whether or not they are visible. Empty if nothing is stored."""
        return frames(self._stored())

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
        before = [self._state.base.request] if self._state.base else []
        study = study.with_request(largest_request([study.request, *before, *self._state.listing.requests]))
        tables = compaction.merge(stored, study)
        durable.create(self._folder / commit_file(number), durable.seal(self._record(number, study, tables)))
        newest = retry(self._newest)
        self._state = self._state._replace(base=newest, parts=[])
        self.number, self._held = None, {}
        for part in list_study(self._folder).parts:  # readers that find a part missing retry, and then see the commit
            if part.seq < newest.parts:
                (self._folder / part.file).unlink(missing_ok=True)

    def _write(self, piece: Piece, number: int) -> None:
        part = Part(self._next, number)
        created = durable.create(self._folder / part.file, compaction.part_bytes(piece))
        assert created, part  # only this process writes under this token
        self._check_newest(number)
        self._next += 1
        self._state.parts.append(part)
        self._held[part] = piece

    def _adopt(self, number: int) -> None:
        """Rewrites stored parts that claim ``number`` cut off because they were written after it listed the folder.

        Their writer did not see a newer claim and reported them as stored. Only the newest such writer matters: when it
        took over, it rewrote the parts of earlier writers in the same way.
        """
        merged = self._state.base.parts if self._state.base else 0
        waiting = [part for part in list_study(self._folder).parts if part.seq >= merged and part.token < number]
        newest = max((part.token for part in waiting), default=0)
        pieces = []
        for part in sorted(part for part in waiting if part.token == newest and part not in self._state.parts):
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
                return self._state.pieces(self._held)
            except FileNotFoundError:
                state = read_state(self._folder.parent, self._folder.name)
                counting = [part for part in state.parts if part.seq < self._next]
                self._state = self._state._replace(base=state.base, parts=counting)
                raise

        return retry(look)

    def _record(self, number: int, study: Plan, tables: Piece) -> Json:
        """Writes the tables of a commit and returns its record."""
        files, contents = envelope.commit_files(study, tables, self._folder, number)
        for table, content in contents.items():
            durable.create(files[table].path, content)
        endings = join_endings([tables.trials])
        columns = tables.measurements.schema
        commit = commit_records.new_commit(self._folder, number, self._next, study, files, columns, endings)
        return commit_records.record_of(commit, schema.SCHEMA_VERSION)

    def _newest(self) -> Commit:
        """Returns the newest commit. Raises FileNotFoundError if one of its files is missing."""
        newest = newest_commit(self._folder.parent, self._folder.name)
        assert newest is not None
        for file in newest.files.values():
            file.path.stat()
        return newest

    def _claim(self, purpose: str) -> int:
        listing = self._state.listing
        number = max(listing.claims, default=0) + 1
        durable.make_folder(self._folder)
        if not durable.create(self._folder / claim_file(number), claim_bytes(number, self._next, purpose)):
            raise self._taken_over(number)
        self._state = self._state._replace(listing=listing._replace(claims=(*listing.claims, number)))
        self._adopt(number)
        return number

    def _check_newest(self, number: int) -> None:
        newest = max(list_study(self._folder).claims)
        if newest > number:
            raise self._taken_over(newest)

    def _taken_over(self, number: int) -> TakenOver:
        claim = durable.read_sealed(self._folder / claim_file(number))
        return TakenOver(f"{self._folder.name} was taken over by process {claim.get('pid')} on {claim.get('host')}")


def claim_bytes(number: int, parts: int, purpose: str) -> bytes:
    """Returns the content of this process's claim file. ``parts`` is the cutoff."""
    claim = {"claim": number, "parts": parts, "purpose": purpose}
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    writer = {"host": socket.gethostname(), "pid": os.getpid(), "at": time, "token": uuid.uuid4().hex}
    return durable.seal(claim | writer)


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
