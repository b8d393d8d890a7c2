"""Generates pages on every build: command help, columns, notebooks and the module reference."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from analysis import arguments
from results.catalog import contents, dataset_card
from results.catalog.contents import Contents
from results.plans import schema
from results.plans.kinds import KINDS
from results.plans.points import POINTS
from results.storage import shared

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = ROOT / "analysis" / "notebooks"
ROOMS = ("results", "workloads", "harness", "sweeps", "analysis")
COLUMNS_OF_HELP = "80"
OF_SWEEPS = ("sweeps.plan", "sweeps.manifest")  # their --help-keys is that of `python -m sweeps`

MODULES = {
    "sweeps": "Runs a study, or a sweep of studies.",
    "sweeps.plan": "Predicts the studies and the cost of a sweep without running it.",
    "sweeps.manifest": "Writes the studies of a sweep as JobSets for Kubernetes.",
    "sweeps.status": "Lists finished, running, missing and failed studies.",
    "harness.costs.probe": "Measures how fast a device is, for predictions.",
    "analysis": "Prints numbers and fits of a store, and draws figures.",
    "results": "Checks the dataset, imports data, publishes releases.",
    "workloads.prepare": "Downloads and prepares a data set.",
}
SUBCOMMANDS = {
    "analysis": arguments.COMMANDS,
    "results": ("verify", "repair", "import", "export", "merge"),
}

_COMMANDS = """\
# Commands

All commands, with the output of their `--help` when this page was built. Invalid input is reported in one line, with
exit code 2, before anything runs.
"""
_DICTIONARY = """\
# Data dictionary

A store has three tables, and a release has the same three and `points`. `results.store.read` reads the three into
pandas. This page is generated from `results/plans/schema.py`, schema {version}. Each release has its own
`DICTIONARY.md`, which also lists the columns of its metaparameters and metrics.

- After these columns `trials` has one for every metaparameter, under its own name, float64.
- `measurements` has one for every metric, under its own name: float32 if measured here, float64 if published elsewhere.
  Only factorizations have seconds and bytes.
- Files carry the version of their schema. Files of other versions are rejected.
"""
_AUTOMODULE = """\
### {module}

```{{eval-rst}}
.. automodule:: {module}
```
"""
_NOTEBOOKS = """\
# Notebooks

They read the published dataset and were executed when these pages were built. Their sources are in
`analysis/notebooks/`, as Python files that jupytext opens as notebooks.
"""


def write_all(folder: Path) -> None:
    """Writes pages that have changed into the documentation folder."""
    _write(folder / "commands.md", "\n".join([_COMMANDS, *_help_of_commands()]))
    _write(folder / "dictionary.md", dictionary())
    for room in ROOMS:
        _write(folder / "api" / f"{room}.md", reference(room))
    sources = sorted(NOTEBOOKS.glob("*.py"))
    listed = ["```{toctree}", ":maxdepth: 1", "", *(source.stem for source in sources), "```", ""] if sources else []
    _write(folder / "notebooks" / "index.md", "\n".join([_NOTEBOOKS, *listed]))
    for source in sources:
        _write(folder / "notebooks" / source.name, source.read_text())
    for old in {*(folder / "notebooks").glob("*.py")} - {folder / "notebooks" / source.name for source in sources}:
        old.unlink()


def dictionary() -> str:
    """Returns the data dictionary of a release without studies."""
    further = [pa.schema([pa.field(c.name, c.type) for c in kind.columns]) for kind in KINDS.values()]
    own = {table: [schema.build(columns, {}, {}).schema] for table, columns in schema.COLUMNS.items()}
    own["measurements"] += further
    columns = {table: shared.union(table, schemas) for table, schemas in own.items()}
    columns[contents.POINTS] = schema.empty(POINTS)
    made = dataset_card.dictionary(Contents([], columns, {}, "", "")).decode()
    return _DICTIONARY.format(version=schema.SCHEMA_VERSION) + made.partition("\n")[2]


def source(name: str, text: str) -> str:
    """Returns the text of a page for Sphinx: ARCHITECTURE.md for the page that links to it, else the page's own.

    Args:
      name: name of the page, such as ``add/figure``.
      text: text of the page in the documentation folder.
    """
    if name == "architecture":
        return relinked((ROOT / "ARCHITECTURE.md").read_text(), ROOT, DOCS)
    folder = (DOCS / name).parent
    return relinked(text, folder, folder)


def relinked(text: str, origin: Path, folder: Path) -> str:
    """Returns a text with links rewritten relative to another folder.

    Links to the README files of packages point to reference pages. Links to other files outside ``docs``, and to Python
    files, become plain text.

    Args:
      text: Markdown text.
      origin: folder that the links of the text are relative to.
      folder: folder, inside the documentation, of the page that shows the text.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = (origin / target).resolve()
        if path.name == "README.md" and path.parent.name in ROOMS and path.parent.parent == ROOT:
            path = DOCS / "api" / f"{path.parent.name}.md"
        if not path.is_relative_to(DOCS) or path.suffix == ".py":  # Sphinx would take it for a notebook
            return words
        return f"[{words}]({os.path.relpath(path, folder)}{anchor or ''})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)\s#]+)(#[^)\s]*)?\)", link, text)


def reference(room: str) -> str:
    """Returns the page of a package: its README, then all modules in the order in which the README lists them."""
    text = (ROOT / room / "README.md").read_text()
    sections = [relinked(text, ROOT / room, DOCS / "api")]
    for folder in sorted({path.parent for path in modules(room)}):
        package = ".".join(folder.relative_to(ROOT).parts)
        names = [path.stem for path in modules(room) if path.parent == folder]
        names.sort(key=lambda name: text.index(f"`{name}`"))
        sections += [f"## Modules of {package}\n"]
        sections += [_AUTOMODULE.format(module=f"{package}.{name}") for name in names]
    return "\n".join(sections)


def modules(room: str) -> list[Path]:
    """Returns the files of the public modules of a package."""
    files = (ROOT / room).rglob("*.py")
    return [path for path in files if not path.stem.startswith("_") and path.parent != NOTEBOOKS]


def _help_of_commands() -> Iterator[str]:
    for module, purpose in MODULES.items():
        yield f"## python -m {module}\n\n{purpose}\n\n{_help(module)}"
        for command in SUBCOMMANDS.get(module, ()):
            yield f"### python -m {module} {command}\n\n{_help(module, command)}"


def _help(*words: str) -> str:
    """Returns the help of a command as text blocks: --help, and --help-columns or --help-keys if it has one of them."""
    text = _text_block(*words, "--help")
    further = [option for option in ("--help-columns", "--help-keys") if f"  {option} " in text]
    blocks = [f"With `{option}`:\n\n{_text_block(*words, option)}" for option in further if words[0] not in OF_SWEEPS]
    return "\n".join([text, *blocks])


def _text_block(*words: str) -> str:
    """Returns the output of a command as a text block."""
    environment = os.environ | {"COLUMNS": COLUMNS_OF_HELP, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *words]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT).stdout
    return f"```text\n{output.rstrip()}\n```\n"


def _write(path: Path, page: str) -> None:
    """Writes a page unless it is unchanged, so that Sphinx does not read it again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != page:
        path.write_text(page)
