"""Repeats of the best trials: which these are, who counts them, and what is checked of them."""

import dataclasses
import math
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, example, given, settings, strategies as st

from analysis.fitting import confirmations
from results import durable, store
from results.bad_input import BadInput
from results.catalog import overview, point_rows, scan
from results.checks import repair, verify
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.plans.trial_request import Repeats, TrialRequest
from results.release import merge, release
from results.rules import answers, confirmation, ledger
from results.rules.confirmation import APART
from results.storage import compaction
from results.storage.commits import read_table
from results.storage.compaction import TABLES, Piece
from results.storage.parts import confirm_file

from ..by_hand import scanned

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
    about = {"study": study.name, "dataset": study.dataset, "model": study.labels.model, "optimizer": study.optimizer}
    about |= {"batch_size": study.batch_size, "plan": study.plan_json, "pruning": study.search.pruning}
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


def test_chosen_candidate_reports_on_further_seeds(contest: BatchStudy) -> None:
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


def test_another_contest_winner_makes_earlier_reports_extra(contest: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path, contest, FOUR, CHOOSING, REPORTING)
    more = dataclasses.replace(contest, confirm=6)  # a third repeat of each candidate chooses, too
    assert store.progress(tmp_path, more).to_run == 5  # of three candidates one has its third, and three will report
    put(tmp_path, more, {3 * APART + 1: [0.4], 3 * APART + 0: [0.4]})
    roles = store.read(tmp_path).trials.set_index("trial")["role"]
    assert roles[roles == "extra"].index.tolist() == [
        4 * APART + 2
    ]  # trial 1 has medians of 10 now, and so has trial 0
    assert store.progress(tmp_path, more).to_run == 3
    assert verify.run(tmp_path, quiet) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confirm": -1}, "confirm must be an integer of at least 0"),
        ({"confirm": 1001}, "confirm must be at most 1000"),
        ({"trials": APART + 1}, "trials must be at most 1000000"),
        ({"targets": ()}, "confirm needs a target"),
        ({"confirm_top": 0}, "confirm_top must be an integer of at least 1"),
        ({"confirm_top": 101}, "confirm_top must be at most 100"),
        ({"confirm": 3, "confirm_top": 2}, "confirm must be even, not 3: half of the repeats choose"),
        ({"confirm_top": 2, "pruning": "exact"}, "exact pruning finds only the winner"),
    ],
)
def test_what_cannot_be_confirmed_is_refused(study: BatchStudy, changes: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        dataclasses.replace(study, **changes)


def test_answers_and_ledger_separate_search_from_confirmation(study: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path, study, SEARCHED, REPEATS)
    (commit,) = store.catalogue(tmp_path)
    assert commit.request == TrialRequest(3, Repeats(confirm=2))
    assert (commit.ledger.planned, commit.ledger.complete, commit.ledger.adds_up) == (5, 5, True)
    searched = scan.reached(commit, TARGET)
    assert searched.trial.tolist() == [1, 2]
    confirmed = scan.reached(commit, TARGET, role="confirm")
    assert confirmed.trial.tolist() == list(REPEATS)
    assert confirmed.high.tolist() == [30, 10]
    assert scan.reached(commit, TARGET, role=None).trial.tolist() == [1, 2, *REPEATS]
    found = overview.survey(tmp_path)
    assert found.envelopes.keys() == {study.name}
    assert found.answers(TARGET, {study.name}) == {study.name: answers.Answer(10, 20, 1)}
    assert searched.answer() == answers.Answer(10, 20, 1)
    assert found.descriptions[study.name].complete == 3
    for rule in (answers.Rule("released", 2), answers.Rule("released", 9)):
        found = overview.survey(tmp_path, rule)
        assert found.answers(TARGET, {study.name}) == scanned([commit], TARGET, rule)
    assert verify.run(tmp_path, quiet) == 0


def test_larger_search_makes_repeats_of_another_trial_extra(study: BatchStudy, tmp_path: Path) -> None:
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
    extra = ours.trials["role"] == "extra"
    assert ours.trials["trial"][extra].tolist() == list(REPEATS)
    measured = ours.measurements[~ours.measurements["trial"].isin(REPEATS)].reset_index(drop=True)
    pd.testing.assert_frame_equal(measured, theirs.measurements)
    asked = ours.trials[~extra].reset_index(drop=True)
    pd.testing.assert_frame_equal(asked.drop(columns="run"), theirs.trials.drop(columns="run"))
    (ours_commit,), (theirs_commit,) = store.catalogue(tmp_path), store.catalogue(tmp_path / "at once")
    assert ours_commit.ledger == theirs_commit.ledger
    assert (ours_commit.extra, theirs_commit.extra) == (2, 0)
    made = [
        point_rows.of_study(commit, commit.study, Piece(*(read_table(commit, table) for table in TABLES)))[0]
        for commit in (ours_commit, theirs_commit)
    ]
    assert made[0]["repeats"] == 2 and made[0]["confirmed_trial"] == 3
    assert made[0] == made[1]
    (ours_read, theirs_read) = (confirmations.of_commits([c], TARGET) for c in (ours_commit, theirs_commit))
    assert ours_read == theirs_read
    lines: list[str] = []
    assert release.export(tmp_path, tmp_path.with_name("release"), lines.append) == 0
    assert verify.run(tmp_path.with_name("release"), quiet) == 0
    words = "extra: a repeat that the study's request no longer includes"
    assert words in (tmp_path.with_name("release") / "DICTIONARY.md").read_text()


def test_places_with_different_trials_merge_to_the_best(study: BatchStudy, tmp_path: Path) -> None:
    put(tmp_path / "a", study, SEARCHED, REPEATS)
    put(tmp_path / "b", dataclasses.replace(study, trials=4), SEARCHED | {3: [0.1]}, {APART + 3: [0.2]})
    for order in ("ab", "ba"):
        for _ in range(2):  # the second time brings nothing new
            lines: list[str] = []
            assert merge.merge([tmp_path / place for place in order], tmp_path / order, lines.append) == 0
        assert lines == [f"{tmp_path / order}: studies: 0 new, 0 grown, 2 already present"]
        trials = store.read(tmp_path / order).trials
        assert trials["trial"].tolist() == [0, 1, 2, 3, *sorted([*REPEATS, APART + 3])]
        assert trials.loc[trials["role"] == "confirm", "trial"].tolist() == [APART + 3]
        (commit,) = store.catalogue(tmp_path / order)
        assert (commit.ledger.planned, commit.ledger.missing) == (6, 1)
        assert verify.run(tmp_path / order, quiet) == 0


@pytest.mark.parametrize(
    ("repeats", "changes", "words"),
    [
        (
            REPEATS,
            {"learning_rate": [0.02, 0.01, 0.01, 0.5, 0.01]},
            "has a learning_rate that differs from the repeated trial",
        ),
        (REPEATS, {"role": ["search"] * 5}, "has the wrong role in 2 trials (first 1000001): search"),
        (REPEATS, {"role": ["search"] * 2 + ["confirm"] * 3}, "has the wrong role in trial 2: confirm"),
        ({APART + 1: [0.1], 3 * APART + 1: [0.1]}, {}, "has results without a request in trial"),
        ({APART + 1: [0.1], 2 * APART + 9: [0.1]}, {}, "has results without a request in trial"),
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


@pytest.mark.parametrize("forged", [{APART + 1: "extra"}, {APART + 1: "extra", APART + 3: "confirm"}])
def test_verify_finds_a_forged_role_of_a_repeat(
    study: BatchStudy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    forged: dict[int, str],
) -> None:
    """Trial 1 was best of three; trial 3 has a repeat, too, which the request does not ask for."""
    grown = dataclasses.replace(study, trials=4)
    store.ask(tmp_path, grown)
    honest = compaction.with_roles

    def lie(study: BatchStudy, whole: Piece) -> Piece:
        told = honest(study, whole).trials
        ids, roles, index = told["trial"].to_pylist(), told["role"].to_pylist(), told.schema.get_field_index("role")
        roles = [forged.get(at, role) for at, role in zip(ids, roles, strict=True)]
        field = told.schema.field(index)
        return whole._replace(trials=told.set_column(index, field, pa.array(roles, field.type)))

    with store.claim(tmp_path, study.name) as claim:
        claim.write(tables(grown, SEARCHED | {3: [0.9, 0.9, 0.9]} | {APART + 1: [0.4], APART + 3: [0.4]}))
        monkeypatch.setattr(compaction, "with_roles", lie)
        claim.commit(grown)
    monkeypatch.setattr(compaction, "with_roles", honest)
    assert verify.run(tmp_path, quiet) == 1
    assert f"has role extra for trial {APART + 1}, which the best trials make confirm" in capsys.readouterr().out


def test_a_torn_or_missing_request_is_found_and_made_anew(
    study: BatchStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, study, SEARCHED, REPEATS)
    path = tmp_path / study.name / confirm_file(Repeats(confirm=2))
    whole = path.read_bytes()
    for data, words in ((whole[:-9], "torn"), (None, "is missing, although a commit has this number of repeats")):
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
    assert "does not request the number of repeats in its name" in capsys.readouterr().out


# Requests in any order, and merges in any order: the finished trials of a study, as plain sets


def evaluations(at: int) -> float:
    """Evaluations of a trial until it is at the target; never in one of seven."""
    count = random.Random(at).randrange(1, 8)
    return count if count < 7 else math.inf


def curve(at: int) -> list[float]:
    count = evaluations(at)
    return [0.9] * 6 if count == math.inf else [0.9] * (int(count) - 1) + [0.4]


def wanted(request: TrialRequest, finished: set[int]) -> set[int]:
    """The repeats that a request asks for, by the definition, once these trials have ended."""
    (top, confirm), search = request.repeats, {at for at in finished if at < APART}
    best = sorted(search, key=lambda i: (evaluations(i), i))[:top]
    if len(best) < 2:
        return {k * APART + i for i in best for k in range(1, confirm + 1)}
    choose = {i: [k * APART + i for k in range(1, confirm // 2 + 1)] for i in best}
    chosen = min(best, key=lambda i: statistics.median(map(evaluations, choose[i])) if confirm else 0)
    every = {at for repeats in choose.values() for at in repeats}
    return every | {k * APART + chosen for k in range(confirm // 2 + 1, confirm + 1)} if every <= finished else every


def sweep(folder: Path, study: BatchStudy, most: int) -> set[int]:
    """Runs a study as a sweep does, until it is killed after so many trials; the trials it told to be stored."""
    stored: set[int] = set()
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        missing = [i for i in range(study.trials) if i not in claim.settled]
        while len(stored) < most:
            now = claim.tables()
            missing = missing or confirmation.missing_ids(study, now.trials, now.measurements)
            if not missing:
                if not claim.visible:
                    claim.commit(study)
                break
            part, missing = missing[: most - len(stored)], missing[most - len(stored) :]
            claim.write(tables(study, {at: curve(at) for at in part}))
            stored.update(part)
    return stored


def content(folder: Path, name: str) -> tuple[dict[int, str], dict[int, list[float]], object, object]:
    """Roles and curves of the visible trials, the ledger and the request."""
    (commit,) = [commit for commit in store.catalogue(folder) if commit.name == name]
    found = store.read(folder, name)
    measured = (
        found.measurements.astype({"validation_loss": float})
        .groupby("trial")["validation_loss"]
        .apply(lambda own: own.round(3).tolist())
    )
    roles = dict(zip(found.trials["trial"].tolist(), found.trials["role"].tolist(), strict=True))
    return roles, {int(at): own for at, own in measured.items()}, commit.ledger, commit.request


REQUESTS = st.builds(
    TrialRequest,
    st.integers(1, 4),
    st.sampled_from([(1, 0), (1, 0), (1, 1), (1, 2), (1, 5), (2, 2), (2, 4), (3, 2), (3, 4)]).map(
        lambda t: Repeats(*t)
    ),
)
PLACES = st.integers(0, 2)
RUNS = st.tuples(PLACES, REQUESTS, st.sampled_from([1, 2, 4, 99, 99]))
MERGES = st.tuples(PLACES, PLACES)


@pytest.mark.parametrize("examples", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_no_finished_trial_is_lost_in_any_order_of_merges(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    """After any runs and merges a place holds the union, and all orders and groupings of merging give the same."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine goes down in this test
    plain = make_study(targets=(TARGET,), trials=1)

    def of(request: TrialRequest) -> BatchStudy:
        return plain.with_request(request)

    @settings(max_examples=examples, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    @example([(0, TrialRequest(3, Repeats(1, 2)), 99), (0, TrialRequest(4), 99)])
    @example([(0, TrialRequest(3, Repeats(1, 5)), 99), (0, TrialRequest(3, Repeats(3, 2)), 99)])
    @given(st.lists(st.one_of(RUNS, RUNS, MERGES), min_size=2, max_size=6))
    def check(steps: list) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            places = [Path(scratch) / str(number) for number in range(3)]
            finished: list[set[int]] = [set(), set(), set()]
            asked: list[set[TrialRequest]] = [set(), set(), set()]
            for step in steps:
                if len(step) == 3:
                    at, request, most = step
                    finished[at] |= sweep(places[at], of(request), most)
                    asked[at].add(request)
                    if most == 99:
                        assert finished[at] >= {*range(request.trials)} | wanted(request, finished[at])
                elif finished[step[1]]:
                    into, source = step
                    sweep(places[source], of(TrialRequest(1)), 99)  # what is visible alone is merged
                    finished[source].add(0)
                    asked[source].add(TrialRequest(1))
                    assert merge.merge([places[source]], places[into], quiet) == 0
                    finished[into] |= finished[source]
                    asked[into] |= asked[source]
                for place, expected in zip(places, finished, strict=True):
                    assert not expected or store.settled_ids(place, plain.name) == expected
            there = [number for number in range(3) if asked[number]]
            assume(there)
            for number in there:
                sweep(places[number], of(TrialRequest(1)), 99)  # the least that can be asked for commits
                finished[number].add(0)
                asked[number].add(TrialRequest(1))
            union, requests = set().union(*finished), set().union(*asked)
            largest = TrialRequest(max(one.trials for one in requests), max(one.repeats for one in requests))
            count = largest.trials + sum(
                min(top, largest.trials) if k <= confirm // 2 else 1
                for top, confirm in [largest.repeats]
                for k in range(1, confirm + 1)
            )
            repeats = wanted(largest, union)
            sources = [places[number] for number in there]
            merged = []
            for number, order in enumerate([sources, sources[::-1]]):
                merged.append(Path(scratch) / f"at once {number}")
                assert merge.merge(order, merged[-1], quiet) == 0
            if len(sources) == 3:
                for number, (first, second, third) in enumerate([(2, 1, 0)]):
                    pair, merged_pair = Path(scratch) / f"pair {number}", Path(scratch) / f"grouped {number}"
                    assert merge.merge([sources[first], sources[second]], pair, quiet) == 0
                    assert merge.merge([sources[third], pair], merged_pair, quiet) == 0
                    merged.append(merged_pair)
            for place in merged:
                roles, curves, ledger_of_place, request_of_place = content(place, plain.name)
                assert roles.keys() == union
                assert curves == {at: curve(at) for at in union}
                assert {at for at in union if roles[at] == "confirm"} == repeats & union
                assert {at for at in union if roles[at] == "search"} == {at for at in union if at < APART}
                assert request_of_place == largest
                ended = sum(at < APART for at in union) + len(repeats & union)
                assert ledger_of_place == ledger.Ledger(count, ended, 0, 0, 0, 0, 0, 0, count - ended)
            assert verify.run(merged[0], quiet) == 0

    check()
