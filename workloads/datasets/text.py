"""Text that comes with Python itself: the help topics of ``pydoc``, byte by byte."""

import functools
import hashlib

import numpy as np

from workloads.workload import Examples, Splits

LENGTH = 32  # bytes of context, each of which predicts the next
VALIDATION_EXAMPLES = 256


def pydoc() -> Splits:
    """The help topics of CPython (``pydoc_data.topics``, about 400 kB), sorted by name, as bytes of UTF-8.

    The text is cut into windows of 33 bytes that do not overlap; inputs are the first 32 of each, labels the last 32.
    Every tenth window, from the first, is held out: 256 of those, evenly spread, are validation, and the others are
    used for nothing. Training windows are ordered in strides, so that the first few of them, on which an evaluation
    looks, come from the whole text.

    Returns:
      Splits with inputs int32[N, 32] and labels int32[N, 32], in 0…255.
    """
    windows = np.frombuffer(_text(), np.uint8)[: _windows() * (LENGTH + 1)].reshape(-1, LENGTH + 1).astype(np.int32)
    held_out = np.arange(len(windows)) % 10 == 0
    candidates, train = windows[held_out], windows[~held_out]
    spread = np.arange(VALIDATION_EXAMPLES) * len(candidates) // VALIDATION_EXAMPLES
    strides = np.argsort(np.arange(len(train)) % (len(train) // VALIDATION_EXAMPLES), kind="stable")
    return Splits(train=_examples(train[strides]), validation=_examples(candidates[spread]), test=None)


def train_examples() -> int:
    """How many training windows ``pydoc`` gives, without cutting them."""
    return _windows() - -(-_windows() // 10)


@functools.cache
def version() -> str:
    """Which text this is: it differs from one version of Python to the next."""
    return f"sha256:{hashlib.sha256(_text()).hexdigest()[:16]}"


@functools.cache
def _text() -> bytes:
    from pydoc_data.topics import topics  # only where it is wanted: half a megabyte

    return "".join(topics[name] for name in sorted(topics)).encode()


def _windows() -> int:
    return len(_text()) // (LENGTH + 1)


def _examples(windows: np.ndarray) -> Examples:
    """Inputs and labels int32[N, 32] of windows int32[N, 33]."""
    return Examples(np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:]))
