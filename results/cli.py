"""Parts that all commands share: exit codes, argument parsing, printing without terminal escapes from files.

Imports next to nothing, so that a command is guarded before its slow imports.
"""

import argparse
import collections
import contextlib
import difflib
import functools
import importlib
import io
import math
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, ParamSpec

from results import exit_codes
from results.bad_input import BadInput, nearest, printable

P = ParamSpec("P")

_OURS = ("analysis", "conf", "harness", "results", "sweeps", "workloads")
_INSTALLED = "in a checkout make quickstart installs everything into .venv; elsewhere pip install scaling-limits does"

_names: dict[str, str] = {}  # of commands, in place of those that texts have; see ``rename``


class _Output:
    """How results are printed: text, csv or json; whether text keeps its width on a terminal; what the user typed."""

    form = "text"
    wide = False
    typed: Sequence[str] = ()


_output = _Output()
MOST_COLUMNS = 120  # of help
OUTPUT_FLAGS = ("--csv", "--json", "--wide")


class Terminated(BaseException):
    """SIGTERM as an exception, like KeyboardInterrupt; ``saved`` if there is anything under way to go on with."""

    saved = False


def guarded(main: Callable[P, int | None]) -> Callable[P, int]:
    """Makes the main function of a command return its exit code, whatever happens in it.

    Users never see a traceback for an error of theirs: invalid input, or a disk or a network that failed, is one line.
    The codes are those of ``results.exit_codes``.
    """

    @functools.wraps(main)
    def wrapped(*words: P.args, **named: P.kwargs) -> int:
        own = words[0] if words and isinstance(words[0], list) else sys.argv[1:]
        _output.typed = [str(word) for word in own]
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")  # of what the encoding of this stream lacks
        try:
            with _terminable():
                try:
                    return _exit_code(lambda: main(*words, **named))
                finally:
                    sys.stdout.flush()
        except BrokenPipeError:  # Python's own flush at exit must not fail again
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return exit_codes.UNREAD

    return wrapped


def run(module: str, words: Sequence[str] | None = None) -> NoReturn:
    """Ends the process with the exit code of a module's ``main``; importing the module is guarded, too.

    Args:
      module: of the command.
      words: that ``main`` gets; None: those of this process.
    """

    @guarded
    def main() -> int:
        code: int = importlib.import_module(module).main(sys.argv[1:] if words is None else [*words])
        return code

    sys.exit(main())


def rename(names: Mapping[str, str]) -> None:
    """Has everything that is printed call commands by other names, such as `scaling-limits sweep`."""
    _names.update(names)


def renamed(text: str) -> str:
    """A text with the names that ``rename`` gave."""
    if not _names:
        return text
    longest_first = sorted(_names, key=len, reverse=True)
    return re.sub(rf"({'|'.join(map(re.escape, longest_first))})(?![\w.])", lambda found: _names[found[1]], text)


