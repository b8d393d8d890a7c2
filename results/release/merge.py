"""Merges stores and releases into a store: adds new results, keeps existing ones and rejects conflicts."""

import collections
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
from tqdm import tqdm

from results import bounds, durable, store
from results.bad_input import BadInput
from results.durable import Folder, Location
from results.grouping import grouped
from results.plans import schema
from results.plans.plan import Plan
from results.plans.trial_request import largest_request
from results.printing import Report, report_some
from results.release.incoming import MOST_CLAIMS, Incoming, files_checked, incoming
from results.release.union import Union, union
from results.storage import claims, commit_records, commits, compaction
from results.storage.claims import TakenOver
from results.storage.commits import Commit, read_state
from results.storage.compaction import Piece, select_trials
from results.storage.parts import claim_file, commit_file, table_file

MergeResult = Literal["new", "grown", "present"]


def merge(sources: Sequence[Location], into: Location, report: Report) -> int:
    """Merges the studies of stores and releases into a store.

    A study missing from the store is copied byte for byte. To an existing study, the merge adds missing trials, trials
    that ran longer in a source, and trials that are finished in a source but would have to be rerun here. All sources
    are read and compared before anything is written.

    Args:
      sources: stores and releases.
      into: the destination store.
      report: called with lines for the user.

    Returns:
      0, or 1 if the sources have no studies.

    Raises:
      BadInput: a source is damaged, or two of the stores and releases contradict each other on a trial. See
        ``results.release.union``.
    """
    folders = [durable.location(source) for source in sources]
    into = durable.location(into)
    store.check_destination(into)
    offers = [offer for folder in folders for offer in incoming(folder, into)]
    if not offers:
        report(f"nothing to merge: no committed study in {', '.join(map(str, folders))}")
        return 1
    for folder in folders:
        if waiting := sorted(
            set(store.names(folder)) - {offer.commit.name for offer in offers if offer.source == folder}
        ):
            report(f"{folder}: skipped studies without a commit: {waiting[0]} and {len(waiting) - 1} more")
    _check(offers, into, report)
    outcomes = collections.Counter[MergeResult]()
    try:
        for offer in tqdm(offers, "merge", unit="study", disable=None):
            outcomes[_merge_study(offer, into)] += 1
    except TakenOver as error:
        raise BadInput(f"{error}. Run the same command again to continue.") from None
    except OSError as error:
        raise BadInput(
            f"{into} cannot be written ({error.strerror}). Fix that and run the same command again to continue."
        ) from None
    report(f"{into}: studies: {outcomes['new']} new, {outcomes['grown']} grown, {outcomes['present']} already present")
    return 0


def _check(offers: Sequence[Incoming], into: Folder, report: Report) -> None:
    """Raises BadInput, after reporting each conflict, if the sources and the store contradict each other."""
    faults = []
    unfinished = []
    gave_way = 0
    rivals = sorted(grouped(offers, lambda offer: offer.study.plan_json).values(), key=lambda same: same[0].study.name)
    for same_study in tqdm(rivals, "compare", unit="study", disable=None):
        name = same_study[0].study.name
        stored, origin = _stored_tables(into, name), dict[int, Folder]()  # the source of each trial that is not ours
        for offer in same_study:
            source, study = offer.source, offer.study
            store.check_same_plan(into, study)
            if _is_same(into, offer):
                continue
            offered = compaction.merge(offer.runs(), study)
            comparison = union(stored, offered, study) if stored else Union(frozenset(_ids(offered)))
            first_origin = next(iter(origin.values()), into)
            faults += [f"{name}: {clash.describe(first_origin, source)}" for clash in comparison.clashes]
            for trial, difference in comparison.conflicts.items():
                faults.append(f"{name}: trial {trial}: {difference.describe(origin.get(trial, into), source)}")
            for trial, difference in comparison.unfinished.items():
                place = origin.get(trial, into)
                kept = source if trial in comparison.take else place
                line = f"{name}: trial {trial} is unfinished in both: {difference.describe(place, source)}"
                unfinished.append(f"{line}; the one in {kept} is kept")
            gave_way += len(comparison.finished)
            if not comparison.conflicts and not comparison.clashes:
                additions = select_trials(offered, comparison.take)
                stored = compaction.merge([stored, additions] if stored else [additions], study)
                origin |= dict.fromkeys(comparison.take, source)
    report_some(faults or unfinished, report)
    if faults:
        raise BadInput(f"{len(faults)} conflicts, listed above. Nothing was written. Leave out a source or fix it.")
    if gave_way:
        report(f"{gave_way} trials to rerun were replaced by finished ones")


