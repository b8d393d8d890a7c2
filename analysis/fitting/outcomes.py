"""Outcomes: the trials of a curve that count for its target, and what they say beside their steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.fitting import samples
from analysis.trials import edges, trials
from analysis.trials.edges import Edge
from analysis.trials.trials import StudyTrials
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.study import REASONS_TO_RERUN


class Outcomes(NamedTuple):
    """The trials of the studies of a curve, for a target.

    Attributes:
      trials: one row per trial that counts, sorted by batch_size, study and trial: these, budget_steps, steps_low,
        steps_high (NaN where the target was not reached) and point, its place in its search space (see
        ``samples.coordinates``). A trial that was lost, failed or ran out of time counts only if it reached the target;
        one that confirms another does not.
      notes: what a reader has to know.
      at_edge: by batch size, the ends of its search space that the best trials crowd at; None where unknown.
    """

    trials: pd.DataFrame
    notes: tuple[str, ...]
    at_edge: Mapping[int | None, Sequence[Edge] | None]


def collect(studies: Iterable[StudyTrials]) -> Outcomes:
    """Collects the trials of the studies of a curve that count for its target."""
    rows, apart, at_edge = [], {}, {}
    for own in studies:
        table = own.rows[own.rows["role"] == "search"]
        apart[own.study.name] = _examples_apart(own.study)
        reached = table["outcome"] == trials.REACHED
        outcome = table[["trial", "steps_high"]].assign(
            steps_low=table["steps_low"].where(reached),
            study=own.study.name,
            batch_size=own.study.batch_size,
            budget_steps=_budget(own.study, table),
            point=pd.Series(samples.coordinates(own.study.space, table[own.metaparameters]), table.index, object),
        )
        rows.append(outcome[reached | ~table["reason"].isin(REASONS_TO_RERUN)])
        at_edge[own.study.batch_size] = None if own.study.pruning == "exact" else _at_edge(own)
    trials_of_target, notes = _bracketed(pd.concat(rows, ignore_index=True), apart)
    return Outcomes(trials_of_target.sort_values(["batch_size", "study", "trial"]), notes, at_edge)


def _at_edge(own: StudyTrials) -> Sequence[Edge] | None:
    rows = own.rows_in_k
    values = {name: rows[name].to_numpy(np.float64) for name in own.metaparameters}
    return edges.find_edges(values, trials.bounds(rows)[1], own.study.space)


def _bracketed(rows: pd.DataFrame, apart: Mapping[str, float | None]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Trials of which only the end was published, with the evaluation before it.

    Args:
      rows: as ``Outcomes.trials``.
      apart: how many examples evaluations are apart at most, by study; NaN if its trials do not tell, None of studies
        whose evaluations are known.
    """
    stated = {name: value for name, value in apart.items() if value is not None}
    widest = max((value for value in stated.values() if not np.isnan(value)), default=np.nan)
    if np.isnan(widest):
        return rows, ()
    silent = [name for name, value in stated.items() if np.isnan(value)]
    examples = rows["study"].map(stated | dict.fromkeys(silent, widest))
    before = (rows["steps_high"] - examples / rows["batch_size"]).clip(lower=0)
    sizes = sorted(set(rows.loc[rows["study"].isin(silent), "batch_size"]))
    note = f"evaluations at {text.batch_sizes(sizes)} are taken to be as far apart as at the others"
    return rows.assign(steps_low=before.where(before.notna(), rows["steps_low"])), (note,) if sizes else ()


def _examples_apart(study: Plan) -> float | None:
    """Largest distance of evaluations in examples, where a source states only that; NaN if it does not."""
    details = study.plan().get("details", {})
    if "evaluation_samples" not in details:
        return None
    value = details["evaluation_samples"]
    return float("nan") if value is None else float(value)


def _budget(study: Plan, trials: pd.DataFrame) -> int:
    """The most steps a trial may take; of a study whose source does not say that, the most that one took."""
    if not KINDS[study.kind].recorded:
        return study.budget_steps
    most = trials["steps"].max()
    return 1 if pd.isna(most) else int(most)
