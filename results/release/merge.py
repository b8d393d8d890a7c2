"""Merging stores and releases into a store: new results are added, existing ones kept, conflicts refused."""

import collections
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from results import durable, store
from results.bad_input import BadInput
from results.durable import Folder
from results.plans import schema
from results.plans.asked import most
from results.plans.plan import Plan
from results.release.incoming import MOST_CLAIMS, Incoming, called, checked, incoming, parquet_file
from results.release.union import Union, union
from results.storage import claims, commits, compaction
from results.storage.claims import TakenOver
from results.storage.commits import Commit
from results.storage.compaction import Piece, only
from results.storage.parts import claim_file, commit_file

MOST_LINES = 10

Outcome = Literal["new", "grown", "there"]


def merge(sources: Sequence[Folder], into: Folder, report: Callable[[str], None]) -> int:
    """Brings the studies of stores and releases into a store; 1 if there are none, else 0.

    A study that the store lacks is copied, byte for byte. One that it has takes the trials it lacks, those finished
    elsewhere that have yet to be run again here, and those that went further elsewhere. Everything is read and compared
    before anything is written.

    Args:
      sources: folders of stores, also of older schemas, and of releases.
      into: folder of the store.
      report: takes a line for the user.

    Raises:
      BadInput: a source is damaged, or a trial cannot be what two places say of it; see ``results.release.union``.
    """
    if isinstance(into, Path):
        store.check_writable(into)
    store.check_readable(into)
    found = [incoming(folder) for folder in sources]
    if not any(found):
        report(f"nothing to merge: no committed study in {', '.join(map(str, sources))}")
        return 1
    for folder, offers in zip(sources, found, strict=True):
        if waiting := sorted(set(store.names(folder)) - {offer.study.name for offer in offers.values()}):
            report(f"{folder}: left out, because nothing is committed: {waiting[0]} and {len(waiting) - 1} more")
    _check(sources, found, into, report)
    outcomes: collections.Counter[Outcome] = collections.Counter()
    try:
        for offer in tqdm(
            [offer for offers in found for offer in offers.values()], "merge", unit="study", disable=None
        ):
            outcomes[_bring(offer, into)] += 1
    except TakenOver as error:
        raise BadInput(f"{error}; what is merged so far is kept, and the same command continues from there") from None
    except OSError as error:
        raise BadInput(f"{into} cannot be written ({error.strerror}); the same command continues from there") from None
    report(f"{into}: studies: {outcomes['new']} new, {outcomes['grown']} grown, {outcomes['there']} already there")
    return 0


def _check(
    sources: Sequence[Folder], found: Sequence[dict[str, Incoming]], into: Folder, report: Callable[[str], None]
) -> None:
    """Raises BadInput, after a line for each fault, unless everything can be brought together."""
    faults: list[str] = []
    unfinished: list[str] = []
    gave_way = 0
    names = {plan: offer.study.name for offers in found for plan, offer in offers.items()}
    for plan in tqdm(sorted(names, key=lambda plan: names[plan]), "compare", unit="study", disable=None):
        offered = [
            (folder, called(offers[plan], into))
            for folder, offers in zip(sources, found, strict=True)
            if plan in offers
        ]
        name = offered[0][1].study.name
        held, where = _held(into, name), dict[int, Folder]()  # whose the trials are that came from a source
        for folder, offer in offered:
            store.check_same_plan(into, offer.study)
            if _is_same(into, offer.commit):
                continue
            theirs = compaction.merge(offer.runs(), offer.study)
            compared = union(held, theirs, offer.study) if held else Union(frozenset(_ids(theirs)))
            others = next(iter(where.values()), into)
            faults += [f"{name}: {clash.told(others, folder)}" for clash in compared.clashes]
            for trial, how in compared.conflicts.items():
                faults.append(f"{name}: trial {trial}: {how.told(where.get(trial, into), folder)}")
            for trial, how in compared.unfinished.items():
                kept = folder if trial in compared.take else where.get(trial, into)
                difference = f"trial {trial} is unfinished in both: {how.told(where.get(trial, into), folder)}"
                unfinished.append(f"{name}: {difference}; the one in {kept} is kept")
            gave_way += len(compared.finished)
            if not compared.conflicts and not compared.clashes:
                taken = only(theirs, compared.take)
                held = compaction.merge([held, taken] if held else [taken], offer.study)
                where |= dict.fromkeys(compared.take, folder)
    _report_some(faults or unfinished, report)
    if faults:
        raise BadInput(f"{len(faults)} conflicts, listed above; nothing was written. Leave out a source or fix it")
    if gave_way:
        report(f"{gave_way} trials due to be rerun were replaced by finished ones")


