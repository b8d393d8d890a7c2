"""The release in the repository: whole, small, and of exactly the sweeps that `make published` runs."""

import re
from collections import Counter
from pathlib import Path

import pytest

from results import store, verify
from results.plans import AnyStudy
from results.study import COMPARABLE
from sweeps import config, overrides

ROOT = Path(__file__).parents[2]
RELEASES = [ROOT / "results" / name for name in ("published", "mlperf")]
MOST_BYTES = 20e6


def preset_names() -> list[str]:
    """What `make published` sweeps."""
    recipe = (ROOT / "Makefile").read_text().split("\npublished:")[1].split("\n\n")[0]
    return re.findall(r"(?:alx2022|published)/\w+", recipe.split("; do")[0])


def told(study: AnyStudy) -> tuple[str, int]:
    """Its readable name and how many trials; the hash in a name depends on the text of this Python's manual."""
    return study.name.rsplit("-", 1)[0], study.asked.planned


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_every_byte_is_as_it_was_written_and_every_ledger_adds_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.run(folder, lambda progress: None) == 0
    assert capsys.readouterr().out.strip().endswith("; no faults")
    for commit in store.catalogue(folder):
        assert commit.ledger.adds_up and not commit.ledger.unfinished


def test_it_is_small() -> None:
    sizes = [file.stat().st_size for folder in RELEASES for file in folder.rglob("*") if file.is_file()]
    assert 1e6 < sum(sizes) <= MOST_BYTES


def test_it_holds_the_studies_of_its_presets_and_no_others() -> None:
    versions = {commit.plan["comparable"] for commit in store.catalogue(RELEASES[0])}
    if versions != {COMPARABLE}:
        pytest.skip(
            f"the release is of {', '.join(versions)}, whose presets are not those of {COMPARABLE}: make published"
        )
    asked: Counter[tuple[str, int]] = Counter()
    for name in preset_names():
        line = overrides.command_line([f"+experiment={name}", "-m"])
        asked.update(told(study) for study in config.request(line).studies)
    held = Counter(told(commit.study) for commit in store.catalogue(RELEASES[0]))
    assert held == asked
    assert len(preset_names()) == 9 and sum(asked.values()) > 250
