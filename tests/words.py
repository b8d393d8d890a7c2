"""Counts six habits of stilted English in the Markdown files and Python strings of the project.

`tests/words.csv` holds the counts of each file. `tests/test_words.py` fails when a count rises. After you have improved
a text, lower the table:

    python tests/words.py
"""

import ast
import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".csv")
FOLDERS = ("analysis", "benchmarks", "conf", "docs", "harness", "results", "sweeps", "workloads")
GENERATED = (
    "results/published/",
    "results/mlperf/",
    "results/local/",
    "docs/api/",
    "docs/notebooks/",
    "docs/commands.md",
    "docs/dictionary.md",
)

# Each habit: a pattern, and its rate per 10,000 words in the documentation of optax and levanter, whichever is larger.
HABITS = {
    "says": (r"(?<!\bis )(?<!\bare )\b(?:says?|said|tells?|told|knows?|known)\b", 8),
    "what": (r"(?<![?.] )\b[Ww]hat (?!if\b)", 8),
    "nobody": (r"\b(?:nobody|whoever|none|nothing|no one)\b", 2),
    "so_many": (r"\b(?:so|as) (?:many|few|much)\b", 1),
    "alone": (r"\b(?:alone|beside|anew|thereby|therefrom|likewise)\b", 0),
    "semicolons": (r";", 15),
}


def files() -> Iterator[Path]:
    """Yields every file whose prose counts: Markdown, and Python outside the tests."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("*.py")]
    for folder in FOLDERS:
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py")]
    for path in sorted(places):
        if not name(path).startswith(GENERATED):
            yield path


def name(path: Path) -> str:
    """Returns the name of a file below the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """Returns the text of a file without code: paragraphs of Markdown, or Python strings of at least four words."""
    text = path.read_text()
    if path.suffix == ".py":
        constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        text = "\n".join(value for value in constants if isinstance(value, str) and len(value.split()) >= 4)
    else:
        text = re.sub(r"(?ms)^```.*?^```", "", text)
    return re.sub(r"`[^`]*`", "", text)


def counts(text: str) -> dict[str, int]:
    """Returns the number of words of a text, and how often it has each habit."""
    found = {habit: len(re.findall(pattern, text, re.IGNORECASE)) for habit, (pattern, _) in HABITS.items()}
    return {"words": len(text.split()), **found}


def table() -> dict[str, dict[str, int]]:
    """Reads the committed counts by file."""
    with TABLE.open(newline="") as lines:
        rows = {row.pop("file"): row for row in csv.DictReader(lines)}
    return {file: {habit: int(count) for habit, count in row.items()} for file, row in rows.items()}


def limits(words: int) -> dict[str, int]:
    """Returns the counts allowed in a new file of a number of words: the rates of the other projects, rounded up."""
    return {habit: math.ceil(rate * words / 10_000) for habit, (_, rate) in HABITS.items()}


def main() -> None:
    """Writes the table. A count that is in it already can only fall."""
    before = table() if TABLE.exists() else {}
    with TABLE.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["file", *HABITS])
        for path in files():
            found = counts(prose(path))
            least = before.get(name(path), found)
            writer.writerow([name(path), *(min(found[habit], least[habit]) for habit in HABITS)])


if __name__ == "__main__":
    main()
