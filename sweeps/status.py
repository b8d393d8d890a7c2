"""python -m sweeps.status [store=DIR] [--watch]: what is done, running, missing and failed, study by study.

planned = complete + infeasible + incomplete (pruned, time limit, lost, failed, or unstated by its source) + missing. A
study is `running` while a process of this machine works on it, and `unfinished` while part of what was requested is
missing: the same `python -m sweeps` command runs just that. `running 12/32` counts the trials that have ended, stored
or not, of all that are planned. In a release, studies are `released`. The default is store=results/local.

--watch (or watch=true) shows the running studies, their speed and the time left, every second until nothing runs; the
exit code is 1 if studies are unfinished then.

--csv and --json print the table in that form, without totals; --wide all of it on a terminal, however narrow.
"""

from results import command_line

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    command_line.run("sweeps.status")

from pathlib import Path
from typing import TYPE_CHECKING

from results.bad_input import BadInput
from results.command_line import answer_help

if TYPE_CHECKING:
    from results.storage.commits import Commit


@command_line.guarded
def main(argv: list[str]) -> int:
    """Prints the ledger of a store: planned = complete + infeasible + incomplete + missing, study by study."""
    if {"-h", "--help"} & set(argv):
        answer_help((__doc__ or "").strip())
        return 0
    from results import durable

    command_line.set_output(**{flag[2:]: flag in argv for flag in command_line.OUTPUT_FLAGS})
    folder = Path("results/local")
    watching = False
    for arg in command_line.as_pairs(argv, ("--watch", *command_line.OUTPUT_FLAGS)):
        key, equals, value = arg.partition("=")
        if arg == "--watch" or (key == "watch" and value in ("true", "false")):
            watching = value != "false"
        elif arg in command_line.OUTPUT_FLAGS:
            continue
        elif key == "store" and equals:
            folder = durable.local(value)
        else:
            raise BadInput(f"unknown argument {arg!r}; there are store=DIR, --watch, --csv, --json and --wide")
    from results import store
    from results.rules.ledger import Ledger
    from results.storage.commits import released_commits

    commits = released_commits(folder)
    if watching and commits is None:
        from sweeps.watch import watch

        return watch(folder, lambda name: _row(folder, name))
    if commits is None:
        rows = [_row(folder, name) for name in store.names(folder)]
    else:
        rows = [_released_row(commit) for commit in commits]
    header = ("study", "state", *(field.replace("_", " ") for field in Ledger._fields))
    total = [sum(row[i] for row in rows) for i in range(2, len(header))]
    rows.sort(key=lambda row: command_line.numbered(row[0]))
    foot = [("total", "", *total)]
    command_line.show(
        [name.replace(" ", "_") for name in header], rows, lambda: command_line.table(header, rows, foot=foot)
    )
    return 0


def _released_row(commit: "Commit") -> tuple:
    return (commit.name, "released", *commit.ledger)


def _row(folder: Path, name: str) -> tuple:
    from results import store
    from results.plans.kinds import KINDS
    from results.storage import heartbeat

    planned = store.stored_plan(folder, name)
    assert planned is not None  # names() lists what was planned
    progress = store.progress(folder, planned)
    ours = not KINDS[planned.kind].recorded  # a study somebody else measured is as finished as it will ever be
    unfinished = (ours and progress.ledger.unfinished) or not progress.visible
    state = "unfinished" if unfinished else "done"
    if store.is_running(folder, name):
        beat = heartbeat.read(folder / name)
        state = "running" if beat is None else f"running {beat.settled(progress.ledger):,}/{progress.ledger.planned:,}"
    return (name, state, *progress.ledger)
