"""Stores that nobody should have made: verify says what is wrong with each, and whoever reads it is led nowhere."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from results import __main__ as cli, durable, store
from results.bad_input import BadInput, number_of
from results.checks import verify
from results.durable import Damaged
from results.plans import schema
from results.storage import compaction, envelope
from results.storage.claims import Claim
from results.storage.compaction import Piece


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be harmed."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


def study_in(folder: Path) -> Path:
    """The folder of the study that grew: claims 1 to 4, commits 2 and 4."""
    (found,) = (path.parent for path in folder.glob("*/plan-000000006.json"))
    return found


def reseal(path: Path, **changes: Any) -> None:
    """Changes members of a record, and seals it again as if that were what was written."""
    record = durable.unseal(path.read_bytes(), path)
    path.write_bytes(durable.seal(record | changes))


def relist(study: Path, table: str, data: bytes, **changes: Any) -> None:
    """Puts other bytes in place of a table, and lists them as if they were what was written."""
    record = study / "commit-000004.json"
    path = study / f"{table}-000004.{'arrow' if table == 'envelope' else 'parquet'}"
    path.write_bytes(data)
    files = durable.unseal(record.read_bytes(), record)["files"]
    files[table] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} | changes
    reseal(record, files=files)


def relisted(place: Path, name: str, data: bytes) -> None:
    """Puts other bytes in place of a file of a release, and lists them wherever it is listed."""
    old, size = hashlib.sha256((place / name).read_bytes()).hexdigest(), (place / name).stat().st_size
    new = hashlib.sha256(data).hexdigest()
    (place / name).write_bytes(data)
    manifest = place / "manifest.json"
    before = hashlib.sha256(manifest.read_bytes()).hexdigest()
    record = json.loads(manifest.read_text().replace(old, new).replace(f'"bytes": {size}', f'"bytes": {len(data)}'))
    del record["sha256"]
    manifest.write_bytes(durable.seal(record))
    lines = (place / "SHA256SUMS").read_text().replace(old, new)
    lines = lines.replace(before, hashlib.sha256(manifest.read_bytes()).hexdigest()).rpartition("# ")[0].encode()
    (place / "SHA256SUMS").write_bytes(lines + f"# sha256 {hashlib.sha256(lines).hexdigest()}\n".encode())


def rewrite(study: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes the rows of a table, and lists it as if it had been written so."""
    rows, sink = change(pq.read_table(study / f"{table}-000004.parquet")), pa.BufferOutputStream()
    pq.write_table(rows, sink)
    relist(study, table, sink.getvalue().to_pybytes(), rows=len(rows))


def column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column, of its old type unless ``values`` is an array."""
    index = table.schema.get_field_index(name)
    values = (
        values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, table.schema.field(index).type)
    )
    return table.set_column(index, table.schema.field(index).with_type(values.type).with_nullable(True), values)


def first(table: pa.Table, name: str, value: Any) -> pa.Table:
    """The table with another value in the first row of a column."""
    return column(table, name, [value, *table[name].to_pylist()[1:]])


def set_first(table: str, name: str, value: Any) -> Callable[[Path], None]:
    return lambda study: rewrite(study, table, lambda rows: first(rows, name, value))


def move(source: str, target: str) -> Callable[[Path], None]:
    return lambda study: (study / source).rename(study / target)  # type: ignore[return-value]


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda study: (study / name).write_bytes(data)  # type: ignore[return-value]


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in place of a file."""

    def change(study: Path) -> None:
        (study / name).unlink()
        make(study / name)

    return change


def link_outside(path: Path) -> None:
    outside = path.parent.parent.parent / "outside"
    outside.write_text("not ours")
    path.symlink_to(outside)


def list_elsewhere(place: str) -> Callable[[Path], None]:
    def change(study: Path) -> None:
        record = study / "commit-000004.json"
        files = durable.unseal(record.read_bytes(), record)["files"]
        files["trials"]["file"] = place
        reseal(record, files=files)

    return change


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def aged(path: Path) -> None:
    path.touch()
    os.utime(path, (0, 0))


