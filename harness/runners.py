"""Runners: functions that run the trials of each kind of study and answer questions about its costs.

Modules that import JAX are imported when a study of their kind first runs, so that listing runners stays fast.
"""

import dataclasses
import importlib
import json
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.costs import REFUSED, Answer, Counts, Question, Verdict
from harness.run import OnFinished, OnProgress, Settings, Source
from harness.scheduler import BestSteps, Outcomes
from harness.shutdown import Shutdown
from results.bad_input import BadInput
from results.plans.batch_study import evaluation_steps
from results.plans.kinds import from_plan
from results.plans.study import Trial

if TYPE_CHECKING:
    from harness.checkpoints import Checkpoints


@dataclasses.dataclass(frozen=True)
class Job:
    """Trials to run, with the callbacks that receive their progress.

    Attributes:
      study: the plan, of the kind of the runner.
      trials: trials of the study, with distinct ids.
      settings: how to run them.
      checkpoints: checkpoints of the study.
      source: the source of its data, if its plan does not specify it. See ``sweeps.kind_configs``.
      best: answers of trials that already ran. Exact pruning starts from them.
      on_progress: called with the progress of the run.
      on_finished: called with newly finished trials.
      confirming: called when all trials have ended and been handed over. Returns trials that confirm the best ones.
      shutdown: shutdown of this process, which does not end in the middle of a write.
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
    """The runner of a kind of study.

    Attributes:
      run: runs a job and returns the outcome of each trial.
      evaluations: given a study, the steps at which its trials are evaluated and may end, increasing to the budget.
      programs: given a study, a key. Studies with equal keys share compiled programs.
      over_hosts: whether several processes can run one study together.
      saves_in_parts: whether each of these processes saves a part of a trial. All must then reach one folder.
      after_death: removes a possible cause of the death of a study's process before the study is retried.
      counts: counts the costs of a study from shapes only, given its plan, the source of its data and settings. None
        for kinds without predicted costs.
      verdict: compiles a study for a topology, given also the topology. None for kinds without predicted costs.
      process: given a study that needs the whole machine, a key. Studies with equal keys share one process.
    """

    run: Callable[[Job], Outcomes]
    evaluations: Callable[[Any], np.ndarray] = lambda study: evaluation_steps(study.budget_steps, 1.1)
    programs: Callable[[Any], Hashable] = lambda study: study.name
    over_hosts: bool = False
    saves_in_parts: bool = False
    after_death: Callable[[Any], None] = lambda study: None
    counts: Callable[[Any, Source, Settings], Counts] | None = None
    verdict: Callable[[Any, Source, Settings, str], Verdict] | None = None
    process: Callable[[Any], Hashable] = lambda study: study.name


def _lazy(module: str, name: str) -> Callable[..., Any]:
    """A function whose module is imported when it is first called."""
    return lambda *arguments: getattr(importlib.import_module(module), name)(*arguments)


def _batch(job: Job) -> Outcomes:
    from harness import engine

    return engine.run(**vars(job)).outcomes


def _cores(job: Job) -> Outcomes:
    from harness import factorizations
    from workloads import registry
    from workloads.factorization import prepared

    assert job.source is not None
    source = registry.ratings(job.source)
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
    from harness import layouts

    return layouts.run(job.study, job.trials, job.on_progress, job.on_finished)


def _discard_kernel(study: Any) -> None:
    """Removes the cached kernel, which may have killed the process, so that it is recompiled."""
    from workloads.factorization import fused

    if study.kernel == "fused":
        fused.discard(study.dim)


RUNNERS = {
    "batch": Runner(
        _batch,
        evaluations=lambda study: study.evaluations,
        programs=_lazy("harness.programs_key", "programs_key"),
        over_hosts=True,
        counts=_lazy("harness.network_costs", "counts"),
        verdict=_lazy("harness.network_costs", "verdict"),
    ),
    "cores": Runner(
        _cores,
        evaluations=lambda study: np.arange(1, study.epochs + 1),
        after_death=_discard_kernel,
        over_hosts=True,
        saves_in_parts=True,
        counts=_lazy("harness.factorization_costs", "counts"),
        verdict=_lazy("harness.factorization_costs", "verdict"),
    ),
    "layout": Runner(
        _layout,
        evaluations=lambda study: np.arange(1, study.budget_steps + 1),
        process=lambda study: (study.kind, study.devices),
    ),
}


def answer(question: Question) -> Answer:
    """The answer to a question, as plain data."""
    study = from_plan(question.plan, question.trials)
    runner = RUNNERS[study.kind]
    assert runner.counts is not None and runner.verdict is not None  # callers check this first
    try:
        if question.topology is None:
            return runner.counts(study, question.source, question.settings)._asdict()
        return runner.verdict(study, question.source, question.settings, question.topology)._asdict()
    except BadInput as error:
        return {REFUSED: str(error)}


def answer_all() -> None:
    """Answers the questions of ``harness.costs``, one line of JSON each, from standard input.

    Prints one line per question: the fields of ``Counts``, those of ``Verdict`` if it has a topology, or ``refused``.
    """
    for line in sys.stdin:
        given = json.loads(line)
        given["settings"] = Settings(**given["settings"])
        print(json.dumps(answer(Question(**given))), flush=True)
