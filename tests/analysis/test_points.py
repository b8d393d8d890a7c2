"""The points of a release, found again by DuckDB and by hand from the other tables."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import release_points
from analysis.cores import measured_factorizations
from analysis.fitting import confirmations, curve_fits
from results import durable, store
from results.catalog import documents
from results.checks import verify
from results.plans.points import POINTS
from results.plans.study import Target
from results.release import release
from results.storage.commits import Commit

ROOT = Path(__file__).parents[2]


def quiet(line: str) -> None:
    """Takes lines about progress."""


def is_chosen(commit: Commit) -> bool:
    """Whether a study is of the noisy quadratic with momentum, or a factorization on one or two cores."""
    if commit.kind == "cores":
        return (commit.plan["solver"], commit.plan["dim"]) == ("rotated_cg", 128)
    return (commit.plan.get("dataset"), commit.plan.get("optimizer")) == ("noise", "momentum")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of 13 of the published studies."""
    out = tmp_path_factory.mktemp("points") / "release"
    published = ROOT / "results" / "published"
    chosen = [commit for commit in store.catalogue(published) if is_chosen(commit)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "catalogue", lambda folder: chosen)
        assert release.export(published, out, quiet, release_points.table) == 0
    return out


def test_steps_are_those_that_sql_finds_in_the_measurements(released: Path) -> None:
    """Of a study's trials the first at its target; DuckDB reads the tables, and nothing of ours counts."""
    found = duckdb.sql(f"""
        SELECT m.study, min(m.step) AS steps, count(DISTINCT t.trial) AS reached
        FROM '{released}/measurements.parquet' m
        JOIN '{released}/trials.parquet' t USING (study, trial)
        JOIN '{released}/points.parquet' p USING (study)
        WHERE t.role = 'search' AND m.validation_loss::FLOAT <= p.target_value::FLOAT
        GROUP BY m.study""").df()
    told = pd.read_parquet(released / "points.parquet").set_index("study")
    reached = told[told["reached"].fillna(False).astype(bool)]
    assert len(reached) == 11 and set(found["study"]) == set(reached.index)
    assert found.set_index("study")["steps"].loc[reached.index].tolist() == reached["steps_high"].tolist()
    assert (reached["examples"] == reached["steps_high"] * reached["batch_size"]).all()
    assert {int(b): (int(r.steps_low), int(r.steps_high)) for b, r in reached.set_index("batch_size").iterrows()} == {
        1: (1063, 1170), 2: (544, 599), 4: (277, 305), 8: (127, 140), 16: (70, 77), 32: (33, 37), 64: (24, 27),
        128: (13, 15), 256: (10, 11), 512: (17, 19), 1024: (10, 11),
    }  # fmt: skip


def test_metaparameters_and_seeds_are_those_of_the_trial(released: Path) -> None:
    told = pd.read_parquet(released / "points.parquet")
    trials = pd.read_parquet(released / "trials.parquet").set_index(["study", "trial"])
    for row in told.dropna(subset="trial").to_dict("records"):
        own = trials.loc[row["study"], row["trial"]]
        assert row["seed"] == own["seed"]
        for name in ("learning_rate", "unobserved_weight", "norm_penalty"):
            assert np.array_equal(row[name], own[name], equal_nan=True)


def test_repeats_are_counted_and_their_median_is_between_them(released: Path) -> None:
    told = pd.read_parquet(released / "points.parquet").dropna(subset="repeats")
    measured = pd.read_parquet(released / "measurements.parquet")
    for row in told.to_dict("records"):
        rows = measured[(measured["study"] == row["study"]) & (measured["trial"] >= 4_000_000)]  # three chose
        at = rows[rows["validation_loss"] <= np.float32(row["target_value"])].groupby("trial")["step"].min()
        assert row["repeats"] == 3 and row["repeats_reached"] == len(at)
        assert row["confirmed_high"] == (np.sort(at)[1] if len(at) > 1 else row["confirmed_high"])
        assert row["confirmed_low"] < row["confirmed_high"]


def test_curves_have_the_fits_of_analysis(released: Path) -> None:
    told = pd.read_parquet(released / "points.parquet").dropna(subset="verdict")
    (fitted,) = curve_fits.of_store(released)
    assert len(told) == len(fitted.curve.workload.commits) == 11
    assert set(told["verdict"]) == {fitted.selected.verdict}
    assert fitted.selected.fit is not None
    np.testing.assert_allclose(told["critical_low"], fitted.selected.fit.low)
    assert set(told["curve"]) == {f"{fitted.curve.workload.title} · validation_loss ≤ {fitted.curve.target.value:g}"}


