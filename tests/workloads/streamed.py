"""Streamed data sets, written offline by TFDS's real builders in the real format, a few examples each."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workloads.datasets import streamed_images, streamed_records, streamed_text

TRAIN, VALIDATION, TEST, HELD_OUT = 57, 20, 13, 12
SENTENCES = (
    "the cat sat on the mat",
    "a dog, a log and a frog",
    "où est la bibliothèque?",
    "it rained in 1998 & snowed",
)


def jpeg(index: int, size: tuple[int, int] = (48, 36)) -> bytes:
    """A photograph of stripes and noise in one colour, from which its number can be told."""
    random = np.random.default_rng(index)
    pixels = random.integers(0, 40, (size[1], size[0], 3), dtype=np.uint8)
    pixels[..., index % 3] += np.uint8(60 + 2 * (index % 60))
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "jpeg", quality=95)
    return encoded.getvalue()


def text(index: int) -> str:
    return f"{SENTENCES[index % 4]} {index} " + " ".join(SENTENCES[(index // 4) % 4].split()[: index % 5])


def example(files: str, split: str, index: int) -> dict[str, Any]:
    """An example as the builder of TFDS takes it."""
    if files == "imagenet2012":
        return {"image": io.BytesIO(jpeg(index)), "label": index % 10, "file_name": f"{split}_{index}.JPEG"}
    if files.startswith("open_images"):
        objects = [
            {"label": at % 7186, "confidence": confidence, "source": "verification"}
            for at, confidence in ((index, 10), (3 * index + 1, 7), (5 * index + 2, 3))
        ]
        return {
            "image": io.BytesIO(jpeg(index)),
            "image/filename": f"{index:016x}.jpg",
            "objects": [],
            "objects_trainable": objects,
            "bobjects": [],
        }
    if files == "lm1b":
        return {"text": text(index)}
    return {
        "text": text(index),
        "url": f"https://example.org/{index}",
        "content-length": "1",
        "content-type": "text/plain",
        "timestamp": "2019-04-25T12:57:54Z",
    }


def original(files: str) -> Any:
    """TFDS's class of builder."""
    if files == "imagenet2012":
        from tensorflow_datasets.datasets.imagenet2012.imagenet2012_dataset_builder import Builder
    elif files == "lm1b":
        from tensorflow_datasets.datasets.lm1b.lm1b_dataset_builder import Builder
    elif files.startswith("open_images"):
        from tensorflow_datasets.datasets.open_images_v4.open_images_v4_dataset_builder import Builder
    else:
        from tensorflow_datasets.text.c4 import C4 as Builder
    return Builder


def write(name: str, within: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a data set under its real name and in its real format; returns its folder.

    Its row says how many examples there are, 8 classes of which half are kept, and a small vocabulary.
    """
    from workloads.datasets import array_records

    is_text = name in streamed_text.SOURCES
    module: Any = streamed_text if is_text else streamed_images
    of = module.SOURCES[name]
    sizes: dict[str, Any] = {"train_examples": TRAIN, "validation_examples": VALIDATION}
    if is_text:
        sizes |= {"vocabulary": 320, "learned_from": 40, "length": 24}
        sizes["evaluated_length"] = of.evaluated_length and 60
    elif of.every > 1:
        sizes = {"train_examples": 28, "validation_examples": VALIDATION // 2}
    elif name == "imagenet_half_images":
        sizes["train_examples"] = 28
    if not is_text and of.held_out:
        sizes |= {"held_out": HELD_OUT, "test_examples": HELD_OUT if of.every == 1 else 3}
        if name.endswith("half_images"):
            sizes["train_examples"] = 20
        else:
            sizes["train_examples"] = TRAIN - HELD_OUT if of.every == 1 else 16
    splits = {"train": TRAIN, **dict.fromkeys([split for split in of.splits if split != "train"], VALIDATION)}
    if is_text and of.test_split:
        splits[of.test_split] = sizes["test_examples"] = TEST
    sizes["splits"] = splits
    monkeypatch.setitem(module.SOURCES, name, of._replace(**sizes))
    monkeypatch.setenv("TFDS_DATA_DIR", str(within))

    def split_generators(self: Any, dl_manager: Any) -> dict[str, Iterator[tuple[Any, dict[str, Any]]]]:
        return {
            split: ((f"{split}{index:05d}", example(of.files, split, index)) for index in range(count))
            for split, count in splits.items()
        }

    short, _, config = of.files.partition("/")
    options = {"config": config} if config else {}
    builder = array_records.builder(original(of.files), short, split_generators, within, **options)
    builder.download_and_prepare(file_format="array_record")
    place = streamed_records.folder(name)
    module.SOURCES[name].write_derived(place)
    return place


def tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def sentence(index: int) -> str:
    """A line of LM1B, with letters that some programs, but not its publisher, take for the end of one."""
    return f"{text(index).strip()} a\u2028b\x85c\x0bd\x1ce\x0cf"


def write_lm1b(manual: Path, train: int, held_out: int) -> None:
    """The archive of LM1B as it is published, with so many lines for training, and further ones that are held out."""
    manual.mkdir(parents=True, exist_ok=True)
    top = "1-billion-word-language-modeling-benchmark-r13output"
    training, heldout = (f"{top}/{split}-monolingual.tokenized.shuffled" for split in ("training", "heldout"))
    last, half = train + held_out, train + held_out // 2
    texts = {  # what is held out is there twice: as a whole, and in parts
        f"{training}/news.en-00001-of-00100": range(train * 3 // 8),
        f"{training}/news.en-00099-of-00100": range(train * 3 // 8, train),
        f"{heldout}/news.en-00000-of-00100": range(train, last),
        f"{heldout}/news.en.heldout-00000-of-00050": range(train, half),
        f"{heldout}/news.en.heldout-00001-of-00050": range(half, last),
        f"{top}/README": range(1),
    }
    lines = {path: "\n".join(map(sentence, those)).encode() + b"\n" for path, those in texts.items()}
    (manual / f"{top}.tar.gz").write_bytes(tar(lines, "w:gz"))
