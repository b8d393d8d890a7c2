"""python -m sweeps: runs one study, or with -m a sweep of them; stored studies are not run again."""

from results import command_line

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    command_line.run("sweeps.__main__")

import contextlib
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from results.bad_input import number_of, printable
from results.command_line import say
from sweeps import manual

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.launchers.local import StudyOutcome, StudyUpdate
    from sweeps.planning import Request


class _Bar:
    """Progress in trials or epochs: a bar on a terminal, elsewhere a line for every study that ended."""

    def __init__(self, studies: "Sequence[Plan]", unit: str, total: int, count: "_Count"):
        from tqdm import tqdm

        silent = not sys.stderr.isatty()
        self._bar = tqdm(total=total, unit=unit, desc="starting workers", dynamic_ncols=True, disable=silent)
        self._settled = dict.fromkeys((study.name for study in studies), 0)
        self._count = count

    def __call__(self, progress: "StudyUpdate") -> None:
        name, outcome = progress.study.name, progress.outcome
        self._count.ended += outcome is not None
        self._bar.set_description(f"{self._count} studies", refresh=False)
        self._bar.update(progress.settled - self._settled[name])
        self._settled[name] = progress.settled
        if outcome is None:
            return
        how = f"{number_of(outcome.summary.ran, 'trial')} in {outcome.summary.seconds:.1f} s"
        if outcome.failure:
            how = f"failed: {outcome.failure}"
        if self._bar.disable or outcome.failure:
            self._bar.write(printable(f"[{self._count}] {name}: {how}"), file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


@dataclasses.dataclass
class _Count:
    """A count of studies that have ended."""

    total: int
    ended: int = 0

    def __str__(self) -> str:
        return f"{self.ended}/{self.total}"


@command_line.guarded
def main(argv: list[str]) -> int:
    """Runs the studies of a command line; the exit code is 1 if any of them failed."""
    words = manual.read(argv, __doc__ or "")
    from sweeps import planning

    request = planning.request(words)
    from results import store
    from results.plans.kinds import of_kind
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.readers import READERS

    progress = {study.name: store.progress(request.store, study) for study in request.studies}
    missing = {name: each.to_run for name, each in progress.items()}
    # A run that was killed before its commit record has nothing to train, but still has to commit.
    to_run = [s for s in request.studies if missing[s.name] or not progress[s.name].visible]
    stored = sum(study.request.planned for study in request.studies) - sum(missing.values())
    if not to_run:
        present = f"{number_of(len(request.studies), 'study')} with {number_of(stored, 'trial')}"
        print(f"nothing to train: {present} stored in {request.store} already")
        return 0
    for kind, reader in READERS.items():
        reader.make_ready([ConfiguredStudy(s, request.sources.get(s.name)) for s in of_kind(to_run, kind)], say)
    for study in to_run:
        store.ask(request.store, study)
    already = f"; {stored:,} trials are stored already" if stored else ""
    say(f"{number_of(len(to_run), 'study')}, {number_of(sum(missing.values()), 'trial')} to run{already}")
    outcomes = _run(request, to_run, missing)
    ran = sorted(outcome.summary for outcome in outcomes)
    rows = [(s.study, s.ran, s.complete, s.infeasible, s.incomplete, f"{s.seconds:.1f}") for s in ran]
    print(command_line.table(("study", "ran", "complete", "infeasible", "incomplete", "seconds"), rows))
    failures = [outcome for outcome in outcomes if outcome.failure]
    for why, places in {outcome.failure: outcome.places for outcome in failures}.items():
        for line in [f"{why}, called from", *(f"  {place}" for place in places)] if places else ():
            say(line)
    if failures:
        say(f"{len(failures)} of {len(to_run)} studies failed; the same command tries them again")
        return 1
    reading = {READERS[study.kind].command for study in request.studies}
    commands = [f"python -m analysis {command} --store {request.store}" for command in sorted(reading)]
    print(f"stored in {request.store}; next: {', or '.join(commands)}")
    return 0


def _run(request: "Request", to_run: "Sequence[Plan]", missing: Mapping[str, int]) -> "list[StudyOutcome]":
    """Runs studies, with one progress bar per unit of progress."""
    from harness import runners
    from harness.runners import RUNNERS
    from sweeps.launchers import local

    count = _Count(len(to_run))
    outcomes: list[StudyOutcome] = []
    for unit in dict.fromkeys(map(runners.unit, RUNNERS)):
        studies = [study for study in to_run if runners.unit(study.kind) == unit]
        total = sum(RUNNERS[study.kind].settled(study, missing[study.name]) for study in studies)
        if studies:
            with contextlib.closing(_Bar(studies, unit, total, count)) as bar:
                outcomes += local.run_all(
                    request.store, studies, request.settings, request.workers, bar, sources=request.sources
                )
    return outcomes
