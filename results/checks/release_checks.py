"""Checks a release: its lists, then files against lists, tables against plans, and documents against tables."""

import importlib.metadata
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from results import bounds, durable
from results.aliases import Fields, Json, StringMap
from results.bad_input import BadInput, TooOld
from results.catalog import contents, documents, point_rows
from results.catalog.contents import POINTS_FILE
from results.catalog.documents import SUMS
from results.checks import table_checks
from results.checks.commit_checks import check_planned, table_faults
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, symptom
from results.checks.table_checks import Rows
from results.durable import LIST_BYTES, Damaged, Folder
from results.storage import commit_records, commits, shared
from results.storage.commits import MANIFEST, Commit
from results.storage.compaction import Piece
from results.storage.folders import entries
from results.storage.shared import SharedFile

DEEPEST = 12  # maximum depth of folders; a release has six


class Listed(NamedTuple):
    """The contents of a release, according to its lists.

    Attributes:
      documents: listed sha256 of every existing file, by path.
      commits: studies in the manifest.
      sizes: size of each existing file in bytes, by path.
      around: faults in the lists, and unlisted files.
      software: version of the software that wrote the release.
    """

    documents: StringMap
    commits: list[Commit]
    sizes: dict[str, int]
    around: Findings
    software: object = None


def is_release(names: set[str]) -> bool:
    """Returns whether a folder with these file names is a release, even an incomplete one."""
    return bool(names & {MANIFEST, SUMS})


def lists(folder: Folder) -> Listed:
    """Reads SHA256SUMS and manifest.json, and compares them with each other and with the existing files."""
    findings = Findings(folder)
    sizes = dict(_files(folder, "", findings))
    findings.files, findings.bytes = len(sizes), sum(sizes.values())
    hashes, manifest = _sums(folder, sizes, findings), _manifest(folder, sizes, findings)
    if hashes is None:
        return Listed({}, [], sizes, findings)
    for path in sorted(sizes.keys() - hashes.keys() - {SUMS}):
        findings.fault(folder / path, "is an unexpected file that no list names")
    studies = commit_records.commits_of(manifest, folder) if manifest else []
    for disagreement in itertools.islice(_disagreements(folder, hashes, manifest, studies) if manifest else (), 1):
        findings.fault(folder, disagreement)
    for path in sorted(hashes.keys() - sizes.keys() - {MANIFEST}):  # a missing manifest is already reported
        findings.fault(folder / path, "is listed but missing")
    listed_files = sizes.keys() & hashes.keys()
    documents_of_release = {
        path: hashes[path] for path in sorted(listed_files if manifest else listed_files - {MANIFEST})
    }
    return Listed(documents_of_release, studies, sizes, findings, manifest and manifest.get("software"))


def _disagreements(folder: Folder, hashes: StringMap, manifest: Fields, studies: Sequence[Commit]) -> Iterator[str]:
    """Yields the differences between SHA256SUMS and the manifest, or between the manifest and its studies.

    Args:
      folder: the release.
      hashes: sha256 of every file by path, from SHA256SUMS.
      manifest: the manifest, as plain data.
      studies: the studies in the manifest.
    """
    path = folder / MANIFEST
    if not all(commit_records.PATH.fullmatch(listed) for listed in hashes):
        yield f"{folder / SUMS} has changed since it was written"
    if hashes.get(MANIFEST) != durable.sha256(path):
        yield f"{path} differs from the file listed in {SUMS}"
    listed = {MANIFEST: hashes.get(MANIFEST)}
    for about in (manifest.get("documents"), manifest.get("files")):
        for name, digest in about.items() if isinstance(about, Mapping) else ():
            listed[name] = digest["sha256"] if isinstance(digest, Mapping) else digest
    for commit in studies:
        for table, file in commit.files.items():
            if file.path != folder / file.path.name:
                yield f"{path} lists the {table} of {commit.name} at a path other than {file.path.name}"
    for name, digest in sorted(listed.items()):
        if digest and hashes.get(name, digest) != digest:
            yield f"{folder / name} has different sha256 values in {MANIFEST} and {SUMS}"
    yield from (f"{path} {fault}" for fault in _uncovered(studies))
    if listed.keys() != hashes.keys():
        yield f"{folder / SUMS} and {MANIFEST} disagree on {min(listed.keys() ^ hashes.keys())}"


def _uncovered(studies: Sequence[Commit]) -> Iterator[str]:
    """Yields faults in shared files that contain anything but the rows of one study after another."""
    ends: dict[SharedFile, int] = {}
    sizes = {}
    for commit in studies:
        for table, file in commit.files.items():
            if file.shared is None:
                continue
            if file.start != ends.get(file.shared, 0):
                yield f"has rows of {commit.name} that also belong to another study or are out of order"
            ends[file.shared] = file.start + (file.bytes if table == "envelope" else file.rows)
            sizes[file.shared] = file.shared.bytes if table == "envelope" else file.shared.rows
    if ends != sizes:
        yield "has rows that do not belong to a study"


