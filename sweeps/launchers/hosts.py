"""Hosts: the same command on several, which run every study together; host 0 leads, and the others follow."""

import dataclasses
import functools
import mmap
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import costs, multihost
from harness.multihost import Hosts
from harness.run import RunProgress, Settings
from harness.shutdown import Shutdown, Stopped
from results import exit_codes
from results.bad_input import BadInput
from results.cli import Terminated, say
from results.plans.plan import Plan
from results.storage import attempts
from results.storage.claims import TakenOver
from sweeps.launchers import worker
from sweeps.launchers.launcher import Launch, record_failed
from sweeps.launchers.worker import Order
from sweeps.run import StudyOutcome, StudyUpdate

OURS = ("harness", "results", "sweeps", "workloads")  # folders of the code that has to be the same on all hosts


def run_all(launch: Launch) -> list[StudyOutcome]:
    """Runs studies on all hosts, one after the other; for host 0.

    Raises:
      Terminated: one of the hosts is to end; what is under way is saved.
    """
    from sweeps.run import run_study

    outcomes: list[StudyOutcome] = []
    store, settings, sources = launch.store, launch.settings, launch.sources

    def tell(update: StudyUpdate) -> None:
        launch.limits.hear(update)
        launch.on_progress(update)

    def told(study: Plan, shutdown: Shutdown, progress: RunProgress) -> None:
        tell(StudyUpdate(study, progress))
        shutdown.time_is_up = launch.limits.is_over(study.name)

    for study in in_order(store, launch.studies):
        if launch.limits.reached is not None:
            break
        multihost.broadcast(_order(study, settings, sources.get(study.name)))
        tell(StudyUpdate(study, RunProgress()))
        shutdown = Shutdown()
        try:
            summary = run_study(
                store,
                study,
                settings,
                functools.partial(told, study, shutdown),
                source=sources.get(study.name),
                shutdown=shutdown,
            )
            outcome = StudyOutcome(summary)
        except Stopped:
            raise _terminated(shutdown) from None
        except Exception as error:
            if multihost.lost(error):
                raise
            is_taken = isinstance(error, TakenOver)
            why = worker.taken(error) if is_taken else worker.failure(error)
            code = exit_codes.PREEMPTED if is_taken else exit_codes.FAILED
            attempts.end(attempts.begin(store / study.name, "hosts"), code, why.cause)
            if is_taken:
                raise
            outcome = record_failed(store, study, "failed", why)
            if not multihost.all_fail(study.name):  # the others wait for what this one does not do any more
                raise
        outcomes.append(outcome)
        tell(StudyUpdate(study, None, outcomes[-1]))
    return outcomes


def in_order(store: Path, studies: Sequence[Plan]) -> list[Plan]:
    """Studies in the order in which they are run: those of which the last attempt failed are at the end."""

    def failed(study: Plan) -> bool:
        return [each.code for each in attempts.read(store / study.name)[-1:]] == [exit_codes.FAILED]

    return sorted(studies, key=failed)


def follow() -> int:
    """Runs what host 0 runs, in lockstep with it, until it has nothing more; for all other hosts."""
    from results.plans.kinds import from_plan
    from results.plans.trial_request import Repeats
    from sweeps.run import follow_study

    while (order := multihost.broadcast(None)) is not None:
        study = from_plan(order.plan, order.trials, Repeats(*order.repeats))
        shutdown = Shutdown()
        try:
            follow_study(study, Settings(**order.settings), order.source, shutdown)
        except Stopped:
            raise _terminated(shutdown) from None
        except Exception as error:
            if multihost.lost(error) or not multihost.all_fail(study.name):
                raise
    return exit_codes.DONE


def watched(asked: Hosts, command: str, run: Callable[[], int]) -> int:
    """The exit code of what runs in a process of its own, which JAX aborts where the first host is gone, or never came.

    For before JAX is imported. SIGTERM goes on to that process, which is waited for; it does not outlive this one.

    Args:
      asked: where the hosts find each other.
      command: a hash of what is asked for, the same on all of them.
      run: what host 0 runs.
    """
    say(str(asked))
    reader, writer = os.pipe()
    came = mmap.mmap(-1, 1)  # shared by both
    process = os.fork()
    if not process:
        os.close(writer)
        threading.Thread(target=_end_with, args=(reader,), daemon=True).start()
        say(multihost.start(asked, command, costs.code_hash(OURS)))
        came[0] = 1
        return ended(run if multihost.leads() else follow)
    os.close(reader)
    while True:
        try:
            _, status = os.waitpid(process, 0)
            break
        except Terminated:
            os.kill(process, signal.SIGTERM)
        except KeyboardInterrupt:
            os.kill(process, signal.SIGINT)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGABRT and not came[0]:
        say(f"error: {asked}: JAX does not find the others; is the port open to all of them?")
        return exit_codes.INVALID
    if code == -signal.SIGABRT:
        say(_GONE)
        return exit_codes.PEER_LOST
    return code if code >= 0 else 128 - code


def _end_with(parent: int) -> None:
    os.read(parent, 1)  # until the other end closes, as nobody writes to it
    os.kill(os.getpid(), signal.SIGTERM)


_GONE = "another host is gone; the same command on all hosts goes on"


def ended(run: Callable[[], int]) -> int:
    """The exit code of a command that runs on several hosts; it leaves the process where the others may be gone."""
    try:
        code = run()
        if multihost.leads():
            multihost.broadcast(None)
        return code
    except BadInput as error:
        multihost.leave(exit_codes.INVALID, f"error: {error}")
    except Terminated as terminated:
        say("terminated. Stored results are kept; run the same sweep to continue.")
        multihost.leave(exit_codes.PREEMPTED if terminated.saved else exit_codes.TERMINATED)
    except KeyboardInterrupt:
        multihost.leave(exit_codes.INTERRUPTED, "interrupted. Stored results are kept; run the same sweep to continue.")
    except Exception as error:
        if multihost.lost(error):
            multihost.leave(exit_codes.PEER_LOST, _GONE)
        why = worker.failure(error)
        multihost.leave(exit_codes.FAILED, "\n".join([why.cause, *(f"  {place}" for place in why.places)]))


def _order(study: Plan, settings: Settings, source: Mapping[str, Any] | None) -> Order:
    trials, repeats = study.request
    about = None if source is None else dict(source)
    return Order(os.devnull, study.plan(), trials, tuple(repeats), dataclasses.asdict(settings), about)


def _terminated(shutdown: Shutdown) -> Terminated:
    error = Terminated()
    error.saved = shutdown.saved
    return error
