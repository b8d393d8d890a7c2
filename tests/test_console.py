"""The program scaling-limits: every command under one name, as installed from a wheel and from any folder."""

import argparse
import bz2
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import scaling_limits
from analysis import __main__ as analysis_cli, arguments, columns
from results import __main__ as results_cli, cli
from results.cli import CommandParser

ROOT = Path(__file__).parents[1]
# Files of a user's that have the names of ours, or of what ours import; each leaves a mark when it is run.
TAKEN = ("analysis", "results", "sweeps", "workloads", "harness", "conf", "scaling_limits", "json", "signal", "pickle")
HOSTILE = 'raise SystemExit(open(__file__ + ".ran", "w").write("ran"))\n'
MOST_LINES_OF_HELP = {"sweep": 120, "payoff": 80, "steps": 80, "fit": 80, "manifest": 80}  # others: 60
STUDY = "optimizer=sgd batch_size=16,64 trials=2 task.budget.steps=20 task.model.widths=[8]"


def program(*words: str, **more: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scaling_limits.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def subcommands(parser: argparse.ArgumentParser) -> set[str]:
    """The commands of a parser."""
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return set(action.choices)


def test_it_has_every_command_once() -> None:
    by_module: dict[str, set[str]] = {}
    for name, command in scaling_limits.COMMANDS.items():
        assert command.words in ((), (name,))
        by_module.setdefault(command.module, set()).update(command.words)
    modules = {f"sweeps.{name}" for name in ("__main__", "manifest", "plan", "status")}
    modules |= {"workloads.prepare", "harness.costs.probe"}
    assert by_module.keys() == modules | {"analysis.__main__", "results.__main__"}
    assert by_module["analysis.__main__"] == subcommands(arguments.parser())
    assert by_module["results.__main__"] == subcommands(results_cli.parser())


def test_its_help_has_a_line_for_every_command() -> None:
    for words in ([], ["--help"], ["help"]):
        done = program(*words)
        assert (done.returncode, done.stderr) == (0, "")
        for name, command in scaling_limits.COMMANDS.items():
            assert f"\n  {name} " in done.stdout and f" {command.purpose}\n" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 120
    assert program("--version").stdout.startswith("scaling-limits 0.")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("swep", "error: unknown command 'swep'; did you mean 'sweep'?"),
        (
            "task=digits_fc",
            "error: task=digits_fc must follow a command, as in `scaling-limits sweep task=digits_fc`",
        ),
        ("fit --store nowhere", "error: no store at nowhere. Create one with `scaling-limits sweep store=nowhere`"),
        ("status store=a(1)", "error: no store at a(1). Create one with `scaling-limits sweep store='a(1)'`"),
        ("fit", "error: one of the arguments --store --points is required. See `scaling-limits fit --help`."),
        ("sweep --batch-size", "error: --batch-size has no value. Write --batch-size VALUE or batch-size=VALUE. "),
        (
            "verify --store results/published",
            "error: no folder results/published. The repository ships it.",
        ),
    ],
)
def test_a_mistake_is_one_line(words: str, line: str, tmp_path: Path) -> None:
    done = program(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(line)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", scaling_limits.COMMANDS)
def test_help_calls_commands_by_their_names_here(name: str) -> None:
    done = program(name, "--help", env=os.environ | {"COLUMNS": "80"})
    assert done.returncode == 0
    assert f"scaling-limits {name}" in done.stdout
    assert "python -m" not in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= MOST_LINES_OF_HELP.get(name, 60)
    examples = [number for number, line in enumerate(lines) if line.startswith(f"  scaling-limits {name} ")]
    assert examples or name == "probe"
    if "options:" in lines and examples:
        assert examples[-1] < lines.index("options:")
    assert not any(line.startswith("columns of ") for line in lines)


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_columns_are_listed_by_an_option_of_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert analysis_cli.main([name, "--help"]) == 0
    has_columns = "--help-columns" in capsys.readouterr().out
    assert has_columns == (name not in ("figures", "report", "all"))
    if has_columns:
        assert analysis_cli.main([name, "--help-columns"]) == 0
        out = capsys.readouterr().out
        listed = {"fit": columns.FITS, "payoff": columns.PAYOFF, "compare": columns.COMPARE, "steps": columns.STEPS}
        assert all(f"\n  {column} " in out for column in listed.get(name, ()))
        assert out.count("columns of --") >= 1


def test_words_of_both_forms_mean_the_same() -> None:
    words = ["-m", "--store", "a b", "--batch-size=1,16", "optimizer=sgd", "--multirun"]
    assert cli.as_pairs(words, ("-m", "--multirun")) == [
        "-m",
        "store=a b",
        "batch_size=1,16",
        "optimizer=sgd",
        "--multirun",
    ]
    assert cli.as_pairs(["--multirum", "-m"], ("-m", "--multirun")) == ["--multirum", "-m"]
    for parser, one, other in (
        (arguments.parser(), ["fit", "--store", "s", "--best-of", "8,16"], ["fit", "store=s", "best_of=8,16"]),
        (results_cli.parser(), ["merge", "a=b", "--store", "s"], ["merge", "store=s", "a=b"]),
        (
            arguments.parser(),
            ["figures", "--store", "s", "--out", "o", "--kind", "steps", "--where", "rule=x"],
            ["figures", "store=s", "out=o", "kind=steps", "--where", "rule=x"],
        ),
    ):
        assert parser.parse_args(one) == parser.parse_args(other)


def test_a_parser_without_such_an_option_takes_the_word_as_it_is() -> None:
    parser = CommandParser()
    parser.add_argument("word")
    assert parser.parse_args(["store=s"]).word == "store=s"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program scaling-limits of an environment in which the wheel of this checkout is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    source = folder / "source"
    left_out = shutil.ignore_patterns(".*", "build", "*.egg-info", "published", "mlperf", "local", "tests", "docs")
    shutil.copytree(ROOT, source, ignore=left_out, symlinks=True)
    build = [uv, "build", "--quiet", "--wheel", "--offline", "--python", sys.executable, "-o", str(folder), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if "offline" in done.stderr or "network" in done.stderr:
        pytest.skip("setuptools is not in the cache of uv")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True)
    # What we depend on, without the .pth files there, one of which leads to a checkout.
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin" / "scaling-limits"


@pytest.mark.slow
def test_installed_it_runs_nothing_of_the_working_folder(installed: Path, tmp_path: Path) -> None:
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    for name in ("conf", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(HOSTILE)
    (tmp_path / "conf" / "config.yaml").write_text("mine: 1\n")
    (tmp_path / "conf" / "optimizer").mkdir()
    (tmp_path / "conf" / "optimizer" / "mine.yaml").write_text("name: sgd\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}

    def run(line: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(installed), *line.split()],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment | {"SCALING_LIMITS_CACHE": str(tmp_path / "cache")},
        )
        assert done.returncode == code, done.stderr
        assert not list(tmp_path.rglob("*.ran")), line
        return done.stdout + done.stderr

    assert "unknown optimizer 'mine'" in run("sweep optimizer=mine", code=2)
    assert "4 trials to run" in run(f"plan {STUDY} --store mine -m")
    assert "next: scaling-limits steps --store mine" in run(f"sweep {STUDY} --store mine -m")
    assert "nothing to train" in run(f"sweep {STUDY} store=mine -m")
    assert run("status store=mine").count("done") == 2
    for line in (
        "steps --store mine --csv",
        "fit store=mine",
        "figures --list",
        "figures --store mine --out drawn --name steps_to_target",
        "report store=mine out=mine.html",
        "export --store mine --out released",
        "verify --store released",
        "merge released --store joined",
        "compare mine joined",
        "prepare digits",
    ):
        run(line)
    assert (tmp_path / "mine.html").stat().st_size > 100_000
    (tmp_path / "empty.tar.bz2").write_bytes(bz2.compress(b"\0" * 10240))  # decoded by another process of Python
    assert "holds no study" in run("import shallue2018 empty.tar.bz2 --store other --any-checksum", code=1)
