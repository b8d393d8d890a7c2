"""Writes a store with the size and structure of the data of Shallue et al. 2018, with synthetic numbers.

    python benchmarks/synthetic_store.py STORE [--share SHARE]

The store contains all 454 published studies with 168,000 trials and 70 million measurements, or a fraction of the
measurements. The trials reach the targets of every published figure, as with `benchmarks/archives.py --plausible`.
Claims, parts, commit records and envelopes are the same as those written by an import.
"""

import argparse
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import archive_trials
import archives
import numpy as np
import pyarrow as pa
from archive_trials import LASTS, STATUSES
from tqdm import tqdm

from results import store
from results.importers import shallue2018_format
from results.plans import schema
from results.plans.recorded import Recorded
from results.plans.search_space import Range, SearchSpace

TRIALS, ROWS = 168_000, 70_000_000
# Arguments for benchmarks that use this store.
ARGUMENTS = {"--store": {"type": Path}, "--share": {"type": float, "default": 1.0}}


class SyntheticStudy(NamedTuple):
    """A study to write, with the number of trials by status and the number of evaluations per complete trial.

    ``path`` is the study's folder in the published archive.
    """

    study: Recorded
    counts: tuple[int, ...]
    evaluations: int
    path: str


def studies(share: float = 1.0, most: int | None = None) -> list[SyntheticStudy]:
    """Returns all published studies, or the first ``most``, with about ``share`` of 70 million rows in total."""
    paths, *published = zip(*archives.published(), strict=True)
    counts = np.rint(np.transpose(published) * TRIALS / np.sum(published)).astype(int)
    weighted_trials = (
        counts @ [LASTS[status] for status in STATUSES]
    ).sum()  # trials, weighted by their share of the budget
    evaluations = max(1, round(share * ROWS / weighted_trials))
    return [
        _study(path, trial_counts, evaluations) for path, trial_counts in list(zip(paths, counts, strict=True))[:most]
    ]


def _study(path: str, counts: np.ndarray, evaluations: int) -> SyntheticStudy:
    dataset, model, optimizer, batch_size = path.rsplit("/", 3)
    study = Recorded(
        source="shallue2018",
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        batch_size=int(batch_size),
        space=_space(path),
        details={"made_up": True, "train_steps": archive_trials.train_steps(path)},
        trials=int(sum(counts)),
    )
    return SyntheticStudy(study, tuple(counts.tolist()), evaluations, path)


def _space(path: str) -> SearchSpace:
    ranges = {
        "learning_rate": Range("LOG", 1e-6, 1e3),
        "momentum": Range("REVERSE_LOG", 0.9, 0.9999),
        "label_smoothing": Range("DISCRETE", values=archive_trials.SMOOTHINGS),
    }
    return SearchSpace({name: ranges[name] for name in archive_trials.parameter_configs(path)})


def tables(synthetic: SyntheticStudy, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Draws the three tables of a study. Like in the archive, evaluations become less frequent during a trial."""
    plan = synthetic.study
    drawn = archive_trials.plausible_trials(synthetic.path, synthetic.counts, synthetic.evaluations, rng)
    count = len(drawn.rows)
    numbers = np.arange(1, count + 1, dtype=np.int32)
    study = {"study": [plan.name], "planned_trials": [count], "plan": [plan.plan_json]}
    study |= {field: [getattr(plan, field)] for field in ("dataset", "model", "optimizer", "batch_size")}
    trials = {
        "study": [plan.name] * count,
        "trial": numbers,
        "status": drawn.status.tolist(),
        "reason": ["unstated" if status == "INCOMPLETE" else None for status in drawn.status],
        "steps": drawn.step[np.cumsum(drawn.rows) - 1],
    }
    metrics = {shallue2018_format.METRICS.get(name) or name: values for name, values in drawn.columns.items()}
    measured = shallue2018_format.as_errors(pa.table(metrics))
    columns = {name: measured[name].to_numpy() for name in metrics if not name.startswith("train")}
    ids = schema.constant(pa.field("study", schema.MEASUREMENTS[0].type), plan.name, len(drawn.step))
    rows = {"study": ids, "trial": np.repeat(numbers, drawn.rows), "step": drawn.step} | columns
    types = dict.fromkeys(drawn.metaparameters, pa.float64())
    return {
        "studies": schema.build(schema.STUDIES, study, {}),
        "trials": schema.build(schema.TRIALS, trials | dict(drawn.metaparameters), types),
        "measurements": schema.build(schema.MEASUREMENTS, rows, dict.fromkeys(columns, pa.float64())),
    }


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
    options = parser.parse_args()
    synthetics = studies(options.share)
    rows = write(options.store, synthetics)
    print(sum(tqdm(rows, total=len(synthetics), disable=None)), "rows")
