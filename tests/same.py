"""Whether two stores hold the same results."""

from pathlib import Path

import pandas as pd

from results import store
from results.plans import schema


def results(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A table without what says where results are from and what they took; of studies each once."""
    others = [column.name for column in schema.COLUMNS[table] if column.category != schema.RESULT]
    others += [column.name for column in schema.COSTS if column.category != schema.RESULT]
    left = frame.drop(columns=[name for name in others if name in frame])
    return left.drop_duplicates(ignore_index=True) if table == "studies" else left


def assert_same(one: Path, other: Path) -> None:
    """The two stores hold the same studies, trials and measurements, to the bit."""
    ours, theirs = store.read(one), store.read(other)
    for table in schema.COLUMNS:
        pd.testing.assert_frame_equal(
            results(table, getattr(ours, table)), results(table, getattr(theirs, table)), check_exact=True
        )
    assert len(ours.measurements) > 0
