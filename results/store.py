"""A store: a folder of studies. Each study is written part by part, and made visible by a commit record.

    STORE/<study>/plan-<trials>.json, confirm-<repeats>[-<top>].json       requests
    STORE/<study>/claim-<n>.json, part-<seq>-<token>.arrows                writers and their parts; see ``parts``
    STORE/<study>/{studies,trials,measurements}-<n>.parquet                tables committed under claim n
    STORE/<study>/commit-<n>.json                                          the record that lists these, with sha256

Readers see only the files listed in a study's newest commit record. A study grows with each run: the run claims the
study, writes its finished trials as parts, and commits. A commit merges the previous commit and the parts. If a trial
ran twice because it had to be retried, the newer run counts.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

import pyarrow as pa

from results import durable
from results.bad_input import BadInput
from results.durable import Damaged, Folder
from results.located import in_snapshot, located
from results.plans import plan_columns, schema
from results.plans.kinds import from_plan
from results.plans.plan import Plan
from results.plans.study import DIGITS
from results.plans.trial_request import NO_REPEATS
from results.printing import quoted
from results.rules import confirmation, ledger
from results.storage import claims
from results.storage.claims import Claim as Claim, TakenOver as TakenOver
from results.storage.commits import (
    Commit as Commit,
    Tables as Tables,
    fetch_commits as fetch_commits,
    frames,
    list_study as list_study,
    newest_commit as newest_commit,
    read_columns as read_columns,
    read_state,
    read_table as read_table,
    released_commits as released_commits,
    retry as retry,
    to_frame,
)
from results.storage.compaction import TABLES as TABLES, Piece as Piece
from results.storage.folders import LAUNCHERS as LAUNCHERS, advice, check_layout, check_not_above
from results.storage.parts import confirm_file, plan_file

T = TypeVar("T", bound=Plan)

# Requests


@located
def check_writable(store: Folder) -> None:
    """Raises BadInput unless files can be created atomically in ``store`` (which may be missing). Leaves no files."""
    durable.system(store).check_writable(store)


@in_snapshot
def names(store: Folder) -> list[str]:
    """Returns the sorted names of all studies requested in a store or contained in a release."""
    commits = released_commits(store)
    if commits is not None:
        return [commit.name for commit in commits]
    if not store.is_dir():
        raise _no_store(store)
    listings = {f.name: list_study(f) for f in store.iterdir() if not f.name.startswith(".")}
    if any(name.isdigit() for listing in listings.values() for name in listing.others):
        check_layout(store)
    names = sorted(name for name, listing in listings.items() if listing.plans)
    if not names:
        check_not_above(store)
    return names


@located
def stored_plan(store: Folder, name: str) -> Plan | None:
    """Returns a study with its largest request for trials and repeats, or None if it was never requested."""
    listing = list_study(store / name)
    if not listing.plans:
        return None
    path = store / name / plan_file(listing.plans[-1])
    record = durable.read_sealed(path)
    return from_plan(record["plan"], record["trials"], max(listing.confirms, default=NO_REPEATS), name)


@in_snapshot
def waiting(store: Folder, seen: Collection[str] | None = None) -> list[Plan]:
    """Returns the requested studies that are not in ``seen`` or not visible, sorted by name."""
    requested = set(names(store))
    unseen = requested.difference([commit.name for commit in catalogue(store)] if seen is None else seen)
    return [plan for plan in (stored_plan(store, name) for name in sorted(unseen)) if plan is not None]


@located
def with_stored_name(store: Folder, study: T) -> T:
    """Returns the study with the name that it has or would get in a store.

    A name ends with digits of the plan's hash. A study that was stored under an older, shorter name keeps this name. A
    different plan with the same short name gets a current, longer name.

    Raises:
      BadInput: the current name belongs to another plan.
    """
    names = [study if digits == study.digits else dataclasses.replace(study, digits=digits) for digits in DIGITS]
    plans = [stored_plan(store, named.name) for named in names]
    for named, stored in zip(names, plans, strict=True):
        if stored is not None and stored.plan_json == study.plan_json:
            return named
    if plans[names.index(study)] is None:
        return study
    if plans[-1] is not None:
        raise _taken(store, names[-1], plans[-1])
    return names[-1]


@located
def ask(store: Folder, study: Plan) -> None:
    """Records a request for ``study``. If its name belongs to another plan, raises BadInput with the differences."""
    check_same_plan(store, study)
    folder = store / study.name
    durable.make_folder(folder)
    if study.trials not in list_study(folder).plans:
        record = {"trials": study.trials, "plan": study.plan()}
        durable.create(folder / plan_file(study.trials), durable.seal(record))
    repeats = study.request.repeats
    if repeats.confirm and repeats not in list_study(folder).confirms:
        durable.create(folder / confirm_file(repeats), durable.seal(repeats.record()))


@located
def check_same_plan(store: Folder, study: Plan) -> None:
    """Raises BadInput if the store has another plan under this study's name."""
    stored = stored_plan(store, study.name)
    if stored is not None and stored.plan_json != study.plan_json:
        raise _taken(store, study, stored)


