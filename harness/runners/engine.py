"""The training loop. Calls of compiled programs advance the trials of a study from evaluation to evaluation."""

import functools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from harness.processes import multihost
from harness.processes.shutdown import Shutdown, Stopped
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress, Settings, Source
from harness.step import layout_choices, mesh, shardings
from harness.step.batch_partition import Division, divisions, of_settings
from harness.step.programs import Programs, default_strategy, programs_for, workload_of
from harness.step.programs_key import ProgramsKey, family, programs_key
from harness.step.training import Spans
from harness.trials.checkpoints import Checkpoints, Saver
from harness.trials.scheduler import BestSteps, Live, TrialScheduler
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial
from results.printing import say
from workloads import checks, data_stream, memory, optimizers, registry
from workloads.workload import Workload

DEFAULT_LANES = 32
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
    for name, here in packages.items():
        planned = study.packages.get(name)
        if here != planned:
            raise BadInput(
                f"{name} has changed since the study was planned: it is {here} here and {planned} in the plan. "
                "Run the same command again, with the same code on every host."
            )
    if study.model in packages and multihost.leads():
        _note_outputs(family(study), json.dumps(source))
    on_progress(RunProgress(COMPILING))
    programs, compile_seconds = _programs(study, settings, len(trials) or study.request.planned, source)
    running = _Run(study, trials, settings, programs, best or {}, shutdown or Shutdown(), checkpoints, on_finished)
    running.compile_seconds = compile_seconds
    running.steps_per_epoch = None if row.train_examples is None else row.train_examples / study.batch_size
    on_progress(RunProgress(TRAINING))

    def searched() -> Sequence[Trial]:
        running.hand_over()
        further = confirming()
        running.saver.resume(further)
        return further

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


def _programs(study: BatchStudy, settings: Settings, trials: int, source: Source) -> tuple[Programs, float]:
    """Returns programs of a study that fit in memory, and the seconds that this call spent on compiling.

    More lanes and fewer parts per batch are preferred.

    Raises:
      BadInput: a batch does not fit in memory under any allowed partition.
    """
    began = time.perf_counter()
    key = programs_key(study)
    strategy = default_strategy() if settings.lane_strategy == "auto" else settings.lane_strategy
    workload = workload_of(key, source)
    ways = candidates(study, settings, trials, workload, len(mesh.devices()), strategy)
    shardings.check(workload, ways[0][1], study.batch_size)
    free = mesh.device_bytes()
    _check_resident(study, workload, free)
    needed = 0
    per_share = 0.0
    is_new = False
    for lanes, division in ways:
        share = lanes * division.examples(study.batch_size) / division.microbatches / mesh.groups(division)
        if free is not None and per_share * share > free:
            continue
        programs, was_built = programs_for(key, lanes, strategy, division, source)
        is_new |= was_built
        needed = programs.bytes
        per_share = programs.bytes / share
        if free is None or needed <= free or len(ways) == 1:
            return programs, time.perf_counter() - began if is_new else 0.0
    _, division = ways[-1]
    named = layout_choices.choices(workload, study.batch_size, division, needed, free or 0)
    such = "such as " + " or ".join(named) if named else "with shards"
    raise BadInput(
        f"batch_size={study.batch_size} of {study.dataset} needs {memory.size_text(needed)} of memory on each device, "
        f"which has {memory.size_text(free or 0)}. Divide each trial over more devices, {such}."
    )


def _check_resident(study: BatchStudy, workload: Workload, free: int | None) -> None:
    """Raises BadInput before compilation if the resident training data do not fit on a device."""
    train = None if workload.feed or workload.draw else workload.shapes.train
    size = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in train or ())
    if free is not None and size > free:
        raise BadInput(
            f"{study.dataset} keeps {memory.size_text(size)} of training data on each device, which has "
            f"{memory.size_text(free)}. Train on devices with more memory."
        )


def candidates(
    study: BatchStudy, settings: Settings, trials: int, workload: Workload, devices: int, strategy: str
) -> list[tuple[int, Division]]:
    """Returns the numbers of lanes and batch partitions to try: first with fewer lanes, then with finer partitions."""
    lanes = _lane_count(settings, strategy, trials, streamed=workload.feed is not None)
    asked = of_settings(settings)
    ways = divisions(study.batch_size, workload.group, devices, asked)
    counts = [lanes]
    if not settings.lanes:
        counts = [-(-lanes // (1 << i)) for i in range(lanes.bit_length() + 1)]
    found = []
    for count, division in [(count, ways[0]) for count in counts] + [(counts[-1], way) for way in ways[1:]]:
        groups = max(1, devices // division.devices)
        found.append((-(-count // groups) * groups, division))
    return list(dict.fromkeys(found))


def _lane_count(settings: Settings, strategy: str, trials: int, *, streamed: bool) -> int:
    """Returns the number of lanes. A batched lane costs the same whether or not it holds a trial.

    For streamed data, each lane reads a separate stream, so the default is one lane per device group.
    """
    if settings.lanes is None and streamed:
        return 1
    if settings.lanes is not None or strategy == "map":
        return settings.lanes or DEFAULT_LANES
    return min(DEFAULT_LANES, 1 << (trials - 1).bit_length())  # rounded up: each number of lanes needs own programs


def _stops(
    scheduler: TrialScheduler, live_trials: Sequence[Live], programs: Programs, seconds_per_step: float
) -> list[int]:
    """Returns the step that each trial reaches in the next call, which should take at most ``CALL_SECONDS``.

    A call of batched lanes takes as long as the lane with the most steps. The length of the call is chosen to maximize
    useful steps per second.
    """
    ways = [scheduler.stop(live) - live.step for live in live_trials]
    # Seconds per step of one lane, whether or not it shared the device with other lanes.
    most = FIRST_CALL_STEPS if not seconds_per_step else max(1, int(CALL_SECONDS / seconds_per_step / len(ways)))
    if programs.call_steps is not None:
        most = min(most, programs.call_steps)
    if programs.strategy == "vmap":
        lengths = {min(way, most) for way in ways}
        most = max(lengths, key=lambda steps: sum(min(way, steps) for way in ways) / (steps + CALL_COST))
    return [live.step + min(way, most) for live, way in zip(live_trials, ways, strict=True)]


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
        decay_steps=by_lane([each["decay_fraction"] * study.budget_steps for each in metaparameters], np.float32),
        end_factor=by_lane([each["end_learning_rate_factor"] for each in metaparameters], np.float32),
        metaparameters={
            name: by_lane([each[name] for each in metaparameters], np.float32)
            for name in ("label_smoothing", *optimizer.defaults, *optimizer.tuned)
        },
    )
