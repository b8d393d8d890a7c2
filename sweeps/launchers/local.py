"""Local launcher: runs one worker process per physical core or accelerator of this machine.

Studies of an exclusive kind run after all others, one at a time. Each runs in a separate process on the cores that its
plan requests. This module does not initialize JAX.
"""

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Hashable, Sequence
from typing import Any

from harness.kinds import RUNNERS
from harness.processes import processors
from harness.run import RunProgress, Settings
from harness.step.batch_partition import of_settings
from results import cli, exit_codes
from results.bad_input import number_of
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.storage import attempts
from sweeps.configured_study import Config, Studies
from sweeps.launchers import worker
from sweeps.launchers.launcher import (
    Launch,
    RetryPolicy,
    WorkerLost,
    check_least,
    check_retries,
    cost,
    failed_too_often,
    record_failed,
)
from sweeps.launchers.process_end import exit_description, out_of_memory_kills
from sweeps.launchers.slots import Slot, occupied, slot_alone, slots
from sweeps.launchers.worker import Failure
from sweeps.launchers.worker_process import Worker, end_all, start
from sweeps.study_run import RunSummary, StudyOutcome, StudyUpdate

WAIT_SECONDS = 1.0  # maximum time between checks of the sweep


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput for an invalid configuration."""
    check_least(asked, workers=1)
    check_retries(asked)


def run_all(asked: Config, launch: Launch) -> list[StudyOutcome]:
    """Runs studies in worker processes, largest first, followed by exclusive studies in the given order.

    A study that raises an error is recorded as failed. A study whose worker dies is retried as ``RetryPolicy`` allows,
    and then recorded as lost. All other studies continue.

    Args:
      asked: the configuration of the launcher.
      launch: studies to run.

    Returns:
      An outcome for each study that started, in the order in which the studies ended.
    """
    processors.check_platforms()
    outcomes = []
    together = [study for study in launch.studies if not KINDS[study.kind].alone]
    if together:
        outcomes += _Pool(asked, launch, together, slots(asked["workers"], of_settings(launch.settings).devices)).run()
    exclusive = [study for study in launch.studies if KINDS[study.kind].alone]
    for _, group in itertools.groupby(exclusive, key=lambda study: RUNNERS[study.kind].process(study)):
        if launch.limits.reached is None:
            studies = list(group)
            outcomes += _Pool(asked, launch, studies, [slot_alone(studies[0].devices)]).run()
    return outcomes


class _Pool:
    """A pool of workers that run studies: one per slot, or fewer if there are fewer studies."""

    def __init__(self, asked: Config, launch: Launch, studies: Studies, slots: Sequence[Slot]) -> None:
        self._launch = launch
        self._silence_seconds = asked["silence_seconds"]
        self._queue = sorted(studies, key=cost)  # pop() takes the largest
        self._policies = {study.name: RetryPolicy(asked["retries"]) for study in studies}
        self._outcomes: list[StudyOutcome] = []
        self._advanced = False  # whether any study took a step or ended
        self._kills = out_of_memory_kills()
        self._accelerated = bool(processors.accelerators()[1])
        self._slots = occupied(slots, len(studies))
        self._workers = [start(i, *slot) for i, slot in enumerate(self._slots)]

    def run(self) -> list[StudyOutcome]:
        """Runs all studies, and returns their outcomes in the order in which the studies ended."""
        try:
            while self._queue or any(member.study is not None for member in self._workers):
                self._give_orders()
                busy: dict[Any, Worker] = {
                    member.orders: member for member in self._workers if member.study is not None
                }
                heard = multiprocessing.connection.wait(list(busy), WAIT_SECONDS)
                if not heard:
                    self._launch.on_wait()
                for orders, member in busy.items():
                    self._watch(member, is_heard=orders in heard)
                if self._launch.limits.reached is not None:
                    self._queue.clear()
                for orders in heard:
                    self._hear(busy[orders])
        except cli.Terminated as terminated:
            preempted = any(policy.preempted for policy in self._policies.values())
            terminated.saved = exit_codes.PREEMPTED in end_all(self._workers) or preempted
            terminated.advanced = self._advanced
            raise
        finally:
            end_all(self._workers)
        return self._outcomes

    def _give_orders(self) -> None:
        for idle in self._workers:
            if idle.study is None and self._queue:
                in_use = {_programs(member.study) for member in self._workers if member.study is not None}
                study = _next(self._queue, in_use)
                store = str(self._launch.store)
                source = self._launch.sources.get(study.name)
                idle.take(study, worker.Order(store, study, self._launch.settings, source))
                self._launch.report(StudyUpdate(study, RunProgress()))

    def _watch(self, busy: Worker, *, is_heard: bool) -> None:
        """Ends studies that have reached a limit, and reports silent workers."""
        assert busy.study is not None
        if self._launch.limits.is_over(busy.study.name):
            busy.hurry()
        if is_heard:
            return
        seconds = busy.silent(self._silence_seconds, accelerated=self._accelerated)
        if seconds != busy.reported_silence:
            busy.reported_silence = seconds
            self._launch.report(StudyUpdate(busy.study, busy.progress, silent=seconds))

    def _hear(self, busy: Worker) -> None:
        """Handles the next report of a worker, or the death of the worker."""
        report = busy.hear()
        study = busy.study
        assert study is not None
        if report is None:
            self._bury(busy, study)
            return
        busy.heard = True
        if report.kind == "progress":
            busy.progress = report.value
            busy.advanced |= report.value.steps > 0
            self._advanced |= busy.advanced
            self._launch.report(StudyUpdate(study, report.value))
            return
        busy.study = None
        if report.kind == "done":
            self._advanced = True
            busy.ended(exit_codes.DONE, "done")
            self._end(study, StudyOutcome(report.value))
        elif report.kind == "taken":
            busy.ended(exit_codes.PREEMPTED, report.value.cause)  # not an error of the study
            self._end(study, StudyOutcome(RunSummary(study.name), *report.value))
        else:
            busy.ended(exit_codes.FAILED, report.value.cause)
            self._end(study, record_failed(self._launch.store, study, "failed", report.value))

    def _end(self, study: Plan, outcome: StudyOutcome) -> None:
        self._outcomes.append(outcome)
        self._launch.report(StudyUpdate(study, outcome=outcome))

    def _bury(self, dead: Worker, study: Plan) -> None:
        """Replaces a dead worker. Retries its study or records it as lost or failed."""
        dead.bury()
        self._workers[dead.slot] = start(dead.slot, *self._slots[dead.slot])
        code = dead.process.returncode
        policy = self._policies[study.name]
        no_memory = False
        if code == -signal.SIGKILL and not dead.ended_silent:
            before = self._kills
            self._kills = out_of_memory_kills()
            no_memory = self._kills > before
        end = exit_description(code, no_memory=no_memory or None)
        if dead.ended_silent:
            end = f"by launcher.silence_seconds={self._silence_seconds:g}, without a sign of life"
        dead.ended(code, end)
        is_preempted = code == exit_codes.PREEMPTED
        if not is_preempted:
            RUNNERS[study.kind].after_death(study)
        limit = self._launch.limits.study.max_failures
        allowed = not failed_too_often(self._launch.store / study.name, limit)
        # A worker reports a study's errors before it ends, so any other code means that the process was lost.
        counted = code if is_preempted else exit_codes.PEER_LOST
        if policy.again(counted, advanced=dead.advanced, out_of_memory=no_memory) and allowed:
            self._queue.append(study)
            self._launch.report(StudyUpdate(study))
        elif attempts.VARIABLE in os.environ and not no_memory and not is_preempted:
            raise WorkerLost(f"{study.name}: its process died {end}")
        elif no_memory:
            why = "its process ran out of memory and was killed. Use more memory, fewer lanes or microbatches=…"
            self._end(study, record_failed(self._launch.store, study, "failed", Failure(why)))
        else:
            times = policy.preempted if is_preempted else policy.lost
            why = f"its process died {number_of(times, 'time')}, last {end}"
            if not allowed:
                why += f" (limits.study.max_failures={limit})"
            self._end(study, record_failed(self._launch.store, study, "lost", Failure(why)))


def _programs(study: Plan) -> Hashable:
    return RUNNERS[study.kind].programs(study)


def _next(queue: list[Plan], in_use: set) -> Plan:
    """Takes the largest study. Prefers studies whose programs are not in use, since these may still be compiling."""
    for i in reversed(range(len(queue))):
        if _programs(queue[i]) not in in_use:
            return queue.pop(i)
    return queue.pop()