def _taken(store: Folder, study: Plan, stored: Plan) -> BadInput:
    """Returns the error for a study whose name belongs to another plan, ``stored``."""
    asked_plan, stored_fields = study.plan(), stored.plan()
    fields = sorted(
        field for field in asked_plan.keys() | stored_fields.keys() if asked_plan.get(field) != stored_fields.get(field)
    )
    changes = ", ".join(
        f"{field}: stored {stored_fields.get(field)!r}, asked {asked_plan.get(field)!r}" for field in fields
    )
    return BadInput(f"{store / study.name} holds another plan ({changes}). Use another store=DIR.")


@located
def check_destination(store: Folder) -> None:
    """Raises BadInput unless studies can be written to this store."""
    check_writable(store)
    check_is_store(store)


@located
def check_is_store(store: Folder) -> None:
    """Raises BadInput for a release, or for a store written by newer or by unsupported older software."""
    if released_commits(store) is not None:
        raise BadInput(
            f"{store} is a release, which never changes. Merge it into a store with `python -m results merge`."
        )
    if store.is_dir():
        check_layout(store)
        committed(store)


_IMPORT = "python -m results import runs"


def _no_store(store: Folder) -> BadInput:
    create = f"Create one with `python -m sweeps store={quoted(store)}`, or name another."
    if store.is_file():
        create = f"To import a log of runs, start with `{_IMPORT} {quoted(store)} --suggest-map --map runs.yaml`."
    return BadInput(f"no store at {store}. {advice(store, create)}")


# Reading


@in_snapshot
def catalogue(store: Folder) -> list[Commit]:
    """Returns the visible studies in a store or a release, sorted by name.

    Raises:
      BadInput: the folder is missing, or it does not contain studies but has stores below it that do.
    """
    commits = released_commits(store)
    if commits is not None:
        return commits
    if not store.is_dir():
        raise _no_store(store)
    studies = committed(store)
    if not studies:
        check_layout(store)
        check_not_above(store)
    return studies


@in_snapshot
def committed(store: Folder) -> list[Commit]:
    """Returns the visible studies in a folder that is or will become a store, sorted by name."""
    names = [f.name for f in store.iterdir() if not f.name.startswith(".")]
    fetch_commits(store, names)
    studies = [newest_commit(store, name) for name in names]
    return sorted((commit for commit in studies if commit), key=lambda commit: commit.name)


