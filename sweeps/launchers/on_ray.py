"""Ray launcher: runs studies as tasks on a cluster. Each task has separate processes and resources.

A task is an attempt (``sweeps.launchers.attempt``) on a node, or on a TPU slice, that shares the store. Ray schedules
the tasks, and this module decides on retries. When this process ends, tasks save their trials and end. Ray is imported
inside functions because it is optional.
"""

import contextlib
import importlib.util
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.compiled import topologies
from harness.run import Settings
from results import durable, exit_codes
from results.aliases import Fields
from results.bad_input import BadInput, first_line, number_of
from results.cli import Terminated
from results.plans.plan import Plan
from results.printing import say
from results.storage import attempts
from results.store import LAUNCHERS
from sweeps.configured_study import Config, Studies
from sweeps.launchers import attempt
from sweeps.launchers.attempt import Ending, Wish
from sweeps.launchers.launcher import (
    Launch,
    RemoteStudy,
    RetryPolicy,
    cause,
    check_least,
    check_retries,
    check_unwatched,
    cost,
    cpus_and_gpus,
    devices_asked,
    failed_too_often,
    worst_code,
)
from sweeps.launchers.process_end import exit_description
from sweeps.launchers.ray_cluster import connected
from sweeps.launchers.ray_slices import Slices
from sweeps.study_run import StudyOutcome

FOLDER = LAUNCHERS[1]  # folder in a store for this process's requests to its tasks
LOOK_SECONDS = 1.0


