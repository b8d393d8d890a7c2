"""Checks a release: its lists, then files against lists, tables against plans, and documents against tables."""

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from results import bounds
from results.aliases import StringMap
from results.bad_input import BadInput, TooOld
from results.catalog import contents, documents, point_rows
from results.catalog.contents import POINTS_FILE, PointsFile
from results.catalog.documents import SUMS
from results.checks import table_checks
from results.checks.commit_checks import check_planned, envelope_faults, row_faults
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, sha256, symptom
from results.durable import LIST_BYTES, Damaged, Folder
from results.plans.plan import Plan
from results.rules.ledger import Endings
from results.storage import commits, shared
from results.storage.commits import MANIFEST, Commit
from results.storage.compaction import TABLES, Piece
from results.storage.folders import entries

DEEPEST = 12  # maximum depth of folders; a release has six


class Listed(NamedTuple):
    """The contents of a release, according to its lists.

    Attributes:
      documents: listed sha256 of every existing file, by path.
      commits: studies in the manifest.
      sizes: size of each existing file in bytes, by path.
      around: faults in the lists, and unlisted files.
    """

    documents: StringMap
    commits: list[Commit]
    sizes: dict[str, int]
    around: Findings


def is_release(names: set[str]) -> bool:
    """Returns whether a folder with these file names is a release, even an incomplete one."""
    return bool(names & {MANIFEST, SUMS})


def lists(folder: Folder) -> Listed:
    """Reads SHA256SUMS and manifest.json, and compares them with each other and with the existing files."""
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
            findings.fault(folder, symptom(error, folder))
    for path in sorted(hashes.keys() - sizes.keys() - {MANIFEST}):  # a missing manifest is already reported
        findings.fault(folder / path, "is listed but missing")
    known = sizes.keys() & hashes.keys()
    others = {path: hashes[path] for path in sorted(known - {MANIFEST} if studies is None else known)}
    return Listed(others, studies or [], sizes, findings)


def check_file(path: Folder, expected: str, on_bytes: OnBytes) -> Findings:
    """Checks a file of a release against its listed hash."""
    findings = Findings(path)
    with findings.reading(path):
        if sha256(path, on_bytes) != expected:
            findings.fault(path, TORN)
    return findings


def check_study(folder: Folder, commit: Commit, sizes: Mapping[str, int], *, rebuild: bool) -> Findings:
    """Checks the tables of a study.

    Args:
      folder: the release.
      commit: the study.
      sizes: size of each existing file in bytes, by path.
      rebuild: whether to rebuild the envelope and compare it with the stored one.
    """
    findings = Findings(folder / MANIFEST, ledger=commit.ledger)
    within = sizes.keys() >= {file.path.name for file in commit.files.values()}
    if within and all(file.shared and file.shared.intact for file in commit.files.values()):  # otherwise reported above
        study, tables = commit.study, dict[str, pa.Table]()
        findings.faults += slice_faults(commit, study, findings.endings, tables, rebuild=rebuild)
        findings.believed += not rebuild
        if not findings.faults:
            findings.points = point_rows.of_study(commit, study, Piece(**tables))
    return findings


def slice_faults(
    commit: Commit, study: Plan, endings: Endings, tables: dict[str, pa.Table], *, rebuild: bool = True
) -> list[Fault]:
    """Returns the faults in a study's slices of a release's files.

    Args:
      commit: the study as listed in the manifest.
      study: the study's plan.
      endings: dictionary that is filled with the ending of each trial.
      tables: dictionary that is filled with the study's own tables.
      rebuild: whether to rebuild the envelope and compare it with the stored one.
    """
    faults, rows = [], {}
    for table in TABLES:
        file = commit.files[table]
        try:
            if file.shared is None or not file.shared.intact:
                raise Damaged(TORN)
            if file.shared.hidden:
                raise Damaged(f"has values of {file.shared.hidden} although its statistics report only nulls")
            check_planned(commit, study, table, file.rows)
            tables[table] = commits.read_table(commit, table)
            rows[table] = table_checks.table_rows(tables[table])
            wrong = shared.differing(table, file.shared.table(file.start, file.rows), file.columns, study)
            if wrong:
                raise Damaged(f"has a {wrong[0]} of {study.name} that contradicts its plan and its own table")
        except FileNotFoundError:
            faults.append(Fault(file.path, "is missing"))
        except Exception as error:  # reading an untrusted file can raise any exception
            faults.append(Fault(file.path, brief(error).removeprefix(f"{file.path} ")))
    manifest = commit.files["studies"].path.parent / MANIFEST
    faults = faults or row_faults(commit, study, manifest, rows, endings, None)
    listed = commit.files.get("envelope")
    if faults or listed is None or listed.shared is None:
        return faults
    return envelope_faults(
        commit, study, pa.py_buffer(listed.shared.content(listed.start, listed.bytes)), rows if rebuild else None
    )


