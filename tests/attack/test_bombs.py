"""Small files that would take much memory: every reader of somebody else's files is given one, and refuses it."""

import base64
import bz2
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from results import __main__ as cli, bounds, durable
from results.storage import heartbeat, parts

from ..results.importers import test_algoperf, test_mlperf_rcp
from . import test_archives
from .test_stores import column, relist, relisted, study_in

MOST = 300 << 20  # bytes that a reader may take
LARGE = 1 << 30
LONG = "x" * (4 << 20)

RESULTS, ANALYSIS, SWEEPS = "results.__main__:main", "analysis.__main__:main", "sweeps.status:main"
ELSEWHERE = ("--metric", "validation_loss", "--value", "0.37")  # a target that no envelope answers
READERS: dict[str, Callable[[Path], tuple[str, list[Any]]]] = {
    "verify": lambda place: (RESULTS, [["verify", "--store", str(place)]]),
    "merge": lambda place: (RESULTS, [["merge", str(place), "--store", f"{place}-merged"]]),
    "export": lambda place: (RESULTS, [["export", "--store", str(place), "--out", f"{place}-export"]]),
    "repair": lambda place: (RESULTS, [["repair", "--store", str(place)]]),
    "steps": lambda place: (ANALYSIS, [["steps", "--store", str(place)]]),
    "scan": lambda place: (ANALYSIS, [["steps", "--store", str(place), *ELSEWHERE]]),
    "report": lambda place: (ANALYSIS, [["report", "--store", str(place), "--out", f"{place}.html"]]),
    "status": lambda place: (SWEEPS, [[f"store={place}"]]),
}


def bytes_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def stream_of(table: pa.Table, compression: str | None = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def repeated(rows: pa.Table, count: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1)] * count).combine_chunks()


def a_text(table: str, count: int, text: str = LONG, times: int = 1, **options: Any) -> Callable[[Path], None]:
    """A table of so many rows, each with the same text, so many times, in a column of texts."""

    def change(study: Path) -> None:
        rows = repeated(pq.read_table(study / f"{table}-000004.parquet"), count)
        name = {"studies": "plan", "trials": "reason"}[table]
        values = pa.array([text * times], pa.string()).take(pa.array(np.zeros(count, np.int32)))
        data = bytes_of(column(rows, name, values), **options)
        assert len(data) < 2_000_000
        relist(study, table, data, rows=count)

    return change


def many_rows(study: Path) -> None:
    """Measurements that are all the same: 16 rows for each byte of a file of 300 kB."""
    rows = pq.read_table(study / "measurements-000004.parquet").slice(0, 1)
    rows = rows.take(pa.array(np.zeros(4_500_000, np.int32)))
    noise = os.urandom(300_000).hex()[:300_000]
    data = bytes_of(rows.replace_schema_metadata({**(rows.schema.metadata or {}), b"noise": noise}), compression="zstd")
    assert len(data) < 2_000_000
    relist(study, "measurements", data, rows=len(rows))


def an_envelope(study: Path) -> None:
    rows = pa.ipc.open_stream((study / "envelope-000004.arrow").read_bytes()).read_all().slice(0, 1)
    many = rows.take(pa.array(np.zeros(10_000_000, np.int32)))
    data = stream_of(many)
    assert len(data) < 2_000_000
    relist(study, "envelope", data, rows=len(many))


def a_part(study: Path) -> None:
    """A part whose measurements are compressed."""
    from results.storage import compaction

    path = next(study.parent.glob(f"*/{'part-*'}"))
    piece = compaction.read_part(path)
    many = piece.measurements.slice(0, 1).take(pa.array(np.zeros(8_000_000, np.int32)))
    payload = stream_of(piece.studies, None) + stream_of(piece.trials, None) + stream_of(many)
    path.write_bytes(payload + hashlib.sha256(payload).digest())


def sparse(name: str, size: int = LARGE) -> Callable[[Path], None]:
    def change(study: Path) -> None:
        with open(study / name, "wb") as file:
            file.truncate(size)

    return change


def a_record(study: Path) -> None:
    """A claim with millions of lists, sealed as if that were what was written."""
    body = b'{"a": [' + b"[]," * 5_000_000 + b"[]]\n}"
    (study / "claim-000002.json").write_bytes(durable._sealed(body))


def a_number(value: int) -> bytes:
    """As Thrift's compact protocol writes one."""
    return bytes([value & 127 | 128]) + a_number(value >> 7) if value > 127 else bytes([value])


