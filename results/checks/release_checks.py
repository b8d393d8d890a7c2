"""Checks of a release: intact lists, every file as listed and no other, tables as planned, documents as these give."""

import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from results import bounds
from results.bad_input import BadInput, TooOld
from results.catalog import contents, documents, point_rows
from results.catalog.contents import POINTS_FILE, PointsFile
from results.catalog.documents import SUMS
from results.checks import table_checks
from results.checks.commit_checks import check_planned, envelope_faults, row_faults
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, sha256
from results.durable import LIST_BYTES, Damaged, Folder
from results.plans.plan import Plan
from results.rules.ledger import TrialEnding
from results.storage import commits, shared
from results.storage.commits import MANIFEST, Commit
from results.storage.compaction import TABLES, Piece
from results.storage.folders import entries

DEEPEST = 12  # folders; a release has six


class Listed(NamedTuple):
    """The contents of a release to be checked.

    Attributes:
      documents: paths of files that are listed and there, and no study's, with the sha256 they are listed with.
      commits: the studies of the manifest.
      sizes: of all files that are there, by path.
      around: what is wrong with the lists, and with what they do not list.
    """

    documents: dict[str, str]
    commits: list[Commit]
    sizes: dict[str, int]
    around: Findings


def is_release(names: set[str]) -> bool:
    """Whether a folder with files of these names is a release, or was."""
    return bool(names & {MANIFEST, SUMS})


def lists(folder: Folder) -> Listed:
    """Reads SHA256SUMS and manifest.json, and compares them with each other and with the files that are there."""
    findings = Findings(folder)
    sizes = dict(_files(folder, "", findings))
    findings.files, findings.bytes = len(sizes), sum(sizes.values())
    hashes, studies = _sums(folder, sizes, findings), _manifest(folder, sizes, findings)
    if hashes is None:
        return Listed({}, [], sizes, findings)
    for path in sorted(sizes.keys() - hashes.keys() - {SUMS}):
        findings.fault(folder / path, "is an unexpected file that no list names")
    if studies is not None:
        try:
            documents.check_lists(folder)
        except BadInput as error:
            findings.fault(folder, str(error))
    for path in sorted(hashes.keys() - sizes.keys() - {MANIFEST}):
        findings.fault(folder / path, "is listed but missing")
    known = sizes.keys() & hashes.keys()
    others = {path: hashes[path] for path in sorted(known - {MANIFEST} if studies is None else known)}
    return Listed(others, studies or [], sizes, findings)


def check_file(path: Folder, expected: str, on_bytes: OnBytes) -> Findings:
    """Checks a file that a release lists against its hash."""
    findings = Findings(path)
    try:
        if sha256(path, on_bytes) != expected:
            findings.fault(path, TORN)
    except OSError as error:
        findings.fault(path, f"cannot be read ({error.strerror})")
    return findings


def check_study(folder: Folder, commit: Commit, sizes: Mapping[str, int], *, rebuild: bool) -> Findings:
    """Checks the files of a study, and its tables.

    Args:
      folder: of the release.
      commit: the study.
      sizes: of all files that are there, by path.
      rebuild: whether to rebuild the envelope and compare.
    """
    findings = Findings(folder / MANIFEST, ledger=commit.ledger)
    within = sizes.keys() >= {file.path.name for file in commit.files.values()}
    if within and all(file.shared and file.shared.intact for file in commit.files.values()):  # else reported already
        study, tables = commit.study, dict[str, pa.Table]()
        findings.faults += slice_faults(commit, study, findings.endings, tables, rebuild=rebuild)
        findings.believed += not rebuild
        if not findings.faults:
            findings.points = point_rows.of_study(commit, study, Piece(**tables))
    return findings


