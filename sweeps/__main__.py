"""python -m sweeps: runs one study, or with -m a sweep of them; stored studies are not run again."""

from results import cli

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("sweeps.__main__")

import functools
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results import exit_codes
from results.bad_input import number_of
from results.cli import answer, quoted, say
from results.storage import attempts
from sweeps import help_text

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.notify import Hook
    from sweeps.planning import Request
    from sweeps.run import StudyOutcome

_NAMED = 5  # studies in a line
_HEADER = ("study", "ran", "complete", "infeasible", "incomplete", "seconds")


@cli.guarded
def main(argv: list[str]) -> int:
    """Runs the studies of a command line; the exit code is 1 if any of them failed."""
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
    from sweeps.notify import Hook

    launcher = LAUNCHERS[request.launcher["name"]]
    hook = Hook(request.notify, request.store)
    run = functools.partial(hook.around, lambda: _sweep(request, hook))
    return launcher.around(request.launcher, planning.digest(request), run)


def _note_withdrawn(folder: Path) -> None:
    """Notes which studies of a store this sweep does not go on with, as their data turned out wrong."""
    from results.catalog import withdrawn

    for note in withdrawn.of_store(folder) if folder.is_dir() else ():
        say(f"note: {note}")


def _dry_run(request: "Request") -> int:
    """Prints the folder and the command of every study that would be run."""
    from sweeps import planning

    header = ("study", "folder", "command")
    found = planning.to_run(request)
    _tell_left_out(request, found.left_out)
    to_run = {study.name for study in found.studies}
    rows = []
    for study in sorted(request.studies, key=lambda one: cli.numbered(one.name)):
        for words in request.words[study.name] if study.name in to_run else ():
            command = ["python", "-m", "sweeps", *words, f"store={request.store}"]
            rows.append((study.name, str(request.store / study.name), shlex.join(command)))
    cli.show(header, rows, lambda: "\n".join(f"{folder}\n  {command}" for _, folder, command in rows))
    say(f"{number_of(len(to_run), 'study')} of {len(request.studies)} would be run; nothing is")
    return 0


def _sweep(request: "Request", hook: "Hook") -> int:
    """Runs what the store of a request lacks."""
    from sweeps import planning
    from sweeps.kind_configs import READERS

    to_run, missing, stored, left_out = planning.to_run(request)
    _tell_left_out(request, left_out)
    if not to_run and left_out:
        return exit_codes.FAILED
    if not to_run:
        present = f"{number_of(len(request.studies), 'study')} with {number_of(stored, 'trial')}"
        if cli.is_data():
            cli.show(_HEADER, (), str)
        tell = say if cli.is_data() else answer
        tell(f"nothing to train: {present} stored in {request.store} already")
        return 0
    planning.make_ready(request, to_run, say)
    _ask(request, missing)
    planning.record(request, to_run)
    already = f"; {stored:,} trials are stored already" if stored else ""
    say(f"{number_of(len(to_run), 'study')}, {number_of(sum(missing.values()), 'trial')} to run{already}")
    from sweeps.launchers.launcher import WorkerLost

    try:
        outcomes = _run(request, to_run, missing, hook)
    except WorkerLost as lost:
        say(str(lost))
        return exit_codes.PEER_LOST
    if not request.launcher["wait"]:  # the launcher has said where they are
        if cli.is_data():
            cli.show(_HEADER, (), str)
        return 0
    ran = sorted((outcome.summary for outcome in outcomes), key=lambda one: cli.numbered(one.study))
    rows = [(s.study, s.ran, s.complete, s.infeasible, s.incomplete, round(s.seconds, 1)) for s in ran]
    texts = [(*row[:-1], f"{row[-1]:.1f}") for row in rows]
    cli.show(_HEADER, rows, lambda: cli.table(_HEADER, texts))
    failures = [outcome for outcome in outcomes if outcome.failure]
    for why, places in {outcome.failure: outcome.places for outcome in failures}.items():
        for line in [f"{why}, called from", *(f"  {place}" for place in places)] if places else ():
            say(line)
    if left := len(to_run) - len(outcomes):
        say(f"{number_of(left, 'study')} did not begin; the same command goes on with them")
    if failures:
        say(f"{len(failures)} of {len(to_run)} studies failed; the same command tries them again")
        return 1
    if left_out:
        return exit_codes.FAILED
    reading = {READERS[study.kind].command for study in request.studies}
    commands = [f"python -m analysis {command} --store {quoted(request.store)}" for command in sorted(reading)]
    tell = say if cli.is_data() else answer
    tell(f"stored in {request.store}; next: {', or '.join(commands)}")
    return 0


def _tell_left_out(request: "Request", studies: "Sequence[Plan]") -> None:
    """Prints which studies are left out because they failed too often."""
    if studies:
        names = [study.name for study in studies]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        count, which = number_of(len(names), "study"), "which is" if len(names) == 1 else "which are"
        limit = f"limits.study.max_failures={request.limits[1].max_failures}"
        named = ", ".join(names[:_NAMED]) + more
        say(f"{limit} is reached by {count}, {which} left out: {named}; a larger limit tries again")


def _ask(request: "Request", missing: Mapping[str, int]) -> None:
    """Raises BadInput for a sweep that is predicted to cost more than may be begun without ``yes=true``."""
    most = request.ask_above_device_hours
    if most is None:
        return
    from results.bad_input import BadInput
    from sweeps import costs

    predicted = costs.of_sweep(request, missing, say)
    if predicted is not None and predicted.middle > 3600 * most:
        raise BadInput(
            f"this sweep is predicted to take {costs.span(predicted, 3600)} device-hours, and "
            f"ask_above_device_hours={most:g}; add yes=true to begin it, and see what each study costs by the same "
            f"words after `python -m sweeps.plan`"
        )


def _run(
    request: "Request", to_run: "Sequence[Plan]", missing: Mapping[str, int], hook: "Hook"
) -> "list[StudyOutcome]":
    """Runs studies, and shows how far they are."""
    from sweeps import planning
    from sweeps.display import Display
    from sweeps.forecast import Forecast
    from sweeps.launching import LAUNCHERS

    launcher = LAUNCHERS[request.launcher["name"]]
    at_once = launcher.at_once(request.launcher, to_run, request.settings)
    limit = request.settings.time_limit_seconds
    forecast = Forecast(to_run, missing, at_once, limit, elsewhere=not launcher.here)
    with Display(request.store, forecast, beats=launcher.here, tell=hook.tell) as display:
        return planning.run(request, to_run, display.hear, display.show)
