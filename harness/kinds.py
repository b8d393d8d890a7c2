"""The runner of each kind of study: functions that run its trials and answer questions about its costs.

Modules that import JAX are imported when a study of their kind first runs, so listing the runners is fast.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.processes.shutdown import Shutdown
from harness.run import OnFinished, OnProgress, Settings, Source
from harness.trials.scheduler import BestSteps, Outcomes
from results.lazy import lazy
from results.plans.study import Trial

if TYPE_CHECKING:
    from harness.trials.checkpoints import Checkpoints
    from results.costs.counts import Counts, Verdict


@dataclasses.dataclass(frozen=True)
class Job:
    """The trials to run, and callbacks that receive their progress.

    Attributes:
      study: plan of the study. It must be of the runner's kind.
      trials: trials of the study, with distinct ids.
      settings: settings of the run.
      checkpoints: checkpoints of the study.
      source: source of the study's data, if the plan does not specify it. See ``sweeps.kind_configs``.
      best: results of trials that have already run. Exact pruning uses them from the start.
      on_progress: called with the progress of the run.
      on_finished: called with newly finished trials.
      confirming: called when all trials have ended and been reported. Returns additional trials that confirm the best
        trials.
      shutdown: shutdown state of this process. The process does not end during a write.
    """

    study: Any
    trials: Sequence[Trial]
    settings: Settings
    checkpoints: "Checkpoints"
    source: Source
    best: BestSteps
    on_progress: OnProgress
    on_finished: OnFinished
    confirming: Callable[[], Sequence[Trial]]
    shutdown: Shutdown


class Runner(NamedTuple):
    """A runner of a kind of study.

    Attributes:
      run: function that runs a job and returns the outcome of each trial.
      evaluations: function that returns the steps at which a study's trials are evaluated and may end, up to the
        budget. By default, these are all steps.
      programs: function that returns the key of a study's compiled programs. Studies with equal keys share programs.
      over_hosts: whether multi-host runs are supported.
      saves_in_parts: whether each process of a multi-host run saves only a part of a trial. If so, all processes need
        access to the same folder.
      after_death: function called before a crashed process is retried. It removes a possible cause of the crash.
      counts: function that counts the costs of a study from its shapes, given the plan, the data source and settings.
        None for kinds without predicted costs.
      counts_of_sizes: function that counts the costs of all studies of a family, by number of examples in a step. It
        takes the arguments of ``counts`` for one of the studies, and the numbers of examples. By default, studies are
        counted one by one.
      family: function that returns a key of a study. Studies with equal keys differ only in the batch size and in
        numbers that do not affect the programs.
      verdict: function that compiles a study for a topology. It takes the arguments of ``counts`` and the topology.
        None for kinds without predicted costs.
      process: function that returns a key of a study that needs the whole machine. Studies with equal keys share one
        process.
      examples: function that returns the number of examples in a step, which determines the cost of the step.
      lanes: whether a program can run several trials at a time and split a batch across devices.
    """

    run: Callable[[Job], Outcomes]
    evaluations: Callable[[Any], np.ndarray] = lambda study: np.arange(1, study.budget_steps + 1)
    programs: Callable[[Any], Hashable] = lambda study: study.name
    over_hosts: bool = False
    saves_in_parts: bool = False
    after_death: Callable[[Any], None] = lambda study: None
    counts: Callable[[Any, Source, Settings], "Counts"] | None = None
    counts_of_sizes: Callable[[Any, Source, Settings, Sequence[int]], "dict[int, Counts]"] | None = None
    family: Callable[[Any], Hashable] = lambda study: study.name
    verdict: Callable[[Any, Source, Settings, str], "Verdict"] | None = None
    process: Callable[[Any], Hashable] = lambda study: study.name
    examples: Callable[[Any], int] = lambda study: 0
    lanes: bool = False


def _batch(job: Job) -> Outcomes:
    from harness.runners import engine

    return engine.run(**vars(job)).outcomes


def _cores(job: Job) -> Outcomes:
    from harness.runners import factorizations
    from workloads import ratings_sources
    from workloads.factorization import prepared

    assert job.source is not None
    source = ratings_sources.source(job.source)
    if source.version() != job.study.dataset_version:
        raise RuntimeError(f"{source.name} has changed since the study was planned. Run the same command again.")
    return factorizations.run(
        job.study,
        job.trials,
        prepared.load(source),
        job.checkpoints,
        time_limit_seconds=job.settings.time_limit_seconds,
        on_progress=job.on_progress,
        on_finished=job.on_finished,
        shutdown=job.shutdown,
    )


def _layout(job: Job) -> Outcomes:
    from harness.runners import layouts

    return layouts.run(job.study, job.trials, job.source, job.on_progress, job.on_finished)


def _discard_kernel(study: Any) -> None:
    """Removes the cached kernel, which may have caused the crash, so it is recompiled."""
    from workloads.factorization import fused

    if study.kernel == "fused":
        fused.discard(study.dim)


RUNNERS = {
    "batch": Runner(
        _batch,
        lanes=True,
        examples=lambda study: study.batch_size,
        evaluations=lambda study: study.evaluations,
        programs=lazy("harness.step.programs_key", "programs_key"),
        over_hosts=True,
        counts=lazy("harness.costs.network_costs", "counts"),
        counts_of_sizes=lazy("harness.costs.network_costs", "counts_of_sizes"),
        family=lazy("harness.step.programs_key", "family"),
        verdict=lazy("harness.costs.network_costs", "verdict"),
    ),
    "cores": Runner(
        _cores,
        after_death=_discard_kernel,
        over_hosts=True,
        saves_in_parts=True,
        counts=lazy("harness.costs.factorization_costs", "counts"),
        verdict=lazy("harness.costs.factorization_costs", "verdict"),
    ),
    "layout": Runner(
        _layout,
        examples=lambda study: study.batch_size,
        process=lambda study: (study.kind, study.devices),
        counts=lazy("harness.costs.layout_costs", "counts"),
        verdict=lazy("harness.costs.layout_costs", "verdict"),
    ),
}
