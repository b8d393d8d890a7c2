"""Medians of a store: worked out by hand, against a known distribution, and as the command tells them."""

import io

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.columns import MEDIAN_COLUMNS
from analysis.fitting import fits
from analysis.trials import medians, steps, trials
from results import store
from results.plans.search_space import Range, SearchSpace

from ...results import by_hand
from ..conftest import BATCH_SIZES, ERROR, TRUTH, Ran, plan, publish

NAMES = "digits,fully_connected_64,sgd"
HEADER = (
    "dataset,model,optimizer,batch_size,target_metric,target_value,steps_low,steps_high,band_low,band_high,"
    "trials_per_point,trials,reached,undecided,success,success_low,success_high,expected_steps_low,"
    "expected_steps_high,relative_improvement,sampled_enough,at_edge,unit,differs"
)
BUDGET = 80


def reaches(step: int) -> Ran:
    """At the target by ``step``, and not ten steps before."""
    return Ran([(step - 10, 0.5), (step, 0.05)])


FAILS = Ran([(40, 0.5), (BUDGET, 0.4)])
DIVERGES = Ran([(10, np.nan)], "INFEASIBLE")
STOPPED = Ran([(10, 0.5), (25, 0.4)], "INCOMPLETE", "time_limit")
LOST = Ran([(10, 0.05)], "INCOMPLETE", "lost")


def put(folder, ran, **changes):
    study = plan(**{"budget_steps": BUDGET, "trials": len(ran)} | changes)
    publish(folder, study, dict(enumerate(ran)))
    return study


EIGHT = [reaches(30), DIVERGES, reaches(20), reaches(60), FAILS, reaches(50), reaches(40), FAILS]


def test_csv_is_exact(folder, cli):
    put(folder, EIGHT)
    code, out, err = cli("steps", "--store", folder, "--rule", "median", "--csv")
    assert (code, err) == (0, "")
    # Of 20, 30, 40, 50, 60 and three never: the 4th of 8 is the median of single trials, the 2nd and 7th its band.
    # Five reached, after 30 to 40 steps on average: 48 to 64 with five of eight. P(5 or more | .2892) = .05 = P(5 or
    # fewer | .8889). Of the 70 halves, 35 have 20 as their best, 20 have 30, 10 have 40, 4 have 50, 1 has 60.
    fall = (1.5**20 * 2**10 * 2.5**4 * 3) ** (1 / 70) - 1
    assert out.splitlines() == [
        HEADER,
        f"{NAMES},16,test_error,0.1,40,50,20,,1,8,5,0,0.625,0.2892,0.8889,48.0,64.0,{fall:.4g},no,unclear,examples,",
    ]


def test_best_of_more(folder, cli):
    put(folder, EIGHT)
    _, out, _ = cli("steps", "--store", folder, "--rule", "median", "--csv", "--best-of", "4")
    # Half of the subsets of 4 of 8 have the best trial. The median is the quantile .1591 of single trials, and below it
    # are 0, 1, 2, 3 or fewer of 8 with probabilities of .25, .63, .88, .97: no lower end, and the 4th is the upper one.
    assert out.splitlines()[1].split(",")[6:11] == ["10", "20", "", "50", "4"]


def test_equally_many_trials_of_every_study_of_a_curve_count(folder, cli):
    put(folder, EIGHT)
    put(folder, [*EIGHT[:5], LOST], batch_size=32)
    put(folder, EIGHT[:2], batch_size=32, optimizer="momentum")  # another curve

    def told(*arguments):
        code, out, err = cli("steps", "--store", folder, "--rule", "median", "--csv", *arguments)
        assert code == 0
        table = pd.read_csv(io.StringIO(out))
        return table[["trials", "trials_per_point", "steps_high"]].fillna(-1).to_numpy().tolist(), err

    found, err = told()
    assert found == [[2, 1, 30], [5, 1, 60], [5, 1, 60]]
    assert err.startswith("note: trials that were lost, failed or never got to an evaluation are left out: digits-")
    assert err.endswith(" (1)\n")
    found, err = told("--k", "6", "--best-of", "2")
    assert found == [[2, 2, -1], [6, 2, 30], [5, 2, -1]]
    assert "note: without an answer, because too few of their trials count: digits-" in err
    assert "b32" in err and "(5)" in err and "(2)" in err
    assert told("--k", "2", "--best-of", "2")[0] == [[2, 2, 30], [2, 2, 30], [2, 2, 30]]


