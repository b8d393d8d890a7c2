"""Streamed data sets made of data in Python packages, prepared by the real command and read by TFDS."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest

from workloads import data_stream, prepare, registry
from workloads.datasets import embedded_originals, in_memory, streamed_images, streamed_records, streamed_text

pytest.importorskip("grain")
pytest.importorskip("sentencepiece")


@pytest.fixture(scope="module", autouse=True)
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    within = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(within))
        for name in ("streamed_digits", "streamed_pydoc"):  # a name of files, and one of a task
            assert prepare.main([name]) == 0
            assert prepare.main([name]) == 0  # which changes nothing
        yield within
    data_stream.close()


def read(place: Path, split: str) -> list[dict[str, Any]]:
    """The examples of a split, as TFDS reads them."""
    import tensorflow_datasets as tfds

    return list(tfds.builder_from_directory(place).as_data_source(split))


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    originals = np.rint(255 * images.reshape(-1, 8, 8) / 16).astype(int)
    place = streamed_records.folder("shallue2018_digits")
    seen: list[int] = []
    for split, count in embedded_originals.DIGITS.items():
        examples = read(place, split)
        assert len(examples) == count
        for example in examples[::8]:
            small = example["image"].reshape(8, 4, 8, 4, 3).mean((1, 3, 4))  # enlarged 4 times, without colours
            distances = np.abs(originals - small).mean((1, 2))
            at = int(np.argmin(distances))
            assert distances[at] < 30 and labels[at] == example["label"]
            tags = dict(
                zip(example["objects_trainable"]["label"], example["objects_trainable"]["confidence"], strict=True)
            )
            expected = {tag: 10 * (labels[at] in digits) for tag, digits in enumerate(in_memory.TAGS.values())}
            assert tags == expected
            seen.append(at)
    assert len(set(seen)) >= 0.97 * len(seen)  # a few are too similar to tell apart after compression


@pytest.mark.parametrize("name", [name for name, of in streamed_images.SOURCES.items() if of.content])
def test_splits_of_digits_are_counted_exactly(name: str) -> None:
    of = streamed_images.SOURCES[name]
    place = streamed_records.folder(name)
    stored = {split: [example["label"] for example in read(place, split)] for split in embedded_originals.DIGITS}
    loaded = registry.DATASETS[name].load()
    for split, (stored_as, (first, last), count) in of.parts.items():
        labels = [label // of.every for label in stored[stored_as][first:last] if label % of.every == 0]
        assert len(labels) == count or (split == "train" and "half_images" in name and len(labels) // 2 == count)
        found = getattr(loaded, split)
        if found is not None:
            assert found.inputs.shape == (count, 16, 16, 3)
        if found is not None and not of.many:
            assert found.labels.tolist() == labels
    images, _ = streamed_records.feed(name, 0, 0, 8, range(8))
    assert images.shape == (8, 16, 16, 3) and images.dtype == np.uint8
    data_stream.keep({})


@pytest.mark.parametrize("name", [name for name, of in streamed_text.SOURCES.items() if of.content])
def test_texts_are_paragraphs_of_the_manual(name: str) -> None:
    import sentencepiece

    whole = " ".join("\n".join(topics.values()).split())
    of = streamed_text.SOURCES[name]
    place = streamed_records.folder(name)
    texts = {split: [example["text"].decode() for example in read(place, split)] for split in of.splits}
    assert {split: len(found) for split, found in texts.items()} == dict(of.splits)
    everything = [text for found in texts.values() for text in found]
    assert len(set(everything)) == len(everything) and all(text in whole for text in everything)
    subwords = sentencepiece.SentencePieceProcessor(model_file=str(of.subwords_file(place)))
    assert subwords.vocab_size() == of.vocabulary
    loaded = registry.DATASETS[name].load()
    tokens = loaded.validation.inputs
    assert tokens.shape == (of.validation_examples, of.length)
    for row, text in zip(tokens, texts["heldout_00000"], strict=True):
        decoded = subwords.decode(row[1:].tolist())
        assert text.startswith(decoded) or decoded.startswith(text[:20])


def test_files_have_the_same_bytes_in_every_process(prepared: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workloads.prepare", "streamed_digits", "--data-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(prepare.__file__).parents[1])
    files = [
        {file.name: file.read_bytes() for file in (within / "streamed_digits" / "1.0.0").iterdir()}
        for within in (prepared, tmp_path)
    ]
    assert len(files[0]) == 5 and files[0] == files[1]


def test_versions_name_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: registry.DATASETS[name].version() for name in ("shallue2018_digits", "shallue2018_pydoc")}
    assert all("sha256:" in version for version in before.values())
    of = streamed_text.SOURCES["shallue2018_pydoc"]
    monkeypatch.setitem(streamed_text.SOURCES, "shallue2018_pydoc", of._replace(content=lambda: "sha256:other"))
    assert registry.DATASETS["shallue2018_pydoc"].version() != before["shallue2018_pydoc"]


def test_nothing_is_to_be_downloaded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert prepare.main(["shallue2018_digits", "--data-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "1,597 images" in printed and "This takes a few seconds." in printed
    assert "by hand" not in printed
