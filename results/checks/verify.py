"""Verifies a store or a release: file hashes, table contents and ledger totals."""

import collections
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from results import durable, printing, progress
from results.aliases import OnCount
from results.bad_input import BadInput, TooOld, number_of, printable
from results.catalog.contents import POINTS_FILE
from results.checks import point_checks, release_checks, study_checks
from results.checks.faults import Findings, OnBytes, brief
from results.durable import Folder
from results.located import located
from results.printing import Report, numbered
from results.rules.ledger import Ledger, total
from results.storage.folders import LAUNCHERS, Entry, check_layout, check_not_above, entries

T = TypeVar("T")

REBUILD_BYTES = 32 << 20  # total size of the studies with rebuilt envelopes; takes a second or two

_LEFTOVERS = {
    "temporary": "temporary files of active writers",
    "unplanned": "studies without a plan yet",
    "replaced": "files replaced by a newer commit",
    "cut off": "parts discarded by a newer claim",
    "uncommitted": "tables without a commit record",
}


@located
def run(folder: Folder, report: Report, *, full: bool = False) -> int:
    """Verifies a store or a release. Prints one line for every fault, then a summary.

    With `--json`, both are printed as one object. With `--csv`, only the faults are printed.

    Args:
      folder: the store or release.
      report: called with progress messages.
      full: whether to rebuild all envelopes. By default, only a sample of them is rebuilt in a large store.

    Returns:
      0 if there are no faults, else 1.
    """
    everything = examine(folder, report, full=full)
    faults = [fault for findings in everything for fault in findings.faults]
    if printing.is_data():
        _show_data(everything)
    else:
        printing.answer("\n".join([*(fault.line for fault in faults), summary(everything)]))
    return 1 if faults else 0


@located
def examine(folder: Folder, report: Report, *, full: bool = False) -> list[Findings]:
    """Checks a store or a release. See ``run`` for the arguments."""
    content = entries(folder)
    if release_checks.is_release({entry.name for entry in content}):
        return release(folder, report, full=full)
    return store(folder, content, report, full=full)


def sample(sizes: Mapping[str, int], *, full: bool) -> frozenset[str]:
    """Selects the studies whose envelopes are rebuilt: all, or a sample of ``REBUILD_BYTES`` in large stores.

    The other envelopes are still checked: they must be intact and belong to their tables.

    Args:
      sizes: size of each study in bytes, by name. The sample depends only on these sizes.
      full: whether to select all studies.
    """
    names, total = sorted(sizes), sum(sizes.values())
    if full or total <= REBUILD_BYTES:
        return frozenset(names)
    random.Random(total).shuffle(names)
    upto = itertools.accumulate(sizes[name] for name in names)
    return frozenset(names[: max(1, sum(end <= REBUILD_BYTES for end in upto))])


def release(folder: Folder, report: Report, *, full: bool) -> list[Findings]:
    """Checks a release: its lists, then every file, then the tables of every study."""
    lists = release_checks.lists(folder)
    sizes = {commit.name: sum(file.bytes for file in commit.files.values()) for commit in lists.commits}
    sample_names = sample(sizes, full=full)
    with progress.show_progress("verifying", lists.around.bytes, "B", report) as show:
        on_bytes = tally(show)
        documents = at_once(
            lists.documents,
            lambda path: release_checks.check_file(folder / path, lists.documents[path], lists.sizes[path], on_bytes),
        )
        studies = at_once(
            lists.commits,
            lambda commit: release_checks.check_study(folder, commit, lists.sizes, rebuild=commit.name in sample_names),
            one_by_one=sum(sizes.values()) <= REBUILD_BYTES,
        )
    everything = [lists.around, *documents, *studies]
    is_torn = {fault.path for findings in documents for fault in findings.faults}
    points = folder / POINTS_FILE
    if any(findings.faults for findings in studies) or not lists.commits:
        return everything
    if POINTS_FILE in lists.documents and points not in is_torn:
        everything.append(point_checks.check(points, [row for study in studies for row in study.points]))
    if not lists.around.faults and not is_torn:
        everything.append(release_checks.check_documents(folder, lists))
    return everything


def store(folder: Folder, within: list[Entry], report: Report, *, full: bool) -> list[Findings]:
    """Checks a store: its own folder, then every study.

    Args:
      folder: the store.
      within: entries of the store.
      report: called with progress messages.
      full: whether to rebuild all envelopes.

    Raises:
      BadInput: the folder is not a store, or its layout is no longer supported.
    """
    names = [entry.name for entry in within if entry.kind == "folder" and not entry.name.startswith(".")]
    studies = [folder / name for name in sorted(names, key=numbered)]
    if not studies:
        raise BadInput(f"{folder} is not a store, because it has no study. Name the folder a sweep or import wrote to.")
    check_not_above(folder)
    check_layout(folder)
    content = {study: _entries(study) for study in studies}
    sizes = {study.name: sum(entry.bytes for entry in content[study] or ()) for study in studies}
    sample_names = sample(sizes, full=full)
    with progress.show_progress("verifying", sum(sizes.values()), "B", report) as show:
        on_bytes = tally(show)
        of_studies = at_once(
            studies, lambda study: _check_study(study, content[study], on_bytes, rebuild=study.name in sample_names)
        )
    return [_around(folder, within), *of_studies]


