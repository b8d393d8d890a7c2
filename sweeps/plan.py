"""python -m sweeps.plan …: what `python -m sweeps …` would run, and what of it is stored already; runs nothing."""

from results import doors

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    doors.run("sweeps.plan")

from results import store
from results.study import Study
from sweeps import config, manual


@doors.guarded
def main(argv: list[str]) -> int:
    """Prints the studies of a command line; runs nothing."""
    request = config.request(manual.read(argv, __doc__ or ""))
    rows, new_trials, new_steps = [], 0, 0
    for study in request.studies:
        missing, planned = store.progress(request.store, study).to_run, study.asked.planned
        steps = missing * study.budget_steps
        rows.append((study.name, planned, planned - missing, missing, study.budget_steps, steps))
        new_trials, new_steps = new_trials + missing, new_steps + steps
    header = ("study", "trials", "stored", "to run", "budget, steps", "at most, trial-steps")
    print(doors.table(header, rows))
    networks = [study for study in request.studies if isinstance(study, Study)]
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
