"""Streams: batches of records that are not kept in memory, decoded by other processes ahead of time.

Batch k of a trial is a function of (seed, k) alone. Each epoch visits the records in an order of its own, Grain's, and
drops the last partial batch: position p of batch k is record epoch · n + (k mod ⌊n / B⌋) · B + p of the repeated order.
So a stream starts anywhere without a state, and the same whatever other processes there are.
"""

import collections
import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import numpy as np

from results.bad_input import BadInput
from workloads.workload import Examples

AHEAD_BYTES = 512 << 20  # of batches that are decoded ahead: two superbatches of the harness
MOST_AHEAD = 64  # batches of a trial
PART = 32  # examples that a process decodes at a time
DECODED_AHEAD = 4  # parts for each process, of what is evaluated
PATIENCE_SECONDS = 5.0  # until it is looked whether the processes that decode are still there
SHARED_BY = "SCALING_LIMITS_WORKERS"  # the variable of the environment: how many processes share the machine
MOST_POSITIONS = 1 << 20  # of a batch


class Source(NamedTuple):
    """The records of a split, and how they become examples; sent to other processes, so made of importable functions.

    Attributes:
      records: opens them: a sequence of bytes with random access.
      decode: ``(record, Draws or None) -> (input, label)``, NumPy arrays; with draws it augments.
      example_bytes: of one decoded example, about.
    """

    records: Callable[[], Sequence[bytes]]
    decode: Callable[[bytes, "Draws | None"], tuple[np.ndarray, np.ndarray]]
    example_bytes: int


class Draws:
    """Numbers that are random in one example of training, a function of (seed, step, position)."""

    def __init__(self, seed: int, step: int, position: int):
        self._bits = np.random.Philox(key=[seed, step * MOST_POSITIONS + position])

    def uniform(self) -> float:
        """The next number, in [0, 1). From raw bits, which NumPy promises to keep."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53


def processes() -> int:
    """How many processes decode by default: one for each processor of this process's share of the machine but one."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, processors // int(os.environ.get(SHARED_BY, "1")) - 1)


