"""SLURM launcher: submits studies as elements of job arrays, waits, and stops the jobs if the sweep is stopped.

Each element is a ``sweeps.launchers.attempt``, which saves its study and requeues itself before SLURM ends it. Jobs
outlive this process. If the same sweep is started again, it finds its queued and running jobs, and submits only the
remaining studies.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.run import Settings
from results import durable
from results.aliases import StringMap
from results.bad_input import BadInput, first_line, number_of
from results.cli import Terminated
from results.grouping import grouped
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.printing import say
from results.storage import attempts
from sweeps.configured_study import Config, Studies
from sweeps.launchers import attempt
from sweeps.launchers.launcher import (
    Launch,
    RemoteStudy,
    cause,
    check_least,
    check_over_hosts,
    check_retries,
    check_unwatched,
    cost,
    cpus_and_gpus,
    devices_asked,
    is_stored,
    wait,
)
from sweeps.launchers.slurm_queue import Queue, why
from sweeps.launchers.slurm_script import FOLDER, Resources, batch_script
from sweeps.study_run import StudyOutcome

Jobs = dict[str, str]  # by study
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
LISTED = 500  # maximum number of arrays in a query
_ASK_SECONDS = 60.0  # timeout of SLURM commands
_JOB = re.compile(r"[0-9]{1,12}_[0-9]{1,9}")
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
# Reasons for which SLURM never starts a job, even after other jobs end.
_NEVER = re.compile(
    "BadConstraints|PartitionTimeLimit|(Account|QOS)NotAllowed|Invalid(Account|QOS)|(Assoc|QOS)Max\\w+Per(Job|Node)Limit"
)
_LESS = "Request less, or another launcher.partition."
_HELD = "JobHeldUser"  # held by the user, or by ``_submit`` until the logs exist
_SPOKEN_FOR = {"array", "signal", "requeue", "no-requeue", "output", "error", "open-mode", "chdir", "hold", "parsable"}


class Seen(NamedTuple):
    """A job as reported by SLURM: its state, and the reason why it is waiting."""

    state: str
    reason: str


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput if the configuration is invalid, studies cannot run on several nodes, or SLURM is missing."""
    check_retries(asked)
    check_least(asked, cpus=1, gpus=0, minutes=1, nodes=1, at_once=1)
    if asked["grace_seconds"] < 1 or asked["poll_seconds"] <= 0:
        raise BadInput("launcher.grace_seconds and launcher.poll_seconds must be above 0")
    if asked["minutes"] is not None and 60 * asked["minutes"] <= asked["grace_seconds"]:
        raise BadInput(
            f"launcher.minutes={asked['minutes']} leaves no time before the launcher.grace_seconds="
            f"{asked['grace_seconds']} for saving. Use more minutes or fewer seconds."
        )
    for name, value in asked["sbatch"].items():
        if not re.fullmatch("[a-z][a-z-]*", name) or name in _SPOKEN_FOR:
            raise BadInput(f"launcher.sbatch.{name} cannot be set. Use other sbatch options, such as account or qos.")
        if re.search(r"[\r\n]", str(value)):
            raise BadInput(f"launcher.sbatch.{name} must be a single line")
    if asked["nodes"] > 1:
        check_over_hosts(studies, settings)
        check_unwatched(asked)
    for name in COMMANDS:
        if shutil.which(name) is None:
            raise BadInput(f"launcher=slurm needs {name}, which is not on this machine. Run it on a login node.")


def devices(asked: Config, study: Plan, settings: Settings) -> int:
    """Returns the total number of devices that run a study on all nodes."""
    if asked["nodes"] == 1:
        return devices_asked(asked, study, settings)
    return int(asked["nodes"] * (cpus_and_gpus(asked, study, settings)[1] or 1))


