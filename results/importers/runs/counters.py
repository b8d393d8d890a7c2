"""Counters: converts the counters of a log, such as epochs or examples, to training steps."""

import math
from collections.abc import Sequence

import numpy as np

from results.importers.runs.log import Log, product
from results.importers.runs.run_map import PER_BATCH, Field, RunMap
from results.importers.untrusted import Unusable

LAST_STEP = 2**31 - 1


def steps(counts: np.ndarray, metric: str, log: Log, run_map: RunMap) -> np.ndarray:
    """Returns the training steps of rows.

    Args:
      counts: float64[n], the counter of the metric.
      metric: name of the metric, or an empty string for other columns.
      log: the log, from which steps per epoch and the batch size are looked up.
      run_map: the map.

    Returns:
      int64[n], steps.

    Raises:
      Unusable: a step is not an integer in range.
    """
    counter, factors = run_map.counter(metric), run_map.factors(metric)
    taken = counts + counter.plus
    if factors:
        taken = np.rint(taken * _epoch_length(factors, log, run_map))
    elif counter.column == run_map.examples_seen:
        taken = np.ceil(taken / product("batch_size", run_map.batch_size, log))
    if np.any((taken < 0) | (taken > LAST_STEP) | (taken != np.floor(taken))):
        raise Unusable(f"has a {counter.column} that is not an integer from 0 to {LAST_STEP}")
    return taken.astype(np.int64)


def _epoch_length(factors: Sequence[Field], log: Log, run_map: RunMap) -> int:
    if factors[-1] == PER_BATCH:
        examples = product("steps_per_epoch", factors[:-1], log)
        return math.ceil(examples / product("batch_size", run_map.batch_size, log))
    return product("steps_per_epoch", factors, log)