def record_index(examples: int, step: int, position: int, batch_size: int) -> int:
    """Which record of the repeated order a position of a batch is."""
    epoch, in_epoch = divmod(step, examples // batch_size)
    return epoch * examples + in_epoch * batch_size + position


class Stream:
    """The batches of a source; ``Dataset.feed`` of a data set that is streamed.

    Args:
      source: of the training split.
      workers: processes that decode; None: ``processes()``.
    """

    def __init__(self, source: Source, workers: int | None = None):
        self._source, self._workers = source, workers
        # Batches by their step, of each trial and part of its batches that is fed.
        self._ahead: dict[_Fed, dict[int, list[Future[Examples]]]] = {}
        self._lock = threading.Lock()
        _STREAMS.add(self)

    def __call__(self, seed: int, step: int, batch_size: int, positions: range) -> Examples:
        """Some positions of the batch that a trial with that seed takes after so many steps.

        The same positions of the following batches are decoded meanwhile, as many as ``AHEAD_BYTES`` hold of all trials
        that are fed, until ``keep`` is told that a trial has ended.
        """
        fed = _Fed(seed, batch_size, positions.start, positions.stop)
        try:
            parts = self._parts(fed, step)
        except BrokenProcessPool:  # a process was killed, perhaps for its memory
            with self._lock:
                self._ahead.clear()
                close()
            parts = self._parts(fed, step)
        return Examples(*map(np.concatenate, zip(*parts, strict=True)))

    def _parts(self, fed: "_Fed", step: int) -> list[Examples]:
        """A batch, in parts; those after it are decoded meanwhile."""
        with self._lock:
            own = self._ahead.setdefault(fed, {})
            for passed in [at for at in own if at < step]:
                _drop(own.pop(passed))
            held = max(2 * len(self._ahead), self._held(fed))  # batches that are decoded ahead, of all
            for at in range(step, step + 1 + min(MOST_AHEAD, held // len(self._ahead))):
                if at not in own:
                    own[at] = self._submit(fed, at)
            futures = own.pop(step)  # which frees their memory once they are copied
            while sum(map(len, self._ahead.values())) > held:  # others took more when there were fewer to share it
                most = max(self._ahead.values(), key=len)
                _drop(most.pop(max(most)))
        return list(_results(futures))

    def _held(self, fed: "_Fed") -> int:
        return AHEAD_BYTES // max(1, (fed.last - fed.first) * self._source.example_bytes)

    def keep(self, seeds: Collection[int]) -> None:
        """Drops what is decoded ahead of trials with other seeds."""
        with self._lock:
            for fed in [fed for fed in self._ahead if fed.seed not in seeds]:
                for parts in self._ahead.pop(fed).values():
                    _drop(parts)

    def _submit(self, fed: "_Fed", step: int) -> list[Future[Examples]]:
        pool = _pool(self._workers or processes())
        return [
            pool.submit(_part, self._source, fed.seed, step, fed.batch_size, range(at, min(at + PART, fed.last)))
            for at in range(fed.first, fed.last, PART)
        ]


class _Fed(NamedTuple):
    """A trial, and the positions of its batches that are fed to it."""

    seed: int
    batch_size: int
    first: int
    last: int


def _drop(parts: Sequence[Future[Examples]]) -> None:
    for part in parts:
        part.cancel()


def decoded(source: Source, count: int, workers: int | None = None) -> Examples:
    """The first records of a source, as they are evaluated: without augmentation, in their order."""
    many = workers or processes()
    pool, whole = _pool(many), None
    rest = iter([range(start, min(start + PART, count)) for start in range(0, count, PART)])
    waiting: collections.deque[tuple[range, Future[Examples]]] = collections.deque()

    def submit(parts: int) -> None:
        for rows in itertools.islice(rest, parts):
            waiting.append((rows, pool.submit(_rows, source, rows)))

    submit(DECODED_AHEAD * many)  # a future holds its part, so only these few are in memory twice
    try:
        while waiting:
            rows, future = waiting.popleft()
            (parts,) = _results([future])
            whole = whole or Examples(*(np.empty((count, *array.shape[1:]), array.dtype) for array in parts))
            for array, part in zip(whole, parts, strict=True):
                array[rows.start : rows.stop] = part
            submit(1)
    finally:
        _drop([future for _, future in waiting])
    assert whole is not None
    return whole


def order(records: Any, seed: int) -> Any:
    """Grain's endless order of records, a sequence with random access: a permutation of them in every epoch.

    Raises:
      BadInput: Grain is not installed.
    """
    try:
        import grain
    except ImportError:
        raise BadInput(
            "streamed data need Grain; install the extra `data`: pip install 'scaling-limits[data]'"
        ) from None
    return grain.MapDataset.source(records).seed(seed).shuffle().repeat()


_STREAMS: "weakref.WeakSet[Stream]" = weakref.WeakSet()
_POOLS: dict[int, ProcessPoolExecutor] = {}  # by their size, shared by all streams


def _pool(workers: int) -> ProcessPoolExecutor:
    if workers not in _POOLS:
        _POOLS[workers] = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    return _POOLS[workers]


def keep(seeds: Collection[int]) -> None:
    """Has all streams drop what is decoded ahead but that of trials with these seeds, which go on."""
    for stream in list(_STREAMS):
        stream.keep(seeds)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Has all streams drop, in the end, what was decoded ahead, so that no process is kept waiting for it."""
    try:
        yield
    finally:
        keep(())


def close() -> None:
    """Ends the processes that decode."""
    _end_broken()
    while _POOLS:
        _POOLS.popitem()[1].shutdown(cancel_futures=True)


def _results(futures: Sequence[Future[Examples]]) -> Iterator[Examples]:
    """What futures give; raises BrokenProcessPool if a process that decodes is gone."""
    for future in futures:
        while not future.done():
            if not wait([future], PATIENCE_SECONDS).done:
                _end_broken()
        yield future.result()


def _end_broken() -> None:
    """Ends pools of which a process is gone, so that nobody waits for them.

    An executor sees by itself that a process is gone, but not while it reads what that one had begun to write: it then
    waits for the rest, as long as anybody could write it. It could itself, for which there is no public way to end it.
    """
    for pool in _POOLS.values():
        own = list((pool._processes or {}).values())
        if not all(process.is_alive() for process in own):
            for process in own:
                process.kill()
            pool._result_queue._writer.close()  # type: ignore[attr-defined]


def _begin() -> None:
    """Prepares a process that decodes: it ends with its parent, whom signals are for, and imports no JAX.

    A session of its own keeps signals to the parent's group away. SIGTERM ends it, since that is how an executor that
    has lost one process ends the others, and then waits for them.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if "jax" not in sys.modules:
        sys.modules["jax"] = None  # type: ignore[assignment]  # Grain would import it if it were there
    logging.getLogger("absl").setLevel(logging.ERROR)  # which would say so
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


@functools.lru_cache(maxsize=4)
def _records(source: Source) -> Sequence[bytes]:
    return source.records()


@functools.lru_cache(maxsize=64)
def _order(source: Source, seed: int) -> Any:
    return order(_records(source), seed)


def _part(source: Source, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """Some positions of a batch, decoded and augmented."""
    records, examples = _order(source, seed), len(_records(source))
    rows = [
        source.decode(records[record_index(examples, step, at, batch_size)], Draws(seed, step, at)) for at in positions
    ]
    return Examples(*map(np.stack, zip(*rows, strict=True)))


def _rows(source: Source, rows: range) -> Examples:
    """Some records, decoded as they are evaluated."""
    records = _records(source)
    return Examples(*map(np.stack, zip(*(source.decode(records[at], None) for at in rows), strict=True)))