def footer(columns: int, there: int) -> bytes:
    """A Parquet file of nothing but a footer: of a row group that says it has so many columns, and has some of them."""
    tables = b"\x2c\x48\x01r\x15\x02\x00" + b"\x15\x02\x25\x02\x18\x01a\x00"
    group = b"\x19\xfc" + a_number(columns) + b"\x26\x00\x00" * there + b"\x16\x00\x16\x00\x00"
    body = b"\x15\x04\x19" + tables + b"\x16\x00\x19\x1c" + group + b"\x00"
    assert len(body) < 2_000_000
    return b"PAR1" + body + len(body).to_bytes(4, "little") + b"PAR1"


# 45 bytes of which PyArrow alone makes 700 MB, and 1.8 MB of which it makes 500.
EMPTY, TINY = footer(1_000_000, 0), footer(600_000, 600_000)


# A schema of Arrow's, around a list of where its columns are: a struct of 14 columns that are one.
SCHEMA = bytes.fromhex("1000000000000a000c000a00090004000a000000100000000001040008000800000004000800000004000000")
STRUCT = bytes.fromhex(
    "b0ffffff10000000740000000000000d840000000e0000004800000044000000400000003c0000003800000034000000300000002c000000"
    "2800000024000000200000001c000000180000001400000010001400100000000f0008000000040010000000100000002000000000000002"
    "2400000000000000040004000400000008000c0008000700080000000000000120000000010000006100000000000000"
)


def shared_columns(columns: int) -> bytes:
    """A schema with so many columns, all of which are the same struct."""
    places = np.arange(4 * columns, 0, -4, dtype="<u4").tobytes()
    message = SCHEMA + columns.to_bytes(4, "little") + places + STRUCT
    return b"\xff" * 4 + len(message).to_bytes(4, "little") + message


def schema_in_footer(schema: bytes) -> bytes:
    """A Parquet file without rows or columns, that says of itself that it has the columns of a schema."""
    text = base64.b64encode(schema)
    tables = b"\x2c\x48\x01r\x15\x02\x00" + b"\x15\x02\x25\x02\x18\x01a\x00"
    pair = b"\x18\x0cARROW:schema\x18" + a_number(len(text)) + text + b"\x00"
    body = b"\x15\x04\x19" + tables + b"\x16\x00\x19\x0c" + b"\x19\x1c" + pair + b"\x00"
    return b"PAR1" + body + len(body).to_bytes(4, "little") + b"PAR1"


def test_a_schema_of_one_struct_many_times_is_what_arrow_reads() -> None:
    schema = shared_columns(3)
    assert (
        pa.ipc.read_schema(pa.py_buffer(schema)).types
        == [pa.struct([pa.field("a", pa.int32(), nullable=False)] * 14)] * 3
    )
    with pytest.raises(bounds.TooLarge, match="columns would take"):
        bounds.check_stream(pa.BufferReader(shared_columns(20_000)), 0)
    bounds.Parquet(io.BytesIO(schema_in_footer(schema)), bounds.BASE)
    with pytest.raises(bounds.TooLarge, match="columns would take"):
        bounds.Parquet(io.BytesIO(schema_in_footer(shared_columns(20_000))), bounds.BASE)


def in_place(table: str, data: bytes) -> Callable[[Path], None]:
    return lambda study: relist(study, table, data)


def in_release(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda place: relisted(place, name, data)


STORES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "a text of 4 MB in 100 trials": (a_text("trials", 100), ("verify", "merge", "steps", "report", "status", "export")),
    "a text of 1 MB in 400 trials": (a_text("trials", 400, "x" * (1 << 20)), ("verify", "merge", "export")),
    "a text of 4 MB in 100 studies": (a_text("studies", 100), ("verify", "merge", "report", "status")),
    "a text of 400 MB": (a_text("studies", 1, times=100, compression="zstd"), ("verify", "merge", "report")),
    "texts that begin alike": (
        a_text(
            "trials",
            400,
            "x" * (1 << 20),
            use_dictionary=["study"],
            column_encoding={"reason": "DELTA_BYTE_ARRAY"},
            compression="zstd",
        ),
        ("verify", "merge"),
    ),
    "a footer that says it is long": (in_place("trials", EMPTY), ("verify", "merge", "steps", "report", "export")),
    "a footer of tiny structs": (in_place("measurements", TINY), ("verify", "merge", "scan", "repair")),
    "a schema of one struct": (in_place("envelope", shared_columns(200_000)), ("verify", "merge", "steps")),
    "a schema in a footer": (in_place("trials", schema_in_footer(shared_columns(200_000))), ("verify", "steps")),
    "many rows": (many_rows, ("verify", "merge", "scan", "export")),
    "an envelope": (an_envelope, ("verify", "merge", "steps")),
    "a part": (a_part, ("verify", "merge", "status", "repair")),
    "a commit record": (sparse("commit-000004.json"), ("verify", "merge", "steps", "status", "repair")),
    "a claim": (sparse("claim-000002.json"), ("verify", "status", "repair")),
    "a plan": (sparse("plan-000000008.json"), ("verify", "status", "repair")),
    "an envelope of nothing": (sparse("envelope-000004.arrow"), ("verify", "steps")),
    "a record of lists": (a_record, ("verify", "status")),
}


