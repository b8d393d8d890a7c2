"""Runs the trials of a factorization on the cores of its plan. Every epoch is timed, evaluated and saved."""

import dataclasses
import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from harness.processes import multihost
from harness.processes.shutdown import Shutdown, Stopped
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress
from harness.step import mesh
from harness.trials.checkpoints import Checkpoint, Checkpoints, Row, key_of, same_shapes
from harness.trials.scheduler import TrialOutcome
from results.bad_input import BadInput
from results.plans.factorization import Factorization
from results.plans.schema import COSTS
from results.plans.study import Trial
from workloads.factorization.half_epoch import AXIS, Weights
from workloads.factorization.ratings import Ratings
from workloads.factorization.training import RECALL_AT, FactorTables, Training

RECALLS = tuple(f"{split}_recall_{k}" for split in ("validation", "test") for k in RECALL_AT)
METRICS = (*(f"{recall}_error" for recall in RECALLS), "train_objective")
LARGEST = float(np.finfo(np.float32).max)
MEASURED = (*METRICS, *(column.name for column in COSTS))
HALVES = ("row_half_seconds", "column_half_seconds")


def run(
    study: Factorization,
    trials: Sequence[Trial],
    ratings: Ratings,
    checkpoints: Checkpoints,
    *,
    time_limit_seconds: float | None = None,
    on_progress: OnProgress = lambda progress: None,
    on_finished: OnFinished = lambda part: None,
    shutdown: Shutdown | None = None,
) -> dict[int, TrialOutcome]:
    """Runs trials of a study one after another. Trials with a checkpoint are resumed.

    Initial tables depend only on a trial's seed, so studies that differ in cores, solver or dtypes start from the same
    tables.

    Args:
      study: plan of the study. The process must have at least ``study.cores`` devices. In a multi-host run, all devices
        of all processes are used as cores.
      trials: trials of the study, with distinct ids.
      ratings: the data that the plan specifies.
      checkpoints: the study's checkpoints. In a multi-host run, each process saves the arrays on its own cores.
      time_limit_seconds: time limit after which unfinished trials end as INCOMPLETE(time_limit). Their checkpoints are
        kept.
      on_progress: called before compilation, before training and after each epoch. An epoch counts as a step.
      on_finished: called with each trial as soon as it ends. When the call returns, the trial's checkpoint is removed.
      shutdown: shutdown state of this process.

    Returns:
      The outcomes of the trials.

    Raises:
      Stopped: the process must end. The running trial is saved.
      BadInput: in a multi-host run, the number of devices differs from the number of cores in the plan.
    """
    shutdown = shutdown or Shutdown()
    training = Training(ratings, study, _mesh(study.cores))
    running = _FactorizationRun(study, training, checkpoints, time_limit_seconds, on_progress, shutdown)
    outcomes = {}
    with shutdown.first(lambda: None):
        for trial in trials:
            rows, end = running.trial(trial)
            running.ended[end.steps] += 1
            running.report({})
            with shutdown.lock:
                on_finished(running.record(trial, rows, end))
                running.saved = True
                outcomes[trial.id] = end
                if end.reason != "time_limit":
                    checkpoints.remove([trial.id])
            if running.stops():
                raise Stopped
    return outcomes


def _mesh(cores: int) -> jax.sharding.Mesh:
    devices, axis_types = mesh.devices(), (jax.sharding.AxisType.Auto,)
    if multihost.are_many():
        if len(devices) != cores:
            raise BadInput(f"cores={cores}: these hosts have {len(devices)}. A factorization uses all of them.")
        return jax.sharding.Mesh(np.array(devices), (AXIS,), axis_types=axis_types)
    if len(devices) < cores:
        raise RuntimeError(f"the study needs {cores} cores, but this process has {len(devices)}")
    return jax.make_mesh((cores,), (AXIS,), devices=devices[:cores], axis_types=axis_types)


@jax.jit
def _finite(tables: Any) -> Array:
    return jnp.stack([jnp.isfinite(table).all() for table in jax.tree.leaves(tables)]).all()


