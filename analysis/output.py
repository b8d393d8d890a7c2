"""Output of commands: prints tables, and writes files atomically."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from results import durable, printing
from results.bad_input import BadInput

if TYPE_CHECKING:
    import pandas as pd


def print_table(table: "pd.DataFrame", as_text: Callable[[], str]) -> None:
    """Prints ``table`` as CSV or JSON with --csv or --json, and otherwise as text."""
    printing.show([str(name) for name in table], table.astype(object).to_numpy(), as_text)


def write(path: Path, data: bytes, what: str) -> None:
    """Writes or replaces a file. If this fails, raises BadInput, whose message asks for another ``--out``."""
    try:
        durable.make_folder(path.parent)
        durable.replace(path, data)
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}). Choose another --out {what}.") from None
