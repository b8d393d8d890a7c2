"""The training loop: trials of one study, advanced by compiled spans from evaluation to evaluation."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from harness import mesh, multihost
from harness.batch_partition import Division, divisions
from harness.checkpoints import Checkpoints, Saver
from harness.programs import Programs, default_strategy, programs_for, workload_of
from harness.programs_key import programs_key
from harness.run import COMPILING, TRAINING, Record, RunProgress, Settings
from harness.scheduler import BestSteps, Live, TrialScheduler
from harness.shutdown import Shutdown, Stopped
from harness.training import Spans
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.study import Trial
from workloads import data_stream, memory, optimizers, registry
from workloads.workload import Workload

DEFAULT_LANES = 32
CALL_SECONDS = 2.0  # that a call is to take, about
FIRST_CALL_STEPS = 32  # while nobody knows how long a step takes
CALL_COST = 4  # of a call of batched lanes beside its steps, in steps, about
# Metaparameters of a trial that its search space does not give.
DEFAULTS = optimizers.NO_DECAY | {"label_smoothing": 0.0}


def run(
    study: BatchStudy,
    trials: Sequence[Trial],
    settings: Settings,
    *,
    source: Mapping[str, Any] | None = None,
    best: BestSteps | None = None,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    on_finished: Callable[[Record], None] = lambda part: None,
    confirming: Callable[[], Sequence[Trial]] = lambda: (),
    shutdown: Shutdown | None = None,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Runs trials of a study until each is settled, those that were saved from where they were.

    Initial parameters and data order are functions of a trial's seed and step alone, so on a CPU all results are
    bitwise identical for any number of lanes, any order of ``trials``, and wherever the run was stopped and gone on
    with; of pruned trials, which go on until the round in which they lose, the curves may be shorter or longer.

    Args:
      study: the plan.
      trials: of the study, with distinct ids.
      settings: how to run it.
      source: options of a user's own data set, as in ``registry.dataset``.
      best: answers of trials that already ran, for exact pruning to build on.
      on_progress: called before compiling, before training and after each evaluation.
      on_finished: called with trials that have finished since it was last, every ``flush_seconds`` and at the end.
      confirming: asked whenever all trials have ended, and been handed over, for those that confirm the best of them.
      shutdown: of this process; what has finished is handed over, by another thread, before it ends.
      checkpoints: of the study; None: nothing is saved.

    Returns:
      All trials in one record.

    Raises:
      Stopped: the process is to end; all trials under way are saved.
      BadInput: this machine has other data than the plan names.
    """
    row = registry.dataset(study.dataset, source)
    if (version := row.version()) != study.dataset_version:
        raise BadInput(
            f"the data have changed since the study was planned: here {study.dataset} is {version}, and in the plan "
            f"{study.dataset_version}; run the same command again, with the same data on every host"
        )
    on_progress(RunProgress(COMPILING))
    programs, compile_seconds = _programs(study, settings, len(trials) or study.request.planned, source)
    lanes = programs.lanes
    groups = mesh.groups(programs.division.shards)
    # A device has neighbouring lanes; filling them in turn keeps all devices busy with few trials.
    in_turn = np.arange(lanes).reshape(groups, -1).T.ravel().tolist()
    scheduler = TrialScheduler(study, trials, in_turn, best or {})
    examples = row.train_examples
    steps_per_epoch = None if examples is None else examples / study.batch_size
    tape = _Tape(programs, compile_seconds, steps_per_epoch)
    carry = programs.empty()
    saver = Saver(study, programs, scheduler, tape.rows, checkpoints)
    saver.resume(trials)
    handed_over: set[int] = set()
    on_progress(RunProgress(TRAINING))
    last_part, seconds_per_step = tape.began, 0.0
    shutdown = shutdown or Shutdown()

    def hand_over() -> None:
        with shutdown.lock:
            if finished := scheduler.outcomes.keys() - handed_over:
                on_finished(tape.record(scheduler, finished))
                handed_over.update(finished)
                saver.remove(finished)

    def searched() -> Sequence[Trial]:
        hand_over()
        further = confirming()
        saver.resume(further)
        return further

    def save() -> None:
        with shutdown.lock:
            shutdown.saved |= saver.save(carry)

    with shutdown.first(hand_over), data_stream.ending(), programs.feeding():
        for live_trials in scheduler.rounds(searched):
            before = time.perf_counter()
            stops = _stops(scheduler, live_trials, programs, seconds_per_step)
            spans = _spans(study, live_trials, stops, lanes)
            carry = jax.block_until_ready(programs.advance(saver.restored(carry, live_trials), spans))
            trained = time.perf_counter()
            arrived = [live for live, stop in zip(live_trials, stops, strict=True) if stop == scheduler.stop(live)]
            if arrived:
                active = np.zeros(lanes, bool)
                active[[live.lane for live in arrived]] = True
                metrics, finite = multihost.on_host(programs.evaluate(carry, active))
            evaluated = time.perf_counter()
            with shutdown.lock:
                tape.train_seconds += trained - before
                tape.evaluate_seconds += evaluated - trained
                tape.trial_steps += int(np.sum(spans.stop - spans.start))
                for live, stop in zip(live_trials, stops, strict=True):
                    live.step = stop
                for live in arrived:
                    measured = metrics[live.lane]
                    tape.rows.append((live.trial.id, live.step, measured))
                    scheduler.record(live, dict(zip(programs.metrics, measured, strict=True)), bool(finite[live.lane]))
                scheduler.prune()
            data_stream.keep({live.trial.seed for live in scheduler.live})
            on_progress(tape.progress(scheduler))
            if shutdown.requested or multihost.preempted():
                hand_over()
                save()
                raise Stopped
            limit = settings.time_limit_seconds
            is_late = shutdown.time_is_up or (limit is not None and evaluated - tape.began > limit)
            seconds_per_step, late, due = multihost.numbers_of_leader(
                tape.train_seconds / max(1, tape.trial_steps), is_late, saver.due()
            )
            if late or due:
                save()
            if late:
                with shutdown.lock:
                    scheduler.give_up("time_limit")
            if scheduler.outcomes.keys() > handed_over and evaluated - last_part > settings.flush_seconds:
                hand_over()
                last_part = time.perf_counter()
        hand_over()
    return tape.record(scheduler, scheduler.outcomes)


