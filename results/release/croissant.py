"""croissant.json: the machine-readable description of a release, in MLCommons's Croissant 1.0."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from results.plans import schema
from results.reading import contents
from results.reading.contents import Contents

NAME = "scaling-limits"
DESCRIPTION = (
    "Scaling studies of neural network training: every trial and every measurement of sweeps that were tuned afresh at "
    "every batch size, from which steps to a target error, critical batch sizes and regimes of scaling follow."
)
KEYWORDS = ("scaling", "batch size", "data parallelism", "training", "metaparameters", "optimizers", "benchmark")

# Fixed by the format: a reader compares it with its own.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_STUDIES = {
    "@type": "cr:FileObject",
    "@id": "studies.parquet",
    "name": "studies.parquet",
    "contentUrl": "studies.parquet",
    "encodingFormat": "application/x-parquet",
}
_KEYS = {"studies": ("study", "run"), "trials": ("study", "trial"), "measurements": ("study", "trial", "step")}


def document(release: Contents, studies_sha256: str, cite_as: str) -> bytes:
    """croissant.json as bytes.

    Args:
      release: what the release holds.
      studies_sha256: of studies.parquet.
      cite_as: how to cite the release, BibTeX.
    """
    about: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": NAME,
        "description": DESCRIPTION,
        "keywords": list(KEYWORDS),
        "license": [terms.url for terms in release.licences],
        "version": release.version,
        "citeAs": cite_as,
        "creator": {"@type": "sc:Organization", "name": "The scaling-limits authors"},
        "isLiveDataset": False,
        "distribution": [_STUDIES | {"sha256": studies_sha256}],
        "recordSet": [_record_set(release, "studies", "studies", _STUDIES, release.columns["studies"].names)],
    }
    for table in ("trials", "measurements"):
        for name, paths, columns in _alike(release, table):
            files = _file_set(table, name, paths)
            about["distribution"].append(files)
            about["recordSet"].append(_record_set(release, table, name, files, columns))
    if release.newest:
        about["datePublished"] = release.newest
    return (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode()


def _alike(release: Contents, table: str) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Files of a table that can be read as one: name, paths or patterns, columns.

    First all files with the columns they share, because a reader of this format wants every column in every file; then,
    if some have more, the files by their columns.
    """
    shapes = release.files[table]
    shared = set.intersection(*map(set, shapes))
    yield table, [f"{table}/**/*.parquet"], [name for name in release.columns[table].names if name in shared]
    for number, (columns, paths) in enumerate(sorted(shapes.items()) if len(shapes) > 1 else ()):
        yield f"{table}-{number + 1}", paths, columns


def _file_set(table: str, name: str, paths: Sequence[str]) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{name}-files",
        "name": f"{name}-files",
        "description": f"files of the table {table}, one per study; hashes are in SHA256SUMS",
        "encodingFormat": "application/x-parquet",
        "includes": list(paths),
    }


def _record_set(
    release: Contents, table: str, name: str, files: Mapping[str, Any], columns: Sequence[str]
) -> dict[str, Any]:
    words = {column.name: column for column in contents.describe_columns(release, table)}
    source = "fileSet" if files["@type"] == "cr:FileSet" else "fileObject"
    own = {column.name for column in schema.COLUMNS[table]}
    further = [column for column in columns if column not in own]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"{contents.TABLES[table]}; with {', '.join(further)}" if further else contents.TABLES[table],
        "key": [{"@id": f"{name}/{column}"} for column in _KEYS[table]],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column}",
                "name": column,
                "description": words[column].meaning,
                "dataType": _type(release.columns[table].field(column).type),
                "source": {source: {"@id": files["@id"]}, "extract": {"column": column}},
            }
            for column in columns
        ],
    }


def _type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
