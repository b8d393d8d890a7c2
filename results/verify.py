"""Verifying: is every byte what was written, does every table hold what it must, does every ledger add up?"""

import collections
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from results import durable, migrations, progress, release_checks, study_checks
from results.bad_input import BadInput
from results.durable import Folder
from results.entries import Entry, entries
from results.faults import Findings, OnBytes, brief
from results.ledger import Ledger

Report = Callable[[str], None]
T = TypeVar("T")

# Envelopes are made again and compared in what is smaller; a second or two. They are only a short cut to the tables,
# and in what is larger their hashes and those of the tables they were made from have to do.
REBUILD_BYTES = 32 << 20

_LEFTOVERS = {
    "temporary": "temporary files of writers at work",
    "unplanned": "studies about to be asked for",
    "replaced": "files that a newer commit replaced",
    "cut off": "parts that a newer claim cut off",
    "uncommitted": "tables without a commit record",
}


def run(folder: Folder, report: Report) -> int:
    """Prints a line for every fault in a store or a release, then a summary.

    Args:
      folder: of the store, or of the release.
      report: takes lines about progress.

    Returns:
      0 if there is no fault, 1 if there is any.
    """
    found = examine(folder, report)
    faults = [fault for findings in found for fault in findings.faults]
    for fault in faults:
        print(fault.line)
    print(summary(found))
    return 1 if faults else 0


def examine(folder: Folder, report: Report) -> list[Findings]:
    """What looking at a store or a release brings up."""
    within = entries(folder)
    if release_checks.is_release({entry.name for entry in within}):
        return release(folder, report)
    return store(folder, within, report)


def release(folder: Folder, report: Report) -> list[Findings]:
    """What looking at a release brings up: at its lists, then at every file, then at the tables of every study."""
    listed = release_checks.lists(folder)
    rebuild = listed.around.bytes <= REBUILD_BYTES
    with progress.shown("verifying", listed.around.bytes, "B", report) as show:
        on_bytes = tally(show)
        documents = at_once(
            listed.documents, lambda path: release_checks.check_file(folder / path, listed.documents[path], on_bytes)
        )
        studies = at_once(
            listed.commits,
            lambda commit: release_checks.check_study(folder, commit, listed.sizes, on_bytes, rebuild),
        )
    return [listed.around, *documents, *studies]


def store(folder: Folder, within: list[Entry], report: Report) -> list[Findings]:
    """What looking at a store brings up: at its own folder, then at every study.

    Args:
      folder: of the store.
      within: what lies in it.
      report: takes lines about progress.

    Raises:
      BadInput: this is no store, or one of a layout that is no longer written.
    """
    studies = [folder / entry.name for entry in within if entry.kind == "folder" and not entry.name.startswith(".")]
    if not studies:
        raise BadInput(
            f"{folder} holds no study, so it is no store; name the folder that a sweep or an import wrote to"
        )
    if migrations.studies_of_1(folder):
        raise BadInput(
            f"{folder} has schema 1, without hashes; bring it over with `python -m results merge {folder} --store DIR`"
        )
    lying = {study: _within(study) for study in studies}
    total = sum(entry.bytes for inside in lying.values() for entry in inside or ())
    with progress.shown("verifying", total, "B", report) as show:
        on_bytes = tally(show)
        found = at_once(studies, lambda study: _guarded(study, lying[study], on_bytes, rebuild=total <= REBUILD_BYTES))
    return [_around(folder, within), *found]


def at_once(items: Iterable[T], check: Callable[[T], Findings]) -> list[Findings]:
    """Looks at several things at a time, one per processor; hashing and decoding leave Python's lock."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(processors) as pool:
        return list(pool.map(check, items))


def tally(show: Callable[[int], object]) -> OnBytes:
    """Adds up what threads tell, for a function that takes the sum."""
    lock, done = threading.Lock(), 0

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            show(done)

    return add


def summary(found: Iterable[Findings]) -> str:
    """The last line: what was looked at, the ledger of it all, what is left over, how many faults there are."""
    found = list(found)
    ledgers = [findings.ledger for findings in found if findings.ledger]
    whole = Ledger(*(sum(counts) for counts in zip(*ledgers, strict=True))) if ledgers else Ledger(*[0] * 9)
    leftovers: collections.Counter[str] = collections.Counter()
    for findings in found:
        leftovers += findings.leftovers
    faults = sum(len(findings.faults) for findings in found)
    megabytes = sum(findings.bytes for findings in found) / 1e6
    return "; ".join(
        [
            f"{len(ledgers):,} studies, {sum(findings.files for findings in found):,} files, {megabytes:,.1f} MB",
            in_words(whole),
            *(f"{count:,} {_LEFTOVERS[kind]}" for kind, count in sorted(leftovers.items())),
            f"{faults:,} faults" if faults else "no faults",
        ]
    )


def in_words(ledger: Ledger) -> str:
    """planned = complete + infeasible + incomplete, by reason, + missing."""
    reasons = {reason: count for reason, count in list(ledger._asdict().items())[3:-1] if count}
    by_reason = f" ({', '.join(f'{reason} {count:,}' for reason, count in reasons.items())})" if reasons else ""
    return (
        f"planned {ledger.planned:,} = complete {ledger.complete:,} + infeasible {ledger.infeasible:,}"
        f" + incomplete {sum(reasons.values()):,}{by_reason} + missing {ledger.missing:,}"
    )


def _around(folder: Folder, within: list[Entry]) -> Findings:
    """What lies in a store's own folder, beside the studies."""
    found = Findings(folder)
    for entry in within:
        path = folder / entry.name
        if entry.kind == "file" and entry.name.startswith(durable.TEMPORARY):
            found.temporary(path, entry)
        elif entry.kind != "folder" or entry.name.startswith("."):
            found.fault(path, f"is none of ours; an extra {entry.kind}")
    return found


def _guarded(study: Folder, within: list[Entry] | None, on_bytes: OnBytes, *, rebuild: bool) -> Findings:
    try:
        return study_checks.check(study, within, on_bytes, rebuild=rebuild)
    except Exception as error:  # one study that nobody foresaw must not hide what is wrong with the others
        found = Findings(study)
        found.fault(study, f"cannot be looked at ({brief(error)})")
        return found


def _within(folder: Folder) -> list[Entry] | None:
    try:
        return entries(folder)
    except BadInput:  # which will be told when it is looked at
        return None
