"""What must hold of a release: lists that are what was written, every file as listed, no other, tables as planned."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from results.bad_input import BadInput
from results.checks.commit_checks import whole
from results.checks.faults import TORN, Findings, OnBytes, sha256
from results.durable import Damaged, Folder
from results.reading import release_lists
from results.reading.release_lists import SUMS, place
from results.storage import commits
from results.storage.commits import MANIFEST, Commit
from results.storage.entries import Entry, entries

LIST_BYTES = 1 << 30  # no list comes near
DEEPEST = 12  # folders; a release has six


class Listed(NamedTuple):
    """What is to be looked at in a release.

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
    found = Findings(folder)
    there = dict(_files(folder, "", found))
    found.files, found.bytes = len(there), sum(there.values())
    hashes, held = _sums(folder, there, found), _manifest(folder, there, found)
    if hashes is None:
        return Listed({}, [], there, found)
    for path in sorted(there.keys() - hashes.keys() - {SUMS}):
        found.fault(folder / path, "is not listed; an extra file")
    if held is not None:
        try:
            release_lists.check_lists(folder)
        except BadInput as error:
            found.fault(folder, str(error))
            held = None
    told = {MANIFEST} if held is None else {place(commit, table) for commit in held for table in commit.files}
    for path in sorted(hashes.keys() - there.keys() - told - {MANIFEST}):
        found.fault(folder / path, "is missing, and is listed")
    documents = {path: hashes[path] for path in sorted(there.keys() & hashes.keys() - told)}
    return Listed(documents, held or [], there, found)


def check_file(path: Folder, listed: str, on_bytes: OnBytes) -> Findings:
    """Looks at a file that a release lists: is it, byte for byte, what its hash says?"""
    found = Findings(path)
    try:
        if sha256(path, on_bytes) != listed:
            found.fault(path, TORN)
    except OSError as error:
        found.fault(path, f"cannot be read ({error.strerror})")
    return found


def check_study(
    folder: Folder, commit: Commit, sizes: Mapping[str, int], on_bytes: OnBytes, *, rebuild: bool
) -> Findings:
    """Looks at the files of a study, and at what its tables hold.

    Args:
      folder: of the release.
      commit: the study.
      sizes: of all files that are there, by path.
      on_bytes: told how many bytes more have been looked at.
      rebuild: whether to make the envelope again and compare.
    """
    found = Findings(folder / MANIFEST, ledger=commit.ledger)
    paths = {table: place(commit, table) for table in commit.files}
    there = {table: Entry(path, "file", sizes[path], 0.0) for table, path in paths.items() if path in sizes}
    manifest = folder / MANIFEST
    whole(commit, commit.study, manifest, there, found, on_bytes, runs=None, rebuild=rebuild)
    return found


def _files(folder: Folder, inside: str, found: Findings) -> Iterator[tuple[str, int]]:
    """Paths and sizes of all files under a folder; a fault for everything that is neither file nor folder."""
    within = entries(folder / inside if inside else folder)
    for entry in within:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.kind == "file":
            yield path, entry.bytes
        elif entry.kind == "folder" and path.count("/") < DEEPEST:
            yield from _files(folder, path, found)
        else:
            found.fault(folder / path, f"is none of ours; an extra {entry.kind}")
    if not within:
        found.fault(folder / inside, "is an empty folder")


def _sums(folder: Folder, there: dict[str, int], found: Findings) -> dict[str, str] | None:
    """sha256 by path, as SHA256SUMS lists them; None, and a fault, if it is not what was written."""
    path = folder / SUMS
    if there.get(SUMS, LIST_BYTES) >= LIST_BYTES:
        found.fault(path, "is missing; fetch the release again" if SUMS not in there else "is far too large")
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        found.fault(path, f"cannot be read ({error.strerror})")
        return None
    lines = [line.partition("  ") for line in data.decode(errors="replace").splitlines()[:-1]]
    hashes = {name: digest for digest, _, name in lines}
    if release_lists.sums(hashes) != data:
        found.fault(path, TORN)
        return None
    return hashes


def _manifest(folder: Folder, there: dict[str, int], found: Findings) -> list[Commit] | None:
    """The studies of the manifest; None, and a fault, if it is not what was written."""
    path = folder / MANIFEST
    if there.get(MANIFEST, LIST_BYTES) >= LIST_BYTES:
        found.fault(path, "is missing; fetch the release again" if MANIFEST not in there else "is far too large")
        return None
    try:
        return commits.released(folder)
    except Damaged as error:
        found.fault(path, str(error).removeprefix(f"{path} ").partition(";")[0])
    except BadInput as error:
        found.fault(path, str(error))
    return None
