"""Importer for your own runs: reads logs as specified by a map, and stores them as studies of kind recorded."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from results import printing, store as stores, tables
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.grouping import grouped
from results.importers import recording, untrusted
from results.importers.runs import identity, log as log_values, members, runs
from results.importers.runs.identity import Matches
from results.importers.runs.log import Log
from results.importers.runs.run_map import RunMap
from results.importers.runs.runs import Run
from results.importers.untrusted import ImportWarnings, Unusable, brief
from results.plans.recorded import RUNS, Recorded
from results.printing import Report
from results.storage.commits import Commit

MOST_RUNS = 100_000
HEADER = ("run", "study", "trial", "batch_size", "seed", "steps", "rows", "status", "seconds_per_step", "notes")


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
    warnings = ImportWarnings(by_reason=True)
    logged_runs = read(root, run_map, warnings, raw=raw)
    if not logged_runs:
        report(f"error: no file in {path} can be imported with files: {run_map.files}")
        warnings.report(report)
        return 1
    if store is not None and not dry_run:
        stores.check_destination(store)
    commits = stores.committed(store) if store is not None and store.is_dir() else ()
    stored = grouped(recording.from_source(commits, RUNS), lambda pair: _place(pair[0]))
    assigned = [assign(stored, study, group) for study, group in runs.studies(logged_runs)]
    for metric in run_map.metrics:
        if metric.complement:
            report(f"{metric.name} = {metric}, because lower is better for every metric")
    for line in runs.rising(logged_runs):
        report(f"note: {line}")
    if dry_run:
        rows = [_row(number, run, study) for study, matches in assigned for number, run in matches.numbered.items()]
        printing.show(HEADER, rows, lambda: tables.table(HEADER, [_cells(row) for row in rows], prose=["notes"]))
    saved = []
    for study, matches in assigned:
        numbered = matches.replacing() if replace else matches.numbered
        if store is not None and numbered:
            result = recording.save(
                store, runs.content(study, numbered), replace=replace, longer=matches.extended, dry_run=dry_run
            )
            saved.append(result._replace(names={number: run.name for number, run in numbered.items()}))
    warnings.report(report, most=len(warnings.lines) if dry_run else untrusted.SHOWN)
    recording.report_changes(saved, report, replace=replace)
    notes = [f"{run.name}: {note}" for run in logged_runs for note in run.notes if "averaged" not in note]
    printing.report_some([] if dry_run else notes, report)
    changed = sum(len(result.changed) for result in saved)
    ledger = _ledger(logged_runs, [matches for _, matches in assigned], warnings, changed=changed, replace=replace)
    for line in [*_summary(logged_runs, run_map), *ledger]:
        report(line)
    if dry_run:
        report("not stored: this was a dry run")
    return 0


def read(root: Folder, run_map: RunMap, warnings: ImportWarnings, *, raw: bool) -> list[Run]:
    """Returns the runs under ``root``, sorted by name. Files and runs that cannot be used become warnings.

    Raises:
      BadInput: two names in the logs would be stored as the same name, or there are too many runs.
    """
    logged_runs, names = [], dict[tuple[str, str], str]()
    for log in members.logs_of_runs(root, run_map, warnings):
        try:
            run = runs.of_log(log, run_map, raw=raw)
            _check_names(run, log, run_map, names)
        except Unusable as error:
            warnings.add(log.name, error)
            warnings.refused += 1
            continue
        logged_runs.append(run)
        left_out = run.left_out.total()
        if 2 * left_out > run.rows:
            warnings.add(run.name, f"{left_out:,} of {run.rows:,} rows are left out. Check the steps of this log")
        if len(logged_runs) > MOST_RUNS:
            raise BadInput(f"more than {MOST_RUNS:,} runs. Import fewer at a time.")
    return logged_runs


def _check_names(run: Run, log: Log, run_map: RunMap, names: dict[tuple[str, str], str]) -> None:
    """Adds the names of a run to those of other runs. Raises BadInput if different names have the same stored form."""
    for key in ("dataset", "model", "optimizer"):
        name = log_values.name(getattr(run_map, key), log)
        first_name = names.setdefault((key, getattr(run.study, key)), name)
        if first_name != name:
            raise BadInput(
                f"the names {brief(first_name)} and {brief(name)} of the {key} would both be stored as "
                f"{getattr(run.study, key)!r}. Rename one of them, or import them into different stores."
            )


def _place(study: Recorded) -> tuple[Any, ...]:
    return study.labels, study.batch_size, study.batch_unit


def assign(
    stored: Mapping[Any, Sequence[tuple[Recorded, Commit]]], study: Recorded, logged_runs: Sequence[Run]
) -> tuple[Recorded, Matches]:
    """Numbers the runs of a study. Stored runs keep their numbers, and copies get no number.

    Raises:
      BadInput: the store already has the same runs, imported with another map.
    """
    trials = {}
    for plan, commit in stored.get(_place(study), ()):
        if plan.plan_json != study.plan_json:
            raise BadInput(
                f"the store has {commit.name} with other targets, licence, citation or --raw than this map. Import "
                "into another store."
            )
        study, trials = dataclasses.replace(study, digits=plan.digits), identity.stored_trials(commit)
    tuned = {tuple(dict(run.key)) for run in logged_runs}
    if trials and tuned.isdisjoint(tuple(dict(trial.key)) for trial in trials.values()):
        raise BadInput(
            f"the runs of {study.name} in the store have another seed key or other metaparameters than this map, so "
            "they would be stored twice. Import into another store."
        )
    matches = identity.match(identity.without_copies(logged_runs), trials)
    total = max([*trials, *matches.numbered]) + 1
    return study.with_request(study.request._replace(trials=total)), matches


def _row(number: int, run: Run, study: Recorded) -> list[Any]:
    rows, notes = sum(len(rows.step) for rows in run.metrics.values()), "; ".join(run.notes)
    description = [run.name, study.name, number, run.batch_size, run.seed, run.steps]
    return [*description, rows, run.ending, run.seconds, notes]


def _cells(row: Sequence[Any]) -> list[Any]:
    """Returns the cells of a row for display."""
    present = ["" if cell is None else cell for cell in row]
    return [f"{cell:.3g}" if isinstance(cell, float) else cell for cell in present]


def _summary(logged_runs: Sequence[Run], run_map: RunMap) -> list[str]:
    """Returns notes about all runs: averaged metrics, endings and times."""
    count = Counter(note for run in logged_runs for note in run.notes if "averaged" in note)
    lines = [f"{note} in {number_of(times, 'run')}" for note, times in count.items()]
    endings = Counter(run.ending for run in logged_runs)
    lines.append(", ".join(f"{times} {ending}" for ending, times in endings.items()))
    if not any(run.seconds for run in logged_runs):
        lines.append("no seconds per step: the logs have too few times. Pay-off is in batch size only")
    elif not run_map.device_count:
        lines.append("no seconds per step: the map has no device_count. Pay-off is in batch size only")
    return lines


def _ledger(
    logged_runs: Sequence[Run], matches: Sequence[Matches], warnings: ImportWarnings, *, changed: int, replace: bool
) -> list[str]:
    """Returns the ledger: lines about every file, row and run that was found, and its whereabouts.

    Args:
      found: all runs that could be read, including copies.
      matches: the runs of each study and their numbers in the store.
      warnings: the numbers of files, and of runs that could not be read.
      changed: number of runs whose stored rows differ.
      replace: whether these were replaced, and not refused.
    """
    left_out = sum((run.left_out for run in logged_runs), Counter[str]())
    rows = sum(run.rows for run in logged_runs)
    numbered = sum(len(match.replacing() if replace else match.numbered) for match in matches)
    new, extended = sum(len(match.new) for match in matches), sum(len(match.extended) for match in matches)
    counts = {
        "new": new,
        "already stored": numbered - new - extended - changed,
        "extended": extended,
        "copies": len(logged_runs) - numbered,
        "refused": warnings.refused,
    }
    if replace:
        counts["replaced"] = changed
    else:
        counts["refused"] += changed
    terms = " + ".join(f"{count:,} {name}" for name, count in counts.items())
    return [
        _line("file", warnings.files, "read", warnings.skipped, "skipped"),
        _line("row", rows, "used", left_out, "left out"),
        f"{number_of(len(logged_runs) + warnings.refused, 'run')} in {number_of(len(matches), 'study')} = {terms}",
    ]


def _line(noun: str, total: int, used: str, left_out: Counter[str], unused: str) -> str:
    """Returns a line such as ``12 files = 9 read + 3 skipped (2 hidden, 1 unusable)``."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    line = f"{number_of(total, noun)} = {total - left_out.total():,} {used} + {left_out.total():,} {unused}"
    return f"{line} ({reasons})" if reasons else line
