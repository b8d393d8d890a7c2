"""A real terminal for tests: a command in a pseudo-terminal, and what its screen shows."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Makes the terminal the command's own, without a fork of a process that runs JAX.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
_ESCAPE = re.compile(r"\x1b\[([0-9]*)([A-Z])")


class Terminal:
    """A command that runs in a terminal of its own.

    Attributes:
      process: the command.
      text: all that it wrote so far.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int,
        rows: int = 24,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        self.columns, self.text = columns, ""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {key: value for key, value in (environment or os.environ).items() if key not in _SIZES}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
        )
        os.close(theirs)

    def wait_for(self, pattern: str, seconds: float) -> bool:
        """Whether a line of the screen matches a pattern within so many seconds."""
        deadline = time.monotonic() + seconds
        while not any(re.search(pattern, line) for line in self.screen()):
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                return any(re.search(pattern, line) for line in self.screen())
        return True

    def wait(self, seconds: float) -> int:
        """The exit code of the command, which must end within so many seconds."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def interrupt(self) -> None:
        """Presses Ctrl-C."""
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        """Ends the command, if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def screen(self) -> list[str]:
        """The lines of the screen, as if it had no end."""
        return screen(self.text, self.columns)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], max(0.0, seconds))[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # Linux's end of a pseudo-terminal
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def screen(text: str, columns: int) -> list[str]:
    """The lines that a terminal shows after ``text``; what is wider than it goes on on a line of its own."""
    lines, row, column, at = [""], 0, 0, 0
    while at < len(text):
        if escape := _ESCAPE.match(text, at):
            number, what = int(escape[1] or 1), escape[2]
            if what in "FA":
                row, column = max(0, row - number), 0 if what == "F" else column
            elif what == "K":
                lines[row] = lines[row][:column]
            elif what == "J":
                lines[row:] = [lines[row][:column]]
            at = escape.end()
            continue
        character = text[at]
        at += 1
        if character == "\r":
            column = 0
        elif character == "\n":
            row += 1
        else:
            if column == columns:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            line = lines[row].ljust(column)
            lines[row], column = line[:column] + character + line[column + 1 :], column + 1
        lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines]


_SIZES = ("COLUMNS", "LINES")
