"""python -m sweeps: runs one study, or with -m a sweep of them; what the store has already is not run again."""

import sys
from collections.abc import Sequence

from tqdm import tqdm

from results import store
from results.study import Study
from sweeps import config, doors
from sweeps.launchers import local


class _Bar:
    """Progress in trials: a bar on a terminal, elsewhere a line for every study that ended."""

    def __init__(self, studies: Sequence[Study], new_trials: int):
        silent = not sys.stderr.isatty()
        self._bar = tqdm(total=new_trials, unit="trial", desc="starting workers", dynamic_ncols=True, disable=silent)
        self._settled = dict.fromkeys((study.name for study in studies), 0)
        self._ended = 0

    def __call__(self, progress: local.Progress) -> None:
        name, outcome = progress.study.name, progress.outcome
        settled = outcome.summary.ran if outcome else progress.settled
        self._ended += outcome is not None
        self._bar.set_description(f"{self._ended}/{len(self._settled)} studies", refresh=False)
        self._bar.update(settled - self._settled[name])
        self._settled[name] = settled
        if outcome is None:
            return
        how = f"{outcome.summary.ran} trials in {outcome.summary.seconds:.1f} s"
        if outcome.failure:
            how = f"failed: {outcome.failure.strip().splitlines()[-1]}"
        if self._bar.disable or outcome.failure:
            tqdm.write(f"[{self._ended}/{len(self._settled)}] {name}: {how}", file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


def main(argv: list[str]) -> int:
    """Runs the studies of a command line; the exit code is 1 if any of them failed."""
    request = config.request(doors.read(argv, __doc__ or ""))
    for study in request.studies:
        store.ask(request.store, study)
    missing = {study.name: len(store.missing(request.store, study)) for study in request.studies}
    # A run that was killed before its commit record has nothing to train, and still something to do.
    to_run = [s for s in request.studies if missing[s.name] or not store.progress(request.store, s).visible]
    stored = sum(study.trials for study in request.studies) - sum(missing.values())
    if not to_run:
        print(f"nothing to train: {len(request.studies)} studies, {stored:,} trials are in {request.store} already")
        return 0
    new_trials = sum(missing.values())
    already = f"; {stored:,} trials are stored already" if stored else ""
    print(f"{len(to_run)} studies, {new_trials:,} trials to run{already}", file=sys.stderr, flush=True)
    bar = _Bar(to_run, new_trials)
    try:
        outcomes = local.run_all(request.store, to_run, request.settings, request.workers, bar)
    finally:
        bar.close()
    rows = [(s.study, s.ran, s.complete, s.infeasible, s.incomplete, f"{s.seconds:.1f}") for s, _ in sorted(outcomes)]
    print(doors.table(("study", "ran", "complete", "infeasible", "incomplete", "seconds"), rows))
    failures = [(outcome.summary.study, outcome.failure) for outcome in outcomes if outcome.failure]
    for name, why in failures:
        print(f"\n{name} failed:\n{why}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(to_run)} studies failed; the same command tries them again", file=sys.stderr)
        return 1
    print(f"stored in {request.store}; next: python -m analysis steps --store {request.store}")
    return 0


if __name__ == "__main__":
    sys.exit(doors.guarded(main, sys.argv[1:]))