def bad_ledger(study: Path) -> None:
    record = study / "commit-000004.json"
    ledger = durable.unseal(record.read_bytes(), record)["ledger"]
    reseal(record, ledger=ledger | {"complete": ledger["complete"] - 1, "missing": 1})


def version(value: bytes) -> Callable[[Path], None]:
    return lambda study: rewrite(
        study, "trials", lambda rows: rows.replace_schema_metadata({schema.VERSION_KEY: value})
    )


def part_elsewhere(study: Path) -> Path:
    """A part of the study that is in progress."""
    return next(path for path in sorted(study.parent.glob("*/part-*")) if path.parent != study)


def late_part(study: Path) -> None:
    """A part under a claim that was made to commit."""
    shutil.copy(part_elsewhere(study), study / "part-000004-000004.arrows")


def empty_part(study: Path, piece: bytes) -> None:
    (study / "claim-000005.json").write_bytes(
        durable.seal({"claim": 5, "parts": 4, "purpose": "run", "host": "h", "pid": 1, "at": "now"})
    )
    (study / "part-000004-000005.arrows").write_bytes(piece + hashlib.sha256(piece).digest())


def part_of_another(study: Path) -> None:
    piece = compaction.read_part(part_elsewhere(study))
    empty_part(study, compaction.part_bytes(Piece(*(rows.slice(0, 1) for rows in piece)))[:-32])


