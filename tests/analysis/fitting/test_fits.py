"""From stores and files of points to verdicts with reasons."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import curve_fits, curves, fit_tables, fits, points_file
from analysis.trials import steps_to_target
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.rules import confirmation

from ..conftest import BATCH_SIZES, TRUTH, Ran, plan, publish, sweep

HEADER = "pays_up_to,pays_up_to_low,pays_up_to_high,pays_verdict,"
HEADER += "efficient_up_to,efficient_up_to_low,efficient_up_to_high,efficient_verdict,"
HEADER += "pays_halved_by,efficient_halved_by,"
HEADER += "s_min,critical_batch_size,critical_batch_size_low,critical_batch_size_high,sharpness,"
HEADER += "verdict,half_trials_octaves,model_error_octaves,doubts,reason"
SIZES = 2 ** np.arange(11)
STEPS = 50 * (1 + 64 / SIZES)


def publish_curve(folder, batch_sizes=BATCH_SIZES, trials=3, **changes):
    """A curve on the hyperbola with critical batch size 64; trial i needs 1 + i/4 times the steps."""
    for size in batch_sizes:
        need = [round(400 * (1 + 64 / size) * (1 + i / 4)) for i in range(trials)]
        rows = {i: Ran([(round(0.9 * n), 0.2), (n, 0.05)]) for i, n in enumerate(need)}
        publish(folder, plan(batch_size=size, budget_steps=10**6, trials=trials, **changes), rows)


def write_points(tmp_path, text):
    file = tmp_path / "points.csv"
    file.write_text(text)
    return file


def test_true_curves_are_inside_their_intervals(swept, cli):
    code, out, err = cli("fit", "--store", swept, "--csv")
    assert (code, err) == (0, "")
    naming = "dataset,model,optimizer,target_metric,target_value,unit,estimate,trials_per_point,"
    assert out.splitlines()[0] == naming + HEADER
    table = pd.read_csv(io.StringIO(out)).set_index("optimizer")
    assert list(table.index) == ["momentum", "nesterov", "sgd"]
    for optimizer, (critical, plateau, _) in TRUTH.items():
        row = table.loc[optimizer]
        assert row["verdict"] == "identified"
        assert row["critical_batch_size_low"] < critical < row["critical_batch_size_high"]
        assert row["pays_up_to_low"] < 4 * critical  # S(B / 2) = 1.2 S(B)
        assert not row["pays_up_to_high"] < 4 * critical
        assert row["efficient_up_to_low"] < 0.2 * critical + 1.2 * BATCH_SIZES[1] < row["efficient_up_to_high"]
        assert row["s_min"] == pytest.approx(plateau, rel=0.15)
        assert row["reason"] == "24 trials per batch size; left out: batch size 1, at which no trial reached the target"
        assert abs(row["half_trials_octaves"]) < 0.3


def test_text_shows_intervals_and_reasons(swept, cli):
    _, out, _ = cli("fit", "--store", swept)
    header = out.splitlines()[0]
    assert header.index("pays up to") < header.index("efficient up to") < header.index("critical batch size")
    assert "half the trials" in header
    note = "24 trials per batch size; left out: batch size 1, at which no trial reached the target"
    assert f"rows 1, 2, 3: {note}" in out.splitlines()
    assert "Assumed: slope -1 at small batch sizes" in out
    assert out.splitlines()[-1].startswith("next: python -m analysis figures --store")


def test_doubt_is_printed_instead_of_the_assumption(tmp_path, cli):
    few = "batch_size,steps\n" + "".join(f"{n},{steps:.0f}\n" for n, steps in zip(SIZES[:5], STEPS, strict=False))
    file = write_points(tmp_path, few)
    _, out, _ = cli("fit", "--points", file)
    assert "row 1: in doubt: batch sizes, because there are fewer than 6, or they span under 2 octaves" in out
    _, out, _ = cli("fit", "--points", file, "--checks")
    assert re.search(r"5 over 4 octaves, the knee \d\.\d octaves (in|out)side them", out)


def test_every_batch_size_counts_with_equally_many_trials(folder):
    publish_curve(folder, BATCH_SIZES[1:], trials=3)
    # Here the first three trials need twice the steps of the fourth, which others do not have.
    publish(
        folder,
        plan(batch_size=1, budget_steps=10**6, trials=4),
        {i: Ran([(9, 0.3), (n, 0.05)]) for i, n in enumerate([52_000, 60_000, 70_000, 26_000])},
    )
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    points = curves.points(curve)
    assert points.trials == 3
    assert points.high[0] == 52_000
    assert points.low[0] == 9
    more = "pays and efficient up to use the expected best of 3 where a batch size has more trials"
    assert points.notes == ("3 trials per batch size", more)


def test_trials_that_were_lost_count_only_if_they_reached(folder):
    publish_curve(folder, BATCH_SIZES[1:], trials=3)
    lost = {
        0: Ran([(9, 0.3)], "INCOMPLETE", "lost"),
        1: Ran([(7, 0.01)], "INCOMPLETE", "time_limit"),
        2: Ran([(5, 0.05)]),
    }
    publish(folder, plan(batch_size=1, budget_steps=10**6, trials=3), lost)
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    assert curve.trials.loc[curve.trials["batch_size"] == 1, "trial"].tolist() == [1, 2]
    assert curves.points(curve).trials == 2


def test_confirming_trials_are_not_part_of_the_search(folder):
    publish_curve(folder, BATCH_SIZES[1:], trials=3)
    rows = {i: Ran([(n - 9, 0.3), (n, 0.05)]) for i, n in enumerate([26_000, 30_000, 40_000])}
    confirmed = {trial: Ran([(9, 0.3), (10, 0.05)]) for trial in confirmation.ids(0, 1, 2)}
    publish(folder, plan(batch_size=1, budget_steps=10**6, trials=3), rows | confirmed)
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    points = curves.points(curve)
    assert (points.trials, points.high[0]) == (3, 26_000)
    assert points.trial_counts.tolist() == [3] * len(BATCH_SIZES)


def test_batch_size_beyond_the_first_trials_is_dropped_and_named(folder):
    publish_curve(folder, BATCH_SIZES[1:], trials=1)
    publish(folder, plan(batch_size=1, budget_steps=10**6, trials=2), {0: Ran([(9, 0.3)]), 1: Ran([(9, 0.01)])})
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    points = curves.points(curve)
    assert points.batch_size[0] == 2
    assert points.notes == ("1 trial per batch size", "left out: batch size 1, at which no trial reached the target")


def test_pruned_curves_weigh_alike_and_say_so(folder):
    sweep(folder, pruning="exact")
    table = curve_fits.table(folder)
    assert (table["verdict"] == "identified").all()
    assert (
        table["reason"]
        .str.endswith("pruned, so all trials but the best are cut short: all batch sizes have equal weights")
        .all()
    )
    assert table["half_trials_octaves"].isna().all()


def test_pruned_curves_with_unequal_trials_are_refused(folder, cli):
    publish_curve(folder, BATCH_SIZES[:5], trials=2, pruning="exact")
    publish_curve(folder, BATCH_SIZES[5:], trials=3, pruning="exact")
    _, out, _ = cli("fit", "--store", folder, "--csv")
    (row,) = pd.read_csv(io.StringIO(out)).to_dict("records")
    assert row["verdict"] == "not_identified"
    assert np.isnan(row["critical_batch_size"])
    assert "run batch size 1 (2), 2 (2), 4 (2), 8 (2), 16 (2) with trials=3 like the others" in row["reason"]


@pytest.mark.parametrize(("count", "words"), [(4, "only 4 usable batch sizes"), (1, "only 1 usable batch size")])
def test_too_few_batch_sizes(folder, count, words):
    publish_curve(folder, BATCH_SIZES[:count])
    (row,) = curve_fits.table(folder).to_dict("records")
    assert (row["verdict"], row["reason"]) == ("not_identified", f"3 trials per batch size; {words}, but a fit needs 5")
    assert np.isnan([row["s_min"], row["critical_batch_size_low"], row["sharpness"]]).all()


def test_curves_that_look_alike_are_kept_apart_and_told_apart(folder):
    publish_curve(folder)
    publish_curve(folder, seed=1)
    publish_curve(folder, targets=(Target("test_error", 0.1), Target("test_error", 0.2)))
    table = curve_fits.table(folder)
    own = table[table["target_value"] == 0.1]
    assert len(own) == 3
    assert sorted(reason.split("; ")[0] for reason in own["reason"]) == [
        "targets=test_error ≤ 0.1 and test_error ≤ 0.2, seed=0",
        "targets=test_error ≤ 0.1, seed=0",
        "targets=test_error ≤ 0.1, seed=1",
    ]
    assert (own["verdict"] == "identified").all()


def test_two_studies_at_one_batch_size_are_refused(folder):
    publish_curve(folder)
    wider = SearchSpace({"learning_rate": Range("LOG", 1e-5, 10.0)})
    publish_curve(folder, [8], space=wider)
    (row,) = curve_fits.table(folder).to_dict("records")
    assert row["verdict"] == "not_identified"
    assert "several studies at batch size 8 differ in budget, search space or source" in row["reason"]


def test_second_study_at_a_batch_size_is_refused_in_any_state(folder):
    publish_curve(folder)
    study = plan(batch_size=8, budget_steps=10**6, trials=3, space=SearchSpace({"momentum": Range("LINEAR", 0, 0.9)}))
    publish(folder, study, {i: Ran([(9, 0.3)]) for i in range(3)})
    (row,) = curve_fits.table(folder).to_dict("records")
    assert "several studies at batch size 8 differ" in row["reason"]


def test_a_target_the_trials_did_not_run_for_is_refused(folder):
    publish_curve(folder)
    assert curve_fits.table(folder, ("test_error", 0.19)).loc[0, "verdict"] == "identified"
    (row,) = curve_fits.table(folder, ("test_error", 0.01)).to_dict("records")
    assert row["verdict"] == "not_identified"
    assert "too early for this one" in row["reason"]


def test_points_keep_their_columns_and_order(tmp_path, cli):
    rows = [f"{name},{size},{steps:.1f}" for name in ("b", "a") for size, steps in zip(SIZES, STEPS, strict=True)]
    file = write_points(tmp_path, "\n".join(["panel,batch_size,steps", *rows[::-1]]))
    code, out, err = cli("fit", "--points", file, "--csv")
    assert (code, err) == (0, "")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns) == ["panel", *HEADER.split(",")]
    assert table["panel"].tolist() == ["a", "b"]
    np.testing.assert_allclose(table["critical_batch_size"], 64, rtol=0.01)
    assert set(table["reason"]) == {"points without trials: all batch sizes have equal weights"}


def test_points_alone_make_one_curve_and_gaps_are_named(tmp_path):
    rows = [f"{size},{steps}" for size, steps in zip(SIZES, STEPS, strict=True)]
    rows[0], rows[3] = "1,", "8,"
    file = write_points(tmp_path, "\n".join(["batch_size,steps", *rows]))
    (row,) = fit_tables.table(*points_file.of_file(file)).to_dict("records")
    assert row["verdict"] == "identified"
    assert row["reason"].endswith("left out: batch sizes 1, 8, at which no trial reached the target")


def test_what_steps_writes_can_be_fitted(swept, cli, tmp_path):
    _, out, _ = cli("steps", "--store", swept, "--csv")
    from_points, from_store = (
        fit_tables.table(*points_file.of_file(write_points(tmp_path, out))),
        curve_fits.table(swept).drop(columns=list(curve_fits.COLUMNS)),
    )
    assert list(from_points.columns) == list(from_store.columns)
    ratio = from_points["critical_batch_size"] / from_store["critical_batch_size"]
    assert (np.abs(np.log2(ratio)) < 0.1).all()  # weights differ


def test_the_same_batch_size_twice_is_refused(tmp_path):
    rows = [f"{size},{steps}" for size, steps in zip(SIZES, STEPS, strict=True)]
    file = write_points(tmp_path, "\n".join(["batch_size,steps", *rows, rows[2]]))
    (row,) = fit_tables.table(*points_file.of_file(file)).to_dict("records")
    assert (row["verdict"], row["reason"].split("; ")[-1]) == (
        "not_identified",
        "several rows at batch size 4: add a column that separates their curves",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchsize,steps\n1,2\n", "lacks a column batch_size; did you mean 'batchsize'? choices: batchsize, steps"),
        ("batch_size,step\n1,2\n", "lacks a column steps_low, or a column steps; did you mean"),
        ("batch_size,steps_low\n1,2\n", "lacks a column steps_high, or a column steps"),
        ("batch_size,steps\n1,2\n2,many\n", "steps in line 3 is 'many'. It must be a positive number."),
        ("batch_size,steps\n0,2\n", "batch_size in line 2 is '0'. It must be a positive number."),
        ("batch_size,steps\n,2\n", "batch_size in line 2 is empty. It must be a positive number."),
        (
            "batch_size,steps_low,steps_high\n2,1,2\n1,3,2.5\n",
            "line 3 has steps_low 3 above steps_high 2.5. Swap them.\n",
        ),
        ("batch_size,steps_low,steps_high\n1,-3,2\n", "steps_low in line 2 is '-3'. It must be a positive number."),
        ("batch_size,steps\n", "has no rows"),
        ("", "is not a CSV table"),
        ("batch_size,steps\n1,2,3,4\n1,2,3,4,5\n", "is not a CSV table"),
    ],
)
def test_bad_points_are_told_in_one_line(tmp_path, cli, text, message):
    code, out, err = cli("fit", "--points", write_points(tmp_path, text))
    assert (code, out) == (2, "")
    assert err.startswith("error: --points ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_column_that_splits_a_curve_is_named(tmp_path, cli):
    rows = [f"{size},{steps},{letter}" for size, steps, letter in zip(SIZES, STEPS, "abcdefghijklm", strict=False)]
    _, _, err = cli("fit", "--points", write_points(tmp_path, "\n".join(["batch_size,steps,host", *rows])), "--csv")
    assert f"note: column host splits the points into {len(rows)} curves. Remove it if they are one curve.\n" in err
    both = [f"{size},{steps},{host}" for host in "ab" for size, steps in zip(SIZES, STEPS, strict=True)]
    _, _, err = cli("fit", "--points", write_points(tmp_path, "\n".join(["batch_size,steps,host", *both])), "--csv")
    assert "note: column" not in err


def test_fit_of_a_paper_names_the_command_for_it(cli):
    code, _, err = cli("fit", "--paper", "shallue2018")
    assert (code, err.count("\n")) == (2, 1) and "Use `payoff --paper shallue2018`" in err


def test_missing_points_and_clashing_arguments(tmp_path, cli):
    code, _, err = cli("fit", "--points", tmp_path / "none.csv")
    assert (code, err) == (2, f"error: cannot read --points {tmp_path / 'none.csv'} (No such file or directory)\n")
    for arguments in (["fit"], ["fit", "--points", "a", "--store", "b"], ["fit", "--store"], ["fits"], []):
        code, _, err = cli(*arguments)
        assert code == 2
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
    file = write_points(tmp_path, "batch_size,steps\n1,2\n")
    code, _, err = cli("fit", "--points", file, "--metric", "test_error", "--value", "1")
    line = "error: --metric, --value and --target need --store: a file of points contains its target\n"
    assert (code, err) == (2, line)


def test_a_reader_that_stops_early_hears_no_complaint(swept):
    command = f"{sys.executable} -m analysis steps --store {swept} --csv | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=Path(fits.__file__).parents[2])
    assert done.stdout.startswith("dataset,")
    assert done.stderr == ""


def test_reading_results_needs_no_accelerator_stack():
    code = (
        "import sys, analysis.__main__, analysis.figures.registry; "
        "sys.exit(any(name in sys.modules for name in ('jax', 'flax', 'optax', 'hydra')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(fits.__file__).parents[2]).returncode == 0


def test_a_check_that_cannot_tell_says_why(folder, cli):
    """The sweep of the tutorial: six batch sizes, and pruned."""
    publish_curve(folder, BATCH_SIZES[::2], trials=3, pruning="exact")
    out = cli("fit", "--store", folder, "--checks")[1]
    why = {
        re.split(r" {2,}", line)[1].split(":")[0]: re.split(r" {2,}", line)[2]
        for line in out.splitlines()
        if line.startswith("cannot tell")
    }
    assert all(why[bend].startswith("6 batch sizes, but 7 are needed") for bend in ("slope", "plateau", "knee"))
    pruned = "pruned, so all trials but the best are cut short (pruning=off avoids this)"
    assert [why[each] for each in ("points", "search", "space")] == [pruned] * 3
