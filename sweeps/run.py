"""One study: finds the trials that the store lacks, runs them, and commits them; and what is told of it meanwhile."""

import collections
import datetime
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness import compile_cache, multihost, provenance, search
from harness.run import Record, RunProgress, Settings, unmeasured
from harness.runners import RUNNERS, Job
from harness.scheduler import BestSteps, TrialOutcome
from harness.shutdown import Shutdown
from results import durable, store
from results.plans.plan import Plan
from results.plans.study import Trial
from results.rules import answers, confirmation
from results.storage.claims import Claim
from sweeps.rows import tables


class RunSummary(NamedTuple):
    """The result of running a study: trials by status, and seconds spent."""

    study: str
    ran: int
    complete: int
    infeasible: int
    incomplete: int
    seconds: float


class StudyOutcome(NamedTuple):
    """The outcome of one study: its summary, and if it failed the cause, in one line, and its place in our code."""

    summary: RunSummary
    failure: str | None = None
    places: tuple[str, ...] = ()


class StudyUpdate(NamedTuple):
    """An update on a study.

    Attributes:
      study: its plan.
      progress: how far it is; None if it has to wait again, or has ended.
      outcome: set once it has ended.
      silent: seconds since its process gave a sign of life; None of an update that is such a sign. Nothing else of an
        update with ``silent`` is new.
    """

    study: Plan
    progress: RunProgress | None
    outcome: StudyOutcome | None = None
    silent: float | None = None


def run_study(
    folder: Path,
    study: Plan,
    settings: Settings,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    *,
    source: Mapping[str, Any] | None = None,
    shutdown: Shutdown | None = None,
) -> RunSummary:
    """Runs the trials of ``study`` that the store at ``folder`` lacks; safe to repeat, and to run twice at once.

    Args:
      folder: of the store.
      study: what is asked for; kept under the name that the store has it under.
      settings: how to run it.
      on_progress: called with how far the run has come.
      source: what its data are built from where its plan does not say that; see ``sweeps.planning.Request``.
      shutdown: of this process, which does not end in the middle of a write.

    Raises:
      Stopped: the process is to end; the trials under way are saved, and the next call goes on with them.
    """
    shutdown = shutdown or Shutdown()
    began = time.perf_counter()
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    outcomes: Mapping[int, TrialOutcome] = {}
    study = store.with_stored_name(folder, study)
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim))
        has_work = bool(trials or _confirming(study, claim))
        best = _best(study, claim) if has_work and study.pruning == "exact" else {}
        multihost.broadcast(([trial.id for trial in trials], best) if has_work else None)
        if has_work:

            def confirming() -> list[Trial]:
                further = _confirming(study, claim)
                multihost.broadcast([trial.id for trial in further])
                return further

            compile_cache.enable()
            about = provenance.software() | provenance.device(study.devices) | {"started_at": started_at}

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
    study: Plan, settings: Settings, source: Mapping[str, Any] | None, shutdown: Shutdown
) -> Mapping[int, TrialOutcome]:
    """Runs the trials that ``run_study`` runs in the process that leads, in lockstep; how each ended."""
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
        on_progress=lambda progress: None,
        on_finished=lambda part: None,
        confirming=lambda: search.draw(study, multihost.broadcast([])),
        shutdown=shutdown,
    )
    return RUNNERS[study.kind].run(job)


def _checkpoints(folder: Path, study: Plan, settings: Settings) -> Any:
    from harness.checkpoints import Checkpoints  # which imports JAX

    beside = folder if settings.checkpoint_dir is None else durable.location(settings.checkpoint_dir)
    seconds = settings.checkpoint_seconds
    return Checkpoints(beside / study.name, math.inf if seconds is None else seconds)


def record_failure(folder: Path, study: Plan, reason: str) -> RunSummary:
    """Stores the missing trials as INCOMPLETE(``reason``: lost or failed). Does not initialise JAX."""
    with store.claim(folder, study.name) as claim:
        trials = search.draw(study, _missing(study, claim)) or _confirming(study, claim)
        record = unmeasured(trials, TrialOutcome("INCOMPLETE", reason, 0))
        about = provenance.software() | {
            "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        }
        if trials:
            claim.write(tables(study, record, about))
        if not claim.visible:
            claim.commit(study)
    return _summary(study, record.outcomes, 0.0)


def _missing(study: Plan, claim: Claim) -> list[int]:
    return [i for i in range(study.trials) if i not in claim.settled]


def _confirming(study: Plan, claim: Claim) -> list[Trial]:
    """The repeats of the best that are to be run now; none before all of the search is stored."""
    if not study.request.repeats.confirm:
        return []
    stored = claim.tables()
    return search.draw(study, confirmation.missing_ids(study, stored.trials, stored.measurements))


def _best(study: Plan, claim: Claim) -> BestSteps:
    """The answers of the trials of the search that have ended."""
    measurements = claim.tables().measurements
    if len(measurements):
        measurements = measurements[~confirmation.is_repeat(measurements["trial"])]
    best = {}
    for target in study.targets if len(measurements) else ():
        first = answers.intervals(measurements, target)
        if len(first):
            winner = first.sort_values(["steps_high", "trial"]).iloc[0]
            best[target] = (int(winner["steps_high"]), int(winner["trial"]))
    return best


def _summary(study: Plan, outcomes: Mapping[int, TrialOutcome], seconds: float) -> RunSummary:
    count = collections.Counter(end.status for end in outcomes.values())
    return RunSummary(study.name, len(outcomes), count["COMPLETE"], count["INFEASIBLE"], count["INCOMPLETE"], seconds)
