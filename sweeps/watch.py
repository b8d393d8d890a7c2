"""Watches a store while sweeps run. Redraws a table every second or, without a terminal, prints lines.

In a bucket, heartbeats and requests are slower, so the table is redrawn every ten seconds.
"""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from results import durable, printing, store
from results.bad_input import printable
from results.durable import Folder
from results.progress import SECONDS
from results.rules.ledger import Ledger
from results.storage import heartbeat
from results.storage.heartbeat import Heartbeat
from sweeps.display import clock, cut, short_names

LOOKS = 3  # between two heartbeats of a study
SILENT_SECONDS = 60.0  # silence after which it is shown
QUIET_LOOKS = 3  # consecutive checks without a running or queued study after which the sweep is over


class Study(NamedTuple):
    """The state of a study: running, queued, unfinished, damaged or done. Only running studies have a heartbeat."""

    name: str
    state: str
    ledger: Ledger
    beat: Heartbeat | None

    @property
    def settled(self) -> int:
        """Number of trials that do not have to run any more."""
        return self.beat.settled(self.ledger) if self.beat else self.ledger.settled


def watch(folder: Folder, row: Callable[[str, Heartbeat | None], tuple]) -> int:
    """Shows a store until no study is running or queued. Returns 1 if there are unfinished studies, otherwise 0.

    Args:
      folder: folder of the store.
      row: function that returns the name, state, unit and ledger of a study, given its name and heartbeat.
    """
    screen = _Screen()
    looks = _Looks(folder, row)
    quiet = 0
    try:
        while True:
            studies = looks.studies()
            running = [study for study in studies if study.state == "running"]
            unfinished = sum(study.state != "done" for study in studies)
            quiet = 0 if any(study.state in ("running", "queued") for study in studies) else quiet + 1
            over = quiet >= QUIET_LOOKS or not unfinished
            screen.show(_lines(studies, running, unfinished, over), last=over)
            if over:
                return 1 if unfinished else 0
            time.sleep(durable.system(folder).heartbeat_seconds / LOOKS)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


class _Looks:
    """Reads the studies of a store. A study that is not running is read again only if its folder has changed."""

    def __init__(self, folder: Folder, row: Callable[[str, Heartbeat | None], tuple]):
        self._folder = folder
        self._row = row
        self._beats = heartbeat.Watch()
        self._known: dict[str, tuple[object, tuple]] = {}

    def studies(self) -> list[Study]:
        """Returns the current state of all studies, sorted by name. A bucket is listed once."""
        with durable.system(self._folder).snapshot(self._folder):
            return [self._study(name) for name in store.names(self._folder)]

    def _study(self, name: str) -> Study:
        changed = durable.system(self._folder).mark(self._folder / name)
        before, row = self._known.get(name, (None, ()))
        beat = self._beats.one(self._folder / name)
        if before != changed or beat is not None or store.is_running(self._folder, name):
            row = self._row(name, beat)
        self._known[name] = changed, row
        state = "running" if beat else row[1].split()[0]
        return Study(name, state, Ledger(*row[3:]), beat)


def _lines(studies: Sequence[Study], running: Sequence[Study], unfinished: int, over: bool) -> list[str]:
    """Returns a summary of all studies, and a table of the running studies, as lines."""
    done = len(studies) - unfinished
    settled = sum(study.settled for study in studies)
    planned = sum(study.ledger.planned for study in studies)
    about = [f"{done:,}/{len(studies):,} studies", f"{settled:,}/{planned:,} trials"]
    if over and unfinished:
        return [f"{', '.join(about)}; none running, {unfinished:,} unfinished"]
    if queued := sum(study.state == "queued" for study in studies):
        about.append(f"{queued:,} queued")
    if not running:
        return [", ".join(about)]
    ends = [study.beat.sweep_ends for study in running if study.beat and study.beat.sweep_ends is not None]
    if ends:
        about.append(f"{clock(max(0.0, max(ends) - time.time()))} left")
    names = short_names({study.name: study.name.rpartition("-")[0] for study in studies})
    rows = [(names[study.name], *_cells(study)) for study in running]
    table = printing.table(("running", "doing", "trials", "steps", "speed"), rows, left=("running", "doing"))
    return [", ".join(about), *table.split("\n")]


def _cells(study: Study) -> tuple[str, str, str, str]:
    trials = f"{study.settled:,}/{study.ledger.planned:,}"
    beat = study.beat
    if beat is None:
        return "", trials, "", ""
    rate = f"{beat.steps_per_second:,.0f}" if beat.steps_per_second >= 10 else f"{beat.steps_per_second:.2g}"
    doing = beat.doing if beat.silent < SILENT_SECONDS else f"silent for {clock(beat.silent)}"
    if not beat.steps:
        return doing, trials, "", ""
    return doing, trials, f"{beat.steps:,}", f"{rate} {beat.unit}s/s"


class _Screen:
    """Standard output. On a terminal, lines are redrawn in place. Otherwise, the first line is printed at intervals."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._drawn = 0
        self._line = ""
        self._due = 0.0

    def show(self, lines: Sequence[str], *, last: bool) -> None:
        """Shows lines. The last call always prints them."""
        lines = [printable(line) for line in lines]
        now = time.monotonic()
        if self._terminal:
            columns, rows = shutil.get_terminal_size()
            if len(lines) > rows - 1:
                lines = [*lines[: max(1, rows - 2)], f"and {len(lines) - max(1, rows - 2)} more"]
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            print(up + "".join(f"{cut(line, columns)}\x1b[K\n" for line in lines) + "\x1b[J", end="", flush=True)
            self._drawn = len(lines)
        elif last or (now >= self._due and lines[0] != self._line):
            print(lines[0], flush=True)
            self._line = lines[0]
            self._due = now + SECONDS
