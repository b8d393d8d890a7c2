"""Ray without a cluster: slices of TPUs that are reserved, given back and in use, and nodes that have too little."""

import contextlib
import math
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.run import Settings
from results import store
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from sweeps import composition
from sweeps.launchers import on_ray
from sweeps.launchers.attempt import Ending
from sweeps.launchers.launcher import Launch
from sweeps.limits import Limits
from sweeps.overrides import CommandLine
from sweeps.study_run import StudyOutcome

HOSTS = 2  # of a slice


class Slice:
    """A slice that is reserved until it is shut down."""

    num_hosts, devices_per_host = HOSTS, 4

    def __init__(self, ray: "Ray"):
        self.placement_group = types.SimpleNamespace(ready=object)
        self._ray = ray
        ray.reserved.append(self)

    def shutdown(self) -> None:
        """Gives it back."""
        with contextlib.suppress(ValueError):
            self._ray.reserved.remove(self)


class Ray:
    """As much of Ray as the launcher uses; tasks end in the order in which they began.

    Args:
      codes: of the attempts of a study, in their order, each on every host. None is a host that is frozen.
      free: slices.
      broken: what the reservation after so many raises, if anything.
    """

    exceptions = types.SimpleNamespace(RayError=ConnectionError)

    def __init__(
        self, codes: dict[str, list[Sequence[int | None]]], free: int, broken: tuple[int, Exception] | None = None
    ):
        self._codes, self._free, self._broken = codes, free, broken
        self.reserved: list[Slice] = []
        self.reservations, self.most = 0, 0
        self.stopped: list[str] = []
        self._begun: list[str] = []
        self._tasks: dict[object, list[Any]] = {}

    def slice_placement_group(self, topology: str, version: str, *, head_reservation_timeout_s: float = 100) -> Slice:
        """A slice; raises TimeoutError if none is free, as Ray does."""
        assert (topology, version) == ("4x4", "v5litepod")  # as Ray calls it
        if len(self.reserved) == self._free:
            raise TimeoutError(f"after {head_reservation_timeout_s} s")
        if self._broken and self.reservations == self._broken[0]:
            raise self._broken[1]
        self.reservations += 1
        return Slice(self)

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        """A function as a task."""

        def of(function: Any) -> Any:
            return types.SimpleNamespace(remote=lambda *arguments: self._begin(function, arguments))

        return of

    def _begin(self, function: Any, arguments: tuple) -> object:
        reference = object()
        if function is on_ray.address:
            self._tasks[reference] = [0, "10.0.0.1"]
            return reference
        _, name, _, wishes, follows = arguments
        self._begun.append(name)
        codes = self._codes[name][0] if not follows else self._codes[name].pop(0)
        code = codes[int(follows)]
        end = ConnectionError("cancelled") if code is None else Ending(code, True)
        self._tasks[reference] = [math.inf if code is None else 2 * len(self._begun), end, name, wishes]
        self.most = max(self.most, len({task[2] for task in self._tasks.values() if task[0] and len(task) > 2}))
        return reference

    def wait(self, references: list[object], *, num_returns: int, timeout: float) -> tuple[list, list]:
        """Those that are ready, and the others."""
        assert num_returns == len(references)
        for each in self._tasks.values():
            each[0] = each[0] - 1 if timeout < 10 or each[0] == math.inf else 0
        done = [each for each in references if self._tasks.get(each, [0])[0] <= 0]
        self.stopped += [
            task[2] for task in self._tasks.values() if len(task) > 2 and Path(task[3], f"{task[2]}.STOP").exists()
        ]
        return done, [each for each in references if each not in done]

    def get(self, reference: object) -> Any:
        """What a task gave."""
        end = self._tasks.pop(reference, [0, None])[1]
        if isinstance(end, Exception):
            raise end
        return end

    def cancel(self, reference: object, *, force: bool) -> None:
        """Kills a task that is frozen."""
        assert force and self._tasks[reference][0] == math.inf
        self._tasks[reference][0] = 0


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_study: Callable[..., BatchStudy]
) -> Callable[..., list[StudyOutcome]]:
    """Runs a study for each list of codes on slices of a stand-in for Ray."""

    def runs(ray: Ray, studies: Sequence[BatchStudy]) -> list[StudyOutcome]:
        tpu = types.SimpleNamespace(slice_placement_group=ray.slice_placement_group)
        monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
        monkeypatch.setitem(sys.modules, "ray.util", types.ModuleType("ray.util"))
        monkeypatch.setitem(sys.modules, "ray.util.tpu", tpu)
        strategies = types.SimpleNamespace(PlacementGroupSchedulingStrategy=lambda *about: about)
        monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)

        @contextlib.contextmanager
        def cluster(asked: object) -> Iterator[tuple[Ray, Callable[[], None]]]:
            yield ray, lambda: None

        monkeypatch.setattr(on_ray, "connected", cluster)
        for each in studies:
            store.ask(tmp_path, each)
        (config,) = composition.compose_all(CommandLine(("launcher=ray", "launcher.tpu_slice=v5e:4x4"), False))
        words = {each.name: ("trials=1",) for each in studies}
        launch = Launch(tmp_path, studies, Settings(), Limits(), {}, words, lambda update: None, lambda: None)
        return on_ray.run_all(config["launcher"], launch)

    return runs


