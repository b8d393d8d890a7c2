"""SLURM: studies as elements of job arrays, submitted, waited for and, where this sweep is stopped, ended in order.

Each element is ``sweeps.launchers.attempt``, which saves its study and puts itself back into the queue where SLURM is
about to take it away. Jobs outlive this process: the same sweep finds those that wait or run, and submits the others.
"""

import collections
import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.run import Settings
from results import durable
from results.bad_input import BadInput, number_of
from results.cli import Terminated, say
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.progress import SECONDS
from results.storage import attempts
from results.storage.folders import LAUNCHERS
from sweeps.launchers import attempt
from sweeps.launchers.launcher import Launch, RemoteStudy, cause, is_stored, wait
from sweeps.launchers.local import cost
from sweeps.run import StudyOutcome

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
FOLDER = LAUNCHERS[0]  # of a store: what jobs print before their logs are there
LISTED = 500  # jobs in one question to SLURM
_ASK_SECONDS = 60.0  # that SLURM has to answer
_JOB = re.compile(r"[0-9]{1,12}_[0-9]{1,9}")
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
# Reasons for which SLURM never begins a job, whatever ends before it.
_NEVER = re.compile(
    "BadConstraints|PartitionTimeLimit|(Account|QOS)NotAllowed|Invalid(Account|QOS)|(Assoc|QOS)Max\\w+Per(Job|Node)Limit"
)
_LESS = "ask for less, or for another launcher.partition"
_HELD = "JobHeldUser"  # by ``_submit``, until its logs are written, or by the user
_SPOKEN_FOR = {"array", "signal", "requeue", "no-requeue", "output", "error", "open-mode", "chdir", "hold", "parsable"}


class Resources(NamedTuple):
    """What a study needs; those that need the same are one array."""

    cpus: int
    gpus: int
    exclusive: bool


class Seen(NamedTuple):
    """A job as SLURM shows it: its state, and why it waits if it does."""

    state: str
    reason: str


def check(asked: Mapping[str, Any]) -> None:
    """Raises BadInput for values that cannot be, or where there is no SLURM."""
    for key in ("cpus", "gpus", "minutes", "nodes", "at_once"):
        if asked[key] is not None and asked[key] < (0 if key == "gpus" else 1):
            raise BadInput(f"launcher.{key} must be at least {0 if key == 'gpus' else 1}, not {asked[key]}")
    if asked["grace_seconds"] < 1 or asked["poll_seconds"] <= 0:
        raise BadInput("launcher.grace_seconds and launcher.poll_seconds must be above 0")
    if asked["minutes"] is not None and 60 * asked["minutes"] <= asked["grace_seconds"]:
        raise BadInput(
            f"launcher.minutes={asked['minutes']} leaves no time before the launcher.grace_seconds="
            f"{asked['grace_seconds']} in which a study is saved; give more minutes or fewer seconds"
        )
    for name, value in asked["sbatch"].items():
        if not re.fullmatch("[a-z][a-z-]*", name) or name in _SPOKEN_FOR:
            raise BadInput(f"launcher.sbatch.{name} is no option of sbatch that can be given; such as account or qos")
        if re.search(r"[\r\n]", str(value)):
            raise BadInput(f"launcher.sbatch.{name} has more than one line")
    if missing := [name for name in COMMANDS if shutil.which(name) is None]:
        raise BadInput(f"launcher=slurm needs {missing[0]}, which is not on this machine; run it on a login node")


