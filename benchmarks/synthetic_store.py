"""A store of the size and shape of the data released with Shallue et al. 2018, with made-up numbers.

    python benchmarks/synthetic_store.py STORE [--share SHARE] [--plausible]

All 454 published studies are in it, with 168,000 trials and 70 million measurements, or a share of the measurements.
With --plausible their numbers are those of benchmarks/plausible.py, which reach the targets of every published figure.
Everything is written as an import writes it: claims, parts, commit records and envelopes are real ones.
"""

import argparse
import contextlib
import csv
import importlib.util
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from results import store
from results.importers import shallue2018_format
from results.plans import schema
from results.plans.recorded import Recorded
from results.plans.search_space import Range, SearchSpace

PUBLISHED = Path(__file__).parents[1] / "results" / "papers" / "shallue2018_studies.csv"
TRIALS, ROWS = 168_000, 70_000_000
SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-4, 10.0), "momentum": Range("REVERSE_LOG", 0.9, 0.9999)})
METRICS = ("validation_loss", "validation_error", "test_loss", "test_error")
STATUSES = ("COMPLETE", "INCOMPLETE", "INFEASIBLE")
_BESIDE = importlib.util.spec_from_file_location("plausible", Path(__file__).with_name("plausible.py"))
assert _BESIDE is not None and _BESIDE.loader is not None
plausible = importlib.util.module_from_spec(_BESIDE)  # of no package, wherever this file is loaded from
_BESIDE.loader.exec_module(plausible)
LASTS = {"COMPLETE": 1.0, "INCOMPLETE": 0.6, "INFEASIBLE": 0.1}  # share of the budget a trial takes, on average


class Made(NamedTuple):
    """A study to be written, how many trials of each status it has, and how many evaluations a whole trial has.

    ``path`` is its folder in the published archive where its trials are to be plausible; else it is empty.
    """

    study: Recorded
    counts: tuple[int, ...]
    evaluations: int
    path: str = ""


