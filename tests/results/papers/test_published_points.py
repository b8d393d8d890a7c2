import pandas as pd
import pytest

from results.papers import published_points
from results.plans.study import METRICS


def test_every_point_is_typed_cited_and_a_number() -> None:
    points = published_points.points()
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
    points = published_points.points("shallue2018")
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
    (row,) = published_points.points("alx2022").query("dataset == @dataset").to_dict("records")
    assert (row["cores"], row["seconds_per_epoch"], row["bound"]) == (cores, seconds, bound)
    assert "2112.02194" in row["url"]


def test_sizes_of_webgraph() -> None:
    sizes = published_points.webgraph().set_index("variant")
    assert len(sizes) == 6
    assert sizes.loc["sparse", "train_rows"] == 372_049_054
    assert sizes["citation"].notna().all()
