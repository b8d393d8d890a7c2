"""The count of code finds the nodes, clever forms and long functions of a small source."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "code_size.py"
CLEVER = """def f(a, b):
    c = [1] * (a > b)
    d = [2] * 3
    g(*([a] if b else []))
    e = 1 if a else 2 if b else 3
    if (h := g(a)) and (i := g(h)):
        j = i
"""


def long(name: str, lines: int) -> str:
    docstring = '    """Returns\n\n    nothing.\n    """\n'
    return f"def {name}():\n{docstring}" + "    x = 1\n" * (lines - 1)


def test_nodes_clever_forms_and_long_functions_are_counted(tmp_path: Path) -> None:
    sources = {"one.py": "x = 1  # a comment\n", "clever.py": CLEVER, "long.py": long("fits", 60) + long("is_long", 61)}
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
        subprocess.run(["git", "add", name], cwd=tmp_path, check=True)
    (tmp_path / "untracked.py").write_text("y = 2\n")

    def counted(*paths: str) -> list[str]:
        command = [sys.executable, str(PROGRAM), *paths]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split("\n")

    # Module, Assign, Name, Store, Constant.
    assert counted("one.py") == ["5 nodes, 0 clever forms, 0 functions above 60 lines", "", ""]
    assert sorted(counted("clever.py")[1:-1]) == ["clever.py:2", "clever.py:4", "clever.py:5", "clever.py:6"]
    assert counted("long.py")[1:-1] == ["long.py:65 is_long"]
    assert counted(".")[0].endswith("4 clever forms, 1 functions above 60 lines")
