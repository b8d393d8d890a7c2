"""Luck: what searches of equal configurations select, choose and report, and ratios over a store."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import luck


@pytest.mark.parametrize("top", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_what_reports_is_unbiased_where_all_configurations_are_equal(top: int) -> None:
    """The known answer: any configuration is as good as any other, so that what is selected is luck alone."""
    found = luck.simulate(400, seed=1, confirm=6 if top > 1 else 5, top=top)
    bias = luck.bias(found)
    assert bias["confirmed"] == pytest.approx(1, abs=0.02)
    assert bias["selected"] < 0.8
    assert {one.repeats for one in found} == {3 if top > 1 else 5}
    if top > 1:
        assert bias["median that chose"] < 0.95
        assert np.mean([one.chosen == one.best for one in found]) == pytest.approx(1 / top, abs=0.08)


def test_ratios_are_summed_up_over_all_and_by_data_set() -> None:
    rows = [("a", 1, 2.0), ("a", 16, 4.0), ("a", 32, 1.0), ("b", 64, 3.0), ("b", 8, math.inf)]
    table = pd.DataFrame(rows, columns=["dataset", "batch_size", "ratio"]).assign(same=[True, False, True, True, True])
    found = luck.summary(table)
    assert list(found.index) == ["a", "b", luck.ALL]
    assert list(found.columns) == list(luck.SUMMARY)
    assert found["studies"].tolist() == [3, 2, 5]
    assert found["never"].tolist() == [0, 1, 1]
    assert found["ratio"].tolist() == [2, 3, 2.5]
    assert found.loc[luck.ALL, ["small", "large"]].tolist() == [3, 2]
    assert found["same"].tolist() == [2 / 3, 1, 0.8]
