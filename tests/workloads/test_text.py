import re
from pydoc_data.topics import topics

import numpy as np

from workloads import registry
from workloads.datasets import text
from workloads.workload import Examples

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


def windows(examples: Examples) -> list[bytes]:
    """The 33 bytes of each window."""
    return list(map(bytes, np.concatenate([examples.inputs, examples.labels[:, -1:]], axis=1).astype(np.uint8)))


def test_every_tenth_window_is_held_out() -> None:
    every = [BYTES[start : start + 33] for start in range(0, len(BYTES) - 32, 33)]
    assert SPLITS.train is not None
    assert sorted(windows(SPLITS.train)) == sorted(window for index, window in enumerate(every) if index % 10)
    places = [every[::10].index(window) for window in windows(SPLITS.validation)]
    assert len(places) == text.VALIDATION_EXAMPLES
    assert places == sorted(places)
    assert places[0] <= len(every[::10]) * 0.02
    assert places[-1] >= len(every[::10]) * 0.98


def test_no_validation_window_is_in_the_training_text() -> None:
    assert SPLITS.train is not None
    inputs = set(map(bytes, SPLITS.train.inputs.astype(np.uint8)))
    labels = set(map(bytes, SPLITS.train.labels.astype(np.uint8)))
    stretches = [BYTES[start + 33 : start + 330] for start in range(0, len(BYTES), 330)]
    for window in windows(SPLITS.validation):
        assert not inputs & {window[:-1], window[1:]}
        assert not labels & {window[:-1], window[1:]}
        assert not any(window[:-1] in stretch or window[1:] in stretch for stretch in stretches), window
    assert len({window[:-1] for window in windows(SPLITS.validation)}) == text.VALIDATION_EXAMPLES


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
    row.check()
