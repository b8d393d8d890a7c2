"""Runs the code of docs/own-runs.md for one logger, in the current folder."""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "own-runs.md"


def code(logger: str) -> str:
    """Returns the first block of Python after a line that starts with the name of the logger."""
    text = PAGE.read_text().partition("## Other loggers")[2]
    after = re.split(rf"^{logger}\b", text, maxsplit=1, flags=re.M)[1]
    return re.search(r"```python\n(.*?)```", after, re.S)[1]


def run(logger: str) -> None:
    """Runs the block of a logger."""
    exec(compile(code(logger), f"{PAGE} ({logger})", "exec"), {})


if __name__ == "__main__":
    run(sys.argv[1])
