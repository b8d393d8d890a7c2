"""Checks the commits of a study: listed files exist, tables are consistent with the plan, and ledgers add up."""

import hashlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from results import bounds, durable
from results.aliases import Fields, Json
from results.bad_input import BadInput, TooOld
from results.checks import table_checks
from results.checks.faults import TORN, Fault, Findings, OnBytes, brief, symptom
from results.checks.table_checks import Rows
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.kinds import KINDS, study_of
from results.plans.plan import Plan
from results.plans.trial_request import TrialRequest
from results.rules import ledger
from results.rules.confirmation import SEARCH
from results.rules.ledger import Endings, TrialEnding
from results.storage import compaction, envelope
from results.storage.commit_records import File, commit_of, new_commit, record_of
from results.storage.commits import Commit, check_rows, join_endings
from results.storage.compaction import TABLES, Piece
from results.storage.folders import Entry
from results.storage.parts import claim_file, commit_file, confirm_file, plan_file, table_file

IN_MEMORY = 1 << 18  # bytes; smaller files are read at once, and larger ones are memory-mapped


def commits(
    findings: Findings, records: Fields, files: Mapping[str, Entry], on_bytes: OnBytes, *, rebuild: bool
) -> set[str]:
    """Checks every commit and its files, newest first. Returns the names of all files listed in the records.

    The tables of the newest commit are checked too, provided that they have the listed hashes. Rebuilding the envelope
    takes ten times as long as all other checks together.
    """
    folder, listed = findings.place, set()
    for number in reversed(findings.listing.commits):
        path, record = folder / commit_file(number), records[commit_file(number)]
        if record is None:
            continue
        try:
            commit = commit_of(record, folder, path)
            study_of(commit.plan, commit.trials, folder.name, commit.repeats)
        except TooOld:
            raise
        except BadInput as error:
            findings.fault(path, symptom(error, path, folder.name))
            continue
        differences = list(_unlike(record, commit, number, findings))
        findings.faults += [Fault(path, difference) for difference in differences]
        if differences:
            continue
        present = {table: files[file.path.name] for table, file in commit.files.items() if file.path.name in files}
        listed |= {file.path.name for file in commit.files.values()}
        if findings.commit is not None:
            findings.leftovers["replaced"] += 1 + len(present)
            for table, entry in present.items():
                _is_listed(commit.files[table], entry, findings, on_bytes)
            continue
        sources = {
            table: source
            for table, file in commit.files.items()
            if (source := _is_listed(file, present.get(table), findings, on_bytes)) is not None
        }
        if set(TABLES) <= sources.keys():
            findings.faults += content_faults(commit, path, sources, findings.endings, findings.runs, rebuild=rebuild)
            findings.believed += "envelope" in sources and not rebuild
            findings.commit = commit
    return listed


def rebuild_record(findings: Findings, number: int, parts: int, study: Plan, request: TrialRequest) -> Json | None:
    """Rebuilds a lost commit record from its tables. Returns None unless the tables are valid and match the envelope.

    Args:
      findings: findings of a check of the study's folder.
      number: commit number.
      parts: number of parts in the commit.
      study: the study.
      request: a request that the commit may have fulfilled.
    """
    folder = findings.place
    paths = {table: folder / table_file(table, number) for table in (*TABLES, "envelope")}
    try:
        sources = {table: pa.py_buffer(durable.read(path)) for table, path in paths.items()}
        parquet = {table: _open(sources[table]) for table in TABLES}
        rows = {table: file.metadata.num_rows for table, file in parquet.items()}
        rows["envelope"] = len(envelope.read(sources["envelope"]))
        files = {
            table: File(paths[table], hashlib.sha256(source).hexdigest(), source.size, rows[table])
            for table, source in sources.items()
        }
        endings = outcomes(table_checks.parquet_rows(parquet["trials"], cached=True))
        study, columns = study.with_request(request), parquet["measurements"].schema_arrow
        commit = new_commit(folder, number, parts, study, files, columns, endings)
        if content_faults(commit, folder, sources, {}, findings.runs):
            return None
        return record_of(commit, schema.version(parquet["studies"].schema_arrow))
    except Exception:  # readers of untrusted files can raise any exception
        return None