def at_once(items: Iterable[T], check: Callable[[T], Findings], *, one_by_one: bool = False) -> list[Findings]:
    """Runs checks in one thread per processor. Hashing and decoding release the interpreter lock.

    Args:
      items: items to check.
      check: function that checks one item.
      one_by_one: whether to run without threads, which is faster for small items.
    """
    if one_by_one:
        return list(map(check, items))
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(processors) as pool:
        return list(pool.map(check, items))


def tally(show: OnCount) -> OnBytes:
    """Returns a function that adds up counts from several threads and passes the total to ``show``."""
    lock, done = threading.Lock(), 0

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            show(done)

    return add


def _show_data(everything: Sequence[Findings]) -> None:
    """Prints JSON (an object with counts and faults) or CSV (one row per fault)."""
    faults = [(str(fault.path), fault.what, fault.torn) for findings in everything for fault in findings.faults]
    header = ("path", "what", "torn")
    if printing.is_json():
        ledgers = [findings.ledger for findings in everything if findings.ledger]
        printing.show_json(
            {
                "studies": len(ledgers),
                "files": sum(findings.files for findings in everything),
                "bytes": sum(findings.bytes for findings in everything),
                "ledger": total(ledgers)._asdict(),
                "faults": [dict(zip(header, fault, strict=True)) for fault in faults],
            }
        )
    else:
        printing.show(header, faults, str)


def summary(everything: Sequence[Findings]) -> str:
    """Returns the last line: counts of studies and files, the total ledger, leftovers and faults."""
    ledgers = [findings.ledger for findings in everything if findings.ledger]
    leftovers = sum((findings.leftovers for findings in everything), collections.Counter[str]())
    believed = sum(findings.believed for findings in everything)
    megabytes = sum(findings.bytes for findings in everything) / 1e6
    files = number_of(sum(findings.files for findings in everything), "file")
    facts = [f"{number_of(len(ledgers), 'study')}, {files}, {megabytes:,.1f} MB", in_words(total(ledgers))]
    facts += [f"{count:,} {_LEFTOVERS[kind]}" for kind, count in sorted(leftovers.items())]
    if believed:
        facts.append(f"{believed:,} envelopes checked by hash only (--full rebuilds all)")
    for findings in everything:
        if findings.software is not None:
            facts.append(f"documents of software {printable(findings.software)} checked by hash only")
    faults = sum(len(findings.faults) for findings in everything)
    facts.append(number_of(faults, "fault") if faults else "no faults")
    return "; ".join(facts)


def in_words(ledger: Ledger) -> str:
    """Returns the equation planned = complete + infeasible + incomplete (by reason) + missing, with numbers."""
    reasons = {reason: count for reason, count in list(ledger._asdict().items())[3:-1] if count}
    by_reason = f" ({', '.join(f'{reason} {count:,}' for reason, count in reasons.items())})" if reasons else ""
    return (
        f"planned {ledger.planned:,} = complete {ledger.complete:,} + infeasible {ledger.infeasible:,}"
        f" + incomplete {sum(reasons.values()):,}{by_reason} + missing {ledger.missing:,}"
    )


def _around(folder: Folder, within: list[Entry]) -> Findings:
    """Checks the store's own folder, without the studies."""
    findings = Findings(folder)
    for entry in within:
        path = folder / entry.name
        if entry.kind == "file" and entry.name.startswith(durable.TEMPORARY):
            findings.temporary(path, entry)
        elif entry.name in LAUNCHERS and entry.kind == "folder":
            pass  # no results
        elif entry.kind != "folder" or entry.name.startswith("."):
            findings.fault(path, f"is an unexpected {entry.kind}")
    return findings


def _check_study(study: Folder, within: list[Entry] | None, on_bytes: OnBytes, *, rebuild: bool) -> Findings:
    try:
        return study_checks.check(study, within, on_bytes, rebuild=rebuild)
    except TooOld:
        raise
    except Exception as error:  # an unexpected error in one study must not hide faults in the others
        findings = Findings(study)
        findings.fault(study, f"cannot be checked ({brief(error)})")
        return findings


def _entries(folder: Folder) -> list[Entry] | None:
    try:
        return entries(folder)
    except BadInput:  # checking the study reports it
        return None
