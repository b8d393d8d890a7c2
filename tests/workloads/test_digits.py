"""scikit-learn's digits are split by writers; everything here is read from scikit-learn itself, in plain NumPy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from results.bad_input import BadInput
from workloads import registry
from workloads.datasets import in_memory
from workloads.workload import Examples, content

BUNCH = load_digits()
IMAGES, LABELS = BUNCH.data.astype(np.float64), BUNCH.target  # [1797, 64] and [1797]
SPLITS = in_memory.digits()
TRAIN, VALIDATION = SPLITS.train, SPLITS.validation


def forms() -> list[int]:
    """Where the forms begin: each asks for 0 … 9 three times over, which a few lost images may have cut short."""
    rising = np.diff(LABELS) % 10 == 1
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rising, [False]]).astype(int)))
    long = [(start, end) for start, end in edges.reshape(-1, 2) if end - start >= 9]
    return [start for i, (start, _) in enumerate(long) if i == 0 or start - long[i - 1][1] > 30]


def error(train: np.ndarray, held_out: np.ndarray) -> float:
    """The share of images, by their places in the file, whose nearest neighbour of ``train`` has another label."""
    squares = (IMAGES**2).sum(1)
    distances = squares[held_out, None] + squares[train] - 2 * IMAGES[held_out] @ IMAGES[train].T
    return float(np.mean(LABELS[train][distances.argmin(1)] != LABELS[held_out]))


def places(examples: Examples) -> np.ndarray:
    """Where in the file the images of a split lie; no two images are equal."""
    by_image = {image.tobytes(): place for place, image in enumerate(IMAGES.astype(np.float32) / 16)}
    assert len(by_image) == len(IMAGES)
    found = np.array([by_image[image.tobytes()] for image in examples.inputs])
    np.testing.assert_array_equal(LABELS[found], examples.labels)
    return found


def test_every_image_is_in_one_split() -> None:
    assert TRAIN is not None
    assert TRAIN.inputs.shape[1:] == VALIDATION.inputs.shape[1:] == (8, 8, 1)
    assert sorted(np.concatenate([places(TRAIN), places(VALIDATION)])) == list(range(len(LABELS)))


def test_forms_are_whole() -> None:
    starts = forms()
    assert len(starts) == 14
    assert min(np.diff([*starts, len(LABELS)])) > 120
    form = np.searchsorted(starts, np.arange(len(LABELS)), side="right")
    assert TRAIN is not None
    assert not set(form[places(TRAIN)]) & set(form[places(VALIDATION)])


def test_forms_are_of_one_hand() -> None:
    starts = forms()
    form = np.searchsorted(starts, np.arange(len(LABELS)), side="right")
    squares = (IMAGES**2).sum(1)
    distances = squares[:, None] + squares - 2 * IMAGES @ IMAGES.T
    np.fill_diagonal(distances, np.inf)
    assert np.mean(form[distances.argmin(1)] == form) > 0.5  # a fourteenth of those of one hand would be by chance


def test_classes_are_proportional() -> None:
    share = np.bincount(LABELS) * len(VALIDATION.labels) / len(LABELS)
    assert np.abs(np.bincount(VALIDATION.labels) - share).max() <= 1


def test_validation_is_as_hard_as_held_out_writers() -> None:
    assert TRAIN is not None
    found = error(places(TRAIN), places(VALIDATION))
    assert found >= 0.035
    every = np.arange(len(LABELS))
    form = np.searchsorted(forms(), every, side="right")
    triples = [np.isin(form, [first, first + 1, first + 2]) for first in range(1, 13)]
    assert found == pytest.approx(np.mean([error(every[~out], every[out]) for out in triples]), abs=0.01)
    interleaved = every % 5 == 0
    assert error(every[~interleaved], every[interleaved]) < 0.025  # what neighbours in training are worth


def test_an_evaluation_of_training_sees_all_writers() -> None:
    assert TRAIN is not None
    first = places(TRAIN)[: registry.DATASETS["digits"].evaluation_examples]
    counts = np.bincount(np.searchsorted(forms(), first, side="right"))[4:]
    assert min(counts) > 20
    assert len(counts) == 11


def test_the_version_tells_content_and_splits() -> None:
    assert in_memory.version("digits") == content(SPLITS)
    assert in_memory.version("digits").startswith("sha256:")
    assert TRAIN is not None
    other = VALIDATION.inputs.copy()
    other[0, 0, 0] += 1 / 16
    for changed in (
        SPLITS._replace(validation=VALIDATION._replace(inputs=other)),
        SPLITS._replace(train=Examples(TRAIN.inputs[::-1], TRAIN.labels[::-1])),
        SPLITS._replace(train=VALIDATION, validation=TRAIN),
        SPLITS._replace(test=VALIDATION),
    ):
        assert content(changed) != content(SPLITS)


def test_a_plan_does_not_import_scikit_learn() -> None:
    code = "import sys; from workloads.datasets import in_memory; in_memory.version('digits')"
    code += "; print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_missing_file_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    with pytest.raises(BadInput, match="scikit-learn has no"):
        in_memory.check("digits")


def test_subsets_are_the_first_images_or_those_of_some_digits() -> None:
    assert TRAIN is not None
    for name, of in in_memory.SUBSETS.items():
        train, validation, _ = in_memory.load(name)
        assert train is not None
        chosen = np.isin(TRAIN.labels, of.classes)
        np.testing.assert_array_equal(train.inputs, TRAIN.inputs[chosen][: of.train_examples])
        np.testing.assert_array_equal(np.asarray(of.classes)[train.labels], TRAIN.labels[chosen][: of.train_examples])
        assert len(validation.labels) == of.validation_examples == np.isin(VALIDATION.labels, of.classes).sum()
    assert in_memory.SUBSETS["digits_even"].train_examples == (TRAIN.labels % 2 == 0).sum()
    assert len({in_memory.version(name) for name in in_memory.SUBSETS}) == len(in_memory.SUBSETS)
