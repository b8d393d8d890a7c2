"""What must hold of a study's parts: none missing, each intact and written by right, tables as planned."""

from collections.abc import Mapping

import pyarrow.compute as pc

from results.bad_input import BadInput
from results.checks import table_checks
from results.checks.commit_checks import outcomes
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, sha256
from results.durable import Folder
from results.plans.asked import NO_REPEATS
from results.plans.kinds import from_plan
from results.storage import compaction, parts
from results.storage.entries import Entry
from results.storage.parts import Listing, Part, claim_file, plan_file

DIGEST_BYTES = 32


def check(folder: Folder, listing: Listing, files: Mapping[str, Entry], found: Findings, on_bytes: OnBytes) -> None:
    """Looks at every part; more closely at those that count beyond the commit, and at how their trials ended."""
    merged = found.commit.parts if found.commit else 0
    waiting = [part for part in listing.parts if part.seq >= merged]
    counting: list[Part] = []
    try:
        counting = parts.counting(waiting, {number: claim.parts for number, claim in found.claims.items()}, merged)
        newest = max(found.claims, default=0)
        if newest and merged + len(counting) < found.claims[newest].parts:
            what = f"has {merged + len(counting)} parts, and {claim_file(newest)} counted {found.claims[newest].parts}"
            found.fault(folder, what, torn=True)
    except LookupError as error:
        found.fault(folder, str(error), torn=True)
    for part in listing.parts:
        path, claim = folder / part.file, found.claims.get(part.token)
        if claim and (claim.purpose == "commit" or part.seq < claim.parts):
            found.fault(path, f"is not what {claim_file(part.token)} gives a right to write")
        if not _is_intact(path, files[part.file], found, on_bytes):
            continue
        found.parts.append(part)
        if part in counting:
            _part_content(path, found)
        else:
            found.leftovers["replaced" if part.seq < merged else "cut off"] += 1


def _is_intact(path: Folder, entry: Entry, found: Findings, on_bytes: OnBytes) -> bool:
    """Whether a part ends in the hash of all that is before; a fault if not."""
    payload = max(0, entry.bytes - DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            file.seek(payload)
            digest = file.read(DIGEST_BYTES + 1)
        if sha256(path, on_bytes, payload) == digest.hex():
            return True
        found.fault(path, TORN, torn=True)
    except OSError as error:
        found.fault(path, f"cannot be read ({error.strerror})")
    return False


def _part_content(path: Folder, found: Findings) -> None:
    if not found.plans:
        return
    most = max(found.plans)
    try:
        piece = compaction.read_part(path)
        asked = max(most, pc.max(piece.studies["planned_trials"]).as_py() or 0)
        plan = path.parent / plan_file(asked)
        if asked > most and all(fault.path != plan for fault in found.faults):
            found.fault(plan, "is missing, and a part is of as many trials", torn=True)
        rows = {table: table_checks.in_memory(content) for table, content in piece._asdict().items()}
        repeats = max(found.confirms, default=NO_REPEATS)
        flaws = table_checks.flaws(from_plan(found.plans[most], asked, repeats, path.parent.name), rows)
        found.faults += [Fault(path, f"{flaw.what} ({flaw.table})") for flaw in flaws]
        found.ended |= outcomes(rows["trials"])
    except BadInput as error:
        found.fault(path, str(error).removeprefix(f"{path} "))
    except Exception as error:  # a file that nobody vouches for can do anything to its reader
        found.fault(path, f"cannot be read ({brief(error)})")
