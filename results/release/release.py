"""A release: an immutable copy of a store in one folder, with everything needed to use it on its own.

    OUT/<table>/dataset=…/model=…/optimizer=…/batch_size=…/<study>.parquet   the files of every commit, byte for byte
    OUT/studies.parquet, OUT/columns/<table>.parquet                         all studies in one; all columns, no rows
    OUT/README.md, DICTIONARY.md, LICENCES.md, CITATION.cff, croissant.json  see ``dataset_card`` and ``croissant``
    OUT/manifest.json                                                        the commit record of every study
    OUT/SHA256SUMS                                                           of all files; its last line is its own

The same studies give the same bytes. Whatever reads a store reads a release.
"""

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from tqdm import tqdm

from results import durable, store
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.plans import schema
from results.reading import contents, licences, release_lists
from results.reading.contents import Contents
from results.reading.release_lists import SUMS
from results.release import croissant, dataset_card, incoming
from results.storage import commits, compaction, migrations
from results.storage.commits import MANIFEST, Commit


class Copied(NamedTuple):
    """A study in a release: its runs, the schemas of its tables, and the version of ours they were written under."""

    studies: pa.Table
    schemas: Mapping[str, pa.Schema]
    version: int


@durable.located_both
def export(folder: Folder, out: Folder, report: Callable[[str], None]) -> int:
    """Writes a release of a store, or of a release; 1 if there is nothing to pass on, else 0.

    Args:
      folder: of the store.
      out: new folder of the release.
      report: takes a line for the user.

    Raises:
      BadInput: ``out`` is there already, or the store is damaged or of another schema.
    """
    permitted = _permitted(store.catalogue(folder), report)
    if not permitted:
        report(f"nothing to export: {folder} holds no study that may be redistributed")
        return 1
    with _new_folder(folder, out) as target:
        hashes: dict[str, str] = {}

        def put(path: str, data: bytes) -> None:
            durable.make_folder((target / path).parent)
            durable.create(target / path, data)
            hashes[path] = release_lists.sha256(data)

        copied = [_copy(commit, put) for commit in tqdm(permitted, "export", unit="study", disable=None)]
        _describe(permitted, copied, put)
        put(SUMS, release_lists.sums(hashes))
    size = sum(file.bytes for commit in permitted for file in commit.files.values())
    counts = f"{number_of(len(permitted), 'study')}, {number_of(len(hashes), 'file')}"
    report(f"{out}: {counts}, {size / 1e6:,.1f} MB of tables")
    return 0


def _permitted(catalogue: Sequence[Commit], report: Callable[[str], None]) -> list[Commit]:
    """The studies that may be redistributed; the others are reported in a line per source."""
    left_out: dict[str, int] = {}
    permitted = []
    for commit in catalogue:
        terms = licences.terms(commit.plan)
        if terms.licence:
            permitted.append(commit)
        else:
            left_out[terms.source] = left_out.get(terms.source, 0) + 1
    for source, count in sorted(left_out.items()):
        without = "it states no licence, so it may not be redistributed"
        report(f"left out: {source} ({number_of(count, 'study')}): {without}")
    return permitted


def _copy(commit: Commit, put: Callable[[str, bytes], None]) -> Copied:
    """Copies the files of a study, whatever they are, once they are seen to be what the commit says."""
    data = incoming.read_checked(commit)
    for table, content in data.items():
        put(release_lists.place(commit, table), content)
    files = {table: incoming.parquet_file(data[table], table, commit.files[table].path) for table in contents.TABLES}
    schemas = {
        table: migrations.upgrade(table, file.schema_arrow.empty_table(), table).schema for table, file in files.items()
    }
    studies = migrations.upgrade("studies", files["studies"].read(), commit.files["studies"].path)
    return Copied(studies, schemas, max(schema.version(file.schema_arrow) for file in files.values()))


def _describe(visible: Sequence[Commit], copied: Sequence[Copied], put: Callable[[str, bytes], None]) -> None:
    """Writes the documents beside the tables; the manifest last."""
    studies = pa.concat_tables([each.studies for each in copied]).unify_dictionaries().combine_chunks()
    columns = contents.columns({table: [each.schemas[table] for each in copied] for table in contents.TABLES})
    days = [str(at)[:10] for at in studies["started_at"].to_pylist() if at]
    files: dict[str, dict[tuple[str, ...], list[str]]] = {table: {} for table in contents.TABLES}
    for commit, each in zip(visible, copied, strict=True):
        for table, found in each.schemas.items():
            files[table].setdefault(tuple(found.names), []).append(release_lists.place(commit, table))
    about = Contents(visible, columns, files, max(days, default=None), importlib.metadata.version("scaling-limits"))
    all_studies = bytes(compaction.parquet_bytes(studies))
    documents = {
        "studies.parquet": all_studies,
        **{
            f"columns/{t}.parquet": bytes(compaction.parquet_bytes(columns[t].empty_table()))
            for t in ("trials", "measurements")
        },
        "README.md": dataset_card.readme(about),
        "DICTIONARY.md": dataset_card.dictionary(about),
        "LICENCES.md": dataset_card.licence_list(about),
        "croissant.json": croissant.document(about, release_lists.sha256(all_studies), dataset_card.bibtex(about)),
    }
    if any(each.licence == "Apache-2.0" for each in about.licences):
        documents["LICENCE-Apache-2.0.txt"] = licences.apache_text()
    manifest = release_lists.manifest(about, [each.version for each in copied], [*documents, "CITATION.cff"])
    documents["CITATION.cff"] = dataset_card.citation(about, release_lists.sha256(manifest))
    for path, data in documents.items():
        put(path, data)
    put(MANIFEST, manifest)


@contextmanager
def _new_folder(folder: Folder, out: Folder) -> Iterator[Folder]:
    """The folder to write a release into: locally a hidden one that is renamed once it is whole."""
    if commits.released_commits(out) is not None or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise BadInput(f"{out} is there already; name a new folder with --out DIR")
    if not isinstance(out, Path):
        yield out
        return
    if isinstance(folder, Path) and out.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f"{out} lies in {folder}, which holds studies and nothing else; name another folder")
    try:
        with durable.new_folder(out.resolve()) as hidden:
            yield hidden
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}); name another folder") from None