@contextlib.contextmanager
def asked() -> Iterator[tuple[Path, Path, float]]:
    """Takes --store and --share off the command line: a folder to work in, that of the store, and the share."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--share", type=float, default=1.0)
    options, sys.argv[1:] = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), options.store or Path(folder) / "store", options.share


def studies(share: float = 1.0, plausibly: bool = False, most: int | None = None) -> list[Made]:
    """The published studies, or the first so many, with evaluations a trial that give ``share`` of 70 million rows."""
    with PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    published = [[int(row[f"{status.lower()}_trials"]) for status in STATUSES] for row in rows]
    counts = np.rint(np.array(published) * TRIALS / np.sum(published)).astype(int)
    whole = (counts @ [LASTS[status] for status in STATUSES]).sum()  # trials, if all went to the end
    evaluations = max(1, round(share * ROWS / whole))
    return [_made(row, own, evaluations, plausibly) for row, own in list(zip(rows, counts, strict=True))[:most]]


def _made(row: dict[str, str], counts: np.ndarray, evaluations: int, plausibly: bool) -> Made:
    path = "{base_directory}/{model}/{optimizer}/{batch_size}".format(**row) if plausibly else ""
    study = Recorded(
        source="shallue2018",
        dataset=row["base_directory"],
        model=row["model"],
        optimizer=row["optimizer"],
        batch_size=int(row["batch_size"]),
        space=_space(path) if plausibly else SPACE,
        details={"made_up": True, "train_steps": plausible.train_steps(path) if plausibly else 600},
        trials=int(sum(counts)),
    )
    return Made(study, tuple(counts.tolist()), evaluations, path)


def _space(path: str) -> SearchSpace:
    ranges = {
        "learning_rate": Range("LOG", 1e-6, 1e3),
        "momentum": Range("REVERSE_LOG", 0.9, 0.9999),
        "label_smoothing": Range("DISCRETE", values=plausible.SMOOTHINGS),
    }
    return SearchSpace({name: ranges[name] for name in plausible.parameter_configs(path)})


def tables(made: Made, rng: np.random.Generator) -> dict[str, pa.Table]:
    """The three tables of a study; evaluations become rarer as a trial goes on, as in the archive."""
    if made.path:
        return _plausible_tables(made, rng)
    status = rng.permutation(np.repeat(STATUSES, made.counts))
    trials = len(status)
    ran = np.array([LASTS[s] for s in status]) * np.where(status == "COMPLETE", 1, rng.uniform(0.2, 1.8, trials))
    rows = np.maximum(1, np.rint(ran * made.evaluations).astype(int))
    grid = np.cumsum(rng.integers(1, 3, rows.max()) * (10 + np.arange(rows.max()) // 20)).astype(np.int32)
    trial = np.repeat(np.arange(1, trials + 1, dtype=np.int32), rows)
    place = np.arange(len(trial)) - np.repeat(np.cumsum(rows) - rows, rows)  # of a row within its trial
    drawn = {parameter: [ranged.at(u) for u in rng.random(trials)] for parameter, ranged in SPACE.items()}
    return _built(made, status, grid[rows - 1], drawn, trial, grid[place], curves(rows, place, rng))


def _plausible_tables(made: Made, rng: np.random.Generator) -> dict[str, pa.Table]:
    found = plausible.trials(made.path, made.counts, made.evaluations, rng)
    trial = np.repeat(np.arange(1, len(found.rows) + 1, dtype=np.int32), found.rows)
    metrics = {shallue2018_format.metric(name) or name: values for name, values in found.columns.items()}
    measured = shallue2018_format.as_errors(pa.table(metrics))
    columns = {name: measured[name].to_numpy() for name in metrics if not name.startswith("train")}
    last = found.step[np.cumsum(found.rows) - 1]
    return _built(made, found.status, last, found.metaparameters, trial, found.step, columns)


def _built(
    made: Made,
    status: np.ndarray,
    steps: np.ndarray,
    drawn: Mapping[str, Any],
    trial: np.ndarray,
    step: np.ndarray,
    columns: Mapping[str, np.ndarray],
) -> dict[str, pa.Table]:
    """The three tables: status, last step and metaparameters of every trial; trial, step and metrics of every row."""
    name, trials = made.study.name, len(status)
    study = {"study": [name], "planned_trials": [trials], "plan": [made.study.plan_json]}
    study |= {field: [getattr(made.study, field)] for field in ("dataset", "model", "optimizer", "batch_size")}
    trial_rows = {
        "study": [name] * trials,
        "trial": np.arange(1, trials + 1),
        "status": status.tolist(),
        "reason": ["unstated" if s == "INCOMPLETE" else None for s in status],
        "steps": steps,
    }
    ids = schema.constant(pa.field("study", schema.MEASUREMENTS[0].type), name, len(trial))
    measured = {"study": ids, "trial": trial, "step": step} | dict(columns)
    return {
        "studies": schema.build(schema.STUDIES, study, {}),
        "trials": schema.build(schema.TRIALS, trial_rows | dict(drawn), dict.fromkeys(drawn, pa.float64())),
        "measurements": schema.build(schema.MEASUREMENTS, measured, dict.fromkeys(columns, pa.float64())),
    }


def curves(rows: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Noisy falling errors, decimals with few digits; how low and how fast differs from trial to trial.

    Args:
      rows: int[trials], rows of each trial.
      place: int[sum of rows], of a row within its trial.
    """
    floor = np.repeat(rng.uniform(0.006, 0.3, len(rows)), rows)
    fall = np.exp(-place * np.repeat(10 ** rng.uniform(-3, -0.5, len(rows)), rows))
    columns: dict[str, np.ndarray] = {}
    for split, gap in (("validation", 0.0), ("test", 0.001)):
        noise = rng.normal(0, 0.01, len(place)) * (gap + floor + 0.1 * fall)
        columns[f"{split}_error"] = np.round(np.clip(gap + floor + (0.9 - floor) * fall + noise, 0, 1) * 5000) / 5000
        columns[f"{split}_loss"] = np.round(3 * (gap + floor) + 2.3 * fall + 4 * noise, 6)
    return {name: columns[name] for name in METRICS}


def write(folder: Path, made: Sequence[Made], seed: int = 0) -> Iterator[int]:
    """Writes those of ``studies`` that the store lacks, on all cores; yields the number of rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    visible = {commit.name for commit in store.catalogue(folder)}
    jobs = [(folder, each, (seed, i)) for i, each in enumerate(made) if each.study.name not in visible]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_write, jobs)


def _write(job: tuple[Path, Made, Any]) -> int:
    folder, made, seed = job
    content = tables(made, np.random.default_rng(seed))
    store.ask(folder, made.study)
    with store.claim(folder, made.study.name) as claim:
        claim.write(content)
        claim.commit(made.study)
    for part in (folder / made.study.name).glob("part-*"):
        part.unlink()  # readers look at no part that a commit record holds, and the disk may be small
    return len(content["measurements"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="share of the 70 million measurements")
    parser.add_argument("--plausible", action="store_true", help="trials that reach the targets of every figure")
    options = parser.parse_args()
    made = studies(options.share, options.plausible)
    rows = write(options.store, made)
    print(sum(tqdm(rows, total=len(made), disable=not sys.stderr.isatty())), "rows")
