"""Answers of a store, and the door that prints them."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import steps
from results import store
from results.study import Range, SearchSpace, Target

from .conftest import ERROR, Ran, plan, publish, sweep

HEADER = (
    "dataset,model,optimizer,batch_size,target_metric,target_value,steps_low,steps_high,trial,"
    "complete,infeasible,incomplete,seconds_per_epoch"
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


def test_csv_is_exact(small, door):
    code, out, err = door("steps", "--store", small, "--csv")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        HEADER,
        "digits,fully_connected_64,momentum,16,test_error,0.05,1,2,0,2,0,0,0.25",
        "digits,fully_connected_64,momentum,16,test_error,0.1,0,1,0,2,0,0,0.25",
        "digits,fully_connected_64,sgd,16,test_error,0.1,2,4,0,3,1,1,1.5",
        "digits,fully_connected_64,sgd,32,test_error,0.1,,,,1,0,0,",
    ]


def test_text_is_aligned_and_says_what_is_next(small, door):
    code, out, _ = door("steps", "--store", small)
    lines = out.splitlines()
    assert code == 0
    assert "test_error ≤ 0.05" in lines[1]
    assert "(1, 2]" in lines[1]
    assert "not reached" in lines[4]
    assert lines[0].index("batch size") + len("batch size") == lines[1].index("16") + 2
    assert lines[-1] == f"next: python -m analysis fit --store {small}"


def test_another_target_may_be_asked_for(small, door):
    _, out, err = door("steps", "--store", small, "--csv", "--metric", "test_error", "--value", "0.3")
    table = pd.read_csv(io.StringIO(out))
    assert table["steps_high"].tolist() == [1, 2, 4]
    assert err == ""


def test_a_harder_target_than_the_trials_ran_for_is_flagged(small, door):
    _, _, err = door("steps", "--store", small, "--csv", "--metric", "test_error", "--value", "0.01")
    assert err.startswith("note: trials stopped once they had decided their own targets")
    assert len(err.splitlines()) == 1


def test_a_metric_only_some_studies_recorded(folder, door):
    publish(folder, plan(batch_size=1), {0: Ran([(1, 0.05)])})
    publish(folder, plan(batch_size=2), {0: Ran([(1, 0.05, 1.0)])}, metrics=("test_error", "test_loss"))
    _, out, _ = door("steps", "--store", folder, "--csv", "--metric", "test_loss", "--value", "2")
    assert [line.split(",")[6:9] for line in out.splitlines()[1:]] == [["", "", ""], ["0", "1", "0"]]


def test_no_study_reached_anything(folder, door):
    publish(folder, plan(), {0: Ran([(1, 0.5)])})
    code, out, _ = door("steps", "--store", folder, "--csv")
    assert (code, out.splitlines()[1].split(",")[6:9]) == (0, ["", "", ""])


def test_a_store_in_which_everything_failed(folder, door):
    publish(folder, plan(), {0: Ran([], "INCOMPLETE", "failed")}, metrics=(), emulated=None)
    code, out, _ = door("steps", "--store", folder, "--csv")
    assert (code, out.splitlines()[1]) == (0, "digits,fully_connected_64,sgd,16,test_error,0.1,,,,0,0,1,")
    assert door("steps", "--store", folder, "--metric", "test_error", "--value", "1")[2] == (
        "error: unknown metric 'test_error'; choices: none\n"
    )
    assert "0 batch sizes left, a fit needs 5" in door("fit", "--store", folder)[1]


def test_a_study_without_a_run_is_named(folder, door):
    publish(folder, plan(batch_size=1), {0: Ran([(1, 0.05)])})
    waiting = plan(batch_size=2)
    store.ask(folder, waiting)
    _, out, err = door("steps", "--store", folder, "--csv")
    assert len(out.splitlines()) == 2
    assert err == f"note: not in the table, as no run has ended yet: {waiting.name}\n"


def test_rows_are_in_order_and_studies_keep_their_curve(folder):
    wider = SearchSpace({"learning_rate": Range("LOG", 1e-4, 10.0)})
    for batch_size in (1024, 4, 128):
        publish(folder, plan(batch_size=batch_size, budget_steps=99 + batch_size, space=wider), {0: Ran([(1, 0.05)])})
    publish(folder, plan(batch_size=4, seed=1), {0: Ran([(1, 0.05)])})
    table = steps.table(store.read(folder))
    assert table["batch_size"].tolist() == [4, 4, 128, 1024]
    assert table["curve"].nunique() == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--metric", "tset_error", "--value", "1"],
            "unknown metric 'tset_error'; did you mean 'test_error'? choices: ",
        ),
        (["--metric", "train_loss", "--value", "1"], "choices: test_error"),
        (["--metric", "test_error"], "--metric and --value go together"),
        (["--value", "0.1"], "--metric and --value go together"),
        (["--metric", "test_error", "--value", "nan"], "target on test_error must be a finite number, not nan"),
    ],
)
def test_mistakes_are_told_in_one_line(small, door, arguments, message):
    code, out, err = door("steps", "--store", small, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_missing_and_empty_stores(folder, door):
    assert door("steps", "--store", folder)[::2] == (
        2,
        f"error: no store at {folder}; make one with `python -m sweeps store={folder}`, or name another\n",
    )
    folder.mkdir()
    code, _, err = door("steps", "--store", folder)
    assert (code, err.splitlines()) == (
        2,
        [f"error: no study in {folder} has run yet; fill it with `python -m sweeps store={folder}`"],
    )


def test_studies_without_targets_need_one(folder, door):
    publish(folder, plan(targets=()), {0: Ran([(1, 0.05)])})
    code, _, err = door("steps", "--store", folder)
    assert code == 2
    assert "ask for one with --metric and --value (recorded metrics: test_error)" in err
    assert door("steps", "--store", folder, "--metric", "test_error", "--value", "0.1")[0] == 0


def test_pruning_changes_no_answer(folder, swept):
    sweep(folder, pruning="exact")
    columns = ["optimizer", "batch_size", "steps_low", "steps_high", "trial"]
    pruned, whole = (steps.table(store.read(s))[columns] for s in (folder, swept))
    pd.testing.assert_frame_equal(pruned, whole)
