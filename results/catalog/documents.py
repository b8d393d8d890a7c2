"""Documents of a release, beside its tables: its lists, manifest.json and SHA256SUMS, and what follows from plans."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from results import durable
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
    """manifest.json.

    Args:
      about: what the release holds; its studies have slices of shared files.
      documents: sha256 by path of what is neither a file of the studies nor a list; None where that follows from it.
    """
    studies = [
        commits.record_of(
            commit, schema.SCHEMA_VERSION, {table: file.path.name for table, file in commit.files.items()}
        )
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


def _shared(studies: Sequence[Commit]) -> dict[str, dict[str, Any]]:
    """The files that studies share, as a manifest lists them, by their names."""
    files = {file.shared for commit in studies for file in commit.files.values() if file.shared}
    return {
        file.path.name: {"sha256": file.sha256, "bytes": file.bytes, "rows": file.rows}
        for file in sorted(files, key=lambda file: file.path.name)
    }


def uncovered(studies: Sequence[Commit]) -> Iterator[tuple[Folder, str]]:
    """Shared files whose rows are not each those of one study, in order, with what is wrong."""
    end: dict[SharedFile, int] = {}
    size: dict[SharedFile, int] = {}
    for commit in studies:
        for table, file in commit.files.items():
            if file.shared is None:
                continue
            if file.start != end.get(file.shared, 0):
                yield file.path, f"has rows of {commit.name} that are of another study too, or out of order"
            end[file.shared] = file.start + (file.bytes if table == "envelope" else file.rows)
            size[file.shared] = file.shared.bytes if table == "envelope" else file.shared.rows
    for whole, count in end.items():
        if count != size[whole]:
            yield whole.path, "has rows that are of no study"


def sums(hashes: Mapping[str, str]) -> bytes:
    """SHA256SUMS as it must be, as `sha256sum -c` takes it, its last line the sha256 of those before.

    Args:
      hashes: sha256 by path, of all files of a release but this one.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items()) if path != SUMS).encode()
    return lines + f"# sha256 {sha256(lines)}\n".encode()


def lines_of_sums(data: bytes) -> list[str]:
    """The lines of SHA256SUMS but the last; none if they are too many to be lines with a hash."""
    is_list = data.count(b"\n") * 64 <= len(data)
    return data.decode(errors="replace").splitlines()[:-1] if is_list else []


def check_lists(folder: Folder) -> dict[str, str]:
    """The sha256 of every file of a release but SHA256SUMS, by path, from its two lists.

    Raises:
      Damaged: SHA256SUMS or manifest.json is not, byte for byte, what would be written, or they contradict each other.
    """
    path = folder / SUMS
    try:
        data = durable.read(path, durable.LIST_BYTES)
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    matches = [_LINE.fullmatch(line) for line in lines_of_sums(data)]
    hashes = {match[2]: match[1] for match in matches if match}
    if sums(hashes) != data or not all(commits.PATH.fullmatch(listed) for listed in hashes):
        raise Damaged(f"{path} is not what was written")
    there = (folder / MANIFEST).is_file()
    content = durable.read_sealed(folder / MANIFEST, durable.LIST_BYTES) if there else {}
    studies = commits.commits_of(content, folder) if there else []
    if not there or hashes.get(MANIFEST) != durable.sha256(folder / MANIFEST):
        raise Damaged(f"{folder / MANIFEST} is not what {SUMS} lists")
    listed = {MANIFEST: hashes[MANIFEST], **_hashes(content.get("documents")), **_hashes(content.get("files"))}
    for commit in studies:
        for table, file in commit.files.items():
            own = file.path.name
            if file.path != folder / own:
                raise Damaged(f"{folder / MANIFEST} has the {table} of {commit.name} elsewhere than at {own}")
    for own, digest in sorted(listed.items()):
        if digest and own in hashes and hashes[own] != digest:
            raise Damaged(f"{folder / own} is not the file that {MANIFEST} lists: {SUMS} has another sha256 of it")
    for _, what in uncovered(studies):
        raise Damaged(f"{folder / MANIFEST} {what}")
    if listed.keys() != hashes.keys():
        raise Damaged(f"{path} and {MANIFEST} differ in {min(listed.keys() ^ hashes.keys())}")
    return hashes


def _hashes(listed: Any) -> dict[str, Any]:
    """sha256 by path, as a manifest lists files or documents."""
    if not isinstance(listed, Mapping):
        return {}
    return {path: told["sha256"] if isinstance(told, Mapping) else told for path, told in listed.items()}


def software(folder: Folder) -> str | None:
    """The version of the software that wrote a release; None where its manifest does not tell."""
    return durable.read_sealed(folder / MANIFEST, durable.LIST_BYTES).get("software")


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def of_release(about: Contents) -> Mapping[str, bytes]:
    """All documents by name, with the manifest, which has the hashes of all others but of the citation, which has its.

    Args:
      about: what the release holds; its studies have slices of shared files.
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
    return found | {MANIFEST: listed}  # last, as it makes a folder a release
