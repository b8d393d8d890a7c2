"""Checks of the documents of a release: those that the plans and the tables beside them give, byte for byte."""

import importlib.metadata
from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from results.checks.faults import Findings, brief
from results.durable import Folder
from results.reading import contents, documents, release_lists
from results.storage.commits import Commit

POINTS_FILE = f"{contents.POINTS}.parquet"


def check(folder: Folder, commits: Sequence[Commit], hashes: dict[str, str]) -> Findings:
    """Makes the documents again and compares; nothing if another version of this software wrote the release.

    What that version would write nobody knows: of its documents, lists have the hashes.

    Args:
      folder: of the release, whose files are as they are listed.
      commits: its studies.
      hashes: sha256 of its documents, by name.
    """
    findings = Findings(folder)
    try:
        if release_lists.software(folder) != importlib.metadata.version("scaling-limits"):
            return findings
        for name in _differing(folder, commits, hashes):
            findings.fault(folder / name, "is not what the plans and tables beside it give; export the release again")
    except Exception as error:  # untrusted files can raise anything in their reader
        findings.fault(folder, f"has documents that cannot be compared with its tables ({brief(error)})")
    return findings


def _differing(folder: Folder, commits: Sequence[Commit], hashes: dict[str, str]) -> Iterator[str]:
    columns, files = {}, {}
    for table in contents.TABLES:
        shared = {commit.files[table].shared for commit in commits} - {None}
        columns[table] = next(iter(shared)).schema
        files[table] = {file.path.name: file.sha256 for file in shared}
    if POINTS_FILE in hashes:
        with (folder / POINTS_FILE).open("rb") as stream:
            columns[contents.POINTS] = pq.read_schema(stream)
        files[contents.POINTS] = {POINTS_FILE: hashes[POINTS_FILE]}
    for name, content in documents.of_release(contents.of_studies(commits, columns, files)).items():
        if (folder / name).read_bytes() != content:
            yield name
