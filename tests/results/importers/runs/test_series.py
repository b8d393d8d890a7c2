"""Restarts, windows and times of logged metrics, held against plain loops and against runs with a known crossing."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from results.importers.runs import series
from results.importers.runs.series import Series
from results.plans.study import Target
from results.rules import answers


def of(step: list[int] | np.ndarray, value: list[float] | np.ndarray | None = None) -> Series:
    step = np.asarray(step, np.int64)
    value = np.asarray(step if value is None else value, np.float64)
    return Series(step, step * 0.5, value, step * 0.5)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(2, 9)), min_size=1, max_size=5),
    st.sampled_from([1, 10, 250]),
    st.booleans(),
    st.booleans(),
)
def test_the_last_attempt_counts(attempts: list[tuple[int, int]], spacing: int, final: bool, reverse: bool) -> None:
    """A log of attempts that each start at a checkpoint of the earlier one, with a final row at step 0."""
    step, last = [], 0
    for back, length in attempts:
        start = max(1, last + 1 - back)
        last = max(start + length - 1, start + 1)
        step += [spacing * n for n in range(start, last + 1)]
    step = [0, *step, *([0] * (final and len(step) > 2))]
    forward = of(step, list(range(len(step))))
    log = {"loss": forward.where(np.arange(len(step))[::-1]) if reverse and not final else forward}
    kept, others = series.without_restarts(series.oldest_first(log)["loss"])
    rows: dict[int, int] = {}
    for i, each in enumerate(step[: len(step) - final * (len(step) > 3)]):
        rows = {earlier: value for earlier, value in rows.items() if earlier < each} | {each: i}
    assert dict(zip(kept.step.tolist(), kept.value.tolist(), strict=True)) == rows
    assert len(kept.step) + sum(others.values()) == len(step) and np.all(np.diff(kept.step) > 0)


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ([10, 20, 30, 0], [0, 1, 2]),
        ([10, 20, 30, 0, 0], [0, 1, 2]),
        ([100, 200, 300, 400, 0, 3], [0, 1, 2, 3]),  # evaluations after training, by epoch
        ([10, 20, 0, 30, 40, 0, 50], [0, 1, 3, 4, 6]),  # an evaluation at step 0 after each epoch
        ([10, 20, 10, 30, 20, 40], [0, 1, 3, 5]),  # two processes wrote the log
        ([10, 20, 30, 30, 40], [0, 1, 3, 4]),
        ([10, 20, 30, 40, 20, 30], [0, 4, 5]),
        ([1, 2, 4, 8, 16, 32, 64, 1, 2, 4], [7, 8, 9]),
        ([1, 2, 4, 8, 16, 32, 64, 32, 64, 128], [0, 1, 2, 3, 4, 7, 8, 9]),
        ([30, 20, 10, 0], [3, 2, 1, 0]),
        ([20, 10], [0]),
        ([7], [0]),
    ],
)
def test_lower_steps_are_a_restart_only_if_they_continue(step: list[int], kept: list[int]) -> None:
    log = {"loss": of(step, list(range(len(step)))), "other": of(step[:1])}
    found, others = series.without_restarts(series.oldest_first(log)["loss"])
    assert found.value.tolist() == kept and sum(others.values()) == len(step) - len(kept)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=25))
def test_any_steps_are_put_in_order(step: list[int]) -> None:
    found, others = series.without_restarts(of(step, list(range(len(step)))))
    assert np.all(np.diff(found.step) > 0) and len(found.step) + sum(others.values()) == len(step)
    assert bool(len(found.step)) == bool(step)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=60, max_size=400, unique=True))
def test_windows_cover_every_row_once_and_grow_by_a_tenth(steps: list[int]) -> None:
    step = np.sort(np.array(steps))
    found, was_averaged = series.averaged(of(step))
    count = len(np.unique(series.windows(step)))
    assert was_averaged == (np.median(np.diff(step)) < 0.02 * step[-1] and count <= 0.8 * len(step))
    if not was_averaged:
        assert found.step.tolist() == step.tolist()
        return
    window = series.windows(step)
    ends, groups = [int(step[0])], {0: [int(step[0])]}
    for each in step[1:].tolist():
        while each > ends[-1]:
            ends.append(max(ends[-1] + 1, -(-ends[-1] * 11 // 10)))
        groups.setdefault(len(ends) - 1, []).append(each)
    assert [np.mean(own) for own in groups.values()] == pytest.approx(found.value.tolist(), rel=1e-12)
    assert [round(np.mean(own)) for own in groups.values()] == found.step.tolist()
    assert sum(map(len, groups.values())) == len(window) == len(step)
    assert np.all(np.diff(found.step) > 0)


def test_a_metric_that_is_logged_rarely_stays_as_it_is() -> None:
    step = np.arange(100, 4100, 100)  # every 2.5 %
    assert not series.averaged(of(step))[1]
    assert series.averaged(of(np.arange(1, 101)))[1]  # every 1 %
    grown = np.unique(np.ceil(1.1 ** np.arange(100)).astype(int))  # as our own evaluations
    assert not series.averaged(of(grown))[1]


NOISE, RUNS, LAST = 0.05, 300, 20_000


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.5])
def test_averaged_answers_are_right_and_raw_ones_too_low(rate: float) -> None:
    """Losses L = 3 (t / crossing)^-rate with noise of 5 %, logged at every step, cross 3 at a known step.

    The crossings are at any point of the windows, so that the width of a window is no bias.
    """
    rng = np.random.default_rng(0)
    step = np.arange(1, LAST + 1)
    target = Target("train_loss", 3.0)
    raw, averaged = [], []
    for crossing in np.exp(rng.uniform(np.log(500), np.log(8000), RUNS)):
        loss = 3 * (step / crossing) ** -rate * np.exp(rng.normal(0, NOISE, LAST))
        logged = of(step, loss)
        raw.append(middle(logged, target) / crossing)
        averaged.append(middle(series.averaged(logged)[0], target) / crossing)
    print(f"slope {rate}: {np.median(averaged):.3f} of the true steps, {np.median(raw):.3f} if raw")
    assert np.median(averaged) == pytest.approx(1, abs=0.03)
    assert np.median(raw) < 0.85


def middle(logged: Series, target: Target) -> float:
    """The middle of the interval in which a run reached its target."""
    trial = np.zeros(len(logged.step), np.int32)
    found = answers.first_reached(trial, logged.step, logged.value, target, answers.MINIMUM)
    return float(found.low[0] + found.high[0]) / 2


def test_seconds_per_step_omit_evaluations_restarts_and_start() -> None:
    step = np.concatenate([np.arange(0, 200, 10), np.arange(150, 400, 10)])
    seconds, now, before = [], 0.0, 0
    for i, each in enumerate(step.tolist()):
        now += 0.2 * (each - before) if each > before else 500.0
        now += 30.0 if i < 5 else 0.0  # compiling
        now += 7.0 if (before // 50 < each // 50 and each > 50) else 0.0  # an evaluation in the interval
        seconds.append(now)
        before = each
    logged = Series(step, np.array(seconds), np.zeros(len(step)), step)
    evaluations = np.arange(0, 400, 50)
    assert series.seconds_per_step(logged, evaluations) == pytest.approx(0.2)
    assert series.seconds_per_step(logged, step) is None  # every logged step evaluates
    assert series.seconds_per_step(logged.where(np.arange(7)), evaluations) is None  # too few
    assert series.seconds_per_step(logged._replace(seconds=np.full(len(step), np.nan)), evaluations) is None


def test_a_log_without_metrics_has_no_order() -> None:
    assert series.oldest_first({}) == {}
