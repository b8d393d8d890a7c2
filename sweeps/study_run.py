"""Runs one study: finds missing trials, runs and commits them, and reports progress."""

import collections
import datetime
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from harness.compiled import compile_cache
from harness.kinds import RUNNERS, Job
from harness.processes import multihost, provenance
from harness.processes.shutdown import Shutdown
from harness.run import Record, RunProgress, Settings, Source, unmeasured
from harness.trials import search
from harness.trials.scheduler import BestSteps, Outcomes, TrialOutcome
from results import durable, store
from results.aliases import Strings
from results.durable import Folder
from results.plans.plan import Plan
from results.plans.study import Trial
from results.rules import answers, confirmation
from results.store import Claim
from sweeps.rows import tables


class RunSummary(NamedTuple):
    """The result of running a study: trials by status, and seconds spent."""

    study: str
    ran: int = 0
    complete: int = 0
    infeasible: int = 0
    incomplete: int = 0
    seconds: float = 0.0


class StudyOutcome(NamedTuple):
    """The outcome of a study: its summary or, after a failure, the cause in one line and the traceback."""

    summary: RunSummary
    failure: str | None = None
    places: Strings = ()


class StudyUpdate(NamedTuple):
    """An update about a study.

    Attributes:
      study: plan of the study.
      progress: progress of the study, or None if the study is waiting again or has ended.
      outcome: outcome of the study if it has ended.
      silent: seconds since the last sign of life of its process, or None if the update itself is a sign of life. If
        ``silent`` is set, the other fields repeat those of the last update.
    """

    study: Plan
    progress: RunProgress | None = None
    outcome: StudyOutcome | None = None
    silent: float | None = None


def run_study(
    folder: Folder,
    study: Plan,
    settings: Settings,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    *,
    source: Source = None,
    shutdown: Shutdown | None = None,
) -> RunSummary:
    """Runs the trials of ``study`` that are missing from a store. Calling it again, or twice concurrently, is safe.

    Args:
      folder: folder of the store.
      study: plan of the study. If the study is already stored, it keeps its stored name.
      settings: settings of the run.
      on_progress: called with the progress of the run.
      source: data source, if the plan does not contain it. See ``sweeps.planning.Request``.
      shutdown: shutdown state of this process. A shutdown waits for writes to finish.

    Raises:
      Stopped: the process must end. Running trials are saved, and the next call resumes them.
    """
    shutdown = shutdown or Shutdown()
    began = time.perf_counter()
    started_at = _now()
    outcomes: Outcomes = {}
    study = store.with_stored_name(folder, study)
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim))
        has_work = bool(trials or _confirming(study, claim))
        best = _best(study, claim) if has_work and study.search.pruning == "exact" else {}
        multihost.broadcast(([trial.id for trial in trials], best) if has_work else None)
        if has_work:

            def confirming() -> list[Trial]:
                trials = _confirming(study, claim)
                multihost.broadcast([trial.id for trial in trials])
                return trials

            compile_cache.enable()
            about = provenance.software() | provenance.device(study.devices) | started_at

            def write(part: Record) -> None:
                with shutdown.lock:
                    claim.write(tables(study, part, about))

            checkpoints = _checkpoints(folder, study, settings)
            outcomes = RUNNERS[study.kind].run(
                Job(study, trials, settings, checkpoints, source, best, on_progress, write, confirming, shutdown)
            )
        if not claim.visible:
            with shutdown.lock:
                claim.commit(study)
    return _summary(study, outcomes, time.perf_counter() - began)


def follow_study(
    study: Plan, settings: Settings, source: Source, shutdown: Shutdown, on_progress: Callable[[RunProgress], None]
) -> Outcomes:
    """Runs the trials of the leader's ``run_study`` in lockstep with it. Returns their outcomes."""
    work = multihost.broadcast(None)
    if work is None:
        return {}
    ids, best = work
    compile_cache.enable()
    job = Job(
        study,
        search.draw(study, ids),
        settings,
        _checkpoints(Path(os.devnull), study, settings),
        source,
        best,
        on_progress=on_progress,
        on_finished=lambda part: None,
        confirming=lambda: search.draw(study, multihost.broadcast([])),
        shutdown=shutdown,
    )
    return RUNNERS[study.kind].run(job)


def _checkpoints(folder: Folder, study: Plan, settings: Settings) -> Any:
    from harness.trials.checkpoints import Checkpoints

    root = folder if settings.checkpoint_dir is None else durable.location(settings.checkpoint_dir)
    seconds = settings.checkpoint_seconds
    return Checkpoints(root / study.name, math.inf if seconds is None else seconds)


def _now() -> dict[str, str]:
    return {"started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def record_failure(folder: Folder, study: Plan, reason: str) -> RunSummary:
    """Stores the missing trials as INCOMPLETE(``reason``: lost or failed). Does not initialize JAX."""
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim)) or _confirming(study, claim)
        record = unmeasured(trials, TrialOutcome("INCOMPLETE", reason, 0))
        if trials:
            claim.write(tables(study, record, provenance.software() | _now()))
        if not claim.visible:
            claim.commit(study)
    return _summary(study, record.outcomes, 0.0)


def _missing(study: Plan, claim: Claim) -> list[int]:
    return [i for i in range(study.trials) if i not in claim.settled]


def _confirming(study: Plan, claim: Claim) -> list[Trial]:
    """Returns the missing repeats of the best trials, or an empty list until the whole search is stored."""
    if not study.request.repeats.confirm:
        return []
    stored = claim.tables()
    return search.draw(study, confirmation.missing_ids(study, stored.trials, stored.measurements))


def _best(study: Plan, claim: Claim) -> BestSteps:
    """Returns the fewest steps to each target, and the trial that took them, among the ended trials of the search."""
    measurements = claim.tables().measurements
    if len(measurements):
        measurements = measurements[~confirmation.is_repeat(measurements["trial"])]
    best = {}
    for target in study.search.targets if len(measurements) else ():
        if first := answers.of_frame(measurements, target).answer():
            best[target] = (first.steps_high, first.trial)
    return best


def _summary(study: Plan, outcomes: Outcomes, seconds: float) -> RunSummary:
    count = collections.Counter(end.status for end in outcomes.values())
    return RunSummary(study.name, len(outcomes), count["COMPLETE"], count["INFEASIBLE"], count["INCOMPLETE"], seconds)
