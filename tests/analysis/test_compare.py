"""Two places that say the same, what cannot be told apart, and what cannot both be true."""

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import compare, contradictions
from analysis.contradictions import Pair, Reading, pair_up
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.release import release

from .conftest import Ran, plan, publish, sweep

Cli = Callable[..., tuple[int, str, str]]


def curve(*errors: float) -> Ran:
    """A trial with these errors at steps 10, 20, …"""
    return Ran([(10 * i, error) for i, error in enumerate(errors, 1)])


SLOW, FAST = curve(0.5, 0.3, 0.05), curve(0.5, 0.05)


def only(table: pd.DataFrame, what: str = "steps") -> pd.Series:
    (row,) = [row for _, row in table[table["what"] == what].iterrows()]
    return row


def test_a_store_and_its_release_say_the_same(swept: Path, tmp_path: Path) -> None:
    assert release.export(swept, tmp_path / "release", lambda line: None) == 0
    table = compare.table(swept, tmp_path / "release")
    told = compare.as_text(table, swept, tmp_path / "release")
    assert "steps to target: 33 the same" in told
    assert "critical batch sizes: 3 the same" in told
    assert not compare.differs(table)
    assert set(table["result"]) == {"same"}
    assert table.loc[table["what"] == "steps", "why"].unique().tolist() == ["the same stream: censoring intervals"]


def test_searches_of_one_truth_agree_and_of_another_differ(swept: Path, tmp_path: Path) -> None:
    sweep(tmp_path / "again", seed=1, dataset_version="again")
    table = compare.table(swept, tmp_path / "again")
    answers = table[table["what"] == "steps"]
    assert len(answers) == 33
    assert answers["result"].isin(["agree", "same"]).mean() > 0.9
    assert answers["why"].str.contains("90 % bands of the median best of 5, from 24 trials each").all()
    fits = table[table["what"] == "critical_batch_size"]
    assert (fits["result"] == "agree").all()
    assert set(fits["a_words"]) == {"identified"}


@pytest.mark.parametrize(
    ("there", "result", "code"),
    [
        ({0: SLOW, 1: FAST}, "same", 0),
        ({0: SLOW, 1: curve(0.5, 0.3, 0.05)}, "differ", 1),  # (10, 20] and (20, 30]
        ({0: SLOW, 1: Ran([(5, 0.5), (15, 0.05)])}, "agree", 0),  # other evaluations, as of another version
        ({0: curve(0.5), 1: curve(0.5)}, "differ", 1),  # never reached
    ],
)
def test_equal_streams_differ_beyond_their_censoring_intervals(
    tmp_path: Path, cli: Cli, there: dict[int, Ran], result: str, code: int
) -> None:
    publish(tmp_path / "a", plan(trials=2), {0: SLOW, 1: FAST})
    publish(tmp_path / "b", plan(trials=2), there)
    row = only(compare.table(tmp_path / "a", tmp_path / "b"))
    assert (row["result"], row["a_low"], row["a_high"]) == (result, 10, 20)
    told = cli("compare", tmp_path / "a", tmp_path / "b")
    assert told[0] == code, told
    assert "(10, 20]" in told[1] or result == "same"


def test_over_the_trials_that_both_have(tmp_path: Path) -> None:
    publish(tmp_path / "a", plan(trials=1), {0: SLOW})
    publish(tmp_path / "b", plan(trials=2), {0: SLOW, 1: FAST})
    row = only(compare.table(tmp_path / "a", tmp_path / "b"))
    assert (row["result"], row["b_low"], row["b_high"]) == ("same", 20, 30)
    assert "of the 1 trials in both" in row["why"]


def test_pruned_studies(tmp_path: Path) -> None:
    pruned = Ran(SLOW.rows[:1], "INCOMPLETE", "pruned")
    publish(tmp_path / "a", plan(trials=2, pruning="exact"), {0: pruned, 1: FAST})
    publish(tmp_path / "b", plan(trials=2), {0: SLOW, 1: FAST})
    publish(tmp_path / "c", plan(trials=1, pruning="exact"), {0: SLOW})
    publish(tmp_path / "d", plan(trials=2, seed=1), {0: SLOW, 1: FAST})
    assert only(compare.table(tmp_path / "a", tmp_path / "b"))["result"] == "same"  # it changes no answer
    row = only(compare.table(tmp_path / "a", tmp_path / "c"))  # in C the slower trial is the best there is
    assert (row["result"], row["a_high"], row["b_high"]) == ("agree", 20, 30)
    assert "of the 1 trials in both" in row["why"]
    row = only(compare.table(tmp_path / "a", tmp_path / "d"))
    assert row["result"] == "not_judged" and "one of them pruned and so without a band" in row["why"]


