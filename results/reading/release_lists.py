"""The lists of a release, manifest.json and SHA256SUMS: the path of every file, and the exact bytes of both."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from results import durable
from results.durable import Damaged, Folder
from results.reading import contents
from results.reading.contents import Contents
from results.storage import commits
from results.storage.commits import MANIFEST, Commit

SUMS = "SHA256SUMS"
NOTHING = "__HIVE_DEFAULT_PARTITION__"  # what readers of such folders take for null
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def place(commit: Commit, table: str) -> str:
    """The path of a study's file in a release."""
    study = commit.study
    values = zip(
        contents.PARTITIONS, (study.dataset, study.model_label, study.optimizer, study.batch_size), strict=True
    )
    folders = "/".join(f"{name}={NOTHING if value is None else quote(str(value), safe='')}" for name, value in values)
    return f"{table}/{folders}/{commit.name}{commit.files[table].path.suffix}"


def manifest(about: Contents, versions: Sequence[int], documents: Sequence[str]) -> bytes:
    """manifest.json.

    Args:
      about: what the release holds.
      versions: of the schema that the files of each study were written under.
      documents: paths of what is neither a file of a study nor a list.
    """
    studies = [
        commits.record_of(commit._replace(parts=0), version, {table: place(commit, table) for table in commit.files})
        for commit, version in zip(about.commits, versions, strict=True)
    ]
    terms = {each.source: each.licence for each in about.sources}
    return durable.seal({"documents": sorted(documents), "licences": terms, "studies": studies})


def sums(hashes: Mapping[str, str]) -> bytes:
    """SHA256SUMS as it must be, as `sha256sum -c` takes it, its last line the sha256 of those before.

    Args:
      hashes: sha256 by path, of all files of a release but this one.
    """
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items()) if path != SUMS).encode()
    return lines + f"# sha256 {sha256(lines)}\n".encode()


def check_lists(folder: Folder) -> dict[str, str]:
    """The sha256 of every file of a release but SHA256SUMS, by path, from its two lists.

    Raises:
      Damaged: SHA256SUMS or manifest.json is not, byte for byte, what would be written, or they contradict each other.
    """
    path = folder / SUMS
    try:
        data = durable.read(path)
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    matches = [_LINE.fullmatch(line) for line in data.decode(errors="replace").splitlines()[:-1]]
    hashes = {match[2]: match[1] for match in matches if match}
    if sums(hashes) != data or not all(commits.PATH.fullmatch(listed) for listed in hashes):
        raise Damaged(f"{path} is not what was written")
    studies = commits.released_commits(folder)
    if studies is None or hashes.get(MANIFEST) != sha256(durable.read(folder / MANIFEST)):
        raise Damaged(f"{folder / MANIFEST} is not what {SUMS} lists")
    documents = durable.read_sealed(folder / MANIFEST).get("documents")
    expected = (
        {MANIFEST, *(str(path) for path in documents if isinstance(documents, list))} if documents else {MANIFEST}
    )
    for commit in studies:
        for table, file in commit.files.items():
            own = place(commit, table)
            expected.add(own)
            if file.path != folder / own or hashes.get(own) != file.sha256:
                raise Damaged(f"{folder / MANIFEST} has another {table} of {commit.name} than {SUMS}")
    if expected != hashes.keys():
        raise Damaged(f"{path} and {MANIFEST} differ in {min(expected ^ hashes.keys())}")
    return hashes


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
