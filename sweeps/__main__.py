"""python -m sweeps: runs a study, or with -m a sweep of studies. Stored trials are not repeated."""

from results import cli, printing, tables
from results.durable import Folder

if __name__ == "__main__":  # precedes the imports below, so that their errors are caught
    cli.run("sweeps.__main__")

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from results import exit_codes
from results.bad_input import BadInput, first_few, number_of
from results.printing import answer, quoted, say
from results.storage import attempts
from sweeps import help_text

if TYPE_CHECKING:
    from results.durable import Folder
    from results.plans.plan import Plan
    from sweeps.planning import Request
    from sweeps.study_run import StudyOutcome

# Imports inside functions keep --help, dry runs and completed sweeps fast.
_NAMED = 5  # maximum number of studies named in a line
_HEADER = ("study", "ran", "complete", "infeasible", "incomplete", "reached", "seconds")


@cli.guarded
def main(argv: list[str]) -> int:
    """Runs the studies of a command line, and returns the exit code, which is 1 if any study failed."""
    if attempts.VARIABLE in os.environ:
        from sweeps.launchers.attempt import end_with_parent

        end_with_parent()
    words = help_text.read(argv, __doc__ or "")
    from sweeps import planning

    request = planning.request(words)
    _note_withdrawn(request.store)
    if words.dry_run:
        return _dry_run(request)
    from sweeps.launching import LAUNCHERS

    launcher = LAUNCHERS[request.launcher["name"]]
    return launcher.around(request.launcher, planning.digest(request), lambda: _sweep(request))


def _note_withdrawn(folder: Folder) -> None:
    """Reports stored studies that this sweep does not resume because their data have been withdrawn."""
    from results.catalog import withdrawn

    for note in withdrawn.of_store(folder) if folder.is_dir() else ():
        say(f"note: {note}")


def _dry_run(request: "Request") -> int:
    """Prints the folder and the command of each study that would run."""
    from sweeps import planning

    header = ("study", "folder", "command")
    work = planning.to_run(request)
    _report_left_out(request, work.left_out)
    to_run = {study.name for study in work.studies}
    rows = []
    for study in sorted(request.studies, key=lambda study: printing.numbered(study.name)):
        if study.name in to_run:
            command = ["python", "-m", "sweeps", *request.words[study.name], f"store={request.store}"]
            rows.append((study.name, str(request.store / study.name), shlex.join(command)))
    printing.show(header, rows, lambda: "\n".join(f"{folder}\n  {command}" for _, folder, command in rows))
    say(f"dry run: {len(to_run)} of {number_of(len(request.studies), 'study')} would run")
    return 0


def _sweep(request: "Request") -> int:
    """Runs the trials of a request that are missing from its store, and returns the exit code."""
    from sweeps import planning
    from sweeps.kind_configs import READERS

    to_run, missing, stored, left_out = planning.to_run(request)
    _report_left_out(request, left_out)
    if not to_run and left_out:
        return exit_codes.FAILED
    report = say if printing.is_data() else answer
    if not to_run:
        present = f"{number_of(len(request.studies), 'study')} with {number_of(stored, 'trial')}"
        _show_no_rows()
        report(f"nothing to train: {present} already stored in {request.store}")
        return 0
    planning.make_ready(request, to_run, say)
    _check_cost(request, missing)
    planning.record(request, to_run)
    already = f" ({stored:,} trials already stored)" if stored else ""
    say(f"{number_of(len(to_run), 'study')}, {number_of(sum(missing.values()), 'trial')} to run{already}")
    from sweeps.launchers.launcher import WorkerLost

    try:
        outcomes = _run(request, to_run, missing)
    except WorkerLost as lost:
        say(str(lost))
        return exit_codes.PEER_LOST
    if not request.launcher["wait"]:  # the launcher has already reported the jobs
        _show_no_rows()
        return 0
    ran = sorted((outcome.summary for outcome in outcomes), key=lambda summary: printing.numbered(summary.study))
    reached, notes = _reached(request.store, [summary.study for summary in ran])
    rows = [(*summary[:-1], reached.get(summary.study), round(summary.seconds, 1)) for summary in ran]
    shown = [(*row[:-2], "" if row[-2] is None else row[-2], f"{row[-1]:.1f}") for row in rows]
    printing.show(_HEADER, rows, lambda: tables.table(_HEADER, shown, left=["study"]))
    printing.report_some(notes, say)
    failures = [outcome for outcome in outcomes if outcome.failure]
    for why, places in {outcome.failure: outcome.places for outcome in failures}.items():
        if places:
            say(f"{why}, called from")
        for place in places:
            say(f"  {place}")
    if left := len(to_run) - len(outcomes):
        say(f"{number_of(left, 'study')} did not start. Run the same command to continue.")
    if failures:
        say(f"{len(failures)} of {len(to_run)} studies failed. Run the same command to retry them.")
    if failures or left_out:
        return exit_codes.FAILED
    reading = {READERS[study.kind].command for study in request.studies}
    commands = [f"python -m analysis {command} --store {quoted(request.store)}" for command in sorted(reading)]
    report(f"stored in {request.store}; next: {', or '.join(commands)}")
    return 0


