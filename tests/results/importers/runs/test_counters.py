"""Steps, epochs and examples: counters that disagree are refused, and the key in the message gives the right steps."""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from results.bad_input import BadInput
from results.importers.runs import importer, run_map, runs
from results.importers.untrusted import ImportWarnings

COMMON = "dataset: toy\nmodel: net\noptimizer: sgd\n"
EVENTS = "format: tensorboard\nfiles: b{b}/*tfevents*\n"
JSONL = "format: jsonl\nfiles: b{b}/log.jsonl\n"
WANDB = "format: wandb\nfiles: b{b}/log.jsonl\n"


class Shape(NamedTuple):
    """The numbers of a run: epochs, steps per epoch, rows of the training loss per epoch, and the batch size."""

    epochs: int
    each: int
    often: int
    size: int

    def trained(self) -> list[int]:
        """Returns the steps at which the training loss is logged."""
        interval = self.each // self.often
        return list(range(interval, self.epochs * self.each + 1, interval))

    def evaluated(self) -> list[int]:
        """Returns the steps of evaluations, which are after every epoch."""
        return [self.each * epoch for epoch in range(1, self.epochs + 1)]


def drawn(seed: int) -> Shape:
    generator = np.random.default_rng(seed)
    epochs, each = int(generator.integers(4, 30)), int(generator.integers(8, 900))
    return Shape(epochs, each, int(generator.integers(1, 5)), int(2 ** generator.integers(0, 12)))


def event_file(*rows: tuple[str, int, float]) -> bytes:
    """Returns an event file of rows (tag, step, seconds), written by the format's definition."""
    data = b""
    for tag, step, seconds in sorted(rows, key=lambda row: row[2]):
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=1 + 1 / (step + 1))])
        content = event_pb2.Event(step=step, wall_time=1.7e9 + seconds, summary=summary).SerializeToString()
        length = struct.pack("<Q", len(content))
        data += length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))
    return data


def pytorch(shape: Shape, first: int) -> bytes:
    """Returns an event file with a training loss by iteration and a test loss by epoch."""
    rows = [("train", step, 0.1 * step) for step in shape.trained()]
    return event_file(*rows, *(("test", first + i, 0.1 * step + 0.01) for i, step in enumerate(shape.evaluated())))