@in_snapshot
def read(store: Folder, name: str | None = None, *, tables: tuple[str, ...] = TABLES) -> Tables:
    """Reads all visible studies in a store or a release, or one of them, into pandas.

    Args:
      store: folder of the store or release.
      name: name of one study. None reads all studies.
      tables: tables to read. Other tables are returned empty.

    Returns:
      Tables sorted by study and (run | trial | trial, step), in which each trial occurs once. Missing values are NaN.
      The last columns of the studies table come from the plans: ``results.plans.plan_columns.COLUMNS``.

    Raises:
      BadInput: the store is missing, has a newer schema, or is damaged.
    """

    import pandas as pd

    def look() -> Tables:
        commits = catalogue(store) if name is None else released_commits(store)
        if commits is None:
            commits = [commit for commit in [newest_commit(store, str(name))] if commit]
        commits = [commit for commit in commits if name in (None, commit.name)]
        content = dict.fromkeys(TABLES, pd.DataFrame())
        for table in tables if commits else ():
            content[table] = to_frame(_together(table, [read_table(commit, table) for commit in commits]))
        if commits and "studies" in tables:
            derived = {commit.name: plan_columns.columns(commit.study) for commit in commits}
            studies = [derived[study] for study in content["studies"]["study"]]
            columns = {column.name: [row[column.name] for row in studies] for column in plan_columns.COLUMNS}
            content["studies"] = content["studies"].assign(**columns)
        return Tables(**content)

    return retry(look)


def _together(table: str, parts: list[pa.Table]) -> pa.Table:
    """Concatenates tables of studies. Float and double are combined to double, and missing columns become null.

    Metaparameters and metrics, which differ between studies, are sorted by name, as in a release.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").unify_dictionaries()
    known_columns = len(schema.COLUMNS[table])
    return rows.select([*rows.column_names[:known_columns], *sorted(rows.column_names[known_columns:])])


class StudyProgress(NamedTuple):
    """The progress of a study.

    Attributes:
      visible: whether all written data are visible.
      ledger: ledger of the requested trials.
      to_run: number of trials still to run. An upper bound until it is known which trials to repeat.
    """

    visible: bool
    ledger: ledger.Ledger
    to_run: int


@located
def progress(store: Folder, study: Plan) -> StudyProgress:
    """Returns the progress of a study, including uncommitted parts.

    For a finished study, the progress is taken from the commit record, after checking the hash of the trials table.
    """

    def look() -> StudyProgress:
        state = read_state(store, study.name)
        base = state.base
        if base is not None:
            file = base.files["trials"]
            if durable.sha256(file.path) != file.sha256:
                raise Damaged(f"{file.path} is not what was written. Check everything with `python -m results verify`.")
            if state.visible and base.request == study.request and not base.ledger.unfinished:
                return StudyProgress(True, base.ledger, 0)
        endings = state.endings()
        settled = ledger.settled_ids(endings)
        searching = sum(i not in settled for i in range(study.trials))
        confirming = study.request.planned - study.trials
        if confirming and not searching:
            stored = frames(state.pieces())
            confirming = confirmation.count_to_run(study, stored.trials, stored.measurements)
        return StudyProgress(state.visible, ledger.tally(study.request, endings), searching + confirming)

    return retry(look)


@located
def settled_ids(store: Folder, name: str) -> frozenset[int]:
    """Returns the ids of the trials that do not need to run again, including those in uncommitted parts."""
    return retry(lambda: ledger.settled_ids(read_state(store, name).endings()))


@located
def backends(store: Folder, name: str) -> frozenset[str]:
    """Returns the backends of a study's runs, including uncommitted parts."""
    runs = retry(lambda: read_state(store, name).stored("studies"))
    return frozenset(backend for table in runs for backend in table["backend"].to_pylist() if backend is not None)


@located
@contextlib.contextmanager
def claim(store: Folder, name: str) -> Iterator[claims.Claim]:
    """Claims a study for writing once other processes have released it.

    In a local folder, this waits for a file lock, which the kernel releases when a process ends. Correctness does not
    depend on the lock. Machines that share a file system without locks do not wait, and the newer claim wins.
    """
    with lock(store, name):
        claims.remove_leftovers(store / name)
        yield claims.Claim(store, name)


@located
def is_running(store: Folder, name: str) -> bool:
    """Returns whether a live process holds the study's lock. Locally, it must run on this machine."""
    return durable.system(store).is_locked(store / name)


@located
def lock(store: Folder, name: str) -> AbstractContextManager[None]:
    """Waits for other processes to release the study, then locks it until this process ends."""
    return durable.system(store).lock(store / name)
