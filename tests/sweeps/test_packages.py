"""Data sets, models and optimizers of other packages: from a wheel to a figure, and every way it can fail."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sweeps
from analysis.trials import steps_to_target
from results import store
from results.bad_input import BadInput
from workloads import packages, registry

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = HERE / "package"
SWEEP = ["task=rings", "optimizer=signs", "trials=2", "stop=budget", "pruning=off"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of tests/sweeps/package, built by setuptools."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, folder / "package")
    build = "import setuptools.build_meta as build; print(build.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build],
        cwd=folder / "package",
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / "package" / done.stdout.splitlines()[-1]


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A folder of installed packages with the wheel."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    return tmp_path / "site"


def run(program: str, *words: str, site: Path | None, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of ours in a process that has the packages in ``site``."""
    path = os.pathsep.join(map(str, filter(None, [site, ROOT])))
    environment = os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-P", "-m", program, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_wheel_runs_to_a_figure_and_its_store_needs_no_wheel(installed: Path, tmp_path: Path) -> None:
    sweep = [*SWEEP, "batch_size=4,32", "store=s", "--tasks", str(PACKAGE / "tasks"), "-m"]
    done = run("sweeps", *sweep, site=installed, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout

    plans = [json.loads(plan) for plan in store.read(tmp_path / "s").studies["plan"]]
    assert [plan["dataset"] for plan in plans] == ["mine:rings"] * 2
    assert plans[0]["packages"].keys() == {"mine:rings", "mine:net", "mine:signs"}
    assert plans[0]["packages"]["mine:net"]["version"] == "1.2"
    assert plans[0]["packages"]["mine:net"]["module"].startswith("mine.networks sha256:")

    # Another version of the code is another study.
    with (installed / "mine" / "networks.py").open("a") as file:
        file.write("# changed\n")
    planned = run("sweeps.plan", *sweep, "--json", site=installed, folder=tmp_path)
    assert not {row["study"] for row in json.loads(planned.stdout)} & set(store.read(tmp_path / "s").studies["study"])

    # A package that raises on import breaks only commands that need it.
    (installed / "mine" / "__init__.py").write_text("raise RuntimeError('the wrong machine')\n")
    assert run("results", "verify", "--store", "s", site=installed, folder=tmp_path).returncode == 0
    done = run("sweeps", *sweep, site=installed, folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "cannot be imported (RuntimeError: the wrong machine)" in done.stderr

    # Without the package: the store verifies, is read and is drawn, and a sweep names the package.
    for program, words in (
        ("results", ["export", "--store", "s", "--out", "release"]),
        ("analysis", ["figures", "--store", "s", "--out", "figures"]),
    ):
        done = run(program, *words, site=None, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "figures").glob("*.png"))) > 0
    done = run("sweeps", *sweep, site=None, folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "mine:" in done.stderr and "needs the package mine, which is not installed here" in done.stderr


@pytest.mark.slow
def test_a_fresh_environment_with_the_wheel_draws_its_figures(wheel: Path, tmp_path: Path) -> None:
    """As a user would install both, from the locked versions."""
    uv, python = Path(sys.executable).parent / "uv", tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "-r", ROOT / "requirements.lock"], check=True)
    source = tmp_path / "source"  # building leaves files behind
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "local", "tests"))
    subprocess.run([*install, "--no-deps", source, wheel], check=True)
    command = tmp_path / "venv" / "bin" / "scaling-limits"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    for words in (
        ["sweep", *SWEEP, "batch_size=4,32", "store=s", "--tasks", str(PACKAGE / "tasks"), "-m"],
        ["verify", "--store", "s"],
        ["figures", "--store", "s", "--out", "figures"],
    ):
        subprocess.run([command, *words], cwd=tmp_path, env=environment, check=True)
    assert len(list((tmp_path / "figures").glob("*.png"))) > 0


def test_help_lists_own_tasks(tmp_path: Path) -> None:
    done = run("sweeps", "--help", "--tasks", str(PACKAGE / "tasks"), site=None, folder=tmp_path)
    assert done.returncode == 0
    assert "Two rings, the network of" in done.stdout
    assert "Sign descent of the package" in done.stdout


