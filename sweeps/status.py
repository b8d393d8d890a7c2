"""python -m sweeps.status: shows the finished, running, missing and failed trials of each study.

  python -m sweeps.status --store mine
  python -m sweeps.status --store mine --failed

planned = complete + infeasible + incomplete (pruned, time limit, lost, failed, or unstated by its source) + missing. A
study is `running` while a process works on it, and `queued` while it waits for a cluster. It is `unfinished` while
requested trials are missing. The same `python -m sweeps` command then runs only the missing trials. `running 12/32`
means that 12 of 32 planned trials have ended, whether or not they are stored. Studies of a release are `released`. The
default store is results/local. The column unit is that of the batch size: examples, sequences or tokens. While any
study is running, queued or failed, the first line counts studies by state. `retrying` studies are running or waiting
again after a failed attempt. --failed sorts them by their failures, most first.

The table shows the host and the attempt of each running study, and the time since its last sign of life. The log is
listed below the table. If the last attempt at an unfinished study failed, its cause and its log are listed. Additional
lines show how similar studies differ.

--csv and --json print only the table, without totals.
"""

from results import cli

if __name__ == "__main__":  # precedes the imports below, so that their errors are caught
    cli.run("sweeps.status")

import argparse
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from results import exit_codes, printing, tables
from results.aliases import Fields
from results.bad_input import BadInput
from results.grouping import grouped
from results.printing import answer, say

if TYPE_CHECKING:
    from results.durable import Folder
    from results.plans.plan import Plan
    from results.storage.heartbeat import Heartbeat

# Imports inside functions keep --help fast.
_MOST = 200  # maximum number of studies with one slug that are compared pairwise
_SHOWN = 60  # maximum length of a value
REPEAT = "Repeat status in a loop, as in `watch -n 10 scaling-limits status --store DIR`."


@cli.guarded
def main(argv: list[str]) -> int:
    """Prints the ledger of each study of a store. Returns 1 if a study is corrupt."""
    options = parser().parse_args(argv)
    if options.watch is not None:
        raise BadInput(f"watch was removed. {REPEAT}")
    printing.set_output(csv=options.csv, json=options.json, wide=options.wide)
    from results import durable, store
    from results.catalog import withdrawn
    from results.durable import Damaged
    from results.plans.plan_columns import unit_in_words
    from results.rules.ledger import Ledger
    from results.storage import heartbeat
    from results.store import fetch_commits, released_commits

    folder = options.store
    damaged = dict[str, Damaged]()

    def row_of(name: str, beat: "Heartbeat | None") -> tuple:
        """Returns the row of a study. The ledger of a corrupt study is omitted, so the others are still shown."""
        try:
            return _row(folder, name, beat)
        except Damaged as error:
            damaged[name] = error
            return (name, "damaged", "", *(None for _ in Ledger._fields))

    with durable.system(folder).snapshot(folder):
        commits = released_commits(folder)
        if commits is None:
            names = store.names(folder)
            fetch_commits(folder, names, "trials")
            beats = heartbeat.running(folder / name for name in names)
            rows = [row_of(name, beats.get(folder / name)) for name in names]
        else:
            rows = [(commit.name, "released", unit_in_words(commit.study), *commit.ledger) for commit in commits]
        rows.sort(key=lambda row: printing.numbered(row[0]))
        runs = {} if commits is not None else activities(folder, [row[0] for row in rows if row[1] != "done"])
        _show(("study", "state", "unit", *Ledger._fields), rows, runs, only_failed=options.failed)
        if not printing.is_data() and commits is None:
            printing.report_some(differences(folder, [row[0] for row in rows if row[0] not in damaged]), answer)
        for note in withdrawn.of_store(folder):
            say(f"note: {note}")
    printing.report_some([f"{name}: {error}" for name, error in damaged.items()], say)
    return 1 if damaged else 0


