"""Writes a store with the size and structure of the data of Shallue et al. 2018, with synthetic numbers.

    python benchmarks/synthetic_store.py STORE [--share SHARE] [--plausible]

The store contains all 454 published studies with 168,000 trials and 70 million measurements, or a fraction of the
measurements. With --plausible, the trials reach the targets of every published figure, as in benchmarks/archives.py.
Claims, parts, commit records and envelopes are the same as those written by an import.
"""

import argparse
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import archives
import numpy as np
import pyarrow as pa
from archives import LASTS, STATUSES
from tqdm import tqdm

from results import store
from results.importers import shallue2018_format
from results.plans import schema
from results.plans.recorded import Recorded
from results.plans.search_space import Range, SearchSpace

TRIALS, ROWS = 168_000, 70_000_000
SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-4, 10.0), "momentum": Range("REVERSE_LOG", 0.9, 0.9999)})
METRICS = ("validation_loss", "validation_error", "test_loss", "test_error")
# Arguments for benchmarks that use this store.
ARGUMENTS = {"--store": {"type": Path}, "--share": {"type": float, "default": 1.0}}


class SyntheticStudy(NamedTuple):
    """A study to write, with the number of trials by status and the number of evaluations per complete trial.

    ``path`` is the study's folder in the published archive if trials must be plausible, otherwise empty.
    """

    study: Recorded
    counts: tuple[int, ...]
    evaluations: int
    path: str = ""


def studies(share: float = 1.0, plausibly: bool = False, most: int | None = None) -> list[SyntheticStudy]:
    """Returns all published studies, or the first ``most``, with about ``share`` of 70 million rows in total."""
    paths, *published = zip(*archives.published(), strict=True)
    counts = np.rint(np.transpose(published) * TRIALS / np.sum(published)).astype(int)
    weighted_trials = (
        counts @ [LASTS[status] for status in STATUSES]
    ).sum()  # trials, weighted by their share of the budget
    evaluations = max(1, round(share * ROWS / weighted_trials))
    return [
        _study(path, trial_counts, evaluations, plausibly)
        for path, trial_counts in list(zip(paths, counts, strict=True))[:most]
    ]


def _study(path: str, counts: np.ndarray, evaluations: int, plausibly: bool) -> SyntheticStudy:
    dataset, model, optimizer, batch_size = path.rsplit("/", 3)
    study = Recorded(
        source="shallue2018",
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        batch_size=int(batch_size),
        space=_space(path) if plausibly else SPACE,
        details={"made_up": True, "train_steps": archives.train_steps(path) if plausibly else 600},
        trials=int(sum(counts)),
    )
    return SyntheticStudy(study, tuple(counts.tolist()), evaluations, path if plausibly else "")


def _space(path: str) -> SearchSpace:
    ranges = {
        "learning_rate": Range("LOG", 1e-6, 1e3),
        "momentum": Range("REVERSE_LOG", 0.9, 0.9999),
        "label_smoothing": Range("DISCRETE", values=archives.SMOOTHINGS),
    }
    return SearchSpace({name: ranges[name] for name in archives.parameter_configs(path)})


