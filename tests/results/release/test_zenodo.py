"""The metadata of a deposit say what the release says, in the words that Zenodo takes."""

import datetime
import json
import shutil
from pathlib import Path

import pytest

from results.catalog import licences
from results.release import zenodo

ROOT = Path(__file__).parents[3]
# Of Zenodo's deposit metadata, what must be there for a data set, and what words it takes.
REQUIRED = {"upload_type", "title", "creators", "description", "access_right", "license", "publication_date"}
OPTIONAL = {"keywords", "version", "related_identifiers"}


@pytest.mark.parametrize(("name", "licence"), [("published", "cc-by-4.0"), ("mlperf", "apache2.0")])
def test_a_deposit_is_described_as_zenodo_asks(name: str, licence: str, tmp_path: Path) -> None:
    assert zenodo.main([str(ROOT / "results" / name), "--out", str(tmp_path / "build" / "zenodo.json")]) == 0
    about = json.loads((tmp_path / "build" / "zenodo.json").read_text())["metadata"]
    assert REQUIRED <= about.keys() <= REQUIRED | OPTIONAL
    assert (about["upload_type"], about["access_right"], about["license"]) == ("dataset", "open", licence)
    assert about["creators"] == [{"name": "The scaling-limits authors"}]
    assert ("MLCommons" in about["description"]) == (name == "mlperf")
    assert datetime.date.fromisoformat(about["publication_date"])


def test_nothing_in_the_citation_of_a_source_is_markup(tmp_path: Path) -> None:
    hostile = "A. <b>B</b>, [c](http://d) | *e*\n# f \u202e"
    terms = licences.Terms("theirs", "CC-BY-4.0", hostile)
    assert licences.as_markdown(terms.citation) == r"A. \<b\>B\</b\>, \[c\](http://d) \| \*e\*\\n# f \\u202e"
    assert licences.as_markdown("a_b __c__") == r"a_b \_\_c\_\_"
    about = json.loads((ROOT / "results" / "mlperf" / "croissant.json").read_text())
    about["prov:wasDerivedFrom"][0]["prov:label"] = hostile
    (tmp_path / "croissant.json").write_text(json.dumps(about))
    found = zenodo.metadata(tmp_path)["description"]
    assert "&lt;b&gt;B&lt;/b&gt;" in found and "<b>" not in found and "\u202e" not in found
    assert found.count("<p>") == 2


def test_what_is_no_release_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zenodo.main([str(tmp_path), "--out", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err.startswith(f"error: no release at {tmp_path}: it has no croissant.json")
    shutil.copy(ROOT / "results/published/CITATION.cff", tmp_path / "croissant.json")
    assert zenodo.main([str(tmp_path), "--out", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "out.json").exists()
