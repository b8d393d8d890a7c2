"""The front pages stay short, their commands run, and the README of each room names all of its modules."""

import re
import shlex
import subprocess
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import scaling_limits
from analysis.payoff import answer_tables, answers, subjects
from results import printing

from .newcomer.test_newcomer import environment
from .test_docs import ROOMS, ROOT, ask

README = ROOT / "README.md"
MOST = {"lines": 110, "words": 900, "pictures": 2}
ARCHITECTURE_WORDS, ROOM_WORDS = 2000, 600
COMMAND = re.compile(r"^    (scaling-limits .+?)(?:  +#.*)?$|`(scaling-limits [a-z]+ [^`]+)`", re.M)
CSV = "length,width,species\n" + "".join(f"{i % 9},{i % 7},{'ab'[i % 9 > i % 7]}\n" for i in range(120))
STEPS = {1: 1000, 2: 510, 4: 260, 8: 140, 16: 80, 32: 50, 64: 42}  # of runs of another trainer, by batch size
MAP = """
format: csv
files: bs{batch_size}.csv
dataset: mine
model: net
optimizer: sgd
batch_size: path:batch_size
metrics: {validation_loss: loss}
targets: {validation_loss: 1}
"""


def commands() -> list[str]:
    """Commands of this software in README, in indented blocks and in tables."""
    return [block or cell for block, cell in COMMAND.findall(README.read_text())]


def test_readme_is_short() -> None:
    text = README.read_text()
    pictures = re.findall(r"!\[.+\]\((.+?)\)|<img src=\"(.+?)\"", text)
    assert all((ROOT / (markdown or html)).is_file() for markdown, html in pictures)
    found = {"lines": len(text.splitlines()), "words": len(text.split()), "pictures": len(pictures)}
    assert {name: (number, MOST[name]) for name, number in found.items() if number > MOST[name]} == {}


def test_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= ARCHITECTURE_WORDS


@pytest.mark.parametrize("page", ROOMS, ids=lambda page: page.parent.name)
def test_a_room_is_short_and_names_each_of_its_modules(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= ROOM_WORDS
    named = set(re.findall(r"`(\w+)`", text))
    code = [path.stem for path in page.parent.rglob("*.py") if path.parent.name != "notebooks"]
    modules = {name for name in code if not name.startswith("_")}
    assert modules - named == set()
    lists = re.findall(r"^(?:\d+\.|-) (`.+?):", text, re.M)
    listed = {name for words in lists for name in re.findall(r"`(\w+)`", words)}
    assert listed - modules - {"__main__"} == set()


def test_installation_comes_before_every_command() -> None:
    text = README.read_text()
    places = [text.index(words) for words in ("make quickstart", "make test", "source .venv/bin/activate")]
    assert places == sorted(places)
    assert places[-1] < min(text.index(command) for command in commands())
    assert len(text[: places[0]].split()) < 250


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str) -> None:
    _, name, *words = shlex.split(line)
    named = scaling_limits.COMMANDS[name]
    ask(named.module.removesuffix(".__main__"), [*named.words, *words])


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path: Path) -> None:
    """Runs each line of README in an empty folder with a CSV file. Factorizations and searches are smaller."""
    small = "webgraph_synthetic ratings.rows=600 ratings.columns=500 ratings.links=9000"
    small += " ratings.communities=20 ratings.heldout_rows=60 als.dim=8 als.epochs=2"
    for line in sorted(commands(), key=lambda each: "sweep" not in each):
        (tmp_path / "mine.csv").write_text(CSV)
        write_logs(tmp_path / "logs")
        if "--map runs.yaml --store" in line:  # as a reader completes it
            (tmp_path / "runs.yaml").write_text(MAP)
        words = line.replace("webgraph_synthetic", small)
        if "optimizer=" in line or "table.path" in line:
            words += " trials=4"
        done = subprocess.run(
            ["bash", "-c", words], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr[-2000:])
        assert done.stdout or "7 runs in 7 studies" in done.stderr


def write_logs(folder: Path) -> None:
    """Writes logs of another trainer, one file per batch size."""
    folder.mkdir(exist_ok=True)
    for size, steps in STEPS.items():
        rows = "".join(f"{round(steps * i / 10)},{10 / i}\n" for i in range(1, 13))
        (folder / f"bs{size}.csv").write_text(f"step,loss\n{rows}")


def test_the_table_is_the_output_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "width", lambda stream: 80)
    table = answer_tables.as_text(answers.answers(subjects.of_paper("shallue2018"))).partition("\n\n")[0]
    assert f"    scaling-limits payoff --paper shallue2018\n\n```text\n{table}\n```\n" in README.read_text()


def test_one_line_reads_all_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rows = pq.ParquetFile("results/published/measurements.parquet").metadata.num_rows
    lines = re.findall(r"^    ((?:pandas|polars|duckdb)\..+)$", README.read_text(), re.M)
    assert len(lines) == 3
    for line in lines:
        assert len(eval(line, {"pandas": pd, "polars": pl, "duckdb": duckdb})) == rows


def test_coverage_is_stated_as_in_its_table() -> None:
    table = (ROOT / "docs" / "statistics" / "coverage.md").read_text()
    (inside,) = re.findall(r"^\| knee inside, five shapes [^|]+\| ([\d.]+) \|", table, re.M)
    _, noisy = table.split("| **high noise** |", 1)
    slope = re.findall(r"^\| slope −0.85 \| ([\d.]+) \|", noisy, re.M)[0]
    text = " ".join(README.read_text().split())
    assert (
        f"If the curve resembles a hyperbola, {inside} % of the statements about a critical batch size hold. "
        f"With a slope of −0.85 and high noise, {slope} % hold."
    ) in text


def test_the_rules_for_learning_rates_predict_the_stated_numbers() -> None:
    points = pd.read_parquet(ROOT / "results" / "published" / "points.parquet")
    own = points.query(
        "dataset == 'digits' and model == 'fully_connected_64' and optimizer == 'sgd' and schedule == 'constant' "
        "and pruning == 'off' and stop == 'target'"
    )
    best = own.set_index("batch_size")["learning_rate"]
    assert len(best) == 11 and (own["trials"] > 0).all()
    linear, root = best[1] * 1024, best[1] * 1024**0.5
    for page in (README, ROOT / "docs" / "optimizers.md"):
        text = " ".join(page.read_text().split())
        assert f"{linear:.0f}" in text and f"{root:.1f}" in text and f"used {best[1024]:.2f}." in text
