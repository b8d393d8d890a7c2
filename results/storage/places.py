"""Places of stores: those below a folder that is none, and that which a mistyped path may have meant."""

from collections.abc import Iterator
from pathlib import Path

from results.bad_input import BadInput, similar_path
from results.durable import Folder
from results.storage.commits import MANIFEST

SHIPPED = ("published", "mlperf")  # in results/ of the repository
LAUNCHERS = (".slurm", ".ray")  # folders of a store in which launchers leave what their jobs print or look at
DEPTH = 2  # of folders below one, in which stores are looked for
_SHOWN = 5


def advice(folder: Folder, otherwise: str) -> str:
    """What to do about a folder that is not there: a release that the repository ships is to be had from that."""
    meant = similar_path(folder, is_one) if isinstance(folder, Path) else None
    is_shipped = folder.parent.name == "results" and folder.name in SHIPPED
    instead = "the repository ships it, so name that of a checkout" if is_shipped else otherwise
    return f"did you mean {meant}? {instead}" if meant else instead


def check_not_above(folder: Folder) -> None:
    """Raises BadInput, which names them, for a folder that is no store but has stores below it."""
    below = list(_below(folder, DEPTH)) if isinstance(folder, Path) and not is_one(folder) else []
    if below:
        names = ", ".join(map(str, below[:_SHOWN])) + (
            f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else ""
        )
        raise BadInput(f"{folder} holds no studies; stores below it: {names}")


def is_one(folder: Path) -> bool:
    """Whether a local folder is a store with a study in it, be it but asked for, or a release."""
    try:
        return (folder / MANIFEST).is_file() or any(folder.glob("*/plan-*.json"))
    except OSError:
        return False


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """The stores below a folder, sorted; nothing within one is looked at, nor a link followed."""
    try:
        folders = sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return
    for each in folders:
        if each.name.startswith("."):
            continue
        if is_one(each):
            yield each
        elif depth > 1:
            yield from _below(each, depth - 1)
