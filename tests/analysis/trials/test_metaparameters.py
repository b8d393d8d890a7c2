"""Groups of trials by a metaparameter."""

import numpy as np
import pandas as pd
import pytest

from analysis.trials import metaparameters
from analysis.trials.trials import COLUMNS, StudyTrials
from results.bad_input import BadInput
from results.plans.study import Target

from ..conftest import plan


def study(**drawn: list[float]) -> StudyTrials:
    count = len(next(iter(drawn.values())))
    rows = pd.DataFrame({name: [0] * count for name in COLUMNS} | drawn)
    return StudyTrials(plan(), Target("test_error", 0.1), rows)


def test_few_values_are_a_group_each_and_none_counts_as_zero() -> None:
    found = [study(label_smoothing=[0.1, 0.0, np.nan]), study(learning_rate=[1.0])]
    groups = metaparameters.split(found, "label_smoothing")
    assert [group.label for group in groups] == ["label smoothing = 0", "label smoothing = 0.1"]
    assert groups[0].kept(found[0].rows).tolist() == [False, True, True]
    assert groups[0].kept(found[1].rows).tolist() == [True]


def test_many_values_are_thirds_that_share_no_trial() -> None:
    rng = np.random.default_rng(0)
    one = study(momentum=list(rng.random(90)))
    kept = np.array([group.kept(one.rows) for group in metaparameters.split([one], "momentum")])
    assert kept.sum(axis=0).tolist() == [1] * 90
    assert kept.sum(axis=1).tolist() == [30] * 3


def test_what_trials_are_split_by_unless_asked() -> None:
    assert (
        metaparameters.default_split([study(learning_rate=[1, 2], momentum=[1, 2], label_smoothing=[0, 1])])
        == "label_smoothing"
    )
    assert (
        metaparameters.default_split([study(learning_rate=[1, 2], momentum=[1, 2], label_smoothing=[0, 0])])
        == "momentum"
    )
    assert metaparameters.default_split([study(learning_rate=[1, 2])]) == "learning_rate"
    with pytest.raises(BadInput, match="no metaparameter differs"):
        metaparameters.default_split([study(learning_rate=[1, 1])])
