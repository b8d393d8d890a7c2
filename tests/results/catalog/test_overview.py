"""Answers of a whole store: from envelopes where they are valid, and the same ones from a scan where they are not."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from results import durable, store
from results.bad_input import BadInput
from results.catalog import overview, scan
from results.plans import schema
from results.plans.study import Target
from results.release import release
from results.rules.answers import MINIMUM, Rule
from results.storage import commits, envelope

from ..by_hand import METRIC, Ran, answer_of, publish, scanned, study

RULES = (MINIMUM, Rule("released", 1), Rule("released", 2), Rule("released", 100))
VALUES = (0.5, 0.3, 0.1, 0.05, 1e39)
# 0.1 is a tie that float32 and float64 break in different ways: float32(0.1) > 0.1.
CURVES = {
    2: Ran("INFEASIBLE", [(3, 0.05), (6, np.nan)]),
    4: Ran("COMPLETE", [(0, 0.9), (10, 0.3), (20, 0.1), (30, 0.2), (40, 0.05)]),
    5: Ran("COMPLETE", [(5, 0.4), (20, 0.1)]),
    7: Ran("INCOMPLETE", []),
    9: Ran("COMPLETE", [(4, np.inf), (5, np.nan), (6, 0.1), (7, 0.3)]),
}
STUDIES = [
    (study(batch_size=1), CURVES, np.float64),
    (study(batch_size=2), CURVES, np.float32),
    (study(batch_size=4), {9: Ran("COMPLETE", [(41, 0.3)])}, np.float64),  # the trial the file before ends with
    (study(batch_size=8), {4: Ran("INFEASIBLE", [])}, np.float32),
]


def fill(folder: commits.Folder) -> None:
    for about, trials, dtype in STUDIES:
        publish(folder, about, trials, dtype)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of STUDIES; not to be written to."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    fill(folder)
    return folder


def copied(filled: Path, tmp_path: Path) -> Path:
    for file in filled.glob("*/*"):
        copy = tmp_path / "copy" / file.relative_to(filled)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    return tmp_path / "copy"


def check(folder: commits.Folder) -> None:
    """Every question has the answers that every row has."""
    for rule in RULES:
        held = overview.survey(folder, rule)
        assert len(held.envelopes) == len(STUDIES)
        for value in VALUES:
            expected = {
                about.name: answer_of(trials, min(value, 1e38), rule, dtype) for about, trials, dtype in STUDIES
            }
            found = held.answers(Target(METRIC, value), held.descriptions.keys())
            assert found == {name: answer for name, answer in expected.items() if answer}


def test_envelopes_answer(filled):
    check(filled)


def test_missing_envelopes_are_built(filled, tmp_path):
    folder = copied(filled, tmp_path)
    before = overview.survey(folder).descriptions
    for file in folder.glob("*/envelope-*"):
        file.unlink()
    check(folder)
    assert overview.survey(folder).descriptions == before


def test_a_damaged_envelope_and_that_of_other_files_are_not_used(filled, tmp_path):
    folder = copied(filled, tmp_path)
    mixed, damaged, other, _ = sorted(folder.glob("*/envelope-*"))
    mixed.write_bytes(other.read_bytes())
    damaged.write_bytes(damaged.read_bytes()[:1000])
    check(folder)


def test_an_envelope_that_is_no_file_is_not_waited_for(filled, tmp_path):
    folder = copied(filled, tmp_path)
    pipe, shadow, *_ = sorted(folder.glob("*/envelope-*"))
    pipe.unlink()
    os.mkfifo(pipe)
    shadow.unlink()
    shadow.mkdir()
    check(folder)


def test_only_what_was_asked_is_answered(filled):
    one = study(batch_size=4).name
    held = overview.survey(filled)
    assert held.answers(Target(METRIC, 0.5), {one}).keys() == {one}
    assert held.answers(Target("test_loss", 0.5), held.descriptions.keys()) == {}


def test_an_envelope_that_is_longer_than_expected_is_read_whole(filled, monkeypatch):
    monkeypatch.setattr(overview, "ENOUGH", 500)
    check(filled)


def test_a_place_of_fsspec_is_answered_alike():
    folder = durable.location("memory://overview/store")
    fill(folder)
    check(folder)
    for file in folder.glob("*/envelope-*"):
        file.unlink()
    check(folder)


def test_a_release_is_answered_alike(tmp_path):
    details = {"licence": "Apache-2.0"}
    curves = {1: Ran("COMPLETE", [(10, 0.3), (20, 0.1)]), 2: Ran("COMPLETE", [(15, 0.2), (20, 0.1)])}
    licensed = [(study(batch_size=size, details=details), curves, np.float64) for size in (1, 2)]
    for about, trials, dtype in licensed:
        publish(tmp_path / "store", about, trials, dtype)
    assert release.export(tmp_path / "store", tmp_path / "release", lambda line: None) == 0
    question = Target(METRIC, 0.1)
    expected = {about.name: answer_of(curves, 0.1, MINIMUM) for about, _, _ in licensed}
    held = overview.survey(tmp_path / "release")
    assert (len(held.envelopes), held.answers(question, expected)) == (2, expected)
    for file in tmp_path.glob("release/envelopes.arrow"):
        file.unlink()
    held = overview.survey(tmp_path / "release")
    assert (len(held.envelopes), held.answers(question, expected)) == (2, expected)


def test_grown_study_is_answered_from_its_newest_commit(filled, tmp_path):
    folder = copied(filled, tmp_path)
    about = study(batch_size=4, trials=12)
    publish(folder, about, {11: Ran("COMPLETE", [(2, 0.1)])})
    held = overview.survey(folder)
    assert held.descriptions[about.name].complete == 2
    assert held.answers(Target(METRIC, 0.3), {about.name}) == {about.name: (0, 2, 11)}


def test_a_study_that_is_not_visible_yet_waits(filled, tmp_path):
    folder = copied(filled, tmp_path)
    store.ask(folder, study(batch_size=16))
    (folder / "README.md").write_text("no study\n")
    assert overview.survey(folder).waiting == [study(batch_size=16).name]


def test_mistakes_are_told_in_one_line(filled, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="no store at"):
        overview.survey(tmp_path / "none")
    assert not overview.survey(tmp_path).descriptions
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION - 1)
    with pytest.raises(BadInput, match=r"reads up to [0-9]+. Upgrade it"):
        overview.survey(filled)


@pytest.mark.parametrize("harm", ["cut", "gone", "other type"])
def test_a_scan_of_a_damaged_file_says_so(filled, tmp_path, harm):
    folder = copied(filled, tmp_path)
    held = store.catalogue(folder)
    path = held[0].files["measurements"].path
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif harm == "gone":
        path.unlink()
    else:
        held[0].metrics[METRIC] = "double" if held[0].metrics[METRIC] == "float" else "float"
    with pytest.raises(durable.Damaged, match="cannot be read") as told:
        scanned(held, Target(METRIC, 0.1))
    assert "\n" not in str(told.value)


def test_a_missing_table_is_named(filled, tmp_path):
    folder = copied(filled, tmp_path)
    for file in [*folder.glob("*/envelope-*"), *folder.glob("*/trials-*")]:
        file.unlink()
    with pytest.raises(durable.Damaged, match=r"trials-000002\.parquet is missing"):
        overview.survey(folder)


def test_a_renamed_study_is_not_taken_for_another(filled, tmp_path):
    folder = copied(filled, tmp_path)
    next(folder.iterdir()).rename(folder / "another")
    with pytest.raises(durable.Damaged, match="is of the study"):
        overview.survey(folder)


def test_a_scan_of_nothing_is_empty(filled):
    assert scanned([], Target(METRIC, 0.1), Rule("released", 1)) == {}
    unmeasured = scan.reached(store.catalogue(filled)[0], Target("test_recall_20_error", 0.1), Rule("released", 1))
    assert [len(column) for column in unmeasured] == [0, 0, 0]
    assert envelope.answers([], Target(METRIC, 0.1), MINIMUM) == {}


def test_intervals_begin_at_the_last_evaluation_with_the_metric(tmp_path: Path) -> None:
    """Of files, against plain loops: values, NaN, which was measured and diverged, and evaluations that lack it."""
    rng, curves = np.random.default_rng(5), {}
    for size in range(1, 9):
        values = rng.choice([0.8, 0.4, 0.1, math.nan, None, None], (3, 6)).tolist()
        rows = [list(zip(range(10, 70, 10), own, strict=True)) for own in values]
        curves[size] = {trial: Ran("COMPLETE", own) for trial, own in enumerate(rows)}
    curves[9] = {0: Ran("COMPLETE", [(10, 0.8), (20, None), (30, 0.1)])}
    curves[10] = {0: Ran("COMPLETE", [(10, 0.8), (20, math.nan), (30, 0.1)])}
    name = {size: study(batch_size=size).name for size in curves}
    for size, trials in curves.items():
        publish(tmp_path, study(batch_size=size), trials)
    commits = store.catalogue(tmp_path)
    for value in (0.4, 0.1):
        answer = {name[size]: answer_of(trials, value, MINIMUM) for size, trials in curves.items()}
        found = {study: own for study, own in answer.items() if own}
        assert scanned(commits, Target(METRIC, value)) == found
        survey = overview.survey(tmp_path)
        assert survey.envelopes.keys() == answer.keys()
        assert survey.answers(Target(METRIC, value), answer.keys()) == found
    assert found[name[9]] == (10, 30, 0) and found[name[10]] == (20, 30, 0)