@dataclasses.dataclass
class _FactorizationRun:
    """State shared by all trials of a study, including the seconds spent so far."""

    study: Factorization
    training: Training
    checkpoints: Checkpoints
    limit: float | None
    on_progress: OnProgress
    shutdown: Shutdown
    memory: dict[str, int] = dataclasses.field(default_factory=dict)  # set after compiling
    compile_seconds: float | None = None
    began: float = dataclasses.field(default_factory=time.perf_counter)
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    epochs: int = 0
    saved: bool = False  # whether this run saved or stored an epoch, on all hosts
    ended: Counter[int] = dataclasses.field(default_factory=Counter)  # number of ended trials by epochs taken

    def report(self, live: dict[int, int]) -> None:
        """Reports progress, given the number of live trials by epochs taken."""
        ended = dict(self.ended)
        seconds = time.perf_counter() - self.began
        self.on_progress(RunProgress(TRAINING, ended, live, self.epochs, self.train_seconds, seconds, self.saved))

    def trial(self, trial: Trial) -> tuple[list[Row], TrialOutcome]:
        """Runs a trial until it ends. Returns the measurements after each epoch, and the outcome."""
        weights = Weights(*(np.float32(trial.metaparameters[name]) for name in ("unobserved_weight", "norm_penalty")))
        if self._late():
            return [], TrialOutcome("INCOMPLETE", "time_limit", 0)
        key = self._key(trial)
        self._compile(weights)
        tables = self.training.start(trial.seed)
        rows = []
        checkpoint = self.checkpoints.load(trial.id, key, multihost.place())
        step = checkpoint.step if checkpoint is not None and self._could_be(checkpoint, tables) else 0
        # Hosts may disagree if some of them died while saving.
        on_all_hosts = multihost.longest(step, -step) == (step, -step)
        if checkpoint is not None and step and on_all_hosts:
            tables = self.training.from_shards(checkpoint.arrays)
            rows = list(checkpoint.rows)
        self.shutdown.saved = bool(rows)
        while len(rows) < self.study.epochs:
            if rows and self._late():
                self._save(trial, key, tables, rows)
                return rows, TrialOutcome("INCOMPLETE", "time_limit", max([0, *_evaluated_rows(rows)]))
            tables, row, finite = self._epoch(tables, weights, self._evaluated(len(rows) + 1))
            rows.append(row)
            if not finite:
                return rows, TrialOutcome("INFEASIBLE", None, len(rows))
            if len(rows) < self.study.epochs:
                stops = self.stops()
                if stops or _of_leader(self.checkpoints.due()):
                    self._save(trial, key, tables, rows)
                if stops:
                    raise Stopped
                self.report({len(rows): 1})
        return rows, TrialOutcome("COMPLETE", None, len(rows))

    def stops(self) -> bool:
        """Returns whether the process must end. In a multi-host run, all processes must call it at the same points."""
        return self.shutdown.requested or multihost.preempted()

    def _save(self, trial: Trial, key: str, tables: FactorTables, rows: list[Row]) -> None:
        failed = 1.0
        with self.shutdown.lock, self.checkpoints.saving():
            checkpoint = Checkpoint(len(rows), rows, self.training.shards(tables))
            self.checkpoints.save(trial.id, key, checkpoint, multihost.place())
            self.shutdown.saved = True
            failed = 0.0
        self.saved |= not any(multihost.longest(failed))

    def record(self, trial: Trial, rows: list[Row], end: TrialOutcome) -> Record:
        """Returns the measurements of a trial, and the seconds that the run has taken so far."""
        kinds = dict.fromkeys(METRICS, np.float32) | {c.name: c.type.to_pandas_dtype() for c in COSTS}
        measured = _evaluated_rows(rows)
        return Record(
            trials=[trial],
            outcomes={trial.id: end},
            trial=np.full(len(measured), trial.id, np.int32),
            step=np.array(list(measured), np.int32),
            metrics={name: _column([row[name] for row in measured.values()], kinds[name]) for name in MEASURED},
            compile_seconds=self.compile_seconds or 0.0,
            train_seconds=self.train_seconds,
            evaluate_seconds=self.evaluate_seconds,
            run_seconds=time.perf_counter() - self.began,
            trial_steps=self.epochs,
            steps_per_epoch=1,
        )

    def _could_be(self, checkpoint: Checkpoint, tables: FactorTables) -> bool:
        """Returns whether a checkpoint has the expected arrays and rows. Checkpoints are untrusted."""
        if checkpoint.step >= self.study.epochs:
            return False
        names = [set(MEASURED if self._evaluated(epoch) else HALVES) for epoch in range(1, checkpoint.step + 1)]
        same_names = names == [row.keys() for row in checkpoint.rows]
        return same_names and same_shapes(checkpoint.arrays, self.training.shards(tables))

    def _evaluated(self, epoch: int) -> bool:
        return epoch % self.study.evaluate_every == 0 or epoch == self.study.epochs

    def _epoch(self, tables: FactorTables, weights: Weights, evaluate: bool) -> tuple[FactorTables, Row, bool]:
        """Runs one epoch. Returns the new tables, the row of the epoch, and whether all values are finite."""
        began = time.perf_counter()
        tables = jax.block_until_ready(self.training.row_half(tables, weights))
        halfway = time.perf_counter()
        tables = jax.block_until_ready(self.training.column_half(tables, weights))
        trained = time.perf_counter()
        finite = bool(_finite(tables))
        row = dict(zip(HALVES, multihost.longest(halfway - began, trained - halfway), strict=True))
        self.epochs += 1
        self.train_seconds += sum(row.values())
        if finite and not evaluate:
            return tables, row, True
        nothing = dict.fromkeys((*RECALLS, "objective"), float("nan"))
        metrics = self.training.evaluate(tables, weights) if finite else nothing
        (seconds,) = multihost.longest(time.perf_counter() - trained)
        self.evaluate_seconds += seconds
        row |= {f"{recall}_error": 1 - metrics[recall] for recall in RECALLS}
        row |= {"train_objective": metrics["objective"], "evaluation_seconds": seconds} | self.memory
        return tables, row, finite and abs(metrics["objective"]) <= LARGEST

    def _compile(self, weights: Weights) -> None:
        """Compiles all programs in advance, so recorded times exclude compilation."""
        if self.compile_seconds is not None:
            return
        self.on_progress(RunProgress(COMPILING))
        began = time.perf_counter()
        self.training.compile(weights)
        bool(_finite(self.training.start(0)))
        (self.compile_seconds,) = multihost.longest(time.perf_counter() - began)
        self.memory = {
            "bytes_per_core": self.training.bytes_per_core(),
            "peak_bytes_per_core": self.training.peak_bytes_per_core,
        }
        self.began = time.perf_counter()
        self.on_progress(RunProgress(TRAINING))

    def _late(self) -> bool:
        if self.compile_seconds is None:
            return False
        limit = math.inf if self.limit is None else self.limit
        return _of_leader(self.shutdown.time_is_up or time.perf_counter() - self.began > limit)

    def _key(self, trial: Trial) -> str:
        """Returns the key of a checkpoint: a hash of everything that determines the tables' contents and layout."""
        sides = (self.training.rows, self.training.columns)
        row_hashes = [hashlib.sha256(side.places.slot.tobytes()).hexdigest() for side in sides]
        return key_of(self.study.plan(), trial, MEASURED, row_hashes)


def _evaluated_rows(rows: Sequence[Row]) -> dict[int, Row]:
    """Returns the rows of evaluated epochs. Their seconds are means over the epochs since the previous evaluation."""
    by_epoch = {}
    last = 0
    for epoch, row in enumerate(rows, 1):
        if "train_objective" in row:
            by_epoch[epoch] = row | {
                half: float(np.mean([epoch_row[half] for epoch_row in rows[last:epoch]])) for half in HALVES
            }
            last = epoch
    return by_epoch


def _column(values: list[float], kind: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # an objective that overflows becomes infinite
        return np.array(values).astype(kind)


def _of_leader(answer: bool) -> bool:
    return bool(multihost.numbers_of_leader(answer)[0])