def slice_faults(
    commit: Commit,
    study: Plan,
    endings: dict[int, TrialEnding] | None = None,
    tables: dict[str, pa.Table] | None = None,
    *,
    rebuild: bool = True,
) -> list[Fault]:
    """Faults of the slices that a study has of the files of a release.

    Args:
      commit: as the manifest tells.
      study: its plan.
      endings: takes how the trials ended.
      tables: takes the study's own tables.
      rebuild: whether to rebuild the envelope and compare.
    """
    faults, rows, tables = [], {}, {} if tables is None else tables
    for table in TABLES:
        file = commit.files[table]
        try:
            if file.shared is None or not file.shared.intact:
                raise Damaged(TORN)
            if file.shared.hidden:
                raise Damaged(f"has values of {file.shared.hidden} where its statistics say that it has none")
            check_planned(commit, study, table, file.rows)
            tables[table] = commits.read_table(commit, table)
            rows[table] = table_checks.table_rows(tables[table])
            wrong = shared.differing(table, file.shared.table(file.start, file.rows), file.columns, study)
            if wrong:
                raise Damaged(f"has another {wrong[0]} of {study.name} than its plan and its own table")
        except FileNotFoundError:
            faults.append(Fault(file.path, "is missing"))
        except Exception as error:  # an untrusted file can raise anything in its reader
            faults.append(Fault(file.path, brief(error).removeprefix(f"{file.path} ")))
    manifest = commit.files["studies"].path.parent / MANIFEST
    faults = faults or row_faults(commit, study, manifest, rows, {} if endings is None else endings, None)
    listed = commit.files.get("envelope")
    if faults or listed is None or listed.shared is None:
        return faults
    return envelope_faults(
        commit, study, pa.py_buffer(listed.shared.content(listed.start, listed.bytes)), rows if rebuild else None
    )


def _files(folder: Folder, inside: str, findings: Findings) -> Iterator[tuple[str, int]]:
    """Paths and sizes of all files under a folder; a fault for everything that is neither file nor folder."""
    within = entries(folder / inside if inside else folder)
    for entry in within:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.kind == "file":
            yield path, entry.bytes
        elif entry.kind == "folder" and path.count("/") < DEEPEST:
            yield from _files(folder, path, findings)
        else:
            findings.fault(folder / path, f"is an unexpected {entry.kind}")
    if not within:
        findings.fault(folder / inside, "is an empty folder")


def _sums(folder: Folder, sizes: dict[str, int], findings: Findings) -> dict[str, str] | None:
    """sha256 by path, as SHA256SUMS lists them; None, and a fault, if it is not what was written."""
    path = folder / SUMS
    if sizes.get(SUMS, LIST_BYTES + 1) > LIST_BYTES:
        findings.fault(path, "is missing; fetch the release again" if SUMS not in sizes else "is far too large")
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        findings.fault(path, f"cannot be read ({error.strerror})")
        return None
    lines = [line.partition("  ") for line in documents.lines_of_sums(data)]
    hashes = {name: digest for digest, _, name in lines}
    if documents.sums(hashes) != data:
        findings.fault(path, TORN)
        return None
    return hashes


def _manifest(folder: Folder, sizes: dict[str, int], findings: Findings) -> list[Commit] | None:
    """The studies of the manifest; None, and a fault, if it is not what was written."""
    path = folder / MANIFEST
    if sizes.get(MANIFEST, LIST_BYTES + 1) > LIST_BYTES:
        findings.fault(path, "is missing; fetch the release again" if MANIFEST not in sizes else "is far too large")
        return None
    try:
        return commits.released_commits(folder)
    except TooOld:
        raise
    except Damaged as error:
        findings.fault(path, str(error).removeprefix(f"{path} ").partition(";")[0])
    except BadInput as error:
        findings.fault(path, str(error))
    return None


def check_documents(folder: Folder, commits: Sequence[Commit], hashes: dict[str, str]) -> Findings:
    """Makes the documents again and compares; if another version of this software wrote the release, it is noted.

    Only that version would write the same documents: here the lists have their hashes, and no more is checked.

    Args:
      folder: of the release, whose files are as they are listed.
      commits: its studies.
      hashes: sha256 of its documents, by name.
    """
    findings = Findings(folder)
    try:
        if (software := documents.software(folder)) != importlib.metadata.version("scaling-limits"):
            findings.software = str(software)[:40]
            return findings
        differing = list(_differing(folder, commits, hashes))
        # The manifest has the hashes of all others, and the citation has its: they differ with any.
        causes = [name for name in differing if name not in (MANIFEST, documents.CITATION)]
        for name in causes or differing[-1:]:
            findings.fault(folder / name, "is not what the plans and tables beside it give; export the release again")
    except Exception as error:  # untrusted files can raise anything in their reader
        findings.fault(folder, f"has documents that cannot be compared with its tables ({brief(error)})")
    return findings


def _differing(folder: Folder, commits: Sequence[Commit], hashes: dict[str, str]) -> Iterator[str]:
    points = None
    if POINTS_FILE in hashes:
        with (folder / POINTS_FILE).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            file = bounds.Parquet(stream, bounds.allowed(size))
            rows = file.metadata.num_rows
            points = PointsFile(file.schema_arrow, hashes[POINTS_FILE], size, rows)
    for name, content in documents.of_release(contents.of_studies(commits, points)).items():
        if (folder / name).read_bytes() != content:
            yield name
