"""Generates synthetic archives of any size, in the format of the data of Shallue et al. 2018, with known answers.

    python benchmarks/archives.py PATH [--trials SHARE] [--rows N] [--plausible]

PATH is written as a .tar.bz2, a .tar or, with any other suffix, a folder. The archive contains all 454 published
studies with a fraction of their trials and synthetic numbers. The answers that `analysis steps --rule released` should
give are computed from the trials.

With --plausible, trials of all 35 workloads reach the targets of every published figure (``archive_trials``).
"""

import argparse
import contextlib
import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from archive_trials import parameter_configs, plausible_trials, train_steps

TOP = "batch_science"
PUBLISHED = Path(__file__).parents[1] / "results" / "papers" / "shallue2018_studies.csv"
FIRST = 100  # number of trials that the released analysis considers


class StudyCounts(NamedTuple):
    """A published study: its folder in the archive, and its number of trials by status."""

    path: str
    complete: int
    incomplete: int
    infeasible: int


class ArchivedTarget(NamedTuple):
    """A target, as described in the archive and in our tables."""

    column: str
    beyond: float
    metric: str
    value: float


TARGETS = (
    ArchivedTarget("val/classification_error", 0.01, "validation_error", 0.01),
    ArchivedTarget("val/cross_entropy_error", 0.5, "validation_loss", 0.5),
    ArchivedTarget("val/average_precision", 0.31, "validation_average_precision_error", 0.69),
)


class ArchivedAnswer(NamedTuple):
    """The fewest steps to a target in the released analysis, and the trial. Both are None if it is never reached."""

    path: str
    metric: str
    value: float
    steps: int | None
    trial: int | None


class ArchivedTrial(NamedTuple):
    """A trial: the text of metadata.json and measurements.csv, and the numbers in them."""

    id: int
    status: str
    metadata: str
    measurements: bytes
    columns: dict[str, np.ndarray]


def published() -> list[StudyCounts]:
    """Reads the published table of studies."""
    with PUBLISHED.open(newline="") as file:
        return [
            StudyCounts(
                f"{row['base_directory']}/{row['model']}/{row['optimizer']}/{row['batch_size']}",
                *(int(row[f"{status}_trials"]) for status in ("complete", "incomplete", "infeasible")),
            )
            for row in csv.DictReader(file)
        ]


def write(
    path: Path,
    *,
    studies: Sequence[StudyCounts] | None = None,
    trials: float = 1.0,
    rows: int = 360,
    seed: int = 0,
    shuffled: bool = False,
    plausibly: bool = False,
) -> list[ArchivedAnswer]:
    """Writes an archive, and returns the answers for all studies in it.

    Args:
      path: a .tar.bz2, a .tar or a folder.
      studies: studies to write. Defaults to all published studies.
      trials: fraction of a study's trials to write. At least one trial of each status is written.
      rows: approximate number of measurements of a complete trial.
      seed: seed of the random numbers.
      shuffled: whether to mix the files of all studies instead of writing them by folder. This needs more memory.
      plausibly: whether to draw the trials with ``plausible_trials``.
    """
    answers = []
    rng = np.random.default_rng(seed)
    with _sink(path) as put:
        late: list[tuple[str, bytes]] = []
        for counts in published() if studies is None else studies:
            scaled = counts._replace(**{s: _scale(getattr(counts, s), trials) for s in StudyCounts._fields[1:]})
            drawn = (
                _archived_trials(scaled, rows, rng)
                if plausibly
                else [_trial(scaled.path, *who, rows, rng) for who in _statuses(scaled, rng)]
            )
            answers += [answer for target in TARGETS if (answer := _answer(counts.path, drawn, target))]
            late += _files(scaled.path, drawn, rng, plausibly)
            if not shuffled:
                for file in late:
                    put(*file)
                late.clear()
        for i in rng.permutation(len(late)):
            put(*late[i])
    return answers


def _scale(count: int, share: float) -> int:
    return max(1, round(count * share)) if count else 0


