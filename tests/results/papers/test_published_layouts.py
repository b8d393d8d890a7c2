"""Layouts that others published: what they state, what contradicts itself, and whom to cite."""

import numpy as np
import pandas as pd
import pytest

from results.papers import published_layouts
from results.papers.published_layouts import layouts


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
    doubt = published_layouts._doubt(row)
    assert doubt is not None and said in doubt
