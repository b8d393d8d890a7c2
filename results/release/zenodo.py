"""python -m results.release.zenodo RELEASE --out FILE: the metadata for depositing a release at Zenodo, as JSON.

All fields are taken from the release's croissant.json.
"""

from results import cli

if __name__ == "__main__":  # before all other imports, to guard them too
    cli.run("results.release.zenodo")

import html
import json

from results import durable
from results.aliases import Json
from results.bad_input import BadInput, printable
from results.cli import CommandParser, location
from results.durable import Damaged, Folder

LICENCES = {
    "https://creativecommons.org/licenses/by/4.0/": "cc-by-4.0",
    "https://www.apache.org/licenses/LICENSE-2.0": "apache2.0",
}
SEVERAL = "other-open"  # a deposit has one licence; if rows are under several, the description lists them
PAPERS = ("1811.03600", "2112.02194")  # papers that define the studies


@cli.guarded
def main(argv: list[str] | None = None) -> int:
    """Writes the metadata. Returns the exit code: 0 on success, 2 for invalid input."""
    parser = CommandParser(prog="python -m results.release.zenodo", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("release", type=location, metavar="RELEASE", help="folder of the release")
    parser.add_argument("--out", type=location, required=True, metavar="FILE", help="the file to write")
    options = parser.parse_args(argv)
    content = json.dumps({"metadata": metadata(options.release)}, indent=1, ensure_ascii=False) + "\n"
    durable.make_folder(options.out.parent)
    durable.replace(options.out, content.encode())
    print(options.out)
    return 0


def metadata(release: Folder) -> Json:
    """Returns the metadata of a deposit.

    Raises:
      BadInput: there is no release.
      Damaged: the release's croissant.json is not valid.
    """
    path = release / "croissant.json"
    try:
        about = json.loads(durable.read(path, durable.LIST_BYTES))
        title = f"{about['name']}: scaling studies, every trial and every measurement"
        licences = [LICENCES.get(url, SEVERAL) for url in about["license"]]
        terms = html.escape(
            "; ".join(f"{entity['name']}: {entity['description']}" for entity in about["usageInfo"]), quote=False
        )
        sources = [entity["prov:label"] for entity in about.get("prov:wasDerivedFrom", ())]
        derived = f" Converted from: {html.escape(printable('; '.join(sources)), quote=False)}." if sources else ""
        content = {
            "title": title,
            "upload_type": "dataset",
            "description": f"<p>{about['description']}</p><p>Terms of use: {terms}.{derived}</p>",
            "creators": [{"name": about["creator"]["name"]}],
            "access_right": "open",
            "license": licences[0] if len(licences) == 1 else SEVERAL,
            "keywords": about["keywords"],
            "version": about["version"],
            "related_identifiers": [
                {"identifier": f"arXiv:{paper}", "relation": "references", "scheme": "arxiv"} for paper in PAPERS
            ],
        }
        return content | ({"publication_date": about["datePublished"]} if "datePublished" in about else {})
    except FileNotFoundError:
        raise BadInput(
            f"no release at {release}: it has no croissant.json. Write a release with `results export`."
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Damaged(f"{path} is not valid. Check everything with `python -m results verify`.") from None
