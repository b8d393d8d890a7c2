"""Stores with known answers, written through the same functions as real ones."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from analysis.figures import paper_lines
from analysis.fitting import curve_prior, extents
from results import progress, store
from results.importers import shallue2018
from results.plans import schema
from results.plans.batch_study import BatchStudy, evaluation_steps
from results.plans.factorization import Factorization
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.rules import confirmation

ERROR = Target("test_error", 0.1)
BATCH_SIZES = tuple(2**i for i in range(11))
# Critical batch size, plateau and sharpness of the true curves of ``sweep``.
TRUTH = {"sgd": (24.0, 160.0, 1.0), "momentum": (64.0, 60.0, 1.5), "nesterov": (96.0, 40.0, 1.0)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No progress lines on a busy machine, where everything takes long."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 3600.0)


@pytest.fixture(scope="module")
def few_curves() -> Iterator[None]:
    """A tenth of the prior curves, for tests that draw intervals and do not check how often they hold."""
    caches = (curve_prior._draws, curve_prior.sample, extents._answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve_prior, "CURVES", curve_prior.CURVES // 10)
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


class Ran(NamedTuple):
    """One trial of a hand-made study: its rows (step, then one value per metric) and how it ended."""

    rows: Sequence[tuple[float, ...]]
    status: str = "COMPLETE"
    reason: str | None = None


def plan(**changes: Any) -> BatchStudy:
    """A small study; ``changes`` are fields of Study."""
    fields: dict[str, Any] = {
        "dataset": "digits",
        "model": "fully_connected",
        "model_options": {"widths": [64]},
        "optimizer": "sgd",
        "schedule": "constant",
        "batch_size": 16,
        "space": SearchSpace({"learning_rate": Range("LOG", 1e-3, 10.0)}),
        "targets": (ERROR,),
        "budget_steps": 4096,
        "evaluation_ratio": 1.1,
        "evaluation_spacing": 0.0,
        "dataset_version": "",
        "seed": 0,
        "pruning": "off",
        "trials": 4,
    }
    return BatchStudy(**fields | changes)


def publish(
    folder: Path,
    study: BatchStudy,
    trials: Mapping[int, Ran],
    metrics: Iterable[str] = ("test_error",),
    drawn: Mapping[str, Sequence[float]] | None = None,
    **about: Any,
) -> None:
    """Writes one run of ``study``; ``drawn`` are metaparameters of its trials, ``about`` fills its studies table."""
    store.ask(folder, study)
    drawn = drawn or {"learning_rate": [0.1] * len(trials)}
    row = {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.labels.model,
        "optimizer": study.labels.optimizer,
        "batch_size": study.batch_size,
        "budget_steps": study.budget_steps,
        "pruning": study.search.pruning,
        "planned_trials": study.trials,
        "plan": study.plan_json,
        "emulated": False,
    }
    trial_rows = {
        "study": [study.name] * len(trials),
        "trial": list(trials),
        "role": [confirmation.role(trial) for trial in trials],
        "seed": list(trials),
        "status": [ran.status for ran in trials.values()],
        "reason": [ran.reason for ran in trials.values()],
        "steps": [int(ran.rows[-1][0]) if ran.rows else 0 for ran in trials.values()],
    }
    measured = [(trial, *values) for trial, ran in trials.items() for values in ran.rows]
    columns = ("trial", "step", *metrics)
    values = dict(zip(columns, zip(*measured, strict=True), strict=True)) if measured else dict.fromkeys(columns, ())
    measurements: dict[str, Any] = {name: np.asarray(column, np.float32) for name, column in values.items()}
    measurements |= {name: np.asarray(values[name], np.int32) for name in ("trial", "step")}
    tables = {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in (row | about).items()}, {}),
        "trials": schema.build(schema.TRIALS, trial_rows | drawn, dict.fromkeys(drawn, pa.float64())),
        "measurements": schema.build(
            schema.MEASUREMENTS,
            measurements | {"study": [study.name] * len(measured)},
            dict.fromkeys(metrics, pa.float32()),
        ),
    }
    with store.claim(folder, study.name) as claim:
        claim.write(tables)
        claim.commit(study)


def sweep(folder: Path, trials: int = 24, seed: int = 0, **changes: Any) -> None:
    """Studies of three optimizers at eleven batch sizes whose best trials lie on the curves of ``TRUTH``.

    A trial needs the true steps times a lognormal factor of at least 1; one in eight diverges. Its error falls as the
    square root of its steps. Pruning stops a trial once it is past the best steps to target.
    """
    rng = np.random.default_rng(seed)
    for optimizer, (critical, plateau, sharpness) in TRUTH.items():
        for batch_size in BATCH_SIZES:
            study = plan(optimizer=optimizer, batch_size=batch_size, trials=trials, **changes)
            least = plateau * (1 + (critical / batch_size) ** sharpness) ** (1 / sharpness)
            need = least * np.exp(np.abs(rng.normal(0, 1.2, trials)))
            publish(folder, study, dict(enumerate(_outcomes(study, need, rng.random(trials) < 1 / 8))))


def _outcomes(study: BatchStudy, need: np.ndarray, diverges: np.ndarray) -> list[Ran]:
    grid = evaluation_steps(study.budget_steps, study.evaluation_ratio)
    best = min((int(grid[np.searchsorted(grid, n)]) for n in need[~diverges] if n <= grid[-1]), default=int(grid[-1]))
    ran = []
    for steps, diverged in zip(need, diverges, strict=True):
        last = int(np.searchsorted(grid, 3 if diverged else steps))
        rows = [(step, 0.1 * np.sqrt(steps / step)) for step in grid[: last + 1].tolist()]
        if diverged:
            ran.append(Ran([*rows[:-1], (rows[-1][0], np.nan)], "INFEASIBLE"))
        elif study.search.pruning == "exact" and rows[-1][0] > best:
            ran.append(Ran([row for row in rows if row[0] <= best], "INCOMPLETE", "pruned"))
        else:
            ran.append(Ran(rows))
    return ran


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test puts its store."""
    return tmp_path / "store"


