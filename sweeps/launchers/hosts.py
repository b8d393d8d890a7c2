"""Multi-host launcher: several hosts run the same command and share the work of each study. Host 0 is the leader."""

import functools
import mmap
import os
import signal
import sys
import tempfile
from collections.abc import Callable

from harness.processes import addresses, multihost, processors, provenance
from harness.processes.shutdown import Shutdown, Stopped
from harness.run import TRAINING, RunProgress, Settings
from harness.trials.scheduler import Outcomes
from results import exit_codes
from results.bad_input import BadInput
from results.cli import Terminated
from results.durable import Folder
from results.plans.plan import Plan
from results.printing import say
from results.storage import attempts
from results.store import TakenOver
from sweeps.configured_study import Config, Studies
from sweeps.launchers import worker
from sweeps.launchers.launcher import Launch, check_over_hosts, record_failed
from sweeps.launchers.process_end import end_with
from sweeps.study_run import StudyOutcome, StudyUpdate, follow_study, run_study


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput for an invalid configuration, or for studies that cannot run on several hosts together."""
    _find(asked)
    check_over_hosts(studies, settings)


def devices(asked: Config, study: Plan, settings: Settings) -> int:
    """Returns the total number of devices of all hosts. The hosts must be connected."""
    import jax  # must not be imported before `around` forks

    return jax.device_count()


def leads(asked: Config) -> bool:
    """Returns whether this is host 0."""
    return _find(asked).index == 0


def _find(asked: Config) -> addresses.Hosts:
    where, count, index = (asked[key] for key in ("coordinator", "hosts", "host"))
    seconds = asked["heartbeat_seconds"], asked["connect_seconds"]
    return addresses.find(where, count, index, seconds[0], os.environ, seconds[1])


def run_all(asked: Config, launch: Launch) -> list[StudyOutcome]:
    """Runs studies on all hosts, one after another. Call it on host 0.

    Raises:
      Terminated: one of the hosts is terminated. Running trials are saved.
    """
    outcomes = []
    store = launch.store
    settings = launch.settings
    sources = launch.sources

    def on_progress(study: Plan, shutdown: Shutdown, progress: RunProgress) -> None:
        _note(progress)
        launch.report(StudyUpdate(study, progress))
        shutdown.time_is_up = launch.limits.is_over(study.name)

    for study in in_order(store, launch.studies):
        if launch.limits.reached is not None:
            break
        source = sources.get(study.name)
        multihost.broadcast(worker.Order(os.devnull, study, settings, source))  # only host 0 writes
        launch.report(StudyUpdate(study, RunProgress()))
        shutdown = Shutdown()
        progress = functools.partial(on_progress, study, shutdown)
        try:
            outcome = StudyOutcome(run_study(store, study, settings, progress, source=source, shutdown=shutdown))
        except Stopped:
            terminated = _terminated(shutdown)
            _record(store, study, terminated.code, f"with exit code {terminated.code}: a host was terminated")
            raise terminated from None
        except Exception as error:
            if multihost.lost(error):
                lost = _peer_lost(_marks)
                _record(store, study, lost, f"with exit code {lost}: another host is gone")
                raise
            is_taken = isinstance(error, TakenOver)
            why = worker.taken(error) if is_taken else worker.failure(error)
            code = exit_codes.PREEMPTED if is_taken else exit_codes.FAILED
            _record(store, study, code, why.cause)
            if is_taken:
                raise
            outcome = record_failed(store, study, "failed", why)
            if not multihost.all_fail(study.name):  # the others are still waiting in a collective
                raise
        outcomes.append(outcome)
        _note(RunProgress(saved=outcome.failure is None))
        launch.report(StudyUpdate(study, outcome=outcome))
    return outcomes


def in_order(store: Folder, studies: Studies) -> list[Plan]:
    """Sorts studies. Those whose last attempt failed are moved to the end."""

    def failed(study: Plan) -> bool:
        last = attempts.last(store / study.name)
        return last is not None and last.code == exit_codes.FAILED

    return sorted(studies, key=failed)


def follow() -> int:
    """Runs the studies of host 0 in lockstep with host 0, until it stops sending. Call it on the other hosts."""
    ended: Outcomes = {}
    while (order := multihost.broadcast(None)) is not None:
        _note(RunProgress(saved=bool(ended)))  # host 0 has stored the previous study
        shutdown = Shutdown()
        try:
            ended = follow_study(order.study, order.settings, order.source, shutdown, _note)
        except Stopped:
            raise _terminated(shutdown) from None
        except Exception as error:
            if multihost.lost(error) or not multihost.all_fail(order.study.name):
                raise
    return exit_codes.DONE


def around(asked: Config, command: str, run: Callable[[], int]) -> int:
    """Runs a command in a child process and returns its exit code. Call it before JAX is imported.

    JAX aborts the child if host 0 is lost or never connects. The child receives any SIGTERM sent to this process, and
    ends with this process. While the child does not train, it has no steps to save, so it is killed instead. (JAX
    handles SIGTERM, and the child would compile to the end.)

    Args:
      asked: configuration of the launcher.
      command: hash of the request, which must be equal on all hosts.
      run: function that runs the command of host 0.
    """
    place = _find(asked)
    if _CHILD in os.environ:  # started below
        parent, shared = map(int, os.environ.pop(_CHILD).split())
        return _child(place, command, run, parent, mmap.mmap(shared, _MARKS))
    processors.check_platforms()
    processors.allow_locked_memory()
    say(str(place))
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(_MARKS))
        file.flush()
        marks = mmap.mmap(file.fileno(), _MARKS)  # shared by both processes
        process = os.fork()
        if not process:
            os.close(writer)
            if "obstore" in sys.modules:  # the threads of its client of buckets do not survive a fork
                for descriptor in (reader, file.fileno()):
                    os.set_inheritable(descriptor, True)
                os.environ[_CHILD] = f"{reader} {file.fileno()}"
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
            return _child(place, command, run, reader, marks)
    os.close(reader)
    is_killed = False
    while True:
        try:
            _, status = os.waitpid(process, 0)
            break
        except Terminated:
            is_killed = not marks[_TRAINING]
            os.kill(process, signal.SIGKILL if is_killed else signal.SIGTERM)
        except KeyboardInterrupt:
            os.kill(process, signal.SIGINT)
    if is_killed:
        say(f"terminated. {_KEPT}")
        return exit_codes.TERMINATED
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGABRT and not marks[_CONNECTED]:
        say(f"error: {place}: JAX cannot connect to the other hosts. Check that all of them can reach the port.")
        return exit_codes.INVALID
    if code == -signal.SIGABRT:
        say(_GONE)
        return _peer_lost(marks)
    return code if code >= 0 else 128 - code


def _child(place: addresses.Hosts, command: str, run: Callable[[], int], parent: int, marks: mmap.mmap) -> int:
    """Connects to the other hosts, then runs a command or follows host 0. Returns the exit code."""
    global _marks
    _marks = marks
    end_with(parent)
    say(multihost.start(place, command, provenance.code_hash(worker.OURS)))
    marks[_CONNECTED] = 1
    return ended(run if multihost.leads() else follow)


_CHILD = (
    "SCALING_LIMITS_HOST"  # environment variable of a child: descriptors of a pipe from its parent and of its marks
)
_MARKS = 4  # number of marks of a child for its parent
_CONNECTED, _TRAINING, _STEPPED, _SAVED = range(_MARKS)
_marks = mmap.mmap(-1, _MARKS)
_GONE = "another host is gone. Run the same command on all hosts to continue."
_KEPT = "Stored results are kept. Run the same command to continue."


def ended(run: Callable[[], int]) -> int:
    """Runs a command and returns its exit code. Exits the process after an error, because other hosts may be gone."""
    try:
        code = run()
        if multihost.leads():
            multihost.broadcast(None)
        return code
    except BadInput as error:
        multihost.leave(exit_codes.INVALID, f"error: {error}")
    except Terminated as terminated:
        say(f"terminated. {_KEPT}")
        multihost.leave(terminated.code)
    except KeyboardInterrupt:
        multihost.leave(exit_codes.INTERRUPTED, f"interrupted. {_KEPT}")
    except Exception as error:
        if multihost.lost(error):
            multihost.leave(_peer_lost(_marks), _GONE)
        why = worker.failure(error)
        multihost.leave(exit_codes.FAILED, "\n".join([why.cause, *(f"  {place}" for place in why.places)]))


def _record(store: Folder, study: Plan, code: int, cause: str) -> None:
    """Records an ended attempt for `status`."""
    attempts.end(attempts.begin(store / study.name, "hosts"), code, cause)


def _note(progress: RunProgress) -> None:
    _marks[_TRAINING] = progress.doing == TRAINING
    _marks[_STEPPED] |= progress.steps > 0
    _marks[_SAVED] |= progress.saved


def _peer_lost(marks: mmap.mmap) -> int:
    """Returns the exit code after losing a host. Steps that were not saved are lost, so they are not progress."""
    return exit_codes.PEER_LOST if marks[_SAVED] else exit_codes.NO_PROGRESS


def _terminated(shutdown: Shutdown) -> Terminated:
    error = Terminated()
    error.saved = shutdown.saved
    error.advanced = bool(_marks[_STEPPED])
    return error