class Task(NamedTuple):
    """A task: its study, Ray's references to its processes, and its slice, if any."""

    study: str
    references: tuple[Any, ...]
    slice: Any = None


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput if the configuration is invalid or Ray is not installed."""
    check_retries(asked)
    check_least(asked, cpus=1, gpus=0, at_once=1)
    if asked["tpu_slice"] is not None:
        if not re.fullmatch(r"\w+:\d+(x\d+)+", asked["tpu_slice"]):
            raise BadInput(f"launcher.tpu_slice={asked['tpu_slice']}: write VERSION:TOPOLOGY, such as v5e:4x4")
        topologies.check(asked["tpu_slice"])
    if asked["address"] not in (None, "auto") and not re.fullmatch(r"[^\s/:]+:\d{1,5}", asked["address"]):
        raise BadInput(f"launcher.address={asked['address']}: write HOST:PORT, such as 10.0.0.1:6379, or auto")
    if importlib.util.find_spec("ray") is None:
        raise BadInput("launcher=ray needs the extra ray. Install it with: pip install 'scaling-limits[ray]'")


def devices(asked: Config, study: Plan, settings: Settings) -> int:
    """Returns the number of devices that run a study."""
    if asked["tpu_slice"] is None:
        return devices_asked(asked, study, settings)
    return topologies.count(asked["tpu_slice"])


def run_all(asked: Config, launch: Launch) -> list[StudyOutcome]:
    """Runs studies as Ray tasks.

    Args:
      asked: configuration of the launcher.
      launch: studies to run.

    Returns:
      An outcome for each study that started, in the order in which the studies ended.

    Raises:
      BadInput: there is no cluster at the address, or its nodes will never be able to run one of the studies.
      Terminated: this process must end. Running trials are saved.
    """
    queue = sorted(launch.studies, key=cost)
    studies = {study.name: RemoteStudy(launch, study) for study in queue}
    policies = {study.name: RetryPolicy(asked["retries"]) for study in queue}
    outcomes = []
    with connected(asked) as (ray, look), _wishes(launch.folder) as wishes:
        _check_fits(ray, asked, queue, launch.settings)
        slices = Slices(ray, asked["tpu_slice"])
        running: dict[Any, Task] = {}  # by first reference
        try:
            while queue or running or slices.coming:
                while queue and len(running) + len(slices.coming) < (asked["at_once"] or len(studies)):
                    if asked["tpu_slice"] is None:
                        task = _begin(ray, asked, launch, queue.pop(), wishes)
                        running[task.references[0]] = task
                    elif slices.reserve(queue[-1]):
                        queue.pop()
                    else:
                        break
                for reference in _done(ray, running, slices.coming):
                    if reference in slices.coming:
                        task = _begin_on_slice(ray, asked, launch, *slices.coming.pop(reference), wishes)
                        running[task.references[0]] = task
                        continue
                    task = running.pop(reference)
                    end = _ended(ray, task)
                    study = studies[task.study]
                    slices.retry()
                    if end.code == exit_codes.DONE:
                        outcomes.append(study.end(None))
                    elif (
                        policies[task.study].again(end.code, advanced=end.advanced)
                        and not failed_too_often(launch.folder / task.study, launch.limits.study.max_failures)
                        and launch.limits.reached is None
                    ):
                        study.waits()
                        queue.append(study.study)
                    else:
                        if end.code not in (exit_codes.FAILED, exit_codes.INVALID, exit_codes.PREEMPTED):
                            attempt.record_lost(launch.folder, task.study, exit_description(end.code))
                        outcomes.append(study.end(cause(launch.folder / task.study) or exit_description(end.code)))
                for task in running.values():
                    studies[task.study].look()
                if launch.limits.reached is not None:
                    queue.clear()
                    slices.release()
                for name in (task.study for task in running.values()):
                    if launch.limits.is_over(name):
                        _wish(wishes, name, Wish.TIME_IS_UP)
                launch.on_wait()
                look()
        except BaseException as error:
            with contextlib.suppress(ray.exceptions.RayError):  # Ray itself may have stopped
                slices.release()
                saved = _stop(ray, running, wishes)
                if isinstance(error, Terminated):
                    error.saved = saved
            raise
    return outcomes


def run_attempt(store: str, name: str, command: Sequence[str], wishes: str, follows: bool = False) -> Ending:
    """Runs an attempt at a study in a Ray process.

    Args:
      store: folder of the store.
      name: name of the study.
      command: words of the command that runs the study.
      wishes: folder that contains the sweep's requests.
      follows: whether this host follows another host, because it is not the study's first host.
    """
    folder = Path(store) / name
    if _wished(wishes, name) != Wish.NOTHING:
        return Ending(exit_codes.TERMINATED, False)
    if follows:
        log = Path(wishes) / f"{uuid.uuid4().hex}.out"
        log.touch()
    else:
        log = attempts.begin(folder, "ray")
    end = attempt.run(folder, command, log, lambda: _wished(wishes, name))
    if follows:
        log.unlink()
    else:
        attempts.end(log, end.code, attempt.description(log, end.code))
    return end


def address() -> str:
    """Returns the address of the node that runs this task."""
    import ray

    return str(ray.util.get_node_ip_address())


def _done(ray: Any, running: Mapping[Any, Task], coming: Mapping[Any, Any]) -> list[Any]:
    """Returns the first reference of each task of which a process ends within a second, and slices that get ready."""
    first = {reference: task.references[0] for task in running.values() for reference in task.references}
    references = [*first, *coming]
    if not references:
        time.sleep(LOOK_SECONDS)
        return []
    ready = ray.wait(references, num_returns=len(references), timeout=LOOK_SECONDS)[0]
    return list(dict.fromkeys(first.get(reference, reference) for reference in ready))


def _begin(ray: Any, asked: Config, launch: Launch, study: Plan, wishes: Path) -> Task:
    options = _needs(asked, study, launch.settings)
    command = _command(asked, launch, study)
    reference = _remote(ray, run_attempt, options).remote(str(launch.folder), study.name, command, str(wishes))
    return Task(study.name, (reference,))


def _command(asked: Config, launch: Launch, study: Plan) -> list[str]:
    return attempt.command(launch.words[study.name], launch.folder, silence_seconds=asked["silence_seconds"])


def _begin_on_slice(ray: Any, asked: Config, launch: Launch, study: Plan, reserved: Any, wishes: Path) -> Task:
    """Starts a task on each host of a slice. The study owns the slice until it ends."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    try:
        hosts = reserved.num_hosts
        placed = [
            {
                "scheduling_strategy": PlacementGroupSchedulingStrategy(reserved.placement_group, i),
                "resources": {"TPU": reserved.devices_per_host},
                "num_cpus": 0,
            }
            for i in range(hosts)
        ]
        first = ray.get(_remote(ray, address, placed[0] | {"resources": {}}).remote())
        leader = f"{first}:{attempt.port_of(study.name)}"
        on_each = attempt.command_of_host(launch.words[study.name], launch.folder, leader, hosts)
        references = []
        if hosts > 1:
            check_unwatched(asked)
        for i, options in enumerate(placed):
            command = _command(asked, launch, study) if hosts == 1 else [*on_each, f"launcher.host={i}"]
            arguments = (str(launch.folder), study.name, command, str(wishes), i > 0)
            references.append(_remote(ray, run_attempt, options).remote(*arguments))
    except BaseException:
        reserved.shutdown()
        raise
    return Task(study.name, tuple(references), reserved)