def parser() -> cli.CommandParser:
    """Returns the parser of the command line."""
    command = cli.CommandParser("python -m sweeps.status", description=(__doc__ or "").partition(": ")[2])
    command.add_argument("--store", type=cli.location, default=Path("results/local"), metavar="DIR", help="a store")
    command.add_argument("--failed", action="store_true", help="show only failed and retrying studies")
    command.add_argument("--watch", nargs="?", const="true", help=argparse.SUPPRESS)
    cli.add_output_arguments(command)
    return command


def _show(header: Sequence[str], rows: Sequence[tuple], runs: "Mapping[str, Activity]", *, only_failed: bool) -> None:
    """Prints the table, or only its failed studies."""
    counts = _counts(rows, runs)
    unknown = Activity()
    if only_failed:
        failed = [row for row in rows if row[1] != "done" and runs.get(row[0], unknown).failures]
        rows = sorted(failed, key=lambda row: -(runs[row[0]].failures or 0))
        runs = {row[0]: runs[row[0]] for row in rows}
    rows_with_runs = [(*row, *runs.get(row[0], unknown)) for row in rows]
    printing.show((*header, *Activity._fields), rows_with_runs, lambda: "\n".join([*counts, _text(header, rows, runs)]))


class Activity(NamedTuple):
    """The last attempt at a study. Fields are None if unknown.

    Attributes:
      host: host that runs or ran the study.
      attempt: number of the attempt.
      heard: seconds since the last sign of life of the process, according to its heartbeat.
      cause: reason why the attempt ended, unless it succeeded.
      log: log with the output of the attempt.
      failures: number of failed attempts, or None if there were no attempts.
    """

    host: str | None = None
    attempt: int | None = None
    heard: int | None = None
    cause: str | None = None
    log: str | None = None
    failures: int | None = None


def _counts(rows: Sequence[tuple], runs: "Mapping[str, Activity]") -> list[str]:
    """Returns the line that counts studies by state, or an empty list if no study is active or failed."""
    counts = dict.fromkeys(("running", "queued", "retrying", "failed", "unfinished", "done"), 0)
    for name, state, *_ in rows:
        word = state.split()[0]
        run = runs.get(name, Activity())
        if word in ("running", "queued") and run.failures:
            word = "retrying"
        elif word == "unfinished" and run.failures and run.cause:
            word = "failed"
        counts[word] = counts.get(word, 0) + 1
    if not any(counts[word] for word in ("running", "queued", "retrying", "failed")):
        return []
    return [", ".join(f"{count:,} {word}" for word, count in counts.items() if count)]


def activities(folder: "Folder", names: Sequence[str]) -> dict[str, Activity]:
    """Returns the last attempt at each study of a store, by study name."""
    from results.storage import attempts, heartbeat

    runs = {}
    for name in names:
        past = attempts.read(folder / name)
        beat = heartbeat.seen(folder / name)
        run = Activity(host=beat.host if beat else None)
        if beat is not None and beat.alive is not False:
            run = run._replace(heard=max(0, round(time.time() - beat.written + beat.beat.silent)))
        elif not past:
            continue
        if past:
            last = past[-1]
            failures = sum(attempt.code not in (None, exit_codes.PREEMPTED) for attempt in past)
            log = str(last.log) if last.began else None
            run = Activity(last.host or run.host, last.number, run.heard, last.cause, log, failures)
        runs[name] = run
    return runs


def _text(header: Sequence[str], rows: Sequence[tuple], runs: "Mapping[str, Activity]") -> str:
    """Returns the table, with columns for running attempts (if any), followed by causes of failures and logs."""
    total = [sum(row[i] or 0 for row in rows) for i in range(3, len(header))]
    shown = [
        field for field in ("host", "attempt", "heard") if any(getattr(a, field) is not None for a in runs.values())
    ]
    lines = []
    for row in rows:
        run = runs.get(row[0], Activity())
        cells = ("" if cell is None else cell for cell in row)
        lines.append((*cells, *(_word(field, getattr(run, field)) for field in shown)))
    names = [name.replace("_", " ") for name in (*header, *shown)]
    text = tables.table(names, lines, foot=[("total", "", "", *total, *("" for _ in shown))])
    why = [f"{name}: attempt {a.attempt} ended {a.cause}; see {a.log}" for name, a in runs.items() if a.cause]
    running = {row[0] for row in rows if row[1].startswith("running")}
    logs = [
        f"{name}: attempt {a.attempt} prints to {a.log}"
        for name, a in runs.items()
        if name in running and a.log and not a.cause
    ]
    return "\n".join([text, *why, *logs])


