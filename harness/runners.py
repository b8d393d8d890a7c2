"""Runners: the functions that run the trials of a study and tell what they cost, by its kind.

A kind's modules are imported only once one of its studies is to run, so that JAX is not initialised earlier.
"""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.costs import Counts, Verdict
from harness.run import Record, RunProgress, Settings
from harness.scheduler import BestSteps, TrialOutcome
from harness.shutdown import Shutdown
from results.plans.batch_study import evaluation_steps
from results.plans.study import Trial

if TYPE_CHECKING:
    from harness.checkpoints import Checkpoints
import json
import sys

from harness.costs import REFUSED, Question
from results.bad_input import BadInput
from results.plans.kinds import from_plan


@dataclasses.dataclass(frozen=True)
class Job:
    """Trials to run, with the callbacks that take their progress.

    Attributes:
      study: the plan.
      trials: of the study, with distinct ids.
      settings: how to run them.
      checkpoints: of the study.
      source: what its data are built from where its plan does not say that, plain data; see ``sweeps.kind_configs``.
      best: answers of trials that already ran, for exact pruning to build on.
      on_progress: called with how far the run has come.
      on_finished: called with trials that have finished since it was last called.
      confirming: gives, once all trials have ended and been handed over, those that confirm the best of them.
      shutdown: of this process, which does not end in the middle of a write.
    """

    study: Any  # of the kind of the runner
    trials: Sequence[Trial]
    settings: Settings
    checkpoints: "Checkpoints"
    source: Mapping[str, Any] | None
    best: BestSteps
    on_progress: Callable[[RunProgress], None]
    on_finished: Callable[[Record], None]
    confirming: Callable[[], Sequence[Trial]]
    shutdown: Shutdown


class Runner(NamedTuple):
    """The runner of a kind of study.

    Attributes:
      run: runs a job, and gives how each trial ended.
      evaluations: of a study: the steps that its trials are evaluated at and may end at, increasing to the budget.
      programs: of a study; studies with equal ones share compiled programs.
      over_hosts: whether several processes can run one of its studies together.
      saves_in_parts: whether each of these saves a part of a trial, for which all must reach one folder.
      counts: what is counted of a study from shapes alone: of its plan, the source of its data, and settings;
        None of kinds whose costs nobody predicts.
      verdict: what the compiler for a topology says of it: of these, and the topology; likewise.
      process: of a study that has the machine to itself; those with equal ones follow each other in one process.
      after_death: removes what may have killed the process of a study, before the study is run once more.
    """

    run: Callable[[Job], Mapping[int, TrialOutcome]]
    evaluations: Callable[[Any], np.ndarray] = lambda study: evaluation_steps(study.budget_steps, 1.1)
    programs: Callable[[Any], Hashable] = lambda study: study.name
    over_hosts: bool = False
    saves_in_parts: bool = False
    after_death: Callable[[Any], None] = lambda study: None
    counts: Callable[[Any, Mapping[str, Any] | None, Settings], Counts] | None = None
    verdict: Callable[[Any, Mapping[str, Any] | None, Settings, str], Verdict] | None = None
    process: Callable[[Any], Hashable] = lambda study: study.name


def _batch(job: Job) -> Mapping[int, TrialOutcome]:
    from harness import engine

    return engine.run(
        job.study,
        job.trials,
        job.settings,
        source=job.source,
        best=job.best,
        on_progress=job.on_progress,
        on_finished=job.on_finished,
        confirming=job.confirming,
        shutdown=job.shutdown,
        checkpoints=job.checkpoints,
    ).outcomes


def _batch_programs(study: Any) -> Hashable:
    from harness.programs_key import programs_key

    return programs_key(study)


def _batch_counts(study: Any, source: Mapping[str, Any] | None, settings: Settings) -> Counts:
    from harness import network_costs

    return network_costs.counts(study, source, settings)


def _batch_verdict(study: Any, source: Mapping[str, Any] | None, settings: Settings, topology: str) -> Verdict:
    from harness import network_costs

    return network_costs.verdict(study, source, settings, topology)


def _cores_counts(study: Any, source: Mapping[str, Any] | None, settings: Settings) -> Counts:
    from harness import factorization_costs

    return factorization_costs.counts(study, source)


def _cores_verdict(study: Any, source: Mapping[str, Any] | None, settings: Settings, topology: str) -> Verdict:
    from harness import factorization_costs

    return factorization_costs.verdict(study, source, topology)


def _cores(job: Job) -> Mapping[int, TrialOutcome]:
    from harness import factorizations
    from workloads import registry
    from workloads.factorization import prepared

    assert job.source is not None
    source = registry.ratings(job.source)
    if source.version() != job.study.dataset_version:
        raise RuntimeError(f"{source.name} has changed since the study was planned; run the same command again")
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


def _layout(job: Job) -> Mapping[int, TrialOutcome]:
    from harness import layouts

    return layouts.run(job.study, job.trials, job.on_progress, job.on_finished)


def _discard_kernel(study: Any) -> None:
    """Removes the cached kernel, which may have killed the process, so that it is compiled again."""
    from workloads.factorization import fused

    if study.kernel == "fused":
        fused.discard(study.dim)


RUNNERS: dict[str, Runner] = {
    "batch": Runner(
        _batch,
        evaluations=lambda study: study.evaluations,
        programs=_batch_programs,
        over_hosts=True,
        counts=_batch_counts,
        verdict=_batch_verdict,
    ),
    "cores": Runner(
        _cores,
        evaluations=lambda study: np.arange(1, study.epochs + 1),
        after_death=_discard_kernel,
        over_hosts=True,
        saves_in_parts=True,
        counts=_cores_counts,
        verdict=_cores_verdict,
    ),
    "layout": Runner(
        _layout,
        evaluations=lambda study: np.arange(1, study.budget_steps + 1),
        process=lambda study: (study.kind, study.devices),
    ),
}


def answer(question: Question) -> dict[str, Any]:
    """The answer to a question, plain data."""
    study = from_plan(question.plan, question.trials)
    runner = RUNNERS[study.kind]
    assert runner.counts is not None and runner.verdict is not None  # nobody asks otherwise
    try:
        if question.topology is None:
            return dict(runner.counts(study, question.source, question.settings)._asdict())
        return dict(runner.verdict(study, question.source, question.settings, question.topology)._asdict())
    except BadInput as error:
        return {REFUSED: str(error)}


def _question(given: Mapping[str, Any]) -> Question:
    return Question(**{**given, "settings": Settings(**given["settings"])})


def answer_all() -> None:
    """The process that answers questions of ``harness.costs``, a line of JSON each, from standard input.

    Prints a line for each: the fields of ``Counts``, of ``Verdict`` where it asks for a topology, or ``refused``.
    """
    for line in sys.stdin:
        print(json.dumps(answer(_question(json.loads(line)))), flush=True)
