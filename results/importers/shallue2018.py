"""Import of the archive released with Shallue et al. 2018 (arXiv 1811.03600): checksum, passes, differences.

The archive states no licence: it is read where it lies, and never redistributed.
"""

import contextlib
import csv
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from results import progress, store
from results.bad_input import BadInput, number_of
from results.cli import report_some
from results.durable import Folder, located_both
from results.importers import archive, shallue2018_format
from results.importers.intake import Intake
from results.importers.tar_stream import Broken
from results.importers.untrusted import SHOWN, ImportWarnings
from results.storage import claims

# Of batch_science_data.tar.bz2 as published at storage.googleapis.com/batch_science_data/.
SHA256 = frozenset({"6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435"})
PUBLISHED = Path(__file__).parents[1] / "papers" / "shallue2018_studies.csv"
WRITERS = max(2, min(4, (os.cpu_count() or 2) // 2))  # threads: they wait for the disk as much as they compute

TrialCounts = tuple[int, int, int]  # trials that are complete, incomplete, infeasible
Report = Callable[[str], None]


@located_both
def run(path: Folder, folder: Folder, *, any_checksum: bool, report: Report) -> int:
    """Imports the archive into a store; stored trials are kept and not read again.

    Args:
      path: the .tar.bz2 as published, a .tar of the same, or the folder it unpacks to.
      folder: of the store.
      any_checksum: take it whatever its sha256.
      report: takes a line of text for the reader.

    Returns:
      0; or 1 if nothing could be imported, or the archive could not be read to its end.

    Raises:
      BadInput: there is no such archive, it is not the published one, or the store cannot be written.
    """
    try:
        if not path.exists():
            raise BadInput(
                f"no archive at {path}; name batch_science_data.tar.bz2, a .tar of it or the unpacked folder"
            )
        store.check_destination(folder)
        if not any_checksum:
            _check_sha256(path, report)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error})") from None
    warnings = ImportWarnings()
    with ThreadPoolExecutor(WRITERS) as pool:
        intake = Intake(folder, pool, warnings)
        try:
            broken = _pass(path, intake, report)
            if intake.end_of_pass(cut=bool(broken)):
                report("too many files came before the study they belong to; reading the archive again")
                _second_pass(path, intake, report)
            intake.finish(cut=bool(broken))
        except claims.TakenOver as error:
            raise BadInput(f"{error}; run the same command again once that has ended") from None
        except OSError as error:
            raise BadInput(f"{folder} cannot be written ({error.strerror or error})") from None
        finally:
            pool.shutdown(cancel_futures=True)
    return _tell(path, folder, intake, broken, warnings, report)


def differences(counts: Mapping[str, TrialCounts]) -> list[str]:
    """Differences of an archive from the published table of 454 studies, a line each.

    Args:
      counts: trials by status of every study, by its folder.
    """
    with PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    statuses = ("complete", "incomplete", "infeasible")
    published = {f"{row['base_directory']}/{row['model']}/{row['optimizer']}/{row['batch_size']}": row for row in rows}
    lines = []
    for path, row in published.items():
        if path not in counts:
            lines.append(f"{path}: missing")
            continue
        changes = [
            f"{status} {count:,}, not {int(row[f'{status}_trials']):,}"
            for status, count in zip(statuses, counts[path], strict=True)
            if count != int(row[f"{status}_trials"])
        ]
        if changes:
            lines.append(f"{path}: {'; '.join(changes)}")
    return lines + [f"{path}: not in the table" for path in sorted(counts.keys() - published.keys())]


def _check_sha256(path: Folder, report: Report) -> None:
    if path.is_dir():
        raise BadInput(f"{path} is a folder, which has no checksum; --any-checksum imports it anyway")
    if not path.is_file():
        raise BadInput(f"{path} is neither a file nor a folder")
    total = 0
    with progress.show_progress("checksum", path.stat().st_size, "B", report) as tell:

        def read(count: int) -> None:
            nonlocal total
            total += count
            tell(total)

        digest = archive.sha256(path, read)
    if digest not in SHA256:
        raise BadInput(
            f"{path} is not the published archive (sha256 {digest}, not {min(SHA256)[:8]}...); download it again, or "
            "import it all the same with --any-checksum"
        )


def _pass(path: Folder, intake: Intake, report: Report) -> str:
    """Takes in every file; returns why the archive could not be read to its end, or nothing."""
    reported = False
    try:
        with contextlib.closing(_entries(path, "import", report)) as entries:
            for entry in entries:
                if why := _not_to_be_read(entry):
                    intake.warn(_printable(entry.path), f"{why}; skipped")
                elif place := shallue2018_format.place(entry.path):
                    intake.take(place, entry)
                intake.check_bounds()
                if intake.there and not reported:
                    report("some of it is stored already and is skipped; all of it is decoded again")
                    reported = True
    except Broken as error:
        return str(error)
    return ""


def _not_to_be_read(entry: archive.ArchiveEntry) -> str:
    """The reason why an entry is not read; empty for files that the format does not know."""
    if entry.odd:
        return f"is {entry.odd}"
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        return "leads out of the archive"
    if shallue2018_format.place(entry.path) is None and entry.path.rpartition("/")[2] in shallue2018_format.FILES:
        return "is not where a file of its name belongs"
    return ""


def _second_pass(path: Folder, intake: Intake, report: Report) -> None:
    try:
        with contextlib.closing(_entries(path, "second pass", report)) as entries:
            for entry in entries:
                if not entry.odd and (place := shallue2018_format.place(entry.path)):
                    intake.take_put_off(place, entry)
    except Broken:  # as in the first pass, which told of it
        return


def _entries(path: Folder, what: str, report: Report) -> Generator[archive.ArchiveEntry]:
    with archive.open_archive(path, shallue2018_format.TOP) as source:
        unit = "B" if source.size else " files"
        with progress.show_progress(what, source.size, unit, report) as tell:
            for count, entry in enumerate(source.entries):
                yield entry
                if count % 64 == 0:
                    tell(source.position() if source.size else count)


def _tell(path: Folder, folder: Folder, intake: Intake, broken: str, warnings: ImportWarnings, report: Report) -> int:
    """Reports what was imported and what was not; returns the exit code."""
    imported = {study.path: study.counts() for study in intake.studies.values() if study.recorded and not study.refused}
    if not imported:
        why = [f"{path}: {broken}"] if broken else []
        why += warnings.lines
        why = why or [f"{path} holds no study in a folder {shallue2018_format.TOP}/"]
        report(f"error: nothing could be imported: {why[0]}")
        if len(why) > 1:
            report(f"and {len(why) - 1} more faults")
        return 1
    warnings.report(report)
    if intake.left_out:
        names = sorted(intake.left_out)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        report(f"columns that are not imported: {', '.join(map(ascii, names[:SHOWN]))}{more}")
    lines = differences(imported)
    if lines:
        report("against the table of 454 studies published with the archive:")
        report_some(lines, lambda line: report(f"  {line}"), SHOWN)
    trials = sum(map(sum, imported.values()))
    report(
        f"{folder} holds {number_of(len(imported), 'study')} of {path.name or path} "
        f"with {number_of(trials, 'trial')}; "
        f"{number_of(intake.trials, 'trial')} with {intake.rows:,} measurements are new"
    )
    if broken:
        report(f"error: {path} could not be read to its end: {broken}; what came before is imported")
    return 1 if broken else 0


def _printable(path: str) -> str:
    return path[:200] if path.isprintable() else ascii(path)[:200]
