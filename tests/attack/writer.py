"""A writer without JAX: replays a recorded study into a store, and says what of a store is not the truth.

Programs that fork import it, so it imports nothing that starts threads.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from results import store
from results.checks import verify
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.recorded import Recorded
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.storage.claims import Claim, TakenOver

METRICS = ("validation_loss", "test_loss")


def study_of(pruning: str, trials: int) -> BatchStudy:
    """The study that is replayed."""
    return BatchStudy(
        dataset="digits",
        dataset_version="scikit-learn",
        model="fully_connected",
        model_options={"widths": [16]},
        optimizer="sgd",
        schedule="constant",
        batch_size=64,
        space=SearchSpace({"learning_rate": Range("LOG", 1e-2, 3.0)}),
        targets=(Target("validation_loss", 0.5),) if pruning == "exact" else (),
        budget_steps=60,
        evaluation_ratio=1.3,
        evaluation_spacing=0.0,
        seed=0,
        pruning=pruning,
        trials=trials,
    )


def tables(study: BatchStudy, ids: list[int], attempt: int = 0) -> dict[str, pa.Table]:
    """What a run of these trials measured: the same each time, but for the mark of the attempt.

    The mark is the seed of a trial, and its test_loss at every step.
    """
    curves = {i: curve(study, i) for i in ids}
    ended = {i: ("INFEASIBLE" if i % 5 == 3 else "COMPLETE", int(curves[i][0][-1])) for i in ids}
    trials = {
        "study": [study.name] * len(ids),
        "trial": ids,
        "seed": [attempt] * len(ids),
        "status": [ended[i][0] for i in ids],
        "steps": [ended[i][1] for i in ids],
        "learning_rate": [study.space["learning_rate"].at(i * 0.37 % 1) for i in ids],
    }
    step = np.concatenate([curves[i][0] for i in ids])
    measured = {
        "study": [study.name] * len(step),
        "trial": np.repeat(ids, [len(curves[i][0]) for i in ids]),
        "step": step,
        "validation_loss": np.concatenate([curves[i][1] for i in ids]),
        "test_loss": np.full(len(step), attempt),
    }
    about = {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.labels.model,
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "planned_trials": study.trials,
        "plan": study.plan_json,
        "started_at": str(time.time()),
    }
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in about.items()}, {}),
        "trials": schema.build(schema.TRIALS, trials, {"learning_rate": pa.float64()}),
        "measurements": schema.build(schema.MEASUREMENTS, measured, dict.fromkeys(METRICS, pa.float32())),
    }


def curve(study: BatchStudy, trial: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses of a trial until it reached the target or its budget."""
    step = study.evaluations
    loss = np.exp(-step * (1 + trial * 7 % 11) / 100).astype(np.float32)
    last = np.flatnonzero(study.targets[0].reached(loss))[:1] + 1 if study.targets else []
    stop = int(last[0]) if len(last) else len(step)
    return step[:stop], loss[:stop]


def replay(folder: Path, study: BatchStudy, attempt: int = 0, rest: Callable[[], None] = lambda: None) -> None:
    """Asks for the study, and writes what is missing of it, two trials a part, under the lock."""
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        finish(claim, study, attempt, rest)


def insist(folder: Path, study: BatchStudy, attempt: int, rest: Callable[[], None]) -> None:
    """As ``replay``, without the lock, until the study is whole, however often others take it over."""
    while True:
        claim = Claim(folder, study.name)
        if claim.visible and len(claim.settled) == study.trials:
            return
        try:
            rest()
            finish(claim, study, attempt, rest)
        except TakenOver:
            rest()


def finish(claim: Claim, study: BatchStudy, attempt: int, rest: Callable[[], None]) -> None:
    """Writes what is missing, two trials a part, and commits."""
    missing = [i for i in range(study.trials) if i not in claim.settled]
    for at in range(0, len(missing), 2):
        claim.write(tables(study, missing[at : at + 2], attempt))
        rest()
    if not claim.visible:
        claim.commit(study)


def published() -> tuple[Recorded, dict[str, pa.Table]]:
    """A study somebody else published: no seeds, trials with gaps, rows that tell little."""
    study = Recorded(
        source="algoperf",
        dataset="mnist/half",
        model="cnn",
        optimizer="sgd",
        batch_size=32,
        space=SearchSpace({"lr": Range("LOG", 0.1, 1.0)}),
        details={"licence": "Apache-2.0", "note": "Größe"},
        trials=5,
    )
    ids = [3, 7, 40]
    rows = {
        "study": [study.name] * 3,
        "trial": ids,
        "status": ["COMPLETE", "INFEASIBLE", "INCOMPLETE"],
        "reason": [None, None, "unstated"],
        "steps": [900, None, 10],
        "lr": [0.5, None, 2.0],
    }
    measured = {"study": [study.name] * 2, "trial": [3, 3], "step": [100, 800], "test_error": [0.12, np.nan]}
    about = {"study": [study.name], "dataset": [study.dataset], "plan": [study.plan_json], "planned_trials": [5]}
    return study, {
        "studies": schema.build(schema.STUDIES, about, {}),
        "trials": schema.build(schema.TRIALS, rows, {"lr": pa.float64()}),
        "measurements": schema.build(schema.MEASUREMENTS, measured, {"test_error": pa.float64()}),
    }


def several(folder: Path) -> None:
    """Fills a store with a study that grew, one that somebody else published, and one in progress."""
    for trials in (6, 8):
        replay(folder, study_of("off", trials))
    study, measured = published()
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(measured)
        claim.commit(study)
    going = study_of("exact", 8)
    replay(folder, study_of("exact", 2))
    store.ask(folder, going)
    with store.claim(folder, going.name) as claim:
        claim.write(tables(going, [2, 3]))
        claim.write(tables(going, [6]))


def uncommitted(folder: Path) -> None:
    """Fills a store with a study of one commit, of parts since, by two runs, and of one that was cut off."""
    study = study_of("exact", 8)
    replay(folder, study_of("exact", 2))
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(tables(study, [2, 3]))
        late = sorted((folder / study.name).glob("part-*"))[-1]
        claim.write(tables(study, [4]))
    with store.claim(folder, study.name) as claim:
        claim.write(tables(study, [5]))
    shutil.copy(late, late.with_name("part-000003-000003.arrows"))


def faults(folder: Path) -> list[str]:
    """What ``verify`` has to say against a store; nothing if there is none yet, or no study in it."""
    if not folder.is_dir() or not list(folder.iterdir()):
        return []
    return [fault.line for found in verify.examine(folder, lambda line: None) for fault in found.faults]


def unlike(folder: Path, study: BatchStudy) -> list[str]:
    """How what is committed of a study differs from the truth."""
    found, wrong = store.read(folder, study.name), []
    whole = {name: table.to_pandas() for name, table in tables(study, list(range(study.trials))).items()}
    trials, rows = found.trials, found.measurements
    if study.pruning == "off":
        same = ["trial", "status", "steps", "learning_rate"]
        if not trials[same].equals(whole["trials"][same]):
            wrong.append("trials")
        same = ["trial", "step", "validation_loss"]
        if not rows[same].equals(whole["measurements"][same]):
            wrong.append("measurements")
    marks = rows["test_loss"].to_numpy()
    if not np.array_equal(marks, trials.set_index("trial")["seed"].loc[rows["trial"]].to_numpy(np.float32)):
        wrong.append("rows of different attempts in one trial")
    if not store.progress(folder, study).ledger.adds_up or store.progress(folder, study).to_run:
        wrong.append("ledger")
    return wrong