def run_all(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    """Runs studies as jobs of SLURM.

    Args:
      asked: the configuration of the launcher.
      launch: what is to be run.

    Returns:
      An outcome per study that ended; without ``wait`` only of those that ended before.

    Raises:
      BadInput: SLURM refuses a job.
      Terminated: this process is to end; jobs that ran are saved.
    """
    jobs = _adopted(launch)
    if jobs:
        say(f"{number_of(len(jobs), 'study')} of these are in the queue already, or run")
    missing = [s for s in sorted(launch.studies, key=cost, reverse=True) if s.name not in jobs]
    ended = [s for s in missing if is_stored(launch.store, s)]  # by a job, since this command looked
    outcomes = [RemoteStudy(launch, study).end(None) for study in ended]
    jobs |= _submit_all(asked, launch, [s for s in missing if s not in ended])
    if not asked["wait"]:
        say(f"{number_of(len(jobs), 'study')} in the queue; `python -m sweeps.status` shows them")
        return outcomes
    studies = {study.name: RemoteStudy(launch, study) for study in launch.studies if study.name in jobs}
    queue = _Queue()
    try:
        while jobs:
            seen, over = _seen(jobs.values()), launch.limits.reached
            known = {name: seen[job] for name, job in jobs.items() if job in seen} if seen else {}
            waiting = {name: one.reason for name, one in known.items() if one.state == "PENDING"}
            never = {name for name, reason in waiting.items() if _NEVER.fullmatch(reason)}
            if len(never) == len(jobs) and not outcomes:
                _withdraw(launch, jobs)
                raise BadInput(
                    f"SLURM can never run {number_of(len(jobs), 'study')}: {_why(waiting.values())}; {_LESS}"
                )
            for name, job in list(jobs.items()) if seen is not None else ():
                now = known.get(name)
                if now is None or now.state in _ENDED:
                    outcomes += _end(launch, studies[name], jobs.pop(name), now and now.state)
                elif name in never:
                    _withdraw(launch, {name: jobs.pop(name)})
                    outcomes.append(studies[name].end(f"SLURM can never run job {job}: {now.reason}; {_LESS}"))
                elif now.state == "RUNNING":
                    studies[name].begins()
                    studies[name].look()
                    if launch.limits.is_over(name):
                        _signal([job], "HUP")
                elif now.state == "PENDING":
                    studies[name].waits()
                    if over is not None:
                        _cancel([job], "PENDING")
            queue.tell([reason for name, reason in waiting.items() if name in jobs])
            wait(asked["poll_seconds"] if jobs else 0, launch.on_wait)
    except (Terminated, KeyboardInterrupt) as error:
        saved = _stop(list(jobs.values()), asked)
        for name in jobs:
            _forget(launch.store / name, jobs[name])
        if isinstance(error, Terminated):
            error.saved = saved
        raise
    return outcomes


def _end(launch: Launch, study: RemoteStudy, job: str, state: str | None) -> Iterator[StudyOutcome]:
    """The outcome of a study whose job has ended; none of one that was ended before it began.

    Args:
      launch: of the sweep.
      study: the study.
      job: its job.
      state: in which it ended; None where SLURM does not know the job any more.
    """
    own = [each for each in attempts.read(launch.store / study.study.name) if each.job == job]
    if not own or state == "COMPLETED" or (state is None and study.is_done()):
        yield study.end(None)
        return
    if own[-1].began is None:
        own[-1].log.unlink(missing_ok=True)
        if launch.limits.reached is None:
            output = launch.store / FOLDER / f"{job}.out"
            text = _tail(output)
            yield study.end(f"job {job} ended before it began{f': {text}' if text else ', as if it were cancelled'}")
        elif len(own) > 1:
            yield study.end(None)
        return
    if own[-1].code is None:
        attempt.record_lost(launch.store, study.study.name, f"job {job} is gone")
    yield study.end(f"job {job}: {cause(launch.store / study.study.name)}")


def _adopted(launch: Launch) -> dict[str, str]:
    """The jobs, by their studies, that an earlier run of the sweep submitted, and that wait or run still."""
    last = {s.name: attempts.read(launch.store / s.name)[-1:] for s in launch.studies}
    named = {name: own[0].job or "" for name, own in last.items() if own and own[0].launcher == "slurm"}
    jobs = {name: job for name, job in named.items() if _JOB.fullmatch(job)}
    seen = _seen(jobs.values()) if jobs else {}
    if seen is None:
        raise BadInput("squeue does not answer, so it is not known which studies run; try again later")
    left = {name: job for name, job in jobs.items() if job in seen and seen[job].state not in _ENDED}
    for name in jobs.keys() - left.keys():
        _forget(launch.store / name, jobs[name])
    held = [job for job in left.values() if seen[job] == Seen("PENDING", _HELD)]
    if held:
        say(f"releasing {number_of(len(held), 'job')} that SLURM holds")
        _ask(["scontrol", "release", *held])
    return left


def _forget(folder: Path, job: str) -> None:
    """Removes the logs of attempts that never began."""
    for each in attempts.read(folder):
        if each.job == job and each.began is None:
            each.log.unlink(missing_ok=True)


def _arrays(
    asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings
) -> Iterator[tuple[Resources, list[Plan]]]:
    """Studies by what they need, in arrays that are not longer than SLURM allows."""
    by_need: dict[Resources, list[Plan]] = {}
    for study in studies:
        devices = study.devices or settings.shards or 1
        gpus = devices if asked["gpus"] is None else asked["gpus"]
        cpus = asked["cpus"] or (1 if gpus else devices)
        by_need.setdefault(Resources(cpus, gpus, KINDS[study.kind].alone), []).append(study)
    most = _longest_array() if studies else 0
    for need, own in by_need.items():
        for first in range(0, len(own), most):
            yield need, own[first : first + most]


def _submit_all(asked: Mapping[str, Any], launch: Launch, studies: Sequence[Plan]) -> dict[str, str]:
    """Submits studies; the job of each. If that does not come to its end, none of them stays in the queue."""
    jobs: dict[str, str] = {}
    try:
        for need, own in _arrays(asked, studies, launch.settings):
            jobs |= _submit(asked, launch, need, own)
    except BaseException:
        _withdraw(launch, jobs)
        raise
    return jobs


def _submit(asked: Mapping[str, Any], launch: Launch, need: Resources, studies: Sequence[Plan]) -> dict[str, str]:
    """Submits an array; the job of each study. It is held until the logs say which job is whose."""
    output = launch.store / FOLDER
    durable.make_folder(output)
    script = batch_script(asked, launch, need, studies)
    jobs: dict[str, str] = {}
    try:
        with _uninterrupted():  # else SLURM may have an array of which this knows no number
            done = _ask(["sbatch", "--parsable", "--hold"], script)
            array = done.stdout.strip().partition(";")[0]
            if not done.returncode:
                jobs = {study.name: f"{array}_{i}" for i, study in enumerate(studies)}
        if not jobs:
            raise BadInput(f"sbatch refuses the job: {_first_line(done.stderr)}")
        for name, job in jobs.items():
            attempts.begin(launch.store / name, "slurm", job, waits=True)
        if (done := _ask(["scontrol", "release", array])).returncode:
            raise BadInput(f"SLURM cannot run the job: {_first_line(done.stderr)}")
    except BaseException:
        _withdraw(launch, jobs)
        raise
    say(f"job {array}: {number_of(len(studies), 'study')}, each with {number_of(need.cpus, 'CPU')}{_and_gpus(need)}")
    return jobs


def batch_script(asked: Mapping[str, Any], launch: Launch, need: Resources, studies: Sequence[Plan]) -> str:
    """The script of an array, one element per study."""
    output = (launch.store / FOLDER).absolute()
    options = {
        "job-name": "scaling-limits",
        "array": f"0-{len(studies) - 1}" + (f"%{asked['at_once']}" if asked["at_once"] else ""),
        "output": f"{str(output).replace('%', '%%')}/%A_%a.out",
        "open-mode": "append",
        "requeue": None,
        "signal": f"B:USR2@{asked['grace_seconds']}",
        "chdir": Path.cwd(),
        "cpus-per-task": need.cpus,
        "nodes": asked["nodes"],
        "ntasks-per-node": 1,
        **({"gpus-per-node": need.gpus} if need.gpus else {}),
        **({"exclusive": None} if need.exclusive else {}),
        **{key: asked[name] for key, name in _NAMES.items() if asked[name] is not None},
        **asked["sbatch"],
    }
    lines = [f"#SBATCH --{key}" + ("" if value is None else f"={_word(value)}") for key, value in options.items()]
    python = [sys.executable, "-P", "-m", "sweeps.launchers.attempt", str(launch.store.absolute())]
    elements = []
    most = launch.limits.study.max_failures
    retries = asked["retries"] if most is None else min(asked["retries"], most - 1)
    for study in studies:
        about = [f"--retries={retries}", f"--nodes={asked['nodes']}"]
        silence = asked["silence_seconds"]
        about += [] if silence is None else [f"--silence-seconds={silence}"]
        about += [f"--port={attempt.port_of(study.name)}", "--"]
        elements.append(shlex.join([*python, study.name, *about, *attempt.joined(launch.words[study.name])]))
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            f"export PYTHONPATH={shlex.quote(str(attempt.ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}",
            f"export SCALING_LIMITS_OUTPUT={shlex.quote(str(output))}"
            "/${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}.out",
            "elements=(",
            *(f"  {shlex.quote(element)}" for element in elements),
            ")",
            'eval "exec ${elements[$SLURM_ARRAY_TASK_ID]}"',
            "",
        ]
    )