def run_all(asked: Config, launch: Launch) -> list[StudyOutcome]:
    """Runs studies as SLURM jobs.

    Args:
      asked: configuration of the launcher.
      launch: studies to run.

    Returns:
      An outcome for each study that ended. Without ``wait``, only studies that had already ended get an outcome.

    Raises:
      BadInput: SLURM rejects a job.
      Terminated: this process must end. Running jobs are saved.
    """
    jobs = _adopted(launch)
    if jobs:
        say(f"{number_of(len(jobs), 'study')} already queued or running")
    missing = [s for s in sorted(launch.studies, key=cost, reverse=True) if s.name not in jobs]
    ended = [s for s in missing if is_stored(launch.folder, s)]  # stored by a job that has just ended
    outcomes = [RemoteStudy(launch, study).end(None) for study in ended]
    jobs |= _submit_all(asked, launch, [s for s in missing if s not in ended])
    if not asked["wait"]:
        say(f"{number_of(len(jobs), 'study')} queued. `python -m sweeps.status` shows them.")
        return outcomes
    studies = {study.name: RemoteStudy(launch, study) for study in launch.studies if study.name in jobs}
    queue = Queue()
    try:
        while jobs:
            seen = _seen(jobs.values())
            over = launch.limits.reached
            seen_jobs = {name: seen[job] for name, job in jobs.items() if job in seen} if seen else {}
            waiting = {name: seen_job.reason for name, seen_job in seen_jobs.items() if seen_job.state == "PENDING"}
            never = {name for name, reason in waiting.items() if _NEVER.fullmatch(reason)}
            if len(never) == len(jobs) and not outcomes:
                _withdraw(launch, jobs)
                raise BadInput(f"SLURM can never run {number_of(len(jobs), 'study')}: {why(waiting.values())}. {_LESS}")
            for name, job in list(jobs.items()) if seen is not None else ():
                now = seen_jobs.get(name)
                if now is None or now.state in _ENDED:
                    outcomes += _end(launch, studies[name], jobs.pop(name), now and now.state)
                elif name in never:
                    _withdraw(launch, {name: jobs.pop(name)})
                    outcomes.append(studies[name].end(f"SLURM can never run job {job}: {now.reason}. {_LESS}"))
                elif now.state == "RUNNING":
                    studies[name].begins()
                    studies[name].look()
                    if launch.limits.is_over(name):
                        _signal([job], "HUP")
                elif now.state == "PENDING":
                    studies[name].waits()
                    if over is not None:
                        _cancel([job], "PENDING")
            queue.report([reason for name, reason in waiting.items() if name in jobs])
            wait(asked["poll_seconds"] if jobs else 0, launch.on_wait)
    except (Terminated, KeyboardInterrupt) as error:
        saved = _stop(list(jobs.values()), asked)
        for name in jobs:
            _forget(launch.folder / name, jobs[name])
        if isinstance(error, Terminated):
            error.saved = saved
        raise
    return outcomes


def _end(launch: Launch, study: RemoteStudy, job: str, state: str | None) -> Iterator[StudyOutcome]:
    """Yields the outcome of a study whose job has ended, unless the sweep removed the job before it started.

    Args:
      launch: launch of the sweep.
      study: study of the job.
      job: id of the job.
      state: final state of the job, or None if SLURM no longer has it.
    """
    past = [past_attempt for past_attempt in attempts.read(launch.folder / study.study.name) if past_attempt.job == job]
    if not past or state == "COMPLETED" or (state is None and not study.ledger().unfinished):
        yield study.end(None)
        return
    if past[-1].began is None:
        past[-1].log.unlink(missing_ok=True)
        if launch.limits.reached is None:
            text = _tail(launch.folder / FOLDER / f"{job}.out")
            yield study.end(f"job {job} ended before it started{f': {text}' if text else ', perhaps cancelled'}")
        elif len(past) > 1:
            yield study.end(None)
        return
    if past[-1].code is None:
        attempt.record_lost(launch.folder, study.study.name, f"job {job} is gone")
    yield study.end(f"job {job}: {cause(launch.folder / study.study.name)}")


def _adopted(launch: Launch) -> Jobs:
    """Returns the queued and running jobs of earlier runs of the sweep, by study."""
    last = {study.name: attempts.last(launch.folder / study.name) for study in launch.studies}
    named = {name: past.job or "" for name, past in last.items() if past and past.launcher == "slurm"}
    jobs = {name: job for name, job in named.items() if _JOB.fullmatch(job)}
    seen = _seen(jobs.values()) if jobs else {}
    if seen is None:
        raise BadInput("squeue does not answer, so the running studies are unknown. Try again later.")
    left = {name: job for name, job in jobs.items() if job in seen and seen[job].state not in _ENDED}
    for name in jobs.keys() - left.keys():
        _forget(launch.folder / name, jobs[name])
    held = [job for job in left.values() if seen[job] == Seen("PENDING", _HELD)]
    if held:
        say(f"releasing {number_of(len(held), 'held job')}")
        _ask(["scontrol", "release", *held])
    return left


def _forget(folder: Path, job: str) -> None:
    """Removes the logs of those attempts of a job that never started."""
    for past_attempt in attempts.read(folder):
        if past_attempt.job == job and past_attempt.began is None:
            past_attempt.log.unlink(missing_ok=True)


def _submit_all(asked: Config, launch: Launch, studies: Studies) -> Jobs:
    """Submits studies in arrays, grouped by resources, up to SLURM's size limit. Returns the job of each study.

    If an error occurs, all submitted jobs are removed from the queue.
    """

    def needs(study: Plan) -> Resources:
        return Resources(*cpus_and_gpus(asked, study, launch.settings), KINDS[study.kind].alone)

    jobs: Jobs = {}
    longest = _longest_array() if studies else 0
    try:
        for need, members in grouped(studies, needs).items():
            for first in range(0, len(members), longest):
                jobs |= _submit(asked, launch, need, members[first : first + longest])
    except BaseException:
        _withdraw(launch, jobs)
        raise
    return jobs


