"""Ray: studies as tasks of a cluster, each in a fresh process, on the resources that it needs or a slice of TPUs.

A task is an attempt (``sweeps.launchers.attempt``) on a node that shares the store. Ray finds it a place; whether it is
tried again is decided here, by how it ended. Tasks end with this process: what they have trained is saved.
"""

import contextlib
import importlib.util
import re
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from results import durable, exit_codes
from results.bad_input import BadInput, number_of
from results.command_line import Terminated, say
from results.plans.plan import Plan
from results.storage import attempts
from results.storage.folders import LAUNCHERS
from sweeps.launchers import attempt
from sweeps.launchers.attempt import Ending, Wish
from sweeps.launchers.launcher import Elsewhere, Launch, Tries, cause, failed_too_often
from sweeps.launchers.local import cost, exit_description
from sweeps.run import StudyOutcome

if TYPE_CHECKING:
    from harness.run import Settings

FOLDER = LAUNCHERS[1]  # of a store: what this process wishes of its tasks
LOOK_SECONDS = 1.0
CONNECT_SECONDS = 10.0


class Task(NamedTuple):
    """A task: the study it is at, what Ray knows it by, and the slice that it has to itself, if any."""

    study: str
    references: tuple[Any, ...]
    slice: Any = None


def check(asked: Mapping[str, Any]) -> None:
    """Raises BadInput for values that cannot be, or without Ray."""
    for key in ("cpus", "gpus", "at_once"):
        if asked[key] is not None and asked[key] < (0 if key == "gpus" else 1):
            raise BadInput(f"launcher.{key} must be at least {0 if key == 'gpus' else 1}, not {asked[key]}")
    if asked["tpu_slice"] is not None and not re.fullmatch(r"v\w+:\d+(x\d+)+", asked["tpu_slice"]):
        raise BadInput(f"launcher.tpu_slice={asked['tpu_slice']} is no VERSION:TOPOLOGY, such as v5e:4x4")
    if asked["address"] not in (None, "auto") and not re.fullmatch(r"[^\s/:]+:\d{1,5}", asked["address"]):
        raise BadInput(f"launcher.address={asked['address']} is no HOST:PORT, such as 10.0.0.1:6379, nor auto")
    if not is_installed():
        raise BadInput("launcher=ray needs the extra ray: pip install 'scaling-limits[ray]'")


def is_installed() -> bool:
    """Whether there is a Ray to be imported."""
    return importlib.util.find_spec("ray") is not None


