"""Arrow's threads hold no Python objects. Otherwise a process that exits at the wrong moment aborts."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from results import bounds
from results.importers import csv_text
from workloads.datasets import link_files

TABLE = pa.table({"row": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})


class Recorded(io.BytesIO):
    """A file in memory that records the threads that read it."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self.threads: set[int] = set()

    def read(self, size: int | None = -1) -> bytes:
        self.threads.add(threading.get_ident())
        return super().read(size)


@pytest.mark.parametrize("plain", [True, False])
def test_a_table_is_read_in_the_thread_that_asks_for_it(tmp_path: Path, plain: bool) -> None:
    pq.write_table(TABLE, tmp_path / "table.parquet")
    file = Recorded((tmp_path / "table.parquet").read_bytes())
    read = bounds.Parquet(file, bounds.BASE).read(plain=plain)
    assert read.to_pydict() == TABLE.to_pydict()
    assert file.threads == {threading.get_ident()}


def test_csv_is_read_from_a_copy() -> None:
    data = b"step,loss\n" + b"1,0.5\n" * 10_000
    before = sys.getrefcount(data)
    source = csv_text.source(data)
    assert sys.getrefcount(data) == before
    assert pyarrow.csv.read_csv(source) == pyarrow.csv.read_csv(pa.BufferReader(data))
    assert pyarrow.csv.read_csv(csv_text.source(b"step\n")).num_rows == 0


def test_links_are_read_from_a_file_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / os.fsdecode(b"links \xff.parquet")
    with open(path, "wb") as file:
        pq.write_table(pa.table({"row": [1, 2], "col": [3, 4]}), file)
    sources = []

    class File(pq.ParquetFile):
        def __init__(self, source: object, pre_buffer: bool = True, **named: object):
            if pre_buffer:
                sources.append(source)
            super().__init__(source, pre_buffer=pre_buffer, **named)

    monkeypatch.setattr(pq, "ParquetFile", File)
    assert [(row.tolist(), col.tolist()) for row, col in link_files._table(path)] == [([1, 2], [3, 4])]
    assert sources
    assert all(isinstance(source, pa.NativeFile) for source in sources)


READ = """
import os, sys
from results import bounds
from results.importers import csv_text
with open(sys.argv[1], "rb") as file:
    table = bounds.Parquet(file, bounds.BASE)
    before = len(os.listdir("/proc/self/task"))
    table.read()
    assert len(os.listdir("/proc/self/task")) == before
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_reading_starts_no_thread(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "table.parquet")
    subprocess.run([sys.executable, "-c", READ, str(tmp_path / "table.parquet")], check=True)