def _ended(ray: Any, task: Task) -> Ending:
    """Returns the end of a task, given the ends of its processes. A process on a lost node counts as a lost peer.

    Once one process has ended, the others have ``KILL_SECONDS`` to end. After that, they are frozen and are killed.
    """
    try:
        several = list(task.references)
        for frozen in ray.wait(several, num_returns=len(several), timeout=attempt.KILL_SECONDS)[1]:
            ray.cancel(frozen, force=True)
        ends = [_ended_on_host(ray, task.study, process) for process in task.references]
    finally:
        if task.slice is not None:
            task.slice.shutdown()
    return Ending(worst_code(end.code for end in ends), any(end.advanced for end in ends))


def _ended_on_host(ray: Any, study: str, reference: Any) -> Ending:
    try:
        return Ending(*ray.get(reference))
    except ray.exceptions.RayError as error:
        say(f"{study}: {type(error).__name__}: {first_line(error)[:200]}")
        return Ending(exit_codes.PEER_LOST, False)


def _stop(ray: Any, running: Mapping[Any, Task], wishes: Path) -> bool:
    """Saves and ends tasks, and waits for them. Returns whether any task was saved."""
    if not running:
        return False
    say(f"stopping {number_of(len(running), 'Ray task')}. Running trials are saved first.")
    for task in running.values():
        _wish(wishes, task.study, Wish.STOP)
    done, left = ray.wait(list(running), num_returns=len(running), timeout=attempt.KILL_SECONDS)
    for reference in left:
        for process in running[reference].references:
            ray.cancel(process, force=True)
        if running[reference].slice is not None:
            running[reference].slice.shutdown()
    return any(_ended(ray, running[reference]).code == exit_codes.PREEMPTED for reference in done)


def _needs(asked: Config, study: Plan, settings: Settings) -> Fields:
    cpus, gpus = cpus_and_gpus(asked, study, settings)
    return {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(asked["resources"])}


def _remote(ray: Any, function: Any, options: Config) -> Any:
    """Turns a function into a task that runs in a separate process and that Ray never retries."""
    return ray.remote(max_calls=1, max_retries=0, **options)(function)


def _check_fits(ray: Any, asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput if nodes lack the resources for a study, except in clusters that may grow."""
    if asked["tpu_slice"] is not None or asked["address"] not in (None, "auto"):
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for study in studies:
        need = _needs(asked, study, settings)
        wanted = {"CPU": need["num_cpus"], "GPU": need["num_gpus"], **need["resources"]}
        if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
            largest = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
            lacking = [name for name, count in wanted.items() if largest[name] < count]
            if not lacking:
                needs = " and ".join(f"{count:g} {name}" for name, count in wanted.items() if count)
                raise BadInput(f"{study.name} needs {needs} on one node, but no node has all of them")
            name = lacking[0]
            raise BadInput(f"{study.name} needs {wanted[name]:g} {name}, and the largest node has {largest[name]:g}")


@contextlib.contextmanager
def _wishes(store: Path) -> Iterator[Path]:
    """Yields a folder for requests to tasks. All tasks have access to it because it is in the store."""
    folder = (store / FOLDER / uuid.uuid4().hex).absolute()
    durable.make_folder(folder)
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()


def _wish(wishes: Path, study: str, wish: Wish) -> None:
    (wishes / f"{study}.{wish.name}").touch()


def _wished(wishes: str, study: str) -> Wish:
    for wish in (Wish.STOP, Wish.TIME_IS_UP):
        if (Path(wishes) / f"{study}.{wish.name}").exists():
            return wish
    return Wish.NOTHING
