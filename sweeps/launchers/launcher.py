"""Launcher: the protocol of all ways to run studies, and what they have in common. Never initialises JAX."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.run import Settings
from results import exit_codes
from results.plans.plan import Plan
from results.storage import attempts
from sweeps.launchers.worker import Failure, failure
from sweeps.limits import Limits
from sweeps.run import RunSummary, record_failure
from sweeps.updates import StudyOutcome, StudyUpdate

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


class Launcher(NamedTuple):
    """A way to run studies, by the name in `conf/launcher`.

    Attributes:
      keys: of ``sweeps.schema.LauncherConfig`` that it takes.
      check: raises BadInput for values of these with which some studies cannot be run.
      at_once: how many studies it runs at once, as far as that can be told.
      run_all: runs studies; gives an outcome for each that began, in the order they ended.
      around: runs a command (the second argument) with what has to be around it; gives its exit code.
      here: whether studies run as processes of this command, which then says how they get on.
    """

    keys: tuple[str, ...]
    check: Callable[[Mapping[str, Any], Sequence[Plan], Settings], None]
    at_once: Callable[[Mapping[str, Any], Sequence[Plan], Settings], int]
    run_all: Callable[[Mapping[str, Any], Launch], list[StudyOutcome]]
    around: Callable[[Mapping[str, Any], Callable[[], int]], int] = lambda asked, run: run()
    here: bool = True


class WorkerLost(Exception):
    """The worker of a command that is itself an attempt is gone; whoever began it decides what then."""


@dataclasses.dataclass
class Tries:
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


def failures(folder: Path) -> int:
    """How many attempts at the study in a folder failed, as far as their logs are there."""
    return sum(each.code not in (None, exit_codes.PREEMPTED) for each in attempts.read(folder))