def run_all(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    """Runs studies as tasks of Ray.

    Args:
      asked: the configuration of the launcher.
      launch: what is to be run.

    Returns:
      An outcome per study that began, in the order they ended.

    Raises:
      BadInput: there is no cluster at the address, or none that ever has what a study needs.
      Terminated: this process is to end; what ran is saved.
    """
    queue = sorted(launch.studies, key=cost)
    studies = {study.name: Elsewhere(launch, study) for study in queue}
    tries = {study.name: Tries(asked["retries"]) for study in queue}
    outcomes: list[StudyOutcome] = []
    running: dict[Any, Task] = {}
    with _cluster(asked) as (ray, look), _wishes(launch.store) as wishes:
        _check_fits(ray, asked, queue, launch.settings)
        try:
            while queue or running:
                while queue and len(running) < (asked["at_once"] or len(studies)):
                    task = _begin(ray, asked, launch, queue.pop(), wishes)
                    running[task.references[0]] = task
                done, _ = ray.wait(list(running), num_returns=len(running), timeout=LOOK_SECONDS)
                for reference in done:
                    task = running.pop(reference)
                    end, study = _ended(ray, task), studies[task.study]
                    if end.code == exit_codes.DONE:
                        outcomes.append(study.end(None))
                    elif (
                        tries[task.study].again(end.code, advanced=end.advanced)
                        and not failed_too_often(launch.store / task.study, launch.limits.study.max_failures)
                        and launch.limits.reached is None
                    ):
                        study.waits()
                        queue.append(study.study)
                    else:
                        if end.code not in (exit_codes.FAILED, exit_codes.INVALID, exit_codes.PREEMPTED):
                            attempt.record_lost(launch.store, task.study, exit_description(end.code))
                        outcomes.append(study.end(cause(launch.store / task.study) or exit_description(end.code)))
                for task in running.values():
                    studies[task.study].look()
                if launch.limits.reached is not None:
                    queue.clear()
                for name in (task.study for task in running.values()):
                    if launch.limits.is_over(name):
                        _wish(wishes, name, Wish.TIME_IS_UP)
                launch.on_wait()
                look()
        except (Terminated, KeyboardInterrupt) as error:
            saved = _stop(ray, running, wishes)
            if isinstance(error, Terminated):
                error.saved = saved
            raise
    return outcomes


def run_attempt(store: str, name: str, commands: Sequence[Sequence[str]], wishes: str, follows: bool = False) -> Ending:
    """The work of a task: an attempt at a study, in the process that Ray gives it.

    Args:
      store: folder of the store.
      name: of the study.
      commands: that run it.
      wishes: the folder in which the sweep says what it wishes.
      follows: whether it is another host of a study that a first one leads.
    """
    folder = Path(store) / name
    if _wished(wishes, name) != Wish.NOTHING:
        return Ending(exit_codes.TERMINATED, False)
    if follows:
        log = Path(wishes) / f"{uuid.uuid4().hex}.out"
        log.touch()
    else:
        log = attempts.begin(folder, "ray")
    end = attempt.run_each(folder, commands, log, lambda: _wished(wishes, name))
    if follows:
        log.unlink()
    else:
        attempts.end(log, end.code, attempt.description(log, end.code))
    return end


def address() -> str:
    """The address of the node that a task is on."""
    import ray

    return str(ray.util.get_node_ip_address())


def _begin(ray: Any, asked: Mapping[str, Any], launch: Launch, study: Plan, wishes: Path) -> Task:
    words = launch.words[study.name]
    if asked["tpu_slice"] is None:
        options = _needs(asked, study, launch.settings)
        commands = [attempt.command(each, launch.store, silence_seconds=asked["silence_seconds"]) for each in words]
        reference = _remote(ray, run_attempt, options).remote(str(launch.store), study.name, commands, str(wishes))
        return Task(study.name, (reference,))
    return _begin_on_slice(ray, asked, launch, study, wishes)


def _begin_on_slice(ray: Any, asked: Mapping[str, Any], launch: Launch, study: Plan, wishes: Path) -> Task:
    """One task per host of a slice, all of which belongs to the study until it ends."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    from ray.util.tpu import slice_placement_group

    version, _, topology = asked["tpu_slice"].partition(":")
    reserved = slice_placement_group(topology, version)
    try:
        ray.get(reserved.placement_group.ready())
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
        references = []
        for i, options in enumerate(placed):
            commands = [
                attempt.command(words, launch.store, silence_seconds=asked["silence_seconds"])
                if hosts == 1
                else attempt.command_of_host(words, launch.store, f"{first}:{attempt.port_of(study.name)}", hosts, i)
                for words in launch.words[study.name]
            ]
            arguments = (str(launch.store), study.name, commands, str(wishes), i > 0)
            references.append(_remote(ray, run_attempt, options).remote(*arguments))
    except BaseException:
        reserved.shutdown()
        raise
    return Task(study.name, tuple(references), reserved)


def _ended(ray: Any, task: Task) -> Ending:
    """How a task ended; one whose process or node is gone as if another host were."""
    try:
        return max((ray.get(each) for each in task.references), key=lambda end: abs(end.code))
    except ray.exceptions.RayError as error:
        say(f"{task.study}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}")
        return Ending(exit_codes.PEER_LOST, False)
    finally:
        if task.slice is not None:
            task.slice.shutdown()


def _stop(ray: Any, running: Mapping[Any, Task], wishes: Path) -> bool:
    """Ends tasks in order, and waits for them; whether anything was saved."""
    if not running:
        return False
    say(f"stopping {number_of(len(running), 'task')} of Ray; what runs is saved first")
    for one in running.values():
        _wish(wishes, one.study, Wish.STOP)
    ray.wait(list(running), num_returns=len(running), timeout=attempt.KILL_SECONDS)
    done, left = ray.wait(list(running), num_returns=len(running), timeout=0)
    for reference in left:
        ray.cancel(reference, force=True)
    return any(_ended(ray, running[reference]).code == exit_codes.PREEMPTED for reference in done)


def _needs(asked: Mapping[str, Any], study: Plan, settings: "Settings") -> dict[str, Any]:
    devices = study.devices or settings.shards or 1
    gpus = devices if asked["gpus"] is None else asked["gpus"]
    cpus = asked["cpus"] or (1 if gpus else devices)
    return {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(asked["resources"])}


def _remote(ray: Any, function: Any, options: Mapping[str, Any]) -> Any:
    """A function as a task in a process of its own, that Ray never repeats."""
    return ray.remote(max_calls=1, max_retries=0, **options)(function)


def _check_fits(ray: Any, asked: Mapping[str, Any], studies: Sequence[Plan], settings: "Settings") -> None:
    """Raises BadInput at once where no node will ever have what a study needs; clusters that grow are not asked."""
    if asked["tpu_slice"] is not None or asked["address"] not in (None, "auto"):
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for study in studies:
        need = _needs(asked, study, settings)
        wanted = {"CPU": need["num_cpus"], "GPU": need["num_gpus"], **need["resources"]}
        if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
            largest = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
            lacking = next(name for name, count in wanted.items() if largest[name] < count or len(wanted) == 1)
            raise BadInput(
                f"{study.name} needs {wanted[lacking]:g} {lacking}, and the largest node has {largest[lacking]:g}"
            )


@contextlib.contextmanager
def _cluster(asked: Mapping[str, Any]) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Ray, connected to a cluster or one that is started here and ends with this; and what raises after a signal."""
    import ray

    _check_reachable(asked["address"])
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(
            address=asked["address"],
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": attempt.python_path()}},
            **({"include_dashboard": False} if asked["address"] is None else {}),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = str(error).strip().splitlines()[0][:200]
        raise BadInput(f"launcher.address={asked['address']}: there is no Ray cluster ({why})") from None
    told: list[int] = []
    for number in handlers:  # Ray's own exits at once, and what a handler raises does not get through Ray's waiting
        signal.signal(number, lambda number, frame: told.append(number))

    def look() -> None:
        if signal.SIGTERM in told:
            raise Terminated
        if told:
            raise KeyboardInterrupt

    try:
        yield ray, look
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raises BadInput for an address at which nobody listens: Ray itself would wait for hours."""
    if address in (None, "auto"):
        return
    host, _, port = str(address).partition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"launcher.address={address}: there is no Ray cluster ({error})") from None


@contextlib.contextmanager
def _wishes(store: Path) -> Iterator[Path]:
    """A folder that tasks look into, which share the store."""
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
