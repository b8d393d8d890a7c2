"""Seconds per epoch and recall of factorizations: the table, the curves in it, and the command that prints them."""

import dataclasses
import io

import pandas as pd
import pytest

from analysis.cores import core_counts, measured_factorizations
from analysis.figures import scaling_figures
from results import store

from ..conftest import Ran, plan, publish

HEADER = [
    *("dataset", "dim", "solver", "table_dtype", "cores", "seconds_per_epoch", "recall_20", "recall_50"),
    *("objective", "emulated", "device_kind"),
]


def law(cores):
    return 0.05 + 1 / cores + 0.002 * (cores - 1)


def test_csv_is_exact(put, folder, cli):
    put({"seconds": (9.0, 0.25, 0.5), "recall": 0.375}, cores=2)
    put({"recall": 0.375, "emulated": True, "device_kind": "TPU v3"}, cores=4, trials=1, dim=8, solver="qr")
    code, out, err = cli("epochs", "--store", folder, "--csv")
    lines = out.splitlines()
    assert (code, lines[0].split(",")[:11]) == (0, HEADER)
    assert lines[1].startswith("webgraph_synthetic,8,qr,float32,4,1.0,0.375,0.1875,333.33334,True,TPU v3,")
    # The first epoch was slow, and the best trial is the second.
    assert lines[2].startswith("webgraph_synthetic,16,rotated_cg,float32,2,1.0,0.5,0.25,333.33334,False,cpu,")
    assert "qr-d8-c4" in err and "(4 cores on 2 physical)" in err and len(err.splitlines()) == 1
    table = pd.read_csv(io.StringIO(out))
    assert list(table) == list(measured_factorizations.COLUMNS)
    assert table["trial"].tolist() == [0, 1]
    assert table["cg_steps"].isna().tolist() == [True, False]
    assert table[["epochs", "bytes_per_core", "physical_cores"]].iloc[0].tolist() == [3, 4096, 2]
    assert {frozenset(words.split()) for words in table["data"]} == {frozenset(["rows=1000", "links=20000"])}
    assert table[["seconds_low", "seconds_high"]].iloc[1].tolist() == [0.75, 9.5]


def test_seconds_of_solving_count_the_epochs_between_evaluations(put, folder):
    put({"seconds": (1.0, 2.0)}, trials=2, evaluate_every=2)
    (held,) = measured_factorizations.load(folder)
    assert held.epochs["epoch"].tolist() == [2, 3] * 2
    assert held.epochs["elapsed"].tolist() == [4.0, 8.0] * 2  # of two halves an epoch
    assert held.last["epoch"].tolist() == [3, 3]


def test_only_studies_of_the_kind_are_opened_and_shown(put, folder, cli):
    other = plan()
    publish(folder, other, {0: Ran([(1, 0.05)])})
    for file in (folder / other.name).glob("*.parquet"):
        file.write_bytes(b"")
    put()
    code, out, _ = cli("epochs", "--store", folder, "--csv")
    assert (code, len(out.splitlines())) == (0, 2)


def test_best_recall_at_the_last_epoch_wins_with_the_smallest_id(put, folder):
    put({"recall": 0.0}, trials=3)
    put({"recall": 0.25}, trials=3, dim=17)
    put({"recall": 0.25, "diverged": (2,)}, trials=3, dim=18)
    put({"diverged": (0, 1, 2)}, trials=3, dim=19)
    held = measured_factorizations.load(folder)
    assert [one.chosen for one in held] == [0, 2, 1, None]
    table = measured_factorizations.table(held)
    assert table["complete"].tolist() == [3, 3, 2, 0]
    assert table["infeasible"].tolist() == [0, 0, 1, 3]
    assert table["trial"].isna().tolist() == [False, False, False, True]
    assert table["recall_20"].isna().tolist() == [False, False, False, True]
    assert table["device_kind"].tolist() == ["cpu"] * 4
    (note,) = measured_factorizations.notes(held)
    assert note.startswith("every trial that ended diverged") and "-d19-" in note
    assert "3" in measured_factorizations.as_text(held).splitlines()[4]


