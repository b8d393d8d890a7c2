"""Checks a study's folder in a store: every file must be expected and intact, and all parts must exist."""

import hashlib

import pyarrow.compute as pc

from results import durable
from results.aliases import Fields, Json
from results.bad_input import BadInput, TooOld
from results.checks import commit_checks, table_checks
from results.checks.commit_checks import outcomes
from results.checks.faults import TORN, ClaimRecord, Fault, Findings, OnBytes, brief, symptom
from results.durable import RECORD_BYTES, Damaged, Folder
from results.file_systems.local import LOCK as LOCK
from results.plans.kinds import study_of
from results.plans.trial_request import NO_REPEATS, TrialRequest, largest_request
from results.rules import ledger
from results.storage import compaction, parts
from results.storage.compaction import TABLES
from results.storage.folders import Entry, entries
from results.storage.parts import MOST, Listing, claim_file, commit_file, commit_number, confirm_file, plan_file

DIGEST_BYTES = 32
PURPOSES = ("run", "commit", "merge", "repair")

_CLAIM = {"claim", "parts", "purpose", "host", "pid", "at"}  # newer ones also have a token


def check(
    folder: Folder,
    within: list[Entry] | None = None,
    on_bytes: OnBytes = lambda count: None,
    *,
    rebuild: bool = True,
) -> Findings:
    """Checks a study's folder. Repeats the check if it finds faults but the folder changed in the meantime.

    Args:
      folder: the study's folder.
      within: entries of the folder. If None, they are read.
      on_bytes: called with the number of bytes checked since the last call.
      rebuild: whether to rebuild the envelope and compare it with the stored one.
    """
    before = entries(folder) if within is None else within
    for _ in range(3):
        findings = _look(folder, before, on_bytes, rebuild)
        now = entries(folder) if findings.faults else before
        if now == before:
            break
        before = now
    return findings


def _look(folder: Folder, within: list[Entry], on_bytes: OnBytes, rebuild: bool) -> Findings:
    findings = Findings(folder)
    files = _files(folder, within, findings)
    findings.listing = listing = parts.listing(files)
    findings.files, findings.bytes = len(files), sum(entry.bytes for entry in files.values())
    records = {
        name: _record(folder / name, files[name], findings, on_bytes) for name in files if name.endswith(".json")
    }
    _plans(records, findings)
    _confirms(records, findings)
    _claims(records, findings)
    listed = commit_checks.commits(findings, records, files, on_bytes, rebuild=rebuild)
    check_parts(findings, on_bytes)
    for name in listing.others:
        if name in listed:
            pass
        elif 1 <= (commit_number(name) or 0) <= newest_claim(listing):
            findings.leftovers["uncommitted"] += 1  # part of an unfinished or replaced commit
        else:
            findings.fault(folder / name, "is an unexpected file")
    requests = [TrialRequest(trials, max(findings.confirms, default=NO_REPEATS)) for trials in (0, *listing.plans)]
    if findings.commit:
        requests.append(findings.commit.request)
    findings.ledger = ledger.tally(largest_request(requests), findings.endings)
    return findings


def _files(folder: Folder, within: list[Entry], findings: Findings) -> dict[str, Entry]:
    """Returns the files that may belong to a study. All other entries are faults."""
    files = {}
    for entry in within:
        named = parts.listing([entry.name])
        if entry.kind != "file":
            findings.fault(folder / entry.name, f"is a {entry.kind}, but a study's folder may hold only files")
        elif entry.name == LOCK:
            if entry.bytes:
                findings.fault(folder / entry.name, "is the lock file, which should be empty", torn=True)
        elif named.checkpoints or named.attempts:
            pass  # checkpoints are read only by the process that resumes the study, and attempts only by people
        elif entry.name.startswith(durable.TEMPORARY):
            findings.temporary(folder / entry.name, entry)
        else:
            files[entry.name] = entry
    return files


def _record(path: Folder, entry: Entry, findings: Findings, on_bytes: OnBytes) -> Json | None:
    """Returns a sealed record. If it is damaged, adds a fault and returns None."""
    if entry.bytes > RECORD_BYTES:
        findings.fault(path, f"is too large for a record: {entry.bytes:,} bytes", torn=True)
        return None
    with findings.reading(path):
        data = path.read_bytes()
        on_bytes(len(data))
        try:
            return durable.unseal(data, path)
        except Damaged:
            findings.fault(path, TORN, torn=True)
    return None


def _plans(records: Fields, findings: Findings) -> None:
    folder, listing = findings.place, findings.listing
    for trials in listing.plans:
        path, record = folder / plan_file(trials), records[plan_file(trials)]
        if record is None:
            continue
        if record.keys() != {"trials", "plan"} or record["trials"] != trials:
            findings.fault(path, "is not a plan for the number of trials in its name")
            continue
        try:
            findings.studies[trials] = study_of(record["plan"], trials, folder.name)
        except TooOld:
            raise
        except BadInput as error:
            findings.fault(path, symptom(error, folder.name))
    if not listing.plans and (listing.parts or listing.commits):
        findings.fault(folder, "has no plan, so this study was never requested", torn=True)
    elif not listing.plans and durable.is_leftover(folder):
        findings.fault(folder, "has been without a plan for more than a day", torn=True)
    elif not listing.plans:
        findings.leftovers["unplanned"] += 1


