"""Text that comes with Python: the help topics of ``pydoc`` as bytes."""

import functools
import hashlib

import numpy as np

from workloads import workload
from workloads.workload import ArrayShape, Examples, Splits, content

LENGTH = 32  # bytes of context
VALIDATION_EXAMPLES = 256
HELD_OUT = 10  # every tenth window is held out
WORDS = 6  # in the shortest paragraph


def pydoc() -> Splits:
    """Returns the help topics of CPython (``pydoc_data.topics``, about 400 kB), sorted by name, as UTF-8 bytes.

    The text is cut into non-overlapping windows of 33 bytes. Inputs are the first 32 bytes of a window, and labels are
    the last 32. Every tenth window, starting with the first, is held out. Since the help topics contain repetitions, a
    held-out window is used only if neither its inputs nor its labels occur in the training text at any offset. Windows
    with equal inputs are used only once. The validation split contains 256 of the held-out windows, evenly spaced. The
    training split contains all training windows in strided order, so the first ones, which are used for evaluation,
    come from the whole text.

    Returns:
      Splits with inputs int32[N, 32] and labels int32[N, 32], in 0…255.
    """
    windows = np.frombuffer(_text(), np.uint8)[: _windows() * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    held_out = np.arange(len(windows)) % HELD_OUT == 0
    candidates = _unseen(windows[held_out], windows)
    train = windows[~held_out]
    spread = np.arange(VALIDATION_EXAMPLES) * len(candidates) // VALIDATION_EXAMPLES
    strides = np.argsort(np.arange(len(train)) % (len(train) // VALIDATION_EXAMPLES), kind="stable")
    return Splits(train=_examples(train[strides]), validation=_examples(candidates[spread]), test=None)


def train_examples() -> int:
    """Returns the number of training windows of ``pydoc`` without building the windows."""
    return _windows() - -(-_windows() // HELD_OUT)


def shapes() -> Splits:
    """Returns the shapes of the splits of ``pydoc``."""
    window = ArrayShape((LENGTH,), np.dtype(np.int32))
    return workload.shapes((train_examples(), VALIDATION_EXAMPLES, None), window, window)


@functools.cache
def version() -> str:
    """Returns the hash of the text and its split. The text differs between versions of Python."""
    return content(pydoc())


def paragraphs() -> list[str]:
    """Returns the distinct paragraphs of the help topics that have at least ``WORDS`` words, in order.

    The lines of a paragraph are joined by spaces.
    """
    joined = (" ".join(paragraph.split()) for paragraph in _text().decode().split("\n\n"))
    return list(dict.fromkeys(paragraph for paragraph in joined if len(paragraph.split()) >= WORDS))


@functools.cache
def content_of_paragraphs() -> str:
    """Returns a hash of ``paragraphs``: ``sha256:`` followed by 16 hex digits."""
    return f"sha256:{hashlib.sha256(repr(paragraphs()).encode()).hexdigest()[:16]}"


def _unseen(candidates: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Returns the candidates whose first and last 32 bytes do not occur in the training text.

    Args:
      candidates: uint8[N, 33], held-out windows.
      windows: uint8[all, 33], the whole text. Text between two held-out windows is training text.
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
    from pydoc_data.topics import topics  # imported on demand because it has half a megabyte

    return "".join(topics[name] for name in sorted(topics)).encode()


def _windows() -> int:
    return len(_text()) // (LENGTH + 1)


def _examples(windows: np.ndarray) -> Examples:
    """Splits windows uint8[N, 33] into inputs and labels int32[N, 32]."""
    windows = windows.astype(np.int32)
    return Examples(np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:]))