def _is_listed(file: File, entry: Entry | None, findings: Findings, on_bytes: OnBytes) -> pa.Buffer | None:
    """Returns the content of a listed file. If it differs, adds a fault and returns None."""
    if entry is None:
        findings.fault(file.path, "is listed but missing", torn=True)
    elif entry.bytes != file.bytes:
        findings.fault(file.path, f"{TORN} ({entry.bytes:,} bytes, not {file.bytes:,})", torn=True)
    else:
        with findings.reading(file.path):
            if file.bytes > IN_MEMORY and isinstance(file.path, Path):
                source = pa.memory_map(str(file.path)).read_buffer()
            else:
                source = pa.py_buffer(file.path.read_bytes())
            on_bytes(file.bytes)
            if hashlib.sha256(source).hexdigest() == file.sha256:
                return source
            findings.fault(file.path, TORN, torn=True)
    return None


def content_faults(
    commit: Commit,
    record: Folder,
    sources: Mapping[str, pa.Buffer],
    endings: Endings,
    runs: frozenset[int] | None,
    *,
    rebuild: bool = True,
) -> list[Fault]:
    """Returns the faults in a commit's tables and envelope. The hashes of the files must have been checked before.

    Args:
      commit: the commit. Its plan must have been checked before.
      record: the commit record, which lists the other files.
      sources: content of each file, by table.
      endings: dictionary that is filled with the ending of each trial.
      runs: valid run numbers, or None if unknown.
      rebuild: whether to rebuild the envelope and compare it with the stored one.
    """

    def read(table: str) -> Rows:
        parquet = _open(sources[table])
        check_planned(commit, table, parquet.metadata.num_rows)
        rows = table_checks.parquet_rows(parquet, cached=table == "trials" or parquet.bytes <= IN_MEMORY)
        if rows.length != commit.files[table].rows:
            raise Damaged(f"holds {rows.length:,} rows but is listed with {commit.files[table].rows:,}")
        return rows

    return table_faults(commit, record, read, lambda: sources.get("envelope"), endings, runs, rebuild=rebuild)


def table_faults(
    commit: Commit,
    record: Folder,
    read: Callable[[str], Rows],
    stored: Callable[[], pa.Buffer | None],
    endings: Endings,
    runs: frozenset[int] | None,
    *,
    rebuild: bool,
) -> list[Fault]:
    """Returns the faults in a commit's tables and envelope.

    Args:
      commit, record, endings, runs, rebuild: see ``content_faults``.
      read: function that returns the rows of a table, or raises Damaged.
      stored: function that returns the envelope. A missing envelope is not checked.
    """
    study = commit.study
    rows, faults = {}, []
    for table in TABLES:
        path = commit.files[table].path
        try:
            rows[table] = read(table)
        except FileNotFoundError:
            faults.append(Fault(path, "is missing"))
        except Damaged as error:
            faults.append(Fault(path, str(error).removeprefix(f"{path} ")))
        except Exception as error:  # reading an untrusted file can raise any exception
            faults.append(Fault(path, f"is not a readable Parquet file ({brief(error)})"))
    if faults:
        return faults
    measured = list(rows["measurements"].schema)[len(schema.MEASUREMENTS) :]
    if {field.name: str(field.type) for field in measured} != commit.metrics:
        faults.append(Fault(record, "does not list the metrics of its measurements"))
    try:
        flaws = list(table_checks.flaws(study, rows, runs, whole=True))
        now = outcomes(rows["trials"]) if "role" in rows["trials"].schema.names else {}
        wrong = None if flaws else _wrong_role(study, rows, now)
    except Exception as error:
        return [*faults, Fault(record, f"lists tables that cannot be read ({brief(error)})")]
    faults += [Fault(commit.files[table].path, flaw) for table, flaw in flaws]
    endings |= now
    if wrong:
        faults.append(Fault(commit.files["trials"].path, wrong))
    total = ledger.tally(commit.request, now)
    if not flaws and (total != commit.ledger or not total.adds_up):
        faults.append(Fault(record, "has a ledger that does not match its trials"))
    source = None if faults else stored()
    return faults if source is None else envelope_faults(commit, study, source, rows if rebuild else None)


