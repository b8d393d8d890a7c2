import numpy as np
import pandas as pd
import pytest

from results.bad_input import BadInput
from results.plans.study import Target, in_type
from results.rules import answers
from results.rules.answers import Answer, check_chooses


def test_the_interval_is_between_two_evaluations() -> None:
    measurements = pd.DataFrame(
        {
            "study": ["a"] * 6 + ["b"],
            "trial": [0, 0, 0, 1, 1, 2, 0],
            "step": [1, 2, 4, 1, 2, 1, 8],
            "validation_loss": np.float32([0.9, 0.5, 0.1, 0.9, np.nan, 0.5, 0.2]),
        }
    )
    found = answers.intervals(measurements, Target("validation_loss", 0.5))
    assert found.to_numpy().tolist() == [["a", 0, 1, 2], ["a", 2, 0, 1], ["b", 0, 0, 8]]
    assert answers.intervals(measurements, Target("test_loss", 0.5)).empty


def test_the_answer_of_a_study_is_its_first_trial_and_of_equals_the_smallest() -> None:
    trials = pd.DataFrame(
        [("b", 3, 4, 9), ("a", 7, 8, 9), ("a", 2, 8, 9), ("a", 1, 2, 10)],
        columns=["study", "trial", "steps_low", "steps_high"],
    )
    assert answers.best(trials) == {"a": Answer(2, 9, 2), "b": Answer(4, 9, 3)}
    assert answers.best(trials[:0]) == {}


def test_a_target_is_compared_in_the_type_of_its_column() -> None:
    assert in_type(0.1, np.float32) == np.float32(0.1)
    assert float(in_type(0.1, np.float32)) > 0.1
    assert in_type(1e300, np.float32) == np.finfo(np.float32).max
    assert in_type(0.1, np.float64) == 0.1


def test_test_chooses_nothing_where_validation_can() -> None:
    with pytest.raises(BadInput, match=r"^test_error is only reported and cannot select trials\. Use validation_error"):
        check_chooses("test_error", ("test_error", "validation_error"))
    check_chooses("validation_error", ("test_error", "validation_error"))
    check_chooses("test_error", ("test_error", "validation_loss"))  # nothing else is there, as in stores of 0.1
