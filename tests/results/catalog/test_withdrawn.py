"""Stores whose data turned out wrong: every command that reads or continues one says so, in a line."""

import re
from pathlib import Path

import pytest

from results.__main__ import main as results
from results.catalog import withdrawn
from workloads.datasets import streamed_records, streamed_text

DOUBLED = "tfds:1.1.0 bpe:32768 of train[:1000000] in 128"  # as plans of LM1B had it while both copies were read
MADE = rf"^note: \S+: 1 study of lm1b trained on data version '{re.escape(DOUBLED)}' "
LINE = MADE + r"\(held-out text doubled\)\. Do not comp"


@pytest.fixture
def doubled(make_study, fill, tmp_path) -> Path:
    for version in (DOUBLED, streamed_records.version("lm1b")):
        study = make_study(dataset="lm1b", dataset_version=version, trials=2)
        fill(tmp_path / "store", study)
    return tmp_path / "store"


def test_the_version_of_today_is_not_the_withdrawn_one(make_study):
    assert make_study(dataset="lm1b", dataset_version=DOUBLED).plan()["dataset_version"] == DOUBLED
    assert ("lm1b", DOUBLED) in withdrawn.WITHDRAWN
    assert not withdrawn.WITHDRAWN.keys() & {(name, streamed_records.version(name)) for name in streamed_text.SOURCES}


def test_every_command_that_reads_it_says_so(doubled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analysis.__main__ import main as analysis
    from sweeps.__main__ import main as sweeps
    from sweeps.status import main as status

    store = f"--store={doubled}"
    ran = {
        "steps": lambda: analysis(["steps", store]),
        "fit": lambda: analysis(["fit", store]),
        "compare": lambda: analysis(["compare", str(doubled), str(tmp_path / "out")]),
        "verify": lambda: results(["verify", store]),
        "export": lambda: results(["export", store, "--out", str(tmp_path / "out")]),
        "merge": lambda: results(["merge", str(doubled), f"--store={tmp_path / 'merged'}"]),
        "status": lambda: status([f"store={doubled}"]),
        "sweeps": lambda: sweeps(["task=digits_fc", "batch_size=64", "--dry-run", f"store={doubled}"]),
    }
    for name in ("export", "steps", "fit", "verify", "merge", "status", "sweeps", "compare"):
        assert ran[name]() == 0, name
        said = capsys.readouterr().err
        assert len(re.findall(LINE, said, re.MULTILINE)) == (2 if name == "compare" else 1), (name, said)


def test_other_stores_are_passed_over_in_silence(make_study, fill, tmp_path, capsys):
    fill(tmp_path, make_study(trials=2))
    assert results(["verify", f"--store={tmp_path}"]) == 0
    assert withdrawn.of_store(tmp_path) == [] and "note" not in capsys.readouterr().err
