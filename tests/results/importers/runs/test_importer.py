"""Importing runs into a store: maps, numbers of trials, importing again, kills and units."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import analysis.__main__ as analysis_cli
import results.__main__ as results_cli
from results import store
from results.checks import verify

MAP = """
format: csv
files: bs{batch_size}-lr{learning_rate}-seed{seed}.csv
dataset: toy
model: net
optimizer: sgd
batch_size: path:batch_size
seed: path:seed
metaparameters: {learning_rate: path:learning_rate}
metrics: {validation_loss: loss}
targets: {validation_loss: 1.0}
"""
TOKENS = MAP.replace("path:batch_size", "[path:batch_size, 128]") + "unit: tokens\nsequence_length: 128\n"
SEQUENCES = MAP + "unit: sequences\nsequence_length: 128\n"
SIZES = (8, 16, 32, 64, 128, 256, 512)


def steps_to_target(size: int, rate: float, seed: int) -> int:
    """Steps of a run, by a hyperbola with a critical batch size of 64, and a search of three learning rates."""
    return round(400 * (1 + 64 / size) * (1 + (rate - 0.2) ** 2) * (1 + 0.02 * seed))


def write_run(root: Path, size: int, rate: float, seed: int, rows: int = 40) -> None:
    reached = steps_to_target(size, rate, seed)
    step = [round(reached * i / 20) for i in range(1, rows + 1)]
    table = pd.DataFrame({"step": step, "loss": [20 / i for i in range(1, rows + 1)]})
    table.to_csv(root / f"bs{size}-lr{rate:g}-seed{seed}.csv", index=False)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    root.mkdir()
    for size in SIZES:
        for rate in (0.1, 0.2, 0.4):
            for seed in (0, 1):
                write_run(root, size, rate, seed)
    return root


def words(root: Path, folder: Path, text: str = MAP, *options: str) -> list[str]:
    (folder / "map.yaml").write_text(text)
    return ["import", "runs", str(root), "--map", str(folder / "map.yaml"), "--store", str(folder / "store"), *options]


def import_runs(root: Path, text: str = MAP, *options: str) -> int:
    return results_cli.main(words(root, root.parent, text, *options))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_become_trials_and_an_answer(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs(logs) == 0
    assert (
        "42 runs in 7 studies = 42 new + 0 already stored + 0 extended + 0 copies + 0 refused"
        in capsys.readouterr().err
    )
    tables = store.read(logs.parent / "store")
    assert tables.studies["batch_size"].sort_values().tolist() == list(SIZES)
    assert set(tables.studies["unit"]) == {"examples"} and set(tables.trials["status"]) == {"COMPLETE"}
    assert tables.trials.groupby("study")["trial"].apply(sorted).tolist() == [list(range(6))] * len(SIZES)
    assert verify.run(logs.parent / "store", lambda line: None) == 0
    capsys.readouterr()
    assert analysis_cli.main(["payoff", "--store", str(logs.parent / "store"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    # By hand: (B + 64) / (B + 32) = 1.2 at 128, so that the doubling to 256 is the last one that pays off.
    assert row["dataset"] == "toy" and row["optimizer"] == "sgd" and row["batch_verdict"] == "identified"
    assert row["batch_size_low"] < 256 < row["batch_size_high"] and row["batch_size"] == pytest.approx(256, rel=0.1)
    assert row["efficient_batch_size"] == pytest.approx(0.2 * 64 + 1.2 * 8, rel=0.1)


def test_importing_again_adds_only_what_is_new(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs(logs) == 0
    before = files(logs.parent / "store")
    assert import_runs(logs) == 0
    assert files(logs.parent / "store") == before
    write_run(logs, 8, 0.1, 5)  # a new seed sorts between others, but takes the next number
    write_run(logs, 16, 0.2, 0, rows=60)  # a run that went on
    capsys.readouterr()
    assert import_runs(logs) == 0
    assert (
        "43 runs in 7 studies = 1 new + 41 already stored + 1 extended + 0 copies + 0 refused"
        in capsys.readouterr().err
    )
    trials = store.read(logs.parent / "store").trials
    assert trials[trials["seed"] == 5]["trial"].tolist() == [6]
    longer = trials[(trials["learning_rate"] == 0.2) & (trials["seed"] == 0) & trials["study"].str.contains("-b16-")]
    assert longer["steps"].tolist() == [steps_to_target(16, 0.2, 0) * 3]


def test_changed_values_are_reported_and_replaced_on_request(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs(logs) == 0
    path = logs / "bs8-lr0.1-seed0.csv"
    path.write_text(path.read_text().replace(",20.0", ",19.0"))
    capsys.readouterr()
    assert import_runs(logs) == 0
    printed = capsys.readouterr().err
    assert "1 study changed, 1 values: the stored values are kept (--replace takes those of the logs)" in printed
    loss = store.read(logs.parent / "store").measurements["validation_loss"]
    assert loss.max() == 20
    assert import_runs(logs, MAP, "--replace") == 0
    measurements = store.read(logs.parent / "store").measurements
    assert (measurements["validation_loss"] == 19).sum() == 1


def test_a_dry_run_prints_every_run_and_stores_nothing(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "bs8-lr0.1-seed9.csv").write_text("step,acc\n1,0.5\n")
    (logs / "notes.csv").write_text("not a run")
    assert import_runs(logs, MAP, "--dry-run", "--csv") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1 + 42 and "bs8-lr0.1-seed1.csv" in printed.out
    assert "bs8-lr0.1-seed9.csv: has no loss. It has step, acc" in printed.err
    assert "43 runs in 7 studies = 42 new + 0 already stored + 0 extended + 0 copies + 1 refused" in printed.err
    assert "not stored: this was a dry run" in printed.err
    assert not (logs.parent / "store").exists()


def test_a_kill_at_any_moment_changes_no_final_result(logs: Path) -> None:
    whole, killed = logs.parent / "whole", logs.parent / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    assert results_cli.main(words(logs, whole)) == 0
    command = [sys.executable, "-m", "results", *words(logs, killed)]
    for committed in range(1, 4):
        with subprocess.Popen(command, cwd=os.getcwd(), stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while len(list(killed.glob("store/**/*.json"))) < committed and time.monotonic() < deadline:
                if process.poll() is not None:
                    break
                time.sleep(0.001)
            process.kill()
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
    assert verify.run(killed / "store", lambda line: None) == 0
    for ours, theirs in zip(store.read(killed / "store"), store.read(whole / "store"), strict=True):
        if isinstance(ours, pd.DataFrame):
            # The table of studies has a row for each process that wrote to a study.
            own = [name for name in ours if name not in ("run", "started_at")]
            again = ours[own].drop_duplicates(ignore_index=True)
            pd.testing.assert_frame_equal(again, theirs[own])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("format: csv", "format: xml"), "unknown format 'xml'"),
        (("files: ", "file: "), "unknown key 'file'"),
        (("seed{seed}", "seed{seed}-{a b}"), "a named part is one name in braces"),
        (("bs{batch_size}", "bs{batch_size}-{seed}"), "a named part is one name in braces"),
        (("seed{seed}.csv", "seed{seed}*.csv"), "has {seed}*, but needs a fixed text between them"),
        (("seed{seed}.csv", "seed{seed}?.csv"), "has {seed}?, but needs a fixed text between them"),
        (("seed{seed}.csv", "*{seed}.csv"), "has *{seed}, but needs a fixed text between them"),
        (("bs{batch_size}", "bs{batch_size}{lr}"), "has {batch_size}{lr}, but needs a fixed text between them"),
        (("path:batch_size", "path:bs"), "batch_size is path:bs, but files has no {bs}"),
        (("path:seed", "config:seed"), "the key config does not name a file"),
        (("path:batch_size", "???"), "batch_size is still ???"),
        (("optimizer: sgd", "optimizer:"), "lacks the key optimizer"),
        (("optimizer: sgd", "optimizer: [a, b]"), "optimizer must be a value or a reference"),
        (("validation_loss: loss", "loss: loss"), "unknown metric 'loss'"),
        (("{validation_loss: loss}", "loss"), "metrics must map our names to tags"),
        (("{validation_loss: 1.0}", "1.0"), "targets must map metrics to values"),
        (("validation_loss: 1.0", "validation_loss: low"), "targets.validation_loss must be a number"),
        (("{learning_rate: path", "{study: path"), "'study', which cannot be the name of a column"),
        (("\ndataset", "\nunit: pixels\ndataset"), "unknown unit 'pixels'"),
        (("\ndataset", "\nunit: tokens\ndataset"), "unit: tokens needs the key sequence_length"),
        (("\ndataset", "\nsequence_length: 9\ndataset"), "sequence_length needs unit"),
        (("\ndataset", "\nstep: epoch\ndataset"), "validation_loss counts epochs (epoch): state steps_per_epoch"),
        (("\ndataset", "\nstep: consumed tokens\ndataset"), "counts tokens (consumed tokens): state examples_seen"),
        (("\ndataset", "\nstep: {loss: epoch}\ndataset"), "unknown metric in step 'loss'"),
        (("\ndataset", "\nstep: {test_loss: epoch}\ndataset"), "step names test_loss, which is not among the metrics"),
        (("\ndataset", "\nstep: a\nexamples_seen: b\ndataset"), "both state the step"),
        (("\ndataset", "\nsteps_per_epoch: 9\ndataset"), "no step is named epoch"),
        (("format: csv", "format: *x"), "is not YAML"),
        (("format: csv", "- format"), "is not YAML"),
        (("format: csv", "format: tensorboard\nrun: column:run"), "TensorBoard logs have no columns"),
    ],
)
def test_a_wrong_map_is_one_line(
    change: tuple[str, str], part: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_runs(logs, MAP.replace(*change)) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1 and printed[0].startswith("error: ") and part in printed[0]
    assert not (logs.parent / "store").exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("missing", "--map", "map.yaml", "--store", "s"), "no folder or file at missing"),
        (("logs", "--store", "s"), "--suggest-map --map runs.yaml"),
        (("logs", "--map", "map.yaml"), "--store"),
        (("logs", "--map", "other.yaml", "--store", "s"), "cannot read --map other.yaml"),
        (("logs", "--map", "logs", "--store", "s"), "cannot read --map logs"),
        (("logs", "--map", "map.yaml", "--suggest-map"), "--map map.yaml exists"),
    ],
)
def test_wrong_options_are_one_line(
    options: Sequence[str],
    part: str,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(logs.parent)
    Path("map.yaml").write_text(MAP)
    assert results_cli.main(["import", "runs", *options]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1 and printed[0].startswith("error: ") and part in printed[0]


def test_another_map_of_the_same_runs_needs_another_store(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs(logs) == 0
    before = files(logs.parent / "store")
    capsys.readouterr()
    for text, options in ((MAP.replace("validation_loss: 1.0", "validation_loss: 2.0"), ()), (MAP, ("--raw",))):
        assert import_runs(logs, text, *options) == 2
        assert "Import into another store." in capsys.readouterr().err
    assert files(logs.parent / "store") == before


def test_the_batch_size_is_a_product_and_a_short_run_is_lost(logs: Path) -> None:
    text = MAP.replace("batch_size: path:batch_size", "batch_size: [path:batch_size, 4, 2]\nbudget: 50_000")
    text = text.replace("validation_loss: 1.0", "validation_loss: 0.01")
    assert import_runs(logs, text) == 0
    tables = store.read(logs.parent / "store")
    assert tables.studies["batch_size"].sort_values().tolist() == [8 * size for size in SIZES]
    assert set(tables.trials["status"]) == {"INCOMPLETE"} and set(tables.trials["reason"]) == {"lost"}


@pytest.fixture
def two_units(logs: Path) -> Path:
    """A store with the same runs in tokens and in sequences of 128 tokens."""
    for text in (TOKENS, SEQUENCES):
        assert import_runs(logs, text) == 0
    return logs.parent / "store"


@pytest.mark.parametrize(
    "command", ["fit", "payoff", *(pytest.param(name, marks=pytest.mark.slow) for name in ("steps", "suggest"))]
)
def test_commands_name_units(two_units: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    capsys.readouterr()
    assert analysis_cli.main([command, "--store", str(two_units)]) == 0
    printed = capsys.readouterr().out
    assert "tokens" in printed and "sequences of 128 tokens" in printed
    assert analysis_cli.main([command, "--store", str(two_units), "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert set(table["unit"]) == {"tokens", "sequences of 128 tokens"}
    if command == "fit":
        pays = table.set_index("unit")["pays_up_to"]
        assert pays["tokens"] == pytest.approx(128 * pays["sequences of 128 tokens"], rel=0.02)
    if command == "suggest":
        assert (table.loc[table["unit"] == "tokens", "batch_size"].dropna() % 128 == 0).all()


@pytest.mark.slow
def test_pictures_and_pages_hold_one_unit(two_units: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = two_units.parent
    studies = store.read(two_units).studies
    assert set(zip(studies["unit"], studies["sequence_length"], strict=True)) == {("tokens", 128), ("sequences", 128)}
    assert analysis_cli.main(["report", "--store", str(two_units), "--out", str(folder / "page.html")]) == 0
    page = (folder / "page.html").read_text()
    assert "batch size (tokens)" in page and "batch size (sequences of 128 tokens)" in page and "8,192 tokens" in page
    shown = ["figures", "--kind", "metaparameters", "--where", "unit=tokens", "--out", str(folder / "figures")]
    assert analysis_cli.main([*shown, "--store", str(two_units)]) == 0
    assert len(list((folder / "figures").rglob("*.png"))) == 1
    apart = [folder / "a", folder / "b"]
    for place, text in zip(apart, (TOKENS, SEQUENCES), strict=True):
        place.mkdir()
        assert results_cli.main(words(folder / "logs", place, text)) == 0
    capsys.readouterr()
    assert analysis_cli.main(["compare", *(str(place / "store") for place in apart)]) == 2
    assert "have nothing in common" in capsys.readouterr().err
