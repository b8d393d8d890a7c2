"""The documents of a release: the lists (manifest.json and SHA256SUMS), and the pages derived from plans."""

import hashlib
from collections.abc import Mapping

from results import durable
from results.aliases import StringMap
from results.catalog import contents, croissant, dataset_card, licences
from results.catalog.contents import Contents
from results.plans import schema
from results.storage import commit_records
from results.storage.commits import MANIFEST

SUMS = "SHA256SUMS"
CITATION = "CITATION.cff"


def manifest(about: Contents, documents: Mapping[str, str | None]) -> bytes:
    """Returns manifest.json as bytes.

    Args:
      about: contents of the release. Its studies are slices of shared files.
      documents: sha256 of each other document, by path. None for a document that contains the hash of the manifest.
    """
    number = schema.version(about.columns["studies"])  # a release keeps the schema that it was written in
    studies = [commit_records.record_of(commit, number) for commit in about.commits]
    files = {file.shared for commit in about.commits for file in commit.files.values() if file.shared}
    return durable.seal(
        {
            "documents": documents,
            "files": {
                file.path.name: {"sha256": file.sha256, "bytes": file.bytes, "rows": file.rows} for file in files
            },
            "licences": {terms.source: terms.licence for terms in about.sources},
            "software": about.version,
            "studies": studies,
        }
    )


def sums(hashes: StringMap) -> bytes:
    """Returns SHA256SUMS in the format of `sha256sum -c`. The last line is the sha256 of the preceding lines.

    Args:
      hashes: sha256 of each other file in the release, by path.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items()) if path != SUMS).encode()
    return lines + f"# sha256 {sha256(lines)}\n".encode()


def sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def of_release(about: Contents) -> Mapping[str, bytes]:
    """Returns all documents by name.

    The manifest contains the hash of every document except the citation, which itself contains the hash of the
    manifest.

    Args:
      about: contents of the release. Its studies are slices of shared files.
    """
    content = {
        "README.md": dataset_card.readme(about),
        "DICTIONARY.md": dataset_card.dictionary(about),
        "LICENCES.md": dataset_card.licence_list(about),
        "croissant.json": croissant.document(about, dataset_card.bibtex(about)),
    }
    if any(terms.licence == "Apache-2.0" for terms in about.licences):
        content["LICENCE-Apache-2.0.txt"] = licences.apache_text()
    hashes: dict[str, str | None] = {name: sha256(data) for name, data in content.items()}
    hashes |= {file.path.name: file.sha256 for file in about.files.get(contents.POINTS, ())}
    hashes[CITATION] = None
    listed = manifest(about, hashes)
    content[CITATION] = dataset_card.citation(about, sha256(listed))
    return content | {MANIFEST: listed}  # last, because it turns a folder into a release