def _ids(piece: Piece) -> list[int]:
    return piece.trials["trial"].to_pylist()


def _merge_study(offer: Incoming, into: Folder) -> MergeResult:
    study, commit = store.with_stored_name(into, offer.study), offer.commit  # an earlier study may have taken the name
    offer = offer._replace(study=study)
    if _is_same(into, offer):
        return "present"
    if not offer.is_renamed and 0 < commit.number <= MOST_CLAIMS and _copy_study(commit, study, into):
        return "new"
    stored, runs = _stored_tables(into, study.name), offer.runs()
    take = frozenset(trial for run in runs for trial in _ids(run))
    if stored is not None:
        comparison = union(stored, compaction.merge(runs, study), study)
        if comparison.conflicts or comparison.clashes:
            raise BadInput(f"{study.name} has changed in {into} since it was compared. Run the command again.")
        take = comparison.take
    state = read_state(into, study.name)
    base = state.base
    if not take and not state.parts and base and largest_request([base.request, study.request]) == base.request:
        return "present"  # and visible; a killed merge leaves parts that only the next merge commits
    store.ask(into, study)
    for run in runs:
        addition = select_trials(run, take)
        if stored is None or len(addition.trials):
            with store.claim(into, study.name) as claim:  # every run needs its own claim
                claim.write(addition._asdict())
    with store.claim(into, study.name) as claim:
        claim.commit(study)
    return "new" if stored is None else "grown"


def _stored_tables(into: Folder, name: str) -> Piece | None:
    """Returns the tables of a study in the store, including uncommitted parts."""
    pieces = read_state(into, name).pieces()
    return compaction.merge(pieces) if pieces else None


def _is_same(into: Folder, offer: Incoming) -> bool:
    """Returns whether the store has the same files as the commit record of an offered study."""
    stored, offered = commits.newest_commit(into, offer.commit.name), offer.commit
    if offer.is_renamed or stored is None:
        return False
    if largest_request([stored.request, offered.request]) != stored.request:
        return False
    return all(stored.files[table].sha256 == offered.files[table].sha256 for table in compaction.TABLES)


def _copy_study(commit: Commit, study: Plan, into: Folder) -> bool:
    """Copies a study file by file. If the store has its results or a larger request, writes nothing and returns False.

    The study keeps its commit number, because its runs have the numbers of earlier claims. These claims are created in
    the store. Parts are not copied, so the claims and the record contain a part count of 0. If copying is interrupted,
    later writers always find a consistent state.
    """
    commit, data = files_checked(commit)
    version = schema.version(bounds.Parquet(pa.BufferReader(data["studies"])).schema_arrow)
    folder = into / study.name
    with store.claim(into, study.name):
        listing, base, parts = read_state(into, study.name)[1:]
        if base is not None or parts or largest_request([commit.request, *listing.requests]) != commit.request:
            return False
        store.ask(into, study)
        number = max(commit.number, len(listing.claims) + 1)
        for claim in range(1, number + 1):
            created = durable.create(folder / claim_file(claim), claims.claim_bytes(claim, 0, "merge"))
        if not created:
            raise TakenOver(f"{study.name} was taken over by another process")
        files = {table: f._replace(path=folder / table_file(table, number)) for table, f in commit.files.items()}
        for table, file in files.items():
            durable.create(file.path, data[table])
        record = commit_records.record_of(commit._replace(number=number, parts=0, files=files), version)
        durable.create(folder / commit_file(number), durable.seal(record))
        if max(commits.list_study(folder).claims) > number:  # a newer claim may have missed the record
            raise TakenOver(f"{study.name} was taken over by another process")
    return True