@pytest.fixture
def put(
    folder: Path, factorization: Factorization, publish_factorization: Callable[..., None]
) -> Callable[..., Factorization]:
    """Stores a factorization with changes to its plan; ``how``: keywords of ``publish_factorization``."""

    def write(how: Mapping[str, Any] | None = None, **changes: Any) -> Factorization:
        study = dataclasses.replace(factorization, **changes)
        publish_factorization(folder, study, **(how or {}))
        return study

    return write


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store made by ``sweep``; not to be written to."""
    folder = tmp_path_factory.mktemp("swept") / "store"
    sweep(folder)
    return folder


class Paper(NamedTuple):
    """A store with an archive of all workloads of Shallue et al. 2018, and what the released analysis says of it."""

    folder: Path
    answers: Sequence[Any]


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory, archives: ModuleType) -> Paper:
    """An import of plausible trials at five batch sizes or more of every workload; not to be written to."""
    folder = tmp_path_factory.mktemp("paper")
    named: dict[str, set[int]] = {}  # batch sizes that a figure cannot do without
    for panels in paper_lines.figures().values():
        for line in (one for members in panels.values() for one in members):
            named.setdefault("/".join(line.workload), set()).update({line.relative_to or 0, line.batch_size or 0})
    workloads: dict[str, list[Any]] = {}
    for counts in archives.published():
        workloads.setdefault(counts.path.rpartition("/")[0], []).append(counts)
    kept = []
    for workload, studies in workloads.items():
        spread = {round(i) for i in np.linspace(0, len(studies) - 1, 5)}
        needed = {f"{workload}/{size}" for size in named.get(workload, ())}
        kept += [counts for i, counts in enumerate(studies) if i in spread or counts.path in needed]
    answers = archives.write(folder / "archive.tar", studies=kept, trials=0.05, rows=30, plausibly=True)
    lines: list[str] = []
    assert shallue2018.run(folder / "archive.tar", folder / "store", any_checksum=True, report=lines.append) == 0, lines
    return Paper(folder / "store", answers)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``python -m analysis`` with arguments: exit code, stdout, stderr."""
    from analysis.__main__ import main

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run