def shared_text(name: str, text: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        rows = pq.read_table(place / name)
        values = pa.array([LONG * 20], pa.string()).take(pa.array(np.zeros(len(rows), np.int32)))
        relisted(place, name, bytes_of(column(rows, text, values), compression="zstd"))

    return change


def lines(place: Path) -> None:
    (place / "SHA256SUMS").write_bytes(b"\n" * (31 << 20))


RELEASES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "texts of shared trials": (shared_text("trials.parquet", "reason"), ("verify", "merge", "steps", "report")),
    "texts of points": (shared_text("points.parquet", "doubts"), ("verify",)),
    "a long footer of shared trials": (in_release("trials.parquet", EMPTY), ("verify", "merge", "steps", "report")),
    "a footer of tiny structs of points": (in_release("points.parquet", TINY), ("verify",)),
    "a footer of tiny structs of studies": (in_release("studies.parquet", TINY), ("verify", "merge", "steps")),
    "a manifest": (sparse("manifest.json", LARGE - 1), ("verify", "merge", "steps", "report")),
    "a list": (sparse("SHA256SUMS", LARGE - 1), ("verify", "merge")),
    "a list of lines": (lines, ("verify",)),
    "shared envelopes": (sparse("envelopes.arrow"), ("verify", "steps")),
}


def own_files(place: Path, store: Path) -> list[tuple[str, str, list[Any]]]:
    """Calls of readers of files that are no store."""
    zeros = np.zeros(60_000_000)
    pq.write_table(pa.table({"row": zeros.astype(np.int64), "batch_size": zeros}), place / "numbers.parquet")
    pq.write_table(pa.table({"says": pa.array([LONG]).take(pa.array(np.zeros(300, int)))}), place / "texts.parquet")
    with open(place / "points.csv", "wb") as file:
        file.truncate(LARGE)
    (place / "cells.csv").write_bytes(b"batch_size,steps\n" + b"1,1\n" * 8_000_000)
    np.savez_compressed(
        place / "links.npz", format=np.array([b"csr"]), shape=np.zeros(60_000_000), indptr=[0], indices=[0], data=[0]
    )
    (place / "study").mkdir()
    for name in (parts.checkpoint_file(0, 0, 1), heartbeat.FILE):
        with open(place / "study" / name, "wb") as file:
            file.truncate(LARGE)
    for name, data in (("empty", EMPTY), ("tiny", TINY)):
        (place / f"{name}.parquet").write_bytes(data)
    with open(place / "long.parquet", "wb") as file:
        file.write(b"PAR1")
        file.seek(LARGE)
        file.write((LARGE - 4).to_bytes(4, "little") + b"PAR1")
    fit = [["fit", "--points", str(place / name)] for name in ("points.csv", "cells.csv")]
    payoff = [
        ["payoff", "--store", str(store), "--measured", str(place / name)]
        for name in ("points.csv", "numbers.parquet", "texts.parquet", "empty.parquet", "tiny.parquet", "long.parquet")
    ]
    return [
        *((f"{words[0]} {Path(words[-1]).name}", ANALYSIS, [words]) for words in [*fit, *payoff]),
        *(
            (f"ratings {name}", ":ratings", [str(place / name)])
            for name in ("links.npz", "empty.parquet", "tiny.parquet", "long.parquet")
        ),
        ("checkpoint", ":checkpoint", [str(place / "study")]),
        ("heartbeat", ":heartbeat", [str(place / "study")]),
    ]