def _submit(asked: Config, launch: Launch, need: Resources, studies: Studies) -> Jobs:
    """Submits an array, and returns the job of each study. The array is held until the jobs are recorded in logs."""
    output = launch.folder / FOLDER
    durable.make_folder(output)
    script = batch_script(asked, launch, need, studies)
    jobs: Jobs = {}
    try:
        with attempt.blocked(signal.SIGINT, signal.SIGTERM):  # an interrupt would lose the id of the array
            done = _ask(["sbatch", "--parsable", "--hold"], script)
            array = done.stdout.strip().partition(";")[0]
            if not done.returncode:
                jobs = {study.name: f"{array}_{i}" for i, study in enumerate(studies)}
        if not jobs:
            raise BadInput(f"sbatch rejects the job: {_error(done)}")
        for name, job in jobs.items():
            attempts.begin(launch.folder / name, "slurm", job, waits=True)
        if (done := _ask(["scontrol", "release", array])).returncode:
            raise BadInput(f"SLURM cannot run the job: {_error(done)}")
    except BaseException:
        _withdraw(launch, jobs)
        raise
    gpus = f" and {number_of(need.gpus, 'GPU')}" if need.gpus else ""
    say(f"job {array}: {number_of(len(studies), 'study')}, each with {number_of(need.cpus, 'CPU')}{gpus}")
    return jobs


def _seen(jobs: Iterable[str]) -> dict[str, Seen] | None:
    """Returns the queued, running and recently ended jobs of arrays, or None if SLURM does not respond."""
    seen = {}
    arrays = sorted({job.partition("_")[0] for job in jobs}, key=int)
    for first in range(0, len(arrays), LISTED):
        listed = ",".join(arrays[first : first + LISTED])
        about = "--format=%F_%K %T %r"
        done = _ask(["squeue", "--noheader", "--array", "--all", "--states=all", about, f"--jobs={listed}"])
        if done.returncode and "Invalid job id" not in done.stderr:
            say(f"squeue does not answer: {_error(done)}")
            return None
        for line in done.stdout.splitlines():
            job, state, reason = (*line.strip().split(" ", 2), "", "")[:3]
            if state:
                seen[job] = Seen(state, reason)
    return seen


def _stop(jobs: Sequence[str], asked: Config) -> bool:
    """Saves and ends jobs, and waits for them. Returns whether any job was running."""
    if not jobs:
        return False
    say(f"stopping {number_of(len(jobs), 'SLURM job')}. Running trials are saved first.")
    _cancel(jobs, "PENDING")
    _signal(jobs, "USR1")
    deadline = time.monotonic() + attempt.KILL_SECONDS + asked["poll_seconds"]
    ran = set()
    while time.monotonic() < deadline:
        seen = _seen(jobs)
        states = {job: job_seen.state for job, job_seen in (seen or {}).items() if job in jobs}
        ran |= {job for job, state in states.items() if state == "RUNNING"}
        if seen is not None and all(state in ("PENDING", *_ENDED) for state in states.values()):
            _cancel(jobs, "PENDING")  # a job that was preempted in the meantime is queued again
            break
        time.sleep(min(1.0, asked["poll_seconds"]))
    else:
        _cancel(jobs)
    return bool(ran)


def _signal(jobs: Sequence[str], name: str) -> None:
    _ask(["scancel", "--batch", f"--signal={name}", "--state=RUNNING", *jobs])


def _cancel(jobs: Sequence[str], state: str | None = None) -> None:
    filters = [f"--state={state}"] if state else []
    _ask(["scancel", *filters, *jobs])


def _withdraw(launch: Launch, jobs: StringMap) -> None:
    """Removes jobs, given by study, from the queue before they start."""
    if jobs:
        _cancel(list(jobs.values()))
    for name, job in jobs.items():
        _forget(launch.folder / name, job)


def _longest_array() -> int:
    """Returns SLURM's maximum number of elements in an array."""
    done = _ask(["scontrol", "show", "config"])
    if done.returncode:
        raise BadInput(f"cannot reach SLURM from this machine: {_error(done)}")
    size = re.search(r"MaxArraySize\s*=\s*([0-9]+)", done.stdout)
    return max(1, int(size[1]) - 1) if size else 1000


def _ask(words: Sequence[str], text: str | None = None) -> "subprocess.CompletedProcess[str]":
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS)
    return subprocess.CompletedProcess(words, 1, "", f"{words[0]} took longer than {_ASK_SECONDS:.0f} s")


def _error(done: "subprocess.CompletedProcess[str]") -> str:
    return first_line(done.stderr.strip() or "no reason given")


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join(path.read_text(errors="replace").split()[-40:])
    return ""
