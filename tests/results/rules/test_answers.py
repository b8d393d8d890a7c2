import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from results.bad_input import BadInput
from results.plans.study import Target, in_type
from results.rules import answers
from results.rules.answers import Answer, Reached, Rule, check_chooses


def test_the_interval_is_between_two_evaluations() -> None:
    measurements = pd.DataFrame(
        {
            "trial": [0, 0, 0, 1, 1, 2, 3],
            "step": [1, 2, 4, 1, 2, 1, 8],
            "validation_loss": np.float32([0.9, 0.5, 0.1, 0.9, np.nan, 0.5, 0.2]),
        }
    )
    for found in (
        answers.of_frame(measurements, Target("validation_loss", 0.5)),
        answers.of_table(pa.Table.from_pandas(measurements), Target("validation_loss", 0.5)),
    ):
        assert np.transpose(found).tolist() == [[0, 1, 2], [2, 0, 1], [3, 0, 8]]
    strict = answers.of_table(pa.Table.from_pandas(measurements), Target("validation_loss", 0.5), Rule("released", 1))
    assert np.transpose(strict).tolist() == [[0, 2, 4], [3, 0, 8]]
    for unmeasured in (
        answers.of_frame(measurements, Target("test_loss", 0.5)),
        answers.of_table(pa.Table.from_pandas(measurements), Target("test_loss", 0.5)),
    ):
        assert unmeasured.answer() is None


def test_answer_of_a_study_is_its_first_trial() -> None:
    reached = Reached(np.array([7, 2, 1]), np.array([8, 8, 2]), np.array([9, 9, 10]))
    assert reached.answer() == Answer(2, 9, 2)
    assert reached.of([1, 7]).answer() == Answer(2, 9, 7)
    assert reached.of([]).answer() is None


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
