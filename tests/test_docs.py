"""Documents hold what they promise: links lead somewhere, commands parse, pages are made of what is there."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import pytest

import scaling_limits
from analysis import arguments, text
from analysis.figures.registry import FIGURES, KINDS
from analysis.fitting import assumptions
from analysis.trials import steps_to_target
from results import __main__ as results_cli, exit_codes, store
from results.bad_input import BadInput
from results.plans import kinds, schema
from sweeps import choices, composition, manifest, overrides, plan, status
from sweeps.manifests.options import MAPS
from workloads import preparable

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROOMS = [ROOT / room / "README.md" for room in ("harness", "workloads", "sweeps", "results", "analysis")]
REFERENCE = {DOCS / "api" / f"{page.parent.name}.md" for page in ROOMS}
MADE = {DOCS / "commands.md", DOCS / "dictionary.md", *DOCS.glob("notebooks/*"), *REFERENCE}  # at every build, not kept
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOMS, *DOCS.rglob("*.md"), ROOT / "benchmarks" / "RESULTS.md"} - MADE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# What a recipe adds is not there: the names of its files, and of its rows.
ADDED = re.compile(
    r"`(?:conf/(?:task|optimizer|experiment)|results/importers)/([\w/-]+)\.\w+`|^ +\"(\w+)\": Figure\(", re.M
)


class Command(NamedTuple):
    """A command line of a document."""

    document: Path
    words: list[str]

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: {' '.join(self.words)}"


def commands() -> Iterator[Command]:
    """Lines of indented blocks that start a program of ours, without comments; a backslash continues one."""
    for document in DOCUMENTS:
        for line in document.read_text().replace("\\\n", " ").splitlines():
            if line.startswith("    ") and line.split()[:1] and line.split()[0] in ("python", "make", "scaling-limits"):
                yield Command(document, shlex.split(line, comments=True))


def _composed(command: Command) -> Any:
    """A command as a case; sweeps of hundreds of studies take seconds to compose."""
    large = {f"+experiment={name}" for name in LARGE} & {*command.words}
    return pytest.param(command, marks=[pytest.mark.slow] if large else [], id=str(command))


LARGE = ("shallue2018/all", "shallue2018/figure1", "tiny/all", "optimizers/digits")
# A command that is in several documents is composed once.
COMMANDS = [_composed(command) for command in {tuple(command.words): command for command in commands()}.values()]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The module docs/pages.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(document: Path) -> set[str]:
    """What the headings of a document are called in links."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.is_relative_to(ROOT) and path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_pages_are_read_on_a_code_host_too() -> None:
    """There, a page that is made by the build is not there."""
    names = {"commands.md", "dictionary.md", "notebooks/", *(f"api/{page.name}" for page in REFERENCE)}
    found = {target for page in DOCS.rglob("*.md") for target in LINK.findall(page.read_text()) if page not in MADE}
    assert not {target for target in found if any(name in target for name in names)}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "own_files", {"task": {}, "optimizer": {}})
    added = {name for names in ADDED.findall(command.document.read_text()) for name in names if name}
    program, *words = command.words
    if program == "make":
        target = next(word for word in words if "=" not in word)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    elif program == "scaling-limits":
        named = scaling_limits.COMMANDS[words[0]]
        ask(named.module.removesuffix(".__main__"), [*named.words, *words[1:]])
    elif words[0] != "-m":
        assert (ROOT / words[0]).is_file()
    elif words[1] == "pytest":
        assert all((ROOT / path).exists() for path in words[2:])
    elif not added & {word.rpartition("=")[2] for word in words[2:]}:
        ask(words[1], words[2:])


def ask(command: str, words: list[str]) -> None:
    """Has a command parse its arguments without running; raises BadInput if it cannot."""
    if command == "analysis":
        namespace = arguments.parser().parse_args(words)
        if namespace.command == "figures":
            assert namespace.name is None or any(namespace.name in (name, name.partition("/")[0]) for name in FIGURES)
            assert namespace.kind is None or namespace.kind in KINDS
    elif command == "results":
        results_cli.parser().parse_args(words)
    elif command == "workloads.prepare":
        assert preparable.prepared_as(words[0]) in preparable.names()
    elif command == "sweeps.status":
        status.parser().parse_args(words)
    elif command == "harness.costs.probe":
        assert not words
    else:
        own = {"sweeps": ((), ()), "sweeps.plan": (plan.OWN, ()), "sweeps.manifest": (manifest.OWN, MAPS)}
        words = overrides.split(words, *own[command], flags=(plan.CALIBRATION,))[1]
        needs_more = (plan.CALIBRATION, "protocol=archive")  # an imported archive: see tests/sweeps/test_protocol.py
        words = [word for word in words if word not in needs_more]
        line = overrides.command_line(words)
        assert "--help" in words or composition.compose_all(line)


