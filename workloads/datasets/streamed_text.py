"""LM1B and C4 from TFDS's array_record files as subwords, streamed: they do not fit in memory.

``python -m workloads.prepare lm1b`` and ``… c4/en`` write the files and train the subwords, once.
"""

import functools
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from results import durable
from results.bad_input import BadInput
from workloads import data_stream, workload
from workloads.data_stream import Draws, Source, Stream
from workloads.datasets import array_records
from workloads.workload import ArrayShape, Examples, Splits

PADDING, BEGINNING, END, UNKNOWN = range(4)  # tokens that are no subwords
LEARNED_BY = "sentencepiece-0.2.3"  # another version may learn other subwords from the same texts


class StreamedText(NamedTuple):
    """A data set of texts.

    Attributes:
      files: TFDS's name of the data set, with its configuration.
      version: of TFDS.
      splits: the number of records of each of TFDS's splits that are read, as their publisher states it.
      train_examples: all texts of TFDS's split ``train``.
      validation_split: of TFDS.
      validation_examples: the first so many of its texts, in TFDS's order, which is shuffled.
      length: tokens of an example; what a text has more is left out.
      vocabulary: subwords, with the four tokens that are none.
      learned_from: the first so many texts of training, of which the subwords are learned.
    """

    files: str
    version: str
    splits: Mapping[str, int]
    train_examples: int
    validation_split: str
    validation_examples: int
    length: int
    vocabulary: int = 32_768
    learned_from: int = 1_000_000


_LM1B = {"train": 30_301_028, "test": 306_688}
_C4 = {"train": 364_868_892, "validation": 364_608}
SOURCES: dict[str, StreamedText] = {
    "lm1b": StreamedText("lm1b", "1.1.0", _LM1B, 30_301_028, "test", 10_000, 128),
    "common_crawl": StreamedText("c4/en", "3.1.0", _C4, 364_868_892, "validation", 10_000, 256, learned_from=300_000),
}


def load(name: str) -> Splits:
    """The texts that are evaluated: inputs and labels int32[N, length].

    Raises:
      BadInput: the files are not there, or do not have as many records as they should.
    """
    check(name)
    of = SOURCES[name]
    found = data_stream.decoded(source(name, folder(name), of.validation_split), of.validation_examples)
    return Splits(train=None, validation=found, test=None)


def feed(name: str, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """``Dataset.feed`` of a data set."""
    return _stream(name, folder(name))(seed, step, batch_size, positions)


def version(name: str) -> str:
    """The version of the data, the texts that are held out, and the origin of the subwords."""
    of = SOURCES[name]
    heldout = f"{of.validation_split}:{of.splits[of.validation_split]}"
    return (
        f"tfds:{of.version} {heldout} bpe:{of.vocabulary} of train[:{of.learned_from}] by {LEARNED_BY} in {of.length}"
    )


def shapes(name: str) -> Splits:
    """The shapes of what is fed and of what ``load`` gives; reads nothing."""
    of = SOURCES[name]
    tokens = ArrayShape((of.length,), np.dtype(np.int32))
    return workload.shapes((of.train_examples, of.validation_examples, None), tokens, tokens)


def folder(name: str, within: Path | None = None) -> Path:
    """The folder of one data set's files, in ``within`` or where TFDS looks."""
    return array_records.folder(SOURCES[name].files, SOURCES[name].version, within)


def check(name: str, within: Path | None = None) -> None:
    """Raises BadInput unless all files are there, with as many records as they should have; reads none of them."""
    of = SOURCES[name]
    array_records.check(of.files, folder(name, within), tuple(of.splits))
    array_records.check_counts(of.files, folder(name, within), of.splits)
    array_records.check_file(of.files, subwords_file(name, folder(name, within)))


def source(name: str, place: Path, split: str) -> Source:
    """The records of a split, which are in a folder, and how they become tokens."""
    of = SOURCES[name]
    count = of.train_examples if split == "train" else of.validation_examples
    records = functools.partial(array_records.open_records, str(place), of.files.split("/")[0], split, None, count)
    return Source(records, functools.partial(_tokens, str(subwords_file(name, place)), of.length), 8 * of.length)


def subwords_file(name: str, place: Path) -> Path:
    """The file with the subwords, beside the others."""
    return place / f"subwords-{SOURCES[name].vocabulary}-of-{SOURCES[name].learned_from}-by-{LEARNED_BY}.model"


def write_subwords(name: str, place: Path) -> None:
    """Learns the subwords of a data set from its training texts, unless they are there.

    Raises:
      BadInput: another SentencePiece is installed than the one that plans name.
    """
    of, file = SOURCES[name], subwords_file(name, place)
    if not file.exists():
        installed = f"sentencepiece-{_sentencepiece().__version__}"
        if installed != LEARNED_BY:
            wanted = LEARNED_BY.replace("-", "==")
            raise BadInput(f"subwords are learned by {LEARNED_BY}, and {installed} is here; pip install {wanted}")
        records = array_records.open_records(str(place), of.files.split("/")[0], "train", None, of.learned_from)
        texts = (_text(records[row]) for row in range(len(records)))
        durable.replace(file, learned(texts, of.vocabulary))


def learned(texts: Iterable[str], vocabulary: int) -> bytes:
    """Subwords by byte-pair encoding (Sennrich et al. 2016), as SentencePiece keeps them.

    The same for the same texts: they are taken in their order, by one thread. Letters that are rare are bytes.

    Raises:
      BadInput: SentencePiece is not installed, or the texts do not have so many subwords.
    """
    model = io.BytesIO()
    try:
        _sentencepiece().SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary,
            byte_fallback=True,
            num_threads=1,
            pad_id=PADDING,
            bos_id=BEGINNING,
            eos_id=END,
            unk_id=UNKNOWN,
            max_sentence_length=16_384,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise BadInput(f"{vocabulary} subwords cannot be learned: {' '.join(str(error).split())[:160]}") from None
    return model.getvalue()


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise BadInput(
            "subwords need SentencePiece; install the extra `data`: pip install 'scaling-limits[data]'"
        ) from None
    return sentencepiece


@functools.lru_cache(maxsize=4)
def _stream(name: str, place: Path) -> Stream:
    return Stream(source(name, place, "train"))


@functools.lru_cache(maxsize=4)
def _subwords(file: str) -> Any:
    return _sentencepiece().SentencePieceProcessor(model_file=file)


def _text(record: bytes) -> str:
    return str(array_records.features(record)["text"].bytes_list.value[0].decode())


def _tokens(subwords: str, length: int, record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    """A text as int32[length] inputs, which begin with ``BEGINNING``, and labels, each the token after an input."""
    tokens = np.full(length + 1, PADDING, np.int32)
    found = [BEGINNING, *_subwords(subwords).encode(_text(record)), END][: length + 1]
    tokens[: len(found)] = found
    return tokens[:-1], tokens[1:]
