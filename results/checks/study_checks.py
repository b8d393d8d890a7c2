"""What must hold of a study's folder in a store: every file is accounted for, and is what was written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import durable
from results.bad_input import BadInput
from results.checks import commit_checks, part_checks
from results.checks.faults import TORN, Claimed, Findings, OnBytes
from results.durable import Damaged, Folder
from results.plans.asked import NO_REPEATS, Asked, most
from results.rules import ledger
from results.storage import parts
from results.storage.compaction import TABLES
from results.storage.entries import Entry, entries
from results.storage.parts import MOST, Listing, claim_file, commit_file, commit_number, confirm_file, plan_file

LOCK = ".lock"
RECORD_BYTES = 64 << 20  # no plan, claim or commit record comes near
PURPOSES = ("run", "commit", "merge", "repair")

_CLAIM = {"claim", "parts", "purpose", "host", "pid", "at"}


def check(
    folder: Folder,
    within: list[Entry] | None = None,
    on_bytes: OnBytes = lambda count: None,
    *,
    rebuild: bool = True,
) -> Findings:
    """Looks at all of a study's folder; again, if something seemed wrong and somebody wrote to it meanwhile.

    Args:
      folder: of the study.
      within: what lies in it, if that is known.
      on_bytes: told how many bytes more have been looked at.
      rebuild: whether to make the envelope again and compare.
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
    found = Findings(folder)
    files = _files(folder, within, found)
    listing = parts.listing(files)
    found.files, found.bytes = len(files), sum(entry.bytes for entry in files.values())
    records = {name: _record(folder / name, files[name], found, on_bytes) for name in files if name.endswith(".json")}
    _plans(folder, listing, records, found)
    _confirms(folder, listing, records, found)
    _claims(folder, listing, records, found)
    listed = commit_checks.commits(folder, listing, records, files, found, on_bytes, rebuild=rebuild)
    _unrecorded(folder, listing, found)
    part_checks.check(folder, listing, files, found, on_bytes)
    for name in listing.others:
        if name not in listed:
            _unlisted(folder / name, listing, found)
    intact = [Asked(trials, max(found.confirms, default=NO_REPEATS)) for trials in (0, *listing.plans)]
    found.ledger = ledger.tally(most([*intact, *([found.commit.asked] if found.commit else [])]), found.ended)
    return found


def _files(folder: Folder, within: list[Entry], found: Findings) -> dict[str, Entry]:
    """The files that may be ours; of everything else, what is wrong with it."""
    files = {}
    for entry in within:
        if entry.kind != "file":
            found.fault(folder / entry.name, f"is a {entry.kind}; a study's folder holds files and nothing else")
        elif entry.name == LOCK:
            if entry.bytes:
                found.fault(folder / entry.name, "is the lock, which is empty when it is made", torn=True)
        elif entry.name.startswith(durable.TEMPORARY):
            found.temporary(folder / entry.name, entry)
        else:
            files[entry.name] = entry
    return files


def _record(path: Folder, entry: Entry, found: Findings, on_bytes: OnBytes) -> dict[str, Any] | None:
    """A sealed record; None, and a fault, if it is not what was written."""
    if entry.bytes > RECORD_BYTES:
        found.fault(path, f"holds {entry.bytes:,} bytes, more than any record", torn=True)
        return None
    try:
        data = path.read_bytes()
        on_bytes(len(data))
        return durable.unseal(data, path)
    except Damaged:
        found.fault(path, TORN, torn=True)
    except OSError as error:
        found.fault(path, f"cannot be read ({error.strerror})")
    return None


def _plans(folder: Folder, listing: Listing, records: Mapping[str, Any], found: Findings) -> None:
    for trials in listing.plans:
        path, record = folder / plan_file(trials), records[plan_file(trials)]
        if record is None:
            continue
        if record.keys() != {"trials", "plan"} or record["trials"] != trials:
            found.fault(path, "is no plan of as many trials as its name says")
            continue
        try:
            found.studies[trials] = commit_checks.study_of(record["plan"], trials, folder.name)
        except BadInput as error:
            found.fault(path, str(error))
            continue
        found.plans[trials] = record["plan"]
    if not listing.plans and (listing.parts or listing.commits):
        found.fault(folder, "has no plan; nobody asked for this study", torn=True)
    elif not listing.plans and isinstance(folder, Path) and durable.is_leftover(folder):
        found.fault(folder, "has been without a plan for more than a day", torn=True)
    elif not listing.plans:
        found.leftovers["unplanned"] += 1


def _confirms(folder: Folder, listing: Listing, records: Mapping[str, Any], found: Findings) -> None:
    for repeats in listing.confirms:
        path, record = folder / confirm_file(repeats), records[confirm_file(repeats)]
        if record == repeats.record():
            found.confirms.append(repeats)
        elif record is not None:
            found.fault(path, "does not ask for as many repeats as its name says")


def _claims(folder: Folder, listing: Listing, records: Mapping[str, Any], found: Findings) -> None:
    for number in listing.claims:
        path, record = folder / claim_file(number), records[claim_file(number)]
        if record is None:
            continue
        counts = [record.get("claim"), record.get("parts")]
        if (
            record.keys() != _CLAIM
            or counts[0] != number
            or any(type(n) is not int or not 0 <= n <= MOST for n in counts)
        ):
            found.fault(path, "is no claim of the number that its name says")
        elif record["purpose"] not in PURPOSES:
            found.fault(path, "is a claim for no purpose that there is")
        else:
            found.claims[number] = Claimed(record["parts"], record["purpose"])
    if missing := missing_claims(listing):
        which = claim_file(missing[0]) + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        found.fault(folder, f"lacks {which}; claims are numbered without holes", torn=True)
    for number, claim in found.claims.items():
        before = found.claims.get(number - 1)
        # What a merge brought counts for nothing until its commit record is there; older software counted it before.
        is_void = before and before.purpose == "merge" and number - 1 not in listing.commits
        if before and claim.parts < before.parts and claim.purpose != "repair" and not is_void:
            what = f"counts {claim.parts} parts, and the claim before it counted {before.parts}"
            found.fault(folder / claim_file(number), what)


def _unrecorded(folder: Folder, listing: Listing, found: Findings) -> None:
    """A merge that brought all files of a study but the last, the record; nothing else tells if that was removed."""
    newest = max(found.claims, default=0)
    tables = [name for name in listing.others if commit_number(name) == newest]
    if (
        newest
        and found.claims[newest].purpose == "merge"
        and newest not in listing.commits
        and len(tables) > len(TABLES)
    ):
        found.fault(folder / commit_file(newest), "is missing, and its tables and envelope are there", torn=True)


def newest_claim(listing: Listing) -> int:
    """The largest number that a claim has, or must have had for something in the folder to be there."""
    return max([0, *listing.claims, *listing.commits, *(part.token for part in listing.parts)])


def missing_claims(listing: Listing) -> list[int]:
    """Numbers of the claims that are missing, in order."""
    return sorted(set(range(1, newest_claim(listing) + 1)) - set(listing.claims))


def _unlisted(path: Folder, listing: Listing, found: Findings) -> None:
    """A file that no record lists: of a commit that never was, or that has been replaced; else it is not ours."""
    if 1 <= (commit_number(path.name) or 0) <= newest_claim(listing):
        found.leftovers["uncommitted"] += 1
    else:
        found.fault(path, "is none of ours; an extra file")
