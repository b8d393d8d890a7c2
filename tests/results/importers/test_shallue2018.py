import csv
import decimal
import io
import json
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from results import durable, progress, store
from results.bad_input import BadInput
from results.catalog import overview
from results.checks import verify
from results.durable import Folder
from results.importers import archive, curves_csv, intake, shallue2018, shallue2018_format
from results.importers.recording import complement
from results.plans.recorded import Recorded
from results.plans.search_space import Range
from results.plans.study import Target
from results.release import merge
from results.rules.answers import MINIMUM, Answer, Rule

from ..by_hand import scanned

FOLDER = "solution_quality/mnist/simple_cnn_base/momentum/64"
HEADER = "step,val/classification_error"
STUDY = {
    "batch_size": 64,
    "dataset": "mnist",
    "model": "simple_cnn_base",
    "optimizer": "momentum",
    "early_stopping": False,
    "train_steps": 600,
    "parameter_configs": {
        "learning_rate": {"type": "DOUBLE", "min_value": 1e-4, "max_value": 10, "scale": "LOG_SCALE"},
        "momentum": {"type": "DOUBLE", "min_value": 0.9, "max_value": 0.9999, "scale": "REVERSE_LOG_SCALE"},
        "dropout": {"type": "DOUBLE", "min_value": 0.0, "max_value": 0.5, "scale": ""},
        "learning_rate_decay_steps": {"type": "INTEGER", "min_value": 300, "max_value": 600, "scale": "LINEAR_SCALE"},
        "label_smoothing": {"type": "DISCRETE", "feasible_points": [0, 0.01, 0.1]},
        "activation": {"type": "CATEGORICAL", "feasible_points": ["relu", "tanh"]},
    },
}


def metadata(trial: int, status: str = "COMPLETE", **changed: Any) -> str:
    fields = {
        "trial_id": trial,
        "status": status,
        "steps": 600,
        "parameters": {"learning_rate": 0.1, "momentum": 0.99},
        "_internal_a": "x",
    }
    return json.dumps(fields | changed)


def trial(number: int, rows: str, **fields: Any) -> dict[str, str]:
    """The two files of a trial."""
    return {
        f"{FOLDER}/{number}/metadata.json": metadata(number, **fields),
        f"{FOLDER}/{number}/measurements.csv": f"{HEADER}\n{rows}",
    }


def unpacked(root: Folder, files: Mapping[str, str]) -> Folder:
    """A folder of files as the archive unpacks to."""
    for name, text in files.items():
        file = root / shallue2018_format.TOP / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def imported(path: Folder, folder: Folder) -> tuple[int, list[str]]:
    lines: list[str] = []
    return shallue2018.run(path, folder, any_checksum=True, report=lines.append), lines


def of_one(tmp_path: Path, files: Mapping[str, str]) -> tuple[store.Tables, list[str]]:
    """Tables and lines of the import of one study, whose study.json is added."""
    code, lines = imported(
        unpacked(tmp_path / "in", {f"{FOLDER}/study.json": json.dumps(STUDY)} | files), tmp_path / "s"
    )
    assert code == 0
    assert [commit.ledger.adds_up for commit in store.catalogue(tmp_path / "s")] == [True]
    return store.read(tmp_path / "s"), lines


