"""How commands end, and that nothing in a store steers the terminal they print to or is a traceback."""

import csv
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import __main__ as analysis_cli
from results import __main__ as results_cli, durable, exit_codes, printing, store
from results.plans.batch_study import BatchStudy
from results.release import release
from results.storage.parts import commit_file, plan_file
from sweeps import __main__ as sweeps_cli, manifest as manifest_cli, plan as plan_cli, status
from workloads import prepare

from .analysis.conftest import Ran, plan, publish

ROOT = Path(__file__).parents[1]
STEERS = "\x1b]0;mine\x07\x1b[2J\u202e"  # names a window, clears it, and turns the text around
OPENED: dict[str, Callable[[Path, Path], int]] = {
    "status": lambda folder, other: status.main([f"store={folder}"]),
    "merge": lambda folder, other: results_cli.main(["merge", str(folder), "--store", str(other)]),
    "verify": lambda folder, other: results_cli.main(["verify", "--store", str(folder)]),
    "steps": lambda folder, other: analysis_cli.main(["steps", "--store", str(folder)]),
    "csv": lambda folder, other: analysis_cli.main(["steps", "--store", str(folder), "--csv"]),
    "fit": lambda folder, other: analysis_cli.main(["fit", "--store", str(folder)]),
}
MISTAKEN: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "analysis": (analysis_cli.main, ["fit", "--store", "nosuch://store"]),
    "results": (results_cli.main, ["verify", "--store", "nosuch://store"]),
    "sweeps": (sweeps_cli.main, ["nosuch=1"]),
    "sweeps.plan": (plan_cli.main, ["nosuch=1"]),
    "sweeps.manifest": (manifest_cli.main, ["nosuch=1", "store=gs://b/f", "topology=v6e:4x4", "image=i"]),
    "sweeps.status": (status.main, ["nosuch=1"]),
    "workloads.prepare": (prepare.main, ["mnist", "--nosuch"]),
}
# Runs a command that is interrupted when it begins to import the first module of those that take long.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "upath", "hydra", "jax"):
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with one small study."""
    publish(tmp_path / "store", plan(trials=2), {0: Ran([(5, 0.2), (9, 0.1)]), 1: Ran([(5, 0.3), (9, 0.2)])})
    return tmp_path / "store"


@pytest.fixture
def one_of_two_users() -> Iterator[Path]:
    """A folder that this process cannot read: as root, which can read any, it is somebody else until the end."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    if os.getuid() == 0:
        os.seteuid(0)
    shutil.rmtree(folder)


def resealed(folder: Path, **changes: Any) -> None:
    """Writes the newest commit record of the only study anew, as somebody with an editor and sha256sum would."""
    (commit,) = store.catalogue(folder)
    path = folder / commit.name / commit_file(commit.number)
    record = durable.read_sealed(path) | changes
    path.unlink()
    durable.create(path, durable.seal(record))


def is_one_line(code: int, err: str, *words: str) -> None:
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith("error: ")
    for word in words:
        assert word in err