@pytest.mark.parametrize(
    ("whole", "cut", "result"),
    [
        (FAST, curve(0.5, 0.3, 0.3), "differ"),  # there at 20; not there by 30, at the end of its budget
        (FAST, Ran([(10, 0.5), (20, 0.3)], "INCOMPLETE", "pruned"), "differ"),  # not there by 20
        (FAST, Ran([(10, 0.5)], "INCOMPLETE", "pruned"), "agree"),
        (curve(0.5, 0.3, 0.3), Ran([(10, 0.5), (20, 0.3)], "INCOMPLETE", "pruned"), "agree"),  # never there
        (curve(0.5, 0.3, 0.3), curve(0.5, 0.3, 0.3), "agree"),
    ],
)
def test_a_trial_that_was_pruned_or_not_is_one_run(tmp_path: Path, whole: Ran, cut: Ran, result: str) -> None:
    publish(tmp_path / "a", plan(trials=1), {0: whole})
    publish(tmp_path / "b", plan(trials=2, pruning="exact"), {0: cut, 1: curve(0.5, 0.3, 0.3, 0.05)})
    row = only(compare.table(tmp_path / "a", tmp_path / "b"))
    assert row["result"] == result
    assert ("of which 1 cannot be from one run" in row["why"]) == (result == "differ")


def test_studies_are_matched_by_plan_and_not_by_name(
    tmp_path: Path, colliding_seeds: Callable[[BatchStudy], tuple[int, int]]
) -> None:
    one, two = (plan(trials=2, seed=seed) for seed in colliding_seeds(plan(trials=2)))
    older_one, older_two = (dataclasses.replace(study, digits=8) for study in (one, two))
    assert older_one.name == older_two.name and one.stream != two.stream
    quick, slow = {0: SLOW, 1: FAST}, {0: SLOW, 1: SLOW}
    for name, stored in (
        ("a", [(older_one, quick), (two, slow)]),
        ("b", [(older_two, slow), (one, quick)]),  # the same, with the short name given to the other
        ("c", [(older_two, quick), (one, slow)]),  # the names, each with the answer of that name in A
    ):
        for study, ran in stored:
            publish(tmp_path / name, study, ran)
    for other, result in (("b", "same"), ("c", "differ")):
        table = compare.table(tmp_path / "a", tmp_path / other)
        answers = table[table["what"] == "steps"]
        assert answers["result"].tolist() == [result] * 2
        assert answers["why"].str.startswith("the same stream").all()