def as_pairs(words: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """Words of a command that takes KEY=VALUE, with those of the form --KEY VALUE or --KEY=VALUE written so, too.

    Args:
      words: of its command line.
      flags: options without a value, such as --multirun; left as they are.

    Raises:
      BadInput: an option without its value, unless it is like one of the flags.
    """
    left, pairs = collections.deque(words), []
    while left:
        word = left.popleft()
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or word in flags:
            pairs.append(word)
            continue
        if not equals and (not left or left[0].startswith("-")):
            if difflib.get_close_matches(word, flags, cutoff=0.7):
                pairs.append(word)  # for the command to refuse
                continue
            others = f"; options without one: {', '.join(flags)}" if flags else ""
            raise BadInput(f"{word} has no value; write {word} VALUE or {key}=VALUE{others}")
        pairs.append(f"{key.replace('-', '_')}={value if equals else left.popleft()}")
    return pairs


class _Help(argparse.HelpFormatter):
    """Help whose descriptions are in paragraphs, lists and examples within the width of the terminal."""

    def __init__(self, prog: str):
        super().__init__(prog, width=help_width() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return as_help(text.strip("\n"), width)


class CommandParser(argparse.ArgumentParser):
    """An argument parser that takes KEY=VALUE for --KEY VALUE, and raises BadInput where argparse prints its usage."""

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **{"formatter_class": _Help, **named})
        self.prog = renamed(self.prog)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of argparse."""
        words, takes_next = [], False
        for word in sys.argv[1:] if args is None else args:
            key, equals, _ = word.partition("=")
            option = f"--{key.replace('_', '-')}"
            is_pair = equals and not takes_next and option in self._option_string_actions
            words.append(f"{option}{word[len(key) :]}" if is_pair else word)
            named = self._option_string_actions.get(word)
            takes_next = named is not None and named.nargs is None
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        """As of argparse, with commands by their names."""
        return renamed(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raises BadInput with what is wrong."""
        raise BadInput(f"{message}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            what = "command" if is_command else "".join(action.option_strings[-1:]) or action.dest
            raise BadInput(f"unknown {what} {value!r}; {nearest(value, action.choices)}")


def location(text: str) -> Any:
    """The type of an argument of a ``CommandParser`` that ``durable.location`` understands."""
    from results import durable

    try:
        return durable.location(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def path(text: str) -> Path:
    """The type of an argument of a ``CommandParser`` that is a local path; ~ is the home folder."""
    from results import durable

    try:
        return durable.local(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


path.__name__ = "local path"  # as argparse calls it


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --csv, --json and --wide, the words of ``set_output``."""
    parser.add_argument("--csv", action="store_true", help="write CSV")
    parser.add_argument("--json", action="store_true", help="write JSON: a list of objects, empty cells null")
    parser.add_argument("--wide", action="store_true", help="whole tables on a terminal, however wide; as in a pipe")


def quoted(folder: Any) -> str:
    """A path or URL as a word of a command line, in quotes if a shell needs them."""
    return shlex.quote(str(folder))


def answer(lines: str) -> None:
    """Prints the result of a command; on a terminal long lines of prose are wrapped."""
    columns = width(sys.stdout)
    print("\n".join(_wrapped(printable(line), columns) for line in renamed(lines).split("\n")), flush=True)


def answer_help(text: str) -> None:
    """Prints a text of --help within the width of the terminal, or of 80 columns where there is none."""
    print("\n".join(map(printable, as_help(text, help_width()).split("\n"))), flush=True)


def help_width() -> int:
    """Columns of --help."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def as_help(text: str, columns: int) -> str:
    """A text of --help within so many columns, with commands by their names."""
    from results import prose

    return prose.reflowed(renamed(text), columns)


def say(line: str) -> None:
    """Prints a line to the user that is not part of the result; on a terminal it is wrapped, unless it is an error."""
    columns = None if line.startswith("error: ") else width(sys.stderr)
    print(_wrapped(printable(renamed(line)), columns), file=sys.stderr, flush=True)


def _wrapped(line: str, columns: int | None) -> str:
    """A line within so many columns; words, commands and paths stay whole, and so does an example to be copied."""
    if columns is None or len(line) <= columns:
        return line
    from results import prose

    if prose.is_copied(line):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return "\n".join(prose.wrap(line.strip(), columns, indent, f"{indent}  ", _typed_paths()))


def _typed_paths() -> set[str]:
    """What was typed that may be a path with spaces: alone, as --KEY VALUE, KEY=VALUE or --KEY=VALUE."""
    around = (os.getcwd(), os.environ.get("SCALING_LIMITS_CACHE", ""), "~")
    typed = [each for word in _output.typed for each in (word, word.partition("=")[2])]
    expanded = [os.path.expanduser(each) for each in (*typed, *around)]
    return {path for each in expanded for path in (each, str(Path(each))) if " " in path}


def report_some(lines: Sequence[str], report: Callable[[str], None], most: int = 10) -> None:
    """Reports the first of many lines, and how many more there are."""
    for line in lines[:most]:
        report(line)
    if len(lines) > most:
        report(f"and {len(lines) - most} more")


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: Iterable[str] | None = None,
    *,
    prose: Iterable[str] = (),
    least: Sequence[str] = (),
    kept: Iterable[str] = (),
    foot: Iterable[Sequence[Any]] = (),
) -> str:
    """The lines of a table, with columns two spaces apart, as wide as standard output is.

    Args:
      header: names of the columns.
      rows: their cells; ints are printed with thousands separators.
      left: columns that are aligned to the left, the others to the right; None: all but those of ints.
      prose: columns whose cells are wrapped rather than shortened.
      least: columns in the order in which they are left out where nothing else helps.
      kept: columns that are never left out, nor put into words above the table.
      foot: further rows at the end, such as totals.
    """
    from results import text_table

    cells, last = list(rows), list(foot)
    if left is None:
        left = [name for i, name in enumerate(header) if not all(isinstance(row[i], int) for row in (*cells, *last))]
    lines = [[f"{cell:,}" if isinstance(cell, int) else printable(cell) for cell in row] for row in (*cells, *last)]
    columns = [
        text_table.Column(
            printable(name), tuple(line[i] for line in lines), name in set(left), name in set(prose), name in set(kept)
        )
        for i, name in enumerate(header)
    ]
    return text_table.render(columns, len(last), least, width(sys.stdout))


def width(stream: Any) -> int | None:
    """Columns that a stream has room for; None: as many as there are, in a pipe, a file, or with --wide."""
    if _output.wide or not stream.isatty():
        return None
    return shutil.get_terminal_size().columns


def set_output(*, csv: bool = False, json: bool = False, wide: bool = False) -> None:
    """Chooses how ``show`` prints a table, and whether texts are as wide as they are; every command does so.

    Raises:
      BadInput: CSV and JSON at once.
    """
    if csv and json:
        raise BadInput("--csv and --json are two forms of one table; give one of them")
    _output.form, _output.wide = "csv" if csv else "json" if json else "text", wide


def is_data() -> bool:
    """Whether standard output is to be CSV or JSON, and nothing else."""
    return _output.form != "text"


def is_json() -> bool:
    """Whether that is JSON."""
    return _output.form == "json"


def show(columns: Sequence[str], rows: Iterable[Sequence[Any]], as_text: Callable[[], str]) -> None:
    """Prints what a command answers: its table as CSV or JSON, or what a reader is shown of it.

    Args:
      columns: names of the columns.
      rows: their values; None, NaN and pandas.NA are empty in CSV and null in JSON, as infinity is in JSON.
      as_text: gives the text for a reader.
    """
    if not is_data():
        answer(as_text())
        return
    values = [[_plain(value) for value in row] for row in rows]
    if _output.form == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(v) if isinstance(v, str) else v for v in row] for row in values)
    else:
        show_json([dict(zip(columns, row, strict=True)) for row in values])


def _cell(text: str) -> str:
    """A text as a cell of CSV, which no spreadsheet takes for a formula; one that is a number stays one."""
    text = printable(text)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return text


def show_json(value: Any) -> None:
    """Prints a value as JSON, an object of a list a line."""
    import json

    def dump(one: Any) -> str:
        return json.dumps(one, ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf"), allow_nan=False)

    def finite(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: finite(each) for name, each in one.items()}
        return None if isinstance(one, float) and not math.isfinite(one) else one

    if isinstance(value, list):
        print("[" + ",".join("\n" + dump(finite(one)) for one in value) + "\n]", flush=True)
    else:
        print(dump(value), flush=True)


def _plain(value: Any) -> Any:
    """A value of Python; None for one that is missing."""
    if value is None or type(value).__name__ == "NAType":
        return None
    if hasattr(value, "dtype"):  # a scalar of NumPy
        value = float(str(value)) if value.dtype.kind == "f" else value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def numbered(name: str) -> tuple[tuple[int, int, str], ...]:
    """The key that sorts names by the numbers in them: b1, b2, b1024. Hexadecimal hashes at the end stay texts."""
    base, dash, tail = name.rpartition("-")
    if not dash or not re.fullmatch(r"[0-9a-f]{8,16}", tail):
        base, tail = name, ""
    words = [word for word in re.split(r"(\d+)", base) if word]
    return (*((0, int(word), word) if word.isdecimal() else (1, 0, word) for word in words), (-1, 0, tail))


def _exit_code(main: Callable[[], int | None]) -> int:
    """The exit code of a command, once its error, if it raised one, is printed."""
    try:
        return main() or 0
    except SystemExit as exiting:  # argparse, after --help
        return int(exiting.code or 0)
    except BadInput as error:
        say(f"error: {error}")
        return exit_codes.INVALID
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if error.name is None or package in _OURS:
            raise
        say(f"error: the package {package} is not installed for {sys.executable}; {_INSTALLED}")
        return exit_codes.INVALID
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"error: {_reason(error)}")
        return exit_codes.INVALID
    except KeyboardInterrupt:
        say("interrupted; stored results are kept; the same sweep continues from there")
        return exit_codes.INTERRUPTED
    except Terminated as terminated:
        say("terminated; stored results are kept; the same sweep continues from there")
        return exit_codes.PREEMPTED if terminated.saved else exit_codes.TERMINATED


def _reason(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename} cannot be read or written ({error.strerror}); check its permissions or its disk"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turns the first SIGTERM into an exception, so that the command can end in an orderly way; others are ignored.

    SLURM signals all processes of a job, and the parent of this one does so again: that must not interrupt the saving.
    """

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(
            signal.SIGTERM, lambda number, frame: None
        )  # unlike SIG_IGN, processes begun later do not have it
        raise Terminated

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        if ours:  # after a SIGTERM the process exits, and Python sets all handlers back but this
            is_first = signal.getsignal(signal.SIGTERM) is terminated
            signal.signal(signal.SIGTERM, signal.SIG_DFL if is_first else signal.SIG_IGN)
