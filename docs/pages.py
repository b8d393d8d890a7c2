"""Pages that are made at every build, so that they cannot go stale: what doors say, columns, notebooks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import analysis.__main__ as analysis_door
from results.plans import schema
from results.plans.kinds import KINDS
from results.reading import contents
from results.reading.contents import Contents
from results.release import dataset_card

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "analysis" / "notebooks"
COLUMNS_OF_HELP = "100"

DOORS = {
    "sweeps": "Trains: one study, or a sweep of them.",
    "sweeps.plan": "Tells what would run, and runs nothing.",
    "sweeps.status": "Tells what is done, running, missing, failed.",
    "analysis": "Numbers, fits and figures from a store.",
    "results": "The dataset: checked, brought in, published.",
    "workloads.prepare": "Downloads a data set, once.",
}
COMMANDS = {
    "analysis": tuple(analysis_door.COMMANDS),
    "results": ("verify", "repair", "import", "export", "merge"),
}

_DOORS = """\
# Doors

Everything is started by one of these. What follows is what each says when it is asked for `--help`, taken when this
page was built. A mistake in what is asked is answered in one line, with exit code 2, before anything runs.
"""
_DICTIONARY = """\
# Data dictionary

A store and a release have the same three tables; `results.store.read` gives them to pandas. This page is made
from `results/plans/schema.py`, schema {version}. A release brings a `DICTIONARY.md` of its own, which also has the
columns of its metaparameters and metrics.

- `trials` has after these columns one for every metaparameter, under its own name, float64.
- `measurements` has one for every metric, under its own name: float32 as computed here, float64 as published elsewhere.
  Seconds and bytes are of factorizations alone.
- Files carry the version of their schema. Older ones are brought up as they are read, newer ones are refused.
"""
_NOTEBOOKS = """\
# Notebooks

They read the published dataset, and were executed when these pages were built. Their sources are in
`analysis/notebooks/`, as Python files that open as notebooks with jupytext.
"""


def write_all(folder: Path) -> None:
    """Writes the pages into the folder of the documentation, those that have changed."""
    _write(folder / "doors.md", "\n".join([_DOORS, *_doors()]))
    _write(folder / "dictionary.md", dictionary())
    sources = sorted(NOTEBOOKS.glob("*.py"))
    listed = ["```{toctree}", ":maxdepth: 1", "", *(source.stem for source in sources), "```", ""] if sources else []
    _write(folder / "notebooks" / "index.md", "\n".join([_NOTEBOOKS, *listed]))
    for source in sources:
        _write(folder / "notebooks" / source.name, source.read_text())
    for old in {*(folder / "notebooks").glob("*.py")} - {folder / "notebooks" / source.name for source in sources}:
        old.unlink()


def dictionary() -> str:
    """The data dictionary, as a release without studies would have it."""
    further = [pa.schema([pa.field(c.name, c.type) for c in kind.columns]) for kind in KINDS.values()]
    own = {table: [schema.build(columns, {}, {}).schema] for table, columns in contents.COLUMNS.items()}
    columns = contents.columns(own | {"measurements": own["measurements"] + further})
    made = dataset_card.dictionary(Contents([], columns, {}, None, "")).decode()
    return _DICTIONARY.format(version=schema.SCHEMA_VERSION) + made.partition("\n")[2]


def _doors() -> Iterator[str]:
    for door, what in DOORS.items():
        yield f"## python -m {door}\n\n{what}\n\n{_help(door)}"
        for command in COMMANDS.get(door, ()):
            yield f"### python -m {door} {command}\n\n{_help(door, command)}"


def _help(*door: str) -> str:
    """What a door says of itself, as a block of text."""
    environment = os.environ | {"COLUMNS": COLUMNS_OF_HELP, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *door, "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT).stdout
    return f"```text\n{told.rstrip()}\n```\n"


def _write(path: Path, page: str) -> None:
    """Writes a page unless it is there already, so that Sphinx does not read it again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != page:
        path.write_text(page)
