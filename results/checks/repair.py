"""Repairs a store: rebuilds torn files from other files if possible, and drops the remaining ones.

All intact files of a study are kept. The next sweep or import of the study adds the missing trials.

- A torn or missing commit record is rebuilt from its tables if the hashes in its envelope match them.
- Otherwise, it is dropped. A record that lists a torn or missing table is dropped too. The previous commit, if it still
  exists, becomes valid again, along with the parts written since. The dropped commit's tables are kept, but cannot be
  verified.
- A torn envelope is dropped, and the study is committed again with the same tables and a new envelope.
- A torn part that counts is replaced by an empty part, because part numbers must not have gaps.
- A torn claim is rebuilt from its number and the names of the other files in the folder. A new claim then stops all
  processes that were writing before the repair.
- A torn plan is rebuilt from another plan, a commit or a part. If this is not possible, it is dropped.
- A request for repeats of the best trial is rebuilt from its name.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from results import durable, store
from results.aliases import Fields, Json, StringMap
from results.bad_input import BadInput, number_of, printable
from results.checks import commit_checks, release_checks, study_checks, verify
from results.checks.commit_checks import study_of
from results.checks.faults import Findings
from results.durable import Folder
from results.located import located
from results.plans import schema
from results.plans.trial_request import NO_REPEATS, TrialRequest
from results.printing import Report
from results.storage import compaction, parts
from results.storage.claims import Claim, claim_bytes
from results.storage.commits import commit_of, list_study
from results.storage.compaction import Piece
from results.storage.folders import entries
from results.storage.parts import Listing, Part, claim_file, commit_file, commit_number, plan_file, table_file

MOST_ANEW = 10_000  # maximum number of files to rebuild; a study that lacks more must be fetched again


EMPTY = Piece(*(schema.build(columns, {}, {}) for columns in schema.COLUMNS.values()))


Torn = StringMap  # description of the fault, by file name


class Action(NamedTuple):
    """A completed repair: a line for the user, and whether earlier writers must be stopped."""

    line: str
    fence: bool = False


class PlanRequest(NamedTuple):
    """A plan and the requested number of trials."""

    plan: Fields
    trials: int


@located
def run(folder: Folder, report: Report) -> int:
    """Repairs a store. Prints one line for every dropped or rebuilt file, and one for every remaining fault.

    Args:
      folder: the store.
      report: called with progress messages.

    Returns:
      0 if no faults remain, else 1. No torn files remain in either case.

    Raises:
      BadInput: the store is not on this machine, or it is a release, which never changes.
    """
    if not durable.system(folder).is_local:
        raise BadInput(f"{folder} is not on this machine. Copy it here, repair it and copy it back.")
    if release_checks.is_release({entry.name for entry in entries(folder)}):
        raise BadInput(f"{folder} is a release, which never changes. Fetch or export it again.")
    before = verify.examine(folder, report)
    count = 0
    for findings in before:
        if findings.place == folder:
            lines = _repair_around(findings)
        else:
            lines = _repair_study(Path(str(folder)) / findings.place.name, findings, report)
        for line in lines:
            print(printable(line))
            count += 1
    after = verify.examine(folder, report) if count else before
    remaining = [fault for findings in after for fault in findings.faults]
    for fault in remaining:
        print(f"{fault.line}; not repaired, because repair drops only torn files")
    left = number_of(len(remaining), "fault") if remaining else "no faults"
    print(f"{number_of(count, 'file')} dropped or rebuilt; {left} left")
    return 1 if remaining else 0


def _repair_around(findings: Findings) -> Iterator[str]:
    """Drops torn files in the store's own folder."""
    for fault in findings.faults:
        if fault.torn:
            fault.path.unlink(missing_ok=True)
            yield f"{fault.path}: dropped; it {fault.what}"


def _repair_study(folder: Path, findings: Findings, report: Report) -> Iterator[str]:
    """Repairs a study until there are no torn files. Waits for the study's lock, because writers hold it."""
    if not any(fault.torn for fault in findings.faults):
        return
    if any(fault.torn and fault.path == folder for fault in findings.faults) and _is_bare(folder):
        yield from _remove_folder(folder)
        return
    if store.is_running(folder.parent, folder.name):
        report(f"waiting for the process that writes {printable(folder)}")
    with store.lock(folder.parent, folder.name):
        for fault in findings.faults:
            if fault.path == folder / study_checks.LOCK and fault.torn:
                os.truncate(folder / study_checks.LOCK, 0)  # a regular file, because it could be locked
                yield f"{fault.path}: emptied; it {fault.what}"
        fence = False
        while actions := list(_round(folder, study_checks.check(folder))):
            yield from (action.line for action in actions)
            fence |= any(action.fence for action in actions)
        after = study_checks.check(folder)
        newest = max(after.claims, default=0)
        fence |= newest > 0 and after.claims[newest].parts > _count(after, list_study(folder))
        fence |= any(fault.torn and fault.path == folder / commit_file(newest) for fault in after.faults)
        if fence:
            yield from _add_fence(folder, after)
        yield from _envelopes(folder, after)


