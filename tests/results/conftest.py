"""Stores of numbers that are functions of (trial, step): two agree on what both hold."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pytest

from results import store
from results.durable import Folder
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.plan import Plan
from results.plans.recorded import Recorded
from results.plans.search_space import SearchSpace
from results.storage import commits

MLPERF = {"licence": "Apache-2.0", "citation": "MLCommons, github.com/mlcommons/logging"}


@pytest.fixture(scope="session")
def same_values() -> Callable[[Folder, Folder], None]:
    """Compares two stores or releases, study by study, value by value, with the bits of every float."""

    def compare(one: Folder, other: Folder) -> None:
        ours, theirs = ({commit.name: commit for commit in store.catalogue(folder)} for folder in (one, other))
        assert ours.keys() == theirs.keys()
        for name, commit in ours.items():
            for field in ("plan", "trials", "repeats", "ledger", "metrics"):
                assert getattr(commit, field) == getattr(theirs[name], field), (name, field)
            for table in schema.COLUMNS:
                rows, others = commits.read_table(commit, table), commits.read_table(theirs[name], table)
                assert sorted(rows.column_names) == sorted(others.column_names)
                for column in rows.column_names:
                    a, b = rows[column], others[column]
                    assert a.type == b.type and a.is_null().equals(b.is_null()), (name, column)
                    if pa.types.is_floating(a.type):
                        assert a.to_numpy().tobytes() == b.to_numpy().tobytes(), (name, column)
                    else:
                        assert a.to_pylist() == b.to_pylist(), (name, column)

    return compare


@pytest.fixture(scope="session")
def make_recorded() -> Callable[..., Recorded]:
    """Builds a study that somebody else published; keywords replace its fields."""

    def make(**changes: object) -> Recorded:
        fields: dict = {
            "source": "mlperf-rcp",
            "dataset": "solution_quality/mnist",
            "model": "cnn+pool",
            "optimizer": "sgd",
            "batch_size": 32,
            "space": SearchSpace({}),
            "details": MLPERF,
            "trials": 3,
        }
        return Recorded(**fields | changes)

    return make


@pytest.fixture(scope="session")
def fill() -> Callable[..., None]:
    """Writes a run of some trials of a study into a store, and commits; with a ``reason``, so many ``rows`` of each."""

    def write(
        folder: Folder,
        study: Plan,
        ids: Iterable[int] | None = None,
        *,
        reason: str | None = None,
        rows: int = 0,
        scale: float = 1.0,
        started_at: str = "2026-03-04T05:06:07+00:00",
        commit: bool = True,
    ) -> None:
        store.ask(folder, study)
        with store.claim(folder, study.name) as claim:
            trials = list(range(study.trials) if ids is None else ids)
            claim.write(_tables(study, trials, reason, rows, scale, started_at))
            if commit:
                claim.commit(study)

    return write


def _tables(
    study: Plan, ids: list[int], reason: str | None, rows: int, scale: float, started_at: str
) -> dict[str, pa.Table]:
    curves = {i: tuple(column[: rows if reason else None] for column in _curve(study, i)) for i in ids}
    metric = "validation_loss" if isinstance(study, BatchStudy) else "test_error"
    drawn = {name: [ranged.at(i * 0.37 % 1) for i in ids] for name, ranged in study.space.items()}
    about = {"dataset": study.labels.dataset, "model": study.labels.model, "optimizer": study.labels.optimizer}
    about |= {"study": study.name, "plan": study.plan_json, "pruning": study.search.pruning, "started_at": started_at}
    trials = {
        "study": [study.name] * len(ids),
        "trial": ids,
        "seed": ids,
        "status": ["COMPLETE" if reason is None else "INCOMPLETE"] * len(ids),
        "reason": [reason] * len(ids),
        "steps": [int(curves[i][0][-1]) if len(curves[i][0]) else 0 for i in ids],
    }
    step = np.concatenate([curves[i][0] for i in ids])
    measured = {
        "study": [study.name] * len(step),
        "trial": np.repeat(ids, [len(curves[i][0]) for i in ids]),
        "step": step,
        metric: np.concatenate([curves[i][1] for i in ids]) * scale,
    }
    row = {name: [value] for name, value in about.items()} | {"batch_size": [study.batch_size]}
    kind = pa.float32() if isinstance(study, BatchStudy) else pa.float64()
    return {
        "studies": schema.build(schema.STUDIES, row, {}),
        "trials": schema.build(schema.TRIALS, trials | drawn, dict.fromkeys(drawn, pa.float64())),
        "measurements": schema.build(schema.MEASUREMENTS, measured, {metric: kind}),
    }


def _curve(study: Plan, trial: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses of a trial until it reached all targets, or its budget."""
    step = study.evaluations if isinstance(study, BatchStudy) else np.array([10, 20, 30], np.int32)
    loss = np.exp(-step * (1 + trial * 7 % 11) / 500)
    for target in study.search.targets:
        reached = np.flatnonzero(target.reached(loss.astype(np.float32)))
        stop = int(reached[0]) + 1 if len(reached) else len(step)
        step, loss = step[:stop], loss[:stop]
    return step, loss
