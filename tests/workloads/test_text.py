import hashlib
import re
from pydoc_data.topics import topics

import numpy as np

from workloads import registry
from workloads.datasets import text

SPLITS = text.pydoc()
BYTES = "".join(topics[name] for name in sorted(topics)).encode()


def test_windows_are_bytes_and_the_byte_after() -> None:
    for examples in (SPLITS.train, SPLITS.validation):
        assert examples is not None
        assert examples.inputs.shape == examples.labels.shape == (len(examples.labels), 32)
        assert examples.inputs.dtype == examples.labels.dtype == np.int32
        np.testing.assert_array_equal(examples.inputs[:, 1:], examples.labels[:, :-1])
        assert examples.inputs.min() >= 0
        assert examples.labels.max() < 256
    first = bytes(SPLITS.validation.inputs[0].tolist() + SPLITS.validation.labels[0, -1:].tolist())
    assert first == BYTES[:33]


def test_every_tenth_window_is_held_out() -> None:
    windows = [BYTES[start : start + 33] for start in range(0, len(BYTES) - 32, 33)]
    assert SPLITS.train is not None
    train = np.concatenate([SPLITS.train.inputs, SPLITS.train.labels[:, -1:]], axis=1).astype(np.uint8)
    kept = [window for index, window in enumerate(windows) if index % 10]
    assert sorted(map(bytes, train)) == sorted(kept)
    validation = np.concatenate([SPLITS.validation.inputs, SPLITS.validation.labels[:, -1:]], axis=1).astype(np.uint8)
    places = [windows[::10].index(bytes(window)) for window in validation]
    assert len(places) == text.VALIDATION_EXAMPLES
    assert places[-1] >= len(windows[::10]) * 0.99


def test_the_first_training_windows_come_from_the_whole_text() -> None:
    assert SPLITS.train is not None
    shares = []
    for part in (SPLITS.train.inputs[: text.VALIDATION_EXAMPLES], SPLITS.train.inputs):
        shares.append(np.bincount(part.ravel(), minlength=256) / part.size)
    assert np.abs(shares[0] - shares[1]).max() < 0.02


def test_the_registry_knows_it_without_cutting() -> None:
    row = registry.DATASETS["pydoc"]
    assert SPLITS.train is not None
    assert row.train_examples == len(SPLITS.train.labels) > 10_000
    assert row.evaluation_examples == len(SPLITS.validation.labels)
    assert re.fullmatch("sha256:[0-9a-f]{16}", row.version())
    assert row.version().removeprefix("sha256:") == hashlib.sha256(BYTES).hexdigest()[:16]
    row.check()
