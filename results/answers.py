"""When a trial reached a target: the censoring interval its evaluations leave."""

import pandas as pd

from results.study import Target


def intervals(measurements: pd.DataFrame, target: Target) -> pd.DataFrame:
    """First evaluation at or past the target, for every trial that reached it, whatever its status.

    Args:
      measurements: rows (study, trial, step, metrics), sorted by study, trial, step.
      target: metric and value.

    Returns:
      Columns study, trial, steps_low (the evaluation before, 0 if none) and steps_high: steps to target lies in
      (steps_low, steps_high].
    """
    columns = ["study", "trial", "steps_low", "steps_high"]
    if target.metric not in measurements:
        return pd.DataFrame(columns=columns)
    step_before = measurements.groupby(["study", "trial"], observed=True)["step"].shift(fill_value=0)
    rows = measurements.assign(steps_low=step_before, steps_high=measurements["step"])
    rows = rows[target.reached(measurements[target.metric].to_numpy())]
    return rows.drop_duplicates(["study", "trial"])[columns].reset_index(drop=True)
