"""python -m sweeps.status [store=DIR] [--watch]: what is done, running, missing and failed, study by study.

planned = complete + infeasible + incomplete (pruned, time limit, lost, failed, or unstated by its source) + missing. A
study is `running` while a process of this machine works on it, and `unfinished` while part of what was requested is
missing: the same `python -m sweeps` command runs just that. `running 12/32` counts the trials that have ended, stored
or not, of all that are planned; `queued` waits for a cluster. In a release, studies are `released`. The default is
store=results/local. While anything runs, waits or has failed, the first line counts studies by their state; `retrying`
are those that run or wait again after an attempt that failed. --failed shows what failed or is retried, most failures
first.

Of a study that runs the table says on which host, in which attempt, and how long ago it was last heard of, and a line
below it names the file with what it prints. If the last attempt at a study that is not done failed, a line says why,
and which file has what it printed. Two studies that differ in one thing alone are two studies: below the table stands
in what.

--watch (or watch=true) shows the running studies, their speed and the time left, every second until nothing runs or is
queued; the exit code is 1 if studies are unfinished then.

--csv and --json print the table in that form, without totals; --wide all of it on a terminal, however narrow.
"""

from results import cli

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("sweeps.status")

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from results.bad_input import BadInput
from results.cli import answer, answer_help, say

if TYPE_CHECKING:
    from results.storage.commits import Commit
    from results.storage.heartbeat import Heartbeat

_MOST = 200  # studies of one slug that are compared, pair by pair
_SHOWN = 60  # characters of a value


@cli.guarded
def main(argv: list[str]) -> int:
    """Prints the ledger of a store: planned = complete + infeasible + incomplete + missing, study by study."""
    if {"-h", "--help"} & set(argv):
        answer_help((__doc__ or "").strip())
        return 0
    from results import durable

    cli.set_output(**{flag[2:]: flag in argv for flag in cli.OUTPUT_FLAGS})
    folder = Path("results/local")
    watching = failed = False
    for arg in cli.as_pairs(argv, ("--watch", "--failed", *cli.OUTPUT_FLAGS)):
        key, equals, value = arg.partition("=")
        if arg == "--watch" or (key == "watch" and value in ("true", "false")):
            watching = value != "false"
        elif arg == "--failed":
            failed = True
        elif arg in cli.OUTPUT_FLAGS:
            continue
        elif key == "store" and equals:
            folder = durable.local(value)
        else:
            there = "store=DIR, --watch, --failed, --csv, --json and --wide"
            raise BadInput(f"unknown argument {arg!r}; there are {there}")
    from results import store
    from results.durable import Damaged
    from results.rules.ledger import Ledger
    from results.storage import heartbeat
    from results.storage.commits import released_commits

    damaged: dict[str, Damaged] = {}

    def row_of(name: str, beat: "Heartbeat | None", nothing: int | None = None) -> tuple:
        """The row of a study; of one that is damaged without a ledger, so that it hides no other."""
        try:
            return _row(folder, name, beat)
        except Damaged as error:
            damaged[name] = error
            return (name, "damaged", *(nothing for _ in Ledger._fields))

    commits = released_commits(folder)
    if watching and commits is None:
        from sweeps.watch import watch

        return watch(folder, lambda name, beat: row_of(name, beat, 0))
    if commits is None:
        names = store.names(folder)
        beats = heartbeat.Watch().look(folder / name for name in names)
        rows = [row_of(name, beats.get(folder / name)) for name in names]
    else:
        rows = [_released_row(commit) for commit in commits]
    rows.sort(key=lambda row: cli.numbered(row[0]))
    header = ("study", "state", *Ledger._fields)
    runs = {} if commits is not None else activities(folder, [row[0] for row in rows if row[1] != "done"])
    nothing = Activity()
    counts = _counts(rows, runs)
    if failed:
        rows = [row for row in rows if row[1] != "done" and runs.get(row[0], nothing).failures]
        rows.sort(key=lambda row: -(runs[row[0]].failures or 0))
        runs = {row[0]: runs[row[0]] for row in rows}
    whole = [(*row, *runs.get(row[0], nothing)) for row in rows]
    cli.show((*header, *Activity._fields), whole, lambda: "\n".join([*counts, _text(header, rows, runs)]))
    if not cli.is_data() and commits is None:
        cli.report_some(differences(folder, [row[0] for row in rows if row[0] not in damaged]), answer)
    from results.catalog import withdrawn

    for note in withdrawn.of_store(folder):
        say(f"note: {note}")
    cli.report_some([f"{name}: {error}" for name, error in damaged.items()], cli.say)
    return 1 if damaged else 0


class Activity(NamedTuple):
    """What is known of the last attempt at a study; None where there is nothing to say.

    Attributes:
      host: that it runs on, or ran.
      attempt: its number.
      heard: seconds since its process gave a sign of life, as far as its heartbeat tells.
      cause: of its end, where that was none of the study.
      log: with what it prints.
      failures: attempts that ended by a failure; None where none was made.
    """

    host: str | None = None
    attempt: int | None = None
    heard: int | None = None
    cause: str | None = None
    log: str | None = None
    failures: int | None = None


