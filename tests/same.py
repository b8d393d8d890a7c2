"""Whether two stores hold the same results."""

from pathlib import Path

import pandas as pd

from results import store
from results.plans import schema

# Columns that say where results are from and what they took.
STUDIES = (
    *("run", "planned_trials", "started_at", "code_version", "git_commit", "python_version", "package_versions"),
    *("backend", "device_kind", "device_count", "emulated", "physical_cores", "affinity"),
    *("lanes", "lane_strategy", "shards", "microbatches"),
    *("compile_seconds", "run_seconds", "train_seconds", "evaluate_seconds", "trial_steps"),
    *("seconds_per_step", "seconds_per_epoch"),
)
MEASUREMENTS = ("row_half_seconds", "column_half_seconds", "evaluation_seconds")
OF_A_RUN = {"studies": STUDIES, "trials": ("run",), "measurements": MEASUREMENTS}


def results(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A table without what says where results are from and what they took; of studies each once."""
    left = frame.drop(columns=[name for name in OF_A_RUN[table] if name in frame])
    return left.drop_duplicates(ignore_index=True) if table == "studies" else left


def assert_same(one: Path, other: Path) -> None:
    """The two stores hold the same studies, trials and measurements, to the bit."""
    ours, theirs = store.read(one), store.read(other)
    for table in schema.COLUMNS:
        pd.testing.assert_frame_equal(
            results(table, getattr(ours, table)), results(table, getattr(theirs, table)), check_exact=True
        )
    assert len(ours.measurements) > 0