def rows(shape: Shape, trained: dict[str, str], evaluated: dict[str, str]) -> bytes:
    """Returns JSON lines of training and evaluation in the order of training.

    The counters are given as expressions of the step, the epoch from 1, the number of the row, and the batch size.
    """
    places = [(step, 0, trained | {"train": "1 + 1 / step"}) for step in shape.trained()]
    places += [(step, 1, evaluated | {"test": "1 + 1 / step"}) for step in shape.evaluated()]
    lines = []
    for row, (step, _, counters) in enumerate(sorted(places, key=lambda place: place[:2])):
        names = {"step": step, "epoch": -(-step // shape.each), "row": row, "size": shape.size}
        lines.append(json.dumps({name: eval(expression, dict(names)) for name, expression in counters.items()}))
    return "\n".join([*lines, ""]).encode()


def read(folder: Path, shape: Shape, files: Mapping[str, bytes], text: str) -> runs.Run:
    """Returns the imported run of some files. The map of the metrics and the batch size has defaults."""
    for name, data in files.items():
        path = folder / f"b{shape.size}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    text = COMMON + text + ("" if "metrics:" in text else "metrics: {train_loss: train, test_loss: test}\n")
    text += "" if "batch_size:" in text else "batch_size: path:b\n"
    warnings = ImportWarnings()
    found = importer.read(folder.resolve(), run_map.parse(text, "map"), warnings, raw=True)
    assert len(found) == 1 and not warnings.lines, warnings.lines
    return found[0]


def steps(run: runs.Run) -> list[list[int]]:
    return [run.metrics[name].step.tolist() for name in ("train_loss", "test_loss") if name in run.metrics]


STEP, EPOCH = {"step": "step"}, {"step": "epoch"}
BOTH = {"step": "step", "epoch": "step / step * epoch"}
CALLS = {"_step": "row", "trainer/global_step": "step"}
SEEN = {"step": "step", "consumed_samples": "step * size"}
BY_SAMPLES = {"samples": "step * size"}
ONLY_TEST = "metrics: {test_loss: test}\n"

# Files as a function of the shape, and the map, whose steps are right.
RIGHT = {
    "one step": (JSONL, STEP, STEP, ""),
    "epoch beside the step": (JSONL, BOTH, BOTH, ""),
    "W&B with a training step": (WANDB, CALLS, CALLS, ""),
    "W&B with a training step in the map": (WANDB, CALLS, CALLS, "step: trainer/global_step\n"),
    "samples beside the step": (JSONL, SEEN, SEEN, ""),
    "samples only": (JSONL, BY_SAMPLES, BY_SAMPLES, "examples_seen: samples\n"),
    "a step by metric": (JSONL, STEP, {"iteration": "step"}, "step: {train_loss: step, test_loss: iteration}\n"),
    "epochs by metric": (JSONL, STEP, {"epoch": "epoch"}, "step: {test_loss: epoch}\nsteps_per_epoch: EACH\n"),
    "epochs from 0": (JSONL, STEP, {"epoch": "epoch - 1"}, "step: {test_loss: epoch + 1}\nsteps_per_epoch: EACH\n"),
    "epochs in the column step": (JSONL, STEP, EPOCH, "steps_per_epoch: {test_loss: EACH}\n"),
    "epochs everywhere": (JSONL, BOTH, BOTH, ONLY_TEST + "step: epoch\nsteps_per_epoch: [EACH, 1]\n"),
}
# The same, and a part of the message.
WRONG = {
    "epochs in the column step": (JSONL, STEP, EPOCH, "", "test ends at step"),
    "epochs, only the test": (JSONL, STEP, EPOCH, ONLY_TEST, "other rows at"),
    "a step that equals the epoch": (JSONL, EPOCH | {"epoch": "epoch"}, BOTH | EPOCH, ONLY_TEST, "3 x epoch"),
    "calls that equal the epoch": (WANDB, {}, {"_step": "epoch", "epoch": "epoch"}, ONLY_TEST, "3 x epoch at"),
    "a global step beside the step": (
        JSONL, {"step": "row", "global_step": "step"}, {"step": "row", "global_step": "step"}, "", "step: global_step",
    ),
    "calls in the map": (WANDB, CALLS, CALLS, "step: _step\n", "step: trainer/global_step"),
    "more calls than steps": (
        WANDB, {"_step": "9 * step", "global_step": "step"}, {"_step": "9 * step", "global_step": "step"},
        "step: _step\n", "step: global_step",
    ),
    "a batch per device": (JSONL, SEEN, SEEN, "batch_size: [path:b, 8]\n", "or the global batch_size"),
    "steps per epoch that are wrong": (JSONL, STEP, EPOCH, "steps_per_epoch: {test_loss: 3}\n", "times as large"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_counters_that_agree_give_the_true_steps(name: str, tmp_path: Path) -> None:
    format, trained, evaluated, keys = RIGHT[name]
    for seed in range(4):
        shape = drawn(seed)
        files = {"log.jsonl": rows(shape, trained, evaluated)}
        run = read(tmp_path / str(seed), shape, files, format + keys.replace("EACH", str(shape.each)))
        assert steps(run)[-1] == shape.evaluated() and steps(run)[0] in (shape.trained(), steps(run)[-1])


@pytest.mark.parametrize("name", WRONG)
def test_counters_that_disagree_are_refused(name: str, tmp_path: Path) -> None:
    format, trained, evaluated, keys, part = WRONG[name]
    for seed in range(4):
        shape = drawn(seed)
        files = {"log.jsonl": rows(shape, trained, evaluated)}
        with pytest.raises(BadInput, match=re.escape(part)) as error:
            read(tmp_path / str(seed), shape, files, format + keys)
        assert "\n" not in str(error.value) and len(str(error.value)) < 250


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("metrics", ["", ONLY_TEST])
def test_key_in_the_message_gives_the_true_steps(first: int, metrics: str, tmp_path: Path) -> None:
    """Training by iteration and tests by epoch, as in many PyTorch programs, counted from 0 or 1."""
    for seed in range(6):
        shape = drawn(seed)
        files = {"events.tfevents": pytorch(shape, first)}
        with pytest.raises(BadInput) as error:
            read(tmp_path / str(seed), shape, files, EVENTS + metrics)
        ratio = re.search(r"state (steps_per_epoch: \{test_loss: ([\d.]+)\})", str(error.value))
        assert ratio is not None and float(ratio[2]) == pytest.approx(shape.each, rel=0.01)
        keys = f"steps_per_epoch: {{test_loss: {shape.each}}}\n"
        if first == 0:
            assert "and step: {test_loss: step + 1}" in str(error.value)
            keys += "step: {test_loss: step + 1}\n"
        run = read(tmp_path / str(seed), shape, files, EVENTS + metrics + keys)
        assert steps(run)[-1] == shape.evaluated()


def test_keras_epochs_need_the_steps_per_epoch(tmp_path: Path) -> None:
    """Keras writes training and validation to separate folders, by epoch from 0."""
    shape = drawn(0)
    epochs = [("epoch_loss", i, 0.1 * step) for i, step in enumerate(shape.evaluated())]
    iterations = [("evaluation_loss_vs_iterations", step, 0.1 * step) for step in shape.evaluated()]
    files = {"train/a.tfevents": event_file(*epochs), "validation/a.tfevents": event_file(*epochs, *iterations)}
    text = "format: tensorboard\nfiles: b{b}/*/*tfevents*\nrun: path:b\n"
    text += "metrics: {train_loss: train/epoch_loss, test_loss: validation/epoch_loss}\n"
    with pytest.raises(BadInput, match="the step of train_loss counts epochs"):
        read(tmp_path, shape, files, text)
    with pytest.raises(BadInput, match="evaluation_loss_vs_iterations at"):
        read(tmp_path, shape, files, text + "steps_per_epoch: 1\n")
    keys = f"step: step + 1\nsteps_per_epoch: {{train_loss: {shape.each}, test_loss: {shape.each}}}\n"
    assert steps(read(tmp_path, shape, files, text + keys)) == [shape.evaluated()] * 2


def test_a_loss_that_was_logged_for_a_short_time_is_read(tmp_path: Path) -> None:
    shape = drawn(1)
    rows_of_both = rows(shape, STEP, STEP).splitlines(keepends=True)
    kept = [line for i, line in enumerate(rows_of_both) if i < len(rows_of_both) / 9 or b"test" in line]
    run = read(tmp_path, shape, {"log.jsonl": b"".join(kept)}, JSONL)
    assert run.metrics["train_loss"].step[-1] < shape.evaluated()[-1] / 2 and steps(run)[1] == shape.evaluated()


def test_a_tag_by_examples_does_not_count_as_a_step(tmp_path: Path) -> None:
    """Megatron writes each loss twice: by iteration, and by the number of examples."""
    shape = drawn(2)
    events = [("test", step, 0.1 * step) for step in shape.evaluated()]
    events += [(tag, step * shape.size, 0.1 * step) for tag in ("loss vs samples", "x") for step in shape.evaluated()]
    run = read(tmp_path, shape, {"a.tfevents": event_file(*events)}, EVENTS + ONLY_TEST)
    assert run.steps == shape.evaluated()[-1] and steps(run) == [shape.evaluated()]


def test_steps_that_rise_with_the_batch_size_are_reported(tmp_path: Path) -> None:
    """The same runs by step, and by epoch: with fewer steps per epoch, more epochs are needed."""
    for name, by_step, count in (("steps", True, 0), ("epochs", False, 1)):
        found = []
        for size in (8, 64, 512):
            target = 100 * (1 + 64 / size) / (1 if by_step else 4096 / size)
            lines = [json.dumps({"step": step, "test": target / step}) for step in range(1, 400)]
            files = {"log.jsonl": "\n".join([*lines, ""]).encode()}
            found.append(read(tmp_path / name / str(size), drawn(0)._replace(size=size), files, JSONL + ONLY_TEST))
        lines = runs.rising(found)
        assert len(lines) == count and all("If these are epochs, state steps_per_epoch" in line for line in lines)
