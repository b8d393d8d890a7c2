"""Which runs are the same: copies, runs in several files, runs that are stored already, and the ledger of an import."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from hypothesis import given, settings, strategies as st

from results import durable, store
from results.bad_input import BadInput
from results.importers import untrusted
from results.importers.runs import importer, run_map
from results.storage import commits

Rows = Sequence[tuple[int, float]]
MAP = """
dataset: d
model: m
optimizer: sgd
batch_size: 8
metrics: {validation_loss: loss}
"""
PLAIN = "format: csv\nfiles: '*.csv'\n"
SEEDED = "format: csv\nfiles: 'seed{seed}*.csv'\nseed: path:seed\n".replace("}*", "}-*")
A = [(10, 2.0), (20, 1.0), (30, 0.45), (40, 0.4)]
B = [(10, 9.0), (20, 8.0), (30, 7.0), (40, 6.0), (50, 5.0)]


def write(path: Path, rows: Rows, **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(["step", "loss", *columns]), *(",".join(map(str, [*row, *columns.values()])) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def imported(root: Path, text: str = PLAIN, common: str = MAP, *, replace: bool = False) -> list[str]:
    """Imports root/logs into root/store, and returns the printed lines."""
    lines: list[str] = []
    own = run_map.parse(text + common, "map")
    folders = root / "logs", root / "store"
    importer.run(*folders, own, raw=False, dry_run=False, replace=replace, report=lines.append)
    return lines


def counts(lines: Sequence[str]) -> dict[str, int]:
    """The numbers of the ledger: of its lines about files and rows, and each term about runs."""
    (found,) = (line for line in lines if re.match(r"\d+ runs? in ", line))
    total, terms = re.fullmatch(r"(\d+) runs? in \d+ stud(?:y|ies) = (.*)", found).groups()
    runs = {name: int(count) for count, name in (term.split(" ", 1) for term in terms.split(" + "))}
    assert int(total) == sum(runs.values())
    for noun in ("file", "row"):
        (line,) = (line for line in lines if re.match(rf"[\d,]+ {noun}s? = ", line))
        whole, left, right = (int(text.replace(",", "")) for text in re.findall(r"(?:^|= |\+ )([\d,]+)", line))
        reasons = sum(int(text) for text in re.findall(r"[(,] ?(\d+) [a-z]", line))
        assert whole == left + right and right == reasons, line
        runs[f"{noun}s"], runs[f"other {noun}s"] = left, right
    return runs


def curves(root: Path) -> list[Rows]:
    """The stored curves, sorted."""
    table = store.read(root / "store").measurements
    return sorted(
        list(zip(own["step"].tolist(), own["validation_loss"].tolist(), strict=True))
        for _, own in table.groupby(["study", "trial"])
    )


def test_runs_without_a_seed_keep_their_numbers(tmp_path: Path) -> None:
    """version_10 sorts before version_2."""
    text = "format: csv\nfiles: '*/metrics.csv'\n"
    runs = {i: [(step, (4 + i) / step) for step in (10, 20, 30)] for i in range(12)}
    for i in range(10):
        write(tmp_path / "logs" / f"version_{i}" / "metrics.csv", runs[i])
    imported(tmp_path, text)
    before = store.read(tmp_path / "store").measurements
    runs[3] = [*runs[3], (40, 0.1)]
    runs[4] = [*runs[4][:2], (30, 0.7)]
    for i in (3, 4, 10, 11):
        write(tmp_path / "logs" / f"version_{i}" / "metrics.csv", runs[i])
    lines = imported(tmp_path, text)
    assert counts(lines) | {"new": 2, "already stored": 8, "extended": 1, "refused": 1} == counts(lines)
    assert "version_4/metrics.csv: validation_loss at step 30 is 0.26666666666666666 in the store and 0.7" in str(lines)
    after = store.read(tmp_path / "store").measurements.merge(before, on=["trial", "step"])
    assert len(after) == len(before) and (after["validation_loss_x"] == after["validation_loss_y"]).all()
    assert curves(tmp_path) == sorted(rows if i != 4 else [*rows[:2], (30, 8 / 30)] for i, rows in runs.items())


@pytest.mark.parametrize(("text", "both"), [(PLAIN, True), (SEEDED, False)])
def test_other_values_never_replace_a_stored_run(text: str, both: bool, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "seed1-a.csv", A)
    imported(tmp_path, text)
    write(tmp_path / "logs" / "seed1-a.csv", [*A, (50, 0.2)])
    assert counts(imported(tmp_path, text))["extended"] == 1
    write(tmp_path / "logs" / "seed1-a.csv", [*B, (60, 4.0)])
    lines = imported(tmp_path, text)
    assert counts(lines)["new" if both else "refused"] == 1
    assert curves(tmp_path) == [[*A, (50, 0.2)], *([[*B, (60, 4.0)]] * both)]
    lines = imported(tmp_path, text, replace=True)
    assert counts(lines).get("replaced", 0) == 1 - both
    assert [*B, (60, 4.0)] in curves(tmp_path)


def dense(last: int) -> Rows:
    return [(step, 1 + 100 / step) for step in range(50, last + 1, 50)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (dense(1500), dense(2000)),  # stored as logged
        (dense(1500), dense(8000)),  # as logged, then averaged
        (dense(4000), dense(4050)),  # the last window grows
        (A[:1], A),
        ([*A[:3], (10, 1.5), (20, 0.9)], [*A[:3], (10, 1.5), (20, 0.9), (30, 0.4)]),  # a restart
        ([*A, (0, 0.4)], [*A, (50, 0.3), (0, 0.3)]),  # the final evaluation at step 0
        (A[::-1], [*A, (50, 0.3)][::-1]),  # newest first
    ],
)
@pytest.mark.parametrize("text", [PLAIN, SEEDED])
def test_a_longer_log_is_the_same_run(text: str, before: Rows, after: Rows, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "seed1-x.csv", before)
    write(tmp_path / "logs" / "seed2-y.csv", B)
    imported(tmp_path, text)
    write(tmp_path / "logs" / "seed1-x.csv", after)
    found = counts(imported(tmp_path, text))
    assert (found["already stored"], found["extended"]) == (1, 1)
    assert counts(imported(tmp_path, text))["already stored"] == 2
    (tmp_path / "store").rename(tmp_path / "grown")
    grown = store.read(tmp_path / "grown").measurements
    imported(tmp_path, text)
    assert grown["validation_loss"].tolist() == store.read(tmp_path / "store").measurements["validation_loss"].tolist()


def test_a_restart_of_a_stored_run_is_reported_and_no_second_run(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "x.csv", A)
    imported(tmp_path)
    again = [*A, (30, 0.5), (40, 0.41), (50, 0.3)]
    write(tmp_path / "logs" / "x.csv", again)
    found = counts(imported(tmp_path))
    assert (found["refused"], found["new"], found["other rows"]) == (1, 0, 2) and curves(tmp_path) == [A]
    assert counts(imported(tmp_path, replace=True))["replaced"] == 1 and curves(tmp_path) == [[*A[:2], *again[4:]]]


def test_copies_are_one_run(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for name, rows in {"r": A, "backup/r": A, "r-old": A[:3], "r/.ipynb_checkpoints/r-checkpoint": A, "q": B}.items():
        write(logs / f"{name}.csv", rows)
    text = "format: csv\nfiles: '**/*.csv'\n"
    found = counts(imported(tmp_path, text))
    assert (found["new"], found["copies"], found["files"], found["other files"]) == (2, 2, 4, 1)
    assert curves(tmp_path) == [A, B]
    (logs / "r.csv").unlink()
    (logs / "backup" / "r.csv").unlink()
    found = counts(imported(tmp_path, text))  # the store has more rows than the log that is left
    assert (found["already stored"], found["copies"], found["new"]) == (1, 1, 0) and curves(tmp_path) == [A, B]
    assert counts(imported(tmp_path, text, replace=True))["replaced"] == 1 and curves(tmp_path) == [A[:3], B]


@pytest.mark.parametrize("pattern", ["*/*/trainer_state.json", "**/trainer_state.json"])
def test_only_the_newest_checkpoint_counts(pattern: str, tmp_path: Path) -> None:
    for run in (0, 1):
        for last in (200, 1000, 600):
            rows = [{"step": step, "loss": (run + last * (last < 1000)) / step} for step in range(100, last + 1, 100)]
            path = tmp_path / "logs" / f"run{run}" / f"checkpoint-{last}" / "trainer_state.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"log_history": rows}))
    found = counts(imported(tmp_path, f"format: trainer\nfiles: '{pattern}'\n"))
    assert (found["new"], found["copies"], found["files"], found["other files"]) == (2, 0, 2, 4)
    assert [rows[-1] for rows in curves(tmp_path)] == [(1000, 0.0), (1000, 0.001)]


SEVERAL = "format: csv\nfiles: '{run}/*.csv'\nrun: path:run\n"


@pytest.mark.parametrize(
    ("parts", "result"),
    [
        ((A[2:], A[:2]), A),  # in the order of their steps
        ((A[:3], A[1:]), A),
        ((A, A[:2]), A),
        ((A[:3], [(30, 0.5), (40, 0.41)]), [*A[:2], (30, 0.5), (40, 0.41)]),  # a restart
        ((A, B), "r/0.csv: has other values of 'loss' than r/1.csv, a file of the same run"),
        ((A, [("x", 1)]), "r/0.csv: is not imported, because another file of this run cannot be used"),
    ],
)
def test_several_files_of_a_run_are_joined(parts: Sequence[Rows], result: Rows | str, tmp_path: Path) -> None:
    write(tmp_path / "logs" / "q" / "0.csv", B[:2])
    for i, rows in enumerate(parts):
        write(tmp_path / "logs" / "r" / f"{i}.csv", rows)
    lines = imported(tmp_path, SEVERAL)
    if isinstance(result, str):
        assert result in lines and counts(lines)["refused"] == 1 and curves(tmp_path) == [B[:2]]
    else:
        assert curves(tmp_path) == sorted([result, B[:2]])


def test_files_of_one_run_with_other_values_are_other_runs(tmp_path: Path) -> None:
    text = "format: csv\nfiles: '{run}-bs{size}.csv'\nrun: path:run\n"
    own = MAP.replace("batch_size: 8", "batch_size: path:size")
    for size in (8, 16):
        write(tmp_path / "logs" / f"r-bs{size}.csv", A)
    imported(tmp_path, text, own)
    assert sorted(store.read(tmp_path / "store").studies["batch_size"]) == [8, 16]
    write(tmp_path / "logs" / "more" / "0.csv", A[:2], b=8)
    write(tmp_path / "logs" / "more" / "1.csv", A[2:], b=16)
    lines = imported(tmp_path, SEVERAL + "device_count: column:b\n")
    assert "more/0.csv: has another value in column 'b' than more/1.csv, of the same run" in lines


def test_runs_that_continue_in_another_file_are_joined(tmp_path: Path) -> None:
    """The column run names runs in several files. Two hosts may use the same name for different runs."""
    text = "format: csv\nfiles: '*.csv'\nrun: column:run\n"
    write(tmp_path / "logs" / "b.csv", A[:2], run="r")
    write(tmp_path / "logs" / "a.csv", A[2:], run="r")
    assert counts(imported(tmp_path, text))["new"] == 1 and curves(tmp_path) == [A]
    write(tmp_path / "logs" / "0.csv", B, run="r")
    assert counts(imported(tmp_path, text))["new"] == 1 and curves(tmp_path) == [A, B]
    write(tmp_path / "logs" / "c.csv", [(60, 0.2)], run="r")
    with pytest.raises(BadInput, match=r"c\.csv:r may continue"):
        imported(tmp_path, text)


def test_a_seed_or_rate_in_a_later_map_stores_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "seed1-x.csv", A, lr=0.1)
    imported(tmp_path)
    for text in (SEEDED, PLAIN + "metaparameters: {learning_rate: column:lr}\n"):
        with pytest.raises(BadInput, match="another seed key or other metaparameters than this map"):
            imported(tmp_path, text)
    assert curves(tmp_path) == [A]


def test_names_stay_apart(tmp_path: Path) -> None:
    names = ["модель один", "модель два", "模型", "x" * 80 + "1", "x" * 80 + "2", "my model", "net-2.0"]
    text, common = "format: csv\nfiles: '*/log.csv'\nconfig: c.json\n", MAP.replace("model: m", "model: config:m")
    for i, name in enumerate([*names, "my/model"]):
        write(tmp_path / "logs" / f"r{i}" / "log.csv", A)
        (tmp_path / "logs" / f"r{i}" / "c.json").write_text(json.dumps({"m": name}))
    with pytest.raises(BadInput, match="the names 'my model' and 'my/model' of the model would both be stored as"):
        imported(tmp_path, text, common)
    assert not (tmp_path / "store").exists()
    (tmp_path / "logs" / "r7" / "log.csv").unlink()
    imported(tmp_path, text, common)
    assert counts(imported(tmp_path, text, common))["already stored"] == len(names)
    stored = set(store.read(tmp_path / "store").studies["model"])
    assert len(stored) == len(names) and {"my_model", "net-2.0"} < stored


def test_a_second_import_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of logs, and of the records and tables of the store: a constant number of each study."""
    reads: Counter[str] = Counter()

    def count(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def read(path: Path, *args: object) -> object:
            reads[f"{name} {getattr(path, 'name', path)} {args[:1]}"] += 1
            return original(path, *args)

        monkeypatch.setattr(module, name, read)

    for module, name in ((durable, "read_sealed"), (commits, "read_table"), (untrusted, "read_bytes")):
        count(module, name)
    totals = []
    for studies in (3, 6):
        for i in range(studies):
            write(tmp_path / "logs" / f"bs{i}.csv", A, b=i + 1)
        imported(tmp_path, PLAIN, MAP.replace("batch_size: 8", "batch_size: column:b"))
        reads.clear()
        imported(tmp_path, PLAIN, MAP.replace("batch_size: 8", "batch_size: column:b"))
        logs = {name: times for name, times in reads.items() if name.startswith("read_bytes")}
        assert len(logs) == studies and set(logs.values()) == {1}
        totals.append(reads.total())
    assert totals[0] * 2 == totals[1] >= 6 * 6


KINDS = ("plain", "copy", "prefix", "two files", "hidden", "stray", "newest first", "damaged", "changed")
RUN = st.tuples(st.sampled_from(KINDS), st.integers(3, 6), st.integers(0, 6), st.text(max_size=3))


@settings(deadline=None, max_examples=15)
@given(st.lists(RUN, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_nothing_is_lost_or_stored_twice(runs: list[tuple[str, int, int, str]], seeded: bool, same_start: bool) -> None:
    """Runs of two hosts, with names of any script. Some are imported in part, and then all are imported.

    By default, runs have no seeds. All may have the same first row.
    """
    text = "format: csv\nfiles: '{run}/*.csv'\nrun: path:run\n" + "seed: column:seed\n" * seeded
    partial, truth, expected = list[Rows](), list[Rows](), Counter[str]()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        paths = [
            root / "logs" / f"host{i % 2}-{''.join(filter(str.isalnum, run[3]))}-{i}" / "a.csv"
            for i, run in enumerate(runs)
        ]
        logged = [
            [(10 * n, 9.0 if same_start and n == 1 else 2 + i + 1 / n) for n in range(1, run[1] + 1)]
            for i, run in enumerate(runs)
        ]
        parts = [rows[: run[2] if run[2] > 1 else 0] for rows, run in zip(logged, runs, strict=True)]
        for i, rows in enumerate(parts):
            if rows:
                write(paths[i], rows, seed=i)
                partial.append(rows)
        if partial:
            assert counts(imported(root, text))["new"] == len(partial)
        for i, (run, rows, part, path) in enumerate(zip(runs, logged, parts, paths, strict=True)):
            write_kind(run[0], i, rows, path)
            expected += expectation(run[0], rows, part, seeded=seeded)
            truth += final(run[0], rows, part, seeded=seeded)
        lines = imported(root, text)
        assert (curves(root) if truth else []) == sorted(truth)
        assert all(any(rows[: len(part)] == part for rows in truth) for part in partial)
        if any(run[0] != "damaged" for run in runs):
            found = counts(lines)
            assert found == {name: expected[name] for name in found}


def write_kind(kind: str, i: int, rows: Rows, path: Path) -> None:
    logs = path.parent.parent
    others = {"copy": logs / f"copy{i}" / "a.csv", "prefix": logs / f"prefix{i}" / "a.csv"}
    others |= {"two files": path.with_name("b.csv"), "hidden": logs / f".hidden{i}" / "a.csv"}
    other_rows = {"copy": rows, "prefix": rows[:2], "two files": rows[2:], "hidden": rows}
    if kind in others:
        write(others[kind], other_rows[kind], seed=i)
    own = {"two files": rows[:2], "stray": [*rows, (0, 0.5)], "newest first": rows[::-1], "changed": changed(rows)}
    write(path, own.get(kind, rows), seed=i)
    if kind == "damaged":
        path.write_bytes(b"\x1f\x8b")


def changed(rows: Rows) -> Rows:
    return [(step, value + 100) for step, value in rows]


def expectation(kind: str, rows: Rows, part: Rows, *, seeded: bool) -> Counter[str]:
    """The terms of the ledger for a run and its other files."""
    if kind == "damaged":
        return Counter({"other files": 1})
    terms = Counter({"files": 2 if kind in ("copy", "prefix", "two files") else 1, "rows": len(rows)})
    terms["other files"] = kind == "hidden"
    terms["copies"] = kind in ("copy", "prefix")
    terms["rows"] += {"copy": len(rows), "prefix": 2}.get(kind, 0)
    terms["other rows"] = kind == "stray"
    if kind == "changed" and part and seeded:
        terms["refused"] = 1
    elif not part or kind == "changed":
        terms["new"] = 1
    else:
        terms["already stored" if part == rows else "extended"] = 1
    return terms


def final(kind: str, rows: Rows, part: Rows, *, seeded: bool) -> list[Rows]:
    """The stored curves of a run after both imports."""
    if kind == "damaged":
        return [part] if part else []
    if kind == "changed":
        kept, new = [part] if part else [], [changed(rows)] if not (part and seeded) else []
        return [*kept, *new]
    return [rows]
