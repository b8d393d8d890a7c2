"""Importer for AlgoPerf's public logs (mlcommons/submissions_algorithms, Apache-2.0): trials of submissions.

    <leaderboard>/logs/<ruleset>/<submission>/study_<n>/<workload>_<framework>/trial_<n>/
        eval_measurements.csv, measurements.csv, meta_data_0.json, flags_0.json, hparams.json
    <leaderboard>/submissions/<ruleset>/<submission>/submission.py

A study is one search: the trials of one workload in one study folder. The optimizer is named after the submission. The
batch size is given only in the submission's code, which is searched but never run. Metrics are read from
eval_measurements.csv and converted to errors. The seconds in that file, and the single-batch losses in
measurements.csv, are not imported. A trial without evaluations, metadata or a folder is INCOMPLETE (lost).
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from tqdm import tqdm

from results import store as stores
from results.aliases import Fields
from results.bad_input import BadInput, first_few, number_of
from results.durable import Folder, Location, location
from results.importers import algoperf_trials, algoperf_workloads, recording, untrusted
from results.importers.algoperf_trials import EXTERNAL, METAPARAMETERS, Key, LoggedTrial, TrialFolder, places
from results.importers.recording import Content, Saved
from results.importers.untrusted import ImportWarnings, Unusable
from results.located import located
from results.plans.recorded import Recorded
from results.plans.search_space import SearchSpace
from results.printing import Report

SOURCE = "algoperf"
LICENCE = "Apache-2.0"
CITATION = (
    "Kasimbeg et al. 2025, Accelerating neural network training: an analysis of the AlgoPerf competition, ICLR; "
    "logs of github.com/mlcommons/submissions_algorithms"
)
MOST_TRIALS = 10_000  # per study


@located
def run(path: Folder, store: Location, *, replace: bool = False, report: Report) -> int:
    """Imports all trials under ``path``.

    Args:
      path: a copy of previous_leaderboards, or a part of it.
      store: the destination store.
      replace: whether to replace stored values that have changed in the logs. By default, changes are only reported.
      report: called with lines for the user.

    Returns:
      0, or 1 if there is nothing to import.
    """
    store = location(store)
    if not path.exists():
        raise BadInput(f"no folder at {path}. Name a copy of previous_leaderboards, or a part of it.")
    root = path.resolve()
    warnings, waiting, saved = ImportWarnings(), list[Content](), list[Saved]()
    for key, folders in tqdm(sorted(places(root, warnings).items()), "algoperf-logs", unit="study", disable=None):
        content = study(key, folders, root, warnings)
        if content is None:
            continue
        waiting.append(content)
        if saved or len(content.measurements["step"]):  # studies with only lost trials wait for one with evaluations
            if not saved:
                stores.check_destination(store)
            saved += [recording.save(store, content, replace=replace) for content in waiting]
            waiting.clear()
    if not saved:
        report(f"error: nothing to import in {path}: no trial_<n> has evaluations of a known workload")
        warnings.report(report, most=1)
        return 1
    warnings.report(report)
    recording.report_changes(saved, report, replace=replace)
    assumed = sum(result.study.details["batch_size_source"] == algoperf_workloads.BASELINE for result in saved)
    if assumed:
        report(
            f"{number_of(assumed, 'study')} with the batch size of AlgoPerf's baselines, because the submission's own "
            "get_batch_size cannot be read"
        )
    new = [result for result in saved if result.stored]
    trials, rows = sum(result.study.trials for result in new), sum(result.rows for result in new)
    report(
        f"{number_of(len(saved), 'study')}: {len(new)} new ({number_of(trials, 'trial')}, "
        f"{number_of(rows, 'evaluation')}), {len(saved) - len(new)} already present; "
        f"{number_of(len(warnings.lines), 'warning')}"
    )
    return 0


def study(key: Key, folders: Sequence[TrialFolder], path: Folder, warnings: ImportWarnings) -> Content | None:
    """Returns a study with all its trials, or None if its batch size is unknown.

    Args:
      key: key of the study.
      folders: folders of its trials.
      path: the imported folder. Warnings show paths relative to it.
      warnings: receives a line for each missing item.
    """
    trials = list(_trials(key, folders, path, warnings))
    place = f"{key.submission}/{key.study}/{key.workload}_{key.framework}"
    place = place if place.isprintable() else ascii(place)
    size = algoperf_workloads.batch_size(key.workload, _submitted_batch_sizes(folders[0].folder, key))
    if size is None:
        warnings.add(place, "not imported, because no readable submission.py states the batch size")
        return None
    absent = _absent_trials(trials)
    if absent:
        noun = "trial" if len(absent) == 1 else "trials"
        warnings.add(place, f"no folder for {noun} {first_few(absent, 5)}, which the flags request")
    dataset, model = (untrusted.word(name, "unstated") for name in algoperf_workloads.names(key.workload))
    recorded = Recorded(
        SOURCE,
        dataset,
        model,
        untrusted.word(key.submission, "unstated"),
        size[0],
        SearchSpace({}),
        _details(key, trials, size[1]),
        len(trials) + len(absent),
    )
    metadata = _first_metadata(trials)
    about = {
        "device_kind": untrusted.text(metadata.get("gpu_model_name")),
        "device_count": untrusted.int_or_none(metadata.get("gpu_count"), 1),
    }
    return Content(recorded, _trial_columns(trials, absent), _measurements(trials), about)


def _first_metadata(trials: Sequence[LoggedTrial]) -> Fields:
    return next((trial.metadata for trial in trials if trial.metadata), {})


def _trials(key: Key, folders: Sequence[TrialFolder], path: Folder, warnings: ImportWarnings) -> Iterator[LoggedTrial]:
    """Yields the trials of a study, with each number only once. Faults and repeated numbers become warnings."""
    first: dict[int, LoggedTrial] = {}
    for place in folders:
        trial = algoperf_trials.read(place.folder, place.number, place.names, path)
        where = untrusted.display_path(place.folder, path)
        earlier = first.setdefault(trial.number, trial)
        if earlier is not trial:
            kept_place = untrusted.display_path(earlier.folder, path)
            warnings.add(
                where, f"repeats {kept_place}" if _alike(trial, earlier) else f"contradicts {kept_place}, which is kept"
            )
            continue
        faults = list(trial.faults)
        if key.ruleset == EXTERNAL and METAPARAMETERS not in place.names:
            faults.append(f"{METAPARAMETERS} is missing")
        if faults:
            warnings.add(where, "; ".join(faults))
    yield from (first[number] for number in sorted(first))


def _alike(trial: LoggedTrial, earlier: LoggedTrial) -> bool:
    """Returns whether two trials have the same evaluations. NaN is equal to NaN."""
    tables = [table and table.to_pylist() for table in (trial.evaluations, earlier.evaluations)]
    return repr(tables[0]) == repr(tables[1])


def _absent_trials(trials: Sequence[LoggedTrial]) -> list[int]:
    """Returns the numbers of trials without a folder that are requested by the flags of other trials."""
    planned = max(
        (untrusted.int_or_none(t.flags.get("num_tuning_trials"), 1, MOST_TRIALS) or 0 for t in trials), default=0
    )
    return sorted(set(range(1, planned + 1)) - {trial.number for trial in trials})


def _submitted_batch_sizes(folder: Folder, key: Key) -> dict[str, int]:
    """Returns the batch sizes from the submission's code, which is in the folder `submissions` next to `logs`."""
    logs = next((p for p in folder.parents if p.name == "logs"), None)
    if logs is None:
        return {}
    source = logs.parent / "submissions" / key.ruleset / key.submission / "submission.py"
    try:
        return algoperf_workloads.batch_sizes(untrusted.read_bytes(source, logs.parent, 1 << 20).decode())
    except (Unusable, UnicodeDecodeError):
        return {}


