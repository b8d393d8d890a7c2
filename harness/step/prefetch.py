"""Prefetches streamed data. All batches of a call form one array, built while devices train on the previous one."""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import numpy as np
from jax.sharding import NamedSharding

from harness.step import mesh
from harness.step.batch_partition import Division
from harness.step.training import Spans
from workloads.workload import Examples, Workload


class Feeder:
    """Superbatches of a study's calls, [L, steps, shards · examples per shard, ...], on the devices.

    Args:
      make: function that builds the superbatch of a call, such as ``fed`` with its other arguments bound.
      steps: maximum number of steps per call.
    """

    def __init__(self, make: Callable[[Spans], Examples], steps: int):
        self._make = make
        self._steps = steps
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[Spans, Future[Examples]] | None = None

    def take(self, spans: Spans, upcoming: np.ndarray | None = None) -> Examples:
        """Returns the superbatch of a call. Prefetches that of the next call, which should start where this one ends.

        Args:
          spans: work of each lane in the call.
          upcoming: int32[L], steps at which the next call ends at the latest. By default, the next call is as long as
            possible.
        """
        ready = self._next[1] if self._next and _begins(self._next[0], spans) else None
        try:
            superbatch = self._make(spans) if ready is None else ready.result()
        except CancelledError:  # the decoding processes were replaced in the meantime
            superbatch = self._make(spans)
        works = spans.stop > spans.start
        limit = spans.stop + self._steps
        stop = limit if upcoming is None else np.clip(upcoming, spans.stop, limit)
        after = spans._replace(start=spans.stop, stop=np.where(works, stop, spans.stop))
        self._next = after, self._thread.submit(self._make, after)
        return superbatch

    def close(self) -> None:
        """Drops the prefetched superbatch. Call it at the end of a study."""
        if self._next is not None:
            self._next[1].cancel()
            self._next = None


def fed(
    workload: Workload, batch_size: int, division: Division, steps: int, sharding: NamedSharding, spans: Spans
) -> Examples:
    """Returns the superbatch of a call. Unused steps, batch padding, and parts that belong to other hosts are zero.

    Args:
      workload: workload that has ``feed``.
      batch_size: number of examples in a whole batch.
      division: partition of each batch.
      steps: maximum number of steps per call.
      sharding: sharding of the superbatch. Each host loads only the batches for its own lanes and shards.
      spans: work of each lane in the call.
    """
    assert workload.feed is not None and workload.shapes.train is not None
    size = division.examples(batch_size) * division.shards
    shapes = [(len(spans.seed), steps, size, *a.shape[1:]) for a in workload.shapes.train]
    superbatch = Examples(*(np.zeros(s, a.dtype) for s, a in zip(shapes, workload.shapes.train, strict=True)))
    lanes, _, positions = _own(sharding, shapes[0][:3])
    positions = range(positions.start, min(positions.stop, batch_size))
    for lane in lanes if positions else ():
        for step in range(spans.start[lane], min(spans.stop[lane], spans.start[lane] + steps)):
            batch = workload.feed(int(spans.seed[lane]), step, batch_size, positions)
            for target, array in zip(superbatch, batch, strict=True):
                target[lane, step - spans.start[lane], positions.start : positions.stop] = array
    return mesh.device_put_sharded(superbatch, sharding)


def _begins(made: Spans, spans: Spans) -> bool:
    """Returns whether a superbatch contains the batches of a call, for every lane that takes steps."""
    works = spans.stop > spans.start
    matches = (made.seed == spans.seed) & (made.start == spans.start) & (made.stop >= spans.stop)
    return bool(np.all(matches[works]))


def _own(sharding: NamedSharding, shape: tuple[int, ...]) -> list[range]:
    """Returns the contiguous range of indices that this process's devices hold, for each axis."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    sides = [[index[axis].indices(n) for index in indices if index is not None] for axis, n in enumerate(shape)]
    return [range(min(first for first, *_ in side), max(last for _, last, _ in side)) for side in sides]
