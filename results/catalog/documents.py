"""The documents of a release: the lists (manifest.json and SHA256SUMS), and the pages derived from plans."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from results import durable
from results.aliases import Json, StringMap
from results.catalog import contents, croissant, dataset_card, licences
from results.catalog.contents import Contents
from results.durable import Damaged, Folder
from results.plans import schema
from results.storage import commits
from results.storage.commits import MANIFEST, Commit
from results.storage.shared import SharedFile

SUMS = "SHA256SUMS"
CITATION = "CITATION.cff"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def manifest(about: Contents, documents: Mapping[str, str | None]) -> bytes:
    """Returns manifest.json as bytes.

    Args:
      about: contents of the release. Its studies are slices of shared files.
      documents: sha256 of each other document, by path. None for a document that contains the hash of the manifest.
    """
    number = schema.version(about.columns["studies"])  # a release keeps the schema that it was written in
    studies = [
        commits.record_of(commit, number, {table: file.path.name for table, file in commit.files.items()})
        for commit in about.commits
    ]
    terms = {each.source: each.licence for each in about.sources}
    return durable.seal(
        {
            "documents": dict(sorted(documents.items())),
            "files": _shared(about.commits),
            "licences": terms,
            "software": about.version,
            "studies": studies,
        }
    )


def _shared(studies: Sequence[Commit]) -> dict[str, Json]:
    """Returns the manifest entries of shared files, by file name."""
    files = {file.shared for commit in studies for file in commit.files.values() if file.shared}
    return {
        file.path.name: {"sha256": file.sha256, "bytes": file.bytes, "rows": file.rows}
        for file in sorted(files, key=lambda file: file.path.name)
    }


def uncovered(studies: Sequence[Commit]) -> Iterator[tuple[Folder, str]]:
    """Yields faults in shared files that contain anything but the rows of one study after another."""
    end: dict[SharedFile, int] = {}
    size = {}
    for commit in studies:
        for table, file in commit.files.items():
            if file.shared is None:
                continue
            if file.start != end.get(file.shared, 0):
                yield file.path, f"has rows of {commit.name} that also belong to another study or are out of order"
            end[file.shared] = file.start + (file.bytes if table == "envelope" else file.rows)
            size[file.shared] = file.shared.bytes if table == "envelope" else file.shared.rows
    for whole, count in end.items():
        if count != size[whole]:
            yield whole.path, "has rows that do not belong to a study"


def sums(hashes: StringMap) -> bytes:
    """Returns SHA256SUMS in the format of `sha256sum -c`. The last line is the sha256 of the preceding lines.

    Args:
      hashes: sha256 of each other file in the release, by path.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items()) if path != SUMS).encode()
    return lines + f"# sha256 {sha256(lines)}\n".encode()


def lines_of_sums(data: bytes) -> list[str]:
    """Returns all lines of SHA256SUMS except the last, or an empty list if there are too many lines for its size."""
    is_list = data.count(b"\n") * 64 <= len(data)
    return data.decode(errors="replace").splitlines()[:-1] if is_list else []


def check_lists(folder: Folder) -> StringMap:
    """Reads the two lists of a release. Returns the sha256 of every file except SHA256SUMS, by path.

    Raises:
      Damaged: SHA256SUMS or manifest.json differs from the bytes that would be written, or the two disagree.
    """
    path = folder / SUMS
    try:
        data = durable.read(path, durable.LIST_BYTES)
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    matches = [_LINE.fullmatch(line) for line in lines_of_sums(data)]
    hashes = {match[2]: match[1] for match in matches if match}
    if sums(hashes) != data or not all(commits.PATH.fullmatch(listed) for listed in hashes):
        raise Damaged(f"{path} has changed since it was written")
    if not (folder / MANIFEST).is_file():
        raise Damaged(f"{folder / MANIFEST} differs from the file listed in {SUMS}")
    content = durable.read_sealed(folder / MANIFEST, durable.LIST_BYTES)
    studies = commits.commits_of(content, folder)
    if hashes.get(MANIFEST) != durable.sha256(folder / MANIFEST):
        raise Damaged(f"{folder / MANIFEST} differs from the file listed in {SUMS}")
    listed = {MANIFEST: hashes[MANIFEST], **_hashes(content.get("documents")), **_hashes(content.get("files"))}
    for commit in studies:
        for table, file in commit.files.items():
            own = file.path.name
            if file.path != folder / own:
                raise Damaged(f"{folder / MANIFEST} lists the {table} of {commit.name} at a path other than {own}")
    for own, digest in sorted(listed.items()):
        if digest and own in hashes and hashes[own] != digest:
            raise Damaged(f"{folder / own} has different sha256 values in {MANIFEST} and {SUMS}")
    for _, fault in uncovered(studies):
        raise Damaged(f"{folder / MANIFEST} {fault}")
    if listed.keys() != hashes.keys():
        raise Damaged(f"{path} and {MANIFEST} disagree on {min(listed.keys() ^ hashes.keys())}")
    return hashes


def _hashes(listed: Any) -> Json:
    """Returns the sha256 by path from a manifest's list of files or documents."""
    if not isinstance(listed, Mapping):
        return {}
    return {path: entry["sha256"] if isinstance(entry, Mapping) else entry for path, entry in listed.items()}


def software(folder: Folder) -> str | None:
    """Returns the version of the software that wrote a release, or None if the manifest does not record it."""
    return durable.read_sealed(folder / MANIFEST, durable.LIST_BYTES).get("software")


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def of_release(about: Contents) -> Mapping[str, bytes]:
    """Returns all documents by name.

    The manifest contains the hash of every document except the citation, which itself contains the hash of the
    manifest.

    Args:
      about: contents of the release. Its studies are slices of shared files.
    """
    found = {
        "README.md": dataset_card.readme(about),
        "DICTIONARY.md": dataset_card.dictionary(about),
        "LICENCES.md": dataset_card.licence_list(about),
        "croissant.json": croissant.document(about, dataset_card.bibtex(about)),
    }
    if any(each.licence == "Apache-2.0" for each in about.licences):
        found["LICENCE-Apache-2.0.txt"] = licences.apache_text()
    hashes: dict[str, str | None] = {name: sha256(data) for name, data in found.items()}
    hashes |= {**about.files.get(contents.POINTS, {}), CITATION: None}
    listed = manifest(about, hashes)
    found[CITATION] = dataset_card.citation(about, sha256(listed))
    return found | {MANIFEST: listed}  # last, because it turns a folder into a release