def test_a_study_that_leaves_the_others_few_trials_is_named(folder, cli):
    put(folder, EIGHT)
    short = put(folder, EIGHT[:3], batch_size=32)
    assert cli("steps", "--store", folder, "--rule", "median")[2] == (
        "note: only few trials of these count, which limits the other studies of their curves (--k N uses more): "
        f"{short.name} (3)\n"
    )
    assert short.name not in cli("steps", "--store", folder, "--rule", "median", "--k", "3")[2]


def test_a_stopped_trial_is_not_reached_as_far_as_it_went(folder):
    put(folder, [STOPPED, reaches(30), reaches(20), FAILS])
    (row,) = medians.answer(steps.load(folder)[0])[0].to_dict("records")
    assert (row["reached"], row["undecided"], row["success"]) == (2, 1, 0.5)
    assert (row["steps_low"], row["steps_high"]) == (20, 30)  # 2nd of 20, 30, never and more than 25, wherever that is
    three = medians.TrialCounts(best_of=3)
    (row,) = medians.answer(steps.load(folder)[0], requested=three)[0].to_dict("records")
    assert (row["steps_low"], row["steps_high"]) == (10, 20)
    sole = put(folder, [STOPPED, FAILS], batch_size=32)
    table, _ = medians.answer(steps.load(folder)[0], requested=medians.TrialCounts(trials=2, best_of=1))
    (row,) = table[table["study"] == sole.name].to_dict("records")
    assert row["steps_low"] == 25 and pd.isna(row["steps_high"])
    assert "(25, ..)" in medians.as_text(table)


def test_a_harder_target_than_the_studys_own_is_undecided_where_trials_stopped(folder, cli):
    put(folder, EIGHT)
    question = ["--metric", "test_error", "--value", "0.01"]
    _, out, _ = cli("steps", "--store", folder, "--rule", "median", "--csv", *question)
    row = out.splitlines()[1].split(",")
    assert row[6:8] == ["50", ""] and row[12:14] == ["0", "5"]


def test_the_text_says_both_verdicts_and_what_they_mean(folder, cli):
    space = SearchSpace({"learning_rate": Range("LOG", 1e-3, 10.0), "momentum": Range("REVERSE_LOG", 0.0, 0.99)})
    rng = np.random.default_rng(0)
    for size in (16, 32):
        u = rng.random((2, 100))
        need = np.minimum(20 * np.exp(20 * (1 - u[0])), 60_000).astype(int) if size == 32 else np.full(100, 20)
        study = plan(batch_size=size, trials=100, space=space, budget_steps=60_000)
        drawn = {name: [space[name].at(each) for each in u[i]] for i, name in enumerate(space)}
        publish(folder, study, {i: Ran([(int(n) - 1, 0.5), (int(n), 0.05)]) for i, n in enumerate(need)}, drawn=drawn)
    code, out, err = cli("steps", "--store", folder, "--rule", "median")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert "test_error ≤ 0.1  examples          16       23" in lines[1]
    assert "(19, 20]" in lines[1] and "yes" in lines[1] and "100%" in lines[1]
    assert "  no  " in lines[2] and lines[2].endswith("learning_rate high")
    assert "momentum" not in out
    assert "widen the range" in out
    assert lines[-1] == f"next: python -m analysis figures --store {folder} --out figures"


def test_nothing_reached(folder, cli):
    put(folder, [FAILS] * 12)
    _, out, _ = cli("steps", "--store", folder, "--rule", "median", "--csv")
    fields = out.splitlines()[1].split(",")
    assert fields[6:10] == [""] * 4 and fields[14:16] == ["0.0", "0.0"] and fields[17:19] == ["", ""]
    assert fields[20] == "no"
    assert "not reached" in cli("steps", "--store", folder, "--rule", "median")[1]


def test_a_study_in_which_everything_failed_has_a_row(folder, cli):
    put(folder, [LOST] * 3)
    code, out, err = cli("steps", "--store", folder, "--rule", "median", "--csv")
    assert (code, out.splitlines()[1]) == (0, f"{NAMES},16,test_error,0.1,,,,,1,0,,,,,,,,,unclear,unclear,examples,")
    assert "(0)" in err


@pytest.mark.parametrize("rule", [["median"], ["released", "--metric", "test_error", "--value", "0.1"]])
def test_pruned_studies_have_no_answer_but_the_minimum(folder, cli, rule):
    names = [put(folder, EIGHT[:2], batch_size=size, pruning="exact").name for size in (1, 2, 4, 8)]
    code, out, err = cli("steps", "--store", folder, "--rule", *rule)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    shown = ", ".join(sorted(names)[:3]) + " and 1 more"
    assert err == (
        f"error: --rule {rule[0]} needs whole curves, but pruning cut those of losing trials short: {shown}. "
        "Run them with pruning=off, or use --rule minimum.\n"
    )
    assert cli("steps", "--store", folder)[0] == 0