def _details(key: Key, trials: Sequence[LoggedTrial], batch_size_source: str) -> Fields:
    metadata = _first_metadata(trials)
    goals = {
        algoperf_workloads.COLUMNS[column]: algoperf_workloads.METRICS[column.split("/")[1]].error(goal)
        for column, goal in algoperf_trials.targets(metadata).items()
    }
    words: dict[str, dict[str, str]] = {}
    for trial in trials:
        for name, setting in trial.metaparameters.items():
            if untrusted.numeric(setting) is None or not recording.may_be_column(name):
                words.setdefault(name[:80], {})[str(trial.number)] = untrusted.brief(setting)
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


def _trial_columns(trials: Sequence[LoggedTrial], absent: Sequence[int]) -> Fields:
    rows = []
    for trial in trials:
        status, reason = algoperf_trials.outcome(trial)
        row = {
            "trial": trial.number,
            "seed": trial.seed,
            "status": status,
            "reason": reason,
            "steps": trial.last.get("step"),
            "submission_seconds": trial.seconds,
        }
        names = [name for name in trial.metaparameters if name not in row and recording.may_be_column(name)]
        rows.append(row | {name: untrusted.numeric(trial.metaparameters[name]) for name in names})
    numbers = {name for row in rows for name, value in row.items() if value is not None}
    rows = [{name: row[name] for name in row if name in numbers or name == "submission_seconds"} for row in rows]
    return recording.as_columns(
        rows + [{"trial": number, "status": "INCOMPLETE", "reason": "lost"} for number in absent]
    )


def _measurements(trials: Sequence[LoggedTrial]) -> Fields:
    tables = [pa.table({"trial": pa.array([], pa.int32()), "step": pa.array([], pa.int32())})]
    for trial in trials:
        if trial.evaluations is not None:
            numbers = pa.repeat(pa.scalar(trial.number, pa.int32()), len(trial.evaluations))
            tables.append(algoperf_trials.errors(trial.evaluations).add_column(0, "trial", numbers))
    joined = pa.concat_tables(tables, promote_options="default")
    return dict(zip(joined.column_names, joined.columns, strict=True))
