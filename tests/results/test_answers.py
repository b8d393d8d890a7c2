import numpy as np
import pandas as pd

from results import answers
from results.study import Target


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
