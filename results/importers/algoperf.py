"""The public logs of AlgoPerf (mlcommons/submissions_algorithms, Apache-2.0): submissions' trials on its workloads.

    <leaderboard>/logs/<ruleset>/<submission>/study_<n>/<workload>_<framework>/trial_<n>/
        eval_measurements.csv, measurements.csv, meta_data_0.json, flags_0.json, hparams.json
    <leaderboard>/submissions/<ruleset>/<submission>/submission.py

A study is what one study folder holds of a workload: the trials of one search; the submission's name is its optimizer.
The batch size is read, without running anything, from the submission's code, which alone states it. Metrics are those
of eval_measurements.csv as errors; its seconds, and the losses of single batches in measurements.csv, are left out. A
trial without evaluations or metadata, and one that was asked for but has no folder, is INCOMPLETE (lost).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from results import store as stores
from results.bad_input import BadInput, number_of
from results.durable import Folder, located_both
from results.importers import algoperf_trials, algoperf_workloads, recording, untrusted
from results.importers.algoperf_trials import EXTERNAL, METAPARAMETERS, Key, LoggedTrial, TrialFolder, places
from results.importers.recording import Content
from results.importers.untrusted import ImportWarnings, Unusable
from results.plans.recorded import Recorded
from results.plans.search_space import SearchSpace

SOURCE = "algoperf"
LICENCE = "Apache-2.0"
CITATION = (
    "Kasimbeg et al. 2025, Accelerating neural network training: an analysis of the AlgoPerf competition, ICLR; "
    "logs of github.com/mlcommons/submissions_algorithms"
)
MOST_TRIALS = 10_000  # of a study
_WAS_LEFT = "the stored values are kept; --replace takes those of the logs"
_WAS_TAKEN = "replaced by what the logs say now"


@located_both
def run(path: Folder, store: Folder, *, replace: bool = False, report: Callable[[str], None]) -> int:
    """Imports all trials under ``path``; 1 if there is nothing to import, else 0.

    Args:
      path: previous_leaderboards of the repository, or a part of it.
      store: where to.
      replace: take values that changed since they were imported; else they are reported, and the stored ones kept.
      report: takes a line for the user.
    """
    if not path.exists():
        raise BadInput(f"no folder at {path}; name a copy of previous_leaderboards, or a part of it")
    root = path.resolve() if isinstance(path, Path) else path
    warnings, waiting = ImportWarnings(), list[Content]()
    new = present = trials = rows = assumed = 0
    changed: list[str] = []
    values = 0
    for key, folders in tqdm(sorted(places(root, warnings).items()), "algoperf-logs", unit="study", disable=None):
        content = study(key, folders, root, warnings)
        waiting += [content] if content else []
        if content is None or not (new + present or len(content.measurements["step"])):
            continue  # studies whose trials are all lost wait for one that is not
        if not new + present:
            stores.check_destination(store)
        for each in waiting:
            outcome = recording.save(store, each, replace=replace)
            new, present = new + outcome.stored, present + (not outcome.stored)
            trials += outcome.stored * each.study.trials
            rows += outcome.stored * len(each.measurements["step"])
            values += outcome.values
            changed += [f"{each.study.name}: {outcome.told('the logs')}"] if outcome.changed else []
            assumed += each.study.details["batch_size_source"] == algoperf_workloads.BASELINE
        waiting.clear()
    if not new + present:
        report(f"error: nothing to import in {path}: no trial_<n> with evaluations of a known workload")
        warnings.report(report, most=1)
        return 1
    warnings.report(report)
    if changed:
        report(f"{number_of(len(changed), 'study')} changed, {values:,} values: {_WAS_TAKEN if replace else _WAS_LEFT}")
        ImportWarnings(changed).report(report)
    if assumed:
        report(f"{number_of(assumed, 'study')}: the batch size is that {algoperf_workloads.BASELINE}")
    report(
        f"{number_of(new + present, 'study')}, of which {new} are new ({number_of(trials, 'trial')}, "
        f"{number_of(rows, 'evaluation')}) and {present} were "
        f"there; {len(warnings.lines)} warnings"
    )
    return 0


def study(key: Key, folders: Sequence[TrialFolder], path: Folder, warnings: ImportWarnings) -> Content | None:
    """A study with all its trials; None if its batch size is unknown.

    Args:
      key: what it is.
      folders: its trials' folders.
      path: what is imported, to name places in it.
      warnings: takes what is missing.
    """
    trials = list(_trials(key, folders, path, warnings))
    place = f"{key.submission}/{key.study}/{key.workload}_{key.framework}"
    place = place if place.isprintable() else ascii(place)
    size = algoperf_workloads.batch_size(key.workload, _submitted_batch_sizes(folders[0].folder, key))
    if size is None:
        warnings.add(place, "no readable submission.py states its batch size; not imported")
        return None
    absent = _absent_trials(trials)
    if absent:
        numbers = ", ".join(map(str, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
        warnings.add(
            place, f"no folder for {'trial' if len(absent) == 1 else 'trials'} {numbers}, which the flags ask for"
        )
    dataset, model = (_word(name) for name in algoperf_workloads.names(key.workload))
    recorded = Recorded(
        SOURCE,
        dataset,
        model,
        _word(key.submission),
        size[0],
        SearchSpace({}),
        _details(key, trials, size[1]),
        len(trials) + len(absent),
    )
    metadata = next((t.metadata for t in trials if t.metadata), {})
    about = {
        "device_kind": untrusted.text(metadata.get("gpu_model_name")),
        "device_count": untrusted.int_or_none(metadata.get("gpu_count"), 1),
    }
    return Content(recorded, _trial_columns(trials, absent), _measurement_columns(trials), about)


def _trials(key: Key, folders: Sequence[TrialFolder], path: Folder, warnings: ImportWarnings) -> Iterator[LoggedTrial]:
    """The trials of a study, each number once; faults, and numbers held by two folders, become warnings."""
    first: dict[int, LoggedTrial] = {}
    for place in folders:
        trial = algoperf_trials.read(place.folder, place.number, place.names, path)
        where = untrusted.display_path(place.folder, path)
        earlier = first.setdefault(trial.number, trial)
        if earlier is not trial:
            same = _alike(trial, earlier)
            other = untrusted.display_path(earlier.folder, path)
            warnings.add(where, f"repeats {other}" if same else f"contradicts {other}, which is kept")
            continue
        lacking = key.ruleset == EXTERNAL and METAPARAMETERS not in place.names
        faults = [*trial.faults, f"{METAPARAMETERS} is missing"] if lacking else trial.faults
        if faults:
            warnings.add(where, "; ".join(faults))
    yield from (first[number] for number in sorted(first))


def _alike(one: LoggedTrial, other: LoggedTrial) -> bool:
    if one.evaluations is None or other.evaluations is None:
        return one.evaluations is other.evaluations
    a, b = (pa.table({"step": e.step, **e.source}).to_pylist() for e in (one.evaluations, other.evaluations))
    return repr(a) == repr(b)


def _absent_trials(trials: Sequence[LoggedTrial]) -> list[int]:
    """Numbers of trials that were asked for, as the flags of others say, but have no folder."""
    planned = max(
        (untrusted.int_or_none(t.flags.get("num_tuning_trials"), 1, MOST_TRIALS) or 0 for t in trials), default=0
    )
    return sorted(set(range(1, planned + 1)) - {trial.number for trial in trials})


def _submitted_batch_sizes(folder: Folder, key: Key) -> dict[str, int]:
    """The batch sizes that the submission's code gives, if it is there: beside logs, under submissions."""
    above = next((p for p in folder.parents if p.name == "logs"), None)
    if above is None:
        return {}
    source = above.parent / "submissions" / key.ruleset / key.submission / "submission.py"
    try:
        return algoperf_workloads.batch_sizes(untrusted.read_bytes(source, above.parent, 1 << 20).decode())
    except (Unusable, UnicodeDecodeError):
        return {}


