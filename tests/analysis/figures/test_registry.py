"""Figures as files: what is written, what is on them, and what is said about the rest."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from analysis.figures import registry

from ..conftest import Ran, plan, publish

OPTIMIZERS = ("momentum", "nesterov", "sgd")


@pytest.fixture(scope="module")
def drawn(swept, tmp_path_factory):
    """The folder with all figures of the swept store, and what was reported."""
    out = tmp_path_factory.mktemp("figures") / "new" / "folder"
    reported = []
    registry.write_all(swept, out, reported.append)
    return out, reported


def texts(svg):
    """What an SVG file says: matplotlib leaves each text beside its outlines as a comment."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    tree = ElementTree.parse(svg, parser)
    return [(node.text or "").strip() for node in tree.iter() if node.tag is ElementTree.Comment]


def test_every_figure_is_written_as_png_and_svg_only(drawn):
    out, reported = drawn
    stems = [f"steps_to_target-digits-fully_connected_64-{name}-test_error-0.1" for name in OPTIMIZERS]
    stems.append("optimizers-digits-fully_connected_64-test_error-0.1")
    pages = [f"summary-digits-fully_connected_64-{name}-test_error-0.1" for name in OPTIMIZERS]
    pages.append("narrowing-digits-fully_connected_64-test_error-0.1")
    *reported, untimed = reported  # nothing was timed in this store
    assert untimed.what == "payoff"
    assert reported == [out / f"{stem}.{suffix}" for stem in stems + pages for suffix in ("png", "svg")]
    assert sorted(out.iterdir()) == sorted(reported)
    for stem in stems:
        height, width, _ = imread(out / f"{stem}.png").shape
        lines = 2 * stem.startswith("steps_to_target")  # under the title, each 0.155 inches high
        assert (width, height) == pytest.approx((1280, 920 + 31 * lines), abs=1)  # 6.4 × 4.6 inches at 200 dpi
        assert ElementTree.parse(out / f"{stem}.svg").getroot().tag.endswith("svg")


def test_a_curve_is_labelled(drawn):
    out, _ = drawn
    said = texts(out / "steps_to_target-digits-fully_connected_64-momentum-test_error-0.1.svg")
    for expected in (
        "digits · fully_connected_64 · momentum",
        "test_error ≤ 0.1 · best of 24 trials · not pruned",
        "batch size (examples)",
        "steps to target",
        "measured, and fit",
        "90 % region",
        "perfect scaling",
        "not reached within this budget",
        "diminishing returns",
        "1,024",
        "2,048",
    ):
        assert expected in said
    assert "critical batch size, if a hyperbola:" in said
    assert any(text.startswith("pays up to ") for text in said)
    assert any(text.startswith("efficient up to ") for text in said)
    assert any("maximal data" in text for text in said)


def test_optimizers_are_told_apart_with_how_far_doubling_pays(drawn):
    out, _ = drawn
    said = texts(out / "optimizers-digits-fully_connected_64-test_error-0.1.svg")
    for name in OPTIMIZERS:
        assert any(re.match(rf"{name}: (\d|at least \d)", text) for text in said)


def test_narrowing_names_both_answers_and_each_optimizer(drawn):
    out, _ = drawn
    said = texts(out / "narrowing-digits-fully_connected_64-test_error-0.1.svg")
    assert {"width of pays up to (octaves)", "width of efficient up to (octaves)", "32 ×"} <= set(said)
    for name in OPTIMIZERS:
        assert any(text.startswith((f"{name}: halved by ", f"{name}: open now")) for text in said)


def test_figures_are_reproducible_and_keep_settings(drawn, swept, tmp_path):
    out, _ = drawn
    before = dict(matplotlib.rcParams)
    registry.write_all(swept, tmp_path, lambda made: None, name="optimizers")
    assert dict(matplotlib.rcParams) == before
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (out / file.name).read_bytes()
    assert "Date" not in (tmp_path / "optimizers-digits-fully_connected_64-test_error-0.1.svg").read_text()