def _wrong_role(study: Plan, rows: Mapping[str, Rows], endings: Endings) -> str | None:
    """Returns a fault if the stored role of a repeat is inconsistent with the best trials, and None otherwise."""
    if KINDS[study.kind].recorded or not study.search.targets or all(how.role == SEARCH for how in endings.values()):
        return None
    piece = _piece(rows, envelope.NEEDED | {"study", "reason"})
    roles = compaction.with_roles(study, piece).trials["role"].to_pylist()
    for (trial, how), role in zip(endings.items(), roles, strict=True):
        if how.role != role:
            return f"has role {how.role} for trial {trial}, which the best trials make {role}"
    return None


def _piece(rows: Mapping[str, Rows], names: Container[str]) -> Piece:
    """Returns the tables with the requested columns that they have."""
    columns = {table: [name for name in rows[table].schema.names if name in names] for table in TABLES}
    return Piece(*(table_checks.needed(table, rows[table], columns[table]) for table in TABLES))


def check_planned(commit: Commit, table: str, rows: int) -> None:
    """Raises Damaged if a table claims more rows than its bytes can hold or its plan can produce."""
    file = commit.files[table]
    size, count = (file.shared.bytes, file.shared.rows) if file.shared else (file.bytes, rows)
    check_rows(table, file.path, size, count)
    if table == "measurements":
        limit = max(commit.request.planned, commit.files["trials"].rows) * commit.study.most_evaluations
        if rows > limit:
            raise Damaged(f"{file.path} claims {rows:,} rows, but the plan allows at most {limit:,}")


def envelope_faults(commit: Commit, study: Plan, source: pa.Buffer, rows: Mapping[str, Rows] | None) -> list[Fault]:
    """Returns the faults in the envelope of a commit with valid tables.

    Args:
      commit: the commit.
      study: the study's plan.
      source: the envelope.
      rows: the commit's tables. None skips rebuilding the envelope.
    """
    file = commit.files["envelope"]
    try:
        hashes = {table: commit.files[table].sha256 for table in envelope.HASHED}
        table = envelope.read(source)
        head = envelope.head_of(table.schema)
        if head["sha256"] != hashes or len(table) != file.rows:
            return [Fault(file.path, "was not made from the tables listed with it")]
        if not envelope.is_readable(head):
            return [Fault(file.path, f"has the unknown format {head['format']} or schema {head['schema']}")]
        if envelope.has_empty_interval(table):
            return [Fault(file.path, "has an empty interval, which is impossible")]
        if rows is not None:
            piece = _piece(rows, envelope.NEEDED)
            if not envelope.is_same(envelope.build(study, piece, hashes)[0], table):
                return [Fault(file.path, "does not match the tables listed with it")]
    except Exception as error:  # reading an untrusted file can raise any exception
        return [Fault(file.path, f"is not a readable envelope ({brief(error)})")]
    return []


def outcomes(rows: Rows) -> Endings:
    """Returns the ending of each trial, by id."""
    return join_endings([rows.read(["trial", *TrialEnding._fields])])


def _open(source: pa.Buffer) -> bounds.Parquet:
    return bounds.Parquet(pa.BufferReader(source))


def _unlike(record: Fields, commit: Commit, number: int, findings: Findings) -> Iterator[str]:
    """Yields the differences between a commit record and the record that would be written for this study and number."""
    folder = findings.place
    if (commit.name, commit.number) != (folder.name, number):
        yield f"is the record of commit {commit.number} of {commit.name[:100]}"
    for table, file in commit.files.items():
        if file.path != folder / table_file(table, number):
            yield f"lists a file that is not {table_file(table, number)}"
            return
    if record_of(commit, record["schema"]) != record:
        yield "differs from the record that this software would write"
    if number in findings.claims and findings.claims[number] not in [(commit.parts, to) for to in ("commit", "merge")]:
        yield f"holds {commit.parts} parts, which does not match {claim_file(number)}"
    if commit.trials not in findings.listing.plans:
        missing = "is missing, although a commit has this number of trials"
        findings.fault(folder / plan_file(commit.trials), missing, torn=True)
    elif commit.trials in findings.studies and findings.studies[commit.trials].plan() != commit.plan:
        yield f"contradicts the plan in {plan_file(commit.trials)}"
    if commit.repeats.confirm and commit.repeats not in findings.listing.confirms:
        missing = "is missing, although a commit has this number of repeats"
        findings.fault(folder / confirm_file(commit.repeats), missing, torn=True)
