"""Kinds of study: what tells them apart are tables, and a new kind is files of its own with a row in each of these."""

import ast
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analysis import kind_views
from harness.kinds import RUNNERS
from results import store
from results.plans import kinds
from results.plans.plan import Plan
from sweeps import kind_configs

ROOT = Path(__file__).parents[1]
ROOMS = ("analysis", "benchmarks", "docs", "harness", "results", "sweeps", "workloads")
TABLES = {
    "results/plans/plan.py",
    "results/plans/kinds.py",
    "harness/kinds.py",
    "sweeps/kind_configs.py",
    "analysis/kind_views.py",
}
CLASSES = {"Plan", *(kind.plan.__name__ for kind in kinds.KINDS.values())}
# Attributes that plans of some kinds have, but not those of every kind.
OF_SOME = {name for kind in kinds.KINDS.values() for name in dir(kind.plan)} | {
    field.name for kind in kinds.KINDS.values() for field in dataclasses.fields(kind.plan)
}
OF_SOME -= {*dir(Plan), *Plan.__annotations__}
STUDIES = {"study", "plan", "planned", "commit", "about", "recorded"}  # what plans, and what holds one, are called

# A new kind: a file of its own, a task, and in each table a row.
ROWS = """
import toy
from analysis import kind_views
from harness.kinds import RUNNERS, Runner
from results.plans import kinds
from results.plans.schema import Column
from sweeps import kind_configs
import pyarrow as pa

PLAYS = Column("plays", pa.int64(), "how often it was played")
kinds.KINDS["toy"] = kinds.Kind(toy.ToyStudy, axes=("width", "batch_size"), unit="play", columns=(PLAYS,))
RUNNERS["toy"] = Runner(toy.run)
kind_configs.READERS["toy"] = kind_configs.Reader("toy", toy.Keys, ("toy",), toy.read, "toys")
kind_views.PRESENTATIONS["toy"] = kind_views.Presentation(
    "toys over widths",
    "How toys fare.",
    load="toy.load",
    source="toy",
    columns=toy.COLUMNS,
    figures={"toy_plays": kind_views.Figure("toy.drawn", "plays of toys against width")},
    section=kind_views.Section("toys", "Toys", "toy"),
    command=kind_views.Command("toys", "how toys fare", "Toys, a row per study.\\n\\n", "toy"),
)
"""
TASK = """\
# @package _global_
# A toy.
kind: toy

toy:
  width: 3
  learning_rate: {scale: LOG, low: 0.05, high: 0.5}
  loss: 0.1
  plays: 30
"""
# Runs commands one after the other, as `python -m` does.
IN_TURN = """
import runpy, sys
for line in sys.argv[1:]:
    command, *sys.argv[1:] = line.split()
    print(f"## {line}", flush=True)
    try:
        runpy.run_module(command, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        print(f"## ended {end.code or 0}", flush=True)
"""


def test_every_table_has_a_row_for_every_kind() -> None:
    ours = [name for name, kind in kinds.KINDS.items() if not kind.recorded]
    assert set(RUNNERS) == set(kind_configs.READERS) == set(ours)
    assert set(kind_views.PRESENTATIONS) == set(kinds.KINDS)
    assert all(kind.plan.kind == name for name, kind in kinds.KINDS.items())


def test_kinds_are_told_apart_by_tables_alone() -> None:
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    names = {path: path.relative_to(ROOT).as_posix() for path in files}
    trees = {names[path]: ast.parse(path.read_text()) for path in files if names[path] not in TABLES}
    constants = {name for tree in trees.values() for name in _constants(tree)}
    found = [f"{file}:{line}" for file, tree in trees.items() for line in told_apart(tree, constants)]
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(study, BatchStudy)",
        "isinstance(one, Plan)",
        "isinstance(commit.study, (Recorded, Factorization))",
        "type(study)",
        "type(one.study) is other",
        "x is Recorded",
        "hasattr(study, 'targets')",
        "getattr(commit.study, 'batch_size', None)",
        "study.kind == other",
        "commit.plan['kind'] != KIND",
        "plan.get('kind') in known",
        "kind == 'cores'",
        "kind in ('recorded', 'toy')",
        "name == kind_views.BATCH",
        "study.batch_size or 0",
        "sizes.append(commit.study.batch_size or 1)",
        "x = study.cores is None",
        "if study.source is not None: pass",
        "one.study.cores and x",
        "not plan.targets",
        "x if study.engine else y",
        "[one for one in all if one.study.batch_size]",
        "bool(study.confirm)",
        "match study:\n  case _: pass",
        "match one:\n  case Recorded(): pass",
        "match kind:\n  case 'cores': pass",
    ],
)
def test_whatever_tells_kinds_apart_is_found(code: str) -> None:
    assert list(told_apart(ast.parse(code), {"BATCH"})) == [1]


