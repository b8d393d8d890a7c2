"""Repeats of the best trials: which these are, who counts them, and what is checked of them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from results import durable, store
from results.bad_input import BadInput
from results.checks import repair, verify
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.plans.trial_request import Repeats, TrialRequest
from results.reading import overview, scan
from results.release import merge
from results.rules import answers, confirmation, ledger
from results.rules.confirmation import APART
from results.storage.parts import confirm_file

TARGET = Target("validation_loss", 0.5)


def quiet(line: str) -> None:
    """Takes lines about progress."""


@pytest.fixture
def study(make_study: Callable[..., BatchStudy]) -> BatchStudy:
    return make_study(targets=(TARGET,), trials=3, confirm=2)


def tables(study: BatchStudy, losses: dict[int, Sequence[float]], **changes: object) -> dict[str, pa.Table]:
    """A part with the losses of trials at steps 10, 20, …; ``changes`` are columns of its trials."""
    trials, rows = list(losses), [(i, 10 * n, loss) for i in losses for n, loss in enumerate(losses[i], 1)]
    told = {
        "study": [study.name] * len(trials),
        "trial": trials,
        "role": [confirmation.role(i) for i in trials],
        "seed": trials,
        "status": ["COMPLETE"] * len(trials),
        "steps": [10 * len(losses[i]) for i in trials],
        **{name: [study.space[name].at(i % APART / 10) for i in trials] for name in study.space},
    }
    measured = dict(zip(("trial", "step", "validation_loss"), zip(*rows, strict=True), strict=True))
    about = {"study": study.name, "dataset": study.dataset, "model": study.model_label, "optimizer": study.optimizer}
    about |= {"batch_size": study.batch_size, "plan": study.plan_json, "pruning": study.pruning}
    return {
        "studies": schema.build(schema.STUDIES, {name: [value] for name, value in about.items()}, {}),
        "trials": schema.build(schema.TRIALS, told | changes, dict.fromkeys(study.space, pa.float64())),
        "measurements": schema.build(
            schema.MEASUREMENTS, measured | {"study": [study.name] * len(rows)}, {"validation_loss": pa.float32()}
        ),
    }


def put(folder: Path, study: BatchStudy, *losses: dict[int, Sequence[float]], **changes: object) -> None:
    """Stores parts of a run, and commits them."""
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        for each in losses:
            claim.write(tables(study, each, **changes))
        claim.commit(study)


SEARCHED = {0: [0.9, 0.8, 0.7], 1: [0.9, 0.4], 2: [0.9, 0.6, 0.3]}
REPEATS = {APART + 1: [0.9, 0.6, 0.5], 2 * APART + 1: [0.3]}


def frames(study: BatchStudy, losses: dict[int, Sequence[float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    made = tables(study, losses)
    return made["trials"].to_pandas(), made["measurements"].to_pandas()


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        (SEARCHED, 1),
        ({0: [0.9, 0.5], 1: [0.9, 0.1]}, 0),  # at the same evaluation: the smaller id
        ({0: [0.9, 0.8], 1: [0.7, 0.9]}, 1),  # nobody got there: the lowest
        ({0: [0.9, 0.8], 1: [0.8, 0.9]}, 0),
        ({0: [np.nan], 1: [np.nan]}, 0),
        ({0: [0.9], 1: [0.6], APART + 1: [0.1]}, 1),  # a repeat decides nothing
    ],
)
def test_the_best_is_the_answer_or_came_nearest(
    study: BatchStudy, losses: dict[int, Sequence[float]], best: int
) -> None:
    assert confirmation.candidates(study, *frames(study, losses)) == [best]


def test_without_a_trial_nothing_is_repeated(study: BatchStudy) -> None:
    assert confirmation.missing_ids(study, pd.DataFrame(), pd.DataFrame()) == []


def test_repeats_are_missing_once_the_search_is_whole(study: BatchStudy) -> None:
    assert confirmation.missing_ids(study, *frames(study, {0: [0.4], 1: [0.9]})) == []
    assert confirmation.missing_ids(study, *frames(study, SEARCHED)) == [APART + 1, 2 * APART + 1]
    assert confirmation.missing_ids(study, *frames(study, SEARCHED | {APART + 1: [0.4]})) == [2 * APART + 1]
    trials, measurements = frames(study, SEARCHED)
    trials["reason"] = ["lost", None, None]
    assert confirmation.missing_ids(study, trials, measurements) == []


def test_confirming_is_no_part_of_the_identity(study: BatchStudy) -> None:
    without = dataclasses.replace(study, confirm=0)
    assert (without.name, without.stream) == (study.name, study.stream)
    assert BatchStudy.from_plan(study.plan(), TrialRequest(3, Repeats(confirm=2))) == study
    chosen = dataclasses.replace(study, confirm_top=3)
    assert (chosen.name, chosen.stream) == (study.name, study.stream)
    assert BatchStudy.from_plan(study.plan(), TrialRequest(3, Repeats(3, 2))) == chosen


@pytest.fixture
def contest(make_study: Callable[..., BatchStudy]) -> BatchStudy:
    """Three candidates of four trials, two repeats of each to choose by and two more of the chosen one to report."""
    return make_study(targets=(TARGET,), trials=4, confirm=4, confirm_top=3)


FOUR = {0: [0.9, 0.9, 0.7], 1: [0.9, 0.4], 2: [0.9, 0.6, 0.3], 3: [0.9, 0.9, 0.8]}  # best first: 1, 2, 0, 3
CHOOSING = {  # medians of steps: of trial 1 infinite, of trial 2 20, of trial 0 25
    APART + 1: [0.4],
    2 * APART + 1: [0.9],
    APART + 2: [0.9, 0.9, 0.4],
    2 * APART + 2: [0.4],
    APART + 0: [0.9, 0.9, 0.9, 0.4],
    2 * APART + 0: [0.4],
}
REPORTING = {3 * APART + 2: [0.9, 0.4], 4 * APART + 2: [0.4]}


def test_candidates_choose_and_the_chosen_one_reports_on_further_seeds(contest: BatchStudy) -> None:
    assert contest.request.planned == 4 + 3 * 2 + 2
    assert confirmation.candidates(contest, *frames(contest, FOUR)) == [1, 2, 0]
    first = sorted(CHOOSING)
    assert sorted(confirmation.missing_ids(contest, *frames(contest, FOUR))) == first
    some = {at: CHOOSING[at] for at in first[:-1]}
    assert confirmation.missing_ids(contest, *frames(contest, FOUR | some)) == first[-1:]
    assert confirmation.missing_ids(contest, *frames(contest, FOUR | CHOOSING)) == sorted(REPORTING)
    whole = frames(contest, FOUR | CHOOSING | REPORTING)
    assert confirmation.missing_ids(contest, *whole) == []
    assert confirmation.reporting_ids(contest.request, [*CHOOSING, *REPORTING]) == sorted(REPORTING)
    assert confirmation.reporting_ids(contest.request, CHOOSING) == []


def test_of_equal_medians_the_better_of_the_search_is_chosen(contest: BatchStudy) -> None:
    losses = FOUR | {at: [0.9, 0.4] for at in CHOOSING}
    assert confirmation.missing_ids(contest, *frames(contest, losses)) == [3 * APART + 1, 4 * APART + 1]
    losses = FOUR | {at: [0.9] for at in CHOOSING}  # not reached is infinite, of all of them
    assert confirmation.missing_ids(contest, *frames(contest, losses)) == [3 * APART + 1, 4 * APART + 1]


def test_one_candidate_reports_by_all_of_its_repeats(study: BatchStudy) -> None:
    assert confirmation.reporting_ids(study.request, REPEATS) == sorted(REPEATS)
    lone = dataclasses.replace(study, trials=1, confirm=2, confirm_top=5)  # no rival in a search of one
    assert lone.request.planned == 3
    assert confirmation.reporting_ids(lone.request, [APART, 2 * APART]) == [APART, 2 * APART]


def test_a_contest_is_stored_counted_verified_and_merged(contest: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path / "a", contest, FOUR, CHOOSING, REPORTING)
    (commit,) = store.catalogue(tmp_path / "a")
    assert commit.study == contest
    assert (commit.ledger.planned, commit.ledger.complete, commit.ledger.adds_up) == (12, 12, True)
    put(tmp_path / "b", dataclasses.replace(contest, confirm=0, confirm_top=1), FOUR)
    lines: list[str] = []
    assert merge.merge([tmp_path / "b", tmp_path / "a"], tmp_path / "both", lines.append) == 0
    for place in ("a", "both"):
        assert verify.run(tmp_path / place, quiet) == 0
        assert store.progress(tmp_path / place, contest).to_run == 0
        assert store.read(tmp_path / place).trials["trial"].tolist() == sorted([*FOUR, *CHOOSING, *REPORTING])


def test_another_winner_of_a_contest_drops_what_the_one_before_reported(contest: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path, contest, FOUR, CHOOSING, REPORTING)
    more = dataclasses.replace(contest, confirm=6)  # a third repeat of each candidate chooses, too
    assert store.progress(tmp_path, more).to_run == 5  # of three candidates one has its third, and three will report
    put(tmp_path, more, {3 * APART + 1: [0.4], 3 * APART + 0: [0.4]})
    trials = store.read(tmp_path).trials["trial"].tolist()
    assert [at for at in trials if at >= 4 * APART] == []  # trial 1 has medians of 10 now, and so has trial 0
    assert store.progress(tmp_path, more).to_run == 3
    assert verify.run(tmp_path, quiet) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confirm": -1}, "confirm must be a whole number of at least 0"),
        ({"confirm": 1001}, "confirm must be at most 1000"),
        ({"trials": APART + 1}, "trials must be at most 1000000"),
        ({"targets": ()}, "confirm needs a target"),
        ({"confirm_top": 0}, "confirm_top must be a whole number of at least 1"),
        ({"confirm_top": 101}, "confirm_top must be at most 100"),
        ({"confirm": 3, "confirm_top": 2}, "confirm must be even, not 3: half of the repeats choose"),
        ({"confirm_top": 2, "pruning": "exact"}, "exact pruning knows only the winner"),
    ],
)
def test_what_cannot_be_confirmed_is_refused(study: BatchStudy, changes: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        dataclasses.replace(study, **changes)


def test_answers_envelope_and_ledger_tell_search_from_confirmation(study: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path, study, SEARCHED, REPEATS)
    (commit,) = store.catalogue(tmp_path)
    assert commit.request == TrialRequest(3, Repeats(confirm=2))
    assert (commit.ledger.planned, commit.ledger.complete, commit.ledger.adds_up) == (5, 5, True)
    searched = scan.intervals([commit], TARGET)
    assert searched["trial"].tolist() == [1, 2]
    confirmed = scan.intervals([commit], TARGET, role="confirm")
    assert confirmed["trial"].tolist() == list(REPEATS)
    assert confirmed["steps_high"].tolist() == [30, 10]
    assert scan.intervals([commit], TARGET, role=None)["trial"].tolist() == [1, 2, *REPEATS]
    found = overview.survey(tmp_path)
    assert found.envelopes.keys() == {study.name}
    assert found.answers(TARGET, {study.name}) == answers.best(searched) == {study.name: answers.Answer(10, 20, 1)}
    assert found.descriptions[study.name].complete == 3
    for rule in (answers.Rule("released", 2), answers.Rule("released", 9)):
        assert overview.survey(tmp_path, rule).answers(TARGET, {study.name}) == answers.best(
            scan.intervals([commit], TARGET, rule)
        )
    assert verify.run(tmp_path, quiet) == 0


def test_a_larger_search_drops_the_repeats_of_another_trial(study: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path, study, SEARCHED, REPEATS)
    grown, further = dataclasses.replace(study, trials=4), {3: [0.1]}
    assert store.progress(tmp_path, grown).to_run == 1 + 2
    store.ask(tmp_path, grown)
    with store.claim(tmp_path, study.name) as claim:
        claim.write(tables(grown, further))
    progress = store.progress(tmp_path, grown)
    assert (progress.to_run, progress.ledger.adds_up) == (2, True)
    assert verify.run(tmp_path, quiet) == 0
    with store.claim(tmp_path, study.name) as claim:
        claim.write(tables(grown, {APART + 3: [0.9, 0.2]}))
    assert verify.run(tmp_path, quiet) == 0, "repeats of two trials lie there now"
    assert store.progress(tmp_path, grown).ledger == ledger.Ledger(6, 6, 0, 0, 0, 0, 0, 0, 0)  # the second is stale
    put(tmp_path, grown, {2 * APART + 3: [0.2]})
    put(tmp_path / "at once", grown, SEARCHED | further, {APART + 3: [0.9, 0.2], 2 * APART + 3: [0.2]})
    ours, theirs = (store.read(folder) for folder in (tmp_path, tmp_path / "at once"))
    pd.testing.assert_frame_equal(ours.measurements, theirs.measurements)
    pd.testing.assert_frame_equal(ours.trials.drop(columns="run"), theirs.trials.drop(columns="run"))


def test_places_that_confirmed_different_trials_merge_to_the_best(study: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path / "a", study, SEARCHED, REPEATS)
    put(tmp_path / "b", dataclasses.replace(study, trials=4), SEARCHED | {3: [0.1]}, {APART + 3: [0.2]})
    for order in ("ab", "ba"):
        for _ in range(2):  # the second time brings nothing new
            lines: list[str] = []
            assert merge.merge([tmp_path / place for place in order], tmp_path / order, lines.append) == 0
        assert lines == [f"{tmp_path / order}: studies: 0 new, 0 grown, 2 already there"]
        trials = store.read(tmp_path / order).trials
        assert trials["trial"].tolist() == [0, 1, 2, 3, APART + 3]
        (commit,) = store.catalogue(tmp_path / order)
        assert (commit.ledger.planned, commit.ledger.missing) == (6, 1)
        assert verify.run(tmp_path / order, quiet) == 0


@pytest.mark.parametrize(
    ("repeats", "changes", "words"),
    [
        (
            REPEATS,
            {"learning_rate": [0.02, 0.01, 0.01, 0.5, 0.01]},
            "has a different learning_rate from the repeated trial",
        ),
        (REPEATS, {"role": ["search"] * 5}, "has the wrong role in 2 trials (first 1000001): search"),
        (REPEATS, {"role": ["search"] * 2 + ["confirm"] * 3}, "has the wrong role in trial 2: confirm"),
        ({APART + 1: [0.1], 3 * APART + 1: [0.1]}, {}, "was never asked for trial"),
        ({APART + 1: [0.1], 2 * APART + 9: [0.1]}, {}, "was never asked for trial"),
    ],
)
def test_verify_finds_repeats_that_repeat_nothing(
    study: BatchStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    repeats: dict,
    changes: dict,
    words: str,
) -> None:
    store.ask(tmp_path, study)
    with store.claim(tmp_path, study.name) as claim:
        claim.write(tables(study, SEARCHED | repeats, **changes))
    assert verify.run(tmp_path, quiet) == 1
    assert words in capsys.readouterr().out


def test_a_torn_or_missing_request_is_found_and_made_anew(
    study: BatchStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, study, SEARCHED, REPEATS)
    path = tmp_path / study.name / confirm_file(Repeats(confirm=2))
    whole = path.read_bytes()
    for data, words in ((whole[:-9], "torn"), (None, "is missing, but a commit has that many repeats")):
        path.unlink()
        if data:
            path.write_bytes(data)
        assert verify.run(tmp_path, quiet) == 1
        assert words in capsys.readouterr().out
        assert repair.run(tmp_path, quiet) == 0
        assert path.read_bytes() == whole
        assert verify.run(tmp_path, quiet) == 0
    path.write_bytes(durable.seal({"confirm": 3}))
    assert verify.run(tmp_path, quiet) == 1
    assert "does not ask for the number of repeats in its name" in capsys.readouterr().out