_NAMES = {"mem": "mem", "time": "minutes", "partition": "partition"}


class _Queue:
    """The jobs that wait: tells how many there are and why, now and then if that changes."""

    def __init__(self) -> None:
        self._told, self._due = "", 0.0

    def tell(self, reasons: Sequence[str]) -> None:
        """Tells of it if it is due, given SLURM's reason for each job that waits."""
        known = [reason for reason in reasons if reason != "None"]
        text = f"{len(reasons)} queued: {_why(known)}" if known else ""
        if text not in ("", self._told) and time.monotonic() >= self._due:
            self._told, self._due = text, time.monotonic() + SECONDS
            say(text)


def _why(reasons: Iterable[str]) -> str:
    """Reasons, with how often each is given if there are several, the most frequent first."""
    counts = collections.Counter(reasons).most_common()
    return ", ".join(reason if len(counts) == 1 else f"{count} {reason}" for reason, count in counts)


def _seen(jobs: Iterable[str]) -> dict[str, Seen] | None:
    """The jobs that wait, run or ended a while ago, as far as SLURM knows them; None if it does not answer."""
    seen: dict[str, Seen] = {}
    arrays = sorted({job.partition("_")[0] for job in jobs}, key=int)
    for first in range(0, len(arrays), LISTED):
        own = ",".join(arrays[first : first + LISTED])
        about = "--format=%F_%K %T %r"
        done = _ask(["squeue", "--noheader", "--array", "--all", "--states=all", about, f"--jobs={own}"])
        if done.returncode and "Invalid job id" not in done.stderr:
            say(f"squeue does not answer: {_first_line(done.stderr)}")
            return None
        for line in done.stdout.splitlines():
            job, state, reason = (*line.strip().split(" ", 2), "", "")[:3]
            if state:
                seen[job] = Seen(state, reason)
    return seen


