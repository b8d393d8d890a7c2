"""python -m sweeps.status [store=DIR]: what is done, running, missing and failed, study by study.

planned = complete + infeasible + incomplete (pruned, time limit, lost, failed, or unstated by its source) + missing. A
study is `running` while a process of this machine works on it, and `unfinished` while part of what was requested is
missing: the same `python -m sweeps` command runs just that. In a release, studies are `released`. The default is
store=results/local.
"""

from results import command_line

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    command_line.run("sweeps.status")

from pathlib import Path
from typing import TYPE_CHECKING

from results.bad_input import BadInput
from results.command_line import answer

if TYPE_CHECKING:
    from results.storage.commits import Commit


@command_line.guarded
def main(argv: list[str]) -> int:
    """Prints the ledger of a store: planned = complete + infeasible + incomplete + missing, study by study."""
    if {"-h", "--help"} & set(argv):
        answer((__doc__ or "").strip())
        return 0
    folder = Path("results/local")
    for arg in argv:
        key, equals, value = arg.partition("=")
        if key != "store" or not equals:
            raise BadInput(f"unknown argument {arg!r}; the only one is store=DIR")
        folder = Path(value).expanduser()
    from results import store
    from results.rules.ledger import Ledger
    from results.storage.commits import released_commits

    commits = released_commits(folder)
    if commits is None:
        rows = [_row(folder, name) for name in store.names(folder)]
    else:
        rows = [_released_row(commit) for commit in commits]
    header = ("study", "state", *(field.replace("_", " ") for field in Ledger._fields))
    total = [sum(row[i] for row in rows) for i in range(2, len(header))]
    print(command_line.table(header, [*rows, ("total", "", *total)]))
    return 0


def _released_row(commit: "Commit") -> tuple:
    return (commit.name, "released", *commit.ledger)


def _row(folder: Path, name: str) -> tuple:
    from results import store
    from results.plans.kinds import KINDS

    planned = store.stored_plan(folder, name)
    assert planned is not None  # names() lists what was planned
    progress = store.progress(folder, planned)
    ours = not KINDS[planned.kind].recorded  # a study somebody else measured is as finished as it will ever be
    unfinished = (ours and progress.ledger.unfinished) or not progress.visible
    state = "running" if store.is_running(folder, name) else "unfinished" if unfinished else "done"
    return (name, state, *progress.ledger)