def test_commands_are_found_and_a_wrong_one_is_refused() -> None:
    assert len(COMMANDS) > 60
    assert {command.document.name for command in commands()} >= {
        "README.md",
        "start.md",
        "reproduce.md",
        "sweep.md",
        "optimizers.md",
    }
    with pytest.raises(BadInput):
        ask("analysis", ["fit", "--shop", "results/local"])
    with pytest.raises(AssertionError):
        ask("analysis", ["figures", "--store", "s", "--out", "f", "--name", "optimisers"])


def test_links_are_relative_to_the_page_that_shows_them(pages: ModuleType) -> None:
    text = "[a](docs/start.md#cores) [b](harness/README.md) [c](results/mlperf/README.md) [d](https://x.org) ![e](f)"
    shown = "[a](../start.md#cores) [b](harness.md) c [d](https://x.org) ![e](f)"
    assert pages.relinked(text, ROOT, DOCS / "api") == shown


def test_make_lists_every_target_and_does_so_by_default() -> None:
    (listed,) = re.findall(r"^\.PHONY: unusable (.*)$", (ROOT / "Makefile").read_text(), re.M)
    shown = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True).stdout.splitlines()
    shown = [line for line in shown if not line.startswith("make: ") and not line.startswith("make[")]
    assert [line.split()[0] for line in shown] == listed.split()
    assert all(len(line.split()) > 1 for line in shown)


def test_the_reference_has_every_module(pages: ModuleType) -> None:
    for room in pages.ROOMS:
        listed = re.findall(r"automodule:: ([\w.]+)", pages.reference(room))
        expected = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in pages.modules(room)}
        assert len(listed) == len(expected) > 20 and set(listed) == expected


def test_every_command_has_a_purpose(pages: ModuleType) -> None:
    sources = [
        path
        for package in ("analysis", "harness", "harness/costs", "results", "sweeps", "workloads")
        for path in ROOT.glob(f"{package}/*.py")
    ]
    opened = {path for path in sources if 'if __name__ == "__main__":' in path.read_text()}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in opened}
    assert names == pages.MODULES.keys()
    top = results_cli.parser().format_usage()
    assert all(command in top for command in pages.SUBCOMMANDS["results"])


def test_the_dictionary_has_every_column(pages: ModuleType) -> None:
    page = pages.dictionary()
    for column in (*schema.STUDIES, *schema.TRIALS, *schema.MEASUREMENTS, *schema.COSTS):
        assert re.search(rf"^\| `{column.name}` \| [^|]+ \| {re.escape(column.meaning)} \|$", page, re.M)
    assert f"schema {schema.SCHEMA_VERSION}" in page


def test_every_status_of_a_trial_is_explained() -> None:
    (meaning,) = (column.meaning for column in schema.TRIALS if column.name == "status")
    statuses = {status for status, _ in kinds.OF_ANY}
    for explained in (meaning, *((DOCS / page).read_text() for page in ("glossary.md", "start.md"))):
        assert all(re.search(rf"\b{status}\b", explained) for status in statuses)
        assert re.search(r"INFEASIBLE[^.;]*diverged[^.;]*layout was rejected", explained)


def test_statistics_tell_every_verdict_and_every_assumption() -> None:
    page = (DOCS / "statistics" / "method.md").read_text()
    for verdict in text.VERDICTS:
        assert f"\n| {verdict.replace('_', ' ')} |" in page
    for name, assumed in assumptions.ASSUMPTIONS.items():
        assert f"\n| {name} | {assumed.replace('-1', '−1')} |" in page


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_printed_output_fits_80_columns(document: Path) -> None:
    for block in re.findall(r"^```(?:text|console)\n(\S.*?)^```", document.read_text(), re.S | re.M):
        assert max(map(len, block.splitlines())) <= 80, block


