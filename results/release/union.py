"""The union of two copies of a study: the trials that one copy can take from the other, and contradictions."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results.aliases import Row
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.study import REASONS_TO_RERUN
from results.storage import compaction
from results.storage.compaction import Piece, select_trials

_KEYS = {"measurements": ["trial", "step"], "trials": ["trial"]}


class Difference(NamedTuple):
    """The first difference between two copies of a trial: first by step, then in the trials table.

    Attributes:
      what: the differing value, such as ``validation_loss at step 20``.
      here, there: values in the two copies.
      values: number of differing values. If one copy lacks a row, all values in this row count.
    """

    what: str
    here: object
    there: object
    values: int

    def describe(self, here: object, there: object) -> str:
        """Describes the difference, given the names of the places."""
        return f"{self.what} is {_value_text(self.here)} in {here} and {_value_text(self.there)} in {there}"


class Union(NamedTuple):
    """The result of comparing two copies of a study: ours and theirs.

    Attributes:
      take: trials to take from the other copy: new trials, longer trials, and finished trials that we would have to
        rerun.
      conflicts: contradictions, by trial. In our own studies, the trial is finished in both copies. In published
        studies, neither curve continues the other.
      clashes: columns with different types. If there are any, no values are compared.
      finished: trials that are finished in one copy but must be rerun in the other. The finished trial is kept.
      unfinished: differences in trials that must be rerun in both copies. The longer trial is kept, or ours if both are
        equally long.
      shorter: differences in trials of a published study in which our curve continues theirs.
    """

    take: frozenset[int]
    conflicts: Mapping[int, Difference] = {}
    clashes: Collection[Difference] = ()
    finished: frozenset[int] = frozenset()
    unfinished: Mapping[int, Difference] = {}
    shorter: Mapping[int, Difference] = {}


def union(ours: Piece, theirs: Piece, study: Plan) -> Union:
    """Compares two copies of a study. Ignores the run, machine, times and role of each trial.

    Args:
      ours, theirs: tables with one row per trial, and measurements sorted by (trial, step).
      study: the plan. If it uses pruning, the curves are pruned jointly before the comparison.
    """
    clashes = [clash for table in _KEYS for clash in _clashes(getattr(ours, table), getattr(theirs, table))]
    if clashes:
        return Union(frozenset(), clashes=clashes)
    return _of_others(ours, theirs) if KINDS[study.kind].recorded else _of_ours(ours, theirs, study)


def _of_others(ours: Piece, theirs: Piece) -> Union:
    our_ids, their_ids = (set(piece.trials["trial"].to_pylist()) for piece in (ours, theirs))
    differing = _differing(*(select_trials(piece, our_ids & their_ids) for piece in (ours, theirs)))
    longer = frozenset(trial for trial in differing if _goes_on(ours, theirs, trial))
    shorter = {trial: how for trial, how in differing.items() if _goes_on(theirs, ours, trial)}
    conflicts = {trial: how for trial, how in differing.items() if trial not in longer and trial not in shorter}
    return Union(frozenset(their_ids - our_ids) | longer, conflicts, shorter=shorter)


def _of_ours(ours: Piece, theirs: Piece, study: Plan) -> Union:
    our_reruns, their_reruns = _to_rerun(ours), _to_rerun(theirs)
    both = our_reruns.keys() & their_reruns.keys()
    better = {trial for trial in both if our_reruns[trial] and not their_reruns[trial]}
    unfinished = _differing(
        *(select_trials(piece, {t for t in both if our_reruns[t] and their_reruns[t]}) for piece in (ours, theirs))
    )
    longer = {trial for trial in unfinished if _steps(theirs, trial) > _steps(ours, trial)}
    take = frozenset(their_reruns.keys() - our_reruns.keys() | better | longer)
    finished = {trial for trial in both if not our_reruns[trial] and not their_reruns[trial]}
    ours, theirs = select_trials(ours, our_reruns.keys() - better - longer), select_trials(theirs, take | finished)
    if study.search.pruning == "exact":
        ours, theirs = (compaction.merge(pieces, study) for pieces in ([theirs, ours], [ours, theirs]))
    conflicts = _differing(select_trials(ours, finished), select_trials(theirs, finished))
    gave_way = frozenset(trial for trial in both if our_reruns[trial] != their_reruns[trial])
    return Union(take, conflicts, finished=gave_way, unfinished=unfinished)


def _to_rerun(piece: Piece) -> dict[int, bool]:
    """Returns whether each trial ended for a reason that requires a rerun."""
    trials = zip(piece.trials["trial"].to_pylist(), piece.trials["reason"].to_pylist(), strict=True)
    return {trial: reason in REASONS_TO_RERUN for trial, reason in trials}


def _steps(piece: Piece, trial: int) -> int:
    return _row(piece, trial)["steps"] or 0


def _row(piece: Piece, trial: int) -> Row:
    return _of_trial(piece.trials, trial).to_pylist()[0]


def _of_trial(table: pa.Table, trial: int) -> pa.Table:
    ids = table["trial"].to_numpy()
    start, end = np.searchsorted(ids, trial), np.searchsorted(ids, trial, "right")
    return table.slice(start, end - start)


def _goes_on(shorter: Piece, longer: Piece, trial: int) -> bool:
    """Returns whether an unfinished curve continues in the other copy. Any other ending continues a lost trial."""
    last = _row(shorter, trial)
    start, curve = (_of_trial(piece.measurements, trial) for piece in (shorter, longer))
    if last["status"] != "INCOMPLETE" or len(start) > len(curve):
        return False
    found_again = last["reason"] == "lost" != _row(longer, trial)["reason"]
    return (len(start) < len(curve) or found_again) and not _cells(start, curve.slice(0, len(start)), "measurements")


def _clashes(ours: pa.Table, theirs: pa.Table) -> list[Difference]:
    return [
        Difference(f"the type of {name}", ours.schema.field(name).type, theirs.schema.field(name).type, 1)
        for name in ours.column_names
        if name in theirs.column_names and ours.schema.field(name).type != theirs.schema.field(name).type
    ]


def _differing(ours: Piece, theirs: Piece) -> dict[int, Difference]:
    """Returns the differences in trials that exist in both copies, sorted by trial."""
    differences = _cells(ours.measurements, theirs.measurements, "measurements")
    for trial, difference in _cells(ours.trials, theirs.trials, "trials").items():
        first = differences.get(trial, difference)
        differences[trial] = first._replace(values=first.values + (difference.values if trial in differences else 0))
    return dict(sorted(differences.items()))


def _cells(ours: pa.Table, theirs: pa.Table, table: str) -> dict[int, Difference]:
    """Returns the first difference between the rows of each differing trial."""
    import pandas as pd

    # A column missing on one side becomes null.
    joined = pa.concat_tables([ours, theirs], promote_options="default")
    frame = joined.drop_columns([name for name in ("study", "run", "role") if name in joined.column_names]).to_pandas()
    frame = frame.set_index(_KEYS[table])
    our_rows, their_rows = frame.iloc[: len(ours)], frame.iloc[len(ours) :]
    index = our_rows.index.union(their_rows.index)
    is_ours = index.isin(our_rows.index)
    is_missing = is_ours != index.isin(their_rows.index)  # from one of the copies
    our_rows, their_rows = our_rows.reindex(index), their_rows.reindex(index)
    unequal = ~((our_rows == their_rows) | (our_rows.isna() & their_rows.isna())).to_numpy(bool)
    values = np.maximum(unequal.sum(axis=1), is_missing)
    rows = np.flatnonzero(values)
    trials = index.get_level_values("trial")[rows]
    counts = pd.Series(values[rows]).groupby(trials).sum().to_dict()
    differences = {}
    for row, trial in zip(rows, trials.tolist(), strict=True):
        if trial in differences:
            continue
        at_step = f"step {index[row][1]}" if table == "measurements" else ""
        if is_missing[row]:
            sides = ("measured", "missing") if is_ours[row] else ("missing", "measured")
            differences[trial] = Difference(at_step, *sides, counts[trial])
            continue
        column = int(np.argmax(unequal[row]))
        what = str(our_rows.columns[column]) + (f" at {at_step}" if at_step else "")
        differences[trial] = Difference(what, our_rows.iat[row, column], their_rows.iat[row, column], counts[trial])
    return differences


def _value_text(value: object) -> object:
    if value is None or value != value:
        return "nothing"
    return int(value) if isinstance(value, float) and value.is_integer() else value
