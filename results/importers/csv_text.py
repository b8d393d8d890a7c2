"""CSV text: parses untrusted CSV files to Arrow tables."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from results.bad_input import first_line, printable
from results.importers.untrusted import Unusable

BLOCK = 1 << 20  # bytes; a longer line cannot be parsed
LAST_STEP = 2**31 - 1


def read(data: bytes, block: int = BLOCK, **conversion: Any) -> pa.Table:
    """Returns the table in a CSV text.

    Args:
      data: the text.
      block: size of a block, in bytes. The types of columns that are not given are inferred from the first block.
      conversion: arguments of ``pyarrow.csv.ConvertOptions``.

    Raises:
      Unusable: the text cannot be parsed.
    """
    ending = b"" if data.endswith(b"\n") else b"\n"  # a header without a line end could not be parsed
    reading = pyarrow.csv.ReadOptions(block_size=block)
    try:
        convert = pyarrow.csv.ConvertOptions(**conversion)
        return pyarrow.csv.read_csv(source(data + ending), reading, convert_options=convert)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise Unusable(f"cannot be parsed ({printable(first_line(error))[:160]})") from None


def source(data: bytes) -> pa.BufferReader:
    """Returns a source for ``pyarrow.csv.read_csv``, which reads it in threads.

    The source holds a copy of the data rather than a Python object. If a thread released a Python object while the
    interpreter exits, the process would abort.
    """
    copy = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(copy).write(data)
    return pa.BufferReader(copy)


def as_steps(counts: np.ndarray, name: str) -> np.ndarray:
    """Converts a counter, float64[n], to steps, int64[n]. Raises Unusable if a step is missing or out of range."""
    if not np.all((counts >= 0) & (counts <= LAST_STEP) & (counts == np.floor(counts))):
        raise Unusable(f"has a {name} that is not an integer from 0 to {LAST_STEP}")
    return counts.astype(np.int64)
