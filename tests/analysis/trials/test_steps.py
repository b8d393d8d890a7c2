"""Answers of a store, and the command that prints them."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import compare, workload_studies
from analysis.fitting import curve_fits, curves, fit_tables, points_file
from analysis.trials import steps_to_target
from results import durable, store
from results.checks import verify
from results.importers import mlperf_rcp
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.rules.answers import MINIMUM, Rule

from ...results import by_hand
from ..conftest import ERROR, Ran, plan, publish, sweep

HEADER = (
    "dataset,model,optimizer,batch_size,target_metric,target_value,steps_low,steps_high,trial,"
    "complete,infeasible,incomplete,seconds_per_epoch,"
    "confirmed_low,confirmed_high,confirmed_trial,repeats,repeats_reached,best_value,unit,differs"
)


@pytest.fixture
def small(folder: Path) -> Path:
    """Three studies: one with ties and a divergence, one that never reached, one with two targets and two runs."""
    publish(
        folder,
        plan(batch_size=16),
        {
            0: Ran([(1, 0.5), (2, 0.3), (4, 0.1)]),  # float32(0.1) > 0.1, and yet it is at the target
            1: Ran([(1, 0.4), (2, 0.2), (4, 0.05)]),
            2: Ran([(1, np.nan)], "INFEASIBLE"),
            3: Ran([(1, 0.9), (3, 0.5), (5, 0.01)]),
            4: Ran([(1, 0.9), (4, 0.2)], "INCOMPLETE", "pruned"),
        },
        seconds_per_epoch=1.5,
    )
    publish(folder, plan(batch_size=32), {0: Ran([(1, 0.5), (4, 0.2)])}, seconds_per_epoch=2.0, emulated=True)
    both = plan(optimizer="momentum", targets=(ERROR, Target("test_error", 0.05)))
    publish(folder, both, {1: Ran([], "INCOMPLETE", "lost")}, seconds_per_epoch=0.25)
    publish(folder, both, {0: Ran([(1, 0.08), (2, 0.04)]), 1: Ran([(1, 0.5), (2, 0.03)])})
    return folder


def test_csv_is_exact(small, cli):
    code, out, err = cli("steps", "--store", small, "--csv")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        HEADER,
        "digits,fully_connected_64,momentum,16,test_error,0.05,1,2,0,2,0,0,0.25,,,,,,0.03,examples,",
        "digits,fully_connected_64,momentum,16,test_error,0.1,0,1,0,2,0,0,0.25,,,,,,0.03,examples,",
        "digits,fully_connected_64,sgd,16,test_error,0.1,2,4,0,3,1,1,1.5,,,,,,0.01,examples,",
        "digits,fully_connected_64,sgd,32,test_error,0.1,,,,1,0,0,,,,,,,0.2,examples,",
    ]


def test_text_is_aligned_and_says_what_is_next(small, cli):
    code, out, _ = cli("steps", "--store", small)
    lines = out.splitlines()
    assert code == 0
    assert "test_error ≤ 0.05" in lines[1]
    assert "(1, 2]" in lines[1]
    assert "not reached" in lines[4]
    assert lines[0].index("batch size") + len("batch size") == lines[1].index("16") + 2
    assert lines[-2:] == [
        "A fit needs at least 5 batch sizes of one workload.",
        f"next: python -m analysis figures --store {small} --out figures",
    ]


@pytest.mark.parametrize(("batch_sizes", "command"), [(4, "figures"), (5, "fit")])
def test_a_fit_is_suggested_once_a_workload_has_five_batch_sizes(folder, cli, batch_sizes, command):
    for size in 2 ** np.arange(batch_sizes):
        publish(folder, plan(batch_size=int(size), trials=1), {0: Ran([(8, 0.5), (64, 0.05)])})
    publish(folder, plan(batch_size=32, trials=1, optimizer="momentum"), {0: Ran([(8, 0.5), (64, 0.05)])})
    last = cli("steps", "--store", folder)[1].splitlines()[-1]
    assert last.startswith(f"next: python -m analysis {command} --store {folder}")


def test_a_study_that_never_got_there_says_how_far_it_came(small, cli):
    lines = cli("steps", "--store", small)[1].splitlines()
    end = lines[0].index("best value") + len("best value")
    assert [line[:end].split()[-1] for line in lines[3:5]] == ["4]", "0.200"]
    easy = cli("steps", "--store", small, "--metric", "test_error", "--value", "0.3")[1]
    assert "best value" not in easy


@pytest.mark.parametrize("first", [None, 1, 2])
def test_the_best_value_is_of_the_trials_that_count(small, first):
    rule = MINIMUM if first is None else Rule("released", first)
    overview, _ = steps_to_target.load(small, ("test_error", 0.01), rule)
    lowest = overview.lowest("test_error", set(overview.descriptions))
    assert sorted(lowest.values()) == {None: [0.01, 0.03, 0.2], 1: [0.04, 0.1, 0.2], 2: [0.03, 0.05, 0.2]}[first]
    assert overview.lowest("test_loss", set(overview.descriptions)) == {}


def test_similar_curves_show_their_differences_in_their_rows(folder, cli):
    for size in (1, 2):
        for changes in ({}, {"pruning": "exact"}, {"schedule": "linear"}):
            publish(folder, plan(batch_size=size, **changes), {0: Ran([(1, 0.05)])})
        publish(folder, plan(batch_size=size, optimizer="momentum"), {0: Ran([(1, 0.05)])})
    *lines, _, _, _ = cli("steps", "--store", folder)[1].splitlines()
    at = lines[0].index("differs")
    assert [line[at:].split("  ")[0] for line in lines[1:]] == ["", ""] + [
        f"schedule={schedule}, pruning={pruning}"
        for schedule, pruning in (("constant", "exact"), ("constant", "off"), ("linear", "off"))
        for _ in range(2)
    ]
    out = cli("steps", "--store", folder, "--csv")[1]
    (folder / "points.csv").write_text(out)
    names, fitted = points_file.of_file(folder / "points.csv")  # which does not take them for one curve
    assert len(names) == len(fitted) == 4


def test_two_studies_at_one_batch_size_show_their_differences(folder, cli):
    for low in (1e-4, 1e-3):
        space = SearchSpace({"learning_rate": Range("LOG", low, 10.0)})
        publish(folder, plan(space=space), {0: Ran([(1, 0.05)])})
    publish(folder, plan(batch_size=32, budget_steps=99), {0: Ran([(1, 0.05)])})
    out = cli("steps", "--store", folder)[1]
    assert out.count("space.learning_rate.low=0.0001") == out.count("space.learning_rate.low=0.001") == 1
    assert "budget_steps" not in out
    assert set(pd.read_csv(io.StringIO(cli("steps", "--store", folder, "--csv")[1]))["differs"].isna()) == {True}


def test_another_target_may_be_asked_for(small, cli):
    _, out, err = cli("steps", "--store", small, "--csv", "--metric", "test_error", "--value", "0.3")
    table = pd.read_csv(io.StringIO(out))
    assert table["steps_high"].tolist() == [1, 2, 4]
    assert err == ""


def test_a_harder_target_than_the_trials_ran_for_is_flagged(small, cli):
    _, _, err = cli("steps", "--store", small, "--csv", "--metric", "test_error", "--value", "0.01")
    assert err.startswith("note: trials stopped once they had decided their targets")
    assert len(err.splitlines()) == 1


def test_a_metric_only_some_studies_recorded(folder, cli):
    publish(folder, plan(batch_size=1), {0: Ran([(1, 0.05)])})
    publish(folder, plan(batch_size=2), {0: Ran([(1, 0.05, 1.0)])}, metrics=("test_error", "test_loss"))
    _, out, _ = cli("steps", "--store", folder, "--csv", "--metric", "test_loss", "--value", "2")
    assert [line.split(",")[6:9] for line in out.splitlines()[1:]] == [["", "", ""], ["0", "1", "0"]]


def test_no_study_reached_anything(folder, cli):
    publish(folder, plan(), {0: Ran([(1, 0.5)])})
    code, out, _ = cli("steps", "--store", folder, "--csv")
    assert (code, out.splitlines()[1].split(",")[6:9]) == (0, ["", "", ""])


def test_a_store_in_which_everything_failed(folder, cli):
    publish(folder, plan(), {0: Ran([], "INCOMPLETE", "failed")}, metrics=(), emulated=None)
    code, out, _ = cli("steps", "--store", folder, "--csv")
    assert (code, out.splitlines()[1]) == (
        0,
        "digits,fully_connected_64,sgd,16,test_error,0.1,,,,0,0,1,,,,,,,,examples,",
    )
    assert cli("steps", "--store", folder, "--metric", "test_error", "--value", "1")[2] == (
        "error: unknown metric 'test_error'; choices: none\n"
    )
    assert "no usable batch size, but a fit needs 5" in cli("fit", "--store", folder)[1]


def test_a_study_without_a_run_is_named(folder, cli):
    publish(folder, plan(batch_size=1), {0: Ran([(1, 0.05)])})
    waiting = plan(batch_size=2)
    store.ask(folder, waiting)
    _, out, err = cli("steps", "--store", folder, "--csv")
    assert len(out.splitlines()) == 2
    assert err == f"note: not in the table, because no run has ended yet: {waiting.name}\n"


def test_rows_are_in_order_and_studies_keep_their_curve(folder):
    wider = SearchSpace({"learning_rate": Range("LOG", 1e-4, 10.0)})
    for batch_size in (1024, 4, 128):
        publish(folder, plan(batch_size=batch_size, budget_steps=99 + batch_size, space=wider), {0: Ran([(1, 0.05)])})
    publish(folder, plan(batch_size=4, seed=1), {0: Ran([(1, 0.05)])})
    table = steps_to_target.table(steps_to_target.load(folder)[0])
    assert table["batch_size"].tolist() == [4, 4, 128, 1024]
    found = curves.of_store(*steps_to_target.load(folder))
    assert sorted(curve.batch_sizes for curve in found) == [(4,), (4, 128, 1024)]


PUBLISHED = {
    1: by_hand.Ran("COMPLETE", [(10, 0.3), (20, 0.1), (30, 0.05)]),
    2: by_hand.Ran("INFEASIBLE", [(10, 0.05)]),
    4: by_hand.Ran("COMPLETE", [(5, 0.5), (25, 0.05)]),
    6: by_hand.Ran("COMPLETE", [(15, 0.01)]),
}


@pytest.mark.parametrize(
    ("arguments", "answer", "best"),
    [
        ([], "0,10,2", 0.01),  # of any status
        (["--rule", "released", "--first", 3], "0,15,6", 0.01),
        (["--rule", "released", "--first", 2], "5,25,4", 0.05),  # strictly below 0.1
        (["--rule", "released", "--first", 1], "20,30,1", 0.05),
    ],
)
def test_rule_says_which_trials_count_and_when(folder, cli, arguments, answer, best):
    by_hand.publish(folder, by_hand.study(), PUBLISHED)
    publish(folder, plan(), {0: Ran([(1, 0.05)])})  # without the metric, so without a row
    question = ["--metric", "validation_error", "--value", "0.1"]
    code, out, err = cli("steps", "--store", folder, "--csv", *question, *arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [f"a/b,m,o,8,validation_error,0.1,{answer},3,1,0,,,,,,,{best},examples,"]


def test_the_released_rule_is_seen_in_the_table(folder, cli):
    by_hand.publish(folder, by_hand.study(), PUBLISHED)
    question = ["--metric", "validation_error", "--value", "0.1", "--rule", "released", "--first", "3"]
    assert "validation_error < 0.1" in cli("steps", "--store", folder, *question)[1]


def test_fewer_complete_trials_than_the_rule_give_one_note(folder, cli):
    for size in (8, 16):
        by_hand.publish(folder, by_hand.study(batch_size=size), PUBLISHED)
    question = ["--metric", "validation_error", "--value", "0.1", "--rule", "released"]
    _, out, err = cli("steps", "--store", folder, "--csv", *question)
    assert [line.split(",")[6:9] for line in out.splitlines()[1:]] == [["0", "15", "6"]] * 2
    names = [by_hand.study(batch_size=size).name for size in (8, 16)]
    assert err == f"note: fewer than 100 trials are COMPLETE, so all of them count: {names[0]} (3), {names[1]} (3)\n"


def test_released_rule_may_end_a_trial_above_its_target(folder, cli):
    publish(folder, plan(), {0: Ran([(1, 0.5), (2, 0.1)])})
    question = ["--metric", "test_error", "--value", "0.1"]
    assert cli("steps", "--store", folder, *question)[2] == ""
    err = cli("steps", "--store", folder, *question, "--rule", "released", "--first", "1")[2]
    assert err.startswith("note: trials stopped once they had decided their targets")


def test_a_source_that_tells_only_the_end_of_a_trial_is_flagged(folder, cli):
    by_hand.publish(folder, by_hand.study(), {1: by_hand.Ran("COMPLETE", [(40, 0.0)])})
    _, out, err = cli("steps", "--store", folder, "--csv", "--metric", "validation_error", "--value", "0")
    assert out.splitlines()[1].split(",")[6:9] == ["0", "40", "1"]
    assert err.startswith("note: only the end of each trial was published")
    assert len(err.splitlines()) == 1


def test_published_studies_make_curves_like_our_own(folder, tmp_path, cli):
    for size in (1, 2, 4, 8, 16, 32):
        least = 600 // size + 60
        trials = {i: by_hand.Ran("COMPLETE", [(least + i, 0.2), (least + i + 2, 0.05)]) for i in (1, 2)}
        by_hand.publish(folder, by_hand.study(batch_size=size, details={"train_steps": least}), trials)
    publish(folder, plan(), {0: Ran([(1, 0.5)])})
    (row,) = curve_fits.table(folder, ("validation_error", 0.1)).to_dict("records")
    assert (row["dataset"], row["verdict"]) == ("a/b", "identified")
    assert row["s_min"] == pytest.approx(60, rel=0.2)
    assert (
        cli("figures", "--store", folder, "--out", tmp_path, "--metric", "validation_error", "--value", "0.1")[0] == 0
    )


def test_a_store_may_be_a_place_of_fsspec(cli):
    folder = "memory://analysis/store"
    by_hand.publish(durable.location(folder), by_hand.study(), PUBLISHED)
    question = ["--metric", "validation_error", "--value", "0.1"]
    code, out, _ = cli("steps", "--store", folder, *question)
    then = f"next: python -m analysis figures --store {folder} --metric validation_error --value 0.1 --out figures"
    assert (code, out.splitlines()[-1]) == (0, then)
    assert "(0, 10]" in out
    assert cli("fit", "--store", folder, *question)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--metric", "tset_error", "--value", "1"],
            "unknown metric 'tset_error'; did you mean 'test_error'? choices: ",
        ),
        (["--metric", "train_loss", "--value", "1"], "choices: test_error"),
        (["--metric", "test_error"], "--metric and --value need each other"),
        (["--value", "0.1"], "--metric and --value need each other"),
        (["--rule", "released"], "--rule released needs --metric and --value"),
        (["--first", "9"], "--first needs --rule released"),
        (
            ["--rule", "released", "--first", "0", "--metric", "test_error", "--value", "1"],
            "--first must be at least 1, not 0",
        ),
        (
            ["--metric", "test_error", "--value", "-0.1"],
            "--value: test_error is never below 0, so -0.1 cannot be reached",
        ),
        (["--metric", "test_error", "--value", "5"], "--value: test_error is never above 1, so 5 is not a target"),
        (["--metric", "test_error", "--value", "nan"], "target on test_error must be a finite number, not nan"),
        (["--k", "9"], "--rule median was removed. fit and payoff use the expected best of k trials."),
        (["--best-of", "9"], "--rule median was removed. fit and payoff use the expected best of k trials."),
        (["--rule", "median"], "--rule median was removed. fit and payoff use the expected best of k trials."),
    ],
)
def test_mistakes_are_told_in_one_line(small, cli, arguments, message):
    code, out, err = cli("steps", "--store", small, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_missing_and_empty_stores(folder, cli):
    assert cli("steps", "--store", folder)[::2] == (
        2,
        f"error: no store at {folder}. Create one with `python -m sweeps store={folder}`, or name another.\n",
    )
    folder.mkdir()
    code, _, err = cli("steps", "--store", folder)
    assert (code, err.splitlines()) == (
        2,
        [f"error: no study in {folder} has run yet. Fill it with `python -m sweeps store={folder}`."],
    )


def test_studies_without_targets_need_one(folder, cli):
    publish(folder, plan(targets=()), {0: Ran([(1, 0.05)])})
    code, _, err = cli("steps", "--store", folder)
    assert code == 2
    assert (
        "Set one with --metric and --value, such as --metric test_error --value 0.05, which every batch size reaches"
        in err
    )
    assert cli("steps", "--store", folder, "--metric", "test_error", "--value", "0.1")[0] == 0


def test_published_studies_without_requested_target_are_named(small, cli):
    by_hand.publish(small, by_hand.study(), {0: by_hand.Ran("COMPLETE", [(5, 0.05)])})
    name = by_hand.study().name
    why = "published studies have no targets (set one with --metric and --value)"
    _, out, err = cli("steps", "--store", small, "--csv")
    assert "a/b" not in out
    assert f"note: not in the table, because {why}: {name}\n" in err
    assert why not in cli("steps", "--store", small, *ASKED)[2]


def test_pruning_changes_no_answer(folder, swept):
    sweep(folder, pruning="exact")
    columns = ["optimizer", "batch_size", "steps_low", "steps_high", "trial"]
    pruned, whole = (steps_to_target.table(steps_to_target.load(s)[0])[columns] for s in (folder, swept))
    pd.testing.assert_frame_equal(pruned, whole)


def started(folder: Path, *, easy: int | None) -> None:
    """Studies of others at batch sizes 1 to 64 with rows from step 0; at ``easy`` a trial is at the target there."""
    for size in (2**i for i in range(7)):
        ran = {
            trial: by_hand.Ran("COMPLETE", [(0, 0.9), (900 // size + trial, 0.5), (1000 // size + 9 + trial, 0.05)])
            for trial in range(3)
        }
        if size == easy:
            ran[1] = by_hand.Ran("INCOMPLETE", [(0, 0.04)])
        by_hand.publish(folder, by_hand.study(batch_size=size, trials=3), ran)


RELEASED = ["--rule", "released", "--metric", "test_error", "--value", "0.1"]


def test_pruned_studies_have_no_answer_but_the_minimum(folder, cli):
    names = [plan(batch_size=size, trials=2, pruning="exact") for size in (1, 2, 4, 8)]
    for study in names:
        publish(folder, study, {0: Ran([(20, 0.5), (30, 0.05)]), 1: Ran([(10, np.nan)], "INFEASIBLE")})
    code, out, err = cli("steps", "--store", folder, *RELEASED)
    shown = ", ".join(sorted(study.name for study in names)[:3]) + " and 1 more"
    assert (code, out) == (2, "")
    assert err == (
        f"error: --rule released needs whole curves, but pruning cut those of losing trials short: {shown}. "
        "Run them with pruning=off, or use --rule minimum.\n"
    )
    assert cli("steps", "--store", folder)[0] == 0
    publish(folder, plan(trials=1), {0: Ran([(20, 0.5), (30, 0.05)])})
    code, out, err = cli("steps", "--store", folder, "--csv", *RELEASED)
    assert (code, len(out.splitlines())) == (0, 2)
    assert err.startswith("note: not in the table: --rule released needs whole curves")
    assert names[0].name in err and "pruning=off" in err


def test_help_explains_every_column_and_option(cli):
    _, out, _ = cli("steps", "--help-columns")
    assert all(f"  {name} " in out for name in steps_to_target.COLUMNS)
    _, out, _ = cli("steps", "--help")
    assert "--first N" in out and "pruning=off" in out and "--best-of" not in out
    assert max(map(len, out.splitlines())) <= 120


ASKED = ("--metric", by_hand.METRIC, "--value", "0.1")


def test_a_target_met_at_the_start_is_an_answer_and_in_no_fit(folder, tmp_path, cli):
    started(folder, easy=8)
    name = by_hand.study(batch_size=8).name
    assert verify.run(folder, print) == 0
    code, out, err = cli("steps", "--store", folder, *ASKED)
    assert code == 0
    (told,) = [row for row in out.splitlines() if " [0, 0] " in row]
    assert told.split()[-4:] == ["1", "2", "0", "1"]  # the trial, and how they ended
    assert "(900, 1,009]" in out
    assert f"note: met at the start, before any step, so not used in fits: {name}\n" in err + out
    _, table, _ = cli("steps", "--store", folder, *ASKED, "--csv")
    assert [row for row in table.splitlines() if ",0,0,1," in row]
    started(tmp_path / "without", easy=None)
    shutil.rmtree(tmp_path / "without" / name)
    (tmp_path / "points.csv").write_text(table)
    fitted = [
        curve_fits.table(folder, (by_hand.METRIC, 0.1)),
        fit_tables.table(*points_file.of_file(tmp_path / "points.csv")),
    ]
    expected = curve_fits.table(tmp_path / "without", (by_hand.METRIC, 0.1))
    for found in fitted:
        assert "met at the start, before any step, at batch size 8, left out" in found["reason"].item()
        assert "no trial reached" not in found["reason"].item()
    names = list(fit_tables.COLUMNS)[:6]
    pd.testing.assert_frame_equal(fitted[0][names], expected[names])
    drawn = curve_fits.of_workload(*workload_studies.of_store(folder), Target(by_hand.METRIC, 0.1))
    assert 8 not in drawn.trials
    assert not drawn.missed
    assert set(compare.table(folder, folder, (by_hand.METRIC, 0.1))["result"]) <= {"same", "not_judged"}


def test_a_curve_that_is_met_at_the_start_everywhere_says_so(folder):
    by_hand.publish(folder, by_hand.study(), {0: by_hand.Ran("COMPLETE", [(0, 0.05), (5, 0.01)])})
    drawn = curve_fits.of_workload(*workload_studies.of_store(folder), Target(by_hand.METRIC, 0.1))
    assert not drawn.drawable
    assert drawn.why_nothing.startswith("met at the start")


def test_duplicate_or_joined_lists_of_a_source_are_named(folder, tmp_path, cli):
    names = []
    for release, rate in (("training_1.0.0", 10), ("training_1.1.0", 8)):
        for size, runs in ((4096, [40, 42, 41]), (2048, [40, 42, 41 + rate])):
            told: dict = {"Benchmark": "resnet", "BS": size, "Hyperparams": {"optimizer": "lars", "rate": rate}}
            (tmp_path / release).mkdir(exist_ok=True)
            (tmp_path / release / f"rcps_{size}.json").write_text(
                json.dumps({"x": told | {"Epochs to converge": runs}})
            )
    longer = {"Benchmark": "resnet", "BS": 2048, "Hyperparams": {"rate": 8}, "Epochs to converge": [40, 42, 49, 50]}
    (tmp_path / "training_1.1.0" / "rcps_longer.json").write_text(json.dumps({"y": longer}))
    assert mlperf_rcp.run(tmp_path, folder, report=names.append) == 0
    _, _, err = cli("steps", "--store", folder, "--csv", "--metric", "validation_shortfall", "--value", "0")
    twice = [commit.name for commit in store.catalogue(folder) if commit.plan["batch_size"] == 4096]
    (joined,) = (commit.name for commit in store.catalogue(folder) if commit.trials == 4)
    notes = err.splitlines()
    assert f"note: identical runs, listed with contradicting metaparameters: {twice[0]} and {twice[1]}" in notes
    assert [note for note in notes if note.endswith(f"in the table of trials): {joined}")]
