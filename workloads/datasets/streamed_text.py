"""LM1B and C4 as subwords, and Python's own help topics in the same formats. See ``streamed_records``."""

import functools
import io
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads import workload
from workloads.base import BadInput, Report, durable, track
from workloads.data_stream import Decode, Draws
from workloads.datasets import array_records, embedded_originals, text
from workloads.datasets.array_records import Part
from workloads.workload import ArrayShape, Splits

PADDING, BEGINNING, END, UNKNOWN = range(4)  # special tokens
LEARNED_BY = "sentencepiece-0.2.3"  # other versions may learn different subwords from the same texts


class StreamedText(NamedTuple):
    """A data set of texts.

    Attributes:
      files: TFDS's name of the data set, with its configuration.
      version: TFDS's version of the data.
      splits: number of records in each TFDS split, as published.
      train_examples: number of texts in TFDS's ``train`` split. All are used.
      validation_split: TFDS's split for validation.
      validation_examples: number of validation texts to use, starting with the first in TFDS's shuffled order.
      length: tokens per example. Longer texts are truncated.
      vocabulary: number of tokens, including the four special tokens.
      learned_from: number of training texts, starting with the first, that the subword vocabulary is trained on.
      test_split: TFDS's split for tests, or empty if TFDS has no test split.
      test_examples: number of test texts to use.
      evaluated_length: tokens per example during evaluation. Defaults to ``length``.
      lines: whether an example is a single line of a text: a random line during training, the first line during
        evaluation.
      content: function that returns a hash of the originals, if they come with Python or its packages.
      many: whether each label is a list of classes, which texts do not have.
      padding: label that marks padding.
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
    test_split: str = ""
    test_examples: int | None = None
    evaluated_length: int | None = None
    lines: bool = False
    content: Callable[[], str] | None = None
    many: bool = False
    padding: int | None = PADDING

    @property
    def classes(self) -> int:
        """The number of tokens."""
        return self.vocabulary

    @property
    def parts(self) -> Mapping[str, Part]:
        """The records of each split."""
        parts = {
            "train": Part("train", None, self.train_examples),
            "validation": Part(self.validation_split, None, self.validation_examples),
        }
        if self.test_split:
            parts["test"] = Part(self.test_split, None, self.test_examples or 0)
        return parts

    def description(self) -> str:
        """Returns the held-out texts, and the source of the subword vocabulary."""
        heldout = " ".join(
            f"{split}:{self.splits[split]}" for split in (self.validation_split, self.test_split) if split
        )
        learned_from = f"train[:{self.learned_from}]{' lines' if self.lines else ''}"
        lengths = f"{self.length}/{self.evaluated_length}" if self.evaluated_length else self.length
        return f"{heldout} bpe:{self.vocabulary} of {learned_from} by {LEARNED_BY} in {lengths}"

    def shapes(self) -> Splits:
        """Returns the shapes of all splits. Evaluated texts may be longer."""
        counts = (self.train_examples, self.validation_examples, self.test_examples)
        texts, evaluated = (
            workload.shapes(counts, *[ArrayShape((length,), np.dtype(np.int32))] * 2)
            for length in (self.length, self.evaluated_length or self.length)
        )
        return evaluated._replace(train=texts.train)

    def decoder(self, place: Path, split: str) -> tuple[Decode, int]:
        """Returns the function that tokenizes a text, and the size of an example in bytes."""
        length = self.length if split == "train" else self.evaluated_length or self.length
        return functools.partial(_tokens, str(self.subwords_file(place)), length, self.lines), 8 * length

    def rows(self, place: Path, split: str) -> None:
        """Does not restrict the records of a text."""

    def subwords_file(self, place: Path) -> Path:
        """Returns the file with the subword vocabulary."""
        unit = "-lines" if self.lines else ""
        return place / f"subwords-{self.vocabulary}-of-{self.learned_from}{unit}-by-{LEARNED_BY}.model"

    def derived_files(self, place: Path) -> list[Path]:
        """Returns the files that ``write_derived`` writes."""
        return [self.subwords_file(place)]

    def check_derived(self, place: Path) -> None:
        """Has no checks, because a vocabulary is not counted."""

    def write_derived(self, place: Path, report: Report = lambda line: None) -> None:
        """Trains the subword vocabulary on the training texts, unless the file exists.

        Args:
          place: folder of the data set's files.
          report: called with progress messages.

        Raises:
          BadInput: the installed version of SentencePiece differs from the version that plans record.
        """
        file = self.subwords_file(place)
        if file.exists():
            return
        installed = f"sentencepiece-{_sentencepiece().__version__}"
        if installed != LEARNED_BY:
            wanted = LEARNED_BY.replace("-", "==")
            raise BadInput(f"{installed} is installed, but subwords need {LEARNED_BY}. Run pip install {wanted}.")
        records = array_records.Records(place, self.files, "train", None, self.learned_from)
        report(f"learning {self.vocabulary:,} subwords from {len(records):,} texts")
        rows = track(range(len(records)), "reading texts", " texts", report)
        texts = (_text(records[row]) for row in rows)
        if self.lines:
            texts = (line for text in texts for line in _lines(text))
        durable.replace(file, learned(texts, self.vocabulary))


_PUBLISHED = tomllib.loads(Path(__file__).with_name("streamed_text.toml").read_text())
_PYDOC = StreamedText(
    embedded_originals.PYDOC,
    "1.0.0",
    embedded_originals.PARAGRAPHS,
    embedded_originals.PARAGRAPHS["train"],
    "heldout_00000",
    embedded_originals.PARAGRAPHS["heldout_00000"],
    64,
    vocabulary=512,
    learned_from=embedded_originals.PARAGRAPHS["train"],
    content=text.content_of_paragraphs,
)
SOURCES = {
    **{name: StreamedText(**row) for name, row in _PUBLISHED.items()},
    "shallue2018_pydoc": _PYDOC._replace(
        length=32, test_split="heldout_00001", test_examples=embedded_originals.PARAGRAPHS["heldout_00001"]
    ),
    "streamed_pydoc": _PYDOC,
}
# See ``workloads.appendix``.
SOURCES |= {
    "shallue2018_lm1b_remembered": SOURCES["shallue2018_lm1b"]._replace(
        length=64, evaluated_length=476, vocabulary=32_000
    ),
    "common_crawl_remembered": SOURCES["common_crawl"]._replace(lines=True, vocabulary=24_006),
}


def learned(texts: Iterable[str], vocabulary: int) -> bytes:
    """Trains a vocabulary by byte-pair encoding (Sennrich et al. 2016), and returns SentencePiece's model file.

    The result is deterministic because a single thread reads the texts in order. Rare letters are split into bytes.

    Raises:
      BadInput: SentencePiece is not installed, or the texts contain too few subwords.
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
            "subwords need SentencePiece. Install the extra `data`: pip install 'scaling-limits[data]'"
        ) from None
    return sentencepiece


@functools.lru_cache(maxsize=4)
def _subwords(file: str) -> Any:
    return _sentencepiece().SentencePieceProcessor(model_file=file)


def _text(record: bytes) -> str:
    return str(array_records.features(record)["text"].bytes_list.value[0].decode())


def _lines(text: str) -> list[str]:
    """Returns the non-empty lines of a text, or a single empty line if all are empty."""
    return [line.strip() for line in text.splitlines() if line.strip()] or [""]


def _tokens(
    subwords: str, length: int, by_line: bool, record: bytes, draws: Draws | None
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes a text as int32[length] inputs, which start with ``BEGINNING``, and labels, which are the next tokens."""
    tokens = np.full(length + 1, PADDING, np.int32)
    text = _text(record)
    if by_line:
        lines = _lines(text)
        text = lines[0 if draws is None else int(draws.uniform() * len(lines))]
    encoded = [BEGINNING, *_subwords(subwords).encode(text), END][: length + 1]
    tokens[: len(encoded)] = encoded
    return tokens[:-1], tokens[1:]
