"""Importer for the archive of Shallue et al. 2018 (arXiv 1811.03600): checks it, reads it and reports differences.

The archive does not have a licence, so it is read in place and never redistributed.
"""

import contextlib
import csv
import json
import os
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from results import durable, progress, store
from results.bad_input import BadInput, first_few, number_of
from results.durable import Folder, Location
from results.importers import archive, shallue2018_format
from results.importers.intake import Intake
from results.importers.tar_stream import Broken
from results.importers.untrusted import SHOWN, ImportWarnings
from results.located import located
from results.printing import Report, report_some
from results.storage import claims, commits
from results.storage.commits import Commit

# sha256 of batch_science_data.tar.bz2 as published at storage.googleapis.com/batch_science_data/.
SHA256 = frozenset({"6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435"})
PUBLISHED = Path(__file__).parents[1] / "papers" / "shallue2018_studies.csv"
ARCHIVE = "batch_science_data"  # key of the sha256 in ``package_versions``
UNPACKED = "unpacked folder, not checked"  # instead of the sha256
WRITERS = max(2, min(4, (os.cpu_count() or 2) // 2))  # threads; they wait for the disk half of the time

TrialCounts = tuple[int, int, int]  # complete, incomplete and infeasible trials


@located
def run(path: Folder, folder: Location, *, any_checksum: bool, report: Report) -> int:
    """Imports the archive into a store. Stored trials are kept and not imported again.

    Args:
      path: the published .tar.bz2, a .tar of it, or the unpacked folder.
      folder: the store.
      any_checksum: whether to accept any sha256. It is stored in the column ``package_versions`` of the studies.
      report: called with lines for the user.

    Returns:
      0, or 1 if nothing could be imported or the archive could not be read to its end.

    Raises:
      BadInput: the archive does not exist, is not the published one, or the store cannot be written.
    """
    folder = durable.location(folder)
    try:
        if not path.exists():
            raise BadInput(
                f"no archive at {path}. Name batch_science_data.tar.bz2, a .tar of it or the unpacked folder."
            )
        store.check_destination(folder)
        digest = _sha256(path, report, any_checksum=any_checksum)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error})") from None
    warnings = ImportWarnings()
    with ThreadPoolExecutor(WRITERS) as pool:
        intake = Intake(folder, pool, warnings, {"package_versions": json.dumps({ARCHIVE: digest})})
        try:
            broken = _pass(path, intake, report)
            if intake.end_of_pass(cut=bool(broken)):
                report("too many files precede their study.json; reading the archive again")
                _pass(path, intake, report, is_second=True)  # the first pass reported any damage
            intake.finish(cut=bool(broken))
        except claims.TakenOver as error:
            raise BadInput(f"{error}. Run the same command again when that process has ended.") from None
        except OSError as error:
            raise BadInput(f"{folder} cannot be written ({error.strerror or error})") from None
        finally:
            pool.shutdown(cancel_futures=True)
    return _report_import(path, folder, intake, broken, warnings, report)


def doubts(commit: Commit) -> set[str]:
    """Returns the ways in which the sources of a study differ from the published archive, by their stored sha256."""
    versions = commits.read_table(commit, "studies")["package_versions"].drop_null().to_pylist()
    digests = {str(json.loads(text).get(ARCHIVE, UNPACKED)) for text in versions} - SHA256
    return {
        digest if digest == UNPACKED else f"not the published archive, but sha256 {digest[:8]}…" for digest in digests
    }


def differences(counts: Mapping[str, TrialCounts]) -> list[str]:
    """Returns the differences between an archive and the published table of 454 studies, as one line each.

    Args:
      counts: number of trials in each study, by folder.
    """
    statuses = ("complete", "incomplete", "infeasible")
    lines, unknown = [], dict(counts)
    with PUBLISHED.open(newline="") as file:
        for row in csv.DictReader(file):
            path = f"{row['base_directory']}/{row['model']}/{row['optimizer']}/{row['batch_size']}"
            published = [int(row[f"{status}_trials"]) for status in statuses]
            triples = zip(statuses, unknown.pop(path, ()), published, strict=False)
            changes = [
                f"{status} {count:,}, not {expected:,}" for status, count, expected in triples if count != expected
            ]
            if path not in counts:
                changes = ["missing"]
            if changes:
                lines.append(f"{path}: {'; '.join(changes)}")
    return lines + [f"{path}: not in the table" for path in sorted(unknown)]


