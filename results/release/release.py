"""A release: an immutable copy of a store in one self-contained folder.

    OUT/{studies,trials,measurements}.parquet                                tables of all studies; see ``shards``
    OUT/points.parquet                                                       answers and fits; made by analysis
    OUT/envelopes.arrow                                                      envelopes of all studies
    OUT/README.md, DICTIONARY.md, LICENCES.md, CITATION.cff, croissant.json  see ``results.catalog.documents``
    OUT/manifest.json                                                        every study: its plan, ledger and rows
    OUT/SHA256SUMS                                                           sha256 of all files and of itself

The same studies always produce the same bytes. Every command that reads a store can also read a release.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from tqdm import tqdm

from results import durable, store
from results.bad_input import BadInput, number_of
from results.catalog import contents, documents, licences
from results.catalog.documents import SUMS
from results.durable import Folder, Location
from results.located import located
from results.plans import schema
from results.plans.recorded import RUNS
from results.printing import Report
from results.release import incoming, shards
from results.release.shards import Put, Shards
from results.storage import commits, envelope, shared
from results.storage.commit_records import File, slice_of
from results.storage.commits import Commit, read_table
from results.storage.compaction import Piece
from results.storage.shared import SharedFile

ENVELOPES = "envelopes.arrow"


@located
def export(
    folder: Folder,
    out: Location,
    report: Report,
    points: Callable[[Sequence[Commit]], pa.Table] | None = None,
) -> int:
    """Writes a release of a store, or of another release.

    Args:
      folder: the store or release.
      out: new folder for the release.
      report: called with lines for the user.
      points: function that builds the points table (``results.plans.points.POINTS``) from the studies in the new
        release, because the store may grow in the meantime. If None, points are not written.

    Returns:
      0, or 1 if no study may be redistributed.

    Raises:
      BadInput: ``out`` exists, or the store is damaged or has an unsupported schema.
    """
    out = durable.location(out)
    permitted = _permitted(store.catalogue(folder), report)
    if not permitted:
        report(f"nothing to export: {folder} holds no study that may be redistributed")
        return 1
    with _new_folder(folder, out) as target:
        hashes = {}

        def put(name: str, data: bytes | memoryview, rows: int = 0) -> SharedFile:
            durable.make_folder(target)
            durable.create(target / name, data)
            hashes[name] = documents.sha256(data)
            return SharedFile(target / name, hashes[name], len(data), rows)

        studies, points_file = _write_tables(permitted, put), None
        if points is not None:
            rows = points(studies)
            points_file = put(contents.POINTS_FILE, shards.parquet_bytes(contents.POINTS, rows), len(rows))
        for name, document in documents.of_release(contents.of_studies(studies, points_file)).items():
            put(name, document)
        put(SUMS, documents.sums(hashes))
    size = sum(file.bytes for commit in studies for file in commit.files.values())
    counts = f"{number_of(len(permitted), 'study')}, {number_of(len(hashes), 'file')}"
    report(f"{out}: {counts}, {size / 1e6:,.1f} MB of tables")
    return 0


def _permitted(catalogue: Sequence[Commit], report: Report) -> list[Commit]:
    """Returns the studies that may be redistributed. Reports the others with one line per source."""
    terms = [licences.terms(commit.plan) for commit in catalogue]
    withheld = collections.Counter(study_terms.source for study_terms in terms if not study_terms.licence)
    for source, count in sorted(withheld.items()):
        hint = ". Your own runs need the key licence in their map" if source == RUNS else ""
        report(f"left out: {source} ({number_of(count, 'study')}): without a licence it may not be redistributed{hint}")
    return [commit for commit, study_terms in zip(catalogue, terms, strict=True) if study_terms.licence]


def _write_tables(commits: Sequence[Commit], put: Put) -> list[Commit]:
    """Checks the studies, then writes their tables and envelopes.

    Returns:
      The studies, with their slices of the new files.
    """
    schemas_of_studies = {
        "studies": [schema.empty(schema.STUDIES)],
        "trials": [read_table(commit, "trials").schema for commit in commits],
        "measurements": [schema.empty(schema.MEASUREMENTS, commit.metrics) for commit in commits],
    }
    columns = {table: shared.union(table, schemas) for table, schemas in schemas_of_studies.items()}
    writers = {table: Shards(table, columns[table], put) for table in contents.TABLES}
    envelopes = []
    for commit in tqdm(commits, "export", unit="study", disable=None):
        tables = incoming.read_checked(commit)._asdict()
        for table, content in tables.items():
            rows = shared.widen(table, content, commit.study, columns[table])
            writers[table].add(rows)
            if table == "measurements":  # sorted by name, as a reader of the release gets them
                tables[table] = shared.narrow(table, rows, dict(sorted(commit.metrics.items())))
        envelopes.append(envelope.build(commit.study, Piece(**tables), dict.fromkeys(envelope.HASHED, "")))
    for writer in writers.values():
        writer.close()
    bound = []
    for number, (commit, (data, rows)) in enumerate(zip(commits, envelopes, strict=True)):
        metaparameters = list(schemas_of_studies["trials"][number])[len(schema.TRIALS) :]
        types = {
            "studies": {},
            "trials": {field.name: str(field.type) for field in metaparameters},
            "measurements": dict(sorted(commit.metrics.items())),
        }
        slices = {}
        for table, writer in writers.items():
            index, start = writer.places[number]
            slices[table] = slice_of(writer.files[index], start, commit.files[table].rows, types[table])
        hashes = {table: slices[table].sha256 for table in envelope.HASHED}
        bound.append((slices, envelope.rebind(data, hashes), rows))
    file, start = put(ENVELOPES, b"".join(data for _, data, _ in bound), 0), 0
    for slices, data, rows in bound:
        slices["envelope"] = File(file.path, file.sha256, len(data), rows, file, start)
        start += len(data)
    return [commit._replace(parts=0, files=slices) for commit, (slices, _, _) in zip(commits, bound, strict=True)]


@contextmanager
def _new_folder(folder: Folder, out: Folder) -> Iterator[Folder]:
    """Yields a folder for writing a release. A local folder is hidden, and renamed once the release is complete."""
    if commits.released_commits(out) is not None or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise BadInput(f"{out} already exists. Name a new folder with --out DIR.")
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise BadInput(f"{out} lies in {folder}, which may hold only studies. Name another folder.")
    try:
        with durable.new_folder(out.resolve()) as hidden:
            yield hidden
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}). Name another folder.") from None
