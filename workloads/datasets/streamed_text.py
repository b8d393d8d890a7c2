"""Streams LM1B and C4 as subwords from TFDS's array_record files. They do not fit in memory.

For tiny studies, Python's own help topics are streamed in the same formats.

``python -m workloads.prepare lm1b`` and ``… c4/en`` write the files and train the subword vocabularies.
"""

import functools
import io
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from results import durable
from results.bad_input import BadInput
from results.printing import Report
from results.progress import track
from workloads import data_stream, workload
from workloads.data_stream import Draws, Source, Stream
from workloads.datasets import array_records, embedded_originals, text
from workloads.workload import ArrayShape, Examples, Splits

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

    def part(self, split: str) -> tuple[str, int]:
        """Returns the TFDS split and the number of its texts to use for a split."""
        if split == "train":
            return "train", self.train_examples
        if split == "test":
            return self.test_split, self.test_examples or 0
        return self.validation_split, self.validation_examples


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


def load(name: str) -> Splits:
    """Returns the validation and test texts: inputs and labels int32[N, length].

    Raises:
      BadInput: the files do not exist or have the wrong number of records.
    """
    check(name)
    of = SOURCES[name]
    evaluated = ("validation", "test") if of.test_split else ("validation",)
    found = {split: data_stream.decoded(source(name, folder(name), split), of.part(split)[1]) for split in evaluated}
    return Splits(train=None, validation=found["validation"], test=found.get("test"))


def feed(name: str, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """Returns some positions of a batch. See ``Dataset.feed``."""
    return _stream(name, folder(name))(seed, step, batch_size, positions)


def version(name: str) -> str:
    """Returns TFDS's version of the data, the held-out texts, and the source of the subword vocabulary."""
    of = SOURCES[name]
    heldout = " ".join(f"{split}:{of.splits[split]}" for split in (of.validation_split, of.test_split) if split)
    learned_from = f"train[:{of.learned_from}]{' lines' if of.lines else ''}"
    lengths = f"{of.length}/{of.evaluated_length}" if of.evaluated_length else of.length
    content = f" {of.content()}" if of.content else ""
    return f"tfds:{of.version}{content} {heldout} bpe:{of.vocabulary} of {learned_from} by {LEARNED_BY} in {lengths}"


def shapes(name: str) -> Splits:
    """Returns the shapes of streamed and loaded splits, without reading files."""
    of = SOURCES[name]
    tokens = ArrayShape((of.length,), np.dtype(np.int32))
    whole = workload.shapes((of.train_examples, of.validation_examples, of.test_examples), tokens, tokens)
    if of.evaluated_length is None:
        return whole
    longer = ArrayShape((of.evaluated_length,), np.dtype(np.int32))
    evaluated = workload.shapes((None, of.validation_examples, of.test_examples), longer, longer)
    return evaluated._replace(train=whole.train)


def folder(name: str, within: Path | None = None) -> Path:
    """Returns the folder of a data set's files, in ``within`` or TFDS's default folder."""
    return array_records.folder(SOURCES[name].files, SOURCES[name].version, within)


def check(name: str, within: Path | None = None) -> None:
    """Raises BadInput unless all files exist with the expected numbers of records. Does not read records."""
    of = SOURCES[name]
    place = folder(name, within)
    array_records.check_counts(of.files, place, of.splits)
    array_records.check_file(of.files, subwords_file(name, place))


def source(name: str, place: Path, split: str) -> Source:
    """Returns the records of a split in a folder, and their tokenizer."""
    of = SOURCES[name]
    stored, count = of.part(split)
    records = functools.partial(array_records.open_records, str(place), of.files.split("/")[0], stored, None, count)
    length = of.length if split == "train" else of.evaluated_length or of.length
    decode = functools.partial(_tokens, str(subwords_file(name, place)), length, of.lines)
    return Source(records, decode, 8 * length)


def subwords_file(name: str, place: Path) -> Path:
    """Returns the file with the subword vocabulary."""
    of = SOURCES[name]
    unit = "-lines" if of.lines else ""
    return place / f"subwords-{of.vocabulary}-of-{of.learned_from}{unit}-by-{LEARNED_BY}.model"


def write_subwords(name: str, place: Path, report: Report = lambda line: None) -> None:
    """Trains the subword vocabulary of a data set on its training texts, unless the file exists.

    Args:
      name: a key of ``SOURCES``.
      place: folder of the data set's files.
      report: called with progress messages.

    Raises:
      BadInput: the installed version of SentencePiece differs from the version that plans record.
    """
    of = SOURCES[name]
    file = subwords_file(name, place)
    if file.exists():
        return
    installed = f"sentencepiece-{_sentencepiece().__version__}"
    if installed != LEARNED_BY:
        wanted = LEARNED_BY.replace("-", "==")
        raise BadInput(f"{installed} is installed, but subwords need {LEARNED_BY}. Run pip install {wanted}.")
    records = array_records.open_records(str(place), of.files.split("/")[0], "train", None, of.learned_from)
    report(f"learning {of.vocabulary:,} subwords from {len(records):,} texts")
    rows = track(range(len(records)), "reading texts", " texts", report)
    texts = (_text(records[row]) for row in rows)
    if of.lines:
        texts = (line for text in texts for line in _lines(text))
    durable.replace(file, learned(texts, of.vocabulary))


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
def _stream(name: str, place: Path) -> Stream:
    return Stream(source(name, place, "train"))


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
    found = [BEGINNING, *_subwords(subwords).encode(text), END][: length + 1]
    tokens[: len(found)] = found
    return tokens[:-1], tokens[1:]
