"""Reads scalars and hyperparameters from TensorBoard event files. Needs the package ``tensorboard``, not TensorFlow.

A file is a sequence of records: the length (uint64), its checksum, the bytes of an ``Event``, and their checksum.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from results.aliases import Fields, Json
from results.bad_input import BadInput
from results.importers.csv_text import LAST_STEP
from results.importers.runs.series import Curves, Series
from results.importers.untrusted import Unusable

HEAD, TAIL = 12, 4  # bytes before and after the content of a record
MOST_CHECKED = 1 << 20  # longer records are images or graphs, and checking them would take seconds
MOST_TAGS = 4096


def read(data: bytes) -> tuple[Curves, Fields]:
    """Returns the scalars of an event file by tag, in order, and its hyperparameters.

    Raises:
      BadInput: the package tensorboard is not installed.
      Unusable: the file is damaged. A truncated record at the end is ignored, because killed runs leave one.
    """
    try:
        from tensorboard.compat.proto import event_pb2
    except ModuleNotFoundError:
        raise BadInput(
            'format: tensorboard needs the extra logs: pip install "scaling-limits[logs]", or pip install tensorboard'
        ) from None
    from google.protobuf.message import DecodeError

    rows: dict[str, list[tuple[int, float, float]]] = {}
    hyperparameters: Json = {}
    for number, content in enumerate(_records(data), start=1):
        try:
            event = event_pb2.Event.FromString(content)
        except DecodeError:
            raise Unusable(f"is not an event file (record {number:,})") from None
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                hyperparameters |= _hyperparameters(value.metadata.plugin_data.content)
                continue
            scalar = _scalar(value)
            if scalar is None:
                continue
            if not 0 <= event.step <= LAST_STEP:
                raise Unusable(f"has step {event.step} in record {number:,}")
            rows.setdefault(value.tag, []).append((event.step, event.wall_time, scalar))
            if len(rows) > MOST_TAGS:
                raise Unusable(f"has more than {MOST_TAGS:,} tags")
    series = {}
    for tag, logged in rows.items():
        step, seconds, value = np.array(logged, np.float64).T
        series[tag] = Series(step, seconds, value, seconds)
    return series, hyperparameters


def _records(data: bytes) -> Iterator[bytes]:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    position = 0
    while position + HEAD <= len(data):
        length, checksum = struct.unpack_from("<QI", data, position)
        if masked_crc32c(data[position : position + 8]) != checksum:
            raise Unusable(f"is damaged at byte {position:,}" if position else "is not an event file")
        start, end = position + HEAD, position + HEAD + length
        if end + TAIL > len(data):
            return
        content = data[start:end]
        if length <= MOST_CHECKED and masked_crc32c(content) != struct.unpack_from("<I", data, end)[0]:
            raise Unusable(f"is damaged at byte {start:,}")
        yield content
        position = end + TAIL
    if not position:
        raise Unusable("is empty" if not data else "is not an event file")


def _scalar(value: Any) -> float | None:
    """Returns the number in a summary value, or None for images, texts and other content."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or len(value.tensor.tensor_content) > 16 or len(value.tensor.tensor_shape.dim) > 1:
        return None
    from tensorboard.util import tensor_util

    try:
        array = tensor_util.make_ndarray(value.tensor)
    except (TypeError, ValueError):
        return None
    if array.size != 1 or array.dtype.kind not in "fiu":
        return None
    return float(array.reshape(-1)[0])


def _hyperparameters(content: bytes) -> Fields:
    """Returns the numbers and strings stored by the hyperparameter plugin at the start of a run."""
    from google.protobuf.message import DecodeError
    from tensorboard.plugins.hparams import plugin_data_pb2

    try:
        started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    except DecodeError:
        raise Unusable("has damaged hyperparameters") from None
    kinds = {"number_value", "string_value"}
    parameters = ((name, parameter, parameter.WhichOneof("kind")) for name, parameter in started.items())
    return {name: getattr(parameter, kind) for name, parameter, kind in parameters if kind in kinds}
