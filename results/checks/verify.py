"""Verifying a store or a release: hashes of all files, contents of all tables, totals of all ledgers."""

import collections
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from results import durable, printing, progress
from results.bad_input import BadInput, TooOld, number_of, printable
from results.catalog.contents import POINTS_FILE
from results.checks import point_checks, release_checks, study_checks
from results.checks.faults import Findings, OnBytes, brief
from results.durable import Folder
from results.printing import numbered
from results.rules.ledger import Ledger
from results.storage.folders import LAUNCHERS, Entry, check_layout, check_not_above, entries

Report = Callable[[str], None]
T = TypeVar("T")

REBUILD_BYTES = 32 << 20  # of studies whose envelopes are made again and compared; a second or two

_LEFTOVERS = {
    "temporary": "temporary files of active writers",
    "unplanned": "studies about to be asked for",
    "replaced": "files that a newer commit replaced",
    "cut off": "parts that a newer claim cut off",
    "uncommitted": "tables without a commit record",
}


@durable.located
def run(folder: Folder, report: Report, *, full: bool = False) -> int:
    """Prints a line for every fault in a store or a release, then a summary; or both as JSON, or the faults as CSV.

    Args:
      folder: of the store, or of the release.
      report: takes lines about progress.
      full: whether to make all envelopes again, and not only those of a sample of what is large.

    Returns:
      0 if there is no fault, 1 if there is any.
    """
    everything = examine(folder, report, full=full)
    faults = [fault for findings in everything for fault in findings.faults]
    if printing.is_data():
        _show_data(everything)
    else:
        printing.answer("\n".join([*(fault.line for fault in faults), summary(everything)]))
    return 1 if faults else 0


@durable.located
def examine(folder: Folder, report: Report, *, full: bool = False) -> list[Findings]:
    """The findings of checking a store or a release; see ``run``."""
    within = entries(folder)
    if release_checks.is_release({entry.name for entry in within}):
        return release(folder, report, full=full)
    return store(folder, within, report, full=full)


def sample(sizes: Mapping[str, int], *, full: bool) -> frozenset[str]:
    """The studies whose envelopes are rebuilt: all, or in large stores as many as take a second or two.

    Envelopes are a short cut to the tables. The others are only checked to be intact and made for these tables.

    Args:
      sizes: bytes of every study, by its name; which are drawn is a function of these.
      full: whether to take all.
    """
    names, total = sorted(sizes), sum(sizes.values())
    if full or total <= REBUILD_BYTES:
        return frozenset(names)
    random.Random(total).shuffle(names)
    upto = itertools.accumulate(sizes[name] for name in names)
    return frozenset(names[: max(1, sum(end <= REBUILD_BYTES for end in upto))])


def release(folder: Folder, report: Report, *, full: bool) -> list[Findings]:
    """The findings of checking a release: its lists, then every file, then the tables of every study."""
    lists = release_checks.lists(folder)
    sizes = {commit.name: sum(file.bytes for file in commit.files.values()) for commit in lists.commits}
    sample_names = sample(sizes, full=full)
    with progress.show_progress("verifying", lists.around.bytes, "B", report) as show:
        on_bytes = tally(show)
        documents = at_once(
            lists.documents, lambda path: release_checks.check_file(folder / path, lists.documents[path], on_bytes)
        )
        studies = at_once(
            lists.commits,
            lambda commit: release_checks.check_study(folder, commit, lists.sizes, rebuild=commit.name in sample_names),
            one_by_one=sum(sizes.values()) <= REBUILD_BYTES,
        )
    everything = [lists.around, *documents, *studies]
    is_torn = {fault.path for each in documents for fault in each.faults}
    points = folder / POINTS_FILE
    if any(each.faults for each in studies) or not lists.commits:
        return everything
    if POINTS_FILE in lists.documents and points not in is_torn:
        everything.append(point_checks.check(points, [row for study in studies for row in study.points]))
    if not lists.around.faults and not is_torn:
        everything.append(release_checks.check_documents(folder, lists.commits, lists.documents))
    return everything


