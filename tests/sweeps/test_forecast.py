"""Forecasts of sweeps whose speeds are known: a simulation of workers with a clock of its own, at recorded speeds."""

import dataclasses
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from harness.run import COMPILING, TRAINING, RunProgress
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.plans.plan import Plan
from sweeps.costs.forecast import Forecast
from sweeps.launchers import local

# Seconds of a step of digits_fc by batch size, as `make quickstart` took on two cores, and of all else.
STEP = {1: 7.1e-6, 2: 20e-6, 4: 29e-6, 8: 24e-6, 16: 33e-6, 32: 51e-6, 64: 85e-6, 128: 125e-6}
STEP |= {256: 218e-6, 512: 443e-6, 1024: 888e-6}
COMPILE, AGAIN, START, STORE, EVALUATION = 6.5, 0.6, 3.0, 0.1, 2e-4
EARLY = 0.25  # of the trials, which end before their budget
Event = tuple[float, RunProgress | None]  # seconds since the event before, and what is reported then; None: the end


def quickstart(make_study: Callable[..., BatchStudy], trials: int = 32) -> list[BatchStudy]:
    """Studies like those of the preset."""
    return [
        make_study(
            optimizer=optimizer,
            batch_size=batch_size,
            trials=trials,
            budget_steps=max(400, 25 * 1411 // batch_size),
            evaluation_ratio=1.1,
            evaluation_spacing=85.8 / batch_size,
        )
        for optimizer in ("sgd", "momentum", "nesterov")
        for batch_size in STEP
    ]


def life(study: BatchStudy, rng: np.random.Generator, start: float, compiling: float) -> Iterator[Event]:
    """What a worker reports of a study, with lanes for all trials; a quarter of them end anywhere up to the budget."""
    yield 0.0, RunProgress()
    yield start, RunProgress(COMPILING)
    yield compiling, RunProgress(TRAINING)
    grid = study.evaluations
    shares = np.exp(rng.uniform(np.log(0.05), 0, study.trials))
    ends = np.where(rng.random(study.trials) < EARLY, np.searchsorted(grid, shares * study.budget_steps), len(grid) - 1)
    ended: Counter[int] = Counter()
    steps, trained, seconds = 0, 0.0, 0.0
    for k, at in enumerate(grid.tolist()):
        live = int((ends >= k).sum())
        if not live:
            break
        taken = live * (at - (int(grid[k - 1]) if k else 0))
        steps += taken
        spent = taken * STEP[study.batch_size]
        trained, seconds = trained + spent, seconds + spent + live * EVALUATION
        ended[at] += int((ends == k).sum())
        left = {at: int((ends > k).sum())}
        yield spent + live * EVALUATION, RunProgress(TRAINING, dict(+ended), left, steps, trained, seconds)
    yield STORE, None


def simulated(
    studies: Sequence[BatchStudy], workers: int = 2, seed: int = 0
) -> tuple[float, list[tuple[float, float]]]:
    """The seconds that a sweep takes, and (time, seconds that were said to be left) at each second of it."""
    rng, forecast = np.random.default_rng(seed), Forecast(studies, {s.name: s.trials for s in studies}, workers)
    queue: list[Plan] = sorted(studies, key=local.cost)
    built: set = set()
    busy: dict[int, tuple[BatchStudy, Iterator[Event]]] = {}
    events: list[tuple[float, int, RunProgress | None]] = []
    said, second, now = [], 0.0, 0.0

    def push(worker: int, at: float) -> None:
        seconds, progress = next(busy[worker][1])
        heapq.heappush(events, (at + seconds, worker, progress))

    def assign(worker: int, at: float) -> None:
        if queue:
            study = local._next(queue, {local._programs(other) for other, _ in busy.values()})
            assert isinstance(study, BatchStudy)
            program = local._programs(study)
            busy[worker] = study, life(study, rng, 0.0 if at else START, AGAIN if program in built else COMPILE)
            built.add(program)
            push(worker, at)

    for worker in range(workers):
        assign(worker, 0.0)
    while events:
        at, worker, progress = heapq.heappop(events)
        while second < at:
            if left := forecast.left(second):
                said.append((second, left.seconds))
            second += 1.0
        now, study = at, busy[worker][0]
        if progress is None:
            forecast.end(study, now)
            del busy[worker]
            assign(worker, now)
        else:
            forecast.hear(study, progress, now)
            push(worker, now)
    assert forecast.ended == len(studies) and not forecast.running
    return now, said


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_end_of_a_sweep_is_foreseen_from_its_first_tenth_on(
    make_study: Callable[..., BatchStudy], workers: int
) -> None:
    whole, said = simulated(quickstart(make_study), workers)
    errors = np.array([abs(at + left - whole) / whole for at, left in said])
    times = np.array([at for at, _ in said]) / whole
    assert times[0] < 0.2
    assert errors[times > 0.1].mean() < 0.07
    assert errors[times > 0.1].max() < 0.25
    assert errors[times > 0.5].max() < 0.10
    assert errors[times > 0.9].max() < 0.05
    by_second = np.array([at + left for at, left in said])
    assert np.abs(np.diff(by_second)).max() < 0.2 * whole  # it does not swing


def test_a_quarter_that_has_ended_is_not_taken_for_all(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=100, budget_steps=1000)
    at = [int(steps) for steps in study.evaluations]
    forecast = Forecast([study], {study.name: 100}, 1)
    half = at[np.searchsorted(at, 500)]
    for progress in (
        RunProgress(),
        RunProgress(COMPILING),
        RunProgress(TRAINING),
        RunProgress(TRAINING, {at[0]: 50}, {half: 50}, 50 * half, 50.0 * half, 50.0 * half),  # a second a step
    ):
        forecast.hear(study, progress, 0.0)
    left = forecast.left(0.0)
    assert left is not None and not left.at_least
    assert left.seconds == pytest.approx(50 * (1000 - half), rel=1e-6)  # those that are left may all go on to the end
    assert forecast.left(25.0).seconds == pytest.approx(left.seconds - 25.0)  # type: ignore[union-attr]


def test_nothing_is_said_before_anything_was_measured(
    make_study: Callable[..., BatchStudy], factorization: Factorization
) -> None:
    study = make_study(trials=2, budget_steps=100)
    forecast = Forecast([study, factorization], {study.name: 2, factorization.name: 2}, 1)
    assert forecast.left(0.0) is None
    forecast.hear(study, RunProgress(), 0.0)
    forecast.hear(study, RunProgress(COMPILING), 1.0)
    assert forecast.left(5.0) is None
    forecast.hear(study, RunProgress(TRAINING), 9.0)
    forecast.hear(study, RunProgress(TRAINING, {}, {1: 2}, 2, 2.0, 2.0), 11.0)
    left = forecast.left(11.0)
    assert left is not None and left.at_least  # of factorizations, nothing is known
    forecast.hear(study, None, 12.0)  # its process died
    assert forecast.left(12.0) is None and not forecast.running
    forecast.hear(study, RunProgress(), 12.0)
    assert [run.study for run in forecast.running] == [study]
    forecast.end(study, 20.0)
    assert forecast.trials_ended == 2


def test_a_limit_of_time_and_studies_that_have_the_machine_to_themselves(factorization: Factorization) -> None:
    one, two = factorization, dataclasses.replace(factorization, cores=2)
    forecast = Forecast([one, two], {one.name: 2, two.name: 2}, 8, limit=15.0)
    forecast.hear(one, RunProgress(), 0.0)
    forecast.hear(one, RunProgress(COMPILING), 3.0)
    forecast.hear(one, RunProgress(TRAINING), 7.0)
    forecast.hear(one, RunProgress(TRAINING, {}, {1: 1}, 1, 4.0, 4.0), 11.0)
    left = forecast.left(11.0)
    assert left is not None and not left.at_least
    # 5 epochs of 4 s, cut by the limit; then 3 s to start, 4 s to compile, and 6 epochs, cut by the limit.
    assert left.seconds == pytest.approx((15 - 4) + 3 + 4 + 15)


def test_the_queue_and_the_start_of_a_cluster_count(make_study: Callable[..., BatchStudy]) -> None:
    studies = [make_study(batch_size=size, trials=1, budget_steps=100, stop="budget") for size in (8, 16, 32, 64)]
    forecast = Forecast(studies, {study.name: 1 for study in studies}, 4, elsewhere=True)
    first = studies[0]
    forecast.hear(first, RunProgress(), 0.0)
    forecast.hear(first, RunProgress(COMPILING), 30.0)
    forecast.hear(first, RunProgress(TRAINING), 40.0)
    forecast.hear(first, RunProgress(TRAINING, {}, {50: 1}, 50, 50.0, 50.0), 90.0)  # a second a step
    left = forecast.left(90.0)
    assert left is not None
    # One ran at a time by now: 50 s of it, then 30 s to start and 100 steps of each other, which may last as long.
    assert left.seconds > 50 + 3 * (30 + 100 / 64)
    forecast.hear(studies[1], RunProgress(), 90.0)
    beside = forecast.left(90.0)
    assert beside is not None
    assert beside.seconds == pytest.approx(left.seconds / 2)
