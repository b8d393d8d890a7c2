"""Commands that a newcomer types, from the TOML files of this folder: what each must print, how it ends, what is left.

A command is one line of bash, run in a folder of its own that is empty but for ``files``:

    run       the line; $STORE is a small finished store, $RELEASE and $MLPERF are the releases, $REPO is the repository
    exit      its exit code
    says      regular expressions, each of which matches a line of the output
    never     regular expressions that match no line of it
    lines     at most so many lines of output
    leaves    patterns of the files that may be left, * over folders too; no other may be
    files     name = text: what the folder holds before
    unset     environment variables that are removed
    hide      programs that are not found on PATH
    readonly  the folder cannot be written to
    columns   it runs in a terminal of this width, and no line is wider
    slow      it takes more than five seconds; those that read a store are slow, too
"""

import fcntl
import fnmatch
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEYS = {
    *("run", "exit", "says", "never", "lines", "leaves", "files", "unset", "hide", "readonly", "columns", "slow"),
}
SLOW = ("STORE", "RELEASE", "MLPERF")
STORES = re.compile(r"\$(\w+)")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TRACEBACK = "Traceback (most recent call last)"
# Two studies of a network and one of a factorization, which take some ten seconds.
STORE = (
    "optimizer=nesterov batch_size=16,64 trials=2 task.budget.steps=20 -m",
    "task=webgraph_synthetic ratings.rows=600 ratings.columns=500 ratings.links=9000 ratings.communities=20 "
    "ratings.heldout_rows=60 als.dim=8 als.epochs=2",
)


def _commands() -> Iterator[Any]:
    for path in sorted(HERE.glob("*.toml")):
        for number, command in enumerate(tomllib.loads(path.read_text())["command"], start=1):
            marks = [pytest.mark.slow] if command.get("slow") or set(SLOW) & set(STORES.findall(command["run"])) else []
            yield pytest.param(command, id=f"{path.stem}-{number}", marks=marks)


COMMANDS = list(_commands())


def environment() -> dict[str, str]:
    """The environment of every command: this interpreter's programs first, and this repository's code."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    releases = {"RELEASE": str(ROOT / "results/published"), "MLPERF": str(ROOT / "results/mlperf")}
    return os.environ | {"PATH": programs, "PYTHONPATH": str(ROOT), "REPO": str(ROOT), **releases}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished store, made once for all processes of this run of tests."""
    folder = tmp_path_factory.getbasetemp().parent / "newcomer"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            for words in STORE:
                command = [sys.executable, "-m", "sweeps", *words.split(), f"store={folder / 'store'}"]
                subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment())
            (folder / "done").touch()
    return folder / "store"


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert set(command) <= KEYS and {"run", "exit"} <= set(command), "see the head of this file"
    folder, around = tmp_path / "here", environment()
    folder.mkdir()
    files = command.get("files", {})
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if "$STORE" in command["run"]:
        around["STORE"] = str(request.getfixturevalue("finished"))
    if command.get("hide"):
        around["PATH"] = _programs(tmp_path / "programs", around["PATH"], command["hide"])
    for name in command.get("unset", ()):
        around.pop(name, None)
    line = ["bash", "-c", command["run"]]
    if command.get("readonly"):
        line = _readonly(folder, line)
    code, output = _run(line, folder, around, command.get("columns"))
    lines = [ESCAPES.sub("", one).rstrip() for one in re.split(r"[\r\n]+", output)]
    lines = [one for one in lines if one]
    assert code == command["exit"], output
    assert TRACEBACK not in output, output
    for pattern in command.get("says", ()):
        assert any(re.search(pattern, one) for one in lines), f"no line matches {pattern!r}:\n{output}"
    for pattern in command.get("never", ()):
        assert not any(re.search(pattern, one) for one in lines), f"a line matches {pattern!r}:\n{output}"
    assert len(lines) <= command.get("lines", len(lines)), output
    if command.get("columns"):
        # The path of this checkout can be of any length, and no path is broken.
        told = [one.replace(str(ROOT), "/checkout") for one in lines]
        pasted = re.compile("next: .*/checkout/")  # a command that is to be pasted stays on one line
        wide = [one for one in told if len(one) > command["columns"] and not pasted.match(one)]
        assert not wide, f"wider than {command['columns']} columns:\n" + "\n".join(wide)
    left = {str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir()} - set(files)
    unexpected = {one for one in left if not any(fnmatch.fnmatch(one, each) for each in command.get("leaves", ()))}
    assert not unexpected, sorted(unexpected)
    for name, text in files.items():
        assert (folder / name).read_text() == text, f"{name} was changed"


def test_every_command_is_there_once() -> None:
    around = ("run", "files", "unset", "hide", "readonly", "columns")
    lines = [str([one.values[0].get(key) for key in around]) for one in COMMANDS]
    assert len(set(lines)) == len(lines) >= 75


def _programs(folder: Path, path: str, hidden: list[str]) -> str:
    """A path of our own programs and of a folder with links to all others that are not ``hidden``."""
    folder.mkdir()
    ours, *places = path.split(os.pathsep)
    for place in places:
        for program in Path(place).glob("*") if place else ():
            link = folder / program.name
            if program.name not in hidden and not link.is_symlink():
                link.symlink_to(program)
    return f"{ours}{os.pathsep}{folder}"


def _readonly(folder: Path, line: list[str]) -> list[str]:
    """The command with its folder mounted read-only; for a user who is not root permissions are enough."""
    if os.geteuid():
        folder.chmod(0o555)
        return line
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0"'
    mounted = ["unshare", "--mount", "bash", "-c", f'{mount} && exec "$@"', str(folder)]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no folder can be made read-only for root here")
    return mounted + line


def _run(line: list[str], folder: Path, around: dict[str, str], columns: int | None) -> tuple[int, str]:
    """The exit code of a command and all that it printed, through a pipe, or through a terminal of this width."""
    if columns is None:
        done = subprocess.run(
            line, cwd=folder, env=around, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return done.returncode, done.stdout.decode()
    around.pop("COLUMNS", None)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    around["TERM"] = "xterm-256color"
    with subprocess.Popen(line, cwd=folder, env=around, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed, on Linux
                break
            if not piece:
                break
            output += piece
    os.close(ours)
    return process.returncode, output.decode()