@pytest.mark.parametrize("command", OPENED)
def test_no_name_in_a_store_steers_the_terminal(
    tmp_path: Path, folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile: BatchStudy = plan(model_options={"widths": STEERS}, batch_size=8)
    publish(folder, hostile, {i: Ran([(5, 0.2), (9, 0.1)]) for i in range(4)})
    waiting = folder / f"waiting{STEERS}"
    waiting.mkdir()
    durable.create(waiting / plan_file(4), durable.seal({"plan": hostile.plan(), "trials": 4}))
    OPENED[command](folder, tmp_path / f"other{STEERS}")
    out, err = capsys.readouterr()
    told = out + err
    assert "x1b" in told
    assert [c for c in told if not c.isprintable() and c != "\n"] == []


def test_cells_of_csv_are_one_line_and_of_one_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(folder, plan(model_options={"widths": "a\nb,c"}, batch_size=8), {0: Ran([(5, 0.2), (9, 0.1)])})
    assert OPENED["csv"](folder, folder) == 0
    out = capsys.readouterr().out
    rows = list(csv.reader(io.StringIO(out)))
    assert len(rows) == out.count("\n") == 3
    assert "fully_connected_a\\nb,c" in rows[1] + rows[2]


def test_no_cell_of_csv_is_a_formula(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["=1+1", "+1+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "-1.5", "+1e-3", "-inf", "a=b", ""]

    monkeypatch.setattr("results.printing._output.form", "csv")
    printing.show(["text", "number"], [(text, -0.5) for text in texts], str)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    assert [text for text, _ in rows] == [f"'{text}" for text in texts[:4]] + texts[4:]
    assert {number for _, number in rows} == {"-0.5"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_that_is_not_utf_8_takes_every_text(encoding: str) -> None:
    program = "from results import cli, printing\n"
    program += "raise SystemExit(cli.guarded(lambda words: printing.answer('a ≤ b…'))([]))"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", rb"a \u2264 b\u2026" + b"\n")


@pytest.mark.parametrize("command", ["merge", "steps"])
@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
def test_what_is_no_number_of_json_is_one_line(
    tmp_path: Path, folder: Path, command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "release"
    release.export(folder, out, lambda line: None)
    path = out / "manifest.json"
    record = durable.read_sealed(path)
    record["studies"][0]["number"] = float(number)
    path.write_bytes(durable.seal(record))
    assert number in path.read_text()
    is_one_line(OPENED[command](out, tmp_path / "other"), capsys.readouterr().err, "manifest.json")


@pytest.mark.parametrize("command", ["merge", "status"])
@pytest.mark.parametrize("table", ["trials", "measurements"])
def test_a_column_whose_name_is_no_text_is_one_line(
    tmp_path: Path, folder: Path, command: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (command, table) == ("status", "measurements"):
        pytest.skip("status reads no measurements")
    (commit,) = store.catalogue(folder)
    file = commit.files[table]
    data = Path(file.path).read_bytes()
    name = {"trials": b"learning_rate", "measurements": b"test_error"}[table]
    broken = data.replace(name, b"\xff" * len(name))
    assert broken != data
    Path(file.path).write_bytes(broken)
    files = durable.read_sealed(folder / commit.name / commit_file(commit.number))["files"]
    files[table]["sha256"] = hashlib.sha256(broken).hexdigest()
    resealed(folder, files=files)
    if command == "status":  # which reads the table of an unfinished study
        store.ask(folder, plan(trials=3))
        assert OPENED[command](folder, tmp_path / "other") == 1
        (line,) = (line for line in capsys.readouterr().err.splitlines() if file.path.name in line)
        assert line.startswith(f"{commit.name}: ")
        return
    is_one_line(OPENED[command](folder, tmp_path / "other"), capsys.readouterr().err, file.path.name)


@pytest.mark.parametrize("command", ["status", "steps", "merge"])
def test_a_folder_that_cannot_be_read_is_one_line(
    one_of_two_users: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = one_of_two_users / "store"
    publish(folder, plan(trials=1), {0: Ran([(5, 0.2), (9, 0.1)])})
    (name,) = store.names(folder)
    (folder / name).chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    is_one_line(OPENED[command](folder, one_of_two_users / "other"), capsys.readouterr().err, name, "permission")


@pytest.mark.parametrize("name", MISTAKEN)
def test_words_that_cannot_be_are_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main, words = MISTAKEN[name]
    is_one_line(main(words), capsys.readouterr().err, "nosuch")


@pytest.mark.parametrize("name", MISTAKEN)
def test_an_interrupt_is_one_line_from_the_first_import_on(name: str, tmp_path: Path) -> None:
    words = {
        "analysis": ["epochs", "--store", "."],
        "results": ["verify", "--store", "."],
        "sweeps.status": ["store=."],
    }
    command = [sys.executable, "-c", INTERRUPTED, name, *words.get(name, ["digits"])]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted. Stored results are kept; run the same sweep to continue.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("results", "verify", "--store"),
        ("sweeps.status", "store="),
        ("sweeps.plan", "+experiment=quickstart", "-m", "store="),
        ("analysis", "steps", "--store"),
        ("workloads.prepare", "digits", "--data-dir"),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_seen_enough(folder: Path, words: tuple[str, ...]) -> None:
    *words_before, last = words
    placed = [f"{last}{folder}"] if last.endswith("=") else [last, str(folder)]
    command = [sys.executable, "-m", *words_before, *placed]
    reading, writing = os.pipe()
    os.close(reading)  # as head does once it has its lines
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(writing)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("counting ")]  # not cached
    assert (done.returncode, errors) == (exit_codes.UNREAD, [])


SAVING = """
import os, signal, sys, time
from results import cli

class Late:
    def __del__(self):  # as Python ends, which sets its handlers of signals back
        os.kill(os.getpid(), signal.SIGTERM)

late = Late()

def main(argv):
    try:
        print("training", flush=True)
        time.sleep(60)
    except cli.Terminated as terminated:
        print("saving", flush=True)
        time.sleep(0.5)
        terminated.saved = True
        raise

sys.exit(cli.guarded(main)(sys.argv[1:]))
"""


def test_further_sigterms_do_not_interrupt_saving() -> None:
    with subprocess.Popen([sys.executable, "-c", SAVING], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in ("training\n", "saving\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == exit_codes.PREEMPTED