@pytest.mark.parametrize(
    ("tasks", "part"),
    [
        ({}, "has no YAML files"),
        (None, "no folder at tasks="),
        ({"digits_fc.yaml": "dataset: digits"}, "this package already has the task digits_fc. Rename the file."),
        ({"optimizer/adam.yaml": "name: adam"}, "this package already has the optimizer adam"),
        ({"bad.yaml": "dataset: [1,"}, "bad.yaml cannot be read as YAML"),
        ({"own.yaml": "dataset: digits\nmodle: {}\n"}, "modle"),
    ],
)
def test_a_wrong_folder_of_tasks_is_one_line(tasks: dict[str, str] | None, part: str, tmp_path: Path) -> None:
    for name, text in (tasks or {}).items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text(text)
    if tasks == {}:
        (tmp_path / "own").mkdir()
    words = ["task=own", "--tasks", str(tmp_path / "own"), "store=s"]
    done = run("sweeps.plan", *words, site=None, folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and part in done.stderr, done.stderr


MODULE = '''
"""Models of a user's own script folder."""
from workloads.models.image_options import FullyConnected

def small(classes, width=16):
    return FullyConnected(classes, [width]).model()

def empty(classes):
    return {}
'''


def test_a_function_of_a_module_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_small_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import my_small_models  # type: ignore[import-not-found]

    one = sweeps.study(model={"name": my_small_models.small, "width": 8}, trials=1, batch_size=64)
    assert one.study.model == "my_small_models:small" and one.study.model_options == {"width": 8}
    assert one.study.packages["my_small_models:small"]["version"] == ""
    assert sweeps.study(model=my_small_models.small).study.model_options == {"width": 16}
    with pytest.raises(BadInput, match=r"my_small_models:empty returns dict, not workloads.workload.Model"):
        sweeps.study(model=my_small_models.empty)
    quick = {"task.budget.at_least_steps": 4, "task.budget.epochs": 0.1, "pruning": "off"}
    again = sweeps.study(model={"name": my_small_models.small, "width": 8}, trials=1, batch_size=64, **quick)
    tables = sweeps.measure(again, tmp_path / "store", workers=1)
    assert tables.trials["steps"].tolist() == [again.study.budget_steps]
    assert steps_to_target.table(*steps_to_target.load(tmp_path / "store"))["model"].tolist() == [
        "my_small_models:small_8"
    ]


def test_functions_unknown_to_workers_are_refused_with_a_remedy() -> None:
    def local(classes: int) -> None: ...

    with pytest.raises(BadInput, match=r"defined in another function.*Save it in a file such as my_models.py"):
        sweeps.study(model=local)
    call = "try:\n    sweeps.study(model=net)\nexcept Exception as error:\n    print(error)"
    script = f"import sweeps\ndef net(classes): ...\n{call}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "net is defined in a notebook or a script, where workers cannot import it. Save it in a file such as "
        "my_models.py, and use `from my_models import net`.\n"
    )


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"model": "nowhere:net"}, "model nowhere:net needs the package nowhere, which is not installed here"),
        ({"model": "workloads.losses:net"}, "workloads.losses has no net"),
        ({"model": "a b:c"}, "is not a qualified name"),
        ({"model": "vgg_7"}, "unknown model 'vgg_7'"),
        ({"model": {"width": 3}}, "is neither a name nor a dict with a name"),
        ({"model": "builtins:dict"}, "is not a function with the argument classes"),
        ({"model": 3}, "is neither a name nor a dict with a name"),
        ({"task.dataset": "workloads.losses:mean"}, "dataset workloads.losses:mean"),
        ({"optimizer.name": "workloads.losses:mean"}, "is function, not workloads.workload.Optimizer"),
    ],
)
def test_wrong_names_are_one_line(values: dict[str, object], part: str) -> None:
    with pytest.raises(BadInput) as error:
        sweeps.study(**values)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_installed_names_are_listed_without_imports() -> None:
    assert packages.names("model") == []
    registry.check("model", "vgg_11")
    with pytest.raises(BadInput, match="unknown model"):
        registry.check("model", "nothing")