def test_more_studies_than_slices_take_turns(
    run: Callable[..., list[StudyOutcome]],
    make_study: Callable[..., BatchStudy],
    capsys: pytest.CaptureFixture[str],
) -> None:
    studies = [make_study(seed=i) for i in range(5)]
    ray = Ray({study.name: [(0, 0)] for study in studies}, free=2)
    outcomes = run(ray, studies)
    assert [outcome.failure for outcome in outcomes] == [None] * 5
    assert (ray.reservations, ray.reserved, ray.most) == (5, [], 2)
    assert capsys.readouterr().err.count("waits for a free slice v5e:4x4") == 1


def test_a_mistake_on_one_host_is_no_lost_host(
    run: Callable[..., list[StudyOutcome]], make_study: Callable[..., BatchStudy]
) -> None:
    studies = [make_study(seed=i) for i in range(3)]
    codes = [[(1, 76)], [(76, 76), (0, 0)], [(76, 75), (0, 0)]]  # a mistake, a host that is lost, a preemption
    ray = Ray(dict(zip((study.name for study in studies), codes, strict=True)), free=3)
    failures = {outcome.summary.study: outcome.failure for outcome in run(ray, studies)}
    assert [failures[study.name] for study in studies] == ["with exit code 1", None, None]
    assert (ray.reservations, ray.reserved) == (5, [])


@pytest.mark.parametrize("codes", [(76, None), (None, 76)])
def test_frozen_hosts_are_killed(
    run: Callable[..., list[StudyOutcome]], make_study: Callable[..., BatchStudy], codes: Sequence[int | None]
) -> None:
    study = make_study()
    ray = Ray({study.name: [codes, (0, 0)]}, free=1)
    assert [outcome.failure for outcome in run(ray, [study])] == [None]
    assert (ray.reservations, ray.reserved) == (2, [])


def test_whatever_ends_the_sweep_its_tasks_save_first(
    run: Callable[..., list[StudyOutcome]], make_study: Callable[..., BatchStudy]
) -> None:
    studies = [make_study(seed=i) for i in range(3)]
    ray = Ray({study.name: [(0, 0)] for study in studies}, free=2, broken=(2, RuntimeError("no such slice\n")))
    with pytest.raises(BadInput, match=r"launcher.tpu_slice=v5e:4x4: Ray cannot reserve it \(no such slice\)"):
        run(ray, studies)
    assert set(ray.stopped) == {studies[1].name}  # at which the first has ended, and the third cannot begin
    assert ray.reserved == []


@pytest.mark.parametrize(
    ("nodes", "words", "line"),
    [
        (
            [{"CPU": 8}, {"GPU": 4}],
            ("launcher.gpus=1",),
            "needs 1 CPU and 1 GPU on one node, but no node has all",
        ),
        ([{"CPU": 8}, {"CPU": 2}], ("launcher.gpus=1",), "needs 1 GPU, and the largest node has 0"),
        ([{"CPU": 2}], ("launcher.cpus=4",), "needs 4 CPU, and the largest node has 2"),
        ([{"CPU": 8, "GPU": 1}, {"CPU": 8}], ("launcher.gpus=1",), None),
    ],
)
def test_what_no_node_has(
    nodes: list[dict[str, int]], words: Sequence[str], line: str | None, make_study: Callable[..., BatchStudy]
) -> None:
    (config,) = composition.compose_all(CommandLine(("launcher=ray", *words), False))
    ray = types.SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": each} for each in nodes])
    with contextlib.ExitStack() as stack:
        if line is not None:
            stack.enter_context(pytest.raises(BadInput, match=line))
        assert on_ray._check_fits(ray, config["launcher"], [make_study()], Settings()) is None
