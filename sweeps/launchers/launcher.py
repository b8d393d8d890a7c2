"""The interface for running studies locally or on a cluster, and code shared by all launchers.

This module does not import JAX.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.kinds import RUNNERS
from harness.run import RunProgress, Settings
from harness.step.batch_partition import of_settings
from results import durable, exit_codes, store as stores
from results.aliases import Callback
from results.bad_input import BadInput, is_remote
from results.durable import Folder
from results.plans.plan import Plan
from results.rules.ledger import Ledger
from results.storage import attempts, heartbeat
from sweeps.configured_study import Config, Studies
from sweeps.launchers.worker import Failure, failure
from sweeps.limits import Limits
from sweeps.study_run import RunSummary, StudyOutcome, StudyUpdate, record_failure

MOST_PREEMPTIONS = 1000  # per study, in one run of a command


@dataclasses.dataclass(frozen=True)
class Launch:
    """Studies to run, and how to run them.

    Attributes:
      store: folder or URL of the result store.
      studies: studies to run. Running a study again, or twice concurrently, is safe.
      settings: settings of each run.
      limits: limits of the sweep. When a limit is reached, running studies are saved and ended, and no more studies
        start.
      sources: data sources by study name. See ``sweeps.planning.Request``.
      words: the command line that runs only a single study, by study name. It consists of the words after `python -m
        sweeps`, without the launcher and the store.
      on_progress: called with every update.
      on_wait: called about every second while there are no updates.
    """

    store: Folder
    studies: Studies
    settings: Settings
    limits: Limits = dataclasses.field(default_factory=Limits)
    sources: Mapping[str, Config] = dataclasses.field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    on_progress: Callable[[StudyUpdate], None] = lambda update: None
    on_wait: Callback = lambda: None

    @property
    def folder(self) -> Path:
        """The store as a local folder, for launchers that keep their own files in it."""
        return Path(str(self.store))

    def report(self, update: StudyUpdate) -> None:
        """Counts an update towards the limits, then forwards it."""
        self.limits.hear(update)
        self.on_progress(update)


def devices_asked(asked: Config, study: Plan, settings: Settings) -> int:
    """Returns the number of devices that run a study on one host: that of its plan or of the settings, otherwise 1."""
    return study.devices or of_settings(settings).devices


def cpus_and_gpus(asked: Config, study: Plan, settings: Settings) -> tuple[int, int]:
    """Returns the number of CPUs and GPUs that a study needs on a node: as configured, or one per device."""
    devices = devices_asked(asked, study, settings)
    gpus = devices if asked["gpus"] is None else asked["gpus"]
    return asked["cpus"] or (1 if gpus else devices), gpus


def step_cost(study: Plan) -> float:
    """Returns the cost of a step of a study, in units that are comparable within a kind.

    The cost is the number of examples plus 8, a constant that was measured on a small network.
    """
    return RUNNERS[study.kind].examples(study) + 8.0


def cost(study: Plan) -> float:
    """Returns the maximum cost of a study in arbitrary units: the steps in its budget times the cost per step."""
    return study.request.planned * study.budget_steps * step_cost(study)


def check_least(asked: Config, prefix: str = "launcher.", **least: int) -> None:
    """Raises BadInput if a value in a configuration (by default, a launcher's) is below its minimum. None is valid."""
    for key, value in least.items():
        if asked[key] is not None and not asked[key] >= value:
            raise BadInput(f"{prefix}{key} must be at least {value}, not {asked[key]:g}")


def check_retries(asked: Config) -> None:
    """Raises BadInput for invalid ``retries`` or ``silence_seconds``."""
    check_least(asked, retries=0)
    if asked["silence_seconds"] is not None and not asked["silence_seconds"] > 0:
        raise BadInput(f"launcher.silence_seconds must be above 0, not {asked['silence_seconds']:g}")


def check_unwatched(asked: Config) -> None:
    """Raises BadInput if ``silence_seconds`` is set for studies on several hosts, which watch each other."""
    if asked["silence_seconds"] is not None:
        raise BadInput(
            "launcher.silence_seconds is for studies on one host. If there are several, a host that sends no heartbeat "
            "for 30 s is lost. Leave it out."
        )


def check_over_hosts(studies: Studies, settings: Settings) -> None:
    """Raises BadInput for studies that cannot run on several hosts together."""
    for study in studies:
        if not RUNNERS[study.kind].over_hosts:
            raise BadInput(f"{study.name} needs a single host. Use launcher=local.")
        in_parts = RUNNERS[study.kind].saves_in_parts or settings.layout
        if in_parts and settings.checkpoint_dir is None:
            raise BadInput(
                f"{study.name}: each host saves the state of its own cores. Set checkpoint_dir to a folder or URL that "
                "all hosts can reach."
            )


class Launcher(NamedTuple):
    """A way to run studies, registered by its name in `conf/launcher`.

    Attributes:
      check: function that raises BadInput if the configuration cannot run some of the studies.
      run_all: function that runs studies and returns an outcome for each study that started, in the order in which the
        studies ended.
      around: function that runs a command (the last argument) in the environment it needs and returns its exit code.
        The second argument is a hash of the request.
      here: whether studies run as child processes of this command. If so, this command writes their heartbeats.
      devices: function that returns the number of devices that run a study.
      leads: function that returns whether this process reads and writes the store.
    """

    check: Callable[[Config, Studies, Settings], None]
    run_all: Callable[[Config, Launch], list[StudyOutcome]]
    around: Callable[[Config, str, Callable[[], int]], int] = lambda asked, command, run: run()
    here: bool = True
    devices: Callable[[Config, Plan, Settings], int] = devices_asked
    leads: Callable[[Config], bool] = lambda asked: True


class WorkerLost(Exception):
    """A worker was lost in a command that is itself an attempt. The attempt's launcher decides whether to retry."""


@dataclasses.dataclass
class RetryPolicy:
    """Counts the attempts at a study, and decides whether to retry.

    An attempt that was preempted after taking a step does not count. A lost attempt counts as one of ``retries``.
    Errors and out-of-memory failures are not retried, because they would occur again.
    """

    retries: int
    preempted: int = 0
    lost: int = 0

    def again(self, code: int, *, advanced: bool, out_of_memory: bool = False) -> bool:
        """Returns whether to retry after an attempt with this exit code (or minus the signal that ended it)."""
        if code == exit_codes.PREEMPTED and advanced:
            self.preempted += 1
            return self.preempted <= MOST_PREEMPTIONS
        if out_of_memory or code in (exit_codes.DONE, exit_codes.FAILED, exit_codes.INVALID):
            return False
        self.lost += 1
        return self.lost <= self.retries


def record_failed(store: Folder, study: Plan, reason: str, why: Failure) -> StudyOutcome:
    """Stores the missing trials of a study as INCOMPLETE(``reason``). Never raises."""
    try:
        return StudyOutcome(record_failure(store, study, reason), *why)
    except Exception as error:  # an error in one study must not stop the others
        storing = "not stored" if is_remote(error) else f"storing this failed too: {failure(error).cause}"
        also = f"{why.cause} ({storing})"
        return StudyOutcome(RunSummary(study.name), also, why.places)


def worst_code(codes: Iterable[int]) -> int:
    """Returns the exit code of an attempt, given the exit codes of its processes.

    If one process fails or is preempted, the others end as if they had lost a peer. Failures therefore take precedence,
    followed by preemption and then the largest code. Signals are compared by number.
    """
    ended = set(codes)
    first = (code for code in (exit_codes.FAILED, exit_codes.INVALID, exit_codes.PREEMPTED) if code in ended)
    return next(first, None) or max(ended, key=abs)


def is_stored(store: Folder, study: Plan) -> bool:
    """Returns whether a study is complete and committed."""
    progress = stores.progress(store, study)
    return progress.visible and not progress.to_run


def failed_too_often(folder: Folder, limit: int | None) -> bool:
    """Returns whether the logs in a study's folder show at least ``most`` failed attempts."""
    failures = sum(attempt.code not in (None, exit_codes.PREEMPTED) for attempt in attempts.read(folder))
    return limit is not None and failures >= limit


class RemoteStudy:
    """A study that runs on a cluster and is observed through the store.

    Args:
      launch: launch of the sweep.
      study: plan of the study.
    """

    def __init__(self, launch: Launch, study: Plan):
        self._launch = launch
        self.study = study
        self._folder = launch.store / study.name
        self._before = self.ledger()
        self._began: float | None = None
        self._seen: heartbeat.Seen | None = None
        self._seen_at = 0.0
        self._reported: heartbeat.Heartbeat | None = None

    def begins(self) -> None:
        """Reports that the study is running or that its process is starting."""
        if self._began is None:
            self._began = time.monotonic()
            self._launch.report(StudyUpdate(self.study, RunProgress()))

    def look(self) -> None:
        """Reads the study's heartbeat, and reports its progress or how long it has been silent."""
        seen = heartbeat.seen(self._folder)
        now = time.monotonic()
        if seen is None or seen.alive is False:
            return
        if self._seen is None or seen.written != self._seen.written:
            self._seen = seen
            self._seen_at = now
        silent = seen.beat.silent + now - self._seen_at
        beat = seen.beat._replace(silent=0.0)
        is_silent = silent > durable.system(self._folder).fresh_seconds
        if beat == self._reported and not is_silent:
            return
        self._reported = None if is_silent else beat
        if self._began is None:
            self._began = now
        seconds = beat.steps / beat.steps_per_second if beat.steps_per_second else 0.0
        progress = RunProgress(beat.doing, {}, {}, beat.steps, seconds, now - self._began)
        self._launch.report(StudyUpdate(self.study, progress, silent=silent if is_silent else None))

    def waits(self) -> None:
        """Reports that the study is waiting again."""
        if self._began is not None:
            self._began = self._seen = self._reported = None
            self._launch.report(StudyUpdate(self.study))

    def end(self, failure: str | None) -> StudyOutcome:
        """Reports and returns the outcome of the study. Call it once the study has ended."""
        after = self.ledger()
        seconds = 0.0 if self._began is None else time.monotonic() - self._began
        ran = Ledger(*(max(0, now - earlier) for now, earlier in zip(after, self._before, strict=True)))
        incomplete = ran.pruned + ran.time_limit + ran.lost + ran.failed
        total = ran.complete + ran.infeasible + incomplete
        summary = RunSummary(self.study.name, total, ran.complete, ran.infeasible, incomplete, seconds)
        outcome = StudyOutcome(summary, failure)
        self._launch.report(StudyUpdate(self.study, outcome=outcome))
        return outcome

    def ledger(self) -> Ledger:
        """Returns the ledger of the stored trials."""
        return stores.progress(self._launch.store, self.study).ledger


def cause(folder: Folder) -> str | None:
    """Returns the cause of failure and the log of the last attempt at a folder's study, or None without attempts."""
    last = attempts.last(folder)
    if last is None or (last.code is None and last.began is None):
        return None
    why = last.cause or "it ended without a report, so its machine may be gone"
    return f"{why}; see {last.log}"


def wait(seconds: float, on_wait: Callback) -> None:
    """Waits and calls ``on_wait`` every second."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        on_wait()
