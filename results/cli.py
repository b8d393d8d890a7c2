"""Error handling, options and exit codes of all commands.

This module imports little, so that errors during the slow imports of commands are handled too.
"""

import argparse
import collections
import contextlib
import difflib
import functools
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, ParamSpec

from results import exit_codes
from results.bad_input import BadInput, is_remote, nearest
from results.printing import as_help, help_width, renamed, say, set_typed

P = ParamSpec("P")

_OURS = ("analysis", "conf", "harness", "results", "sweeps", "workloads")
_INSTALLED = "In a checkout, run `make quickstart`. Elsewhere, run `pip install scaling-limits`."
OUTPUT_FLAGS = ("--csv", "--json", "--wide")
EXAMPLE = "  python -m "  # starts a line with an example in a help text


class Terminated(BaseException):
    """SIGTERM as an exception, like KeyboardInterrupt.

    Attributes:
      saved: whether the running trial can be resumed.
      advanced: whether this command took a training step.
    """

    saved = False
    advanced = True

    @property
    def code(self) -> int:
        """The exit code of the command."""
        if not self.saved:
            return exit_codes.TERMINATED
        return exit_codes.PREEMPTED if self.advanced else exit_codes.NO_PROGRESS


def guarded(main: Callable[P, int | None]) -> Callable[P, int]:
    """Wraps the main function of a command so that it always returns an exit code.

    Expected errors, such as invalid input or a failing disk or network, print one line and never a traceback. Exit
    codes are listed in ``results.exit_codes``.
    """

    @functools.wraps(main)
    def wrapped(*words: P.args, **named: P.kwargs) -> int:
        argv = words[0] if words and isinstance(words[0], list) else sys.argv[1:]
        set_typed(argv)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")  # for characters missing from its encoding
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
    """Runs a module's ``main`` and exits with its code. Errors while importing the module are handled too.

    Args:
      module: module of the command.
      words: arguments of ``main``. The default is the arguments of this process.
    """

    @guarded
    def main() -> int:
        return importlib.import_module(module).main(sys.argv[1:] if words is None else [*words])

    sys.exit(main())


def as_pairs(words: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """Rewrites the options --KEY VALUE and --KEY=VALUE as KEY=VALUE.

    Args:
      words: words of a command line.
      flags: options without a value, such as --multirun. They are kept unchanged.

    Raises:
      BadInput: an option has no value and does not resemble any of the flags.
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
                pairs.append(word)  # the command rejects it
                continue
            known_flags = f" Options without one: {', '.join(flags)}." if flags else ""
            raise BadInput(f"{word} has no value. Write {word} VALUE or {key}=VALUE.{known_flags}")
        if not equals:
            value = left.popleft()
        pairs.append(f"{key.replace('-', '_')}={value}")
    return pairs


class _Help(argparse.HelpFormatter):
    """Formats help within the terminal's width. Descriptions can have paragraphs, lists and examples."""

    def __init__(self, prog: str):
        super().__init__(prog, width=help_width() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return as_help(text.strip("\n"), width)


class CommandParser(argparse.ArgumentParser):
    """An argument parser that also accepts KEY=VALUE for --KEY VALUE. Raises BadInput instead of printing usage.

    Help lists the options after the examples: a description is split after its first block of examples.
    """

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **{"formatter_class": _Help, **named})
        self.prog = renamed(self.prog)
        head, example, rest = (self.description or "").partition(EXAMPLE)
        examples, _, details = rest.partition("\n\n")
        if details:
            self.description, self.epilog = head + example + examples, details

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses like argparse, after rewriting KEY=VALUE."""
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
        """Returns argparse's help, with command names replaced."""
        return renamed(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raises BadInput with the message."""
        raise BadInput(f"{message}. See `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            what = "command" if is_command else "".join(action.option_strings[-1:]) or action.dest
            raise BadInput(f"unknown {what} {value!r}; {nearest(value, action.choices)}")


def _argument(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def location(text: str) -> Any:
    """Argument type for locations that ``durable.location`` accepts."""
    from results import durable

    return _argument(durable.location, text)


def path(text: str) -> Path:
    """Argument type for local paths. ~ is the home folder."""
    from results import durable

    return _argument(durable.local, text)


path.__name__ = "local path"  # shown in argparse's messages


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --csv, --json and --wide, the keywords of ``set_output``."""
    parser.add_argument("--csv", action="store_true", help="write CSV")
    parser.add_argument("--json", action="store_true", help="write JSON: a list of objects, empty cells null")
    parser.add_argument("--wide", action="store_true", help="do not fit tables to the terminal")


def _exit_code(main: Callable[[], int | None]) -> int:
    """Runs a command, prints any error it raises, and returns its exit code."""
    try:
        return main() or exit_codes.DONE
    except SystemExit as exiting:  # argparse, after --help
        return int(exiting.code or exit_codes.DONE)
    except BadInput as error:
        say(f"error: {error}")
        return exit_codes.INVALID
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if error.name is None or package in _OURS:
            raise
        say(f"error: the package {package} is not installed for {sys.executable}. {_INSTALLED}")
        return exit_codes.INVALID
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"error: {_reason(error)}")
        return exit_codes.INVALID
    except KeyboardInterrupt:
        say("interrupted. Stored results are kept; run the same sweep to continue.")
        return exit_codes.INTERRUPTED
    except Terminated as terminated:
        say("terminated. Stored results are kept; run the same sweep to continue.")
        return terminated.code


def _reason(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    remedy = "the bucket and your credentials" if is_remote(error) else "its permissions and its disk"
    return f"{error.filename} cannot be read or written ({error.strerror}). Check {remedy}."


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turns the first SIGTERM into an exception, so that the command can exit cleanly. Later signals are ignored.

    SLURM signals all processes of a job, and the parent of this process signals it again. The second signal must not
    interrupt saving.
    """

    def ignored(number: int, frame: FrameType | None) -> None:
        """Does nothing. Unlike SIG_IGN, this handler is not inherited by programs that are started later."""

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, ignored)
        raise Terminated

    is_handler = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if is_handler:
        signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        if is_handler:  # after a SIGTERM the process exits, and Python resets every handler but this one
            is_first = signal.getsignal(signal.SIGTERM) is terminated
            signal.signal(signal.SIGTERM, signal.SIG_DFL if is_first else signal.SIG_IGN)