def _counts(rows: Sequence[tuple], runs: "Mapping[str, Activity]") -> list[str]:
    """The line that counts studies by what they do; none if all are done, released or wait for a command."""
    found = dict.fromkeys(("running", "queued", "retrying", "failed", "unfinished", "done"), 0)
    for name, state, *_ in rows:
        what, known = state.split()[0], runs.get(name, Activity())
        if what in ("running", "queued") and known.failures:
            what = "retrying"
        elif what == "unfinished" and known.failures and known.cause:
            what = "failed"
        found[what] = found.get(what, 0) + 1
    moving = any(found[what] for what in ("running", "queued", "retrying", "failed"))
    return [", ".join(f"{count:,} {what}" for what, count in found.items() if count)] if moving else []


def activities(folder: Path, names: Sequence[str]) -> dict[str, Activity]:
    """What is known of the last attempts at studies of a store, by their names, where anything is."""
    import time

    from results import exit_codes
    from results.storage import attempts, heartbeat

    found = {}
    for name in names:
        made, beat = attempts.read(folder / name), heartbeat.seen(folder / name)
        last = made[-1:]
        if not last and (beat is None or beat.alive is False):
            continue
        heard = (
            None
            if beat is None or beat.alive is False
            else max(0, round(time.time() - beat.written / 1e9 + beat.beat.silent))
        )
        one = last[0] if last else None
        found[name] = Activity(
            (one and one.host) or (beat.host if beat else None),
            one and one.number,
            heard,
            one and one.cause,
            str(one.log) if one and one.began else None,
            sum(each.code not in (None, exit_codes.PREEMPTED) for each in made) if made else None,
        )
    return found


def _text(header: Sequence[str], rows: Sequence[tuple], runs: "Mapping[str, Activity]") -> str:
    """The table, with what runs where if anything does; below it why attempts failed."""
    total = [sum(row[i] or 0 for row in rows) for i in range(2, len(header))]
    shown = [
        field for field in ("host", "attempt", "heard") if any(getattr(a, field) is not None for a in runs.values())
    ]
    lines = []
    for row in rows:
        known = runs.get(row[0], Activity())
        cells = ("" if cell is None else cell for cell in row)
        lines.append((*cells, *(_word(field, getattr(known, field)) for field in shown)))
    names = [name.replace("_", " ") for name in (*header, *shown)]
    text = cli.table(names, lines, foot=[("total", "", *total, *("" for _ in shown))])
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


def _released_row(commit: "Commit") -> tuple:
    return (commit.name, "released", *commit.ledger)


def _row(folder: Path, name: str, beat: "Heartbeat | None") -> tuple:
    from results import store
    from results.plans.kinds import KINDS
    from results.storage import attempts

    planned = store.stored_plan(folder, name)
    assert planned is not None  # names() lists what was planned
    progress = store.progress(folder, planned)
    ours = not KINDS[planned.kind].recorded  # a study somebody else measured is as finished as it will ever be
    unfinished = (ours and progress.ledger.unfinished) or not progress.visible
    state = "unfinished" if unfinished else "done"
    if beat is not None or store.is_running(folder, name):
        state = "running" if beat is None else f"running {beat.settled(progress.ledger):,}/{progress.ledger.planned:,}"
    elif unfinished and (last := attempts.read(folder / name)[-1:]) and last[0].began is None:
        state = f"queued ({last[0].launcher} {last[0].job})"
    return (name, state, *progress.ledger)


def differences(folder: Path, names: Sequence[str]) -> list[str]:
    """A line for each study that shares its slug with others: which it is nearest to, and how the two differ.

    Args:
      folder: of the store.
      names: of its studies.
    """
    by_slug: dict[str, list[str]] = {}
    for name in names:
        by_slug.setdefault(name.rpartition("-")[0], []).append(name)
    return [line for own in by_slug.values() if 1 < len(own) <= _MOST for line in _differing(folder, own)]


def _differing(folder: Path, names: Sequence[str]) -> Iterator[str]:
    from results import store

    plans = {name: _fields(planned.plan()) for name in names if (planned := store.stored_plan(folder, name))}
    told: set[frozenset[str]] = set()
    for name, own in plans.items():
        others = [(len(different(own, fields)), other) for other, fields in plans.items() if other != name]
        nearest = min(others)[1] if others else None
        if nearest is None or frozenset((name, nearest)) in told:
            continue
        told.add(frozenset((name, nearest)))
        changes = different(plans[nearest], own)
        words = ", ".join(f"{key} {_brief(before)} → {_brief(now)}" for key, (before, now) in changes.items())
        yield f"{name} is not {nearest}: {words}"


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields in which two plans differ, with the value of each; None where a plan has none."""
    keys = list(dict.fromkeys(itertools.chain(one, other)))
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def _fields(plan: Any, prefix: str = "") -> dict[str, Any]:
    """The lone values of a plan, by their keys with dots; lists of lone values are values."""
    if isinstance(plan, Mapping):
        items: Any = plan.items()
    elif isinstance(plan, list) and any(isinstance(each, Mapping | list) for each in plan):
        items = enumerate(plan)
    else:
        return {prefix.removesuffix("."): plan}
    return {key: value for name, part in items for key, value in _fields(part, f"{prefix}{name}.").items()}


def _brief(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