def test_similar_curves_get_separate_files_and_labels(folder, tmp_path, cli):
    for seed in (0, 1):
        for size in (1, 2):
            publish(folder, plan(batch_size=size, seed=seed), {0: Ran([(10 // size, 0.2), (12 // size, 0.05)])})
    code, out, err = cli("figures", "--store", folder, "--out", tmp_path)
    names = [Path(line).name for line in out.splitlines() if "summary" not in line]
    stem = "steps_to_target-digits-fully_connected_64-sgd-test_error-0.1"
    assert (code, sorted(names)) == (0, [f"{stem}-seed_{seed}.{kind}" for seed in (0, 1) for kind in ("png", "svg")])
    said = [texts(tmp_path / f"{stem}-seed_{seed}.svg") for seed in (0, 1)]
    assert sorted(text.rpartition("· ")[2] for page in said for text in page if "best of 1 trial ·" in text) == [
        "seed=0",
        "seed=1",
    ]
    assert "pays up to unknown" in said[0]
    reasons = "for the reasons, add --name optimizers, or another of these"
    assert err == f"not drawn: optimizers (2 pictures), narrowing (2 pictures), payoff: {reasons}\n"
    workload = "digits · fully_connected_64, test_error ≤ 0.1"
    for name, why in (
        ("optimizers", "fewer than two optimizers have a curve"),
        ("narrowing", "no curve has two ends and 8 trials per batch size"),
    ):
        err = cli("figures", "--store", folder, "--out", tmp_path, "--name", name)[2]
        lines = {f"not drawn: {name} of {workload} · seed={seed}: {why}" for seed in (0, 1)}
        assert set(err.splitlines()) == lines and len(err.splitlines()) == 2


def test_what_cannot_be_drawn_is_named(folder, tmp_path, cli):
    publish(folder, plan(), {0: Ran([(1, 0.5)]), 1: Ran([(1, np.nan)], "INFEASIBLE")})
    code, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "steps_to_target")
    assert (code, out) == (0, "")
    assert err == (
        "not drawn: steps_to_target of digits · fully_connected_64 · sgd, test_error ≤ 0.1: "
        "no trial reached the target at any batch size\n"
    )


def test_a_curve_no_fit_would_be_honest_for_is_not_drawn_either(folder, tmp_path, cli):
    for optimizer, trials in (("sgd", 2), ("momentum", 2), ("nesterov", 1)):
        for size, count in ((1, trials), (2, 2)):
            study = plan(optimizer=optimizer, batch_size=size, pruning="exact")
            publish(folder, study, {i: Ran([(9, 0.2), (10 + i, 0.05)]) for i in range(count)})
    _, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "optimizers")
    assert len(out.splitlines()) == 2
    assert err.startswith(
        "not drawn: nesterov among optimizers of digits · fully_connected_64, test_error ≤ 0.1: pruned"
    )


def test_another_target_may_be_drawn(swept, tmp_path, cli):
    code, out, _ = cli(
        "figures",
        "--store",
        swept,
        "--out",
        tmp_path,
        "--name",
        "optimizers",
        "--metric",
        "test_error",
        "--value",
        "0.2",
    )
    assert code == 0
    assert out.splitlines()[0].endswith("optimizers-digits-fully_connected_64-test_error-0.2.png")


def test_list_needs_no_store(cli):
    code, out, err = cli("figures", "--list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()][: len(registry.store_figures())] == registry.store_figures()


def test_bad_arguments_are_told_in_one_line(swept, tmp_path, cli):
    file = tmp_path / "file"
    file.write_text("")
    for arguments, message in (
        (["--store", swept], "figures needs --store DIR and --out DIR, or --list"),
        (
            ["--store", swept, "--out", tmp_path, "--name", "optimiser"],
            "unknown figure 'optimiser'; did you mean 'optimizers'?",
        ),
        (["--store", swept, "--out", file], f"--out {file} is a file. Name a folder."),
        (["--store", swept, "--out", file / "folder"], "Choose another --out DIR"),
        (["--store", tmp_path / "none", "--out", tmp_path], "no store at"),
    ):
        code, out, err = cli("figures", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert message in err
        assert len(err.splitlines()) == 1