def _confirms(records: Fields, findings: Findings) -> None:
    for repeats in findings.listing.confirms:
        path, record = findings.place / confirm_file(repeats), records[confirm_file(repeats)]
        if record == repeats.record():
            findings.confirms.append(repeats)
        elif record is not None:
            findings.fault(path, "does not request the number of repeats in its name")


def _claims(records: Fields, findings: Findings) -> None:
    folder, listing = findings.place, findings.listing
    for number in listing.claims:
        path, record = folder / claim_file(number), records[claim_file(number)]
        if record is None:
            continue
        counts = [record.get("claim"), record.get("parts")]
        is_valid = record.keys() - {"token"} == _CLAIM and all(type(n) is int and 0 <= n <= MOST for n in counts)
        if not is_valid or record["claim"] != number:
            findings.fault(path, "is not a claim with the number in its name")
        elif record["purpose"] not in PURPOSES:
            findings.fault(path, "is a claim with an unknown purpose")
        else:
            findings.claims[number] = ClaimRecord(record["parts"], record["purpose"])
    if missing := missing_claims(listing):
        which = claim_file(missing[0]) + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        findings.fault(folder, f"lacks {which}, although claim numbers have no gaps", torn=True)
    for number, claim in findings.claims.items():
        before = findings.claims.get(number - 1)
        # Parts of a merge count only once its commit record exists; older software counted them earlier.
        is_void = before and before.purpose == "merge" and number - 1 not in listing.commits
        if before and claim.parts < before.parts and claim.purpose != "repair" and not is_void:
            fault = f"counts {claim.parts} parts, but the claim before it counted {before.parts}"
            findings.fault(folder / claim_file(number), fault)
    # The other checks do not notice a merge that copied all files of a study except the commit record.
    newest = max(findings.claims, default=0)
    tables = [name for name in listing.others if commit_number(name) == newest]
    is_merge = newest and findings.claims[newest].purpose == "merge"
    if is_merge and newest not in listing.commits and len(tables) > len(TABLES):
        findings.fault(folder / commit_file(newest), "is missing, but its tables and envelope exist", torn=True)


def newest_claim(listing: Listing) -> int:
    """Returns the largest claim number, including the numbers of claims that other files refer to."""
    return max([0, *listing.claims, *listing.commits, *(part.token for part in listing.parts)])


def missing_claims(listing: Listing) -> list[int]:
    """Returns the numbers of missing claims, sorted."""
    return sorted(set(range(1, newest_claim(listing) + 1)) - set(listing.claims))


def check_parts(findings: Findings, on_bytes: OnBytes) -> None:
    """Checks every part, and the tables of parts that count and are not committed yet."""
    folder, merged, cutoffs = findings.place, findings.merged, findings.cutoffs
    counting = []
    try:
        counting = parts.counting_parts(findings.listing.parts, cutoffs, merged)
        newest = max(cutoffs, default=0)
        count = merged + len(counting)
        if newest and count < cutoffs[newest]:
            findings.fault(folder, f"has {count} parts, but {claim_file(newest)} counted {cutoffs[newest]}", torn=True)
    except LookupError as error:
        findings.fault(folder, str(error), torn=True)
    for part in findings.listing.parts:
        path, claim = folder / part.file, findings.claims.get(part.token)
        if claim and (claim.purpose == "commit" or part.seq < claim.parts):
            findings.fault(path, f"was not written under a valid claim: {claim_file(part.token)} does not include it")
        with findings.reading(path):
            data = path.read_bytes()
            on_bytes(len(data))
            is_intact = hashlib.sha256(memoryview(data)[:-DIGEST_BYTES]).digest() == data[-DIGEST_BYTES:]
            if is_intact:
                findings.parts.append(part)
            else:
                findings.fault(path, TORN, torn=True)
        if part not in findings.parts:
            continue
        if part in counting:
            _part_content(path, findings)
        else:
            findings.leftovers["replaced" if part.seq < merged else "cut off"] += 1


def _part_content(path: Folder, findings: Findings) -> None:
    if not findings.studies:
        return
    planned = max(findings.studies)
    try:
        piece = compaction.read_part(path)
        trials = max(planned, pc.max(piece.studies["planned_trials"]).as_py() or 0)
        plan = path.parent / plan_file(trials)
        if trials > planned and all(fault.path != plan for fault in findings.faults):
            findings.fault(plan, "is missing, although a part has this number of trials", torn=True)
        rows = {table: table_checks.table_rows(content) for table, content in piece._asdict().items()}
        repeats = max(findings.confirms, default=NO_REPEATS, key=lambda repeats: repeats.confirm)
        study = findings.studies[planned].with_request(TrialRequest(trials, repeats))
        flaws = table_checks.flaws(study, rows)
        findings.faults += [Fault(path, f"{flaw} ({table})") for table, flaw in flaws]
        findings.endings |= outcomes(rows["trials"])
    except TooOld:
        raise
    except BadInput as error:
        findings.fault(path, symptom(error, path))
    except Exception as error:  # reading an untrusted file can raise any exception
        findings.fault(path, f"cannot be read ({brief(error)})")
