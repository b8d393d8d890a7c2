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

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from results import durable, store
from results.aliases import Fields, Json, StringMap
from results.bad_input import BadInput, number_of, printable
from results.checks import commit_checks, release_checks, study_checks, verify
from results.checks.faults import Findings
from results.durable import Folder
from results.located import located
from results.plans import schema
from results.plans.kinds import study_of
from results.plans.plan import Plan
from results.plans.trial_request import NO_REPEATS, TrialRequest
from results.printing import Report
from results.storage import compaction, parts
from results.storage.claims import Claim, claim_bytes
from results.storage.commit_records import commit_of
from results.storage.commits import list_study
from results.storage.compaction import Piece
from results.storage.folders import entries
from results.storage.parts import Listing, Part, claim_file, commit_file, commit_number, plan_file, table_file

MOST_ANEW = 10_000  # maximum number of files to rebuild; a study that lacks more must be fetched again


EMPTY = Piece(*(schema.build(columns, {}, {}) for columns in schema.COLUMNS.values()))


Torn = StringMap  # description of the fault, by file name


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
        for line in _repair(Path(str(findings.place)), findings, report, is_study=findings.place != folder):
            print(printable(line))
            count += 1
    after = verify.examine(folder, report) if count else before
    remaining = [fault for findings in after for fault in findings.faults]
    for fault in remaining:
        print(f"{fault.line}; not repaired, because repair drops only torn files")
    left = number_of(len(remaining), "fault") if remaining else "no faults"
    print(f"{number_of(count, 'file')} dropped or rebuilt; {left} left")
    return 1 if remaining else 0


def _repair(folder: Path, findings: Findings, report: Report, *, is_study: bool) -> Iterator[str]:
    """Repairs the store's own folder, or a study, until there are no torn files.

    Waits for a study's lock, because writers hold it.
    """
    torn = [fault for fault in findings.faults if fault.torn]
    if not torn:
        return
    if not is_study:
        for fault in torn:
            fault.path.unlink(missing_ok=True)
            yield f"{fault.path}: dropped; it {fault.what}"
        return
    listing = list_study(folder)
    has_data = listing.plans or listing.parts or listing.commits or set(listing.others) - {study_checks.LOCK}
    if not has_data and any(fault.path == folder for fault in torn):
        shutil.rmtree(folder)
        yield f"{folder}: dropped; it had no plan for more than a day"
        return
    if store.is_running(folder.parent, folder.name):
        report(f"waiting for the process that writes {printable(folder)}")
    with store.lock(folder.parent, folder.name):
        for fault in torn:
            if fault.path == folder / study_checks.LOCK:
                os.truncate(folder / study_checks.LOCK, 0)  # a regular file, because it could be locked
                yield f"{fault.path}: emptied; it {fault.what}"
        fence = False
        while True:
            after = study_checks.check(folder)
            lines, stops_writers = _round(after)
            if not lines:
                break
            yield from lines
            fence |= stops_writers
        newest = max(after.claims, default=0)
        fence |= newest > 0 and after.claims[newest].parts > _count(after)
        fence |= any(fault.torn and fault.path == folder / commit_file(newest) for fault in after.faults)
        if fence:
            yield from _add_fence(after)
        yield from _envelopes(folder, after)


def _round(findings: Findings) -> tuple[list[str], bool]:
    """Runs one round of repairs. Faults that this round uncovers are handled in the next round.

    Returns:
      A line for each repair, and whether earlier writers must be stopped.
    """
    torn = {fault.path.name: fault.what for fault in findings.faults if fault.torn and fault.path != findings.place}
    study = _study(findings)
    requests, claims = list(_requests(findings, torn, study)), list(_claims(findings))
    if lines := [*requests, *claims, *_records(findings, torn, study)]:
        return lines, bool(claims)
    lines = list(_commits(findings.place, torn)) or list(_parts(findings, torn, study))
    if study and not lines:
        lines = list(_holes(findings))
    return lines, bool(lines)


def _requests(findings: Findings, torn: Torn, study: Plan | None) -> Iterator[str]:
    """Repairs temporary files, plans and requests for repeats, which are rebuilt from their names."""
    for name, what in torn.items():
        path, named = findings.place / name, parts.listing([name])
        if name.startswith(durable.TEMPORARY) or (named.plans and not study):
            path.unlink(missing_ok=True)
            yield f"{path}: dropped{', because no other file has the plan' if named.plans else ''}; it {what}"
        elif named.plans and study:
            durable.replace(path, _plan_record(study, named.plans[0]))
            yield f"{path}: rebuilt; it {what}"
        for repeats in named.confirms:
            durable.replace(path, durable.seal(repeats.record()))
            yield f"{path}: rebuilt; it {what}"
    if study and study.trials not in findings.listing.plans and plan_file(study.trials) not in torn:
        path = findings.place / plan_file(study.trials)
        durable.create(path, _plan_record(study, study.trials))
        yield f"{path}: rebuilt; it was missing"


def _plan_record(study: Plan, trials: int) -> bytes:
    return durable.seal({"trials": trials, "plan": study.plan()})