def _round(folder: Path, findings: Findings) -> list[Action]:
    """Runs one round of repairs. Faults that this round uncovers are handled in the next round."""
    listing = list_study(folder)
    torn = {fault.path.name: fault.what for fault in findings.faults if fault.torn and fault.path.parent == folder}
    plan = _plan(folder, findings, listing)
    actions = [*_plans(folder, torn, listing, plan), *_confirms(folder, torn)]
    actions += [*_claims(folder, findings, listing), *_records(folder, findings, torn, listing, plan)]
    actions = actions or list(_commits(folder, torn))
    actions = actions or list(_parts(folder, findings, torn, listing, plan))
    return actions or list(_holes(folder, findings, listing) if plan else ())


def _plans(folder: Path, torn: Torn, listing: Listing, plan: PlanRequest | None) -> Iterator[Action]:
    """Repairs temporary files and plans."""
    for name, what in torn.items():
        path = folder / name
        if name.startswith(durable.TEMPORARY):
            path.unlink(missing_ok=True)
            yield Action(f"{path}: dropped; it {what}")
        elif parts.listing([name]).plans:
            if plan:
                durable.replace(path, durable.seal({"trials": parts.listing([name]).plans[0], "plan": plan.plan}))
            else:
                path.unlink(missing_ok=True)
            yield Action(f"{path}: {'rebuilt' if plan else 'dropped, because no other file has the plan'}; it {what}")
    if plan and plan.trials not in listing.plans and plan_file(plan.trials) not in torn:
        path = folder / plan_file(plan.trials)
        durable.create(path, durable.seal({"trials": plan.trials, "plan": plan.plan}))
        yield Action(f"{path}: rebuilt; it was missing")


def _confirms(folder: Path, torn: Torn) -> Iterator[Action]:
    """Rebuilds requests for repeats from their names."""
    for name, what in torn.items():
        for repeats in parts.listing([name]).confirms:
            durable.replace(folder / name, durable.seal(repeats.record()))
            yield Action(f"{folder / name}: rebuilt; it {what}")


def _claims(folder: Path, findings: Findings, listing: Listing) -> Iterator[Action]:
    """Rebuilds torn or missing claims with their cutoffs, newest first."""
    cutoffs = findings.cutoffs
    untouched = {fault.path.name for fault in findings.faults if not fault.torn}  # intact, so they are kept
    torn = [number for number in listing.claims if number not in cutoffs and claim_file(number) not in untouched]
    numbers = sorted([*torn, *study_checks.missing_claims(listing)], reverse=True)
    for number in numbers if len(numbers) <= MOST_ANEW else []:
        seqs = [part.seq for part in listing.parts if part.token == number]
        purpose = "run" if seqs else "repair"
        path = folder / commit_file(number)
        if number in listing.commits and (record := _record(path)) is not None:
            cutoff, purpose = commit_of(record, folder, path).parts, "commit"
        elif seqs:
            cutoff = min(seqs)  # the number of the first part under a claim is its cutoff
        elif number + 1 in cutoffs:
            cutoff = cutoffs[number + 1]  # the claim wrote no parts, so the next one has the same cutoff
        else:
            cutoff = _count(findings, listing)
        cutoffs[number] = cutoff
        path = folder / claim_file(number)
        was = "was torn" if path.exists() else "was missing"
        durable.replace(path, claim_bytes(number, cutoff, purpose))
        yield Action(f"{path}: rebuilt with a cutoff of {cutoff} parts; it {was}", fence=True)


def _records(
    folder: Path, findings: Findings, torn: Torn, listing: Listing, plan: PlanRequest | None
) -> Iterator[Action]:
    """Rebuilds the newest commit record if it is torn or missing."""
    for number in sorted(findings.claims, reverse=True):
        path, claim = folder / commit_file(number), findings.claims[number]
        if number in listing.commits and path.name not in torn:
            return  # older records were replaced
        is_lost = path.name in torn or _count(findings, listing) < claim.parts
        if plan is None or not is_lost or claim.purpose not in ("commit", "merge"):
            continue
        for request in _possible_requests(plan, listing):
            runs = commit_checks.runs(listing, findings)
            record = commit_checks.rebuild_record(folder, number, claim.parts, plan.plan, request, runs)
            if record is not None:
                durable.replace(path, durable.seal(record))
                what = torn.get(path.name, "was missing")
                yield Action(f"{path}: rebuilt from its tables and envelope; it {what}")
                return


def _possible_requests(plan: PlanRequest, listing: Listing) -> list[TrialRequest]:
    """Returns every request that a commit may have fulfilled, largest first."""
    trials = sorted({plan.trials, *listing.plans}, reverse=True)
    confirms = sorted({NO_REPEATS, *listing.confirms}, reverse=True)
    return [TrialRequest(count, repeats) for count in trials for repeats in confirms]


