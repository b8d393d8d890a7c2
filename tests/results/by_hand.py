"""Small studies with their answers worked out row by row, as the definition has it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results import store
from results.catalog import scan
from results.plans import schema
from results.plans.recorded import Recorded
from results.plans.search_space import SearchSpace
from results.plans.study import Target
from results.rules.answers import MINIMUM, Answer, Rule
from results.storage.commits import Commit, Folder
from results.storage.compaction import Piece

METRIC = "validation_error"


class Ran(NamedTuple):
    """A trial: how it ended, its rows (step, value), in order, and why it is INCOMPLETE if it is.

    A value of None was not measured; NaN was, and diverged.
    """

    status: str
    rows: Sequence[tuple[int, float | None]]
    reason: str = "unstated"


def study(**changes: object) -> Recorded:
    fields: dict = {"source": "made-up", "dataset": "a/b", "model": "m", "optimizer": "o", "batch_size": 8}
    return Recorded(**fields | {"space": SearchSpace({}), "details": {}, "trials": 9} | changes)


def tables(trials: Mapping[int, Ran], dtype: type = np.float64, about: Recorded | None = None) -> Piece:
    about = about or study()
    rows = [(trial, *row) for trial, ran in trials.items() for row in ran.rows]
    columns = zip(*rows, strict=True) if rows else [(), (), ()]
    measured = dict(zip(("trial", "step", METRIC), columns, strict=True)) | {"study": [about.name] * len(rows)}
    measured[METRIC] = pa.array([None if v is None else dtype(v) for v in measured[METRIC]], pa.from_numpy_dtype(dtype))
    ended = {
        "study": [about.name] * len(trials),
        "trial": list(trials),
        "status": [ran.status for ran in trials.values()],
        "reason": [ran.reason if ran.status == "INCOMPLETE" else None for ran in trials.values()],
        "steps": [ran.rows[-1][0] if ran.rows else 0 for ran in trials.values()],
    }
    run = {field: getattr(about, field) for field in ("dataset", "model", "optimizer", "batch_size")}
    run |= {
        "pruning": about.search.pruning,
        "study": about.name,
        "planned_trials": about.trials,
        "plan": about.plan_json,
    }
    return Piece(
        schema.build(schema.STUDIES, {name: [value] for name, value in run.items()}, {}),
        schema.build(schema.TRIALS, ended, {}),
        schema.build(schema.MEASUREMENTS, measured, {METRIC: pa.from_numpy_dtype(dtype)}),
    )


def answer_of(trials: Mapping[int, Ran], value: float, rule: Rule, dtype: type = np.float64) -> Answer | None:
    """The definition, row by row."""
    counting = [i for i, ran in trials.items() if ran.status == "COMPLETE"][: rule.first] if rule.first else [*trials]
    best: tuple[int, int] | None = None
    lows = []
    for trial in counting:
        told = [(step, measured) for step, measured in trials[trial].rows if measured is not None]
        for (before, _), (step, measured) in itertools.pairwise([(0, np.nan), *told]):
            if dtype(measured) < dtype(value) or (dtype(measured) == dtype(value) and not rule.strict):
                best = min(best or (step, trial), (step, trial))
                lows.append(before)
                break
    return Answer(min(lows), *best) if best else None


def publish(folder: Folder, about: Recorded, trials: Mapping[int, Ran], dtype: type = np.float64) -> None:
    """Stores and commits a study, as an import does."""
    store.ask(folder, about)
    with store.claim(folder, about.name) as claim:
        claim.write(tables(trials, dtype, about)._asdict())
        claim.commit(about)


def scanned(studies: list[Commit], target: Target, rule: Rule = MINIMUM) -> dict[str, Answer]:
    """The answers from every row of the measurements."""
    by_name = {commit.name: scan.reached(commit, target, rule).answer() for commit in studies}
    return {name: answer for name, answer in by_name.items() if answer}