def _stop(jobs: Sequence[str], asked: Mapping[str, Any]) -> bool:
    """Ends jobs in order, and waits for them; whether anything was saved."""
    if not jobs:
        return False
    say(f"stopping {number_of(len(jobs), 'job')} of SLURM; what runs is saved first")
    _cancel(jobs, "PENDING")
    _signal(jobs, "USR1")
    deadline = time.monotonic() + attempt.KILL_SECONDS + asked["poll_seconds"]
    ran: set[str] = set()
    while time.monotonic() < deadline:
        seen = _seen(jobs)
        own = {job: one.state for job, one in (seen or {}).items() if job in jobs}
        ran |= {job for job, state in own.items() if state == "RUNNING"}
        if seen is not None and all(state in ("PENDING", *_ENDED) for state in own.values()):
            _cancel(jobs, "PENDING")  # one that was preempted meanwhile is back in the queue
            break
        time.sleep(min(1.0, asked["poll_seconds"]))
    else:
        _cancel(jobs)
    return bool(ran)


def _signal(jobs: Sequence[str], name: str) -> None:
    _ask(["scancel", "--batch", f"--signal={name}", "--state=RUNNING", *jobs])


def _cancel(jobs: Sequence[str], state: str | None = None) -> None:
    _ask(["scancel", *([f"--state={state}"] if state else []), *jobs])


def _withdraw(launch: Launch, jobs: Mapping[str, str]) -> None:
    """Takes jobs, by their studies, out of the queue before they have begun."""
    if jobs:
        _cancel(list(jobs.values()))
    for name, job in jobs.items():
        _forget(launch.store / name, job)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM wait, for this process and those that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _longest_array() -> int:
    """As many elements as SLURM allows in an array."""
    done = _ask(["scontrol", "show", "config"])
    if done.returncode:
        raise BadInput(f"there is no SLURM to be reached from here: {_first_line(done.stderr)}")
    found = re.search(r"MaxArraySize\s*=\s*([0-9]+)", done.stdout)
    return max(1, int(found[1]) - 1) if found else 1000


def _ask(words: Sequence[str], text: str | None = None) -> "subprocess.CompletedProcess[str]":
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS)
    return subprocess.CompletedProcess(words, 1, "", f"{words[0]} took longer than {_ASK_SECONDS:.0f} s")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join(path.read_text(errors="replace").split()[-40:])
    return ""


def _word(value: Any) -> str:
    """A value in a line of #SBATCH: within quotes, in which a backslash stands before quotes and backslashes."""
    text = str(value)
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _and_gpus(need: Resources) -> str:
    return f" and {number_of(need.gpus, 'GPU')}" if need.gpus else ""
