"""Checks of a study's parts: none missing, each intact and written under a valid claim, tables as planned."""

from collections.abc import Mapping

import pyarrow.compute as pc

from results.bad_input import BadInput
from results.checks import table_checks
from results.checks.commit_checks import outcomes
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, sha256
from results.durable import Folder
from results.plans.kinds import from_plan
from results.plans.trial_request import NO_REPEATS
from results.storage import compaction, parts
from results.storage.entries import Entry
from results.storage.parts import Listing, Part, claim_file, plan_file

DIGEST_BYTES = 32


def check(folder: Folder, listing: Listing, files: Mapping[str, Entry], findings: Findings, on_bytes: OnBytes) -> None:
    """Checks every part, and the tables of those that count beyond the commit."""
    merged = findings.commit.parts if findings.commit else 0
    waiting = [part for part in listing.parts if part.seq >= merged]
    counting: list[Part] = []
    try:
        counting = parts.counting_parts(
            waiting, {number: claim.parts for number, claim in findings.claims.items()}, merged
        )
        newest = max(findings.claims, default=0)
        if newest and merged + len(counting) < findings.claims[newest].parts:
            what = (
                f"has {merged + len(counting)} parts, but {claim_file(newest)} counted {findings.claims[newest].parts}"
            )
            findings.fault(folder, what, torn=True)
    except LookupError as error:
        findings.fault(folder, str(error), torn=True)
    for part in listing.parts:
        path, claim = folder / part.file, findings.claims.get(part.token)
        if claim and (claim.purpose == "commit" or part.seq < claim.parts):
            findings.fault(path, f"was not written under a valid claim: {claim_file(part.token)} does not cover it")
        if not _is_intact(path, files[part.file], findings, on_bytes):
            continue
        findings.parts.append(part)
        if part in counting:
            _part_content(path, findings)
        else:
            findings.leftovers["replaced" if part.seq < merged else "cut off"] += 1


def _is_intact(path: Folder, entry: Entry, findings: Findings, on_bytes: OnBytes) -> bool:
    """Whether a part ends in the hash of the bytes before; a fault if not."""
    payload = max(0, entry.bytes - DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            file.seek(payload)
            digest = file.read(DIGEST_BYTES + 1)
        if sha256(path, on_bytes, payload) == digest.hex():
            return True
        findings.fault(path, TORN, torn=True)
    except OSError as error:
        findings.fault(path, f"cannot be read ({error.strerror})")
    return False


def _part_content(path: Folder, findings: Findings) -> None:
    if not findings.plans:
        return
    most = max(findings.plans)
    try:
        piece = compaction.read_part(path)
        trials = max(most, pc.max(piece.studies["planned_trials"]).as_py() or 0)
        plan = path.parent / plan_file(trials)
        if trials > most and all(fault.path != plan for fault in findings.faults):
            findings.fault(plan, "is missing, but a part has that many trials", torn=True)
        rows = {table: table_checks.table_rows(content) for table, content in piece._asdict().items()}
        repeats = max(findings.confirms, default=NO_REPEATS)
        flaws = table_checks.flaws(from_plan(findings.plans[most], trials, repeats, path.parent.name), rows)
        findings.faults += [Fault(path, f"{flaw.what} ({flaw.table})") for flaw in flaws]
        findings.endings |= outcomes(rows["trials"])
    except BadInput as error:
        findings.fault(path, str(error).removeprefix(f"{path} "))
    except Exception as error:  # an untrusted file can raise anything in its reader
        findings.fault(path, f"cannot be read ({brief(error)})")
