"""python -m sweeps.plan …: shows what `python -m sweeps …` would run, and how much is stored; runs nothing."""

import re

from results import command_line
from results.bad_input import number_of

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    command_line.run("sweeps.plan")

from sweeps import manual


@command_line.guarded
def main(argv: list[str]) -> int:
    """Prints the studies of a command line; runs nothing."""
    line = manual.read(argv, __doc__ or "")
    from results import store
    from results.plans.kinds import of_kind
    from sweeps import planning
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.readers import READERS

    request = planning.request(line)
    rows, new_trials, new_steps = [], 0, 0
    for study in sorted(request.studies, key=lambda study: command_line.numbered(study.name)):
        missing, planned = store.progress(request.store, study).to_run, study.request.planned
        steps = missing * study.budget_steps
        rows.append((study.name, planned, planned - missing, missing, study.budget_steps, steps))
        new_trials, new_steps = new_trials + missing, new_steps + steps
    header = ("study", "trials", "stored", "to run", "budget, steps", "at most, trial-steps")
    if command_line.is_data():
        command_line.show([re.sub(r"\W+", "_", name) for name in header], rows, str)
        return 0
    command_line.answer(command_line.table(header, rows))
    by_kind = {kind: of_kind(request.studies, kind) for kind in READERS}
    for kind, studies in by_kind.items():
        for text in READERS[kind].data_lines([ConfiguredStudy(s, request.sources.get(s.name)) for s in studies]):
            command_line.answer(text)
    notes = [note for kind, studies in by_kind.items() if studies for note in READERS[kind].notes(studies)]
    to_run = f"{number_of(new_trials, 'trial')} to run, at most {number_of(new_steps, 'trial-step')}"
    command_line.answer(f"{number_of(len(rows), 'study')}; {to_run} ({'; '.join(notes)})")
    return 0
