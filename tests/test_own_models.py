"""The page on own models: its file in all forms, its tasks and its Python code."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import sweeps
from harness.run import Settings
from harness.runners import engine
from harness.trials import search
from sweeps import choices, overrides, planning
from sweeps.library import Study

DOCS = Path(__file__).parents[1] / "docs"
MODELS = ("linen_net", "nnx_net", "plain_net")
PAGE = (DOCS / "own-models.md").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the file and the tasks of the page."""
    shutil.copy(DOCS / "examples" / "my_own.py", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choices, "own_files", {"task": {}, "optimizer": {}})
    shutil.copytree(DOCS / "examples" / "tasks", tmp_path / "docs" / "examples" / "tasks")
    return tmp_path


def test_the_page_shows_its_files(folder: Path) -> None:
    assert len((folder / "my_own.py").read_text().splitlines()) <= 45
    for path in (folder / "docs" / "examples" / "tasks").rglob("*.yaml"):
        assert path.read_text().partition("\n")[2] in PAGE


@pytest.mark.parametrize(
    "model", [name if name == "nnx_net" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_each_model_learns_with_the_optimizer(model: str) -> None:
    words = [
        "--tasks",
        "docs/examples/tasks",
        "task=blobs",
        "optimizer=lion",
        "batch_size=64",
        "trials=4",
        "store=none",
    ]
    line = overrides.command_line([*words, "pruning=off", f"model={{name: 'my_own:{model}'}}"])
    (study,) = planning.request(line).studies
    assert (study.dataset, study.optimizer) == ("my_own:blobs", "my_own:LION")
    errors = engine.run(study, search.draw(study, range(4)), Settings(lanes=4)).metrics["validation_error"]
    assert np.nanmin(errors) <= study.targets[0].value < 0.5  # of four classes, a guess is wrong in 0.75


def test_the_python_code_defines_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Study] = []
    monkeypatch.setattr(sweeps, "measure", lambda studies, store: measured.extend(studies))
    (code,) = re.findall(r"```python\n(import.*?)```", PAGE, re.S)
    exec(code, {})
    assert [one.study.model for one in measured] == ["my_own:nnx_net"] * 3
    assert {name for one in measured for name in one.study.space} == {"learning_rate", "b1"}
    assert "my_own" in sys.modules