def tables(synthetic: SyntheticStudy, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Draws the three tables of a study. Like in the archive, evaluations become less frequent during a trial."""
    if synthetic.path:
        return _plausible_tables(synthetic, rng)
    status = rng.permutation(np.repeat(STATUSES, synthetic.counts))
    trials = len(status)
    shares = np.array([LASTS[s] for s in status]) * np.where(status == "COMPLETE", 1, rng.uniform(0.2, 1.8, trials))
    rows = np.maximum(1, np.rint(shares * synthetic.evaluations).astype(int))
    grid = np.cumsum(rng.integers(1, 3, rows.max()) * (10 + np.arange(rows.max()) // 20)).astype(np.int32)
    trial = np.repeat(np.arange(1, trials + 1, dtype=np.int32), rows)
    place = np.arange(len(trial)) - np.repeat(np.cumsum(rows) - rows, rows)  # index of each row within its trial
    values = {name: [ranged.at(u) for u in rng.random(trials)] for name, ranged in SPACE.items()}
    return _tables(synthetic, status, grid[rows - 1], values, trial, grid[place], curves(rows, place, rng))


def _plausible_tables(synthetic: SyntheticStudy, rng: np.random.Generator) -> dict[str, pa.Table]:
    trials = archives.plausible_trials(synthetic.path, synthetic.counts, synthetic.evaluations, rng)
    trial = np.repeat(np.arange(1, len(trials.rows) + 1, dtype=np.int32), trials.rows)
    metrics = {shallue2018_format.METRICS.get(name) or name: values for name, values in trials.columns.items()}
    measured = shallue2018_format.as_errors(pa.table(metrics))
    columns = {name: measured[name].to_numpy() for name in metrics if not name.startswith("train")}
    last = trials.step[np.cumsum(trials.rows) - 1]
    return _tables(synthetic, trials.status, last, trials.metaparameters, trial, trials.step, columns)


def _tables(
    synthetic: SyntheticStudy,
    status: np.ndarray,
    steps: np.ndarray,
    metaparameters: Mapping[str, Any],
    trial: np.ndarray,
    step: np.ndarray,
    columns: Mapping[str, np.ndarray],
) -> dict[str, pa.Table]:
    """Builds the tables from the status, last step and metaparameters of each trial, and the columns of the rows."""
    plan, trials = synthetic.study, len(status)
    study = {"study": [plan.name], "planned_trials": [trials], "plan": [plan.plan_json]}
    study |= {field: [getattr(plan, field)] for field in ("dataset", "model", "optimizer", "batch_size")}
    trial_rows = {
        "study": [plan.name] * trials,
        "trial": np.arange(1, trials + 1),
        "status": status.tolist(),
        "reason": ["unstated" if s == "INCOMPLETE" else None for s in status],
        "steps": steps,
    }
    ids = schema.constant(pa.field("study", schema.MEASUREMENTS[0].type), plan.name, len(trial))
    rows = {"study": ids, "trial": trial, "step": step} | dict(columns)
    types = dict.fromkeys(metaparameters, pa.float64())
    return {
        "studies": schema.build(schema.STUDIES, study, {}),
        "trials": schema.build(schema.TRIALS, trial_rows | dict(metaparameters), types),
        "measurements": schema.build(schema.MEASUREMENTS, rows, dict.fromkeys(columns, pa.float64())),
    }


def curves(rows: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws noisy, decreasing errors with few digits. Floor and rate differ between trials.

    Args:
      rows: int[trials], number of rows of each trial.
      place: int[sum of rows], index of each row within its trial.
    """
    floor = np.repeat(rng.uniform(0.006, 0.3, len(rows)), rows)
    fall = np.exp(-place * np.repeat(10 ** rng.uniform(-3, -0.5, len(rows)), rows))
    columns: dict[str, np.ndarray] = {}
    for split, gap in (("validation", 0.0), ("test", 0.001)):
        noise = rng.normal(0, 0.01, len(place)) * (gap + floor + 0.1 * fall)
        columns[f"{split}_error"] = np.round(np.clip(gap + floor + (0.9 - floor) * fall + noise, 0, 1) * 5000) / 5000
        columns[f"{split}_loss"] = np.round(3 * (gap + floor) + 2.3 * fall + 4 * noise, 6)
    return {name: columns[name] for name in METRICS}


def write(folder: Path, synthetics: Sequence[SyntheticStudy], seed: int = 0) -> Iterator[int]:
    """Writes missing studies, using all cores, and yields the number of rows of each study."""
    folder.mkdir(parents=True, exist_ok=True)
    visible = {commit.name for commit in store.catalogue(folder)}
    jobs = [
        (folder, synthetic, (seed, i)) for i, synthetic in enumerate(synthetics) if synthetic.study.name not in visible
    ]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_write, jobs)


def save(folder: Path, study: Recorded, content: Mapping[str, pa.Table]) -> None:
    """Writes and commits the tables of a study."""
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(content)
        claim.commit(study)


def _write(job: tuple[Path, SyntheticStudy, Any]) -> int:
    folder, synthetic, seed = job
    content, study = tables(synthetic, np.random.default_rng(seed)), synthetic.study
    save(folder, study, content)
    for part in (folder / study.name).glob("part-*"):
        part.unlink()  # saves disk space, since readers do not need the parts of a committed study
    return len(content["measurements"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="share of the 70 million measurements")
    parser.add_argument("--plausible", action="store_true", help="trials that reach the targets of every figure")
    options = parser.parse_args()
    synthetics = studies(options.share, options.plausible)
    rows = write(options.store, synthetics)
    print(sum(tqdm(rows, total=len(synthetics), disable=None)), "rows")
