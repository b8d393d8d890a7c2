"""python -m sweeps: runs one study, or with -m a sweep of them; stored studies are not run again."""

from results import command_line

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    command_line.run("sweeps.__main__")

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from results.bad_input import number_of
from results.command_line import answer, quoted, say
from sweeps import manual

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.launchers.local import StudyOutcome
    from sweeps.planning import Request

_HEADER = ("study", "ran", "complete", "infeasible", "incomplete", "seconds")


@command_line.guarded
def main(argv: list[str]) -> int:
    """Runs the studies of a command line; the exit code is 1 if any of them failed."""
    words = manual.read(argv, __doc__ or "")
    from sweeps import planning

    request = planning.request(words)
    if request.hosts is None:
        return _sweep(request)
    from sweeps.launchers import hosts

    return hosts.watched(request.hosts, lambda: _sweep(request))


def _sweep(request: "Request") -> int:
    """Runs what the store of a request lacks."""
    from sweeps import planning
    from sweeps.readers import READERS

    to_run, missing, stored = planning.to_run(request)
    if not to_run:
        present = f"{number_of(len(request.studies), 'study')} with {number_of(stored, 'trial')}"
        if command_line.is_data():
            command_line.show(_HEADER, (), str)
        tell = say if command_line.is_data() else answer
        tell(f"nothing to train: {present} stored in {request.store} already")
        return 0
    planning.make_ready(request, to_run, say)
    already = f"; {stored:,} trials are stored already" if stored else ""
    say(f"{number_of(len(to_run), 'study')}, {number_of(sum(missing.values()), 'trial')} to run{already}")
    outcomes = _run(request, to_run, missing)
    ran = sorted((outcome.summary for outcome in outcomes), key=lambda one: command_line.numbered(one.study))
    rows = [(s.study, s.ran, s.complete, s.infeasible, s.incomplete, round(s.seconds, 1)) for s in ran]
    texts = [(*row[:-1], f"{row[-1]:.1f}") for row in rows]
    command_line.show(_HEADER, rows, lambda: command_line.table(_HEADER, texts))
    failures = [outcome for outcome in outcomes if outcome.failure]
    for why, places in {outcome.failure: outcome.places for outcome in failures}.items():
        for line in [f"{why}, called from", *(f"  {place}" for place in places)] if places else ():
            say(line)
    if failures:
        say(f"{len(failures)} of {len(to_run)} studies failed; the same command tries them again")
        return 1
    reading = {READERS[study.kind].command for study in request.studies}
    commands = [f"python -m analysis {command} --store {quoted(request.store)}" for command in sorted(reading)]
    tell = say if command_line.is_data() else answer
    tell(f"stored in {request.store}; next: {', or '.join(commands)}")
    return 0


def _run(request: "Request", to_run: "Sequence[Plan]", missing: Mapping[str, int]) -> "list[StudyOutcome]":
    """Runs studies, and shows how far they are."""
    from sweeps.display import Display
    from sweeps.forecast import Forecast
    from sweeps.launchers import hosts, local

    workers = 1 if request.hosts else len(local.slots(request.workers))
    forecast = Forecast(to_run, missing, workers, request.settings.time_limit_seconds)
    with Display(request.store, forecast) as display:
        if request.hosts:
            return hosts.run_all(request.store, to_run, request.settings, display.hear, sources=request.sources)
        return local.run_all(
            request.store,
            to_run,
            request.settings,
            request.workers,
            display.hear,
            display.show,
            sources=request.sources,
        )