@dataclasses.dataclass
class _Tape:
    """The measurements of a run so far: rows (trial, step, float32[metrics]) in order of arrival, and times."""

    programs: Programs
    compile_seconds: float
    steps_per_epoch: float | None
    rows: list[tuple[int, int, np.ndarray]] = dataclasses.field(default_factory=list)
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    trial_steps: int = 0
    began: float = dataclasses.field(default_factory=time.perf_counter)

    def progress(self, scheduler: TrialScheduler) -> RunProgress:
        """The progress of the run so far."""
        seconds = time.perf_counter() - self.began
        ended, live = dict(scheduler.ended), dict(Counter(live.step for live in scheduler.live))
        return RunProgress(TRAINING, ended, live, self.trial_steps, self.train_seconds, seconds)

    def record(self, scheduler: TrialScheduler, ids: Collection[int]) -> Record:
        """The measurements of trials that have ended, by their ids."""
        rows = sorted((row for row in self.rows if row[0] in ids), key=lambda row: row[:2])
        measured = np.array([row[2] for row in rows], np.float32).reshape(len(rows), len(self.programs.metrics))
        return Record(
            trials=[scheduler.trials[i] for i in ids],
            outcomes={i: scheduler.outcomes[i] for i in ids},
            trial=np.array([row[0] for row in rows], np.int32),
            step=np.array([row[1] for row in rows], np.int32),
            metrics={name: measured[:, i] for i, name in enumerate(self.programs.metrics)},
            lanes=self.programs.lanes,
            lane_strategy=self.programs.strategy,
            shards=self.programs.division.shards,
            microbatches=self.programs.division.microbatches,
            compile_seconds=self.compile_seconds,
            train_seconds=self.train_seconds,
            evaluate_seconds=self.evaluate_seconds,
            run_seconds=time.perf_counter() - self.began,
            trial_steps=self.trial_steps,
            steps_per_epoch=self.steps_per_epoch,
        )


def _programs(
    study: BatchStudy, settings: Settings, trials: int, source: Mapping[str, Any] | None
) -> tuple[Programs, float]:
    """The programs of a study that fit in memory, and the seconds that this call spent on compiling.

    There are as many lanes as there may be, and as few parts of a batch.

    Raises:
      BadInput: a batch does not fit, into however many parts it is divided.
    """
    began, key = time.perf_counter(), programs_key(study)
    strategy = default_strategy() if settings.lane_strategy == "auto" else settings.lane_strategy
    workload = workload_of(key, source)
    ways = candidates(study, settings, trials, workload, len(mesh.devices()), strategy)
    free = mesh.device_bytes()
    _check_resident(study, workload, free)
    needed, per_share, is_new = 0, 0.0, False
    for lanes, division in ways:
        share = lanes * division.examples(study.batch_size) / division.microbatches / mesh.groups(division.shards)
        if free is not None and per_share * share > free:
            continue
        programs, was_built = programs_for(key, lanes, strategy, division, source)
        is_new |= was_built
        needed, per_share = programs.bytes, programs.bytes / share
        if free is None or needed <= free or len(ways) == 1:
            return programs, time.perf_counter() - began if is_new else 0.0
    raise BadInput(
        f"batch_size={study.batch_size} of {study.dataset} needs {memory.size_text(needed)} of memory on each device, "
        f"and {memory.size_text(free or 0)} are there; divide it over more devices with shards"
    )


