"""The commands as a whole: what they import, what can be drawn, and `all`, which is four of them in one go."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results import progress

ACCELERATORS = {"jax", "jaxlib", "tensorflow", "flax", "optax"}
SLOW = {"matplotlib", "matplotlib.pyplot", "pandas", "polars", "scipy", "scipy.optimize", "pyarrow"}
LOADED = "\nimport sys; print('LOADED', *sorted(sys.modules))"
EVERYTHING = """
import importlib, pkgutil, sys
import analysis
for module in pkgutil.walk_packages(analysis.__path__, "analysis."):
    importlib.import_module(module.name)
"""
DRAWN = """
from analysis.__main__ import main
store, out = sys.argv[1:]
assert main(["figures", "--store", store, "--out", out, "--name", "optimizers"]) == 0
assert main(["figures", "--store", store, "--out", out, "--kind", "steps", "--where", "optimizer=sgd"]) == 0
"""
LISTED = """
from analysis.__main__ import main
assert main(["figures", "--list"]) == 0
"""


def loaded(program: str, *arguments: object) -> set[str]:
    """What a program has imported when it ends."""
    command = [sys.executable, "-c", program + LOADED, *map(str, arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_no_accelerator_stack_is_ever_imported(swept: Path, tmp_path: Path) -> None:
    modules = loaded(EVERYTHING + DRAWN, swept, tmp_path)
    assert {
        "analysis.figures.shallue2018",
        "analysis.figures.workload_figures",
        "matplotlib.figure",
        "results.catalog.scan",
    } <= modules
    assert not modules & ACCELERATORS
    assert "matplotlib.pyplot" not in modules  # which looks for a screen
    assert len(list(tmp_path.iterdir())) == 4


def test_to_list_the_figures_is_no_work() -> None:
    modules = loaded(LISTED)
    assert "analysis.figures.registry" in modules
    assert not modules & SLOW


def test_the_list_names_figures_and_kinds(cli: Any) -> None:
    from analysis.figures import registry

    code, out, err = cli("figures", "--list")
    assert (code, err) == (0, "")
    names = [line.split("  ")[0] for line in out.splitlines()]
    kinds = [f"--kind {name}" for name, row in registry.FIGURES.items() if row.source == registry.WORKLOADS]
    assert names == [*registry.store_figures(), *kinds]
    of_paper = [name for name in names if name.startswith("shallue2018/")]
    assert of_paper == [f"shallue2018/figure{number}" for number in range(1, 12)]


@pytest.mark.slow
def test_all_is_its_commands_one_after_the_other(
    swept: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    code, out, _ = cli("all", "--store", swept, "--out", one)
    assert code == 0
    parts = [cli(name, "--store", swept) for name in ("steps", "fit")]
    parts.append(cli("figures", "--store", swept, "--out", several))
    assert out.replace(str(one), str(several)) == "".join(text for _, text, _ in parts)
    pictures = {path.name: path.read_bytes() for path in several.iterdir()}
    assert pictures
    assert {path.name: path.read_bytes() for path in one.iterdir()} == pictures


def test_a_folder_of_logs_is_no_store_and_the_line_names_the_way(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "run-2.json").write_text("{}")
    ways = ["Steps measured elsewhere go into a CSV file: python -m analysis fit --points FILE"]
    ways.append(f"start with `python -m results import runs {tmp_path} --suggest-map --map runs.yaml`")
    for way in ways:
        code, out, err = cli("fit", "--store", tmp_path)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: no study in {tmp_path} has run yet. ") and err.count("\n") == 1
        assert way in err
        (tmp_path / "run-1.csv").write_text("step,loss\n1,2.0\n")


def test_all_of_a_store_that_is_empty_is_one_line(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = cli("all", "--store", tmp_path, "--out", tmp_path / "figures")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (("fit", "--store", "{store}"), ["fit", "pays and efficient up to"]),
        (("fit", "--store", "{store}", "--best-of", "8,24"), ["fit by number of trials"]),
        (("payoff", "--store", "{store}"), ["fit", "payoff"]),
        pytest.param(("payoff", "--paper", "shallue2018"), ["fit", "payoff"], marks=pytest.mark.slow),
        (("figures", "--store", "{store}", "--out", "{out}", "--name", "optimizers"), ["fit"]),
        (("figures", "--store", "{store}", "--out", "{out}", "--kind", "optimizers"), ["fit"]),
        pytest.param(
            ("report", "--store", "{store}", "--out", "{out}/page.html"),
            ["report", "report: payoff"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_long_commands_show_progress_and_keep_their_answer(
    swept: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], titles: list[str]
) -> None:
    command = [word.format(store=swept, out=tmp_path) for word in words]
    quiet = cli(*command)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    code, out, err = cli(*command)
    assert (code, out) == quiet[:2] and code == 0
    shown = [line for line in err.splitlines() if line not in quiet[2].splitlines()]
    for title in titles:
        assert any(re.fullmatch(rf"{title}: [\d.]+ \w+ \(100%\)", line) for line in shown), (title, shown)
    assert all(re.fullmatch(r"[\w ]+(: payoff)?: [\d.]+ \w+ \(\d+%\)", line) for line in shown), shown