def _details(key: Key, trials: Sequence[LoggedTrial], batch_size_source: str) -> dict[str, Any]:
    metadata = next((t.metadata for t in trials if t.metadata), {})
    goals = {
        algoperf_workloads.COLUMNS[column]: algoperf_workloads.METRICS[column.split("/")[1]].error(value)
        for column, value in algoperf_trials.targets(metadata).items()
    }
    words: dict[str, dict[str, str]] = {}
    for trial in trials:
        for name, value in trial.metaparameters.items():
            if untrusted.numeric(value) is None or not recording.may_be_column(name):
                words.setdefault(name[:80], {})[str(trial.number)] = untrusted.brief(value)
    return {
        **key._asdict(),
        "targets": goals,
        "batch_size_source": batch_size_source,
        "step_hint": untrusted.int_or_none(metadata.get("workload.step_hint"), 1),
        "time_limit_seconds": untrusted.number(metadata.get("workload.max_allowed_runtime_sec")),
        "training_examples": untrusted.int_or_none(metadata.get("workload.num_train_examples"), 1, 2**53),
        "other_metaparameters": words,
        "licence": LICENCE,
        "citation": CITATION,
    }


def _trial_columns(trials: Sequence[LoggedTrial], absent: Sequence[int]) -> dict[str, Any]:
    outcomes = [algoperf_trials.outcome(trial) for trial in trials] + [("INCOMPLETE", "lost")] * len(absent)
    blank = [None] * len(absent)
    columns: dict[str, Any] = {
        "trial": [trial.number for trial in trials] + list(absent),
        "seed": [trial.seed for trial in trials] + blank,
        "status": [status for status, _ in outcomes],
        "reason": [reason for _, reason in outcomes],
        "steps": [int(t.evaluations.step[-1]) if t.evaluations else None for t in trials] + blank,
        "submission_seconds": [trial.seconds for trial in trials] + blank,
    }
    names: Mapping[str, None] = dict.fromkeys(name for trial in trials for name in trial.metaparameters)
    for name in filter(recording.may_be_column, names):
        values = [untrusted.numeric(trial.metaparameters.get(name)) for trial in trials]
        if name not in columns and any(value is not None for value in values):
            columns[name] = values + blank
    return columns


def _measurement_columns(trials: Sequence[LoggedTrial]) -> dict[str, Any]:
    usable = [(trial.number, trial.evaluations, trial.evaluations.errors) for trial in trials if trial.evaluations]
    metrics = dict.fromkeys(name for _, _, errors in usable for name in errors)
    columns: dict[str, Any] = {
        "trial": pa.array([number for number, evaluations, _ in usable for _ in evaluations.step], pa.int32()),
        "step": pa.array([step for _, evaluations, _ in usable for step in evaluations.step], pa.int32()),
    }
    for name in metrics:
        parts = [errors.get(name, pa.nulls(len(evaluations.step), pa.float64())) for _, evaluations, errors in usable]
        columns[name] = pa.concat_arrays(parts)
    return columns


def _word(name: str) -> str:
    """A name as a study may have it."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("_.+-")[:80] or "unstated"
