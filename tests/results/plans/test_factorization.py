import dataclasses
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from analysis.cores import measured_factorizations
from analysis.fitting import curves
from analysis.trials import steps_to_target
from results import store
from results.bad_input import BadInput
from results.catalog import contents
from results.checks import verify
from results.plans import kinds
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.release import merge, release
from results.storage import shared
from results.storage.commits import read_table


def test_plan_and_back(factorization: Factorization) -> None:
    assert kinds.from_plan(factorization.plan(), factorization.trials) == factorization
    assert kinds.from_plan(factorization.plan(), 7).name == factorization.name
    assert factorization.name.startswith("webgraph_synthetic-als-rotated_cg-d16-c1-")


def test_plans_contain_only_non_default_evaluation_options(factorization: Factorization) -> None:
    assert not {"evaluate_every", "evaluation_rows", "fold_in_ridge"} & factorization.plan().keys()
    for change in ({"evaluate_every": 4}, {"evaluation_rows": 1000}, {"fold_in_ridge": "constant"}):
        other = dataclasses.replace(factorization, **change)  # type: ignore[arg-type]
        assert other.plan() == factorization.plan() | change
        assert other.name != factorization.name and other.stream == factorization.stream
        assert kinds.from_plan(other.plan(), other.trials) == other
    with pytest.raises(BadInput, match=r"cannot read a plan of version 0\.2: unexpected evaluate_every$"):
        kinds.from_plan(factorization.plan() | {"evaluate_every": 1}, 2)


def test_cores_and_solvers_share_trials_and_data_do_not(factorization: Factorization) -> None:
    for change in ({"cores": 2}, {"solver": "lu"}, {"dim": 32}, {"table_dtype": "bfloat16"}, {"gather": "all_gather"}):
        other = dataclasses.replace(factorization, **change)
        assert other.stream == factorization.stream
        assert other.name != factorization.name
    for change in ({"seed": 1}, {"dataset_version": "another"}, {"ridge": "constant"}):
        assert dataclasses.replace(factorization, **change).stream != factorization.stream


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("solver", "svd", "solver"),
        ("cores", 0, "cores must be an integer of at least 1"),
        ("dim", 1.5, "dim must be an integer"),
        ("evaluate_every", 0, "evaluate_every must be an integer of at least 1"),
        ("evaluation_rows", 1, "evaluation_rows must be an integer of at least 2"),
        ("table_dtype", "float16", "table_dtype"),
        ("fold_in_ridge", "ridge", "unknown fold_in_ridge 'ridge'"),
    ],
)
def test_bad_fields(factorization: Factorization, field: str, value: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        dataclasses.replace(factorization, **{field: value})


def test_penalties_are_positive(factorization: Factorization) -> None:
    plan = factorization.plan()
    plan["space"]["norm_penalty"] = {"scale": "LINEAR", "low": 0.0, "high": 1.0}
    with pytest.raises(BadInput, match="norm_penalty must be above 0, not 0"):
        kinds.from_plan(plan, 2)
    del plan["space"]["norm_penalty"]
    with pytest.raises(BadInput, match="a factorization tunes unobserved_weight and norm_penalty"):
        kinds.from_plan(plan, 2)


def test_store_release_and_back(
    factorization: Factorization,
    make_study: Callable[..., BatchStudy],
    publish_factorization: Callable[..., None],
    fill: Callable[..., None],
    tmp_path: Path,
) -> None:
    folder, out, back = tmp_path / "store", tmp_path / "release", tmp_path / "back"
    fill(folder, make_study(trials=1))
    publish_factorization(folder, factorization)
    publish_factorization(folder, dataclasses.replace(factorization, cores=2))
    for place in (folder, out, back):
        if place == out:
            assert release.export(folder, out, lambda line: None) == 0
        if place == back:
            assert merge.merge([out], back, lambda line: None) == 0
        assert verify.run(place, lambda line: None) == 0
        assert [commit.plan.get("cores") for commit in store.catalogue(place)] == [None, 1, 2]
    described = {column.name: column for column in contents.describe_columns(_contents(out), "measurements")}
    assert described["row_half_seconds"].meaning.startswith("seconds of solving all rows, without compiling")
    assert described["bytes_per_core"].type == "int64"
    measured = pyarrow.parquet.read_table(out / "measurements.parquet")
    assert len(measured) == sum(len(read_table(commit, "measurements")) for commit in store.catalogue(folder))
    assert measured["batch_size"].null_count == 2 * factorization.trials * factorization.epochs


def test_epochs_to_a_recall_are_steps_to_a_target(
    factorization: Factorization, publish_factorization: Callable[..., None], tmp_path: Path
) -> None:
    publish_factorization(tmp_path, factorization)
    held, target = steps_to_target.load(tmp_path, ("validation_recall_20_error", 0.55))
    table = steps_to_target.table(held, target)
    assert list(zip(table["steps_low"], table["steps_high"], table["trial"], strict=True)) == [(1, 2, 1)]
    assert "matrix_factorization_16" in steps_to_target.as_text(table)
    assert curves.of_store(held, target) == []
    with pytest.raises(BadInput, match="no study has a target"):
        steps_to_target.table(*steps_to_target.load(tmp_path))


def test_test_target_is_refused_if_validation_was_measured(
    factorization: Factorization, publish_factorization: Callable[..., None], tmp_path: Path
) -> None:
    publish_factorization(tmp_path / "new", factorization)
    with pytest.raises(
        BadInput, match=r"^test_recall_20_error is only reported and cannot select trials. Use validation_rec"
    ):
        steps_to_target.load(tmp_path / "new", ("test_recall_20_error", 0.55))
    publish_factorization(tmp_path / "old", factorization, validation=None)  # as software 0.1 did
    table = steps_to_target.table(*steps_to_target.load(tmp_path / "old", ("test_recall_20_error", 0.55)))
    assert table["trial"].tolist() == [1]


def test_stores_of_0_1_are_verified_exported_and_merged(
    factorization: Factorization, publish_factorization: Callable[..., None], tmp_path: Path
) -> None:
    old, new, both = tmp_path / "old", tmp_path / "new", tmp_path / "both"
    publish_factorization(old, factorization, validation=None)
    publish_factorization(new, dataclasses.replace(factorization, seed=1))
    assert release.export(old, tmp_path / "release", lambda line: None) == 0
    assert merge.merge([tmp_path / "release", new], both, lambda line: None) == 0
    for place in (old, tmp_path / "release", both):
        assert verify.run(place, lambda line: None) == 0
    found = {one.chosen_by for one in measured_factorizations.load(both)}
    assert found == {"recall_20", "validation_recall_20"}


def test_a_cost_of_another_type_is_a_fault(
    factorization: Factorization, publish_factorization: Callable[..., None], tmp_path: Path
) -> None:
    publish_factorization(tmp_path, factorization, bytes_type="double")
    (found,) = [f for f in verify.examine(tmp_path, lambda line: None) if f.faults]
    assert "has bytes_per_core as double, not int64" in found.faults[0].line


def _contents(folder: Path) -> contents.Contents:
    held = store.catalogue(folder)
    schemas = {table: [read_table(commit, table).schema for commit in held] for table in contents.TABLES}
    columns = {table: shared.union(table, own) for table, own in schemas.items()}
    return contents.Contents(held, columns, {}, None, "")