def _commits(folder: Path, torn: Torn) -> Iterator[Action]:
    """Drops torn commit records, and those that list a torn or missing file."""
    for name, what in torn.items():
        number = commit_number(name)
        if number is None or name == table_file("envelope", number):
            continue
        for path in (folder / name, folder / commit_file(number)):
            if path.exists():
                path.unlink()
                yield Action(f"{path}: dropped; {'it' if path.name == name else name} {what}", fence=True)


def _parts(
    folder: Path, findings: Findings, torn: Torn, listing: Listing, plan: PlanRequest | None
) -> Iterator[Action]:
    counting = _counting_parts(findings, listing)
    for part in listing.parts:
        if part.file not in torn:
            continue
        path = folder / part.file
        if plan and part in counting:
            durable.replace(path, compaction.part_bytes(EMPTY))
        else:
            path.unlink()
        how = "replaced by an empty part" if plan and part in counting else "dropped"
        yield Action(f"{path}: {how}; it {torn[part.file]}", fence=True)


def _holes(folder: Path, findings: Findings, listing: Listing) -> Iterator[Action]:
    """Fills gaps in the numbering of parts with empty parts."""
    present = {part.seq for part in _counting_parts(findings, listing)}
    merged = findings.commit.parts if findings.commit else 0
    missing = [seq for seq in range(merged, max(present, default=0)) if seq not in present]
    for seq in missing if len(missing) <= MOST_ANEW else []:
        # The part was written under the last claim that did not count it.
        token = max((number for number, claim in findings.claims.items() if claim.parts <= seq), default=0)
        path = folder / Part(seq, token).file
        if token and findings.claims[token].purpose != "commit" and not path.exists():
            durable.create(path, compaction.part_bytes(EMPTY))
            yield Action(f"{path}: rebuilt as an empty part; it was missing", fence=True)


def _envelopes(folder: Path, findings: Findings) -> Iterator[str]:
    """Drops torn envelopes. Commits the study again if the newest commit lost its envelope."""
    for path, what, torn in findings.faults:
        number = commit_number(path.name)
        if not torn or number is None or path.name != table_file("envelope", number):
            continue
        path.unlink(missing_ok=True)
        yield f"{path}: dropped; it {what}"
        if findings.commit and findings.commit.number == number:
            Claim(folder.parent, folder.name).commit(findings.commit.study)
            record = folder / commit_file(max(list_study(folder).commits))
            yield f"{record}: created with the same tables and an envelope"


def _add_fence(folder: Path, findings: Findings) -> Iterator[str]:
    """Adds a claim with the current number of parts. This stops all earlier writers."""
    listing = list_study(folder)
    number = max(listing.claims, default=0) + 1
    path = folder / claim_file(number)
    durable.create(path, claim_bytes(number, _count(findings, listing), "repair"))
    yield f"{path}: created with the current number of parts, so that earlier writers stop"


def _counting_parts(findings: Findings, listing: Listing) -> list[Part]:
    merged = findings.commit.parts if findings.commit else 0
    return parts.surviving_parts(listing.parts, findings.cutoffs, merged)


def _count(findings: Findings, listing: Listing) -> int:
    """Returns the number of parts before the first missing one."""
    present = {part.seq for part in _counting_parts(findings, listing)}
    count = findings.commit.parts if findings.commit else 0
    while count in present:
        count += 1
    return count


def _plan(folder: Path, findings: Findings, listing: Listing) -> PlanRequest | None:
    """Returns the study's plan with the largest number of requested trials, from all intact files."""
    requests = [PlanRequest(plan, trials) for trials, plan in findings.plans.items()]
    for number in listing.commits:
        path = folder / commit_file(number)
        record = _record(path)
        if record is not None:
            commit = commit_of(record, folder, path)
            requests.append(PlanRequest(commit.plan, commit.trials))
    for part in findings.parts:
        studies = compaction.read_part(folder / part.file).studies
        for row in studies.select(["plan", "planned_trials"]).to_pylist():
            trials = max([row["planned_trials"] or 0, *listing.plans])
            if trials and row["plan"]:
                requests.append(PlanRequest(json.loads(row["plan"]), trials))
    return max(
        (request for request in requests if _is_of(request.plan, folder)),
        key=lambda request: request.trials,
        default=None,
    )


def _is_of(plan: Fields, folder: Path) -> bool:
    try:
        study_of(plan, 1, folder.name)
    except BadInput:
        return False
    return True


def _record(path: Path) -> Json | None:
    """Returns the commit record in a file, or None if the file has changed."""
    try:
        record = durable.read_sealed(path)
        commit_of(dict(record), path.parent, path)
        return record
    except BadInput:
        return None


def _is_bare(folder: Path) -> bool:
    """Returns whether a study's folder contains only claims."""
    listing = list_study(folder)
    return not (listing.plans or listing.parts or listing.commits or set(listing.others) - {study_checks.LOCK})


def _remove_folder(folder: Path) -> Iterator[str]:
    for entry in entries(folder):
        (folder / entry.name).unlink()
    folder.rmdir()
    yield f"{folder}: dropped; it had no plan for more than a day"