def _sha256(path: Folder, report: Report, *, any_checksum: bool) -> str:
    """Returns the sha256 of the archive. Raises BadInput if it is not the published one, unless any is accepted."""
    if path.is_dir() and any_checksum:
        return UNPACKED
    if path.is_dir():
        raise BadInput(f"{path} is a folder, which has no checksum. Import it with --any-checksum.")
    if not path.is_file():
        raise BadInput(f"{path} is neither a file nor a folder")
    with progress.show_progress("checksum", path.stat().st_size, "B", report) as show:
        digest = durable.sha256(path, show)
    if digest not in SHA256 and not any_checksum:
        raise BadInput(
            f"{path} is not the published archive (sha256 {digest}, not {min(SHA256)[:8]}...). Download it again, or "
            "import it anyway with --any-checksum."
        )
    return digest


def _pass(path: Folder, intake: Intake, report: Report, *, is_second: bool = False) -> str:
    """Reads every file. If the archive could not be read to its end, returns the reason, else an empty string."""
    was_reported = False
    try:
        with contextlib.closing(_entries(path, "second pass" if is_second else "import", report)) as entries:
            for entry in entries:
                reason, place = _reason_to_skip(entry), shallue2018_format.place(entry.path)
                if is_second:
                    if place and not reason:
                        intake.take_put_off(place, entry)
                    continue
                if reason:
                    intake.warnings.add(_printable(entry.path), f"{reason}; skipped")
                elif place:
                    intake.take(place, entry)
                intake.check_bounds()
                if intake.present and not was_reported:
                    report("skipping trials that are already stored; the whole archive is decoded again")
                    was_reported = True
    except Broken as error:
        return str(error)
    return ""


def _reason_to_skip(entry: archive.ArchiveEntry) -> str:
    """Returns the reason for skipping an entry with a warning, or an empty string."""
    if entry.odd:
        return f"is {entry.odd}"
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        return "leads out of the archive"
    if shallue2018_format.place(entry.path) is None and entry.path.rpartition("/")[2] in shallue2018_format.FILES:
        return "is in the wrong folder for its name"
    return ""


def _entries(path: Folder, label: str, report: Report) -> Generator[archive.ArchiveEntry]:
    with archive.open_archive(path, shallue2018_format.TOP) as source:
        unit = "B" if source.size else " files"
        with progress.show_progress(label, source.size, unit, report) as show:
            for count, entry in enumerate(source.entries):
                yield entry
                if count % 64 == 0:
                    show(source.position if source.size else count)


def _report_import(
    path: Folder, folder: Folder, intake: Intake, broken: str, warnings: ImportWarnings, report: Report
) -> int:
    """Reports imported and skipped data. Returns the exit code."""
    imported = {study.path: study.counts() for study in intake.studies.values() if study.recorded and not study.refused}
    if not imported:
        reasons = [f"{path}: {broken}"] if broken else []
        reasons += warnings.lines
        reasons = reasons or [f"{path} holds no study in a folder {shallue2018_format.TOP}/"]
        report(f"error: nothing could be imported: {reasons[0]}")
        if len(reasons) > 1:
            report(f"and {len(reasons) - 1} more faults")
        return 1
    warnings.report(report)
    if intake.left_out:
        names = [ascii(name) for name in sorted(intake.left_out)]
        report(f"columns that are not imported: {first_few(names, SHOWN)}")
    lines = differences(imported)
    if lines:
        report("differences from the table of 454 studies published with the archive:")
        report_some(lines, lambda line: report(f"  {line}"), SHOWN)
    trials = sum(map(sum, imported.values()))
    report(
        f"{folder} holds {number_of(len(imported), 'study')} of {path.name or path} "
        f"with {number_of(trials, 'trial')}; new: {number_of(intake.trials, 'trial')}, {intake.rows:,} measurements"
    )
    if broken:
        report(f"error: {path} could not be read to its end: {broken}; everything before that is imported")
    return 1 if broken else 0


def _printable(path: str) -> str:
    return path[:200] if path.isprintable() else ascii(path)[:200]