def _files(folder: Folder, inside: str, findings: Findings) -> Iterator[tuple[str, int]]:
    """Yields the path and size of every file under a folder. Anything other than a file or folder is a fault."""
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


def _sums(folder: Folder, sizes: dict[str, int], findings: Findings) -> StringMap | None:
    """Returns the sha256 by path from SHA256SUMS. If the file has changed, adds a fault and returns None."""
    path = folder / SUMS
    if not _is_readable(path, sizes, findings):
        return None
    with findings.reading(path):
        data = path.read_bytes()
        lines = [line.partition("  ") for line in documents.lines_of_sums(data)]
        hashes = {name: digest for digest, _, name in lines}
        if documents.sums(hashes) == data:
            return hashes
        findings.fault(path, TORN)
    return None


def _manifest(folder: Folder, sizes: dict[str, int], findings: Findings) -> list[Commit] | None:
    """Returns the studies in the manifest. If the file has changed, adds a fault and returns None."""
    path = folder / MANIFEST
    if not _is_readable(path, sizes, findings):
        return None
    try:
        return commits.released_commits(folder)
    except TooOld:
        raise
    except Damaged as error:
        findings.fault(path, symptom(error, path))
    except BadInput as error:
        findings.fault(path, str(error))
    return None


def _is_readable(path: Folder, sizes: dict[str, int], findings: Findings) -> bool:
    """Returns whether a list exists and is not too large. Adds a fault if not."""
    if path.name not in sizes:
        findings.fault(path, "is missing; fetch the release again")
    elif sizes[path.name] > LIST_BYTES:
        findings.fault(path, "is far too large")
    return sizes.get(path.name, LIST_BYTES + 1) <= LIST_BYTES


def check_documents(folder: Folder, commits: Sequence[Commit], hashes: StringMap) -> Findings:
    """Rebuilds the documents and compares them with the stored ones.

    Only the version of the software that wrote a release writes identical documents. Documents from another version are
    therefore not compared, but their hashes are in the lists.

    Args:
      folder: the release. Its files match its lists.
      commits: studies in the release.
      hashes: sha256 of its documents, by name.
    """
    findings = Findings(folder)
    try:
        if (software := documents.software(folder)) != importlib.metadata.version("scaling-limits"):
            findings.software = str(software)[:40]
            return findings
        differing = list(_differing(folder, commits, hashes))
        # The manifest contains the hashes of all other documents, and the citation contains the manifest's hash.
        causes = [name for name in differing if name not in (MANIFEST, documents.CITATION)]
        for name in causes or differing[-1:]:
            findings.fault(folder / name, "does not match the plans and tables; export the release again")
    except Exception as error:  # readers of untrusted files can raise any exception
        findings.fault(folder, f"has documents that cannot be compared with its tables ({brief(error)})")
    return findings


def _differing(folder: Folder, commits: Sequence[Commit], hashes: StringMap) -> Iterator[str]:
    points = None
    if POINTS_FILE in hashes:
        with (folder / POINTS_FILE).open("rb") as stream:
            file = bounds.Parquet(stream)
            points = PointsFile(file.schema_arrow, hashes[POINTS_FILE], file.bytes, file.metadata.num_rows)
    for name, content in documents.of_release(contents.of_studies(commits, points)).items():
        if (folder / name).read_bytes() != content:
            yield name
