"""Streams without a model: what a batch is, whoever asks for which part of it, and whatever was before."""

import contextlib
import functools
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.bad_input import BadInput
from sweeps.launchers import local
from tests.workloads import streamed
from workloads import data_stream, registry
from workloads.datasets import array_records, streamed_images, streamed_records, streamed_text
from workloads.workload import Examples

pytest.importorskip("grain")
pytest.importorskip("sentencepiece")
SOURCES = {**streamed_images.SOURCES, **streamed_text.SOURCES}
NAMES = [name for name, source in SOURCES.items() if source.content is None]  # test_embedded.py has the others
ROOT = Path(__file__).parents[2]
BATCH = 8
SENTENCE = "the cat sat on the mat"


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(data_stream, "processes", lambda: 2)
    monkeypatch.setattr(data_stream, "PART", 3)
    yield
    streamed_records._stream.cache_clear()
    data_stream.close()


def equal(one: Examples, other: Examples) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def few_names(*quick: str) -> list[Any]:
    """Returns the names of all data sets as cases; only the given ones are not slow."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", few_names("imagenet", "lm1b"))
def test_a_batch_is_a_function_of_trial_and_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal on 1, 2 and 4 shards, from a cold start, in any order, after other trials, and from one process alone."""
    place = streamed.write(name, tmp_path, monkeypatch)
    row = registry.DATASETS[name]
    row.check()
    assert row.feed is not None and row.shapes is not None
    whole = range(BATCH)
    first = {step: row.feed(5, step, BATCH, whole) for step in (0, 1, 2, 9)}
    shapes = row.shapes().train
    assert shapes is not None
    for array, shape in zip(first[0], shapes, strict=True):
        assert (array.shape[1:], array.dtype) == (shape.shape[1:], shape.dtype)
    for shards in (2, 4):
        own = BATCH // shards
        parts = [row.feed(5, 9, BATCH, range(at, at + own)) for at in range(0, BATCH, own)]
        assert equal(Examples(*map(np.concatenate, zip(*parts, strict=True))), first[9])
    assert not equal(row.feed(6, 9, BATCH, whole), first[9])
    source = streamed_records.source(name, place, "train")
    cold = data_stream.Stream(source, workers=1)(5, 2, BATCH, whole)
    assert equal(cold, first[2]) and not equal(first[1], first[2])
    assert equal(data_stream._part(pickle.dumps(source), 5, 1, BATCH, whole), first[1])


@pytest.mark.parametrize(
    "name",
    [
        "imagenet_half_classes",
        "open_images_v4",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("imagenet", "imagenet_half_images")),
    ],
)
def test_images_and_labels_are_those_that_tfds_reads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow_datasets as tfds

    streamed.write(name, tmp_path, monkeypatch)
    of = streamed_images.SOURCES[name]
    raw = tfds.data_source(
        of.files, split="validation", data_dir=tmp_path, decoders={"image": tfds.decode.SkipDecoding()}
    )
    kept = [one for one in raw if of.many or one["label"] % of.every == 0]
    splits = registry.DATASETS[name].load()
    assert splits.train is None and len(kept) == of.validation_examples == len(splits.validation.labels)
    for one, pixels, label in zip(kept, *splits.validation, strict=True):
        np.testing.assert_array_equal(pixels, streamed_images.example(one["image"], None))
        if of.many:
            objects = one["objects_trainable"]
            there = {int(n) for n, c in zip(objects["label"], objects["confidence"], strict=True) if c >= 5}
            assert set(np.flatnonzero(label)) == there
        else:
            assert label == one["label"] // of.every < of.classes


