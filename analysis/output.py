"""Files that a user asks for with --out, written atomically."""

from pathlib import Path

from results import durable
from results.bad_input import BadInput


def write(path: Path, data: bytes, what: str) -> None:
    """Writes a file, over what is there; BadInput, which asks for another ``--out`` (FILE or DIR), if it cannot be."""
    try:
        durable.make_folder(path.parent)
        durable.replace(path, data)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}); choose another --out {what}") from None
