"""The union of what two places hold of one study: which trials one can take from the other, and where they disagree."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results import compaction
from results.asked import APART
from results.compaction import Piece
from results.plans import AnyStudy
from results.study import REASONS_TO_RERUN, Study


class Union(NamedTuple):
    """What comes of comparing two places.

    Attributes:
      take: ids of the trials of the other place that are wanted: new ones, and finished ones where ours have yet to be
        run again.
      conflicts: a line for every trial that both have finished, and that is not the same in both.
    """

    take: frozenset[int]
    conflicts: list[str]


def union(ours: Piece, theirs: Piece, study: AnyStudy) -> Union:
    """Compares what two places hold of a study; which run made a trial, where and how fast, is no difference.

    Args:
      ours, theirs: every trial once, measurements sorted by (trial, step).
      study: if pruned, curves are compared as far as both together leave them.
    """
    clash = [
        line for table in ("trials", "measurements") for line in _clash(getattr(ours, table), getattr(theirs, table))
    ]
    if clash:
        return Union(frozenset(), clash)
    here, there = _to_rerun(ours), _to_rerun(theirs)
    both = here.keys() & there.keys()
    better = {trial for trial in both if here[trial] and not there[trial]}
    take = frozenset(there.keys() - here.keys() | better)
    if isinstance(study, Study) and max(take, default=0) >= APART:  # without what repeats another trial than the best
        take &= frozenset(compaction.merge([ours, theirs], study).trials["trial"].to_pylist())
    finished = {trial for trial in both if not here[trial] and not there[trial]}
    ours, theirs = only(ours, here.keys() - better), only(theirs, take | finished)
    if study.pruning == "exact":
        ours, theirs = (compaction.merge(pieces, study) for pieces in ([theirs, ours], [ours, theirs]))
    ours, theirs = only(ours, finished), only(theirs, finished)
    differing = _differing(ours.measurements, theirs.measurements) | _differing(ours.trials, theirs.trials)
    return Union(take, [f"trial {trial}: {how}" for trial, how in sorted(differing.items())])


def only(piece: Piece, trials: Collection[int]) -> Piece:
    """The rows of some trials; the rows of studies stay."""
    wanted = np.fromiter(trials, np.int64, len(trials))

    def kept(table: pa.Table) -> pa.Table:
        return table.filter(pa.array(np.isin(table["trial"].to_numpy(), wanted)))

    return piece._replace(trials=kept(piece.trials), measurements=kept(piece.measurements))


def _to_rerun(piece: Piece) -> dict[int, bool]:
    """Whether each trial ended for a reason worth another try."""
    reasons = piece.trials["reason"].to_pylist()
    return {
        trial: reason in REASONS_TO_RERUN
        for trial, reason in zip(piece.trials["trial"].to_pylist(), reasons, strict=True)
    }


def _clash(ours: pa.Table, theirs: pa.Table) -> list[str]:
    return [
        f"{name} is {ours.schema.field(name).type} here and {theirs.schema.field(name).type} there"
        for name in ours.column_names
        if name in theirs.column_names and ours.schema.field(name).type != theirs.schema.field(name).type
    ]


def _differing(ours: pa.Table, theirs: pa.Table) -> dict[int, str]:
    """The trials whose rows are not the same, with the first difference of each."""
    # Without a column of the other, null.
    joined = pa.concat_tables([ours, theirs], promote_options="default")
    frame = joined.drop_columns([name for name in ("study", "run") if name in joined.column_names]).to_pandas()
    here, there = frame.iloc[: len(ours)], frame.iloc[len(ours) :]
    rows = [side["trial"].value_counts() for side in (here, there)]
    uneven = rows[0].sub(rows[1], fill_value=0)
    found = {
        int(trial): f"{rows[0].get(trial, 0)} rows here and {rows[1].get(trial, 0)} there"
        for trial in uneven[uneven != 0].index
    }
    here, there = (side[~side["trial"].isin(list(found))].reset_index(drop=True) for side in (here, there))
    for name in here.columns:
        unequal = ~((here[name] == there[name]) | (here[name].isna() & there[name].isna()))
        for row in here[unequal].drop_duplicates("trial").index:
            at = f" at step {here['step'][row]}" if "step" in here.columns and name != "step" else ""
            trial = int(here["trial"][row])
            found.setdefault(trial, f"{name}{at} is {here[name][row]} here and {there[name][row]} there")
    return found