@pytest.mark.parametrize(
    "part", [*(pytest.param(part, marks=pytest.mark.slow) for part in ("", "_half_images")), "_half_classes"]
)
def test_the_last_training_images_are_for_tests(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official validation images validate, and no image is in two splits."""
    import tensorflow_datasets as tfds

    name = f"shallue2018_imagenet{part}"
    place = streamed.write(name, tmp_path, monkeypatch)
    of = streamed_images.SOURCES[name]

    def stored(split: str, first: int, last: int) -> list[tuple[bytes, int]]:
        decoders = {"image": tfds.decode.SkipDecoding()}
        raw = list(tfds.data_source(of.files, split=split, data_dir=tmp_path, decoders=decoders))[first:last]
        return [(one["image"], int(one["label"]) // of.every) for one in raw if one["label"] % of.every == 0]

    cut = streamed.TRAIN - streamed.HELD_OUT
    splits = registry.DATASETS[name].load()
    assert registry.DATASETS[name].splits == ("validation", "test")
    for found, (split, first, last), count in (
        (splits.validation, ("validation", 0, streamed.VALIDATION), of.validation_examples),
        (splits.test, ("train", cut, streamed.TRAIN), of.test_examples),
    ):
        expected = stored(split, first, last)[:count]
        assert found is not None and len(found.labels) == len(expected) == count
        for (image, label), pixels, own in zip(expected, *found, strict=True):
            np.testing.assert_array_equal(pixels, streamed_images.example(image, None))
            assert own == label < of.classes
    records = streamed_records.source(name, place, "train").records()
    mine = [array_records.features(records[at])["image"].bytes_list.value[0] for at in range(len(records))]
    assert mine == [image for image, _ in stored("train", 0, cut)][: of.train_examples]
    assert len(mine) == of.train_examples
    (version,) = {registry.DATASETS[name].version()}
    assert f"train[:{of.train_examples}] test:train[-{streamed.HELD_OUT}:]" in version


# Errors of ImageNet, ResNet-50, Nesterov momentum, batch size 256, trial 2, as the README of batch_science/ in
# google-research/google-research prints them.
PRINTED_ERRORS = {
    "train": (0.999223, 0.993921, 0.956254, 0.904496, 0.867726, 0.120157, 0.119539, 0.119519),
    "val": (0.99904, 0.99416, 0.95976, 0.90812, 0.87614, 0.24424, 0.24404, 0.24406),
    "test": (0.999301, 0.993566, 0.957578, 0.902428, 0.86672, 0.213348, 0.213688, 0.213268),
}


def test_imagenet_splits_fit_errors_that_the_paper_prints() -> None:
    """An error is a number of wrong images over the number of images, printed to six digits."""
    candidates = np.arange(10_000, 100_000)
    sizes = {}
    for split, errors in PRINTED_ERRORS.items():
        rounded = [np.round(np.rint(error * candidates) / candidates, 6) for error in errors]
        possible = np.all([np.isclose(near, error, 0, 1e-9) for near, error in zip(rounded, errors, strict=True)], 0)
        (sizes[split],) = candidates[possible].tolist()
    assert sizes == {"train": 50_176, "val": 50_000, "test": 50_045}
    for name, classes in (("", 1000), ("_half_images", 1000), ("_half_classes", 500)):
        of = streamed_images.SOURCES[f"shallue2018_imagenet{name}"]
        assert of.parts["validation"] == ("validation", (0, sizes["val"]), sizes["val"] * classes // 1000)
        assert of.parts["train"][:2] == ("train", (0, 1_281_167 - sizes["test"]))
        assert of.parts["test"][:2] == ("train", (1_281_167 - sizes["test"], 1_281_167))
    assert streamed_images.SOURCES["shallue2018_imagenet"].parts["test"][2] == sizes["test"]


def test_imagenet_and_lm1b_have_the_splits_of_shallue_2018() -> None:
    row = registry.DATASETS["shallue2018_imagenet"]
    assert row.shapes is not None
    assert [one.labels.shape[0] for one in row.shapes() if one] == [1_231_122, 50_000, 50_045]
    assert row.options == {"label_smoothing": "other classes"}
    row = registry.DATASETS["shallue2018_lm1b"]
    assert row.shapes is not None
    assert [one.labels.shape[0] for one in row.shapes() if one] == [30_301_028, 6_075, 6_206]
    assert "heldout_00000:6075 heldout_00001:6206" in row.version()


@pytest.mark.parametrize(
    "name", [case for case in few_names("shallue2018_lm1b", "common_crawl") if case.values[0] in streamed_text.SOURCES]
)
def test_texts_come_back_from_their_subwords(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sentencepiece
    import tensorflow_datasets as tfds

    place = streamed.write(name, tmp_path, monkeypatch)
    of = streamed_text.SOURCES[name]
    raw = tfds.data_source(of.files, split=of.validation_split, data_dir=tmp_path)
    subwords = sentencepiece.SentencePieceProcessor(model_file=str(streamed_text.SOURCES[name].subwords_file(place)))
    assert subwords.vocab_size() == of.vocabulary
    cut = 0
    splits = registry.DATASETS[name].load()
    if of.test_split:
        tests = list(tfds.data_source(of.files, split=of.test_split, data_dir=tmp_path))
        assert splits.test is not None and len(splits.test.labels) == len(tests) == streamed.TEST
        assert subwords.decode(splits.test.labels[0].tolist()).startswith(tests[0]["text"].decode()[:8])
    for one, inputs, labels in zip(raw, *splits.validation, strict=True):
        sentence = one["text"].decode()
        if of.lines:
            sentence = next(line for line in sentence.splitlines() if line.strip())
        assert inputs[0] == streamed_text.BEGINNING and np.array_equal(inputs[1:], labels[:-1])
        tokens = [int(token) for token in labels if token != streamed_text.PADDING]
        if tokens[-1] == streamed_text.END:
            assert subwords.decode(tokens[:-1]) == sentence.strip()
            assert not labels[len(tokens) :].any()
        else:
            cut += 1
            assert len(tokens) == (of.evaluated_length or of.length) and sentence.startswith(
                subwords.decode(tokens).rstrip("�")
            )
    assert cut == 0 if of.evaluated_length else 0 < cut < of.validation_examples


def test_an_example_is_a_line_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any line in training, the first in evaluations, and never an empty one."""
    monkeypatch.setattr(streamed, "text", lambda index: f"{SENTENCE}\n\n  one more line of {index}\n")
    name = "common_crawl_remembered"
    place = streamed.write(name, tmp_path, monkeypatch)
    records = streamed_records.source(name, place, "train").records()
    decode = streamed_records.source(name, place, "train").decode
    subwords = streamed_text._subwords(str(streamed_text.SOURCES[name].subwords_file(place)))

    def line(draws: Any) -> str:
        _, labels = decode(records[0], draws)
        return str(subwords.decode([int(token) for token in labels if token > streamed_text.UNKNOWN]))

    assert line(None) == SENTENCE
    seen = [line(data_stream.Draws(0, step, 0)) for step in range(40)]
    assert {one.split()[0] for one in seen} == {"the", "one"} and 10 < seen.count(SENTENCE) < 30


def test_subwords_are_the_same_for_the_same_texts() -> None:
    texts = [streamed.text(index) for index in range(60)]
    assert streamed_text.learned(texts, 330) == streamed_text.learned(texts, 330)
    assert streamed_text.learned(texts, 330) != streamed_text.learned(texts[1:], 330)
    with pytest.raises(BadInput, match="100000 subwords cannot be learned"):
        streamed_text.learned(texts, 100_000)


def test_the_version_of_texts_names_who_learned_their_subwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another version are another file, under another version of the data; no other may learn them."""
    import sentencepiece

    locked = (ROOT / "requirements.lock").read_text()
    for name, of in streamed_text.SOURCES.items():
        learner = re.search(r"sentencepiece-(\S+)", registry.DATASETS[name].version())
        assert learner and f"\nsentencepiece=={learner[1]}" in locked
        assert f"{of.validation_split}:{of.splits[of.validation_split]} " in registry.DATASETS[name].version()
        assert of.subwords_file(tmp_path).name.endswith(f"-by-sentencepiece-{learner[1]}.model")
    monkeypatch.setattr(sentencepiece, "__version__", "0.1.9")
    with pytest.raises(
        BadInput, match=r"^sentencepiece-0.1.9 is installed, but .* need sentencepiece-\S+\. Run pip install sentence"
    ):
        streamed_text.SOURCES["lm1b"].write_derived(tmp_path)


def test_photograph_version_names_the_decoder_of_its_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from PIL import Image

    names = list(streamed_images.SOURCES)
    before = {name: registry.DATASETS[name].version() for name in names}
    assert all(re.fullmatch(r".* pixels:[0-9a-f]{8}", version) for version in before.values())
    whole = Image.Image.resize

    def another(self: Any, size: Any, resample: Any = None, box: Any = None, **others: Any) -> Any:
        return whole(self, size, Image.Resampling.BICUBIC, box)

    streamed_images._pixels.cache_clear()
    monkeypatch.setattr(Image.Image, "resize", another)
    assert all(registry.DATASETS[name].version() != before[name] for name in names)
    monkeypatch.undo()
    streamed_images._pixels.cache_clear()
    assert {name: registry.DATASETS[name].version() for name in names} == before


def test_every_epoch_is_a_permutation_of_whole_batches() -> None:
    """From the definition, with Grain's order of integers; also where there are 30 million, after a billion."""
    n, batch = 23, 5
    order = data_stream.order(list(range(n)), 7)
    epochs = [
        [order[data_stream.record_index(n, step, at, batch)] for step in range(e * 4, e * 4 + 4) for at in range(batch)]
        for e in range(3)
    ]
    for number, seen in enumerate(epochs):
        assert len(set(seen)) == 20 and seen == [order[number * n + i] for i in range(20)]
        assert sorted(order[number * n + i] for i in range(n)) == list(range(n))
    assert epochs[0] != epochs[1]
    n = 30_301_028
    long = data_stream.order(range(n), 7)
    step = 10**9 // 32
    assert data_stream.record_index(n, step, 3, 32) == step // (n // 32) * n + step % (n // 32) * 32 + 3
    assert len({long[10**9 + i] for i in range(1000)}) == 1000


def test_grains_order_is_the_one_that_plans_rely_on() -> None:
    """Another order would be other results under the same plan."""
    assert [data_stream.order(range(1000), 5)[i] for i in (0, 1, 999, 1000, 10**9)] == GOLDEN


GOLDEN = [700, 107, 649, 973, 282]


def test_draws_are_a_function_of_seed_step_and_position() -> None:
    """Philox from NumPy's raw bits, each number in [0, 1), alike for no two of them."""
    keys = [(seed, step, at) for seed in (1, 2) for step in (0, 7) for at in (0, 1)]
    values = {key: data_stream.Draws(*key).uniform() for key in keys}
    assert len(set(values.values())) == len(keys)
    assert all(data_stream.Draws(*key).uniform() == value and 0 <= value < 1 for key, value in values.items())
    many = data_stream.Draws(3, 4, 5)
    assert abs(np.mean([many.uniform() for _ in range(2000)]) - 0.5) < 0.03


def test_boxes_are_random_within_their_areas_and_ratios() -> None:
    for position in range(200):
        left, top, right, bottom = streamed_images.random_box(500, 375, data_stream.Draws(0, 0, position))
        assert 0 <= left < right <= 500 and 0 <= top < bottom <= 375
        assert 0.07 < (right - left) * (bottom - top) / (500 * 375) <= 1
        assert 0.7 < (right - left) / (bottom - top) < 1.4
    assert streamed_images.random_box(1000, 3, data_stream.Draws(0, 0, 0)) == streamed_images.middle(1000, 3)


def test_decoding_at_reduced_size_is_close_to_full_decoding() -> None:
    """Against Pillow's own resizing of the whole photograph."""
    import io

    from PIL import Image

    encoded = streamed.jpeg(3, (1000, 800))
    with Image.open(io.BytesIO(encoded)) as photograph:
        whole = photograph.convert("RGB").resize(
            (224, 224), Image.Resampling.BILINEAR, streamed_images.middle(1000, 800)
        )
    ours = streamed_images.example(encoded, None)
    assert np.abs(ours.astype(int) - np.asarray(whole)).mean() < 8


def test_grey_and_four_coloured_photographs_are_read_as_rgb() -> None:
    import io

    from PIL import Image

    for mode in ("L", "CMYK"):
        encoded = io.BytesIO()
        Image.new(mode, (40, 30), 128 if mode == "L" else (10, 20, 30, 40)).save(encoded, "jpeg")
        assert streamed_images.example(encoded.getvalue(), data_stream.Draws(0, 0, 0)).shape == (224, 224, 3)


@pytest.mark.parametrize("killed", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_process_that_is_killed_is_replaced(killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor ends those that are left, and waits for them."""
    streamed.write("imagenet", tmp_path, monkeypatch)
    feed = registry.DATASETS["imagenet"].feed
    assert feed is not None
    before = feed(1, 0, BATCH, range(BATCH))
    for process in list(data_stream._pool(2)._processes.values())[:killed]:
        with contextlib.suppress(ProcessLookupError):  # the executor may have ended it after the first one
            os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.5)
    assert equal(feed(1, 0, BATCH, range(BATCH)), before)


def test_a_process_that_is_killed_while_it_writes_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor has read that a million bytes will come, and waits for them."""
    streamed.write("imagenet", tmp_path, monkeypatch)
    monkeypatch.setattr(data_stream, "PATIENCE_SECONDS", 0.1)
    feed = registry.DATASETS["imagenet"].feed
    assert feed is not None
    before = feed(1, 0, BATCH, range(BATCH))
    pool = data_stream._pool(2)
    for _ in range(100):  # nothing else is on its way
        if not pool._pending_work_items:
            break
        time.sleep(0.1)
    os.write(pool._result_queue._writer.fileno(), struct.pack("!i", 10**6) + bytes(9))
    time.sleep(0.2)
    for process in list(pool._processes.values()):
        os.kill(process.pid, signal.SIGKILL)
    assert equal(feed(1, 50, BATCH, range(BATCH)), feed(1, 50, BATCH, range(BATCH)))
    assert equal(feed(1, 0, BATCH, range(BATCH)), before) and data_stream._pool(2) is not pool


KILLED = """
import sys, time
from workloads import data_stream
from workloads.datasets import streamed_images, streamed_records
from pathlib import Path
if __name__ == "__main__":
    of = streamed_images.SOURCES["imagenet"]
    streamed_images.SOURCES["imagenet"] = of._replace(
        train_examples=57, validation_examples=20, splits={"train": 57, "validation": 20}
    )
    data_stream.processes = lambda: 2
    streamed_records.feed("imagenet", 1, 0, 8, range(8))
    print(*data_stream._pool(2)._processes, flush=True)
    time.sleep(60)
"""


def test_processes_end_with_their_parent_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed.write("imagenet", tmp_path, monkeypatch)
    (tmp_path / "killed.py").write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TFDS_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "killed.py")], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        own = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(own) == 2
    for _ in range(100):
        if not any(Path(f"/proc/{process}").exists() for process in own):
            return
        time.sleep(0.1)
    pytest.fail(f"processes {own} are still there")


def test_what_is_missing_is_one_line_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for name in NAMES:
        command = f"un python -m workloads.prepare {SOURCES[name].files}"
        with pytest.raises(BadInput, match=re.escape(command)) as refused:
            registry.DATASETS[name].check()
        assert "\n" not in str(refused.value)
    place = streamed.write("imagenet_half_classes", tmp_path, monkeypatch)
    streamed_images.rows_file(place, 2, "train").unlink()
    with pytest.raises(BadInput, match=r"rows-2-train.npy .*un python -m workloads.prepare imagenet2012"):
        registry.DATASETS["imagenet_half_classes"].check()
    np.save(streamed_images.rows_file(place, 2, "train"), np.arange(27))
    with pytest.raises(BadInput, match=r"\A\S*rows-2-train.npy names 27 examples of train, not 28\. Delete .*run .*"):
        registry.DATASETS["imagenet_half_classes"].load()
    of = streamed_images.SOURCES["imagenet"]
    monkeypatch.setitem(streamed_images.SOURCES, "imagenet", of._replace(validation_examples=20))
    for refuses in (registry.DATASETS["imagenet"].check, registry.DATASETS["imagenet"].load):
        with pytest.raises(BadInput, match=r"holds 57 examples of train, not 1,281,167"):
            refuses()


@pytest.mark.parametrize("name", few_names("shallue2018_imagenet", "lm1b"))
def test_a_split_of_another_size_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record more or less of any split, as where held-out text is there twice."""
    place = streamed.write(name, tmp_path, monkeypatch)
    module: Any = streamed_text if name in streamed_text.SOURCES else streamed_images
    of = module.SOURCES[name]
    registry.DATASETS[name].check()
    for split, count in of.splits.items():
        for other in (count - 1, count + 1):
            monkeypatch.setitem(module.SOURCES, name, of._replace(splits={**of.splits, split: other}))
            said = f"{place} holds {count} examples of {split}, not {other}. Delete {place} and run python -m"
            for refuses in (registry.DATASETS[name].check, registry.DATASETS[name].load):
                with pytest.raises(BadInput, match=re.escape(said)):
                    refuses()
    monkeypatch.setitem(module.SOURCES, name, of)
    (place / "dataset_info.json").write_text("{")
    with pytest.raises(BadInput, match=r"dataset_info.json cannot be read\. Delete .* and run python -m workloads"):
        registry.DATASETS[name].check()


def test_records_are_a_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = streamed.write("imagenet", tmp_path, monkeypatch)
    records = array_records.Records(place, "imagenet2012", "train", None, 10)
    assert len(records) == 10 and len(list(records)) == 10
    with pytest.raises(IndexError):
        records[10]


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("held", [6, 40])
def test_nothing_is_decoded_twice_however_many_trials_take_turns(
    lanes: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the steps of a call, as the harness feeds them; one ends, and another takes its place."""
    monkeypatch.setattr(data_stream, "AHEAD_BYTES", held * BATCH)
    stream = data_stream.Stream(data_stream.Source(list, len, 1))
    begun: list[tuple[int, int]] = []

    def submit(fed: Any, step: int) -> list[Future[Examples]]:
        begun.append((fed.seed, step))
        made: Future[Examples] = Future()
        made.set_result(Examples(np.full(BATCH, fed.seed), np.full(BATCH, step)))
        return [made]

    monkeypatch.setattr(stream, "_submit", submit)
    taken = 0
    for call in range(40):
        for lane in range(lanes):
            seed = lane if lane or call < 20 else 99
            for step in range(call * 5, call * 5 + 5):
                seeds, steps = stream(seed, step, BATCH, range(BATCH))
                assert (set(seeds), set(steps)) == ({seed}, {step})
                taken += 1
        assert sum(map(len, stream._ahead.values())) <= max(held, 2 * lanes + 2)
    most = max(held, 2 * lanes + 2)  # ahead of the first calls, of the trial that ended, and of all at the end
    assert len(begun) <= taken + 3 * most, f"{len(begun) / taken:.2f} times"
    assert len(set(begun)) >= taken


def test_no_batch_is_decoded_beyond_the_end_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = data_stream.Stream(data_stream.Source(list, len, 1))
    begun: list[int] = []

    def submit(fed: Any, step: int) -> list[Future[Examples]]:
        begun.append(step)
        made: Future[Examples] = Future()
        made.set_result(Examples(np.full(BATCH, fed.seed), np.full(BATCH, step)))
        return [made]

    monkeypatch.setattr(stream, "_submit", submit)
    data_stream.keep({7: 40})
    for step in range(40):
        stream(7, step, BATCH, range(BATCH))
    assert begun == list(range(40))
    assert stream(7, 40, BATCH, range(BATCH)).labels.tolist() == BATCH * [40]  # which a caller may still want
    data_stream.keep({})


def opened(log: str) -> list[bytes]:
    """The records of a source that logs each time it is opened."""
    with open(log, "a") as lines:
        lines.write(f"{os.getpid()}\n")
    return [bytes([number]) for number in range(40)]


def first_byte(record: bytes, draws: data_stream.Draws | None) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(record[0]), np.asarray(draws is None)


def test_a_process_opens_the_files_of_a_source_once(tmp_path: Path) -> None:
    """Files of ImageNet are a thousand, which take longer to open than some photographs take to decode."""
    log = tmp_path / "opened"
    source = data_stream.Source(functools.partial(opened, str(log)), first_byte, 2)
    stream = data_stream.Stream(source, workers=1)
    values = [stream(0, step, BATCH, range(BATCH)).inputs for step in range(9)]
    assert len(np.unique(values)) > BATCH
    assert len(data_stream.decoded(source, 40, workers=1).labels) == 40
    assert len(log.read_text().splitlines()) == 1


def test_examples_to_evaluate_are_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the few parts that are under way; a future holds its part for as long as it is held itself."""
    alive: weakref.WeakSet[Future[Examples]] = weakref.WeakSet()
    most = 0

    class Pool:
        def submit(self, function: Any, source: data_stream.Source, rows: range) -> Future[Examples]:
            nonlocal most
            made: Future[Examples] = Future()
            made.set_result(Examples(np.array(rows), -np.array(rows)))
            alive.add(made)
            most = max(most, len(alive))
            return made

    monkeypatch.setattr(data_stream, "_pool", lambda workers: Pool())
    inputs, labels = data_stream.decoded(data_stream.Source(list, len, 1), 1000, workers=2)  # type: ignore[arg-type]
    assert inputs.tolist() == list(range(1000)) and labels.tolist() == [-i for i in range(1000)]
    assert most <= 10  # of 334


def test_workers_of_a_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(96)), raising=False)
    monkeypatch.setattr(local.processors, "accelerators", lambda: ("gpu", 8))
    assert data_stream.processes() == 95
    for workers, studies, each in ((None, 9, 11), (None, 1, 95), (2, 9, 47), (200, 300, 1)):
        slots = local.occupied(local.slots(workers), studies)
        assert len(slots) == min(workers or 8, studies)
        for _, environment in slots:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                assert data_stream.processes() == each
    assert local.occupied([((0, 1), {})] * 4, 3) == [((0, 1), {})] * 3  # bound to its own