def test_factorizations_have_a_row_without_a_target(released: Path) -> None:
    told = pd.read_parquet(released / "points.parquet")
    rows = told[told["kind"] == "cores"]
    assert sorted(rows["cores"]) == [1, 2] and rows["target_metric"].isna().all() and rows["reached"].isna().all()
    assert rows["seconds_per_epoch"].gt(0).all()
    runs = pd.read_parquet(released / "studies.parquet").set_index("study")["seconds_per_epoch"]
    assert rows["seconds_per_epoch"].tolist() == runs[rows["study"]].tolist()
    by_name = {one.study.name: one for one in measured_factorizations.load(released)}
    for row in rows.to_dict("records"):
        one = by_name[row["study"]]
        assert (row["trial"], row["median_epoch_seconds"]) == (one.chosen, np.median(one.seconds))
        told_of_plan = (row["solver"], row["dim"], row["table_dtype"], row["solver_dtype"])
        assert told_of_plan == (one.study.solver, one.study.dim, one.study.table_dtype, one.study.solver_dtype)
        assert json.loads(row["dataset_options"]) == one.study.dataset_options


def test_points_are_documented_and_verified(released: Path) -> None:
    columns = pq.read_schema(released / "points.parquet").names
    dictionary = (released / "DICTIONARY.md").read_text().split("\n## points\n")[1]
    assert columns[: len(POINTS)] == [column.name for column in POINTS]
    assert all(f"\n| `{column}` | " in dictionary for column in columns)
    assert verify.run(released, quiet) == 0


def lie(folder: Path, change: Callable[[list[dict]], object]) -> None:
    """Changes the points, and SHA256SUMS as if that had been written."""
    path = folder / "points.parquet"
    rows = pq.read_table(path)
    told = rows.to_pylist()
    change(told)
    pq.write_table(pa.Table.from_pylist(told, rows.schema), path)
    list_anew(folder)


def list_anew(folder: Path) -> None:
    """Makes SHA256SUMS anew."""
    hashes = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in folder.iterdir()
        if each.name != "SHA256SUMS"
    }
    durable.replace(folder / "SHA256SUMS", documents.sums(hashes))


def first(**values: object) -> Callable[[list[dict]], object]:
    """Changes the first row, which is of a network, unlike the last."""
    return lambda rows: rows[0].update(values)


def swap(rows: list[dict]) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def of_curve(**values: object) -> Callable[[list[dict]], object]:
    """Changes all rows of the curve over batch sizes."""
    return lambda rows: [row.update(values) for row in rows if row["verdict"]]


LIES: list[tuple[str, Callable[[list[dict]], object], str]] = [
    ("fewer steps", lambda rows: rows[0].update(steps_high=rows[0]["steps_high"] - 1), "has a steps_high of"),
    ("another trial", lambda rows: rows[0].update(trial=rows[0]["trial"] + 1), "has a trial of"),
    ("never reached", first(reached=False), "has a reached of"),
    *(
        (f"another {name}", first(**{name: value}), f"has a {name} of")
        for name, value in [
            ("confirmed_low", 1.0),
            ("confirmed_high", 1.0),
            ("confirmed_trial", 63),
            ("repeats", 4),
            ("repeats_reached", 0),
            ("learning_rate", 0.5),
            ("seed", 7),
            ("seconds_per_epoch", 1.0),
            ("cores", 3),
            ("infeasible", 9),
            ("trials", 9),
            ("complete", 9),
            ("incomplete", 9),
            ("examples", 9),
            ("licence", "CC0-1.0"),
            ("source", "me"),
            ("solver", "cg"),
            ("schedule", "linear"),
            ("pruning", "exact"),
            ("device_kind", "TPU"),
            ("comparable", "9.9"),
            ("mesh", "a:2"),
            ("dataset_version", "mine"),
            ("dataset_options", "{}"),
            ("records", "mine"),
            ("stop", "budget"),
        ]
    ),
    ("another median", lambda rows: rows[-1].update(median_epoch_seconds=1.0), "has a median_epoch_seconds of"),
    ("rows swapped", swap, "is not sorted by study and target"),
    ("a fit of one point", first(critical_high=1e6), "has different values of critical_high on the curve"),
    ("a verdict of one point", first(verdict="at_least"), "has different values of verdict on the curve"),
    ("a curve of one point", first(curve="mine"), "has points of another workload of the curve"),
    ("another verdict", of_curve(verdict="at_most"), "has a critical batch size that contradicts its verdict"),
    ("no such verdict", of_curve(verdict="perhaps"), "has the unknown verdict perhaps"),
    ("no verdict", of_curve(verdict=None), "has no verdict of the curve"),
    ("no confirmed verdict", of_curve(confirmed_verdict=None), "has a confirmed verdict without repeats, or repeats"),
    ("an interval beside", of_curve(critical_low=1e9), "has an interval without its critical batch size"),
    ("an open interval", of_curve(critical_low=None), "has an interval that contradicts its verdict"),
    ("no curve", of_curve(curve=None), "which is not on a curve"),
    (
        "a fit of cores",
        lambda rows: [row.update(doubts="law") for row in rows if row["kind"] == "cores"],
        "has a fit without a target of the curve",
    ),
    ("a study less", lambda rows: rows.pop(0), "lacks the study"),
    ("a study twice", lambda rows: rows.append(dict(rows[0])), "twice with the same target"),
    ("a study more", lambda rows: rows.append(rows[0] | {"study": "mine"}), "has the unknown study mine"),
    ("another batch size", lambda rows: rows[0].update(batch_size=7), "has a batch_size of"),
    ("another target", lambda rows: rows[0].update(target_value=0.5), "lacks"),
]


