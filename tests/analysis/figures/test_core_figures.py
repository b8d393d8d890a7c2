"""Figures of factorizations as files: what is on them, and what is said about the rest."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import pytest

from analysis.figures import registry
from results.plans.search_space import Range, SearchSpace

from ..conftest import Ran, plan, publish

SKIPPED = {
    "precision": "no two factorizations differ only in number format",
    "solvers": "no two factorizations differ only in solver",
    "tuning": "no factorization has 3 trials. Run more with trials=16.",
}


def said(svg):
    """What an SVG file says, in one string: matplotlib leaves each text beside its outlines as a comment."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    nodes = ElementTree.parse(svg, parser).iter()
    return "\n".join((node.text or "").strip() for node in nodes if node.tag is ElementTree.Comment)


def pictures(out):
    return sorted(file.stem for file in Path(out).glob("*.svg"))


def test_scaling_studies_make_epochs(put, folder, tmp_path, cli):
    for cores in (1, 2, 4, 8, 16):
        put({"seconds": 0.025 + 0.5 / cores + 0.001 * (cores - 1), "physical_cores": 16}, cores=cores)
    code, out, err = cli("figures", "--store", folder, "--out", tmp_path)
    stem = "epochs-webgraph_synthetic-d16-rotated_cg-float32"
    pay_off = "payoff_cores-webgraph_synthetic-matrix_factorization_16-als_rotated_cg-cpu"
    assert (code, pictures(tmp_path)) == (0, [stem, pay_off])
    assert len(out.splitlines()) == 4
    first, *others = SKIPPED
    named = ", ".join([first, *others])
    assert err == f"not drawn: {named}: for the reasons, add --name {first}, or another of these\n"
    for name, why in SKIPPED.items():
        err = cli("figures", "--store", folder, "--out", tmp_path / name, "--name", name)[2]
        assert err == f"not drawn: {name}: {why}\n"
    told = said(tmp_path / f"{stem}.svg")
    for expected in (
        "webgraph_synthetic · d = 16 · rotated_cg (2 steps) · float32",
        "rows 1,000 · links 20,000 · cpu · median and middle half of 3 epochs",
        "measured",
        "fit: serial + parallel / c + communication",
        "perfect scaling",
        "cores' time is lost",
        "published: ALX (2021)",
        "other data, TPU cores",
        "at most 90 min",
    ):
        assert expected in told


def test_two_core_counts_say_what_they_cannot_show(put, folder, tmp_path, cli):
    for cores in (1, 2):
        put({"seconds": 0.5 / cores}, cores=cores, dataset="movielens", dataset_options={})
    cli("figures", "--store", folder, "--out", tmp_path)
    told = said(tmp_path / "epochs-movielens-d16-rotated_cg-float32.svg")
    assert "2 cores are 2.00 × as fast as 1: efficiency 100%" in told
    assert "the speed-up of more cores is not identified" in told
    assert "fit" not in told and "ALX" not in told


def test_emulated_cores_are_named_and_not_drawn(put, folder, tmp_path, cli):
    names = {cores: put({"emulated": cores > 2}, cores=cores).name for cores in (1, 2, 4)}
    _, _, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "epochs")
    why = "times on emulated cores do not measure speed"
    assert err == f"not drawn: epochs on emulated cores: {why}: {names[4]} (4 cores on 2 physical)\n"
    assert "not drawn: 4 cores, which were emulated" in said(next(tmp_path.glob("*.svg")))


def test_nothing_but_emulated_cores_leaves_no_curve(put, folder, tmp_path, cli):
    for cores in (1, 4):
        put({"emulated": cores > 1}, cores=cores)
    _, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "epochs")
    assert (out, len(err.splitlines())) == ("", 2)
    assert "no factorization was timed on two numbers of real cores" in err


def test_number_formats_are_compared_on_one_trial(put, folder, tmp_path, cli):
    put()
    put(table_dtype="bfloat16")
    put({"diverged": (0, 1)}, table_dtype="bfloat16", solver_dtype="bfloat16")
    put(cores=2, table_dtype="bfloat16")  # on further cores the same is not drawn twice
    cli("figures", "--store", folder, "--out", tmp_path, "--name", "precision")
    assert pictures(tmp_path) == ["precision-webgraph_synthetic-d16-rotated_cg"]
    told = said(tmp_path / "precision-webgraph_synthetic-d16-rotated_cg.svg")
    for expected in (
        "float32",
        "bfloat16 tables, float32 solver",
        "bfloat16: diverged",
        "trial 1: α = 0.18, λ = 0.018",
    ):
        assert expected in told
    assert "best of 2" in told