def told_apart(tree: ast.AST, constants: set[str]) -> Iterator[int]:
    """Lines that tell kinds of study apart, each once.

    Args:
      tree: of a module.
      constants: names that stand for a kind's name.
    """
    found = [node for node in ast.walk(tree) if _tells(node, constants)]
    yield from sorted({(node.target if isinstance(node, ast.comprehension) else node).lineno for node in found})


def _tells(node: ast.AST, constants: set[str]) -> bool:
    if any(_is_of_some(each) for each in _asked(node)):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inspects = node.func.id in ("type", "hasattr") or (node.func.id == "getattr" and len(node.args) == 3)
        if inspects and _last(node.args[0]) in STUDIES:
            return True
        return node.func.id in ("isinstance", "issubclass") and _mentions(node.args[1], CLASSES)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(_is_kind(each, constants) for side in sides for each in _elements(side))
    if isinstance(node, ast.Match):
        patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
        values = [each.value for each in patterns if isinstance(each, ast.MatchValue)]
        classes = [each.cls for each in patterns if isinstance(each, ast.MatchClass)]
        told = any(_is_kind(value, constants) for value in values) or any(_mentions(one, CLASSES) for one in classes)
        return told or _last(node.subject) in STUDIES
    return False


def _asked(node: ast.AST) -> list[ast.expr]:
    """Expressions of which a statement or an expression asks whether they are true, or None."""
    if isinstance(node, ast.BoolOp):
        return node.values[:-1]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.Call) and _last(node.func) == "bool":
        return node.args
    if isinstance(node, ast.Compare) and any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
        return [node.left]
    return []


def _is_of_some(node: ast.AST) -> bool:
    """Whether an expression is an attribute of a study that only some kinds have."""
    return isinstance(node, ast.Attribute) and node.attr in OF_SOME and _last(node.value) in STUDIES


def _is_kind(node: ast.AST, constants: set[str]) -> bool:
    """Whether an expression is a kind's name, the kind of a study, or one of the classes of kinds."""
    if isinstance(node, ast.Constant):
        return node.value in kinds.KINDS
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "kind"
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "get" and "kind" in _texts(node.args[:1])
    if isinstance(node, ast.Attribute) and node.attr == "kind":
        return _last(node.value) in STUDIES or _last(node.value) in CLASSES
    return _last(node) in constants | CLASSES


def _constants(tree: ast.Module) -> Iterator[str]:
    """Names of a module, in capitals, that stand for a kind's name."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names, values = _elements(target), _elements(node.value)
                for name, value in zip(names, values, strict=False):
                    if isinstance(value, ast.Constant) and value.value in kinds.KINDS and isinstance(name, ast.Name):
                        yield name.id


def _elements(node: ast.AST) -> list[ast.AST]:
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def _texts(nodes: list[ast.expr]) -> list[object]:
    return [node.value for node in nodes if isinstance(node, ast.Constant)]


def _last(node: ast.AST) -> str:
    """The last name of a dotted one."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(_last(each) in names for each in ast.walk(node))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every process knows the toy: all tables have its row, and a task asks for it."""
    here = tmp_path_factory.mktemp("toys")
    shutil.copytree(ROOT / "conf", here / "conf")
    (here / "conf" / "task" / "toy.yaml").write_text(TASK)
    shutil.copy(ROOT / "tests" / "toy.py", here)
    (here / "sitecustomize.py").write_text(ROWS)
    return here


