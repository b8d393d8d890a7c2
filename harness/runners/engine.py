"""The training loop. Calls of compiled programs advance the trials of a study from evaluation to evaluation."""

import functools
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from harness.processes import multihost
from harness.processes.shutdown import Shutdown, Stopped
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress, Settings, Source
from harness.runners.program_choice import programs_in_memory
from harness.step import mesh
from harness.step.programs import Programs, workload_of
from harness.step.programs_key import ProgramsKey, family
from harness.step.training import Spans
from harness.trials.checkpoints import Checkpoints
from harness.trials.saver import Saver
from harness.trials.scheduler import BestSteps, Live, TrialScheduler
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial
from results.printing import say
from workloads import checks, data_stream, optimizers, registry

CALL_SECONDS = 2.0  # target duration of a call
FIRST_CALL_STEPS = 32  # before the duration of a step has been measured
CALL_COST = 4  # approximate overhead of a call of batched lanes, in steps
# Metaparameters of trials whose search space does not include them.
DEFAULTS = optimizers.NO_DECAY | {"label_smoothing": 0.0}


def run(
    study: BatchStudy,
    trials: Sequence[Trial],
    settings: Settings,
    *,
    source: Source = None,
    best: BestSteps | None = None,
    on_progress: OnProgress = lambda progress: None,
    on_finished: OnFinished = lambda part: None,
    confirming: Callable[[], Sequence[Trial]] = lambda: (),
    shutdown: Shutdown | None = None,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Runs trials of a study until each has ended. Trials with a checkpoint are resumed.

    Initial parameters and data order depend only on a trial's seed and step. On a CPU, results are therefore bitwise
    identical for any number of lanes, any order of ``trials`` and any interruptions. The only exception is the curve of
    a pruned trial, which ends in the round in which the trial is pruned.

    Args:
      study: plan of the study.
      trials: trials of the study, with distinct ids.
      settings: settings of the run.
      source: options of the user's own data set, as in ``registry.dataset``.
      best: results of trials that have already run. Exact pruning uses them from the start.
      on_progress: called before compilation, before training and after each evaluation.
      on_finished: called with newly finished trials every ``flush_seconds`` and at the end.
      confirming: called whenever all trials have ended and been reported. Returns additional trials that confirm the
        best ones.
      shutdown: shutdown state of this process. Before the process ends, a separate thread reports finished trials.
      checkpoints: the study's checkpoints. With None, trials are not saved.

    Returns:
      A record of all trials.

    Raises:
      Stopped: the process must end. All running trials are saved.
      BadInput: the data on this machine differ from the data in the plan.
    """
    row = registry.dataset(study.dataset, source)
    version = row.version()
    if version != study.dataset_version:
        raise BadInput(
            f"the data have changed since the study was planned: {study.dataset} is {version} here and "
            f"{study.dataset_version} in the plan. Run the same command again, with the same data on every host."
        )
    packages = registry.package_identities(study.dataset, study.model, study.optimizer)
    for name, identity in packages.items():
        planned = study.packages.get(name)
        if identity != planned:
            raise BadInput(
                f"{name} has changed since the study was planned: it is {identity} here and {planned} in the plan. "
                "Run the same command again, with the same code on every host."
            )
    if study.model in packages and multihost.leads():
        _note_outputs(family(study), json.dumps(source))
    on_progress(RunProgress(COMPILING))
    programs, compile_seconds = programs_in_memory(study, settings, len(trials) or study.request.planned, source)
    running = _Run(study, trials, settings, programs, best or {}, shutdown or Shutdown(), checkpoints, on_finished)
    running.compile_seconds = compile_seconds
    running.steps_per_epoch = None if row.train_examples is None else row.train_examples / study.batch_size
    on_progress(RunProgress(TRAINING))

    def searched() -> Sequence[Trial]:
        running.hand_over()
        repeats = confirming()
        running.saver.resume(repeats)
        return repeats

    with running.shutdown.first(running.hand_over), data_stream.ending(), programs.feeding():
        for live_trials in running.scheduler.rounds(searched):
            running.advance(live_trials)
            data_stream.keep({live.trial.seed: study.budget_steps for live in running.scheduler.live})
            on_progress(running.progress())
            running.save_if_needed()
        running.hand_over()
    ends = running.scheduler.outcomes.values()
    if len(ends) > 1 and all((end.status, end.steps) == ("INFEASIBLE", study.evaluations[0]) for end in ends):
        say(f"{study.name}: no trial was finite at its first evaluation. Look at the data first, then at the ranges.")
    return running.record(running.scheduler.outcomes)


@functools.cache
def _note_outputs(key: ProgramsKey, source: str) -> None:
    """Prints a note if the outputs of a model are probabilities, once per process. ``source`` is JSON."""
    row = registry.dataset(key.dataset, json.loads(source))
    if note := checks.outputs_note(row, workload_of(key, json.loads(source)), key.model):
        say(f"note: {note}")


class _Run:
    """A run in progress: its lanes, measurements and elapsed seconds."""

    compile_seconds = 0.0
    steps_per_epoch: float | None = None
    train_seconds = evaluate_seconds = 0.0
    trial_steps = 0
    seconds_per_step = 0.0
    saved = 0.0  # 1 once the leader has saved or stored steps of this run

    def __init__(
        self,
        study: BatchStudy,
        trials: Sequence[Trial],
        settings: Settings,
        programs: Programs,
        best: BestSteps,
        shutdown: Shutdown,
        checkpoints: Checkpoints | None,
        on_finished: OnFinished,
    ):
        self.study = study
        self.settings = settings
        self.programs = programs
        self.shutdown = shutdown
        self.on_finished = on_finished
        # Neighbouring lanes share a device. Filling devices in turn keeps all of them busy when there are few trials.
        in_turn = np.arange(programs.lanes).reshape(mesh.groups(programs.division), -1).T.ravel().tolist()
        self.scheduler = TrialScheduler(study, trials, in_turn, best)
        self.rows: list[tuple[int, int, np.ndarray]] = []  # (trial, step, float32[metrics]) in order of arrival
        self.began = self.last_part = time.perf_counter()
        self.carry = programs.empty()
        self.saver = Saver(study, programs, self.scheduler, self.rows, checkpoints)
        self.saver.resume(trials)
        self.handed_over: set[int] = set()

    def advance(self, live_trials: Sequence[Live]) -> None:
        """Runs the steps of one call, then evaluates the trials that have reached an evaluation."""
        before = time.perf_counter()
        scheduler = self.scheduler
        programs = self.programs
        stops = _stops(scheduler, live_trials, programs, self.seconds_per_step)
        spans = _spans(self.study, live_trials, stops, programs.lanes)
        upcoming = spans.stop.copy()
        for live, stop in zip(live_trials, stops, strict=True):
            upcoming[live.lane] = scheduler.stop_after(live, stop)
        restored = self.saver.restored(self.carry, live_trials)
        self.carry = jax.block_until_ready(programs.advance(restored, spans, upcoming))
        trained = time.perf_counter()
        arrived = [live for live, stop in zip(live_trials, stops, strict=True) if stop == scheduler.stop(live)]
        if arrived:
            active = np.zeros(programs.lanes, bool)
            active[[live.lane for live in arrived]] = True
            metrics, finite = multihost.on_host(programs.evaluate(self.carry, active))
        self.evaluated = time.perf_counter()
        with self.shutdown.lock:
            self.train_seconds += trained - before
            self.evaluate_seconds += self.evaluated - trained
            self.trial_steps += int(np.sum(spans.stop - spans.start))
            for live, stop in zip(live_trials, stops, strict=True):
                live.step = stop
            for live in arrived:
                measured = metrics[live.lane]
                self.rows.append((live.trial.id, live.step, measured))
                scheduler.record(live, dict(zip(programs.metrics, measured, strict=True)), bool(finite[live.lane]))
            scheduler.prune()

    def save_if_needed(self) -> None:
        """Saves and reports trials at the configured intervals, and ends trials when the time limit is exceeded.

        Raises:
          Stopped: the process must end. All running trials are saved.
        """
        if self.shutdown.requested or multihost.preempted():
            self.hand_over()
            self.save()
            raise Stopped
        limit = self.settings.time_limit_seconds
        is_late = self.shutdown.time_is_up or (limit is not None and self.evaluated - self.began > limit)
        has_saved = bool(self.handed_over) or self.saver.has_saved
        self.seconds_per_step, late, due, self.saved = multihost.numbers_of_leader(
            self.train_seconds / max(1, self.trial_steps), is_late, self.saver.due(), has_saved
        )
        if late or due:
            self.save()
        if late:
            with self.shutdown.lock:
                self.scheduler.give_up("time_limit")
        since = self.evaluated - self.last_part
        if self.scheduler.outcomes.keys() > self.handed_over and since > self.settings.flush_seconds:
            self.hand_over()
            self.last_part = time.perf_counter()

    def hand_over(self) -> None:
        """Reports trials that have finished since the last call."""
        with self.shutdown.lock:
            finished = self.scheduler.outcomes.keys() - self.handed_over
            if finished:
                self.on_finished(self.record(finished))
                self.handed_over.update(finished)
                self.saver.remove(finished)

    def save(self) -> None:
        """Saves the trials that are in lanes."""
        with self.shutdown.lock:
            self.shutdown.saved |= self.saver.save(self.carry)

    def progress(self) -> RunProgress:
        """Returns the progress of the run."""
        seconds = time.perf_counter() - self.began
        ended = dict(self.scheduler.ended)
        live = dict(Counter(live.step for live in self.scheduler.live))
        return RunProgress(TRAINING, ended, live, self.trial_steps, self.train_seconds, seconds, bool(self.saved))

    def record(self, ids: Collection[int]) -> Record:
        """Returns the measurements of the ended trials with these ids."""
        programs = self.programs
        rows = sorted((row for row in self.rows if row[0] in ids), key=lambda row: row[:2])
        measured = np.array([row[2] for row in rows], np.float32).reshape(len(rows), len(programs.metrics))
        return Record(
            trials=[self.scheduler.trials[i] for i in ids],
            outcomes={i: self.scheduler.outcomes[i] for i in ids},
            trial=np.array([row[0] for row in rows], np.int32),
            step=np.array([row[1] for row in rows], np.int32),
            metrics={name: measured[:, i] for i, name in enumerate(programs.metrics)},
            lanes=programs.lanes,
            lane_strategy=programs.strategy,
            shards=programs.division.shards,
            microbatches=programs.division.microbatches,
            mesh=programs.division.mesh_text if programs.division.mesh or programs.division.layout else None,
            layout=programs.division.layout_text or None,
            compile_seconds=self.compile_seconds,
            train_seconds=self.train_seconds,
            evaluate_seconds=self.evaluate_seconds,
            run_seconds=time.perf_counter() - self.began,
            trial_steps=self.trial_steps,
            steps_per_epoch=self.steps_per_epoch,
        )


def _stops(
    scheduler: TrialScheduler, live_trials: Sequence[Live], programs: Programs, seconds_per_step: float
) -> list[int]:
    """Returns the step that each trial reaches in the next call, which should take at most ``CALL_SECONDS``.

    A call of batched lanes takes as long as the lane with the most steps. The length of the call is chosen to maximize
    useful steps per second.
    """
    ways = [scheduler.stop(live) - live.step for live in live_trials]
    # Seconds per step of one lane, whether or not it shared the device with other lanes.
    limit = FIRST_CALL_STEPS if not seconds_per_step else max(1, int(CALL_SECONDS / seconds_per_step / len(ways)))
    if programs.call_steps is not None:
        limit = min(limit, programs.call_steps)
    if programs.strategy == "vmap":
        lengths = {min(way, limit) for way in ways}
        limit = max(lengths, key=lambda steps: sum(min(way, steps) for way in ways) / (steps + CALL_COST))
    return [live.step + min(way, limit) for live, way in zip(live_trials, ways, strict=True)]


def _spans(study: BatchStudy, live_trials: Sequence[Live], stops: Sequence[int], lanes: int) -> Spans:
    optimizer = registry.get_optimizer(study.optimizer)
    metaparameters = [DEFAULTS | {**optimizer.defaults, **live.trial.metaparameters} for live in live_trials]
    lane_numbers = [live.lane for live in live_trials]

    def by_lane(values: Any, dtype: type) -> np.ndarray:
        out: np.ndarray = np.zeros(lanes, dtype)
        out[lane_numbers] = values
        return out

    return Spans(
        start=by_lane([live.step for live in live_trials], np.int32),
        stop=by_lane(stops, np.int32),
        seed=by_lane([live.trial.seed for live in live_trials], np.uint32),
        schedule=by_lane(optimizers.SCHEDULES[study.schedule], np.int32),
        decay_steps=by_lane([numbers["decay_fraction"] * study.budget_steps for numbers in metaparameters], np.float32),
        end_factor=by_lane([numbers["end_learning_rate_factor"] for numbers in metaparameters], np.float32),
        metaparameters={
            name: by_lane([numbers[name] for numbers in metaparameters], np.float32)
            for name in ("label_smoothing", *optimizer.defaults, *optimizer.tuned)
        },
    )