def test_the_table_of_steps_is_as_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(4, 23, 30, 1, 3, 12, 0.00372), (16, 2, 4, 3, 0, 15, 0.00261), (64, 2, 3, 11, 0, 15, 0.00207)]
    names = ["batch_size", "steps_low", "steps_high", "trial", "infeasible", "incomplete", "seconds_per_epoch"]
    table = pd.DataFrame(answers, columns=names).assign(
        dataset="table",
        model="fully_connected_64",
        optimizer="momentum",
        target_metric="validation_r2_error",
        target_value=0.55,
        complete=1,
    )
    monkeypatch.setattr("results.printing.width", lambda stream: 80)
    assert f"```text\n{steps_to_target.as_text(table)}\n\nA fit needs at least 5 " in (DOCS / "own-data.md").read_text()


def test_the_join_adds_the_workload_to_each_row() -> None:
    (join,) = re.findall(r"^    (measurements\.merge\(.*)$", (DOCS / "reading.md").read_text(), re.M)
    studies = pd.DataFrame(
        {"study": ["a", "a", "b"], "run": [0, 1, 0], "dataset": "d", "model": "m", "optimizer": "o", "batch_size": 1}
    )
    measurements = pd.DataFrame({"study": ["a", "b", "b"], "step": [1, 1, 2]})
    joined = eval(join, {"studies": studies, "measurements": measurements})
    assert len(joined) == 3 and {"dataset", "model", "optimizer", "batch_size"} <= set(joined.columns)


@pytest.mark.slow
def test_every_reader_gives_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/reading.md, against what ``analysis steps`` says."""
    monkeypatch.chdir(ROOT)
    page = (DOCS / "reading.md").read_text()
    of_pandas, of_polars = re.findall(r"```python\n(.*?)```", page, re.S)
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.S)
    names: dict[str, Any] = {}
    exec(of_pandas, names)
    read = {"pandas": {int(size): int(step) for size, step in names["steps"].items()}}
    exec(of_polars, names)
    read["polars"] = dict(names["steps"].iter_rows())
    read["duckdb"] = dict(duckdb.sql(query).fetchall())
    table = steps_to_target.table(*steps_to_target.load(ROOT / "results/published"))
    own = table[(table["model"] == "fully_connected_64") & (table["optimizer"] == "momentum")]
    answers = dict(zip(own["batch_size"], own["steps_high"], strict=True))
    assert len(answers) == 11
    assert read == dict.fromkeys(read, answers)


def test_three_questions_are_answered_in_three_lines_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SQL of docs/sql.md, against our own reader and ``analysis``."""
    monkeypatch.chdir(ROOT)
    queries = re.findall(r"```sql\n(.*?)```", (DOCS / "sql.md").read_text(), re.S)
    assert len(queries) == 3 and all(len(query.splitlines()) <= 3 for query in queries)
    best, curve, points = (duckdb.sql(query).fetchall() for query in queries)
    answers = steps_to_target.table(*steps_to_target.load(ROOT / "results/published"))
    own = answers[(answers["model"].str.startswith("simple_cnn")) & (answers["batch_size"] == 64)]
    assert {row[0]: row[1] for row in best} == dict(zip(own["optimizer"], own["steps_high"], strict=True))
    assert [row[2] for row in best] == sorted(row[2] for row in best) and len(best) == 9
    (name,) = own.loc[own["optimizer"] == "adam", "study"]
    measured = store.read(ROOT / "results/published", name).measurements
    measured = measured[measured["trial"] == 0]
    assert curve == list(zip(measured["step"] * 64, measured["validation_loss"], strict=True))
    reached = answers[answers["steps_high"].notna()]
    drawn = reached[["batch_size", "steps_low", "steps_high"]].astype(int).itertuples(index=False, name=None)
    assert sorted(row[1:] for row in points) == sorted(drawn)


@pytest.mark.slow
def test_documentation_builds_offline_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-E", "-n", "-b", "html"]
    command += ["-d", str(tmp_path / "read"), str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    built = {path.relative_to(tmp_path / "html") for path in (tmp_path / "html").rglob("*.html")}
    assert {DOCS / path.with_suffix(".md") for path in built} >= {*DOCS.rglob("*.md")}
    for path in built:
        page = (tmp_path / "html" / path).read_text()
        assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(https?:)?//", page), path
        assert "mailto:" not in page, path


def test_the_page_on_stopping_has_every_exit_code() -> None:
    listed = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "stopping.md").read_text(), re.MULTILINE)
    codes = [int(code) for name, code in vars(exit_codes).items() if name.isupper()]
    assert listed == [str(code) for code in codes]
