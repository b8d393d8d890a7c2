"""croissant.json: the machine-readable description of a release, in MLCommons's Croissant 1.1 format.

It includes the fields required by the responsible AI (RAI) extension, and records the origin of studies in PROV.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from results.aliases import Json
from results.catalog import contents
from results.catalog.contents import Contents
from results.plans.plan_columns import OWN

NAME = "scaling-limits"
DESCRIPTION = (
    "Scaling studies of neural network training: every trial and every measurement of sweeps with metaparameters tuned "
    "separately at every batch size. They give steps to a target error, critical batch sizes and scaling regimes."
)
KEYWORDS = ("scaling", "batch size", "data parallelism", "training", "metaparameters", "optimizers", "benchmark")

CARD = "README.md"  # relative, because a release may be copied anywhere
_AUTHORS = {"@type": "sc:Organization", "name": "The scaling-limits authors"}
# Third-party data sets that our own studies were trained on: author, label and URL by name.
_DATA = {
    "digits": (
        "scikit-learn",
        "digits of scikit-learn, the test part of: Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits, "
        "UCI Machine Learning Repository (CC-BY-4.0)",
        "https://doi.org/10.24432/C50P49",
    ),
    "pydoc": (
        "Python Software Foundation",
        "help topics of Python's manual, pydoc_data.topics of CPython (PSF-2.0)",
        "https://docs.python.org/3/library/pydoc.html",
    ),
}

_RAI = {
    "rai:dataCollection": (
        "Programs measured these numbers while they trained models: metrics of every evaluation, with metaparameters, "
        "seeds, machines and times. Results of other groups were read from their publications."
    ),
    "rai:dataCollectionType": ["Experiments", "Software Collection"],
    "rai:personalSensitiveInformation": (
        "None. There are no measurements of people, and the tables contain no training examples."
    ),
    "rai:dataBiases": (
        "There are few workloads, and those measured by this software are small. The best of many trials is biased "
        "towards lucky seeds; repeats with new seeds measure this bias. Pruned studies cut losing curves short."
    ),
    "rai:dataLimitations": (
        "Critical batch sizes of small networks do not transfer to large models. Times apply to the machine in their "
        "row. Results whose plans differ in `comparable` do not belong on one curve."
    ),
    "rai:dataUseCases": (
        "Fitting laws of steps against batch size, comparing optimizers that were tuned in the same way, and testing "
        "methods of tuning and early stopping on full curves. Not meant for ranking hardware."
    ),
    "rai:dataSocialImpact": "It may save the energy of running the same sweeps again. No harmful use is known.",
    "rai:dataReleaseMaintenancePlan": (
        "A release never changes. Each further release has a new version, and later software reads earlier releases."
    ),
}

# Fixed by the format; readers compare it with their own copy.
_CONTEXT = json.loads(Path(__file__).with_name("croissant_context.json").read_text())


def document(release: Contents, cite_as: str) -> bytes:
    """Returns croissant.json as bytes.

    Args:
      release: contents of the release.
      cite_as: BibTeX citation of the release.
    """
    about = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": NAME,
        "url": CARD,
        "description": DESCRIPTION,
        "keywords": list(KEYWORDS),
        "license": [terms.url for terms in release.licences],
        "version": release.version,
        "datePublished": release.newest,
        "citeAs": cite_as,
        "creator": _AUTHORS,
        "publisher": _AUTHORS,
        "isLiveDataset": False,
        "usageInfo": [
            {"@type": "sc:CreativeWork", "name": terms.licence, "url": terms.url, "description": terms.usage}
            for terms in release.licences
        ],
        **_RAI,
        **_provenance(release),
        "distribution": [file for table in release.columns for file in _files(release, table)],
        "recordSet": [_record_set(release, table) for table in release.columns],
    }
    return (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode()


def _provenance(release: Contents) -> Json:
    """Returns the provenance: who measured the studies, and which software wrote the tables."""
    derived = list(_measured_on(release)) + [
        {
            "@type": "prov:Entity",
            "prov:label": terms.citation or terms.source,
            "prov:wasAttributedTo": {"@type": "prov:Agent", "prov:label": terms.author},
            "description": f"{len(commits)} studies, imported by {_software(release, terms.source)}",
        }
        for terms, commits in release.sources.items()
        if terms.source != OWN
    ]
    activity = {
        "@type": "prov:Activity",
        "prov:label": f"export by scaling-limits {release.version}",
        "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", "prov:label": f"scaling-limits {release.version}"},
    }
    if OWN in release.software:
        activity["description"] = f"measured by {_software(release, OWN)}"
    return {"prov:wasGeneratedBy": activity, **({"prov:wasDerivedFrom": derived} if derived else {})}


def _measured_on(release: Contents) -> Iterator[Json]:
    """Yields the third-party data sets on which our own studies were trained."""
    sources = release.sources.items()
    datasets = [commit.plan.get("dataset") for terms, commits in sources if terms.source == OWN for commit in commits]
    for name, (author, label, url) in _DATA.items():
        if name in datasets:
            yield {
                "@type": "prov:Entity",
                "@id": url,
                "prov:label": label,
                "prov:wasAttributedTo": {"@type": "prov:Agent", "prov:label": author},
                "description": (
                    f"the data set {name}: {datasets.count(name)} studies trained on it. The tables do not contain it."
                ),
            }


def _software(release: Contents, source: str) -> str:
    return f"scaling-limits {', '.join(release.software.get(source, ()))}".rstrip()


def _files(release: Contents, table: str) -> Iterator[Json]:
    """Yields the files of a table and, if there are several, the file set that joins them."""
    for file in release.files[table]:
        name = file.path.name
        yield {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "contentSize": f"{file.bytes} B",
            "encodingFormat": "application/x-parquet",
            "sha256": file.sha256,
        }
    if len(release.files[table]) > 1:
        yield {
            "@type": "cr:FileSet",
            "@id": f"{table}-files",
            "name": f"{table}-files",
            "encodingFormat": "application/x-parquet",
            "includes": f"{table}-*.parquet",
        }


def _record_set(release: Contents, table: str) -> Json:
    words = {column.name: column for column in contents.describe_columns(release, table)}
    source = {"fileObject": {"@id": release.files[table][0].path.name}}
    if len(release.files[table]) > 1:
        source = {"fileSet": {"@id": f"{table}-files"}}
    return {
        "@type": "cr:RecordSet",
        "@id": table,
        "name": table,
        "description": contents.ABOUT[table],
        "key": [{"@id": f"{table}/{column}"} for column in contents.KEYS[table]],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table}/{field.name}",
                "name": field.name,
                "description": words[field.name].meaning,
                "dataType": _type(field.type),
                "source": {**source, "extract": {"column": field.name}},
                **_reference(release, table, field.name),
            }
            for field in release.columns[table]
        ],
    }


def _reference(release: Contents, table: str, column: str) -> Json:
    """Returns a reference from rows to their study's point. Requires one point per study, so joins do not add rows."""
    if column != "study" or table == contents.POINTS or not release.one_point_each:
        return {}
    return {"references": {"field": {"@id": f"{contents.POINTS}/study"}}}


def _type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
