"""Folders given on command lines: their entries, the stores below them, and suggestions for mistyped paths."""

from collections.abc import Iterator

from results import durable
from results.bad_input import BadInput, TooOld, first_few, printable, similar_path
from results.durable import Folder
from results.file_systems.entry import Entry as Entry
from results.storage.commits import MANIFEST

SHIPPED = ("published", "mlperf")  # in results/ of the repository
LAUNCHERS = (".slurm", ".ray")  # folders in a store that hold launcher files
DEPTH = 2  # number of levels below a folder to search for stores
_SHOWN = 5


def advice(folder: Folder, otherwise: str) -> str:
    """Returns advice for a missing folder: a similar path, the release in the repository, or ``otherwise``."""
    meant = similar_path(folder, is_store) if durable.system(folder).is_local else None
    is_shipped = folder.parent.name == "results" and folder.name in SHIPPED
    instead = "The repository ships it. Name the one in a checkout." if is_shipped else otherwise
    return f"Did you mean {meant}? {instead}" if meant else instead


def check_not_above(folder: Folder) -> None:
    """Raises BadInput for a folder that is not a store but has stores below it. The message lists these stores."""
    if not durable.system(folder).is_local or is_store(folder):
        return
    if stores := list(_below(folder, DEPTH)):
        raise BadInput(f"{folder} holds no studies. Name one of the stores below it: {first_few(stores, _SHOWN)}")


def check_layout(folder: Folder) -> None:
    """Raises TooOld for a store with schema 1, in which each run had a folder and files did not have hashes."""
    if next(iter(folder.glob("*/[0-9]*/studies.parquet")), None):
        raise TooOld(folder, "is a store of schema 1, without hashes")


def is_store(folder: Folder) -> bool:
    """Returns whether a folder is a release, or a store with at least one requested study."""
    try:
        return (folder / MANIFEST).is_file() or any(folder.glob("*/plan-*.json"))
    except OSError:
        return False


def _below(folder: Folder, depth: int) -> Iterator[Folder]:
    """Yields the stores below a folder, sorted, without entering stores or following links."""
    try:
        folders = sorted(child for child in folder.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError:
        return
    for child in folders:
        if child.name.startswith("."):
            continue
        if is_store(child):
            yield child
        elif depth > 1:
            yield from _below(child, depth - 1)


def entries(folder: Folder) -> list[Entry]:
    """Returns the entries of a folder, sorted by name. Raises BadInput if it cannot be listed."""
    try:
        content = durable.system(folder).entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"no folder {printable(folder)}. {advice(folder, 'Name an existing one.')}") from None
    except OSError as error:
        raise BadInput(f"{printable(folder)} cannot be read ({error.strerror}). Check its permissions.") from None
    return sorted(content)
