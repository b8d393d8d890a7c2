"""Every row of every Markdown table has as many cells as its header."""

import re

import pytest

from tests import words


def crooked_rows(text: str) -> list[str]:
    """Returns the rows of the tables in a text whose number of cells differs from that of their header."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    rows = []
    for table in re.findall(r"(?m)(?:^ *\|.*\n)+", prose + "\n"):
        header, *body = (re.findall(r"(?:\\.|[^|\\])*\|", line.strip()) for line in table.splitlines())
        rows += ["".join(cells) for cells in body if len(cells) != len(header)]
    return rows


def test_table_rows_have_the_cells_of_their_header() -> None:
    paths = [
        *words.ROOT.glob("*.md"),
        *(path for room in words.FOLDERS for path in (words.ROOT / room).rglob("*.md")),
    ]
    texts = {words.name(path): path.read_text() for path in paths if "local" not in path.parts}
    assert sum(text.count("\n|") for text in texts.values()) > 1000
    assert not {name: rows for name, text in texts.items() if (rows := crooked_rows(text))}


@pytest.mark.parametrize(
    ("row", "is_crooked"),
    [
        ("| 1 | 2 |", False),
        ("| 1 |", True),
        ("| 1 | 2 | 3 |", True),
        (r"| `a \| b` | 2 |", False),
        ("| `a | b` | 2 |", True),
    ],
)
def test_table_rows_with_other_cells_are_found(row: str, is_crooked: bool) -> None:
    table = f"| a | b |\n|---|---|\n{row}\n"
    assert len(crooked_rows(f"A page.\n\n{table}\nMore.")) == len(crooked_rows(table.rstrip())) == is_crooked
    assert not crooked_rows(f"```text\n{table}```\n")
