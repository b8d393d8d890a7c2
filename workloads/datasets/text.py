"""Text that comes with Python itself: the help topics of ``pydoc``, byte by byte."""

import functools

import numpy as np

from workloads import workload
from workloads.workload import ArrayShape, Examples, Splits, content

LENGTH = 32  # bytes of context, each of which predicts the next
VALIDATION_EXAMPLES = 256
HELD_OUT = 10  # one window in so many


def pydoc() -> Splits:
    """The help topics of CPython (``pydoc_data.topics``, about 400 kB), sorted by name, as bytes of UTF-8.

    The text is cut into windows of 33 bytes that do not overlap; inputs are the first 32 of each, labels the last 32.
    Every tenth window, from the first, is held out. The manual repeats itself, so of these only windows count whose
    inputs and whose labels occur nowhere in the training text, at no offset, and no two with the same inputs: 256 of
    them, evenly spread, are validation. The others are not used, and training keeps all of its windows.
    Training windows are ordered in strides, so that the first few of them, on which an evaluation looks, come from the
    whole text.

    Returns:
      Splits with inputs int32[N, 32] and labels int32[N, 32], in 0…255.
    """
    windows = np.frombuffer(_text(), np.uint8)[: _windows() * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    held_out = np.arange(len(windows)) % HELD_OUT == 0
    candidates, train = _unseen(windows[held_out], windows), windows[~held_out]
    spread = np.arange(VALIDATION_EXAMPLES) * len(candidates) // VALIDATION_EXAMPLES
    strides = np.argsort(np.arange(len(train)) % (len(train) // VALIDATION_EXAMPLES), kind="stable")
    return Splits(train=_examples(train[strides]), validation=_examples(candidates[spread]), test=None)


def train_examples() -> int:
    """The number of training windows that ``pydoc`` gives, without cutting them."""
    return _windows() - -(-_windows() // HELD_OUT)


def shapes() -> Splits:
    """The shapes of what ``pydoc`` gives."""
    window = ArrayShape((LENGTH,), np.dtype(np.int32))
    return workload.shapes((train_examples(), VALIDATION_EXAMPLES, None), window, window)


@functools.cache
def version() -> str:
    """The version of the text, which differs between versions of Python, and of its split."""
    return content(pydoc())


def _unseen(candidates: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """The candidates, of uint8[N, 33], whose first and last 32 bytes both occur nowhere in training.

    Args:
      windows: uint8[all, 33], the whole text; each stretch between two windows that are held out is of training.
    """
    stretches = [windows[first + 1 : first + HELD_OUT].tobytes() for first in range(0, len(windows), HELD_OUT)]
    seen = {text[start : start + LENGTH] for text in stretches for start in range(len(text) - LENGTH + 1)}
    unseen = {}
    for window in map(bytes, candidates):
        if window[:-1] not in seen and window[1:] not in seen:
            unseen[window[:-1]] = window
    return np.frombuffer(b"".join(unseen.values()), np.uint8).reshape(-1, LENGTH + 1)


@functools.cache
def _text() -> bytes:
    from pydoc_data.topics import topics  # here, because it is half a megabyte

    return "".join(topics[name] for name in sorted(topics)).encode()


def _windows() -> int:
    return len(_text()) // (LENGTH + 1)


def _examples(windows: np.ndarray) -> Examples:
    """Inputs and labels int32[N, 32] of windows uint8[N, 33]."""
    windows = windows.astype(np.int32)
    return Examples(np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:]))
