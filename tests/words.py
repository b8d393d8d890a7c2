"""Counts six habits of stilted English in the texts of the project, and names of variables that are no nouns.

`tests/words.csv` holds the counts of each file, and `tests/names.csv` the names in each package. `tests/test_words.py`
fails when a count rises. After you have improved a text or a name, lower the tables:

    python tests/words.py
"""

import ast
import csv
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".csv")
NAMES = Path(__file__).with_name("names.csv")
ROOMS = ("analysis", "harness", "results", "sweeps", "workloads")
FOLDERS = (*ROOMS, "benchmarks", "conf", "docs", "tests")
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

# Names of variables that are pronouns, adverbs or prepositions, and nouns that fit every variable.
PRONOUNS = re.compile(
    "one|own|each|found|known|there|here|at|such|whole|apart|further|other|others|every|many|most|least|only|ours|theirs"
    "|same|more|then|else|again|between|around|along|beyond|below|above|under|within|of|by|on|as"
)
VAGUE = re.compile("item|entry|value|thing|obj")
MOST_PRONOUNS = 0.005  # of the assigned names of a room


def files() -> Iterator[Path]:
    """Yields every file whose prose counts: Markdown, Python, the Makefile and pyproject.toml."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("*.py"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    for folder in FOLDERS:
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py")]
    for path in sorted(places):
        if not name(path).startswith(GENERATED):
            yield path


def name(path: Path) -> str:
    """Returns the name of a file below the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """Returns the text of a file without code.

    In Markdown, this is every paragraph. In Python, these are strings of at least four words, and the names of tests.
    In other files, these are the comments and the strings of at least four words.
    """
    text = path.read_text()
    if path.suffix == ".py":
        nodes = list(ast.walk(ast.parse(text)))
        constants = (node.value for node in nodes if isinstance(node, ast.Constant))
        strings = [string for string in constants if isinstance(string, str) and len(string.split()) >= 4]
        text = "\n".join([*strings, *(name.replace("_", " ") for name in tests(nodes))])
    elif path.suffix != ".md":
        texts = re.findall(r"#+ (.+)|\"([^\"\n]*)\"", text)
        text = "\n".join(comment or string for comment, string in texts if comment or len(string.split()) >= 4)
    else:
        text = re.sub(r"(?ms)^```.*?^```", "", text)
    return re.sub(r"`[^`]*`", "", text)


def tests(nodes: Iterable[ast.AST]) -> list[str]:
    """Returns the names of the tests among the nodes of a syntax tree."""
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def counts(text: str) -> dict[str, int]:
    """Returns the number of words of a text, and how often it has each habit."""
    found = {habit: len(re.findall(pattern, text, re.IGNORECASE)) for habit, (pattern, _) in HABITS.items()}
    return {"words": len(text.split()), **found}


def table(path: Path) -> dict[str, dict[str, int]]:
    """Reads committed counts by the first column, a file or a room."""
    with path.open(newline="") as lines:
        rows = {row.pop(next(iter(row))): row for row in csv.DictReader(lines)}
    return {file: {habit: int(count) for habit, count in row.items()} for file, row in rows.items()}


def limits(words: int) -> dict[str, int]:
    """Returns the counts allowed in a new file of a number of words: the rates of the other projects, rounded up."""
    return {habit: math.ceil(rate * words / 10_000) for habit, (_, rate) in HABITS.items()}


def names(trees: Iterable[ast.AST]) -> dict[str, int]:
    """Returns the number of assigned names in syntax trees, and how many are pronouns, or vague."""
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name))
    assigned = [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
    pronouns, vague = (sum(bool(habit.fullmatch(name)) for name in assigned) for habit in (PRONOUNS, VAGUE))
    return {"names": len(assigned), "pronouns": pronouns, "vague": vague}


def names_of_rooms() -> dict[str, dict[str, int]]:
    """Returns the numbers of names in each room, without its notebooks."""
    paths = {room: [path for path in (ROOT / room).rglob("*.py") if "notebooks" not in path.parts] for room in ROOMS}
    return {room: names(ast.parse(path.read_text()) for path in paths[room]) for room in ROOMS}


def main() -> None:
    """Writes the tables. A count that is in one already can only fall."""
    write_words()
    write_names()


def write_names() -> None:
    """Writes the table of names."""
    before = table(NAMES) if NAMES.exists() else {}
    with NAMES.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["room", "names", "pronouns", "vague"])
        for room, total in names_of_rooms().items():
            least = before.get(room, total)
            writer.writerow([room, total["names"], *(min(total[kind], least[kind]) for kind in ("pronouns", "vague"))])


def write_words() -> None:
    """Writes the table of words."""
    before = table(TABLE) if TABLE.exists() else {}
    with TABLE.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["file", *HABITS])
        for path in files():
            found = counts(prose(path))
            least = before.get(name(path), found)
            writer.writerow([name(path), *(min(found[habit], least[habit]) for habit in HABITS)])


if __name__ == "__main__":
    main()