def sources(place: Path) -> list[tuple[str, str, list[Any]]]:
    """Calls of importers of sources in which a file is large, or little text that takes much memory."""
    lists = '{"a": [' + "[]," * 1_300_000 + "[]]}"
    trial = place / "logs" / test_algoperf.STUDY / test_algoperf.OGBG
    for name, text in test_archives.study(test_archives.GOOD, study=lists, metadata=lists).items():
        (place / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "folder" / name).write_text(text)
    head = tarfile.TarInfo(f"batch_science/{test_archives.GOOD}/1/measurements.csv")
    head.size = LARGE
    (place / "zeros.tar.bz2").write_bytes(bz2.compress(head.tobuf()) + bz2.compress(bytes(16 << 20)) * 65)
    with open(place / "zeros.tar", "wb") as file:
        file.write(head.tobuf())
        file.truncate(LARGE + 20 * 512)
    for number, text in enumerate((lists, "")):
        test_algoperf.write(trial / f"trial_{number + 1}", hparams=text or None, flags_0=text or None)
    for name in ("eval_measurements.csv", "flags_0.json"):
        with open(trial / "trial_2" / name, "wb") as file:
            file.truncate(LARGE)
    test_mlperf_rcp.write(place / "rcp", "training_2.0.0", test_mlperf_rcp.record())
    (place / "rcp" / "training_2.0.0" / "rcps_lists.json").write_text(lists)
    with open(place / "rcp" / "training_2.0.0" / "rcps_large.json", "wb") as file:
        file.truncate(LARGE)
    named = (
        *(("shallue2018", name) for name in ("zeros.tar.bz2", "zeros.tar", "folder")),
        *(("algoperf-logs", "logs"), ("mlperf-rcp", "rcp")),
    )
    calls: list[tuple[str, str, list[Any]]] = []
    for source, name in named:
        words = ["import", source, str(place / name), "--store", str(place / f"{name}-store")]
        words += ["--any-checksum"] if source == "shallue2018" else []
        calls.append((f"{source} {name}", RESULTS, [words]))
    return calls


def cached(place: Path) -> list[tuple[str, str, list[Any]]]:
    """Calls of readers of what is kept of a machine, in each of which the file is large."""
    return [(name, f":{name}", [str(place)]) for name in ("probe", "cost", "step_times")]


# Of a call that got nowhere near its file, or failed in a way of its own.
MISTAKEN = ("Traceback", "unknown command", "unrecognized", "required", "--help", "--any-checksum")

# Of what each reader does with each bomb; all of them take a minute.
QUICK = (
    *(
        "a text of 4 MB in 100 trials",
        "a footer that says it is long",
        "an envelope",
        "a part",
        "a commit record",
        "a record of lists",
        "a manifest",
    ),
    "a list of lines",
)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
def test_no_reader_takes_more_than_300_mb(every: bool, whole: Path, tmp_path: Path) -> None:
    calls: list[tuple[str, str, list[Any]]] = []
    assert cli.main(["export", "--store", str(whole), "--out", str(tmp_path / "release")]) == 0
    for kind, cases in (("store", STORES), ("release", RELEASES)):
        for number, (what, (harm, readers)) in enumerate(cases.items()):
            if not every and what not in QUICK:
                continue
            place = tmp_path / f"{kind}-{number}"
            shutil.copytree(whole if kind == "store" else tmp_path / "release", place)
            harm(study_in(place) if kind == "store" else place)
            for reader in readers if every else readers[:1]:  # of which none but the last, repair, changes it
                calls.append((f"{what}: {reader}", *READERS[reader](place)))
    (tmp_path / "own").mkdir()
    if every:
        (tmp_path / "sources").mkdir()
        calls += [*own_files(tmp_path / "own", whole), *sources(tmp_path / "sources"), *cached(tmp_path / "own")]
    (tmp_path / "calls").write_text("".join(f"{json.dumps(call)}\n" for call in calls))
    program = Path(__file__).with_name("bombs.py")
    done = subprocess.run([sys.executable, program, tmp_path / "calls"], capture_output=True, text=True, check=False)
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in ended] == [name for name, *_ in calls], done.stderr[-2000:]
    wrong = [
        f"{name}: {'killed' if grown is None else f'{grown >> 20} MB'}, code {code}: {said[-300:]}"
        for name, grown, code, said in ended
        if grown is None or grown > MOST or code not in (0, 1, 2) or any(word in said for word in MISTAKEN)
    ]
    for name, grown, code, said in ended:  # shown where it fails
        print(f"{name:50} {(grown or 0) >> 20:6} MB  code {code}  {said.strip()[-230:]!r}")
    assert not wrong, "\n".join(wrong)
