"""Is the input pipeline fast? Two processes decode, crop and resize photographs to keep a device busy.

    python benchmarks/input.py [--json FILE] [--smoke]

The input is JPEG files of 500×375 pixels, about 80 kB each, in array_record files like those of ImageNet. They are
resized to 224×224, as during training. The benchmark reports images per CPU second, both in a plain loop over the same
functions and in a stream, and images per wall-clock second in batches of 8. It then simulates a device that needs 50 ms
per step at any batch size. For this device, it reports the fraction of time that the device is busy, and the largest
batch size for which this fraction is at least 95 %. This requires the `data` extra.
"""

import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from report import BenchmarkReport, open_report

from workloads import data_stream
from workloads.data_stream import Draws, Stream
from workloads.datasets import array_records, streamed_images, streamed_records

IMAGES, BATCH, PROCESSES = 600, 8, 2
STEP_SECONDS, BUSY = 0.05, 0.95
STEPS = 40
SMOKE_IMAGES, SMOKE_STEPS = 24, 2
TICKS = os.sysconf("SC_CLK_TCK")


def photograph(index: int) -> bytes:
    """Returns a JPEG file of 500×375 pixels with about the level of detail of a photograph."""
    from PIL import Image

    random = np.random.default_rng(index)
    layers = [
        random.integers(0, 256, (375 // size + 1, 500 // size + 1, 3), dtype=np.uint8) for size in (2, 8, 32, 128)
    ]
    scaled = [
        np.asarray(Image.fromarray(layer).resize((500, 375), Image.Resampling.BICUBIC), float) for layer in layers
    ]
    pixels = sum(weight * layer for weight, layer in zip((0.25, 0.2, 0.25, 0.3), scaled, strict=True))
    encoded = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(encoded, "jpeg", quality=92)
    return encoded.getvalue()


def write(folder: Path, images: int) -> Path:
    """Writes a training split with TFDS's ImageNet builder, and returns its folder."""
    from tensorflow_datasets.datasets.imagenet2012.imagenet2012_dataset_builder import Builder

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for index in range(images):
            image = io.BytesIO(photograph(index))
            yield index, {"image": image, "label": index % 1000, "file_name": f"{index}.JPEG"}

    def split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        return {"train": rows()}

    builder = array_records.builder(Builder, "imagenet2012", split_generators, folder)
    builder.download_and_prepare(file_format="array_record")
    return Path(builder.data_dir)


def processor_seconds() -> float:
    """Returns the CPU time of the decoding processes."""
    total = 0
    for process in data_stream._pool(PROCESSES)._processes:
        total += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return total / TICKS


def busy(stream: Stream, batch_size: int, steps: int, first: int) -> tuple[float, int]:
    """Returns the fraction of time that a device with 50 ms per step would be busy, and the number of the next step."""
    stream(1, first, batch_size, range(batch_size))
    began = time.perf_counter()
    for step in range(first + 1, first + 1 + steps):
        time.sleep(STEP_SECONDS)  # the device processes the previous batch
        stream(1, step, batch_size, range(batch_size))
    return steps * STEP_SECONDS / (time.perf_counter() - began), first + 1 + steps


def main(report: BenchmarkReport) -> None:
    """Adds all figures to a report."""
    images, steps = (SMOKE_IMAGES, SMOKE_STEPS) if report.smoke else (IMAGES, STEPS)
    with tempfile.TemporaryDirectory() as folder:
        place = write(Path(folder), images)
        photographs = streamed_images.SOURCES["imagenet"]._replace(train_examples=images)
        streamed_images.SOURCES["imagenet"] = photographs
        source = streamed_records.source("imagenet", place, "train")
        records = array_records.Records(place, "imagenet2012", "train", None, images)
        report.add("size of a photograph", float(np.mean([len(record) for record in records])) / 1000, "kB")
        began = time.process_time()
        for row in range(images):
            source.decode(records[row], Draws(0, 0, row))
        plain = images / (time.process_time() - began)
        report.add("images per CPU second, plain loop", plain, "1/s")
        stream = Stream(source, PROCESSES)
        batches = max(2, images // BATCH)
        stream(0, 0, BATCH, range(BATCH))
        before, began = processor_seconds(), time.perf_counter()
        for step in range(1, batches):
            stream(0, step, BATCH, range(BATCH))
        taken = (batches - 1) * BATCH
        elapsed, used = time.perf_counter() - began, processor_seconds() - before
        report.add("images per second, batches of 8, two processes", taken / elapsed, "1/s")
        report.add("images per CPU second, stream", taken / max(used, 1 / TICKS), "1/s")
        step, largest = 0, 0
        for batch_size in (2, 4, 8, 16, 24, 32, 40, 48)[: 2 if report.smoke else None]:
            share, step = busy(stream, min(batch_size, images), steps, step)
            report.add(f"fraction of time that a device is busy, batches of {batch_size}", share, "")
            largest = batch_size if share >= BUSY else largest
        report.add("largest batch that keeps it busy for 95 % of the time", float(largest), "images")
        data_stream.close()


if __name__ == "__main__":
    with open_report(__doc__) as report:
        main(report)
