"""Superbatches of streamed data: all batches of a call as one array, the next one made while the devices train."""

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import numpy as np
from jax.sharding import NamedSharding

from harness import mesh
from harness.batch_partition import Division
from harness.training import Spans
from workloads.workload import Examples, Workload


class Feeder:
    """The superbatches of a study's calls, [L, steps, shards · examples of a shard, ...], on the devices.

    Args:
      workload: with ``feed``.
      batch_size: examples of a whole batch.
      division: of each batch.
      steps: the most steps of a call.
      sharding: of a superbatch; each host gets the batches of its own lanes and shards.
    """

    def __init__(self, workload: Workload, batch_size: int, division: Division, steps: int, sharding: NamedSharding):
        self._workload, self._batch_size, self._division = workload, batch_size, division
        self._steps, self._sharding = steps, sharding
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[Spans, Future[Examples]] | None = None

    def take(self, spans: Spans) -> Examples:
        """The superbatch of a call; starts to make the one of a call that would go on where this ends."""
        made = self._next[1] if self._next and _begins(self._next[0], spans) else None
        try:
            superbatch = self._made(spans) if made is None else made.result()
        except CancelledError:  # the processes that decode were replaced meanwhile
            superbatch = self._made(spans)
        works = spans.stop > spans.start
        after = spans._replace(start=spans.stop, stop=np.where(works, spans.stop + self._steps, spans.stop))
        self._next = after, self._thread.submit(self._made, after)
        return superbatch

    def drop(self) -> None:
        """Drops the superbatch that was made ahead, at the end of a study."""
        if self._next is not None:
            self._next[1].cancel()
            self._next = None

    def _made(self, spans: Spans) -> Examples:
        return mesh.device_put_sharded(
            fed(self._workload, spans, self._steps, self._batch_size, self._division, self._sharding), self._sharding
        )


def fed(
    workload: Workload, spans: Spans, steps: int, batch_size: int, division: Division, sharding: NamedSharding
) -> Examples:
    """The batches of one call; zeros where a lane takes fewer steps, beyond the end of a batch, and of other hosts."""
    assert workload.feed is not None and workload.shapes.train is not None
    size = division.examples(batch_size) * division.shards
    shapes = [(len(spans.seed), steps, size, *a.shape[1:]) for a in workload.shapes.train]
    superbatch = Examples(*(np.zeros(s, a.dtype) for s, a in zip(shapes, workload.shapes.train, strict=True)))
    lanes, _, positions = _own(sharding, shapes[0][:3])
    positions = range(positions.start, min(positions.stop, batch_size))
    for lane in lanes if positions else ():
        for step in range(spans.start[lane], min(spans.stop[lane], spans.start[lane] + steps)):
            batch = workload.feed(int(spans.seed[lane]), step, batch_size, positions)
            for whole, array in zip(superbatch, batch, strict=True):
                whole[lane, step - spans.start[lane], positions.start : positions.stop] = array
    return superbatch


def _begins(made: Spans, spans: Spans) -> bool:
    """Whether a superbatch has the batches of a call: those of each lane that takes steps, from its first."""
    works = spans.stop > spans.start
    same = (made.seed == spans.seed) & (made.start == spans.start) & (made.stop >= spans.stop)
    return bool(np.all(same[works]))


def _own(sharding: NamedSharding, shape: tuple[int, ...]) -> list[range]:
    """By axis which places of an array the devices of this process hold; they are neighbours."""
    found = sharding.addressable_devices_indices_map(shape).values()
    sides = [[index[axis].indices(n) for index in found if index is not None] for axis, n in enumerate(shape)]
    return [range(min(first for first, *_ in side), max(last for _, last, _ in side)) for side in sides]
