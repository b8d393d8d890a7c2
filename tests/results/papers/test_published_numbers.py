"""Numbers that others published: what they state, what contradicts itself, and whom to cite."""

import numpy as np
import pandas as pd
import pytest

from results.papers import published_numbers
from results.papers.published_numbers import layouts
from results.plans.study import METRICS


def test_every_point_is_typed_cited_and_a_number() -> None:
    points = published_numbers.points()
    assert points[["source", "figure", "dataset", "model", "optimizer", "bound"]].notna().all(axis=None)
    assert points[["citation", "url", "terms"]].notna().all(axis=None)
    assert str(points["batch_size"].dtype) == "Int64"
    assert points["steps"].dtype == pd.Float64Dtype()
    assert (points["steps"].notna() ^ points["seconds_per_epoch"].notna()).all()
    assert (points["batch_size"].notna() ^ points["cores"].notna()).all()
    assert set(points["metric"].dropna()) <= set(METRICS)
    assert set(points["bound"]) == {"about", "at_most"}
    keys = ["source", "panel", "batch_size", "cores"]
    assert not points.duplicated(keys).any()
    assert points.loc[points["steps"].notna(), "target_value"].notna().all()


def test_figure_1_of_shallue_2018() -> None:
    points = published_numbers.points("shallue2018")
    assert len(points) == 89
    assert points["panel"].nunique() == 9
    curve = points[points["panel"] == "Simple CNN on MNIST"]
    assert curve["batch_size"].is_monotonic_increasing
    assert curve["steps"].iloc[0] == 67514.8
    speedup = curve["steps"].max() / curve["steps"].min()
    assert 400 < speedup < 600  # the paper's CNN on MNIST gains the most
    (lstm,) = {(m, v) for m, v in points.loc[points["model"] == "lstm", ["metric", "target_value"]].to_numpy()}
    assert lstm == ("validation_loss", 3.9)
    precision = points[points["dataset"] == "open_images_v4"]
    assert set(precision["metric"]) == {"validation_average_precision_error"}
    assert set(precision["target_value"]) == {0.69}


@pytest.mark.parametrize(
    ("dataset", "cores", "seconds", "bound"),
    [("webgraph-sparse", 256, 1200, "about"), ("webgraph-dense", 8, 5400, "at_most")],
)
def test_epoch_times_of_alx(dataset: str, cores: int, seconds: float, bound: str) -> None:
    (row,) = published_numbers.points("alx2022").query("dataset == @dataset").to_dict("records")
    assert (row["cores"], row["seconds_per_epoch"], row["bound"]) == (cores, seconds, bound)
    assert "2112.02194" in row["url"]


def test_sizes_of_webgraph() -> None:
    sizes = published_numbers.webgraph().set_index("variant")
    assert len(sizes) == 6
    assert sizes.loc["sparse", "train_rows"] == 372_049_054
    assert sizes["citation"].notna().all()


def test_rows_and_sources() -> None:
    table = layouts()
    assert table.groupby("source").size().to_dict() == {"kempnerforge": 14, "maxtext": 40, "maxtext-2024": 10}
    for column in ("citation", "url", "terms", "utilization", "peak_tflops", "chips"):
        assert table[column].notna().all()
    kempner = table[table["source"] == "kempnerforge"]
    assert set(kempner["terms"].str.split(",").str[0]) == {"MIT License"}
    assert kempner.loc[kempner["compiled"] == "no", "row"].tolist() == ["8"]
    assert len(kempner.drop_duplicates(["mesh"])) == 10
    assert set(kempner["chips"]) == {1, 2, 4, 8, 16, 32}


def test_meshes_have_as_many_devices_as_there_are_chips() -> None:
    for _, row in layouts().dropna(subset=["mesh"]).iterrows():
        sizes = [int(pair.split(":")[1]) for pair in row["mesh"].split(";")]
        assert np.prod(sizes) == row["chips"], row["row"]


def test_the_one_row_that_contradicts_itself_is_told() -> None:
    table = layouts()
    doubted = table[table["doubt"].notna()]
    assert doubted[["source", "model", "chips"]].to_numpy().tolist() == [["maxtext-2024", "1024B", 1024]]
    assert doubted["doubt"].item() == "249 TFLOP/s of 459 are 54.25%, and it states 64.05%"


@pytest.mark.parametrize(
    ("column", "factor", "said"),
    [("utilization", 1.05, "of the peak"), ("step_seconds", 1.05, "tokens take"), ("tokens_per_second", 0.9, "peak")],
)
def test_a_row_that_is_changed_is_doubted(column: str, factor: float, said: str) -> None:
    table = layouts()
    row = table[table["source"] == "kempnerforge"].iloc[3].copy()
    assert pd.isna(row["doubt"])
    row[column] *= factor
    doubt = published_numbers._doubt(row)
    assert doubt is not None and said in doubt