def _check_resident(study: BatchStudy, workload: Workload, free: int | None) -> None:
    """Raises BadInput for training data that are kept on the devices and do not fit there, before anything compiles."""
    train = None if workload.feed or workload.draw else workload.shapes.train
    size = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in train or ())
    if free is not None and size > free:
        raise BadInput(
            f"{study.dataset} keeps {memory.size_text(size)} of training data on each device, and "
            f"{memory.size_text(free)} are there; train on devices with more memory"
        )


def candidates(
    study: BatchStudy, settings: Settings, trials: int, workload: Workload, devices: int, strategy: str
) -> list[tuple[int, Division]]:
    """Lanes and divisions of a batch over devices: first fewer and fewer lanes, then finer and finer divisions."""
    lanes = _lane_count(settings, strategy, trials, streamed=workload.feed is not None)
    ways = divisions(study.batch_size, workload.group, devices, settings.shards, settings.microbatches)

    def of(count: int, division: Division) -> tuple[int, Division]:
        groups = max(1, devices // division.shards)
        return -(-count // groups) * groups, division

    counts = [lanes] if settings.lanes else [-(-lanes // (1 << i)) for i in range(lanes.bit_length() + 1)]
    found = [of(count, ways[0]) for count in counts] + [of(counts[-1], division) for division in ways[1:]]
    return list(dict.fromkeys(found))


def _lane_count(settings: Settings, strategy: str, trials: int, *, streamed: bool) -> int:
    """How many lanes there are to be. Batched ones cost as much without a trial as with one.

    Of streamed data every lane takes a stream of its own, so there is one, or one for each group of devices.
    """
    if settings.lanes is None and streamed:
        return 1
    if settings.lanes is not None or strategy == "map":
        return settings.lanes or DEFAULT_LANES
    return min(DEFAULT_LANES, 1 << (trials - 1).bit_length())  # few numbers, as each takes programs of its own


def _stops(
    scheduler: TrialScheduler, live_trials: Sequence[Live], programs: Programs, seconds_per_step: float
) -> list[int]:
    """The steps that trials will have taken after the next call, which is to take no longer than ``CALL_SECONDS``.

    All batched lanes take as long as the one that takes most steps, so that a call has as many as make the most of it.
    """
    ways = [scheduler.stop(live) - live.step for live in live_trials]
    # Seconds are those of a step of one lane, whether it had the device to itself or shared it with the others.
    most = FIRST_CALL_STEPS if not seconds_per_step else max(1, int(CALL_SECONDS / seconds_per_step / len(ways)))
    if programs.call_steps is not None:
        most = min(most, programs.call_steps)
    if programs.strategy == "vmap":
        lengths = {min(way, most) for way in ways}
        most = max(lengths, key=lambda steps: sum(min(way, steps) for way in ways) / (steps + CALL_COST))
    return [live.step + min(way, most) for live, way in zip(live_trials, ways, strict=True)]


def _spans(study: BatchStudy, live_trials: Sequence[Live], stops: Sequence[int], lanes: int) -> Spans:
    optimizer = registry.OPTIMIZERS[study.optimizer]
    metaparameters = [DEFAULTS | {**optimizer.defaults, **live.trial.metaparameters} for live in live_trials]
    lane_numbers = [live.lane for live in live_trials]

    def by_lane(values: Sequence[float], dtype: type) -> np.ndarray:
        out: np.ndarray = np.zeros(lanes, dtype)
        out[lane_numbers] = values
        return out

    return Spans(
        start=by_lane([live.step for live in live_trials], np.int32),
        stop=by_lane(stops, np.int32),
        seed=by_lane([live.trial.seed for live in live_trials], np.uint32),
        schedule=by_lane([optimizers.SCHEDULES[study.schedule]] * len(live_trials), np.int32),
        decay_steps=by_lane([each["decay_fraction"] * study.budget_steps for each in metaparameters], np.float32),
        end_factor=by_lane([each["end_learning_rate_factor"] for each in metaparameters], np.float32),
        metaparameters={
            name: by_lane([each[name] for each in metaparameters], np.float32)
            for name in ("label_smoothing", *optimizer.defaults, *optimizer.tuned)
        },
    )
