"""The notebooks: prose and calls, each of which runs without a word on stderr; the data and the pictures they show."""

import ast
import io
from pathlib import Path
from typing import Any

import IPython.display
import jupytext
import matplotlib
import nbclient
import pytest
from PIL import Image

from analysis import releases
from analysis.plotting import picture
from analysis.plotting.picture import Picture, Skipped, axes
from results.bad_input import BadInput

FOLDER = Path(__file__).parents[2] / "analysis" / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.py"))
SECONDS = 300  # of a cell; a hang, not a measurement
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def notebook(name: str) -> Any:
    return jupytext.read(FOLDER / name, fmt="py:percent")


def sources(name: str, kind: str) -> list[str]:
    return [cell.source for cell in notebook(name).cells if cell.cell_type == kind]


def test_there_are_nine() -> None:
    assert NAMES == [
        "1_reading_the_dataset.py",
        "2_three_regimes.py",
        "3_optimizers_and_learning_rates.py",
        "4_cores.py",
        "5_published_data.py",
        "6_as_a_library.py",
        "7_layouts.py",
        "8_pay_off.py",
        "9_own_runs.py",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_percent_source_for_a_kernel_of_python(name: str) -> None:
    made = notebook(name)
    assert made.metadata["kernelspec"]["name"] == "python3"
    assert made.metadata["jupytext"]["text_representation"]["format_name"] == "percent"
    assert {cell.cell_type for cell in made.cells} == {"markdown", "code"}
    assert all(cell.source.strip() for cell in made.cells)


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_with_its_only_title(name: str) -> None:
    cells = notebook(name).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    lines = [line for source in sources(name, "markdown") for line in source.splitlines()]
    assert sum(line.startswith("# ") for line in lines) == 1
    assert not [line for line in lines if line.startswith("%")], "which is a comment in MyST, as the pages are"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_prose_and_calls(name: str) -> None:
    code, prose = sources(name, "code"), sources(name, "markdown")
    defined = [node for node in ast.walk(ast.parse("\n".join(code))) if isinstance(node, DEFINITIONS)]
    assert not defined, f"line {defined[0].lineno} of the code defines something; that belongs into analysis/"
    assert sum(map(len, prose)) > sum(map(len, code)) / 2


def run(name: str, folder: Path) -> Any:
    """The notebook with its outputs, run in a kernel of its own that starts in an empty folder."""
    made = notebook(name)
    nbclient.NotebookClient(made, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    return made


def outputs(made: Any) -> list[Any]:
    return [output for cell in made.cells for output in cell.get("outputs", [])]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_says_nothing_on_stderr(name: str, tmp_path: Path) -> None:
    found = outputs(run(name, tmp_path))
    assert not [output["text"] for output in found if output.get("name") == "stderr"]
    assert not [output["ename"] for output in found if output["output_type"] == "error"]  # of what is only shown
    pictures = [output for output in found if "image/png" in output.get("data", {})]
    assert pictures
    assert not list(tmp_path.iterdir())


def test_a_variable_names_another_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(releases.VARIABLE, str(tmp_path))
    assert releases.release() == tmp_path


def test_releases_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(releases.VARIABLE, raising=False)
    monkeypatch.setattr(releases, "ROOT", tmp_path)
    for name, find in (("published", releases.release), ("mlperf", releases.mlperf)):
        with pytest.raises(BadInput, match=f"no release at {tmp_path}/results/{name}"):
            find()
        (tmp_path / "results" / name).mkdir(parents=True)
        assert find() == tmp_path / "results" / name


def test_the_points_of_mlperf_are_there() -> None:
    assert (releases.mlperf() / "manifest.json").is_file()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What was handed to the notebook, with what goes beside it."""
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, metadata: found.append((data, metadata)))
    return found


def test_pictures_are_shown_and_what_is_missing_is_named(
    shown: list[tuple[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    figure, _ = axes("title", "goal")
    picture.show([Picture(("digits", "sgd"), figure), Skipped("another", "nothing reached")])
    ((data, metadata),) = shown
    assert data["text/plain"] == "digits · sgd"
    assert Image.open(io.BytesIO(data["image/png"])).size == (960, 690)
    assert metadata == {"image/png": {"width": 640}}
    assert capsys.readouterr().out == "not drawn: another: nothing reached\n"


def test_what_is_yielded_is_drawn_in_the_look_of_files(shown: list[tuple[Any, Any]]) -> None:
    def pictures() -> Any:
        assert matplotlib.rcParams["axes.spines.top"] is False
        yield Picture(("one",), axes("title", "goal")[0])

    before = matplotlib.rcParams["axes.spines.top"]
    picture.show(pictures())
    assert len(shown) == 1
    assert matplotlib.rcParams["axes.spines.top"] == before
