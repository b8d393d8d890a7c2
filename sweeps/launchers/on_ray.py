"""Ray: studies as tasks of a cluster, each in a fresh process, on the resources that it needs or a slice of TPUs.

A task is an attempt (``sweeps.launchers.attempt``) on a node that shares the store. Ray finds it a place; whether it is
tried again is decided here, by how it ended. Tasks end with this process: what they have trained is saved.
"""

import contextlib
import importlib.util
import re
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import topologies
from results import durable, exit_codes
from results.bad_input import BadInput, first_line, number_of
from results.cli import Terminated, say
from results.plans.plan import Plan
from results.storage import attempts
from results.storage.folders import LAUNCHERS
from sweeps.launchers import attempt
from sweeps.launchers.attempt import Ending, Wish
from sweeps.launchers.launcher import Launch, RemoteStudy, RetryPolicy, cause, failed_too_often, worst_code
from sweeps.launchers.local import cost, exit_description
from sweeps.run import StudyOutcome

if TYPE_CHECKING:
    from harness.run import Settings

FOLDER = LAUNCHERS[1]  # of a store: what this process wishes of its tasks
LOOK_SECONDS = 1.0
RESERVE_SECONDS = 10.0  # that Ray has to reserve a slice that is free
RETRY_SECONDS = 60.0  # between attempts to reserve one while none is given back
CONNECT_SECONDS = 10.0
NAMES = {"v5e": "v5litepod"}  # of versions of TPUs, which Ray calls otherwise


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
    if asked["tpu_slice"] is not None and not re.fullmatch(r"\w+:\d+(x\d+)+", asked["tpu_slice"]):
        raise BadInput(f"launcher.tpu_slice={asked['tpu_slice']} is no VERSION:TOPOLOGY, such as v5e:4x4")
    if asked["tpu_slice"] is not None:
        topologies.check(asked["tpu_slice"])
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
    studies = {study.name: RemoteStudy(launch, study) for study in queue}
    tries = {study.name: RetryPolicy(asked["retries"]) for study in queue}
    outcomes: list[StudyOutcome] = []
    with _cluster(asked) as (ray, look), _wishes(launch.store) as wishes:
        _check_fits(ray, asked, queue, launch.settings)
        slices = Slices(ray, asked["tpu_slice"])
        running: dict[Any, Task] = {}  # by their first references
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
                for reference in _done(ray, [*running, *slices.coming]):
                    if reference in slices.coming:
                        task = _begin_on_slice(ray, asked, launch, *slices.come(reference), wishes)
                        running[task.references[0]] = task
                        continue
                    task = running.pop(reference)
                    end, study = _ended(ray, task), studies[task.study]
                    slices.retry()
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
                    slices.release()
                for name in (task.study for task in running.values()):
                    if launch.limits.is_over(name):
                        _wish(wishes, name, Wish.TIME_IS_UP)
                launch.on_wait()
                look()
        except BaseException as error:
            with contextlib.suppress(ray.exceptions.RayError):  # which may be gone itself
                slices.release()
                saved = _stop(ray, running, wishes)
                if isinstance(error, Terminated):
                    error.saved = saved
            raise
    return outcomes


class Slices:
    """Slices of TPUs that are reserved for studies, until their hosts are ready.

    Args:
      ray: Ray.
      asked: VERSION:TOPOLOGY of each; None if none are used.

    Attributes:
      coming: the study and the reserved slice, by the reference that is ready when the hosts are.
    """

    def __init__(self, ray: Any, asked: str | None):
        self._ray, self._asked = ray, asked
        self._next = 0.0  # when it may try to reserve one
        self._told = False
        self.coming: dict[Any, tuple[Plan, Any]] = {}

    def reserve(self, study: Plan) -> bool:
        """Reserves a slice for a study if one is free; tries that now and then only."""
        from ray.util.tpu import slice_placement_group

        if time.monotonic() < self._next:
            return False
        version, _, topology = str(self._asked).partition(":")
        try:
            own = slice_placement_group(
                topology, NAMES.get(version, version), head_reservation_timeout_s=RESERVE_SECONDS
            )
        except TimeoutError:
            self._next = time.monotonic() + RETRY_SECONDS
            if not self._told:
                say(f"no slice {self._asked} is free for now; {study.name} waits for one")
            self._told = True
            return False
        except (RuntimeError, ValueError) as error:
            raise BadInput(
                f"launcher.tpu_slice={self._asked}: Ray cannot reserve it ({first_line(error)[:200]})"
            ) from None
        self.coming[own.placement_group.ready()] = study, own
        return True

    def come(self, reference: Any) -> tuple[Plan, Any]:
        """The study and the slice of which all hosts are ready."""
        return self.coming.pop(reference)

    def retry(self) -> None:
        """Has the next ``reserve`` try at once, as a slice may be free again."""
        self._next = 0.0

    def release(self) -> None:
        """Gives back all that are not ready."""
        while self.coming:
            self.coming.popitem()[1][1].shutdown()


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


def _done(ray: Any, references: list[Any]) -> list[Any]:
    """Which of some references are ready; waits a second for them."""
    if not references:
        time.sleep(LOOK_SECONDS)
        return []
    return list(ray.wait(references, num_returns=len(references), timeout=LOOK_SECONDS)[0])


def _begin(ray: Any, asked: Mapping[str, Any], launch: Launch, study: Plan, wishes: Path) -> Task:
    options = _needs(asked, study, launch.settings)
    silence = asked["silence_seconds"]
    commands = [attempt.command(each, launch.store, silence_seconds=silence) for each in launch.words[study.name]]
    reference = _remote(ray, run_attempt, options).remote(str(launch.store), study.name, commands, str(wishes))
    return Task(study.name, (reference,))


def _begin_on_slice(
    ray: Any, asked: Mapping[str, Any], launch: Launch, study: Plan, reserved: Any, wishes: Path
) -> Task:
    """One task per host of a slice, all of which belongs to the study until it ends."""
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
    """How a task ended; a process of it whose node is gone counts as if another host were."""
    try:
        ends = [_ended_on_host(ray, task.study, each) for each in task.references]
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
    """Ends tasks in order, and waits for them; whether anything was saved."""
    if not running:
        return False
    say(f"stopping {number_of(len(running), 'task')} of Ray; what runs is saved first")
    for one in running.values():
        _wish(wishes, one.study, Wish.STOP)
    done, left = ray.wait(list(running), num_returns=len(running), timeout=attempt.KILL_SECONDS)
    for reference in left:
        for each in running[reference].references:
            ray.cancel(each, force=True)
        if running[reference].slice is not None:
            running[reference].slice.shutdown()
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
            lacking = [name for name, count in wanted.items() if largest[name] < count]
            if not lacking:
                needs = " and ".join(f"{count:g} {name}" for name, count in wanted.items() if count)
                raise BadInput(f"{study.name} needs {needs} on one node, and each is on another")
            count, name = wanted[lacking[0]], lacking[0]
            raise BadInput(f"{study.name} needs {count:g} {name}, and the largest node has {largest[name]:g}")


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
        why = first_line(error)[:200]
        raise BadInput(f"launcher.address={asked['address']}: there is no Ray cluster ({why})") from None
    ray._private.worker._worker_logs_enabled = False  # it would print the state of nodes that are gone, as if a result
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