def test_rows_are_in_order_of_what_they_are_and_of_cores(put, folder):
    for cores in (16, 2, 8):
        for solver in ("qr", "cg"):
            put(cores=cores, solver=solver)
    table = measured_factorizations.table(measured_factorizations.load(folder))
    assert list(zip(table["solver"], table["cores"], strict=True)) == [
        (solver, cores) for solver in ("cg", "qr") for cores in (2, 8, 16)
    ]


def test_text_table_marks_emulated_seconds_and_the_next_step(put, folder, cli):
    put(dataset_options={"rows": 1000, "links": 20_000})
    put({"emulated": True}, cores=4, dataset_options={"rows": 2000, "links": 20_000})
    code, out, _ = cli("epochs", "--store", folder)
    header, *rows, empty, following = out.splitlines()
    assert code == 0 and empty == ""
    last = header.index("cores") + len("cores")
    assert [row[:last].split()[-1] for row in rows] == ["1", "4"]
    assert "rows=1000" in rows[0] and "links" not in rows[0] and "1.00*" in rows[1] and "1.00*" not in rows[0]
    assert following == f"next: python -m analysis epochs --store {folder} --fit"


def test_what_was_asked_for_and_has_not_run_is_named(factorization, put, folder, cli):
    waiting = dataclasses.replace(factorization, cores=2)
    store.ask(folder, waiting)
    store.ask(folder, plan())
    code, _, err = cli("epochs", "--store", folder)
    assert (code, err) == (2, f"error: no factorization in {folder} has run yet (planned: {waiting.name})\n")
    put()
    _, _, err = cli("epochs", "--store", folder, "--csv")
    assert err == f"note: not in the table, because no run has ended yet: {waiting.name}\n"