def _word(field: str, value: object) -> str:
    if value is None:
        return ""
    return f"{value} s ago" if field == "heard" else str(value)


def _row(folder: "Folder", name: str, beat: "Heartbeat | None") -> tuple:
    from results import store
    from results.plans.kinds import KINDS
    from results.plans.plan_columns import unit_in_words
    from results.storage import attempts

    planned = _planned(folder, name)
    assert planned is not None  # names() lists only studies with plans
    progress = store.progress(folder, planned)
    is_ours = not KINDS[planned.kind].recorded  # published studies cannot be continued
    unfinished = (is_ours and progress.ledger.unfinished) or not progress.visible
    state = "unfinished" if unfinished else "done"
    if beat is not None or store.is_running(folder, name):
        state = "running" if beat is None else f"running {beat.settled(progress.ledger):,}/{progress.ledger.planned:,}"
    elif unfinished:
        last = attempts.last(folder / name)
        if last and last.began is None:
            state = f"queued ({last.launcher} {last.job})"
    return (name, state, unit_in_words(planned), *progress.ledger)


def _planned(folder: "Folder", name: str) -> "Plan | None":
    """Returns the requested study. In a bucket, its newest commit has already been read and may contain the request."""
    from results import durable, store
    from results.plans.trial_request import NO_REPEATS, TrialRequest
    from results.store import list_study, newest_commit

    listing = list_study(folder / name)
    if listing.commits and listing.plans and not durable.system(folder).is_local:
        commit = newest_commit(folder, name)
        if commit and commit.request == TrialRequest(listing.plans[-1], max(listing.confirms, default=NO_REPEATS)):
            return commit.study
    return store.stored_plan(folder, name)


def differences(folder: "Folder", names: Sequence[str]) -> list[str]:
    """Returns a line for each study whose slug others share. It lists the differences from the most similar study.

    Args:
      folder: folder of the store.
      names: names of the studies.
    """
    by_slug = grouped(names, lambda name: name.rpartition("-")[0])
    return [line for alike in by_slug.values() if 1 < len(alike) <= _MOST for line in _differing(folder, alike)]


def _differing(folder: "Folder", names: Sequence[str]) -> Iterator[str]:
    plans = {name: _fields(planned.plan()) for name in names if (planned := _planned(folder, name))}
    reported = set()
    for name, fields in plans.items():
        distances = [(len(different(fields, plans[other])), other) for other in plans if other != name]
        nearest = min(distances)[1] if distances else None
        if nearest is None or frozenset((name, nearest)) in reported:
            continue
        reported.add(frozenset((name, nearest)))
        changes = different(plans[nearest], fields)
        words = ", ".join(f"{key} {_brief(before)} → {_brief(now)}" for key, (before, now) in changes.items())
        yield f"{name} differs from {nearest}: {words}"


def different(first: Fields, second: Fields) -> dict[str, tuple[Any, Any]]:
    """Returns the fields in which two plans differ, with both values. Missing fields have the value None."""
    keys = list(dict.fromkeys(itertools.chain(first, second)))
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}


def _fields(plan: Any, prefix: str = "") -> Fields:
    """Flattens a plan to values by dotted keys. A list of plain values counts as a single value."""
    if isinstance(plan, Mapping):
        items: Any = plan.items()
    elif isinstance(plan, list) and any(isinstance(part, Mapping | list) for part in plan):
        items = enumerate(plan)
    else:
        return {prefix.removesuffix("."): plan}
    return {key: value for name, part in items for key, value in _fields(part, f"{prefix}{name}.").items()}


def _brief(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