def reenvelope(
    study: Path,
    change: Callable[[dict[str, Any], pa.Table], tuple[dict[str, Any], pa.Table]],
    batches: tuple[int | None, ...] = (),
) -> None:
    """An envelope after a change to its head and its rows; ``batches`` says where they are cut, if not as they were."""
    stream = pa.ipc.open_stream((study / "envelope-000004.arrow").read_bytes())
    whole = stream.read_all()
    cuts = batches or (len(whole["step"].chunk(0)), None)
    head, rows = change(json.loads(whole.schema.metadata[envelope.KEY]), whole.combine_chunks())
    rows = rows.replace_schema_metadata({envelope.KEY: json.dumps(head)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as written:
        for start, stop in itertools.pairwise((0, *cuts)):
            for batch in rows.slice(start, None if stop is None else stop - start).combine_chunks().to_batches():
                written.write_batch(batch)
    relist(study, "envelope", sink.getvalue().to_pybytes(), rows=len(rows))


def shorter_envelope(study: Path) -> None:
    """An envelope that lacks a row, and says that it was made from these tables."""
    rows = pa.ipc.open_stream((study / "envelope-000004.arrow").read_bytes()).read_all().slice(1)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    relist(study, "envelope", sink.getvalue().to_pybytes(), rows=len(rows))


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "garbage": (write("commit-000004.json", b"\x00\xff{"), "commit-000004.json: is not what was written"),
    "an empty record": (write("claim-000001.json", b""), "claim-000001.json: is not what was written"),
    "deep nesting": (write("plan-000000008.json", b"[" * 200_000), "plan-000000008.json: is not what was written"),
    "endless digits": (write("claim-000001.json", b'{"parts": ' + b"9" * 100_000 + b"}"), "claim-000001.json: is not"),
    "a number too large": (
        lambda study: reseal(study / "claim-000002.json", parts=10**6),
        "claim-000002.json: is not a claim",
    ),
    "a number too small": (lambda study: reseal(study / "claim-000002.json", parts=-1), "claim-000002.json: is no"),
    "text for a number": (lambda study: reseal(study / "claim-000002.json", parts="3"), "claim-000002.json: is no"),
    "a purpose nobody has": (lambda study: reseal(study / "claim-000002.json", purpose=[]), "claim-000002.json: is a"),
    "a list for a record": (write("commit-000004.json", b"[]"), "commit-000004.json: is not what was written"),
    "files that are a list": (lambda study: reseal(study / "commit-000004.json", files=[]), "commit-000004.json: is"),
    "no files": (lambda study: reseal(study / "commit-000004.json", files={}), "commit-000004.json: is not a record"),
    "a plan that is text": (lambda study: reseal(study / "commit-000004.json", plan="x"), "commit-000004.json: "),
    "a plan without parts": (lambda study: reseal(study / "plan-000000008.json", plan={"kind": "batch"}), "8.json: "),
    "a space that is a list": (
        lambda study: reseal(
            study / "plan-000000008.json",
            plan=durable.read_sealed(study / "plan-000000008.json")["plan"] | {"space": [1]},
        ),
        "plan-000000008.json: scaling-limits 0.2 cannot read a plan of version",
    ),
    "a record of another study": (lambda study: reseal(study / "commit-000004.json", name="x"), "commit-000004.json: "),
    "a record of more than there is": (
        lambda study: reseal(study / "commit-000004.json", surplus=1),
        "commit-000004.json: differs from the record that this software would write",
    ),
    "a newer schema": (lambda study: reseal(study / "commit-000004.json", schema=99), "commit-000004.json: has schema"),
    "a schema before all": (
        lambda study: reseal(study / "commit-000004.json", schema=-5),
        "has the unknown schema -5",
    ),
    "an envelope of a schema before all": (
        lambda study: reenvelope(study, lambda head, rows: (head | {"schema": -5}, rows)),
        "envelope-000004.arrow: has the unknown format 1 or schema -5",
    ),
    "an envelope of another format": (
        lambda study: reenvelope(study, lambda head, rows: (head | {"format": 0}, rows)),
        "envelope-000004.arrow: has the unknown format 0 or schema",
    ),
    "an envelope of empty intervals": (
        lambda study: reenvelope(study, lambda head, rows: (head, rows.set_column(2, "step_before", rows["step"]))),
        "envelope-000004.arrow: has an empty interval, which is impossible",
    ),
    "an envelope of wider intervals": (
        lambda study: reenvelope(
            study, lambda head, rows: (head, rows.set_column(2, "step_before", pc.multiply(rows["step_before"], 0)))
        ),
        "envelope-000004.arrow: does not match the tables listed with it",
    ),
    "an envelope that keeps rows from a rule": (
        lambda study: reenvelope(study, lambda head, rows: (head, rows), batches=(0, None)),
        "envelope-000004.arrow: does not match the tables listed with it",
    ),
    "more rows than bytes hold": (
        lambda study: rewrite(study, "measurements", lambda rows: rows.take(pa.array(np.zeros(3_000_000, np.int32)))),
        "measurements-000004.parquet: claims 3,000,000 rows, too many for",
    ),
    "more rows than were planned": (
        lambda study: rewrite(study, "measurements", lambda rows: pa.concat_tables([rows] * 3)),
        "rows, but the plan allows at most 128",
    ),
    "a way out": (list_elsewhere("../../outside"), "commit-000004.json: "),
    "a way to the root": (list_elsewhere("/etc/passwd"), "commit-000004.json: "),
    "a name with an end": (list_elsewhere("trials-000004.parquet\x00"), "commit-000004.json: "),
    "another table": (list_elsewhere("studies-000004.parquet"), "commit-000004.json: lists a file that is not"),
    "a link outside": (instead("trials-000004.parquet", link_outside), "trials-000004.parquet: is a link"),
    "a link to itself": (instead("claim-000001.json", lambda p: p.symlink_to(p)), "claim-000001.json: is a link"),
    "a folder for a file": (instead("commit-000004.json", Path.mkdir), "commit-000004.json: is a folder"),
    "a folder more": (lambda study: (study / "000001").mkdir(), "000001: is a folder"),
    "a pipe": (instead("measurements-000004.parquet", os.mkfifo), "measurements-000004.parquet: is a device"),
    "a terabyte of nothing": (instead("trials-000004.parquet", sparse), "trials-000004.parquet: is not what was"),
    "a record of a terabyte": (
        instead("claim-000002.json", sparse),
        "claim-000002.json: is too large for a record: 1,099,511,627,776",
    ),
    "no Parquet": (
        lambda study: relist(study, "trials", b"PAR1" * 9),
        "trials-000004.parquet: is not a readable Parquet file",
    ),
    "a missing table": (
        lambda study: (study / "trials-000004.parquet").unlink(),
        "trials-000004.parquet: is listed but missing",
    ),
    "a missing plan": (lambda study: (study / "plan-000000008.json").unlink(), "plan-000000008.json: is missing"),
    "a missing claim": (lambda study: (study / "claim-000002.json").unlink(), "lacks claim-000002.json"),
    "a claim far off": (move("claim-000004.json", "claim-999999.json"), "lacks claim-000004.json and 999994 more"),
    "cut-offs that go down": (
        lambda study: reseal(study / "claim-000004.json", parts=1),
        "claim-000004.json: counts 1",
    ),
    "a part without a right": (late_part, "part-000004-000004.arrows: was not written under a valid claim"),
    "a part of nothing": (lambda study: empty_part(study, b"nothing"), "part-000004-000005.arrows: "),
    "a part before others": (
        lambda study: [
            late_part(study),
            empty_part(study, b""),
            move("part-000004-000005.arrows", "part-000009-000005.arrows")(study),
        ],
        "are not consecutive from 4",
    ),
    "a part of another study": (part_of_another, "part-000004-000005.arrows: holds rows of another study"),
    "another study's folder": (lambda study: study.rename(study.with_name("else")), "else/plan-000000008.json: holds"),
    "an extra file": (write("notes.txt", b"mine"), "notes.txt: is an unexpected file"),
    "digits of another script": (write("claim-00000١.json", b""), "is an unexpected file"),
    "a name of two lines": (write("a\nb\udcff.json", b""), "a\\nb\\udcff.json: is"),
    "a lock with words": (write(".lock", b"mine"), ".lock: is the lock"),
    "a temporary file of old": (lambda study: aged(study / ".tmp-x"), ".tmp-x: was left by a killed process"),
    "duplicated rows": (
        lambda study: rewrite(study, "measurements", lambda rows: pa.concat_tables([rows.slice(0, 1), rows])),
        "measurements-000004.parquet: 1 or more rows occur twice; the first is row 1",
    ),
    "unsorted rows": (
        lambda study: rewrite(study, "measurements", lambda rows: rows.take(pa.array(range(len(rows))[::-1]))),
        "measurements-000004.parquet: ",
    ),
    "a trial in two places": (
        lambda study: rewrite(study, "measurements", lambda rows: pa.concat_tables([rows.slice(9), rows.slice(0, 9)])),
        "are not sorted by (trial, step)",
    ),
    "orphan rows": (
        lambda study: rewrite(study, "trials", lambda rows: rows.slice(0, 7)),
        "measurements-000004.parquet: holds rows of trial 7, which trials does not have",
    ),
    "a trial twice": (
        lambda study: rewrite(study, "trials", lambda rows: pa.concat_tables([rows.slice(0, 1), rows])),
        "trials-000004.parquet: does not have every trial once",
    ),
    "a trial nobody asked for": (
        lambda study: rewrite(study, "trials", lambda rows: column(rows, "trial", [0, 1, 2, 3, 4, 5, 6, 70])),
        "trials-000004.parquet: has results without a request in trial 70",
    ),
    "rows of another study": (
        lambda study: rewrite(
            study,
            "measurements",
            lambda rows: (
                first(rows, "study", pa.scalar("b"))
                if 0
                else column(rows, "study", pa.array(["b", *rows["study"].to_pylist()[1:]]).dictionary_encode())
            ),
        ),
        "measurements-000004.parquet: holds rows of another study, 'b'",
    ),
    "no trial": (set_first("measurements", "trial", None), "measurements-000004.parquet: rows have no trial"),
    "step 0": (set_first("measurements", "step", 0), "measurements-000004.parquet: rows have a step below 1"),
    "an unknown status": (set_first("trials", "status", "DONE"), "has the unknown status DONE(None) in trial 0"),
    "a reason too many": (set_first("trials", "reason", "lost"), "has the unknown status COMPLETE(lost) in trial 0"),
    "steps not measured": (
        set_first("trials", "steps", 59),
        "has steps that differ from the last measurement in trial 0",
    ),
    "no seed": (set_first("trials", "seed", None), "trials-000004.parquet: has no seed in trial 0"),
    "a value out of range": (
        set_first("trials", "learning_rate", 9.0),
        "has a learning_rate outside its range in trial 0",
    ),
    "a run nobody made": (set_first("trials", "run", 9), "trials-000004.parquet: has trials of a run"),
    "a plan in the rows": (
        set_first("studies", "plan", "{}"),
        "studies-000004.parquet: contradicts the plan in column plan",
    ),
    "a column of another type": (
        lambda study: rewrite(study, "trials", lambda rows: column(rows, "steps", pc.cast(rows["steps"], pa.int64()))),
        "trials-000004.parquet: has column steps (int64) instead of steps (int32)",
    ),
    "a column less": (lambda study: rewrite(study, "studies", lambda rows: rows.drop_columns(["plan"])), "studies-"),
    "a metric nobody knows": (
        lambda study: rewrite(study, "measurements", lambda rows: rows.append_column("joy", rows["test_loss"])),
        "'joy', which is not a metric",
    ),
    "columns of one name": (
        lambda study: rewrite(study, "measurements", lambda rows: rows.append_column("test_loss", rows["test_loss"])),
        "measurements-000004.parquet: has two columns with the same name",
    ),
    "a version that is none": (version(b"two"), "trials is not a table of scaling-limits"),
    "a version to come": (version(b"99"), "has schema 99"),
    "a wrong ledger": (bad_ledger, "commit-000004.json: has a ledger that does not match its trials"),
    "a missing commit record": (
        lambda study: (study / "commit-000004.json").unlink(),
        "has 3 parts, but claim-000004.json counted 4",
    ),
    "a missing envelope": (
        lambda study: (study / "envelope-000004.arrow").unlink(),
        "envelope-000004.arrow: is listed but missing",
    ),
    "no envelope": (
        lambda study: relist(study, "envelope", b"ARROW"),
        "envelope-000004.arrow: is not a readable envelope",
    ),
    "an envelope of other tables": (
        lambda study: relist(study, "envelope", (study / "envelope-000002.arrow").read_bytes()),
        "envelope-000004.arrow: was not made from the tables listed with it",
    ),
    "an envelope that lacks a row": (
        shorter_envelope,
        "envelope-000004.arrow: does not match the tables listed with it",
    ),
    "a wrong count": (
        lambda study: relist(study, "trials", (study / "trials-000004.parquet").read_bytes(), rows=7),
        "trials-000004.parquet: holds 8 rows but is listed with 7",
    ),
    "metrics that are not there": (
        lambda study: reseal(study / "commit-000004.json", metrics={"test_loss": "double"}),
        "commit-000004.json: does not list the metrics",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_stores(folder: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    harm, expected = HOSTILE[what]
    study = study_in(folder)
    harm(study)
    before = {path: os.lstat(path) for path in folder.parent.rglob("*")}
    capsys.readouterr()
    began = time.monotonic()
    assert cli.main(["verify", "--store", str(folder)]) == 1
    assert time.monotonic() - began < 10
    captured = capsys.readouterr()
    *lines, last = captured.out.splitlines()
    assert any(expected in line for line in lines), lines
    assert all(line.startswith(f"{folder}/") and len(line) < 600 for line in lines)
    assert f"; {number_of(len(lines), 'fault')}" in last
    assert "Traceback" not in captured.err
    # Whoever reads such a store, or is about to write to it, is told or does not notice; nothing happens outside of it.
    for look in (store.catalogue, store.read, store.names, lambda place: Claim(place, study.name).tables()):
        with contextlib.suppress(BadInput):
            look(folder)
    after = {path: os.lstat(path) for path in folder.parent.rglob("*")}
    assert {path: (s.st_size, s.st_mtime_ns) for path, s in after.items()} == {
        path: (s.st_size, s.st_mtime_ns) for path, s in before.items()
    }


@pytest.mark.parametrize(
    ("table", "name"), [("studies", "compile_seconds"), ("trials", "learning_rate"), ("measurements", "test_loss")]
)
def test_text_where_numbers_belong_is_refused_as_it_is_read(folder: Path, table: str, name: str) -> None:
    study = study_in(folder)
    rewrite(study, table, lambda rows: column(rows, name, pa.array(["5"] * len(rows))))
    with pytest.raises(Damaged, match=f"{table}-000004.parquet has other columns than {table}"):
        store.read(folder)


def test_rows_without_a_step_are_refused_as_they_are_read(folder: Path) -> None:
    study = study_in(folder)
    rewrite(study, "measurements", lambda rows: first(rows, "step", None))
    with pytest.raises(Damaged, match=r"measurements-000004.parquet has 1 row without step. Check everything"):
        store.read(folder)


def test_rows_of_another_study_are_found_whatever_statistics_say(folder: Path) -> None:
    """The least and the largest name in the footer are those of the study, and those in its rows are not."""
    study = study_in(folder)
    path = study / "measurements-000004.parquet"
    rows = pq.read_table(path)
    name, other = study.name, f"{study.name[:-1]}~"
    sink = pa.BufferOutputStream()
    named = column(rows, "study", pa.array([other] * len(rows)).dictionary_encode())
    pq.write_table(named, sink, compression="none")
    data = sink.getvalue().to_pybytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    lying = data[:footer] + data[footer:].replace(other.encode(), name.encode())
    statistics = pq.read_metadata(pa.BufferReader(lying)).row_group(0).column(0).statistics
    assert statistics.min == statistics.max == name
    relist(study, "measurements", lying, rows=len(rows))
    assert any(
        "holds rows of another study" in fault.line for each in verify.examine(folder, print) for fault in each.faults
    )


def test_statistics_that_hide_values_are_a_fault(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    release = tmp_path / "release"
    assert cli.main(["export", "--store", str(whole), "--out", str(release)]) == 0
    rows = pq.read_table(release / "studies.parquet")
    assert rows["run_seconds"].null_count == len(rows) < 64
    sink = pa.BufferOutputStream()
    pq.write_table(column(rows, "run_seconds", [0.1234567] * len(rows)), sink, compression="none")
    told = (b"\x18\x08" + np.float64(0.1234567).tobytes()) * 2  # the largest and the least, then how many are null
    data = sink.getvalue().to_pybytes()
    assert data.count(told + b"\x16\x00") == 2  # in the header of the page, and in the footer
    relisted(release, "studies.parquet", data.replace(told + b"\x16\x00", told + b"\x16" + bytes([2 * len(rows)])))
    statistics = [
        pq.read_metadata(release / "studies.parquet").row_group(0).column(i).statistics for i in range(rows.num_columns)
    ]
    assert statistics[rows.column_names.index("run_seconds")].null_count == len(rows)
    assert cli.main(["verify", "--store", str(release)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "has values of run_seconds although its statistics report only nulls" in said
    assert cli.main(["merge", str(release), "--store", str(tmp_path / "merged")]) == 2