@pytest.mark.parametrize(("what", "change", "says"), LIES, ids=[what for what, *_ in LIES])
def test_points_that_lie_are_found(
    what: str,
    change: Callable[[list[dict]], object],
    says: str,
    released: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(released, tmp_path / "copy")
    lie(tmp_path / "copy", change)
    assert verify.run(tmp_path / "copy", quiet) == 1
    assert says in capsys.readouterr().out


def test_points_of_other_tables_are_found_whatever_lists_say(released: Path, tmp_path: Path) -> None:
    shutil.copytree(released, tmp_path / "copy")
    lie(tmp_path / "copy", of_curve(critical_low=1e-9))
    faults = [fault.line for each in verify.examine(tmp_path / "copy", quiet) for fault in each.faults]
    assert (
        len(faults) == 1 and "points.parquet has different sha256 values in manifest.json and SHA256SUMS" in faults[0]
    )


@pytest.mark.parametrize("name", ["published", "mlperf"])
def test_what_was_confirmed_and_doubted_is_what_analysis_says(name: str) -> None:
    told = pd.read_parquet(ROOT / "results" / name / "points.parquet")
    commits = [commit for commit in store.catalogue(ROOT / "results" / name) if commit.repeats.confirm]
    rows = told.dropna(subset="confirmed_trial").set_index("study")
    found = 0
    for target in {Target(*pair) for pair in zip(rows["target_metric"], rows["target_value"], strict=True)}:
        for one in confirmations.of_commits([each for each in commits if target in each.study.targets], target):
            row = rows.loc[one.study]
            assert (row["confirmed_trial"], row["repeats"], row["repeats_reached"]) == (
                one.chosen,
                one.repeats,
                one.reached,
            )
            low, high = (value if np.isfinite(value) else None for value in one.median)
            assert (row["confirmed_low"] == low) if low is not None else pd.isna(row["confirmed_low"])
            assert (row["confirmed_high"] == high) if high is not None else pd.isna(row["confirmed_high"])
            found += 1
    assert found == len(rows)


@pytest.mark.parametrize("name", ["published", "mlperf"])
def test_a_target_that_nobody_reached_is_bounded_from_below(name: str) -> None:
    folder = ROOT / "results" / name
    told = pd.read_parquet(folder / "points.parquet")
    trials = pd.read_parquet(folder / "trials.parquet")
    missed = told[told["reached"].eq(False)]
    assert (len(missed) > 0) == (name == "published")
    unknown = told[told["target_metric"].notna() & told["reached"].isna()]
    assert len(unknown) == {"published": 0, "mlperf": 10}[name] and unknown["steps_low"].isna().all()
    for row in missed.to_dict("records"):
        own = trials[(trials["study"] == row["study"]) & (trials["role"] == "search")]
        going = own.loc[own["status"] != "INFEASIBLE", "steps"].fillna(0)
        assert pd.isna(row["steps_high"]) and pd.isna(row["trial"])
        assert row["steps_low"] == going.min() if len(going) else pd.isna(row["steps_low"])