def _report_some(lines: Sequence[str], report: Callable[[str], None]) -> None:
    for line in lines[:MOST_LINES]:
        report(line)
    if len(lines) > MOST_LINES:
        report(f"and {len(lines) - MOST_LINES} more")


def _ids(piece: Piece) -> list[int]:
    return piece.trials["trial"].to_pylist()


def _bring(offer: Incoming, into: Folder) -> Outcome:
    offer = called(offer, into)
    study = offer.study
    if _is_same(into, offer.commit):
        return "there"
    if offer.commit is not None and 0 < offer.commit.number <= MOST_CLAIMS and _copy(offer.commit, study, into):
        return "new"
    held, runs = _held(into, study.name), offer.runs()
    take = frozenset(trial for run in runs for trial in _ids(run))
    if held is not None:
        compared = union(held, compaction.merge(runs, study), study)
        if compared.conflicts or compared.clashes:
            raise BadInput(f"{study.name} has changed in {into} since it was compared; start again")
        take = compared.take
    asked, waiting = store.planned(into, study.name), claims.state(into, study.name)[2]
    if not take and not waiting and asked is not None and most([asked.asked, study.asked]) == asked.asked:
        return "there"  # and visible: a merge that was killed leaves parts that nobody else would commit
    store.ask(into, study)
    for run in runs:
        wanted = only(run, take)
        if held is None or len(wanted.trials):
            with store.claim(into, study.name) as claim:  # anew, because a run is what is written under one claim
                claim.write(wanted._asdict())
    with store.claim(into, study.name) as claim:
        claim.commit(study)
    return "new" if held is None else "grown"


def _held(into: Folder, name: str) -> Piece | None:
    """The tables of a study in the store, with parts that no commit record lists yet."""
    _, base, parts = claims.state(into, name)
    pieces = claims.pieces(into / name, base, parts, {})
    return compaction.merge(pieces) if pieces else None


def _is_same(into: Folder, theirs: Commit | None) -> bool:
    """Whether the store has the very files of a commit."""
    ours = commits.committed(into, theirs.name) if theirs else None
    if ours is None or theirs is None or most([ours.asked, theirs.asked]) != ours.asked:
        return False
    return all(ours.files[table].sha256 == theirs.files[table].sha256 for table in compaction.TABLES)


def _copy(theirs: Commit, study: Plan, into: Folder) -> bool:
    """Copies a study the store has nothing of, file by file; False, and nothing done, if it has something.

    The study keeps the number it was sealed under, because its runs are numbered by the claims before; these are made
    for them here. Its parts stay behind, so that claims and record say that they hold none: wherever this stops, those
    who write next find what they count.
    """
    data = checked(theirs)
    version = schema.version(parquet_file(data["studies"], "studies", theirs.files["studies"].path).schema_arrow)
    folder = into / study.name
    with store.claim(into, study.name):
        listing, base, parts = claims.state(into, study.name)
        if base is not None or parts:
            return False
        store.ask(into, study)
        number = max(theirs.number, len(listing.claims) + 1)
        for claim in range(1, number + 1):
            created = durable.create(folder / claim_file(claim), claims.claim_bytes(claim, 0, "merge"))
        if not created:
            raise TakenOver(f"{study.name} was taken over by another process")
        names = {table: f"{table}-{number:06d}{file.path.suffix}" for table, file in theirs.files.items()}
        for table, name in names.items():
            durable.create(folder / name, data[table])
        asked = most([theirs.asked, *listing.asked])
        further = asked.planned - theirs.asked.planned
        counted = theirs.ledger._replace(
            planned=theirs.ledger.planned + further, missing=theirs.ledger.missing + further
        )
        sealed = theirs._replace(number=number, parts=0, trials=asked.trials, repeats=asked.repeats, ledger=counted)
        durable.create(folder / commit_file(number), durable.seal(commits.record_of(sealed, version, names)))
        if max(commits.listed(folder).claims) > number:  # whoever claimed meanwhile may not have seen the record
            raise TakenOver(f"{study.name} was taken over by another process")
    return True