def test_what_one_place_lacks_or_has_twice(tmp_path: Path, cli: Cli) -> None:
    for batch_size in (16, 32, 64):
        publish(tmp_path / "a", plan(trials=1, batch_size=batch_size), {0: SLOW})
    for batch_size, seed in ((16, 0), (64, 1), (64, 2), (128, 0)):
        publish(tmp_path / "b", plan(trials=1, batch_size=batch_size, seed=seed), {0: SLOW})
    table = compare.table(tmp_path / "a", tmp_path / "b")
    answers = table[table["what"] == "steps"]
    counts = answers.groupby("batch_size")["result"].agg(lambda of: sorted(of))
    assert counts.to_dict() == {
        16: ["same"], 32: ["only_a"], 64: ["not_judged"] * 3, 128: ["only_b"],
    }  # fmt: skip
    code, out, _ = cli("compare", tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "only in A: digits · fully_connected_64 · sgd, batch size 32" in out
    assert "several similar ones in one place" in out


def test_a_target_may_be_asked_for(tmp_path: Path, cli: Cli) -> None:
    publish(tmp_path / "a", plan(trials=1), {0: SLOW})
    publish(tmp_path / "b", plan(trials=1, targets=()), {0: SLOW})
    code, _, err = cli("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2 and "no study has a target" in err
    code, out, _ = cli("compare", tmp_path / "a", tmp_path / "b", "--metric", "test_error", "--value", 0.4, "--csv")
    assert code == 0
    row = only(pd.read_csv(io.StringIO(out)))
    assert (row["target_value"], row["a_high"], row["b_high"]) == (0.4, 20, 20)
    assert (row["result"], row["why"]) == ("not_judged", "independent, but 1 trial is too few for a band")


@pytest.mark.parametrize("words", [["{a}"], ["{a}", "{none}"], ["{a}", "{other}"], ["{a}", "{a}", "--value", "1"]])
def test_bad_input_is_one_line(tmp_path: Path, cli: Cli, words: list[str]) -> None:
    publish(tmp_path / "a", plan(trials=1), {0: SLOW})
    publish(tmp_path / "other", plan(trials=1, optimizer="adam"), {0: SLOW})
    places = {name: str(tmp_path / name) for name in ("a", "none", "other")}
    code, out, err = cli("compare", *(word.format(**places) for word in words))
    assert code == 2 and not out
    assert err.startswith("error: ") and err.count("\n") == 1


def times(table: pd.DataFrame) -> tuple[str, str]:
    row = only(table, "seconds_per_epoch")
    return row["result"], row["why"]


def test_times_are_judged_on_devices_of_one_kind(
    tmp_path: Path, factorization: Factorization, publish_factorization: Callable[..., None]
) -> None:
    def put(name: str, **how: object) -> Path:
        publish_factorization(tmp_path / name, factorization, **how)
        return tmp_path / name

    here = put("here", seconds=[0.5, 0.6, 0.7])
    for name, how, result, why in (
        ("same", {"seconds": [0.6, 0.5, 0.8]}, "agree", "devices of one kind"),
        ("slow", {"seconds": [0.9, 0.8, 1.0]}, "differ", "devices of one kind"),
        ("gpu", {"seconds": [0.1, 0.1, 0.1], "device_kind": "gpu"}, "not_judged", "different devices"),
        ("many", {"seconds": [0.1, 0.1, 0.1], "physical_cores": 64}, "not_judged", "different devices"),
        ("emulated", {"emulated": True}, "not_judged", "emulated cores"),
    ):
        table = compare.table(here, put(name, **how))
        assert times(table)[0] == result and why in times(table)[1]
        assert only(table, "recall_20")["result"] == "same"
    row = only(compare.table(here, tmp_path / "gpu"), "seconds_per_epoch")
    assert (row["a_words"], row["b_words"], row["cores"]) == ("cpu", "gpu", 1)
    assert np.allclose([row["a_low"], row["a_high"], row["b_low"]], [1.0, 1.4, 0.2])


def test_factorizations_of_other_searches_are_matched_by_setting(
    tmp_path: Path, factorization: Factorization, publish_factorization: Callable[..., None], cli: Cli
) -> None:
    publish_factorization(tmp_path / "a", factorization)
    publish_factorization(tmp_path / "b", dataclasses.replace(factorization, seed=1), recall=0.6)
    publish_factorization(tmp_path / "b", dataclasses.replace(factorization, dim=8))
    table = compare.table(tmp_path / "a", tmp_path / "b")
    row = only(table[table["model"] == "matrix_factorization_16"], "recall_20")
    assert (row["result"], row["why"]) == ("not_judged", "recalls have no interval")
    assert set(table.loc[table["model"] == "matrix_factorization_8", "result"]) == {"only_b"}
    code, out, _ = cli("compare", tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "webgraph_synthetic · matrix_factorization_16 · rotated_cg, 1 core, recall 20" in out


def test_stores_of_different_kinds_have_nothing_in_common(
    tmp_path: Path, factorization: Factorization, publish_factorization: Callable[..., None], cli: Cli
) -> None:
    publish_factorization(tmp_path / "a", factorization)
    publish(tmp_path / "b", plan(trials=1), {0: SLOW})
    code, _, err = cli("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2 and "have nothing in common" in err


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (Reading(10, 20), Reading(20, 30), "differ"),
        (Reading(10, 20), Reading(19, 30), "agree"),
        (Reading(0, 20), Reading(0, np.inf), "agree"),
        (Reading(0, 0), Reading(0, 0), "same"),
        (Reading(0, 0), Reading(0, 20), "agree"),  # which was not evaluated at the start
        (Reading(0, 0), Reading(5, 20), "differ"),
        (Reading(0, 20), Reading(np.inf, np.inf), "differ"),
        (Reading(np.inf, np.inf), Reading(np.inf, np.inf), "same"),
    ],
)
def test_intervals_are_open_below_and_closed_above(a: Reading, b: Reading, result: str) -> None:
    assert contradictions._verdict(a, b) == contradictions._verdict(b, a) == result


def test_pairs_are_made_by_the_first_identity_that_tells_apart() -> None:
    pairs = pair_up(["x1", "y1", "y2"], ["x2", "y2", "z1"], lambda word: word, lambda word: word[0])
    assert pairs == [Pair("y2", "y2"), Pair("x1", "x2"), Pair("y1", None), Pair(None, "z1")]


def test_rows_that_read_alike_show_the_field_that_differs(tmp_path: Path, cli: Cli) -> None:
    for place in ("a", "b"):
        for seed, schedule in enumerate(["constant", "linear", "cosine"]):
            publish(tmp_path / place, plan(seed=seed, schedule=schedule), {0: SLOW if place == "a" else FAST})
    out = cli("compare", tmp_path / "a", tmp_path / "b")[1]
    rows = [line for line in out.splitlines() if line.startswith("differ ")]
    assert sorted(re.findall(r"(\w+=\w+)$", "\n".join(rows), re.MULTILINE)) == [
        f"schedule={name}" for name in ("constant", "cosine", "linear")
    ]
    table = compare.table(tmp_path / "a", tmp_path / "b")
    of_curves = table[table["what"] == "critical_batch_size"]
    assert table["differs"].str.contains("schedule=").all() and len(of_curves) == 3
