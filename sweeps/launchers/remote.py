"""Studies that run elsewhere, each by a command of its own: what is known of them here, from the store they share."""

import time
from collections.abc import Callable
from pathlib import Path

from harness.run import RunProgress
from results import store as stores
from results.plans.plan import Plan
from results.rules.ledger import Ledger
from results.storage import attempts, heartbeat
from sweeps.launchers.launcher import Launch
from sweeps.run import RunSummary
from sweeps.updates import StudyOutcome, StudyUpdate


class Elsewhere:
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
        self._beat: heartbeat.Heartbeat | None = None

    def look(self) -> None:
        """Tells of its progress where there is any."""
        beat = heartbeat.read(self._folder, anywhere=True)
        if beat is None or beat == self._beat:
            return
        self._beat = beat
        if self._began is None:
            self._began = time.monotonic()
        seconds = beat.steps / beat.steps_per_second if beat.steps_per_second else 0.0
        progress = RunProgress(beat.doing, {}, {}, beat.steps, seconds, time.monotonic() - self._began)
        self.tell(StudyUpdate(self.study, progress))

    def waits(self) -> None:
        """Tells that it is to wait again."""
        if self._began is not None:
            self._began = self._beat = None
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
