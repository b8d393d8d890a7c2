"""Streams batches of data that do not fit in memory. Separate processes decode the records ahead of time.

Batch k of a trial depends only on (seed, k). Grain shuffles the records in each epoch, and the last partial batch is
dropped, so position p of batch k is record epoch · n + (k mod ⌊n / B⌋) · B + p of the repeated order. A stream is
therefore stateless. It can start at any batch and does not depend on the number of processes.
"""

import collections
import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, cast

import numpy as np

from workloads.base import BadInput
from workloads.workload import Examples

AHEAD_BYTES = 512 << 20  # limit on all batches decoded ahead: two superbatches of the harness
MOST_AHEAD = 64  # batches decoded ahead per trial
PART = 32  # examples that a process decodes at once
DECODED_AHEAD = 4  # parts of evaluated examples decoded ahead, per process
PATIENCE_SECONDS = 5.0  # interval between checks that the decoding processes are alive
SHARED_BY = "SCALING_LIMITS_WORKERS"  # environment variable: number of processes that share the machine
MOST_POSITIONS = 1 << 20  # largest batch size


Decode = Callable[[bytes, "Draws | None"], tuple[np.ndarray, np.ndarray]]


class Source(NamedTuple):
    """The records of a split, and a function that decodes them. Sources are pickled, so both must be importable.

    Attributes:
      records: function that opens the records as a sequence of bytes with random access.
      decode: ``(record, Draws or None) -> (input, label)``, NumPy arrays. If draws are given, the example is augmented.
      example_bytes: approximate size of one decoded example.
    """

    records: Callable[[], Sequence[bytes]]
    decode: Decode
    example_bytes: int


class Draws:
    """Random numbers for one training example, which depend only on (seed, step, position)."""

    def __init__(self, seed: int, step: int, position: int):
        self._bits = np.random.Philox(key=[seed, step * MOST_POSITIONS + position])

    def uniform(self) -> float:
        """Returns the next number in [0, 1). Uses raw random bits, which are the same in all versions of NumPy."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53


def processes() -> int:
    """Returns the default number of decoding processes: this process's share of the processors, minus one."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, processors // int(os.environ.get(SHARED_BY, "1")) - 1)


