"""python -m sweeps.plan …: what `python -m sweeps …` would run, and what of it is stored already; runs nothing."""

import sys

from results import store
from results.batch_study import BatchStudy
from sweeps import config, doors


def plan(argv: list[str]) -> int:
    """Prints the studies of a command line; runs nothing."""
    request = config.request(doors.read(argv, __doc__ or ""))
    rows, new_trials, new_steps = [], 0, 0
    for study in request.studies:
        missing, planned = store.progress(request.store, study).to_run, study.asked.planned
        steps = missing * study.budget_steps
        rows.append((study.name, planned, planned - missing, missing, study.budget_steps, steps))
        new_trials, new_steps = new_trials + missing, new_steps + steps
    header = ("study", "trials", "stored", "to run", "budget, steps", "at most, trial-steps")
    print(doors.table(header, rows))
    networks = [study for study in request.studies if isinstance(study, BatchStudy)]
    ending = [study for study in networks if study.ends_at]
    notes = []
    if ending:
        pruned = any(study.pruning == "exact" for study in ending)
        notes.append(f"a trial ends once it reached its targets{', or cannot win' if pruned else ''}")
    if len(ending) < len(networks):
        whose = f"in {len(networks) - len(ending)} of {len(networks)} studies it" if ending else "a trial"
        notes.append(f"{whose} goes on to the end of its budget")
    if len(networks) < len(request.studies):
        notes.append("a step of als is an epoch; its studies run one after the other")
    print(f"{len(rows)} studies; {new_trials} trials to run, at most {new_steps:,} trial-steps ({'; '.join(notes)})")
    return 0


if __name__ == "__main__":
    sys.exit(doors.guarded(plan, sys.argv[1:]))
