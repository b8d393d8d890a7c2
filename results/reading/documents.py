"""The documents of a release, beside its tables: all of them follow from these and from the plans of the studies."""

from collections.abc import Mapping

from results.reading import contents, croissant, dataset_card, licences, release_lists
from results.reading.contents import Contents
from results.storage.commits import MANIFEST

CITATION = "CITATION.cff"


def of_release(about: Contents) -> Mapping[str, bytes]:
    """All documents by name, with the manifest, which has the hashes of all others but of the citation, which has its.

    Args:
      about: what the release holds; its studies have slices of shared files.
    """
    documents = {
        "README.md": dataset_card.readme(about),
        "DICTIONARY.md": dataset_card.dictionary(about),
        "LICENCES.md": dataset_card.licence_list(about),
        "croissant.json": croissant.document(about, dataset_card.bibtex(about)),
    }
    if any(each.licence == "Apache-2.0" for each in about.licences):
        documents["LICENCE-Apache-2.0.txt"] = licences.apache_text()
    hashes: dict[str, str | None] = {name: release_lists.sha256(data) for name, data in documents.items()}
    hashes |= {**about.files.get(contents.POINTS, {}), CITATION: None}
    manifest = release_lists.manifest(about, hashes)
    documents[CITATION] = dataset_card.citation(about, release_lists.sha256(manifest))
    return documents | {MANIFEST: manifest}  # last, as it makes a folder a release