@pytest.mark.parametrize("rule", [["median"], ["released", "--metric", "test_error", "--value", "0.1"]])
def test_beside_studies_with_whole_curves_they_are_left_out_and_named(folder, cli, rule):
    pruned = put(folder, EIGHT[:2], pruning="exact")
    put(folder, EIGHT)
    code, out, err = cli("steps", "--store", folder, "--csv", "--rule", *rule)
    assert (code, len(out.splitlines())) == (0, 2)
    assert err.startswith(f"note: not in the table: --rule {rule[0]} needs whole curves")
    assert pruned.name in err and "pruning=off" in err


def test_the_table_of_medians_is_a_file_of_points(folder, tmp_path, cli):
    for size in (1, 2, 4, 8, 16, 32, 64):
        least = 960 // size + 60
        put(folder, [reaches(least + 5 * i) for i in range(9)], batch_size=size, budget_steps=2000)
    file = tmp_path / "medians.csv"
    file.write_text(cli("steps", "--store", folder, "--rule", "median", "--csv")[1])
    (row,) = fits.table(*fits.of_file(file)).to_dict("records")
    assert (row["dataset"], row["verdict"]) == ("digits", "identified")


def test_medians_of_a_published_study(folder, cli):
    ran = {i: by_hand.Ran("COMPLETE", [(10 * i, 0.5), (10 * i + 10, 0.05)]) for i in range(1, 6)}
    by_hand.publish(folder, by_hand.study(), ran)
    question = ["--metric", by_hand.METRIC, "--value", "0.1"]
    _, out, err = cli("steps", "--store", folder, "--rule", "median", "--csv", *question)
    assert (out.splitlines()[1].split(",")[6:13], err) == (["30", "40", "10", "60", "1", "5", "5"], "")


def test_bands_of_a_sweep_hold_what_its_trials_were_drawn_from(swept):
    table, notes = medians.answer(steps.load(swept)[0])
    assert notes == []
    assert set(table["trials"]) == {24} and set(table["trials_per_point"]) == {5}
    below = (1 - 0.5 ** (1 / 5)) / (7 / 8)  # one trial in eight diverges
    factor = np.exp(1.2 * stats.norm.ppf((1 + below) / 2))
    held = []
    for row in table.to_dict("records"):
        critical, plateau, sharpness = TRUTH[row["optimizer"]]
        truth = factor * plateau * (1 + (critical / row["batch_size"]) ** sharpness) ** (1 / sharpness)
        low, high = (np.inf if pd.isna(row[end]) else row[end] for end in ("band_low", "band_high"))
        held.append(low < truth <= high or (low == high == np.inf and truth > plan().budget_steps))
    assert len(held) == 3 * len(BATCH_SIZES)
    assert sum(held) >= 26  # 29.7 are meant, of 33


def test_a_summary_of_one_study(swept):
    found = trials.of_commits(store.catalogue(swept), ERROR)
    (one,) = (each for each in found.values() if (each.study.optimizer, each.study.batch_size) == ("nesterov", 64))
    told = medians.summarize(one, 24, 5)
    assert told.median.band_low < told.median.high <= told.median.band_high
    assert told.reached + told.undecided <= told.trials == medians.equal_counts([one]) == 24
    assert told.edges is None  # of 24 trials


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "9"], "--k needs --rule median, not minimum"),
        (["--best-of", "9"], "--best-of needs --rule median"),
        (["--rule", "median", "--first", "9"], "--first needs --rule released"),
        (["--rule", "median", "--k", "0"], "--k must be at least 1, not 0"),
        (["--rule", "median", "--k", "8", "--best-of", "9"], "--best-of 9 needs at least 9 trials. --k gives 8."),
        (["--rule", "mean"], "unknown --rule 'mean'"),
        (["--rule", "median", "--metric", "nope", "--value", "1"], "unknown metric 'nope'"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, cli, arguments, message):
    put(folder, EIGHT)
    code, out, err = cli("steps", "--store", folder, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_help_explains_every_column_and_option(cli):
    _, out, _ = cli("steps", "--help-columns")
    assert all(f"  {name} " in out for name in MEDIAN_COLUMNS)
    _, out, _ = cli("steps", "--help")
    assert "--best-of N" in out and "pruning=off" in out
    assert max(map(len, out.splitlines())) <= 120
