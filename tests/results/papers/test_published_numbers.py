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


WITHIN = 0.006  # relative tolerance of utilization, because operations per second are rounded to whole TFLOP/s
SECONDS_WITHIN = 0.01  # relative tolerance of step seconds, which are rounded to hundredths
# Layers and width of the models in KempnerForge's report. Its utilization counts 6 P + 12 L D S operations per token,
# with P all parameters, as in its metrics/mfu.py.
KEMPNERFORGE = {"7B": (32, 4096), "13B": (40, 5120), "70B": (80, 8192)}


def doubt_of(row: pd.Series) -> str | None:
    """Describes redundant values in a row that contradict each other, or returns None if all agree."""
    if pd.notna(row["tflops_per_chip"]):
        share = row["tflops_per_chip"] / row["peak_tflops"]
        if abs(share - row["utilization"]) > WITHIN:
            return (
                f"{row['tflops_per_chip']:g} TFLOP/s of {row['peak_tflops']:g} are {share:.2%}, "
                f"and it states {row['utilization']:.2%}"
            )
    if pd.isna(row["tokens_per_second"]):
        return None
    (layers, wide), rate = KEMPNERFORGE[row["model"]], row["tokens_per_second"]
    flops = 6e9 * row["parameters_billions"] + 12 * layers * wide * row["length"]
    share = rate * flops / (row["peak_tflops"] * 1e12 * row["chips"])
    if abs(share - row["utilization"]) > WITHIN:
        return f"{rate:,.0f} tokens a second are {share:.1%} of the peak, and it states {row['utilization']:.1%}"
    sizes = dict(pair.split(":") for pair in row["mesh"].split(";"))
    tokens = row["micro_batch"] * row["accumulation"] * row["length"] * int(sizes.get("fsdp", 1))
    if abs(tokens / rate / row["step_seconds"] - 1) > SECONDS_WITHIN:
        return f"{tokens:,} tokens take {tokens / rate:.2f} s, and it states {row['step_seconds']:.2f} s"
    return None


def test_doubts_are_those_of_redundant_values() -> None:
    table = layouts()
    expected = pd.array([doubt_of(row) for _, row in table.iterrows()], dtype="string")
    assert table["doubt"].fillna("").tolist() == expected.fillna("").tolist()


@pytest.mark.parametrize(
    ("column", "factor", "said"),
    [("utilization", 1.05, "of the peak"), ("step_seconds", 1.05, "tokens take"), ("tokens_per_second", 0.9, "peak")],
)
def test_a_row_that_is_changed_is_doubted(column: str, factor: float, said: str) -> None:
    table = layouts()
    row = table[table["source"] == "kempnerforge"].iloc[3].copy()
    assert pd.isna(row["doubt"])
    row[column] *= factor
    doubt = doubt_of(row)
    assert doubt is not None and said in doubt