def check_file(path: Folder, expected: str, size: int, on_bytes: OnBytes) -> Findings:
    """Checks a file of a release with ``size`` bytes against its listed hash."""
    findings = Findings(path)
    with findings.reading(path):
        if durable.sha256(path) != expected:
            findings.fault(path, TORN)
        on_bytes(size)
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
    is_complete = sizes.keys() >= {file.path.name for file in commit.files.values()}
    if is_complete and all(
        file.shared and file.shared.intact for file in commit.files.values()
    ):  # otherwise reported above
        tables: dict[str, pa.Table] = {}
        findings.faults += slice_faults(commit, tables, rebuild=rebuild)
        findings.believed += not rebuild
        if not findings.faults:
            findings.points = point_rows.of_study(commit, commit.study, Piece(**tables))
    return findings


def slice_faults(commit: Commit, tables: dict[str, pa.Table], *, rebuild: bool = True) -> list[Fault]:
    """Returns the faults in a study's slices of a release's files.

    Args:
      commit: the study as listed in the manifest.
      tables: dictionary that is filled with the study's own tables.
      rebuild: whether to rebuild the envelope and compare it with the stored one.
    """

    def read(table: str) -> Rows:
        file = commit.files[table]
        if file.shared is None or not file.shared.intact:
            raise Damaged(TORN)
        if file.shared.hidden:
            raise Damaged(f"has values of {file.shared.hidden} although its statistics report only nulls")
        check_planned(commit, table, file.rows)
        tables[table] = commits.read_table(commit, table)
        wrong = shared.differing(table, file.shared.table(file.start, file.rows), file.columns, commit.study)
        if wrong:
            raise Damaged(f"has a {wrong[0]} of {commit.name} that contradicts its plan and its own table")
        return table_checks.table_rows(tables[table])

    def stored() -> pa.Buffer | None:
        file = commit.files.get("envelope")
        return None if file is None else pa.py_buffer(commit_records.envelope_bytes(file))

    manifest = commit.files["studies"].path.parent / MANIFEST
    return table_faults(commit, manifest, read, stored, {}, None, rebuild=rebuild)


def _files(folder: Folder, inside: str, findings: Findings) -> Iterator[tuple[str, int]]:
    """Yields the path and size of every file under a folder. Anything other than a file or folder is a fault."""
    content = entries(folder / inside if inside else folder)
    for entry in content:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.kind == "file":
            yield path, entry.bytes
        elif entry.kind == "folder" and path.count("/") < DEEPEST:
            yield from _files(folder, path, findings)
        else:
            findings.fault(folder / path, f"is an unexpected {entry.kind}")
    if not content:
        findings.fault(folder / inside, "is an empty folder")


def _sums(folder: Folder, sizes: dict[str, int], findings: Findings) -> StringMap | None:
    """Returns the sha256 by path from SHA256SUMS. If the file has changed, adds a fault and returns None."""
    path = folder / SUMS
    if not _is_readable(path, sizes, findings):
        return None
    with findings.reading(path):
        data = path.read_bytes()
        is_list = data.count(b"\n") * 64 <= len(data)  # otherwise there are too many lines for its size
        lines = data.decode(errors="replace").splitlines()[:-1] if is_list else []
        hashes = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        if documents.sums(hashes) == data:
            return hashes
        findings.fault(path, TORN)
    return None


def _manifest(folder: Folder, sizes: dict[str, int], findings: Findings) -> Json | None:
    """Returns the manifest. If it has changed or is invalid, adds a fault and returns None."""
    path = folder / MANIFEST
    if not _is_readable(path, sizes, findings):
        return None
    try:
        manifest = durable.read_sealed(path, LIST_BYTES)
        commit_records.commits_of(manifest, folder)
        return manifest
    except TooOld:
        raise
    except BadInput as error:
        findings.fault(path, symptom(error, path) if isinstance(error, Damaged) else str(error))
    return None


def _is_readable(path: Folder, sizes: dict[str, int], findings: Findings) -> bool:
    """Returns whether a list exists and is not too large. Adds a fault if not."""
    if path.name not in sizes:
        findings.fault(path, "is missing; fetch the release again")
    elif sizes[path.name] > LIST_BYTES:
        findings.fault(path, "is far too large")
    return sizes.get(path.name, LIST_BYTES + 1) <= LIST_BYTES


def check_documents(folder: Folder, lists: Listed) -> Findings:
    """Rebuilds the documents and compares them with the stored ones.

    Only the version of the software that wrote a release writes identical documents. Documents from another version are
    therefore not compared, but their hashes are in the lists.

    Args:
      folder: the release. Its files match its lists.
      lists: the contents of the release.
    """
    findings = Findings(folder)
    try:
        if lists.software != importlib.metadata.version("scaling-limits"):
            findings.software = str(lists.software)[:40]
            return findings
        differing = list(_differing(folder, lists.commits, lists.documents))
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
            points = SharedFile(folder / POINTS_FILE, hashes[POINTS_FILE], file.bytes, file.metadata.num_rows)
    for name, content in documents.of_release(contents.of_studies(commits, points)).items():
        if (folder / name).read_bytes() != content:
            yield name