def content(folder: Folder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Everything that was imported but the numbers of runs."""
    tables = store.read(folder)
    return tables.trials.drop(columns="run"), tables.measurements


def assert_same(a: tuple[pd.DataFrame, ...], b: tuple[pd.DataFrame, ...]) -> None:
    for ours, theirs in zip(a, b, strict=True):
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def released(folder: Folder, path: str, metric: str, value: float) -> tuple[int | None, int | None]:
    """What the released analysis says of a stored study."""
    for commit in store.catalogue(folder):
        plan = commit.plan
        if path == f"{plan['dataset']}/{plan['model']}/{plan['optimizer']}/{plan['batch_size']}":
            tables = store.read(folder, commit.name)
            complete = tables.trials.loc[tables.trials["status"] == "COMPLETE", "trial"].sort_values()[:100]
            rows = tables.measurements
            rows = rows[rows["trial"].isin(complete) & (rows[metric] < value)].sort_values(["step", "trial"])
            return (int(rows["step"].iloc[0]), int(rows["trial"].iloc[0])) if len(rows) else (None, None)
    raise AssertionError(f"{path} is not there")


def some(archives: ModuleType) -> list[Any]:
    """Published studies of every kind: folders of two levels, a time budget, average precision, no error at all."""
    kinds = (
        "cifar_10/",
        "imagenet_subsets/",
        "lm1b/lstm",
        "mnist/fc_64",
        "mnist_subsets/",
        "open_images",
        "solution_q",
    )
    return [next(s for s in archives.published() if s.path.startswith(kind)) for kind in kinds]


def test_imported_study_is_verified_merged_and_answered(tmp_path: Path, archives: ModuleType) -> None:
    archives.write(tmp_path / "a.tar", studies=some(archives)[:2], trials=0.1, rows=20)
    assert imported(tmp_path / "a.tar", tmp_path / "archive")[0] == 0
    of_one(tmp_path, trial(1, "0,0.9\n5,0.4\n") | trial(2, "0,0.3\n5,0.2\n") | trial(3, "", status="INFEASIBLE"))
    faults: list[str] = []
    for folder in (tmp_path / "archive", tmp_path / "s"):
        assert store.read(folder).measurements["step"].min() == 0
        assert verify.run(folder, faults.append) == 0, faults
    assert merge.merge([tmp_path / "archive", tmp_path / "s"], tmp_path / "joined", faults.append) == 0, faults
    assert verify.run(tmp_path / "joined", faults.append) == 0, faults
    (name,) = (commit.name for commit in store.catalogue(tmp_path / "s"))
    for rule in (MINIMUM, Rule("released", 100)):
        held = overview.survey(tmp_path / "joined", rule)
        assert name in held.envelopes
        for value, expected in ((0.4, Answer(0, 0, 2)), (0.25, Answer(0, 5, 2)), (0.1, None)):
            target = Target("validation_error", value)
            found = held.answers(target, [name])
            rows = scanned(store.catalogue(tmp_path / "s"), target, rule)
            assert found.get(name) == rows.get(name) == expected


@pytest.mark.parametrize("name", ["a.tar.bz2", "a.tar", "folder"])
def test_known_answers_come_through(tmp_path: Path, archives: ModuleType, name: str) -> None:
    answers = archives.write(tmp_path / name, studies=some(archives), trials=0.35, rows=30)
    code, lines = imported(tmp_path / name, tmp_path / "store")
    assert code == 0
    assert lines[-1].startswith(f"{tmp_path}/store holds 7 studies of {name} with")
    assert {answer.metric for answer in answers} == {
        "validation_error",
        "validation_loss",
        "validation_average_precision_error",
    }
    for answer in answers:
        assert released(tmp_path / "store", answer.path, answer.metric, answer.value) == (answer.steps, answer.trial)
    assert sum(answer.steps is not None for answer in answers) > 5


def test_every_value_is_the_double_nearest_to_its_decimal(tmp_path: Path, archives: ModuleType) -> None:
    archives.write(tmp_path / "in", studies=some(archives)[:1], trials=0.1, rows=40)
    assert imported(tmp_path / "in", tmp_path / "store")[0] == 0
    tables = store.read(tmp_path / "store")
    trials = tables.trials.set_index("trial")
    rows = 0
    for file in (tmp_path / "in").rglob("metadata.json"):
        told = json.loads(file.read_text())
        row = trials.loc[told["trial_id"]]
        assert (row["status"], row["steps"]) == (told["status"], told["steps"])
        assert {name: row[name] for name in told["parameters"]} == told["parameters"]
        own = tables.measurements[tables.measurements["trial"] == told["trial_id"]]
        with (file.parent / "measurements.csv").open(newline="") as text:
            written = list(csv.DictReader(text))
        assert own["step"].tolist() == [int(line["step"]) for line in written]
        for theirs, ours in (
            ("train/cross_entropy_error", "train_loss"),
            ("val/classification_error", "validation_error"),
        ):
            assert own[ours].tolist() == [float(line[theirs]) for line in written]
        rows += len(written)
    assert rows == len(tables.measurements) > 500
    assert tables.measurements["test_error"].dtype == np.float64


def test_what_a_study_says(tmp_path: Path) -> None:
    tables, _ = of_one(tmp_path, trial(3, "10,0.5\n") | trial(7, "", status="INFEASIBLE", steps=0))
    study = store.catalogue(tmp_path / "s")[0].study
    assert (study.dataset, study.model, study.optimizer, study.batch_size, study.trials) == (
        "solution_quality/mnist",
        "simple_cnn_base",
        "momentum",
        64,
        2,
    )
    assert study.space == {
        "learning_rate": Range("LOG", 1e-4, 10),
        "momentum": Range("REVERSE_LOG", 0.9, 0.9999),
        "dropout": Range("LINEAR", 0, 0.5),
        "learning_rate_decay_steps": Range("INTEGER", 300, 600),
        "label_smoothing": Range("DISCRETE", values=(0, 0.01, 0.1)),
    }
    assert study.plan()["source"] == "shallue2018"
    assert study.plan()["details"] == {k: STUDY[k] for k in ("train_steps", "early_stopping", "parameter_configs")}
    assert tables.studies["dataset"].tolist() == ["solution_quality/mnist"]
    assert tables.trials["trial"].tolist() == [3, 7]
    assert tables.trials["seed"].isna().all()


def test_a_trial_that_has_not_ended_says_nothing_of_why(tmp_path: Path) -> None:
    tables, _ = of_one(tmp_path, trial(1, "1,0.5\n", status="INCOMPLETE") | trial(2, "1,0.5\n", steps=None))
    assert tables.trials["reason"].fillna("").tolist() == ["unstated", ""]
    assert tables.trials["steps"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("step,val/classification_error\r\n1,0.5\r\n2,0.25\r\n", [(1, 0.5), (2, 0.25)]),
        ('"step","val/classification_error"\n1,"0.5"\n2,0.25', [(1, 0.5), (2, 0.25)]),
        ("\ufeffstep,val/classification_error\n1,0.5\n\n2,0.25\n\n", [(1, 0.5), (2, 0.25)]),
        ("val/classification_error,x,step\n0.5,abc,1.0\n0.25,,2.0\n", [(1, 0.5), (2, 0.25)]),
        ("step,val/classification_error\n2,0.25\n1,0.5\n", [(1, 0.5), (2, 0.25)]),
        ("step,val/classification_error\n1,0.5\n2,0.25\n2,0.125\n", [(1, 0.5), (2, 0.25)]),
        ("step,val/classification_error\n1,\n2,nan\n3,inf\n", [(1, np.nan), (2, np.nan), (3, np.inf)]),
        ("step,val/classification_error\n", []),
    ],
    ids=["crlf", "quotes", "bom-blank-lines", "steps-as-floats", "unsorted", "step-twice", "no-numbers", "no-rows"],
)
def test_ways_to_write_a_table(tmp_path: Path, text: str, rows: list[tuple[int, float]]) -> None:
    files = trial(1, "5,0.5\n") | trial(2, "") | trial(3, "7,0.75\n")
    files[f"{FOLDER}/2/measurements.csv"] = text
    tables, lines = of_one(tmp_path, files)
    assert tables.trials["status"].tolist() == ["COMPLETE"] * 3
    own = tables.measurements[tables.measurements["trial"] == 2]
    found = own[["step", "validation_error"]].to_numpy(float)
    np.testing.assert_array_equal(found, np.reshape(rows, (-1, 2)))
    assert tables.measurements["step"].tolist()[:: len(tables.measurements) - 1] == [5, 7]
    assert any("1 rows repeat a step" in line for line in lines) == (text.count("\n2,") == 2)
    assert any("not imported: 'x'" in line for line in lines) == ("abc" in text)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("measurements.csv", "step,val/classification_error\n1,abc\n", "cannot be parsed"),
        ("measurements.csv", "step,val/classification_error\n1,0.5,3\n", "cannot be parsed"),
        ("measurements.csv", "step,val/classification_error\n,0.5\n", "not an integer"),
        ("measurements.csv", "step,val/classification_error\n-1,0.5\n", "not an integer"),
        ("measurements.csv", "step,val/classification_error\n3000000000,0.5\n", "not an integer"),
        ("measurements.csv", "step,val/classification_error\n1.5,0.5\n", "not an integer"),
        ("measurements.csv", "step,step\n1,1\n", "twice"),
        ("measurements.csv", "epoch,val/classification_error\n1,1\n", "no column step"),
        ("measurements.csv", "", "no header"),
        ("measurements.csv", None, "no measurements.csv"),
        ("metadata.json", "{", "not JSON"),
        ("metadata.json", "[]", "list"),
        ("metadata.json", metadata(3), "trial_id 3"),
        ("metadata.json", metadata(2, "DONE"), "'DONE'"),
        ("metadata.json", metadata(2, steps=-1), "steps -1"),
        ("metadata.json", metadata(2, parameters={"learning_rate": "high"}), "'high'"),
        ("metadata.json", metadata(2, parameters={"a b": 1}), "'a b'"),
        ("metadata.json", metadata(2, parameters=[1]), "parameters"),
        ("metadata.json", None, "no metadata.json"),
    ],
)
def test_a_broken_trial_is_lost_and_harms_no_other(tmp_path: Path, file: str, text: str | None, why: str) -> None:
    files: dict[str, str | None] = {**trial(1, "1,0.5\n"), **trial(2, "1,0.25\n"), **trial(3, "1,0.75\n")}
    files[f"{FOLDER}/2/{file}"] = text
    tables, lines = of_one(tmp_path, {name: data for name, data in files.items() if data is not None})
    assert tables.trials["status"].tolist() == ["COMPLETE", "INCOMPLETE", "COMPLETE"]
    assert tables.trials["reason"].fillna("").tolist() == ["", "lost", ""]
    assert tables.measurements["validation_error"].tolist() == [0.5, 0.75]
    assert why in next(line for line in lines if line.startswith(("batch_science/" + FOLDER, FOLDER)))


def test_a_metaparameter_that_is_called_like_a_column(tmp_path: Path) -> None:
    tables, _ = of_one(tmp_path, trial(1, "1,0.5\n", parameters={"seed": 3, "learning_rate": True}))
    assert tables.trials[["metaparameter_seed", "learning_rate"]].to_numpy().tolist() == [[3.0, 1.0]]


def test_any_order_gives_the_same_tables(tmp_path: Path, archives: ModuleType) -> None:
    studies = some(archives)[:4]
    for name, shuffled in (("in.tar", False), ("mixed.tar", True)):
        archives.write(tmp_path / name, studies=studies, trials=0.1, rows=10, shuffled=shuffled)
        assert imported(tmp_path / name, tmp_path / f"{name}-store")[0] == 0
    assert_same(content(tmp_path / "in.tar-store"), content(tmp_path / "mixed.tar-store"))


@pytest.mark.parametrize("last", ["study.json", "metadata.json"])
def test_memory_is_bounded_in_the_worst_order(
    tmp_path: Path, archives: ModuleType, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    archives.write(tmp_path / "in.tar", studies=some(archives)[:3], trials=0.2, rows=10)
    assert imported(tmp_path / "in.tar", tmp_path / "plain")[0] == 0
    with tarfile.open(tmp_path / "in.tar") as tar, tarfile.open(tmp_path / "late.tar", "w") as late:
        members = [member for member in tar.getmembers() if member.isfile()]
        for member in sorted(members, key=lambda member: member.name.endswith(last)):
            late.addfile(member, tar.extractfile(member))
    monkeypatch.setattr(intake, "MOST_WAITING", 20_000)
    monkeypatch.setattr(intake, "WORTH_A_PART", 1_000)
    monkeypatch.setattr(intake, "ENOUGH", 10_000)
    code, lines = imported(tmp_path / "late.tar", tmp_path / "store")
    assert code == 0
    assert "reading the archive again" in lines[0]
    assert sum(commit.parts for commit in store.catalogue(tmp_path / "store")) > 3
    assert_same(content(tmp_path / "plain"), content(tmp_path / "store"))


KILLED_AT_A_WRITE = """
import os, signal, sys
from pathlib import Path
from results import durable
from results.importers import shallue2018

create, count = durable.create, 0

def counted(path, data):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return create(path, data)

durable.create = counted
sys.exit(shallue2018.run(Path(sys.argv[1]), Path(sys.argv[2]), any_checksum=True, report=print))
"""


@pytest.mark.parametrize("write", [1, 4, 9, 14])
def test_killed_and_run_again_it_ends_with_the_same_tables(tmp_path: Path, archives: ModuleType, write: int) -> None:
    archives.write(tmp_path / "in.tar.bz2", studies=some(archives)[:3], trials=0.05, rows=10)
    assert imported(tmp_path / "in.tar.bz2", tmp_path / "whole")[0] == 0
    command = [sys.executable, "-c", KILLED_AT_A_WRITE, tmp_path / "in.tar.bz2", tmp_path / "killed", str(write)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert imported(tmp_path / "in.tar.bz2", tmp_path / "killed")[0] == 0
    assert_same(content(tmp_path / "whole"), content(tmp_path / "killed"))


def test_importing_again_writes_nothing(tmp_path: Path) -> None:
    files = trial(1, "1,0.5\n") | trial(2, "1,x\n") | trial(3, "", status="INFEASIBLE")
    _, first = of_one(tmp_path, files)
    before = sorted((tmp_path / "s").rglob("*"))
    assert not any("decoded again" in line for line in first)
    _, lines = of_one(tmp_path, files)
    assert lines[0] == "skipping trials that are already stored; the whole archive is decoded again"
    assert sum("decoded again" in line for line in lines) == 1
    assert sorted((tmp_path / "s").rglob("*")) == before
    assert lines[-1].endswith("with 3 trials; new: 0 trials, 0 measurements")
    of_one(tmp_path, trial(2, "1,0.25\n") | trial(4, "1,0.5\n"))
    assert store.read(tmp_path / "s").trials["status"].tolist() == ["COMPLETE", "COMPLETE", "INFEASIBLE", "COMPLETE"]


def test_a_store_of_older_names_is_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(Recorded.__init__, "__defaults__", (8, *Recorded.__init__.__defaults__[1:]))
        of_one(tmp_path, trial(1, "1,0.5\n"))
    (name,) = store.names(tmp_path / "s")
    assert len(name.rpartition("-")[2]) == 8
    tables, _ = of_one(tmp_path, trial(2, "1,0.25\n"))
    assert store.names(tmp_path / "s") == [name]
    assert tables.trials["trial"].tolist() == [1, 2]


def test_the_checksum_is_looked_at_first(tmp_path: Path, archives: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    archives.write(tmp_path / "a.tar.bz2", studies=some(archives)[:1], trials=0.01, rows=5)
    lines: list[str] = []

    def run(path: Path) -> int:
        return shallue2018.run(path, tmp_path / "store", any_checksum=False, report=lines.append)

    for path in (tmp_path / "a.tar.bz2", tmp_path):
        with pytest.raises(BadInput, match="--any-checksum"):
            run(path)
    assert not (tmp_path / "store").exists()
    digest = durable.sha256(tmp_path / "a.tar.bz2")
    monkeypatch.setattr(shallue2018, "SHA256", frozenset({digest}))
    assert run(tmp_path / "a.tar.bz2") == 0
    (commit,) = store.catalogue(tmp_path / "store")
    assert json.loads(store.read(tmp_path / "store").studies["package_versions"][0]) == {"batch_science_data": digest}
    assert shallue2018.doubts(commit) == set()
    monkeypatch.setattr(shallue2018, "SHA256", frozenset({"0" * 64}))
    assert shallue2018.doubts(commit) == {f"not the published archive, but sha256 {digest[:8]}…"}
    with pytest.raises(BadInput, match="no archive at"):
        run(tmp_path / "none.tar")


def test_without_rapidgzip_the_standard_library_decodes(
    tmp_path: Path, archives: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives.write(tmp_path / "a.tar.bz2", studies=some(archives)[:2], trials=0.02, rows=20)
    assert imported(tmp_path / "a.tar.bz2", tmp_path / "with")[0] == 0
    without = "import sys; sys.modules['rapidgzip'] = None; from results.importers import bunzip; bunzip.run()"
    monkeypatch.setattr(archive, "DECODE", ("-c", without))
    assert imported(tmp_path / "a.tar.bz2", tmp_path / "without")[0] == 0
    assert_same(content(tmp_path / "with"), content(tmp_path / "without"))


@pytest.mark.parametrize("name", ["a.tar.bz2", "a.tar", "folder"])
def test_archive_and_store_may_be_urls(tmp_path: Path, archives: ModuleType, name: str) -> None:
    archives.write(tmp_path / name, studies=some(archives)[:2], trials=0.02, rows=10)
    assert imported(tmp_path / name, tmp_path / "store")[0] == 0
    remote = durable.location(f"memory://shallue2018-{name}")
    files = [file for file in (tmp_path / name).rglob("*") if file.is_file()] or [tmp_path / name]
    for file in files:
        durable.make_folder((remote / file.relative_to(tmp_path)).parent)
        (remote / file.relative_to(tmp_path)).write_bytes(file.read_bytes())
    assert imported(remote / name, remote / "store")[0] == 0
    assert_same(content(tmp_path / "store"), content(remote / "store"))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_every_kind_of_tar(tmp_path: Path, form: int) -> None:
    long = f"imagenet_subsets/{'a' * 40}/{'b' * 40}/{'c' * 40}/64"
    data = {f"{long}/study.json": json.dumps(STUDY)}
    data |= {f"{long}/5/{name.rpartition('/')[2]}": text for name, text in trial(5, "1,0.5\n").items()}
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        for name, text in data.items():
            member = tarfile.TarInfo(f"./batch_science/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    assert imported(tmp_path / "a.tar", tmp_path / "store")[0] == 0
    assert store.read(tmp_path / "store").trials["trial"].tolist() == [5]


def test_cut_archive_keeps_the_part_before_the_cut(tmp_path: Path, archives: ModuleType) -> None:
    archives.write(tmp_path / "a.tar", studies=some(archives)[:2], trials=0.2, rows=20)
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) * 3 // 4])
    code, lines = imported(tmp_path / "cut.tar", tmp_path / "store")
    assert code == 1
    assert "could not be read to its end" in lines[-1]
    assert "lost" not in store.read(tmp_path / "store").trials["reason"].tolist()
    assert imported(tmp_path / "a.tar", tmp_path / "store")[0] == 0
    assert imported(tmp_path / "a.tar", tmp_path / "whole")[0] == 0
    assert_same(content(tmp_path / "whole"), content(tmp_path / "store"))


def test_average_precision_compares_as_it_did(tmp_path: Path) -> None:
    written = [
        "0.31",
        "0.310000000000001",
        "0.309999999999999",
        "0.3100000023841858",
        "0.3099999725818634",
        "1",
        "0.0",
        "",
    ]
    files = trial(1, "")
    files[f"{FOLDER}/1/measurements.csv"] = "step,val/average_precision\n" + "".join(
        f"{step},{text}\n" for step, text in enumerate(written)
    )
    tables, _ = of_one(tmp_path, files)
    error = tables.measurements["validation_average_precision_error"].to_numpy()
    assert (error < 1 - 0.31).tolist() == (error < 0.69).tolist() == [bool(t) and float(t) > 0.31 for t in written]
    back = complement(error[:-1]) - [float(text) for text in written[:-1]]
    assert np.count_nonzero(back) <= 2  # those of more than 12 decimals that no float32 could be
    assert np.abs(back).max() <= 2**-53
    assert np.isnan(error[-1])


def test_the_complement_is_that_of_decimals() -> None:
    draw = random.Random(0)
    for digits in (1, 2, 3, 4, 7, 9, 12):
        texts = [f"0.{draw.randrange(10**digits):0{digits}d}" for _ in range(300)]
        found = complement(np.array([float(text) for text in texts]))
        assert found.tolist() == [float(1 - decimal.Decimal(text)) for text in texts]
        assert complement(found).tolist() == [float(text) for text in texts]
    values = np.random.default_rng(0).random(1000, np.float32).astype(np.float64)
    assert complement(complement(values)).tolist() == values.tolist()


def test_a_joined_parse_equals_one_file_after_the_other() -> None:
    draw = random.Random(0)
    headers = ["step,train/cross_entropy_error", "val/classification_error,step", "step,test/average_precision,odd"]
    files, expected = {}, []
    for number in draw.sample(range(1000), 200):
        header = draw.choice(headers)
        columns = header.split(",")
        lines = []
        for step in sorted(draw.sample(range(10_000), draw.randrange(5))):
            cells = {name: str(step) if name == "step" else repr(draw.random()) for name in columns}
            lines.append(",".join(cells.values()))
            kept = {shallue2018_format.METRICS.get(n) or n: float(v) for n, v in cells.items() if n != "odd"}
            expected.append({"trial": number} | kept)
        ends = draw.choice(["\n", "\n", "\r\n"])
        files[number] = ends.join([header, *lines]).encode() + draw.choice([b"", ends.encode()])
    found = curves_csv.parse(files, shallue2018_format.METRICS.get)
    assert found.broken == found.repeated == {}
    assert found.left_out == {"odd"}
    wanted = pd.DataFrame(expected).sort_values(["trial", "step"], ignore_index=True)
    ours = found.table.to_pandas()[wanted.columns].astype("float64")
    pd.testing.assert_frame_equal(ours, wanted.astype("float64"), check_exact=True)


def test_differences_from_the_published_table(archives: ModuleType) -> None:
    counts = {study.path: study[1:] for study in archives.published()}
    assert len(counts) == 454
    assert shallue2018.differences(counts) == []
    counts.pop("mnist/fc_1024/sgd/64")
    cifar = counts["cifar_10/resnet_8/sgd/2"]
    counts["cifar_10/resnet_8/sgd/2"] = (cifar[0] - 1, cifar[1] + 1, cifar[2])
    counts["elsewhere/fc/sgd/1"] = (1, 0, 0)
    assert shallue2018.differences(counts) == [
        "cifar_10/resnet_8/sgd/2: complete 116, not 117; incomplete 1, not 0",
        "mnist/fc_1024/sgd/64: missing",
        "elsewhere/fc/sgd/1: not in the table",
    ]


def test_differences_are_told_in_few_lines(tmp_path: Path) -> None:
    _, lines = of_one(tmp_path, trial(1, "1,0.5\n"))
    start = lines.index("differences from the table of 454 studies published with the archive:")
    assert len(lines) - start == 13
    assert lines[-2] == "  and 445 more"


def test_progress_elsewhere_than_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    lines: list[str] = []
    with progress.show_progress("import", 4_000_000, "B", lines.append) as tell:
        tell(1_000_000)
    with progress.show_progress("import", 0, " files", lines.append) as tell:
        tell(7)
    assert lines == ["import: 1.00MB (25%)", "import: 7 files"]