def record_index(examples: int, step: int, position: int, batch_size: int) -> int:
    """Returns the index in the repeated order of the record at a position of a batch."""
    epoch, in_epoch = divmod(step, examples // batch_size)
    return epoch * examples + in_epoch * batch_size + position


class Stream:
    """Batches of a source. Use it as the ``Dataset.feed`` of a streamed data set.

    Args:
      source: the training split.
      workers: number of decoding processes. Defaults to ``processes()``.
    """

    def __init__(self, source: Source, workers: int | None = None):
        self._source = source
        self._packed = pickle.dumps(source)
        self._workers = workers
        self._ends: Mapping[int, int] = {}
        # For each trial and range of positions, batches by step.
        self._ahead: dict[_Fed, dict[int, list[Future[Examples]]]] = {}
        self._lock = threading.Lock()
        _STREAMS.add(self)

    def __call__(self, seed: int, step: int, batch_size: int, positions: range) -> Examples:
        """Returns some positions of the batch at a step of a trial, which is identified by its seed.

        The same positions of subsequent batches are decoded in the background, up to ``AHEAD_BYTES`` for all trials
        together. ``keep`` stops this for trials that have ended.
        """
        fed = _Fed(seed, batch_size, positions)
        try:
            parts = self._parts(fed, step)
        except BrokenProcessPool:  # a process was killed, possibly because it ran out of memory
            with self._lock:
                self._ahead.clear()
                close()
            parts = self._parts(fed, step)
        return Examples(*map(np.concatenate, zip(*parts, strict=True)))

    def _parts(self, fed: "_Fed", step: int) -> list[Examples]:
        """Returns a batch in parts, and schedules the following batches."""
        with self._lock:
            batches = self._ahead.setdefault(fed, {})
            for old_step in [next_step for next_step in batches if next_step < step]:
                _drop(batches.pop(old_step))
            fitting = AHEAD_BYTES // max(1, len(fed.positions) * self._source.example_bytes)
            held = max(2 * len(self._ahead), fitting)  # batches decoded ahead, over all trials
            until = step + 1 + min(MOST_AHEAD, held // len(self._ahead))
            for next_step in range(step, max(step + 1, min(until, self._ends.get(fed.seed, until)))):
                if next_step not in batches:
                    batches[next_step] = self._submit(fed, next_step)
            futures = batches.pop(step)  # their memory is freed after the copy
            while sum(map(len, self._ahead.values())) > held:  # trials that started earlier may hold more
                longest = max(self._ahead.values(), key=len)
                _drop(longest.pop(max(longest)))
        return list(_results(futures))

    def keep(self, ends: Mapping[int, int]) -> None:
        """Drops batches decoded ahead for all other trials. See the function ``keep``."""
        with self._lock:
            self._ends = ends
            for fed in [fed for fed in self._ahead if fed.seed not in ends]:
                for parts in self._ahead.pop(fed).values():
                    _drop(parts)

    def _submit(self, fed: "_Fed", step: int) -> list[Future[Examples]]:
        pool = _pool(self._workers or processes())
        return [
            pool.submit(_part, self._packed, fed.seed, step, fed.batch_size, fed.positions[start : start + PART])
            for start in range(0, len(fed.positions), PART)
        ]


class _Fed(NamedTuple):
    """A trial, and a range of positions in its batches."""

    seed: int
    batch_size: int
    positions: range


def _drop(parts: Sequence[Future[Examples]]) -> None:
    for part in parts:
        part.cancel()


def decoded(source: Source, count: int, workers: int | None = None) -> Examples:
    """Returns the first ``count`` examples of a source, in order and without augmentation, for evaluations."""
    process_count = workers or processes()
    pool = _pool(process_count)
    packed = pickle.dumps(source)
    examples = None
    ranges = (range(count)[start : start + PART] for start in range(0, count, PART))
    submitted = ((rows, pool.submit(_rows, packed, rows)) for rows in ranges)
    # Futures hold their results, so these few parts are in memory twice.
    waiting = collections.deque(itertools.islice(submitted, DECODED_AHEAD * process_count))
    try:
        while waiting:
            rows, future = waiting.popleft()
            (parts,) = _results([future])
            examples = examples or Examples(*(np.empty((count, *array.shape[1:]), array.dtype) for array in parts))
            for array, part in zip(examples, parts, strict=True):
                array[rows.start : rows.stop] = part
            waiting.extend(itertools.islice(submitted, 1))
    finally:
        _drop([future for _, future in waiting])
    assert examples is not None
    return examples


def order(records: Any, seed: int) -> Any:
    """Returns Grain's infinite order of records: a random-access sequence in which each epoch is shuffled.

    Raises:
      BadInput: Grain is not installed.
    """
    try:
        import grain
    except ImportError:
        raise BadInput(
            "streamed data need Grain. Install the extra `data`: pip install 'scaling-limits[data]'"
        ) from None
    return grain.MapDataset.source(records).seed(seed).shuffle().repeat()


_STREAMS: "weakref.WeakSet[Stream]" = weakref.WeakSet()
_POOLS: dict[int, ProcessPoolExecutor] = {}  # pools by size, shared by all streams


def _pool(workers: int) -> ProcessPoolExecutor:
    if workers not in _POOLS:
        _POOLS[workers] = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    return _POOLS[workers]


def keep(ends: Mapping[int, int]) -> None:
    """In all streams, drops batches decoded ahead for trials that are not in ``ends``. Decoding stops at the ends.

    Args:
      ends: number of steps of each trial, by its seed.
    """
    for stream in list(_STREAMS):
        stream.keep(ends)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Drops all batches decoded ahead when the block exits, so no process waits for them."""
    try:
        yield
    finally:
        keep({})


def close() -> None:
    """Stops the decoding processes."""
    _end_broken()
    while _POOLS:
        _POOLS.popitem()[1].shutdown(cancel_futures=True)


def _results(futures: Sequence[Future[Examples]]) -> Iterator[Examples]:
    """Yields the results of futures. Raises BrokenProcessPool if a decoding process has died."""
    for future in futures:
        while not future.done():
            if not wait([future], PATIENCE_SECONDS).done:
                _end_broken()
        yield future.result()


def _end_broken() -> None:
    """Shuts down pools that have lost a process, so waiting for their results raises an error.

    An executor detects a lost process, unless it is reading a result that the process has only partly written. In that
    case, it waits for the rest as long as the pipe has a writer. The executor itself holds a writer, which cannot be
    closed through a public API.
    """
    for pool in _POOLS.values():
        workers = list((pool._processes or {}).values())
        if not all(process.is_alive() for process in workers):
            for process in workers:
                process.kill()
            pool._result_queue._writer.close()  # type: ignore[attr-defined]


def _begin() -> None:
    """Initializes a decoding process, which ends with its parent, ignores the parent's signals and does not import JAX.

    A new session shields it from signals to the parent's process group. SIGTERM must end the process, because an
    executor that has lost a process terminates the others and then waits for them.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if "jax" not in sys.modules:
        sys.modules["jax"] = None  # type: ignore[assignment]  # Grain imports JAX if it can
    logging.getLogger("absl").setLevel(logging.ERROR)  # Grain logs that JAX is missing
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


@functools.lru_cache(maxsize=8)
def _source(packed: bytes) -> Source:
    """Unpickles a source. The cache key is the pickle, because two copies of a partial do not compare equal."""
    return cast(Source, pickle.loads(packed))


@functools.lru_cache(maxsize=8)
def _records(packed: bytes) -> Sequence[bytes]:
    return _source(packed).records()


@functools.lru_cache(maxsize=64)
def _order(packed: bytes, seed: int) -> Any:
    return order(_records(packed), seed)


def _part(packed: bytes, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """Decodes and augments some positions of a batch."""
    decode = _source(packed).decode
    records = _order(packed, seed)
    examples = len(_records(packed))
    rows = [
        decode(records[record_index(examples, step, position, batch_size)], Draws(seed, step, position))
        for position in positions
    ]
    return Examples(*map(np.stack, zip(*rows, strict=True)))


def _rows(packed: bytes, rows: range) -> Examples:
    """Decodes some records for an evaluation."""
    records = _records(packed)
    decode = _source(packed).decode
    return Examples(*map(np.stack, zip(*(decode(records[row], None) for row in rows), strict=True)))
