"""TFDS builders of small streamed data sets, which are made from data that come with Python and its packages.

They have the same features as ImageNet, Open Images and LM1B, so the same code reads them. Nothing is downloaded.
"""

import io
import platform
from pathlib import Path
from typing import Any

import numpy as np

from workloads.datasets import array_records, in_memory, text
from workloads.datasets.array_records import KeyedExamples, KeyedSplits

SIDE = 32  # of the stored JPEGs, in pixels
QUALITY = 90  # of the stored JPEGs
DIGITS = {"train": 1597, "validation": 200}  # records by split
PARAGRAPHS = {"train": 1100, "heldout_00000": 150, "heldout_00001": 150}  # records by split
PYDOC = f"streamed_pydoc/{platform.python_version()}"  # the text differs between versions of Python
SURE, UNSURE = 10, 0  # confidence of the tags that a digit has, and of those it does not, in tenths


def digits_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``streamed_digits``: scikit-learn's digits data set as JPEGs of 32×32 pixels."""
    import tensorflow_datasets as tfds  # takes a second

    tags = tfds.features.Sequence({"label": tfds.features.ClassLabel(names=[*in_memory.TAGS]), "confidence": np.int32})
    image = tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg")
    label = tfds.features.ClassLabel(num_classes=10)

    def info(self: Any) -> Any:
        features = tfds.features.FeaturesDict({"image": image, "label": label, "objects_trainable": tags})
        return self.dataset_info_from_configs(features=features)

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        images, labels = in_memory.all_digits()
        return {split: _digits(images[part], labels[part]) for split, part in _parts(DIGITS).items()}

    original = _original("StreamedDigits", info)
    return array_records.builder(original, "streamed_digits", split_generators, parent)


def _digits(images: np.ndarray, labels: np.ndarray) -> KeyedExamples:
    """Yields images float32[N, 8, 8, 1], encoded as JPEGs, with their labels and tags."""
    from PIL import Image

    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        encoded = io.BytesIO()
        small = Image.fromarray(np.uint8(np.rint(255 * image[..., 0])))
        small.resize((SIDE, SIDE), Image.Resampling.BILINEAR).convert("RGB").save(encoded, "jpeg", quality=QUALITY)
        tags = [
            {"label": name, "confidence": SURE if label in digits else UNSURE}
            for name, digits in in_memory.TAGS.items()
        ]
        yield index, {"image": io.BytesIO(encoded.getvalue()), "label": int(label), "objects_trainable": tags}


def pydoc_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``streamed_pydoc``: paragraphs of the help topics of this version of Python."""
    import tensorflow_datasets as tfds  # takes a second

    def info(self: Any) -> Any:
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return self.dataset_info_from_configs(features=features)

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        paragraphs = text.paragraphs()
        order = np.random.default_rng(0).permutation(len(paragraphs))
        texts = {split: [paragraphs[index] for index in order[part]] for split, part in _parts(PARAGRAPHS).items()}
        return {split: enumerate({"text": paragraph} for paragraph in rows) for split, rows in texts.items()}

    version = PYDOC.partition("/")[2]
    original = _original("StreamedPydoc", info, BUILDER_CONFIGS=[tfds.core.BuilderConfig(name=version)])
    return array_records.builder(original, "streamed_pydoc", split_generators, parent, config=version)


def _parts(counts: dict[str, int]) -> dict[str, slice]:
    """Returns the records of each split, given their numbers. Splits follow one another."""
    ends = np.cumsum([0, *counts.values()])
    return {split: slice(*ends[i : i + 2]) for i, split in enumerate(counts)}


def _original(name: str, info: Any, **members: Any) -> type:
    """Returns a class of TFDS builders with the given description of features."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered

    attributes = {"VERSION": tfds.core.Version("1.0.0"), "_info": info, "__module__": __name__} | members
    with registered.skip_registration():
        return type(name, (tfds.core.GeneratorBasedBuilder,), attributes | {"_generate_examples": None})
