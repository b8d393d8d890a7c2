"""Factorizations epoch by epoch: what is kept of a killed one, how trials end, and that no time holds compiling."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.compiled import compile_cache
from harness.processes.shutdown import Shutdown
from harness.run import COMPILING, TRAINING, Record, RunProgress
from harness.runners import factorizations
from harness.trials import search
from harness.trials.checkpoints import Checkpoint, Checkpoints
from results import durable
from results.plans.factorization import Factorization
from results.plans.search_space import SearchSpace
from tests.workloads.graphs import ratings
from workloads.factorization.ratings import Ratings
from workloads.factorization.training import Training

EPOCHS = 4


def small() -> Ratings:
    """Few lengths of rows, which are quickly compiled for."""
    return ratings(rows=60, columns=48, links=300)


class Kept(Checkpoints):
    """Remembers everything it is told to save."""

    def __init__(self, store: Path, study: str):
        super().__init__(store / study, 0.0)
        self.seen: dict[tuple[int, int], list[bytes]] = {}

    def save(self, trial: int, key: str, checkpoint: Checkpoint, part: tuple[int, int] = (0, 1)) -> None:
        super().save(trial, key, checkpoint, part)
        self.seen[trial, checkpoint.step] = [array.tobytes() for array in checkpoint.arrays]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> None:
    compile_cache.enable()


@pytest.fixture(scope="module")
def study(factorization: Factorization) -> Factorization:
    return dataclasses.replace(factorization, dim=8, epochs=EPOCHS, table_dtype="bfloat16")


def run(study: Factorization, ids: list[int], store: Path, **how: object) -> tuple[list[Record], Kept]:
    records: list[Record] = []
    kept = Kept(store, study.name)
    factorizations.run(study, search.draw(study, ids), small(), kept, on_finished=records.append, **how)  # type: ignore[arg-type]
    return records, kept


def assert_same(one: Record, other: Record) -> None:
    assert one.outcomes == other.outcomes
    for name in ("trial", "step"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in (*factorizations.METRICS, "bytes_per_core"):
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name])


@pytest.fixture(scope="module")
def calm(study: Factorization, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], Kept]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALING_LIMITS_CACHE", str(tmp_path_factory.mktemp("cache")))
        told: list[RunProgress] = []
        records, kept = run(study, [0, 1], Path("calm"), on_progress=told.append)
    assert [progress.doing for progress in told[:2]] == [COMPILING, TRAINING]
    assert [progress.steps for progress in told[2:]] == list(range(1, 2 * EPOCHS + 1))
    assert [dict(progress.live) for progress in told[2:4]] == [{1: 1}, {2: 1}]
    assert dict(told[-1].ended) == {EPOCHS: 2} and told[-1].trials_ended == 2
    assert [progress.saved for progress in told[1:]] == [False, *[True] * (2 * EPOCHS)]
    assert 0 < told[-1].train_seconds < told[-1].seconds
    assert not list(kept.folder.glob("*"))
    return records, kept


def test_rows_of_every_epoch_and_no_compiling_in_them(calm: tuple[list[Record], Kept]) -> None:
    records, _ = calm
    assert [record.trial.tolist() for record in records] == [[0] * EPOCHS, [1] * EPOCHS]
    for record in records:
        assert record.step.tolist() == [1, 2, 3, 4]
        assert list(record.metrics) == list(factorizations.MEASURED)
        assert all(end.status == "COMPLETE" for end in record.outcomes.values())
        assert record.metrics["train_objective"][-1] < record.metrics["train_objective"][0]
        for held in ("bytes_per_core", "peak_bytes_per_core"):
            assert record.metrics[held].dtype == np.int64
        assert (record.metrics["peak_bytes_per_core"] > record.metrics["bytes_per_core"]).all()
        for half in ("row_half_seconds", "column_half_seconds", "evaluation_seconds"):
            assert np.all(record.metrics[half] > 0)
            assert np.all(record.metrics[half] < record.compile_seconds)
    assert records[1].trial_steps == 2 * EPOCHS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills")
@pytest.mark.parametrize(
    ("where", "epoch"),
    [
        pytest.param("between", 2, marks=pytest.mark.slow),
        ("within", 1),
        pytest.param("saving", 3, marks=pytest.mark.slow),
    ],
)
def test_a_kill_changes_no_factor_and_no_row(
    study: Factorization, calm: tuple[list[Record], Kept], where: str, epoch: int, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("dying.py")
    path = os.pathsep.join(map(str, (program.parents[2], program.parents[1] / "workloads")))
    command = [sys.executable, str(program), str(tmp_path), json.dumps(study.plan()), where, str(epoch)]
    died = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    saved = epoch - (where == "saving")
    (record,), kept = run(study, [0], tmp_path)
    assert_same(record, calm[0][0])
    assert list(kept.seen) == [(0, done) for done in range(saved + 1, EPOCHS)]
    for at, arrays in kept.seen.items():
        assert arrays == calm[1].seen[at]


def test_without_time_trials_wait_and_go_on(
    study: Factorization, calm: tuple[list[Record], Kept], tmp_path: Path
) -> None:
    records, kept = run(study, [0, 1], tmp_path, time_limit_seconds=1e-9)
    assert [end for record in records for end in record.outcomes.values()] == [
        factorizations.TrialOutcome("INCOMPLETE", "time_limit", 1),
        factorizations.TrialOutcome("INCOMPLETE", "time_limit", 0),
    ]
    assert [record.step.tolist() for record in records] == [[1], []]
    assert list(kept.folder.iterdir())
    records, _ = run(study, [0, 1], tmp_path)
    for record, other in zip(records, calm[0], strict=True):
        assert_same(record, other)
    assert not list(kept.folder.glob("*"))


def test_where_nothing_can_be_saved_training_goes_on(
    study: Factorization,
    calm: tuple[list[Record], Kept],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "replace", full)
    shutdown = Shutdown()
    (record,), _ = run(study, [0], tmp_path, shutdown=shutdown)
    assert_same(record, calm[0][0])
    assert not shutdown.saved
    assert "running trials are not saved: [Errno 28] No space left on device\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "what",
    [
        "another dtype",
        "too many rows",
        *(
            pytest.param(what, marks=pytest.mark.slow, id=what)
            for what in ("an array less", "another shape", "other columns")
        ),
    ],
)
def test_a_checkpoint_that_is_none_of_ours_is_not_gone_on_from(
    study: Factorization, calm: tuple[list[Record], Kept], what: str, tmp_path: Path
) -> None:
    keys: list[str] = []

    class Keyed(Kept):
        def save(self, trial: int, key: str, checkpoint: Checkpoint, part: tuple[int, int] = (0, 1)) -> None:
            super().save(trial, key, checkpoint, part)
            keys.append(key)

    kept = Keyed(tmp_path, study.name)
    factorizations.run(study, search.draw(study, [0]), small(), kept, time_limit_seconds=1e-9)
    saved = kept.load(0, keys[0])
    assert saved is not None
    first, *others = saved.arrays
    made = {
        "an array less": saved._replace(arrays=others),
        "another shape": saved._replace(arrays=[first[:-1], *others]),
        "another dtype": saved._replace(arrays=[first.astype(np.float32), *others]),
        "other columns": saved._replace(rows=[{"recall": 0.5}]),
        "too many rows": saved._replace(step=EPOCHS + 1, rows=saved.rows * (EPOCHS + 1)),
    }
    kept.save(0, keys[0], made[what])
    (record,), kept = run(study, [0], tmp_path)
    assert_same(record, calm[0][0])
    assert list(kept.seen) == [(0, done) for done in range(1, EPOCHS)]


def test_evaluated_now_and_then(study: Factorization, calm: tuple[list[Record], Kept], tmp_path: Path) -> None:
    rarely = dataclasses.replace(study, evaluate_every=3)
    (record,), kept = run(rarely, [0], tmp_path)
    (whole, _), all_kept = calm
    assert record.step.tolist() == [3, 4]
    for name in (*factorizations.METRICS, "bytes_per_core", "peak_bytes_per_core"):
        np.testing.assert_array_equal(record.metrics[name], whole.metrics[name][[2, 3]])
    assert {at: arrays for at, arrays in all_kept.seen.items() if at[0] == 0} == kept.seen
    assert record.outcomes[0] == factorizations.TrialOutcome("COMPLETE", None, EPOCHS)
    halves = sum(record.metrics[f"{half}_half_seconds"] for half in ("row", "column"))
    assert halves @ [3, 1] == pytest.approx(record.train_seconds, rel=1e-5)  # each is the mean since the one before


def test_out_of_time_between_evaluations(study: Factorization, tmp_path: Path) -> None:
    rarely = dataclasses.replace(study, evaluate_every=3)
    (record,), kept = run(rarely, [0], tmp_path, time_limit_seconds=1e-9)
    assert record.outcomes == {0: factorizations.TrialOutcome("INCOMPLETE", "time_limit", 0)}
    assert record.step.tolist() == []
    (record,), kept = run(rarely, [0], tmp_path)
    assert record.step.tolist() == [3, 4]
    assert [at for _, at in kept.seen] == [2, 3]


def test_tables_that_are_not_finite_end_a_trial(study: Factorization, tmp_path: Path) -> None:
    tiny = {name: {"scale": "DISCRETE", "values": [1e-35]} for name in study.space}  # below what float32 can divide by
    space = SearchSpace.from_plan(tiny)
    singular = dataclasses.replace(study, solver="cholesky", table_dtype="float32", space=space, evaluate_every=EPOCHS)
    (record,), kept = run(singular, [0], tmp_path)
    assert record.outcomes[0] == factorizations.TrialOutcome("INFEASIBLE", None, 1)
    assert np.isnan(record.metrics["train_objective"]).all()
    for recall in factorizations.RECALLS:
        assert np.isnan(record.metrics[f"{recall}_error"]).all()
    assert record.metrics["row_half_seconds"][0] > 0
    assert not list(kept.folder.glob("*"))


def test_non_finite_objective_ends_a_trial_with_its_measurements(
    study: Factorization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = []

    def overflows(*_: object) -> dict[str, float]:
        evaluated.append(1)
        recalls = {recall: 0.125 * (i + 1) for i, recall in enumerate(factorizations.RECALLS)}
        return recalls | {"objective": 1e39 if len(evaluated) > 2 else 1.0}

    monkeypatch.setattr(Training, "evaluate", overflows)
    (record, other), _ = run(study, [0, 1], tmp_path)
    assert record.outcomes[0] == factorizations.TrialOutcome("INFEASIBLE", None, 3)
    assert record.metrics["validation_recall_20_error"].tolist() == [0.875] * 3
    assert record.metrics["test_recall_20_error"].tolist() == [0.625] * 3
    assert other.outcomes[1] == factorizations.TrialOutcome("INFEASIBLE", None, 1)


def test_a_process_with_too_few_devices_says_so(study: Factorization, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="needs 64 cores, but this process has"):
        run(dataclasses.replace(study, cores=64), [0], tmp_path)


def test_cores_and_solvers_start_alike(study: Factorization) -> None:
    others = [dataclasses.replace(study, **change) for change in ({"cores": 2}, {"solver": "lu"}, {"dim": 9})]
    for other in others:
        assert search.draw(other, range(3)) == search.draw(study, range(3))
