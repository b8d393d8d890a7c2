"""Checks of the documents of a release: those that the plans and the tables beside them give, byte for byte."""

import importlib.metadata
import os
from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from results.checks.faults import Findings, brief
from results.durable import Folder
from results.reading import contents, documents, release_lists
from results.reading.contents import POINTS_FILE, PointsFile
from results.storage.commits import MANIFEST, Commit


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
            file = pq.ParquetFile(stream)
            size, rows = stream.seek(0, os.SEEK_END), file.metadata.num_rows
            points = PointsFile(file.schema_arrow, hashes[POINTS_FILE], size, rows)
    for name, content in documents.of_release(contents.of_studies(commits, points)).items():
        if (folder / name).read_bytes() != content:
            yield name
