"""Importer for your own runs: reads logs as specified by a map, and stores them as studies of kind recorded."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from results import printing, store as stores
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.importers import recording
from results.importers.runs import logs, places, runs
from results.importers.runs.places import Place
from results.importers.runs.run_map import TENSORBOARD, Reference, RunMap
from results.importers.runs.runs import Run
from results.importers.untrusted import ImportWarnings, Unusable
from results.plans.recorded import RUNS, Recorded
from results.printing import Report
from results.storage import commits

MOST_RUNS = 100_000
_KEPT = "the stored values are kept (--replace takes those of the logs)"
_REPLACED = "replaced by the current values of the logs"
HEADER = ("run", "study", "trial", "batch_size", "seed", "steps", "rows", "status", "seconds_per_step", "notes")


class Assigned(NamedTuple):
    """A study with its runs by trial number, and the trials for which the stored run was shorter."""

    study: Recorded
    numbered: Mapping[int, Run]
    longer: frozenset[int]


def run(
    path: Folder, store: Folder | None, run_map: RunMap, *, raw: bool, dry_run: bool, replace: bool, report: Report
) -> int:
    """Imports all runs under ``path``.

    Args:
      path: a folder of logs, or one file.
      store: the destination store. It is optional for a dry run.
      run_map: the map from runs to studies.
      raw: whether to keep all logged rows, instead of averaging dense metrics.
      dry_run: whether to print the result without storing it.
      replace: whether to replace stored values that have changed in the logs.
      report: called with lines for the user.

    Returns:
      0, or 1 if there are no runs.
    """
    if not path.exists():
        raise BadInput(f"no folder or file at {path}. Name the logs of your runs.")
    root = path.resolve()
    warnings = ImportWarnings()
    found = read(root, run_map, warnings, raw=raw)
    if not found:
        report(f"error: no file in {path} can be imported with files: {run_map.files}")
        warnings.report(report)
        return 1
    assigned = [assign(store, *each) for each in runs.studies(found, run_map, raw=raw)]
    for line in _metrics_in_words(run_map):
        report(line)
    if dry_run:
        rows = [row for each in assigned for row in _rows(each)]
        printing.show(HEADER, rows, lambda: printing.table(HEADER, [_cells(row) for row in rows], prose=["notes"]))
        warnings.report(report, most=len(warnings.lines))
        report(f"{number_of(len(found), 'run')} in {number_of(len(assigned), 'study')}, not stored: this was a dry run")
        return 0
    assert store is not None
    stores.check_destination(store)
    saved = {}
    for each in assigned:
        saved[each.study.name] = recording.save(
            store, runs.content(each.study, each.numbered), replace=replace, longer=each.longer
        )
    warnings.report(report)
    recording.report_changes(saved, "the logs", _REPLACED if replace else _KEPT, report)
    for line in _summary(assigned, run_map):
        report(line)
    new = sum(each.stored for each in saved.values())
    report(
        f"{number_of(len(found), 'run')} in {number_of(len(assigned), 'study')}: {new} new or longer, "
        f"{len(assigned) - new} already present; {number_of(len(warnings.lines), 'warning')}"
    )
    return 0


def read(root: Folder, run_map: RunMap, warnings: ImportWarnings, *, raw: bool) -> list[Run]:
    """Returns the runs under ``root``, sorted by name. Files that cannot be used become warnings."""
    found = []
    for members in tqdm(_runs(places.find(root, run_map.files, warnings), run_map), "runs", unit="file", disable=None):
        for log in logs.read(members, run_map, root.parent if root.is_file() else root):
            if not isinstance(log, logs.Log):
                warnings.add(*log)
                continue
            try:
                found.append(runs.of_log(log, run_map, raw=raw))
            except Unusable as error:
                warnings.add(log.name, error)
            if len(found) > MOST_RUNS:
                raise BadInput(f"more than {MOST_RUNS:,} runs. Import fewer at a time.")
    return found


def _runs(found: Sequence[Place], run_map: RunMap) -> list[list[Place]]:
    """Returns the files of each run, or single files that contain several runs."""
    groups: dict[Any, list[Place]] = {}
    for place in found:
        if isinstance(run_map.run, Reference) and run_map.run.origin == "path":
            key: Any = place.parts[run_map.run.name]
        else:
            key = places.run_folder(place, run_map.files) if run_map.format == TENSORBOARD else place.path
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def assign(store: Folder | None, study: Recorded, members: Sequence[Run]) -> Assigned:
    """Numbers the runs of a study. A stored run, identified by its seed and metaparameters, keeps its number.

    Raises:
      BadInput: the store already has the same runs, imported with another map.
    """
    numbers: dict[Any, list[int]] = {}
    stored_steps: dict[int, int] = {}
    last = -1
    if store is not None and store.is_dir():
        for other in recording.stored_studies(store, RUNS):
            same_place = other.slug == study.slug and (other.unit, other.sequence_length) == (
                study.unit,
                study.sequence_length,
            )
            if same_place and other.plan_json != study.plan_json:
                raise BadInput(
                    f"{store} has {other.name} with other targets, licence, citation or --raw than this map. Import "
                    "into another store."
                )
        study = stores.with_stored_name(store, study)
        commit = commits.newest_commit(store, study.name)
        if commit is not None:
            for row in commits.read_table(commit, "trials").to_pylist():
                numbers.setdefault(_key(row), []).append(row["trial"])
                stored_steps[row["trial"]] = row["steps"]
                last = max(last, row["trial"])
    numbered, unknown = {}, []
    for run in members:
        own = numbers.get(_text(run.key))
        if own:
            numbered[own.pop(0)] = run
        else:
            unknown.append(run)
    numbered |= dict(enumerate(unknown, start=last + 1))
    total = max(last, *numbered) + 1
    longer = frozenset(number for number, run in numbered.items() if run.steps > stored_steps.get(number, run.steps))
    return Assigned(study.with_request(study.request._replace(trials=total)), dict(sorted(numbered.items())), longer)


def _key(row: Mapping[str, Any]) -> str:
    """Returns the key of a stored trial: its seed and metaparameters."""
    known = ("study", "trial", "run", "role", "seed", "status", "reason", "steps")
    values = {name: value for name, value in row.items() if name not in known and value is not None}
    return _text((row["seed"], tuple(sorted(values.items()))))


def _text(key: tuple[Any, ...]) -> str:
    return repr(key)


def _rows(assigned: Assigned) -> list[list[Any]]:
    return [
        [
            run.name,
            assigned.study.name,
            number,
            run.batch_size,
            run.seed,
            run.steps,
            sum(len(rows.step) for rows in run.metrics.values()),
            f"{run.status}({run.reason})" if run.reason else run.status,
            run.seconds,
            "; ".join(run.notes),
        ]
        for number, run in assigned.numbered.items()
    ]


def _cells(row: Sequence[Any]) -> list[Any]:
    """Returns the cells of a row for display."""
    present = ["" if cell is None else cell for cell in row]
    return [f"{cell:.3g}" if isinstance(cell, float) else cell for cell in present]


def _metrics_in_words(run_map: RunMap) -> list[str]:
    """Returns a line per metric that is converted to an error."""
    return [
        f"{metric.name} = {metric}, because lower is better for every metric"
        for metric in run_map.metrics
        if metric.complement
    ]


def _summary(assigned: Sequence[Assigned], run_map: RunMap) -> list[str]:
    """Returns notes about all runs: averaged metrics, endings and times."""
    every = [run for each in assigned for run in each.numbered.values()]
    count = Counter(note for run in every for note in run.notes if "averaged" in note)
    lines = [f"{note} in {number_of(times, 'run')}" for note, times in count.items()]
    endings = Counter(f"{run.status}({run.reason})" if run.reason else run.status for run in every)
    lines.append(", ".join(f"{times} {ending}" for ending, times in endings.items()))
    if not any(run.seconds for run in every):
        lines.append("no seconds per step: the logs have too few times. Pay-off is in batch size only")
    elif not run_map.device_count:
        lines.append("no seconds per step: the map has no device_count. Pay-off is in batch size only")
    return lines
