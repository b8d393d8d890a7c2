"""Factorizations, one after the other: each in a process of its own on as many cores as its plan says, and alone.

Their times are what is measured, so nothing of ours runs beside them. Never starts JAX.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import processors
from harness.engine import Settings
from results.factorization import Factorization
from sweeps.launchers import worker
from sweeps.launchers.local import (
    ATTEMPTS,
    Outcome,
    Progress,
    Worker,
    cannot_start,
    end_all,
    failed,
    how,
    start,
    visible,
)
from sweeps.launchers.worker import Failure
from workloads.factorization import fused


def slot(cores: int) -> tuple[tuple[int, ...], dict[str, str]]:
    """The logical processors that a process for so many cores is bound to, and its environment.

    On a CPU a core is a physical one and a device of JAX's, and libraries that thread of their own accord do not.
    Beyond the physical cores, devices share all of them. On accelerators a core is a device.
    """
    kind, devices = processors.accelerators()
    if devices:
        return (), {"CUDA_VISIBLE_DEVICES": ",".join(map(visible, range(cores)))} if kind == "gpu" else {}
    bound = tuple(sorted(cpu for core in processors.physical_cores()[:cores] for cpu in core))
    return bound, {"JAX_NUM_CPU_DEVICES": str(cores), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def run_all(
    store: Path,
    studies: Sequence[Factorization],
    ratings: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Outcome]:
    """Runs studies in their order. One that raises is recorded as failed; one whose process dies is run once more,
    from its checkpoints and with a fused kernel that is compiled anew, then recorded as lost. Neither stops the others.

    Args:
      store: folder of the store.
      studies: to be run.
      ratings: of each, by its name; see ``sweeps.config.Request``.
      settings: how; of these the time limit.
      on_progress: told of every epoch, and of every end.

    Returns:
      An outcome per study.
    """
    outcomes = []
    for study in studies:
        order = worker.Order(
            str(store), study.plan(), study.trials, dataclasses.asdict(settings), dict(ratings[study.name])
        )

        def tell(epochs: int, study: Factorization = study) -> None:
            on_progress(Progress(study, epochs, None))

        outcomes.append(outcome := _outcome(store, study, order, tell))
        on_progress(Progress(study, outcome.summary.ran * study.epochs, outcome))
    return outcomes


def _outcome(store: Path, study: Factorization, order: worker.Order, tell: Callable[[int], None]) -> Outcome:
    if why := cannot_start():
        return failed(store, study, "failed", Failure(why))
    for _ in range(ATTEMPTS):
        process = start(0, *slot(study.cores))
        try:
            news = _end(process, order, tell)
        finally:
            end_all([process])
        if news is not None:
            break
        if study.kernel == "fused":  # which nothing keeps from killing its process
            fused.discard(study.dim)
    else:
        why = f"its process died {ATTEMPTS} times, last {how(process.process.exitcode)}"
        return failed(store, study, "lost", Failure(why))
    if news.kind == "done":
        return Outcome(news.value)
    return failed(store, study, "failed", news.value)


def _end(process: Worker, order: worker.Order, tell: Callable[[int], None]) -> worker.News | None:
    """How a study ended; None if its process died first."""
    process.send(order)
    while (news := process.hear()) is not None and news.kind == "progress":
        tell(news.value)
    if news is None:
        process.process.join()
    return news
