"""The recipes of docs/add do what they say: each is followed to the letter in a copy of the code, and asked to run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
CODE = ("analysis", "conf", "harness", "results", "sweeps", "workloads")
REGISTRY = "workloads/registry.py"
ROWS = "workloads/datasets/rows.py"
OPTIONS = "from workloads.models import image_options, text_options\n"
RESIDUAL = OPTIONS.replace("image_options,", "image_options, residual_options,")
STEPS = "_STEPS: dict[int, Callable[[str, pa.Table], pa.Table]] = {4: _from_4}\n"
RUN = "        return mlperf_rcp.run(options.path, options.store, report=report)\n"
HERE = "    # here\n"
PLAN = "from results.plans.plan import HasKind, Plan\n"
# Blocks of a page that are no new file, in their order: which file they go into, and behind what.
INSERTED = {
    "data-set": [(ROWS, "DATASETS: dict[str, Dataset] = {\n")],
    "model": [(REGISTRY, "MODELS: dict[str, Callable[..., Model]] = {\n")],
    "axes": [(REGISTRY, "MODELS: dict[str, Callable[..., Model]] = {\n")],
    "optimizer": [
        ("workloads/optimizers.py", "TUNED_DECAY = tuple(NO_DECAY)\n"),
        (REGISTRY, "OPTIMIZERS: dict[str, Optimizer] = {\n"),
    ],
    "sweep": [],
    "figure": [("analysis/kind_views.py", "    source=BATCH,\n    figures={\n")],
    "column": [
        ("results/plans/columns.csv", "studies,physical_cores,int32,physical cores that it could use\n"),
        ("results/plans/schema.py", "from results.plans.study import METRICS\n"),
        ("results/storage/migrations.py", HERE),
        ("harness/processes/provenance.py", '        "physical_cores": len(processors.physical_cores()),\n'),
    ],
    "source": [("results/__main__.py", RUN)],
    "kind": [
        ("results/plans/kinds.py", "KINDS = {\n"),
        ("harness/kinds.py", "        fused.discard(study.dim)\n"),
        ("harness/kinds.py", "RUNNERS = {\n"),
        ("sweeps/kind_configs.py", "READERS = {\n"),
        ("analysis/kind_views.py", "PRESENTATIONS = {\n"),
    ],
}
# What the text of a page asks for beside its blocks: of a file, what becomes what.
REPLACED = {
    "data-set": [
        (ROWS, "noise, streamed_records,", "noise, spirals, streamed_records,"),
        (ROWS, "import Dataset, Names\n", "import Dataset, Names, content\n"),
    ],
    "model": [(REGISTRY, OPTIONS, RESIDUAL)],
    "axes": [(REGISTRY, OPTIONS, RESIDUAL)],
    "column": [
        ("results/plans/schema.py", "SCHEMA_VERSION = 5\n", ""),
        ("results/storage/migrations.py", STEPS, HERE),
    ],
    "source": [
        ("results/__main__.py", '"algoperf-logs")\n', '"algoperf-logs", "tracker")\n'),
        ("results/__main__.py", "mlperf_rcp, shallue2018\n", "mlperf_rcp, shallue2018, tracker\n"),
    ],
    "kind": [
        (
            "results/plans/kinds.py",
            "\nfrom results.bad_input import",
            "\nimport pyarrow as pa\n\nfrom results.bad_input import",
        ),
        ("results/plans/kinds.py", PLAN, f"{PLAN}from results.plans.power_method import PowerMethod\n"),
        (
            "sweeps/kind_configs.py",
            "from sweeps import schema\n",
            "from sweeps import power_method, schema\n",
        ),
    ],
}
SMALL = ["trials=2", "+task.budget.steps=40"]
OF_NO_NETWORK = {"kind"}


@pytest.mark.slow
@pytest.mark.parametrize("name", INSERTED)
def test_a_recipe_does_what_it_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "add" / f"{name}.md").read_text()
    for folder in CODE:
        without = shutil.ignore_patterns("__pycache__", "local", "published", "mlperf", "notebooks")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=without)
    written = follow(name, page, tmp_path)
    if name == "figure":
        run(tmp_path, "sweeps", ["store=results/spirals", "pruning=off", *SMALL])
    lint(tmp_path, written)
    for command in re.findall(r"^    python -m (.+)$", page.partition("Try it\n")[2].replace("\\\n", " "), re.M):
        program, *words = shlex.split(command)
        if program != "pytest":
            run(tmp_path, program, small(words) if program == "sweeps" and name not in OF_NO_NETWORK else words)
    if name == "figure":
        (drawn,) = (tmp_path / "figures").glob("diverged*.png")
        with Image.open(drawn) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 20  # lines, points and letters, not a blank page


def follow(name: str, page: str, copy: Path) -> list[Path]:
    """Does to a copy of the code what a page says, and lists the files it adds, from the root of the copy."""
    written = []
    for file, line, instead in REPLACED.get(name, []):
        text = (copy / file).read_text()
        assert text.count(line) == 1, line
        (copy / file).write_text(text.replace(line, instead))
    places = iter(INSERTED[name])
    for before, language, block in re.findall(r"((?:[^\n]+\n)+)\n```(\w+)\n(.*?)```", page, re.S):
        named = [path for path in re.findall(r"`([\w/.-]+\.(?:py|yaml))`", before) if not (copy / path).exists()]
        if block.startswith("dataset,"):
            (copy / "runs.csv").write_text(block)
        elif language == "console":  # what a command prints
            continue
        elif named:
            (copy / named[-1]).parent.mkdir(exist_ok=True)
            (copy / named[-1]).write_text(block)
            written.append(Path(named[-1]))
        else:
            file, line = next(places)
            text = (copy / file).read_text()
            assert text.count(line) == 1, line
            (copy / file).write_text(text.replace(line, line + block))
    assert next(places, None) is None
    return written


def lint(copy: Path, written: list[Path]) -> None:
    """Checks the code of a copy as `make check` does ours: files of the page as they are, others once formatted."""
    named = [str(path) for path in written if path.suffix == ".py"]
    others = [["check", "--fix", "--select=I", "--quiet", *CODE], ["format", "--quiet", *CODE], ["check", *CODE]]
    for words in [*([["check", *named], ["format", "--check", *named]] if named else []), *others]:
        command = [sys.executable, "-m", "ruff", *words, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def small(words: list[str]) -> list[str]:
    """A sweep of as many axes, with hardly anything to do."""
    sizes = [re.sub(r"^batch_size=\d+,.*", "batch_size=16,64", word) for word in words]
    return [*sizes, *SMALL, *(["batch_size=16,64"] if any("experiment" in word for word in words) else [])]


def run(copy: Path, program: str, words: list[str]) -> None:
    """Runs a command of the copy, which has to succeed."""
    command = [sys.executable, "-m", program, *words]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{program} {' '.join(words)}\n{done.stdout}\n{done.stderr}"