def test_no_factorization_is_told_in_one_line(folder, tmp_path, cli):
    publish(folder, plan(), {0: Ran([(1, 0.05)])})
    code, out, err = cli("epochs", "--store", folder)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: no study of kind cores in {folder}. Fill it with `python -m sweeps ")
    assert cli("epochs", "--store", tmp_path / "none")[2].startswith("error: no store at")


def test_two_core_counts_have_a_gain_and_no_law(put, folder, cli):
    for cores in (1, 2):
        put({"seconds": law(cores) / 2}, cores=cores)
    code, out, _ = cli("epochs", "--store", folder, "--fit", "--csv")
    (row,) = pd.read_csv(io.StringIO(out)).to_dict("records")
    assert code == 0
    assert (row["verdict"], row["core_counts"]) == ("not_identified", "1 2")
    assert row["speedup"] == pytest.approx(law(1) / law(2), rel=1e-6)
    assert row["efficiency"] == pytest.approx(law(1) / law(2) / 2, rel=1e-6)
    assert pd.isna(row["serial_seconds"]) and pd.isna(row["critical_cores"])
    assert row["reason"] == "2 real core counts, but a fit needs 3"


def test_what_a_fit_of_core_counts_needs_is_told_once(put, folder, cli):
    for cores, dim in ((1, 16), (1, 32), (2, 32)):
        put({"seconds": law(cores) / 2}, cores=cores, dim=dim)
    _, out, _ = cli("epochs", "--store", folder, "--fit")
    assert "1 real core count, but a fit needs 3" in out and "2 real core counts, but a fit needs 3" in out
    assert out.count("three unknowns") == 1


def test_emulated_cores_are_on_no_curve(put, folder, cli):
    for cores in (1, 2, 4, 8):
        put({"seconds": law(cores) / 2, "emulated": cores > 2}, cores=cores)
    code, out, err = cli("epochs", "--store", folder, "--fit")
    assert code == 0
    assert "not identified" in out and "4, 8 cores are emulated" in out and "a fit needs 3" in out
    assert "-c4-" in err and "-c8-" in err and "do not measure speed" in err
    (curve,) = core_counts.curves(measured_factorizations.load(folder))
    assert curve.cores.tolist() == [1, 2]


def test_kinds_of_device_never_share_a_curve(put, folder):
    for cores, kind in ((1, "cpu"), (2, "cpu"), (4, "TPU v3"), (8, "TPU v3")):
        put({"device_kind": kind}, cores=cores)
    found = core_counts.curves(measured_factorizations.load(folder))
    assert [curve.cores.tolist() for curve in found] == [[1, 2], [4, 8]]
    assert [curve.verdict for curve in found] == ["not_identified"] * 2


def test_curves_that_look_alike_say_what_differs(put, folder):
    for cores in (1, 2):
        put(cores=cores)
        put(cores=cores, seed=1, dataset_options={"rows": 3000, "links": 20_000}, dataset_version="other")
    core_fits = core_counts.curves(measured_factorizations.load(folder))
    assert sorted(one.reason.partition(";")[0] for one in core_fits) == ["rows=1,000, seed=0", "rows=3,000, seed=1"]


def test_a_law_is_found_again_through_the_command(put, folder, cli):
    for cores in (1, 2, 4, 8, 16, 32):
        put({"seconds": law(cores) / 2, "physical_cores": 32}, cores=cores)
    _, out, err = cli("epochs", "--store", folder, "--fit", "--csv")
    (row,) = pd.read_csv(io.StringIO(out)).to_dict("records")
    assert err == ""
    assert list(row) == list(core_counts.COLUMNS)
    for name, true in (("serial", 0.05), ("parallel", 1.0), ("communication", 0.002)):
        assert row[f"{name}_seconds"] == pytest.approx(true, rel=1e-3)
        assert row[f"{name}_seconds_low"] < true < row[f"{name}_seconds_high"]
    assert row["verdict"] == "identified"
    assert row["critical_cores_low"] < 14.34 < row["critical_cores_high"]
    assert row["reason"] == "by the fit, more than 22.4 cores slow an epoch down"
    text = cli("epochs", "--store", folder, "--fit")[1]
    assert "row 1: speed-up over 1 (efficiency): 2 cores 1.90 × (95%)" in text
    assert text.splitlines()[-1] == f"next: python -m analysis figures --store {folder} --out figures"


def test_validation_chooses_and_test_is_reported(put, folder):
    put({"recall": 0.25, "validation": "opposes"}, trials=3)
    put({"recall": 0.25}, trials=3, dim=17)
    against, along = measured_factorizations.load(folder)
    assert (against.chosen_by, along.chosen_by) == ("validation_recall_20", "validation_recall_20")
    assert (against.chosen, along.chosen) == (0, 2)
    assert (against.result("recall_20"), against.result("validation_recall_20")) == (0.25, 0.25)
    table = measured_factorizations.table([against, along])
    assert table["chosen_by"].tolist() == ["validation", "validation"]
    assert table["recall_20"].tolist() == [0.25, pytest.approx(0.25 * 5 / 3)]
    assert not [note for note in measured_factorizations.notes([against, along]) if "0.1" in note]


def test_of_0_1_test_chooses_and_it_is_said(put, folder):
    put({"validation": None}, trials=3)
    put({"validation": None}, trials=1, dim=17)
    searched, single = measured_factorizations.load(folder)
    assert (searched.chosen_by, searched.chosen) == ("recall_20", 2)
    table = measured_factorizations.table([searched, single])
    assert table["chosen_by"].tolist() == ["test", "test"]
    assert table["validation_recall_20"].isna().all()
    (note,) = measured_factorizations.notes([searched, single])
    assert "chosen by test" in note and searched.study.name in note and single.study.name not in note


def test_a_law_that_misfits_is_told_with_its_verdict(put, folder, cli):
    for cores in (1, 2, 4, 8, 16, 32):
        put({"seconds": law(cores) * (2.0 if cores == 32 else 1.0) / 2, "physical_cores": 32}, cores=cores)
    _, out, _ = cli("epochs", "--store", folder, "--fit", "--csv")
    (row,) = pd.read_csv(io.StringIO(out)).to_dict("records")
    words = "the law misfits: a step beyond half of the cores fits better"
    assert row["misfit"] == "step" and words in row["reason"]
    text = cli("epochs", "--store", folder, "--fit")[1]
    assert "law misfits\n" in text and f"row 1: {words}; " in text
    (curve,) = core_counts.curves(measured_factorizations.load(folder))
    assert scaling_figures.verdict(curve).splitlines()[-1] == words
