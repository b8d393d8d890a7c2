"""Launcher: the protocol of all ways to run studies, here or elsewhere, and what those have in common; without JAX."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.run import RunProgress, Settings
from results import exit_codes
from results import store as stores
from results.plans.plan import Plan
from results.rules.ledger import Ledger
from results.storage import attempts, heartbeat
from sweeps.launchers.worker import Failure, failure
from sweeps.limits import Limits
from sweeps.run import RunSummary, StudyOutcome, StudyUpdate, record_failure

MOST_PREEMPTIONS = 1000  # of a study in one run of a command


@dataclasses.dataclass(frozen=True)
class Launch:
    """Studies to run, and how.

    Attributes:
      store: folder of the store.
      studies: to be run; each is safe to run again, and to run twice.
      settings: how each is run.
      limits: after which what runs is saved and ends, and nothing more begins.
      sources: what the data of a study are built from, by its name; see ``sweeps.planning.Request``.
      words: of the command lines that run a study alone, by its name: what follows `python -m sweeps`, without the
        launcher and the store.
      on_progress: told of everything that happens.
      on_wait: called every second in which nothing happens.
    """

    store: Path
    studies: Sequence[Plan]
    settings: Settings
    limits: Limits
    sources: Mapping[str, Mapping[str, Any]]
    words: Mapping[str, Sequence[Sequence[str]]]
    on_progress: Callable[[StudyUpdate], None]
    on_wait: Callable[[], None]


def devices_asked(asked: Mapping[str, Any], study: Plan, settings: Settings) -> int:
    """How many devices run a study on one host: as many as its plan or ``shards`` say, or one."""
    return study.devices or settings.shards or 1


class Launcher(NamedTuple):
    """A way to run studies, by the name in `conf/launcher`.

    Attributes:
      keys: of ``sweeps.schema.LauncherConfig`` that it takes.
      check: raises BadInput for values of these with which some studies cannot be run.
      at_once: how many studies it runs at once, as far as that can be told.
      run_all: runs studies; gives an outcome for each that began, in the order they ended.
      around: runs a command (the last argument) with what has to be around it; gives its exit code. The second
        argument is a hash of what is asked for.
      here: whether studies run as processes of this command, which then says how they get on.
      devices: how many run a study.
    """

    keys: tuple[str, ...]
    check: Callable[[Mapping[str, Any], Sequence[Plan], Settings], None]
    at_once: Callable[[Mapping[str, Any], Sequence[Plan], Settings], int]
    run_all: Callable[[Mapping[str, Any], Launch], list[StudyOutcome]]
    around: Callable[[Mapping[str, Any], str, Callable[[], int]], int] = lambda asked, command, run: run()
    here: bool = True
    devices: Callable[[Mapping[str, Any], Plan, Settings], int] = devices_asked


class WorkerLost(Exception):
    """The worker of a command that is itself an attempt is gone; whoever began it decides what then."""


@dataclasses.dataclass
class RetryPolicy:
    """The attempts at a study in this run of a command, and whether there is to be another.

    A preempted attempt costs nothing as long as it took a step; one that was lost, one of ``retries``; mistakes and a
    memory that ran out would happen again.
    """

    retries: int
    preempted: int = 0
    lost: int = 0

    def again(self, code: int, *, advanced: bool, out_of_memory: bool = False) -> bool:
        """Whether to try again after an attempt that ended with a code, or minus a signal."""
        if code == exit_codes.PREEMPTED and advanced:
            self.preempted += 1
            return self.preempted <= MOST_PREEMPTIONS
        if out_of_memory or code in (exit_codes.DONE, exit_codes.FAILED, exit_codes.INVALID):
            return False
        self.lost += 1
        return self.lost <= self.retries


def record_failed(store: Path, study: Plan, reason: str, why: Failure) -> StudyOutcome:
    """Stores that the trials of a study still missing ended as INCOMPLETE(``reason``); raises nothing."""
    try:
        return StudyOutcome(record_failure(store, study, reason), *why)
    except Exception as error:  # whatever is wrong with one study must not end the others
        also = f"{why.cause}; and storing this failed: {failure(error).cause}"
        return StudyOutcome(RunSummary(study.name, 0, 0, 0, 0, 0.0), also, why.places)


def worst_code(codes: Iterable[int]) -> int:
    """The exit code of an attempt over several processes, from those of all of them.

    A mistake of one process ends the others as if a peer were lost, and so does a process that was preempted. So the
    mistake counts first, then the preemption, then the largest code; minus a signal counts as its number.
    """
    ended = set(codes)
    first = (code for code in (exit_codes.FAILED, exit_codes.INVALID, exit_codes.PREEMPTED) if code in ended)
    return next(first, None) or max(ended, key=abs)


def is_stored(store: Path, study: Plan) -> bool:
    """Whether running a study again would run and commit nothing."""
    progress = stores.progress(store, study)
    return progress.visible and not progress.to_run


def failed_too_often(folder: Path, most: int | None) -> bool:
    """Whether ``most`` attempts at the study in a folder failed, as far as their logs are there."""
    failures = sum(each.code not in (None, exit_codes.PREEMPTED) for each in attempts.read(folder))
    return most is not None and failures >= most


class RemoteStudy:
    """A study that runs elsewhere.

    Args:
      launch: of the sweep.
      study: its plan.
    """

    def __init__(self, launch: Launch, study: Plan):
        self._launch, self.study = launch, study
        self._folder = launch.store / study.name
        self._before = self._ledger()
        self._began: float | None = None
        self._seen: heartbeat.Seen | None = None
        self._seen_at = 0.0
        self._told: heartbeat.Heartbeat | None = None

    def begins(self) -> None:
        """Tells that it runs; its process may still start."""
        if self._began is None:
            self._began = time.monotonic()
            self.tell(StudyUpdate(self.study, RunProgress()))

    def look(self) -> None:
        """Tells of its progress where there is any, and else how long there was no sign of life."""
        seen, now = heartbeat.seen(self._folder), time.monotonic()
        if seen is None or seen.alive is False:
            return
        if self._seen is None or seen.written != self._seen.written:
            self._seen, self._seen_at = seen, now
        silent = seen.beat.silent + now - self._seen_at
        beat, is_silent = seen.beat._replace(silent=0.0), silent > heartbeat.FRESH_SECONDS
        if beat == self._told and not is_silent:
            return
        self._told = None if is_silent else beat
        if self._began is None:
            self._began = now
        seconds = beat.steps / beat.steps_per_second if beat.steps_per_second else 0.0
        progress = RunProgress(beat.doing, {}, {}, beat.steps, seconds, now - self._began)
        self.tell(StudyUpdate(self.study, progress, silent=silent if is_silent else None))

    def waits(self) -> None:
        """Tells that it is to wait again."""
        if self._began is not None:
            self._began = self._seen = self._told = None
            self.tell(StudyUpdate(self.study, None))

    def end(self, failure: str | None) -> StudyOutcome:
        """Its outcome, once it has ended."""
        after, seconds = self._ledger(), 0.0 if self._began is None else time.monotonic() - self._began
        ran = Ledger(*(max(0, now - then) for now, then in zip(after, self._before, strict=True)))
        incomplete = ran.pruned + ran.time_limit + ran.lost + ran.failed
        total = ran.complete + ran.infeasible + incomplete
        summary = RunSummary(self.study.name, total, ran.complete, ran.infeasible, incomplete, seconds)
        outcome = StudyOutcome(summary, failure)
        self.tell(StudyUpdate(self.study, None, outcome))
        return outcome

    def tell(self, update: StudyUpdate) -> None:
        """Tells whoever launched it."""
        self._launch.limits.hear(update)
        self._launch.on_progress(update)

    def is_done(self) -> bool:
        """Whether all of it is stored."""
        return not self._ledger().unfinished

    def _ledger(self) -> Ledger:
        return stores.progress(self._launch.store, self.study).ledger


def cause(folder: Path) -> str | None:
    """The cause of the end of the last attempt at the study in a folder, and its log; None where that is not there."""
    last = attempts.read(folder)[-1:]
    if not last or (last[0].code is None and last[0].began is None):
        return None
    why = last[0].cause or "it never said how it ended; its machine may be gone"
    return f"{why}; see {last[0].log}"


def wait(seconds: float, on_wait: Callable[[], None]) -> None:
    """Waits, and calls ``on_wait`` every second meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        on_wait()