def store(folder: Folder, within: list[Entry], report: Report, *, full: bool) -> list[Findings]:
    """The findings of checking a store: its own folder, then every study.

    Args:
      folder: of the store.
      within: what lies in it.
      report: takes lines about progress.
      full: whether to make all envelopes again.

    Raises:
      BadInput: this is no store, or one of a layout that is no longer written.
    """
    names = [entry.name for entry in within if entry.kind == "folder" and not entry.name.startswith(".")]
    studies = [folder / name for name in sorted(names, key=numbered)]
    if not studies:
        raise BadInput(
            f"{folder} holds no study, so it is not a store; name the folder that a sweep or an import wrote to"
        )
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
    """Runs checks in parallel, one per processor; hashing and decoding release Python's lock.

    Args:
      items: to be checked.
      check: of one of them.
      one_by_one: without threads, which cost more than they save where each has little to hash and decode.
    """
    if one_by_one:
        return list(map(check, items))
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(processors) as pool:
        return list(pool.map(check, items))


def tally(show: Callable[[int], object]) -> OnBytes:
    """Adds up counts from several threads, for a function that takes the sum."""
    lock, done = threading.Lock(), 0

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            show(done)

    return add


def _show_data(everything: Sequence[Findings]) -> None:
    """Prints JSON, an object of counts and faults, or CSV, a row per fault."""
    faults = [(str(fault.path), fault.what, fault.torn) for findings in everything for fault in findings.faults]
    ledgers = [findings.ledger for findings in everything if findings.ledger]
    header = ("path", "what", "torn")
    if printing.is_json():
        counts = [sum(numbers) for numbers in zip(*ledgers, strict=True)] or [0] * len(Ledger._fields)
        printing.show_json(
            {
                "studies": len(ledgers),
                "files": sum(findings.files for findings in everything),
                "bytes": sum(findings.bytes for findings in everything),
                "ledger": dict(zip(Ledger._fields, counts, strict=True)),
                "faults": [dict(zip(header, fault, strict=True)) for fault in faults],
            }
        )
    else:
        printing.show(header, faults, str)


def summary(everything: Iterable[Findings]) -> str:
    """The last line: counts of studies and files, the total ledger, leftovers and faults."""
    everything = list(everything)
    ledgers = [findings.ledger for findings in everything if findings.ledger]
    whole = Ledger(*(sum(counts) for counts in zip(*ledgers, strict=True))) if ledgers else Ledger(*[0] * 9)
    leftovers: collections.Counter[str] = collections.Counter()
    for findings in everything:
        leftovers += findings.leftovers
    faults = sum(len(findings.faults) for findings in everything)
    believed = sum(findings.believed for findings in everything)
    megabytes = sum(findings.bytes for findings in everything) / 1e6
    files = number_of(sum(findings.files for findings in everything), "file")
    return "; ".join(
        [
            f"{number_of(len(ledgers), 'study')}, {files}, {megabytes:,.1f} MB",
            in_words(whole),
            *(f"{count:,} {_LEFTOVERS[kind]}" for kind, count in sorted(leftovers.items())),
            *([f"{believed:,} envelopes trusted by their hashes (--full rebuilds all)"] if believed else []),
            *(
                f"documents of software {printable(each.software)} not compared with the tables, only with their hashes"
                for each in everything
                if each.software is not None
            ),
            number_of(faults, "fault") if faults else "no faults",
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
    """The findings in a store's own folder, beside the studies."""
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
    except Exception as error:  # one study that nobody foresaw must not hide what is wrong with the others
        findings = Findings(study)
        findings.fault(study, f"cannot be checked ({brief(error)})")
        return findings


def _entries(folder: Folder) -> list[Entry] | None:
    try:
        return entries(folder)
    except BadInput:  # which will be told when it is looked at
        return None