def _claims(findings: Findings) -> Iterator[str]:
    """Rebuilds torn or missing claims with their cutoffs, newest first."""
    folder, listing, cutoffs = findings.place, findings.listing, findings.cutoffs
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
            cutoff = _count(findings)
        cutoffs[number] = cutoff
        path = folder / claim_file(number)
        was = "was torn" if path.exists() else "was missing"
        durable.replace(path, claim_bytes(number, cutoff, purpose))
        yield f"{path}: rebuilt with a cutoff of {cutoff} parts; it {was}"


def _records(findings: Findings, torn: Torn, study: Plan | None) -> Iterator[str]:
    """Rebuilds the newest commit record if it is torn or missing."""
    for number in sorted(findings.claims, reverse=True):
        path, claim = findings.place / commit_file(number), findings.claims[number]
        if number in findings.listing.commits and path.name not in torn:
            return  # older records were replaced
        is_lost = path.name in torn or _count(findings) < claim.parts
        if study is None or not is_lost or claim.purpose not in ("commit", "merge"):
            continue
        for request in _possible_requests(study, findings.listing):
            record = commit_checks.rebuild_record(findings, number, claim.parts, study, request)
            if record is not None:
                durable.replace(path, durable.seal(record))
                yield f"{path}: rebuilt from its tables and envelope; it {torn.get(path.name, 'was missing')}"
                return


def _possible_requests(study: Plan, listing: Listing) -> list[TrialRequest]:
    """Returns every request that a commit may have fulfilled, largest first."""
    trials = sorted({study.trials, *listing.plans}, reverse=True)
    confirms = sorted({NO_REPEATS, *listing.confirms}, reverse=True)
    return [TrialRequest(count, repeats) for count in trials for repeats in confirms]


def _commits(folder: Folder, torn: Torn) -> Iterator[str]:
    """Drops torn commit records, and those that list a torn or missing file."""
    for name, what in torn.items():
        number = commit_number(name)
        if number is None or name == table_file("envelope", number):
            continue
        for path in (folder / name, folder / commit_file(number)):
            if path.exists():
                path.unlink()
                yield f"{path}: dropped; {'it' if path.name == name else name} {what}"


def _parts(findings: Findings, torn: Torn, study: Plan | None) -> Iterator[str]:
    counting = _counting_parts(findings)
    for part in findings.listing.parts:
        if part.file not in torn:
            continue
        path, how = findings.place / part.file, "dropped"
        if study and part in counting:
            durable.replace(path, compaction.part_bytes(EMPTY))
            how = "replaced by an empty part"
        else:
            path.unlink()
        yield f"{path}: {how}; it {torn[part.file]}"


def _holes(findings: Findings) -> Iterator[str]:
    """Fills gaps in the numbering of parts with empty parts."""
    present = {part.seq for part in _counting_parts(findings)}
    missing = [seq for seq in range(findings.merged, max(present, default=0)) if seq not in present]
    for seq in missing if len(missing) <= MOST_ANEW else []:
        # The part was written under the last claim that did not count it.
        token = max((number for number, cutoff in findings.cutoffs.items() if cutoff <= seq), default=0)
        path = findings.place / Part(seq, token).file
        if token and findings.claims[token].purpose != "commit" and not path.exists():
            durable.create(path, compaction.part_bytes(EMPTY))
            yield f"{path}: rebuilt as an empty part; it was missing"


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


def _add_fence(findings: Findings) -> Iterator[str]:
    """Adds a claim with the current number of parts. This stops all earlier writers."""
    number = max(findings.listing.claims, default=0) + 1
    path = findings.place / claim_file(number)
    durable.create(path, claim_bytes(number, _count(findings), "repair"))
    yield f"{path}: created with the current number of parts, so that earlier writers stop"


def _counting_parts(findings: Findings) -> list[Part]:
    return parts.surviving_parts(findings.listing.parts, findings.cutoffs, findings.merged)


def _count(findings: Findings) -> int:
    """Returns the number of parts before the first missing one."""
    present = {part.seq for part in _counting_parts(findings)}
    count = findings.merged
    while count in present:
        count += 1
    return count


def _study(findings: Findings) -> Plan | None:
    """Returns the study with the largest number of requested trials, from all intact files."""
    folder, listing, plans = findings.place, findings.listing, list[tuple[Fields, int]]()
    for number in listing.commits:
        path = folder / commit_file(number)
        if (record := _record(path)) is not None:
            commit = commit_of(record, folder, path)
            plans.append((commit.plan, commit.trials))
    for part in findings.parts:
        studies = compaction.read_part(folder / part.file).studies
        for row in studies.select(["plan", "planned_trials"]).to_pylist():
            trials = max([row["planned_trials"] or 0, *listing.plans])
            if trials and row["plan"]:
                plans.append((json.loads(row["plan"]), trials))
    studies = [*findings.studies.values()]
    for plan, trials in plans:
        with contextlib.suppress(BadInput):
            studies.append(study_of(plan, trials, folder.name))
    return max(studies, key=lambda study: study.trials, default=None)


def _record(path: Folder) -> Json | None:
    """Returns the commit record in a file, or None if the file has changed."""
    try:
        record = durable.read_sealed(path)
        commit_of(dict(record), path.parent, path)
        return record
    except BadInput:
        return None