def test_solvers_are_compared_on_the_fewest_real_cores(put, folder, tmp_path, cli):
    for cores in (1, 2, 4):
        for solver in ("cg", "qr") if cores > 1 else ("cg",):
            put({"seconds": 0.25, "emulated": cores > 2}, cores=cores, solver=solver)
    _, _, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "solvers")
    assert (pictures(tmp_path), err) == (["solvers-webgraph_synthetic-d16-float32"], "")
    told = said(tmp_path / "solvers-webgraph_synthetic-d16-float32.svg")
    assert "cg (2 steps): 0.500 s per epoch" in told and "qr: 0.500 s per epoch" in told and "float32 · 2 cores" in told


def test_solvers_on_emulated_cores_alone_are_refused(put, folder, tmp_path, cli):
    for solver in ("cg", "qr"):
        put({"emulated": True}, cores=4, solver=solver)
    _, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "solvers")
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("not drawn: solvers on emulated cores: ") and "-qr-d16-c4-" in err


@pytest.mark.parametrize("diverged", [(), (1,), (0, 1, 2, 3)])
def test_tuning_marks_the_best_and_what_diverged(put, folder, tmp_path, cli, diverged):
    for cores in (1, 2):
        put({"diverged": diverged}, trials=4, cores=cores)
    code, _, _ = cli("figures", "--store", folder, "--out", tmp_path, "--name", "tuning")
    assert (code, len(pictures(tmp_path))) == (0, 1)
    told = said(next(tmp_path.glob("*.svg")))
    assert (f"diverged ({len(diverged)})" in told) == bool(diverged)
    assert ("best: α = " in told) == (len(diverged) < 4)


def test_a_fixed_penalty_is_no_trouble(put, folder, tmp_path, cli):
    space = SearchSpace(
        {"unobserved_weight": Range("LINEAR", 0.1, 1.0), "norm_penalty": Range("DISCRETE", values=(0.1,))}
    )
    put(trials=3, space=space)
    assert cli("figures", "--store", folder, "--out", tmp_path, "--name", "tuning")[0] == 0


def test_store_of_both_kinds_draws_the_figures_of_both(put, folder, tmp_path, cli):
    for size in (1, 2):
        publish(folder, plan(batch_size=size), {0: Ran([(10 // size, 0.2), (12 // size, 0.05)])})
    _, _, err = cli("figures", "--store", folder, "--out", tmp_path / "batch")
    assert (
        err == "not drawn: optimizers, narrowing, payoff: for the reasons, add --name optimizers, or another of these\n"
    )
    for cores in (1, 2):
        put(cores=cores)
    cli("figures", "--store", folder, "--out", tmp_path / "both")
    assert [stem.partition("-")[0] for stem in pictures(tmp_path / "both")] == [
        *("epochs", "payoff_cores", "steps_to_target", "summary")
    ]


def test_missing_figure_of_a_kind_is_named_if_requested(put, folder, tmp_path, cli):
    put()
    code, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "optimizers")
    assert (code, out) == (0, "")
    assert err == f"not drawn: optimizers: {folder} has no study of kind batch\n"


def test_studies_without_targets_do_not_block_factorizations(put, folder, tmp_path, cli):
    publish(folder, plan(targets=()), {0: Ran([(1, 0.5)])})
    put(trials=3)
    code, _, err = cli("figures", "--store", folder, "--out", tmp_path)
    assert (code, pictures(tmp_path)) == (0, ["tuning-webgraph_synthetic-d16-rotated_cg-float32"])
    assert err.startswith("not drawn: steps_to_target, optimizers, summary, narrowing, payoff: no study has a target. ")


def test_core_figures_are_reproducible_and_keep_settings(put, folder, tmp_path):
    put(cores=1, trials=3)
    put(cores=2, trials=3)
    before = dict(matplotlib.rcParams)
    for out in ("one", "two"):
        registry.write_all(folder, tmp_path / out, lambda made: None)
    assert dict(matplotlib.rcParams) == before
    files = sorted((tmp_path / "one").iterdir())
    assert len(files) == 6
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_figures_after_alx_say_so_and_have_its_name_once(put, folder, tmp_path, cli):
    for cores in (1, 2):
        put({"seconds": 0.5 / cores}, cores=cores)
    code, _, _ = cli("figures", "--store", folder, "--out", tmp_path, "--name", "alx2022")
    assert (code, pictures(tmp_path)) == (0, ["alx2022-epochs-webgraph_synthetic-d16-rotated_cg-float32"])
    assert all("after ALX, Mehta et al. 2021" in said(file) for file in tmp_path.glob("*.svg"))
    cli("figures", "--store", folder, "--out", tmp_path / "plain", "--name", "epochs")
    assert "after ALX" not in said(next((tmp_path / "plain").glob("*.svg")))
