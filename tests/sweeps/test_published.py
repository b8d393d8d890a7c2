"""The release in the repository: whole, small, and of exactly the sweeps that `make published` runs."""

import re
from collections import Counter
from pathlib import Path

import pytest

from results import store
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.plan import Plan
from results.plans.study import COMPARABLE
from sweeps import overrides, planning

ROOT = Path(__file__).parents[2]
RELEASES = [ROOT / "results" / name for name in ("published", "mlperf")]
MOST_BYTES = 20e6


def preset_names() -> list[str]:
    """What `make published` sweeps."""
    recipe = (ROOT / "Makefile").read_text().split("\npublished:")[1].split("\n\n")[0]
    return re.findall(r"(?:alx2022|layouts|published)/\w+", recipe.split("; do")[0])


def told(study: Plan) -> tuple[str, int]:
    """Its readable name and how many trials; the hash in a name depends on the text of this Python's manual."""
    return study.name.rsplit("-", 1)[0], study.request.planned


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_every_byte_is_as_it_was_written_and_every_ledger_adds_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.run(folder, lambda progress: None) == 0
    assert capsys.readouterr().out.strip().endswith("; no faults")
    for commit in store.catalogue(folder):
        assert commit.ledger.adds_up and not commit.ledger.unfinished


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_it_is_small(folder: Path) -> None:
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    assert 1e6 < sum(sizes) <= MOST_BYTES


def test_it_holds_the_studies_of_its_presets_and_no_others() -> None:
    assert {commit.plan["comparable"] for commit in store.catalogue(RELEASES[0])} == {COMPARABLE}
    asked: Counter[tuple[str, int]] = Counter()
    for name in preset_names():
        line = overrides.command_line([f"+experiment={name}", "-m"])
        asked.update(told(study) for study in planning.request(line).studies)
    held = Counter(told(commit.study) for commit in store.catalogue(RELEASES[0]))
    assert held == asked
    assert len(preset_names()) == 12 and sum(asked.values()) > 320


def test_exact_pruning_cut_the_very_curves_short_that_are_there_whole() -> None:
    """Of the trials that two sweeps share: 64 of 1,024, at every batch size, to the bit."""
    searches = [commit for commit in store.catalogue(RELEASES[0]) if is_plain(commit.study)]
    many = [commit for commit in searches if isinstance(commit.study, BatchStudy) and commit.study.pruning == "exact"]
    assert len(many) == 11
    for cut in many:
        (whole,) = (c for c in searches if told(c.study)[0] == told(cut.study)[0] and c is not cut)
        a, b = (store.read(RELEASES[0], commit.name).measurements for commit in (cut, whole))
        a = a[a["trial"] < whole.trials]
        assert a["trial"].nunique() == 64 and 64 < len(a) < len(b)
        metrics = [name for name in a if name not in ("study", "trial", "step")]
        joined = a.merge(b, on=["trial", "step"], suffixes=("", "_whole"), how="left")
        assert all(joined[metric].equals(joined[f"{metric}_whole"].astype(a[metric].dtype)) for metric in metrics)


def is_plain(study: Plan) -> bool:
    """Whether a study ends its trials at their target, at a constant learning rate."""
    return isinstance(study, BatchStudy) and (study.stop, study.schedule) == ("target", "constant")