def _reached(folder: "Folder", names: "Sequence[str]") -> tuple[dict[str, int], list[str]]:
    """Returns the number of stored trials that reached the first target of each study that has one, and notes."""
    from results.rules import answers, confirmation
    from results.store import newest_commit, read_table

    counts = {}
    notes = []
    for name in names:
        commit = newest_commit(folder, name)
        if commit is None or not commit.study.search.targets:
            continue
        target = commit.study.search.targets[0]
        trials = answers.of_table(read_table(commit, "measurements"), target)
        trials = trials.where(~confirmation.is_repeat(trials.trial))
        counts[name] = len(trials.trial)
        goal = f"{target.metric} ≤ {target.value:g}"
        if not counts[name]:
            notes.append(f"{name}: no trial reached {goal}. Try an easier target, a larger budget or other ranges.")
        elif ((trials.low == 0) & (trials.high != 1)).all():
            why = "so their steps are only bounded. Try a harder target, or evaluate more often."
            notes.append(f"{name}: all trials that reached {goal} did at their first evaluation, {why}")
    return counts, notes


def _show_no_rows() -> None:
    """Prints an empty table if CSV or JSON output was requested."""
    if printing.is_data():
        printing.show(_HEADER, (), str)


def _report_left_out(request: "Request", studies: "Sequence[Plan]") -> None:
    """Prints which studies are skipped because they failed too often."""
    if studies:
        names = [study.name for study in studies]
        limit = f"limits.study.max_failures={request.limits[1].max_failures}"
        skipped = f"{number_of(len(names), 'study')}: {first_few(names, _NAMED)}"
        say(f"{limit}: skipping {skipped}. Raise the limit to retry.")


def _check_cost(request: "Request", missing: Mapping[str, int]) -> None:
    """Raises BadInput if a sweep is predicted to cost more than ``ask_above_device_hours``."""
    limit = request.ask_above_device_hours
    if limit is None:
        return
    from sweeps.costs import estimates
    from sweeps.costs.study_cost import span

    predicted = estimates.of_sweep(request, missing, say)
    if predicted is not None and predicted.middle > 3600 * limit:
        raise BadInput(
            f"this sweep is predicted to take {span(predicted, 3600)} device-hours, above "
            f"ask_above_device_hours={limit:g}. Add yes=true to run it, or pass the same arguments to "
            f"`python -m sweeps.plan` for the cost of each study."
        )


def _run(request: "Request", to_run: "Sequence[Plan]", missing: Mapping[str, int]) -> "list[StudyOutcome]":
    """Runs studies and shows their progress."""
    from sweeps import planning
    from sweeps.display import Display
    from sweeps.launching import LAUNCHERS

    launcher = LAUNCHERS[request.launcher["name"]]
    with Display(request.store, to_run, missing, beats=launcher.here) as display:
        return planning.run(request, to_run, display.hear, display.show)