def _statuses(counts: StudyCounts, rng: np.random.Generator) -> list[tuple[int, str]]:
    """Draws ids (starting from 1, with gaps) and a status for each id."""
    statuses = [status.upper() for status in StudyCounts._fields[1:] for _ in range(getattr(counts, status))]
    ids = 1 + np.sort(rng.permutation(len(statuses) + len(statuses) // 8)[: len(statuses)])
    return [(int(i), statuses[j]) for i, j in zip(ids, rng.permutation(len(statuses)), strict=True)]


def _configs(path: str) -> dict[str, dict[str, Any]]:
    optimizer = path.split("/")[-2]
    configs: dict[str, dict[str, Any]] = {
        "learning_rate": {"type": "DOUBLE", "min_value": 1e-4, "max_value": 10.0, "scale": "LOG_SCALE"},
        "learning_rate_decay_steps": {"type": "INTEGER", "min_value": 300, "max_value": 600, "scale": ""},
        "label_smoothing": {"type": "DISCRETE", "feasible_points": [0, 0.01, 0.1], "scale": ""},
    }
    if optimizer != "sgd":
        configs["momentum"] = {"type": "DOUBLE", "min_value": 0.9, "max_value": 0.9999, "scale": "REVERSE_LOG_SCALE"}
    return configs


def _study_json(path: str, plausibly: bool) -> bytes:
    *dataset, model, optimizer, batch_size = path.split("/")
    fields = {
        "batch_size": int(batch_size),
        "dataset": dataset[-1],  # without the prefix, as in the published file
        "model": model,
        "optimizer": optimizer,
        "early_stopping": model == "lstm",
        "train_steps": 0 if dataset[0] == "mnist" else 600,
        "parameter_configs": _configs(path),
    }
    if plausibly:
        fields |= {"train_steps": train_steps(path), "parameter_configs": parameter_configs(path)}
    return json.dumps(fields, indent=1).encode()


def _trial(path: str, number: int, status: str, rows: int, rng: np.random.Generator) -> ArchivedTrial:
    count = int(rng.integers(rows // 2, rows + rows // 2 + 1))
    if status == "INFEASIBLE":
        count = int(rng.integers(0, 3)) if rng.random() < 0.5 else count // 4
    step = np.cumsum(rng.integers(1, 40, count))
    columns = {"step": step - step[:1], **_curves(path, count, rng)}  # starting from 0, as in the published files
    parameters: dict[str, Any] = {"learning_rate": 10 ** rng.uniform(-4, 1), "learning_rate_decay_steps": 450}
    parameters["label_smoothing"] = [0, 0.01, 0.1][int(rng.integers(3))]
    if "momentum" in _configs(path):
        parameters["momentum"] = 1 - 10 ** rng.uniform(-4, -1)
    return _archive(number, status, parameters, columns)


def _archived_trials(counts: StudyCounts, rows: int, rng: np.random.Generator) -> list[ArchivedTrial]:
    all_trials = plausible_trials(counts.path, counts[1:], rows, rng)
    ends = np.cumsum(all_trials.rows)
    trials = []
    for i, (start, end) in enumerate(zip(ends - all_trials.rows, ends, strict=True)):
        values = {
            name: float(column[i]) for name, column in all_trials.metaparameters.items() if not np.isnan(column[i])
        }
        columns = {"step": all_trials.step[start:end]}
        columns |= {name: column[start:end] for name, column in all_trials.columns.items()}
        trials.append(_archive(i + 1, str(all_trials.status[i]), values, columns))
    return trials


def _archive(number: int, status: str, parameters: dict[str, Any], columns: dict[str, np.ndarray]) -> ArchivedTrial:
    metadata = {
        "parameters": parameters,
        "status": status,
        "steps": int(columns["step"][-1]) if len(columns["step"]) else 0,
        "trial_id": number,
        "_internal_worker": "made-up",
        "_internal_time": number,
    }
    return ArchivedTrial(number, status, json.dumps(metadata), _csv(columns), columns)


def _curves(path: str, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws columns of decimal numbers with few digits. Some reach the targets, a few of them exactly."""
    hard = 0.03 if int(path.rpartition("/")[2]) >= 2**14 else 0.0
    done = np.arange(count) / max(count - 1, 1)
    curves: dict[str, np.ndarray] = {}
    for split, gap in (("train", 0.0), ("val", 0.001), ("test", 0.002)):
        floor = hard + gap + rng.uniform(0.006, 0.014)
        fall = np.exp(-rng.uniform(3, 30) * done)
        error = np.clip(floor + 0.89 * fall + rng.normal(0, 0.001, count), 0, 1)
        curves[f"{split}/cross_entropy_error"] = np.round(0.45 + floor * 4 + 2.3 * fall + rng.normal(0, 0.01, count), 6)
        if path.startswith("open_images"):
            precision = np.clip(0.317 - floor / 2 - 0.3 * fall + rng.normal(0, 0.001, count), 0, 1)
            curves[f"{split}/average_precision"] = np.round(precision, 4)
        elif not path.startswith(("lm1b", "common_crawl")):
            curves[f"{split}/classification_error"] = np.round(error, 4)
    return curves


def _csv(columns: dict[str, np.ndarray]) -> bytes:
    sink = io.BytesIO()
    sink.write(",".join(columns).encode() + b"\n")
    options = pyarrow.csv.WriteOptions(include_header=False)
    pyarrow.csv.write_csv(pa.table(columns), sink, options)
    return sink.getvalue()


def _files(
    path: str, trials: Sequence[ArchivedTrial], rng: np.random.Generator, plausibly: bool
) -> list[tuple[str, bytes]]:
    """Returns the files of a study in random order, because a folder may list files in any order."""
    folder = f"{TOP}/{path}"
    groups = [[(f"{folder}/study.json", _study_json(path, plausibly))]]
    for trial in trials:
        pair = [
            (f"{folder}/{trial.id}/metadata.json", trial.metadata.encode()),
            (f"{folder}/{trial.id}/measurements.csv", trial.measurements),
        ]
        groups.append(pair if rng.random() < 0.5 else pair[::-1])
    return [file for i in rng.permutation(len(groups)) for file in groups[i]]


def _answer(path: str, trials: Sequence[ArchivedTrial], target: ArchivedTarget) -> ArchivedAnswer | None:
    """Returns the first step strictly beyond the target among the first complete trials. The lower id wins a tie."""
    sign = -1 if "precision" in target.column else 1
    considered = [trial for trial in sorted(trials, key=lambda t: t.id) if trial.status == "COMPLETE"][:FIRST]
    if not considered or target.column not in considered[0].columns:
        return None
    first_steps = []
    for trial in considered:
        rows = zip(trial.columns["step"].tolist(), trial.columns[target.column].tolist(), strict=True)
        first_steps += [(step, trial.id) for step, value in rows if sign * value < sign * target.beyond][:1]
    return ArchivedAnswer(path, target.metric, target.value, *min(first_steps, default=(None, None)))


@contextlib.contextmanager
def _sink(path: Path) -> Iterator[Callable[[str, bytes], None]]:
    """Yields a function that adds a file to the archive or folder at ``path``."""
    if path.name.endswith((".tar", ".tar.bz2")):
        with tarfile.open(path, "w:bz2" if path.suffix == ".bz2" else "w") as tar:
            folders: set[str] = set()

            def add(name: str, data: bytes) -> None:
                folder = name.rpartition("/")[0]
                if folder not in folders:  # entries for folders, as in archives made by tar
                    folders.add(folder)
                    entry = tarfile.TarInfo(folder)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps all members

            yield add
        return

    def save(name: str, data: bytes) -> None:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    yield save


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--trials", type=float, default=1.0, help="share of the published trials, 1 for all 194,399")
    parser.add_argument("--rows", type=int, default=360, help="approximate number of measurements of a trial")
    parser.add_argument("--plausible", action="store_true", help="trials that reach the targets of every figure")
    options = parser.parse_args()
    answers = write(options.path, trials=options.trials, rows=options.rows, plausibly=options.plausible)
    print(f"{len(answers)} answers")
