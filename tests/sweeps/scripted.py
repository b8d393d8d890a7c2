"""Programs that train nothing: curves that are functions of a trial's seed and step, and cost next to no time."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from harness.step.batch_partition import Division
from harness.step.programs import Programs
from harness.step.training import Spans

METRICS = ("validation_loss", "test_loss")


class TrainState(NamedTuple):
    """The trial that each lane holds: its seed, the steps it has taken, and a number that depends on each of them."""

    seed: np.ndarray
    step: np.ndarray
    state: np.ndarray


def programs(lanes: int) -> Programs:
    """The programs. They fail if a lane is told to advance another trial than it holds, or from another step."""

    def empty() -> TrainState:
        return TrainState(*(np.zeros(lanes, dtype) for dtype in (np.uint32, np.int32, np.uint32)))

    def put(carry: TrainState, arrays: Mapping[int, Sequence[np.ndarray]]) -> TrainState:
        carry = TrainState(*map(np.copy, carry))
        for lane, leaves in arrays.items():
            for leaf, array in zip(carry, leaves, strict=True):
                leaf[lane] = array
        return carry

    def advance(carry: TrainState, spans: Spans, upcoming: np.ndarray) -> TrainState:
        carry = TrainState(*map(np.copy, carry))
        for lane in np.flatnonzero(spans.stop > spans.start):
            if spans.start[lane] == 0:
                carry.seed[lane] = carry.state[lane] = spans.seed[lane]
                carry.step[lane] = 0
            assert (carry.seed[lane], carry.step[lane]) == (spans.seed[lane], spans.start[lane])
            state = int(carry.state[lane])
            for step in range(spans.start[lane], spans.stop[lane]):
                state = (state * 1_664_525 + 1_013_904_223 + step) % 2**32
            carry.state[lane], carry.step[lane] = state, spans.stop[lane]
        return carry

    def evaluate(carry: TrainState, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [_row(*map(int, lane)) for lane in zip(*carry, strict=True)]
        metrics = np.where(active[:, None], np.array(rows, np.float32), np.float32("nan"))
        return metrics, np.isfinite(metrics).all(1) & active

    return Programs(
        advance=advance,
        evaluate=evaluate,
        empty=empty,
        put=put,
        lane_shapes=tuple(jax.ShapeDtypeStruct((), dtype) for dtype in (np.uint32, np.int32, np.uint32)),
        metrics=METRICS,
        lanes=lanes,
        strategy="map",
        division=Division(),
        call_steps=None,
        bytes=0,
    )


def _row(seed: int, step: int, state: int) -> tuple[float, float]:
    """A loss that falls at one of seven rates, of one trial in eight only until it diverges; and the state's."""
    diverges = seed % 8 == 7 and step > 5 + seed % 20
    return float("nan") if diverges else float(np.exp(-step * (1 + seed % 7) / 100)), state / 2**32