def told(here: Path, *lines: str) -> dict[str, str]:
    """Output of commands, by their line; they must all succeed."""
    paths = os.pathsep.join(map(str, (here, ROOT)))
    program = [sys.executable, "-c", IN_TURN] if len(lines) > 1 else [sys.executable, "-m"]
    words = lines if len(lines) > 1 else lines[0].split()
    environment = os.environ | {"PYTHONPATH": paths, "SCALING_LIMITS_CACHE": str(here / "cache")}
    done = subprocess.run(
        [*program, *words], cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if len(lines) == 1:
        return {lines[0]: done.stdout}
    ends = done.stdout.count("## ended 0\n")
    assert ends == len(lines), done.stdout + done.stderr
    blocks = [block.partition("\n") for block in done.stdout.split("## ") if not block.startswith("ended")]
    return {line: text for line, _, text in blocks if line}


def refused(here: Path, line: str) -> str:
    """The error of a command: one line."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here, ROOT)))}
    command = [sys.executable, "-m", *line.split()]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def swept(here: Path) -> Path:
    """A store of toys and networks that look alike, by one command."""
    line = "sweeps task=toy,noisy_quadratic optimizer=sgd batch_size=4,16,64,256 trials=4 pruning=off store=all -m"
    (out,) = told(here, f"{line} task.budget.steps=400").values()
    assert "analysis toys" in out
    assert "analysis steps" in out
    return here / "all"


def test_a_new_kind_is_run_stored_checked_and_handed_on(here: Path, swept: Path) -> None:
    kinds_of_studies = {}
    for name in store.names(swept):
        record = next((swept / name).glob("commit-*.json")).read_text()
        kinds_of_studies[name] = "toy" if '"kind":"toy"' in record.replace(" ", "") else "batch"
    toys = [name for name, kind in kinds_of_studies.items() if kind == "toy"]
    assert len(toys) == 4
    assert len(kinds_of_studies) == 8
    assert all(name.startswith("toy-w3-b") for name in toys)
    tables = [pd.read_parquet(path) for name in toys for path in (swept / name).glob("measurements-*.parquet")]
    rows = pd.concat(tables)
    assert (rows["plays"] == 3 * rows["step"]).all()
    assert len(rows) == 4 * 4 * 30
    lines = [
        "sweeps.status store=all",
        "sweeps.plan task=toy batch_size=4,16 trials=6 store=all -m",
        "results verify --store all --full",
        "results export --store all --out released",
        "results verify --store released",
        "sweeps.status store=released",
        "results merge released --store merged",
        "results verify --store merged",
        "sweeps.plan task=toy batch_size=4 trials=4 store=merged",
    ]
    said = told(here, *lines)
    for line in ("sweeps.status store=all", "sweeps.status store=released"):
        assert all(f"{name}" in said[line] for name in toys)
    assert said[lines[0]].count("done") == 8
    assert "2 studies; 4 trials to run" in said[lines[1]]
    assert "1 study; 0 trials to run" in said[lines[8]]
    assert "plays" in (here / "released" / "DICTIONARY.md").read_text()
    assert "how often it was played" in (here / "released" / "DICTIONARY.md").read_text()


@pytest.mark.slow
def test_nothing_takes_a_new_kind_for_another(here: Path, swept: Path) -> None:
    """With toys in the store or without: the same tables, fits and pictures."""
    shutil.copytree(swept, here / "none", ignore=shutil.ignore_patterns("toy-*"))
    lines = [
        "analysis steps --store {} --csv",
        "analysis steps --store {} --csv --metric validation_loss --value 0.5",
        "analysis fit --store {} --csv",
        "analysis fit --store {} --csv --metric validation_loss --value 0.5",
        "analysis compare {} {} --csv",
        "analysis figures --store {} --out drawn-{}",
        "analysis figures --store {} --out steps-{} --kind steps --metric validation_loss --value 0.5",
        "analysis figures --store {} --out scatter-{} --kind scatter --by learning_rate",
        "analysis report --store {} --out {}.html",
    ]
    with_toys, without = (
        list(told(here, *(line.format(name, name) for line in lines)).values()) for name in ("all", "none")
    )
    assert with_toys[:5] == without[:5]
    assert all("\nnoise," in table for table in (*without[:4], without[4].replace("\nsteps,", "\n")))
    for folder in ("drawn", "steps", "scatter"):
        pictures = {path.name: path.read_bytes() for path in (here / f"{folder}-none").glob("*.png")}
        others = {path.name: path.read_bytes() for path in (here / f"{folder}-all").glob("*.png")}
        assert pictures
        assert ("toy_plays-all.png" in others) == (folder == "drawn")
        assert pictures == {name: content for name, content in others.items() if name != "toy_plays-all.png"}
    pages = [(here / f"{name}.html").read_text() for name in ("all", "none")]
    assert [page.count("toys over widths") > 0 for page in pages] == [True, False]
    assert "How toys fare." in pages[0]
    assert [page.count('<section id="toys"') for page in pages] == [1, 0]
    assert [page.count('href="#toys">Toys<') for page in pages] == [1, 0]
    assert "How often toys were played." in pages[0]
    data = [
        json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', p, re.S)[1]) for p in pages
    ]
    assert data[0]["charts"] == data[1]["charts"]
    assert [group["kind"] for group in data[0]["groups"]] == ["batch", "toy"]


@pytest.mark.slow
def test_a_store_of_a_new_kind_alone(here: Path, swept: Path) -> None:
    shutil.copytree(swept, here / "toys", ignore=shutil.ignore_patterns("noise-*"))
    lines = ["analysis report --store toys --out toys.html", "analysis toys --store toys --csv"]
    lines += ["analysis figures --store toys --out toys-drawn", "analysis figures --list", "analysis toys --store toys"]
    said = told(here, *lines)
    names = sorted(store.names(here / "toys"), key=lambda name: int(name.split("-")[2][1:]))
    assert said[lines[1]].splitlines() == ["study,width,plays", *(f"{name},3,90" for name in names)]
    assert "next: python -m analysis figures --store toys" in said[lines[4]]
    assert (here / "toys-drawn" / "toy_plays-all.svg").exists()
    assert "plays of toys against width" in said[lines[3]]
    words = "analysis toys --help-columns"
    assert "plays  how often it was played" in told(here, words)[words]
    assert '<section id="toys"' in (here / "toys.html").read_text()
    done = refused(here, "analysis steps --store toys")
    assert "no study in toys has steps to target: its kinds have no targets" in done
