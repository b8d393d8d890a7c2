"""Every kind of figure, of workloads that anybody has run or imported, what tells these apart, and names of files."""

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from analysis import workload_studies
from analysis.figures import registry, requests
from analysis.figures.requests import FigureRequest
from analysis.plotting import picture
from analysis.plotting.picture import Picture, Skipped
from analysis.workload_studies import distinction
from results.rules.answers import Rule

from ..conftest import Ran, plan, publish

MNIST = "dataset=mnist,model=simple_cnn_base"
TARGETS = [{"metric": "validation_loss", "value": value} for value in (0.83, 0.55, 0.28)]


def drawn(folder: Path, kind: str, where: tuple[str, ...] = (), **more: Any) -> tuple[list[Picture], list[str]]:
    """The pictures of a kind, and what is said about the rest."""
    request = FigureRequest(kind, where, **more)
    with matplotlib.rc_context():
        found, without = requests.with_targets(workload_studies.of_store(folder, where), request)
        made = [*without, *registry.draw(registry.FIGURES[kind], found, request)]
    return [one for one in made if isinstance(one, Picture)], [str(one) for one in made if isinstance(one, Skipped)]


def legend(picture: Picture, place: int = 0) -> list[str]:
    own = picture.figure.axes[place].get_legend()
    return [text.get_text() for text in own.get_texts()] if own else []


def said(picture: Picture) -> str:
    return "\n".join(text.get_text() for text in picture.figure.texts)


def test_steps_has_a_panel_per_workload(swept: Path) -> None:
    (picture,), skipped = drawn(swept, "steps")
    assert skipped == []
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == ["momentum", "nesterov", "sgd"]
    assert picture.names == ("steps", "digits", "fully_connected_64", "test_error", "0.1")
    assert "digits · fully_connected_64 · test error ≤ 0.1 · best of 24 trials at every batch size, not pruned" in said(
        picture
    )
    words = picture.figure.axes[0].texts[0].get_text()
    assert re.fullmatch(r"pays up to\n(\d+(\.\d)? \[\d+(\.\d)?, \d+(\.\d)?\]|at least \d+(\.\d)?)", words)


@pytest.mark.parametrize(
    ("where", "titles"),
    [
        (("optimizer=momentum",), ["digits · fully_connected_64 · momentum"]),
        (("optimizer=momentum", "optimizer=s*"), ["momentum", "sgd"]),
        (("model=fully_connected,optimizer=sgd",), ["digits · fully_connected_64 · sgd"]),
    ],
)
def test_where_chooses_studies(swept: Path, where: tuple[str, ...], titles: list[str]) -> None:
    (picture,), _ = drawn(swept, "steps", where)
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == titles


def test_a_figure_by_name_is_a_kind_of_the_studies_asked_for(swept: Path, tmp_path: Path, cli: Any) -> None:
    command = ("figures", "--store", swept, "--out", tmp_path, "--kind", "optimizers", "--where")
    code, out, err = cli(*command, "optimizer=momentum", "--where", "optimizer=sgd")
    stem = "optimizers-digits-fully_connected_64-test_error-0.1"
    assert (code, err, [Path(line).name for line in out.splitlines()]) == (0, "", [f"{stem}.png", f"{stem}.svg"])
    said = (tmp_path / f"{stem}.svg").read_text()
    assert "momentum: " in said and "nesterov: " not in said


def test_learning_curves_are_a_kind(swept: Path) -> None:
    pictures, _ = drawn(swept, "learning_curves", ("optimizer=sgd,batch_size=16",))
    assert [picture.names[4:] for picture in pictures] == [("b16", "test_error")]


def test_targets_are_the_own_one_and_easier_ones(swept: Path) -> None:
    (picture,), skipped = drawn(swept, "targets", ("optimizer=sgd",))
    assert skipped == []
    assert [text.partition(":")[0] for text in legend(picture)] == [
        f"test error ≤ {v}" for v in (0.1, 0.125, 0.15, 0.2)
    ]


def test_targets_may_be_named_and_those_not_measured_are_told(swept: Path) -> None:
    (picture,), skipped = drawn(swept, "targets", ("optimizer=sgd",), metric="test_error", values=(0.05, 0.2, 0.3))
    assert len(legend(picture)) == 2
    assert skipped == [
        "targets of digits · fully_connected_64 · sgd: trials stopped once they had decided the targets of their "
        "study, which was too early for this one: add it to the targets of the plan (test error ≤ 0.05)"
    ]


@pytest.mark.slow
def test_compare_tells_optimizers_models_and_data_apart(paper: Any, swept: Path) -> None:
    (picture,), _ = drawn(swept, "compare")
    assert [text.partition(":")[0] for text in legend(picture)] == ["momentum", "nesterov", "sgd"]
    assert picture.figure.axes[0].get_ylabel() == "steps to target"
    where = ("dataset=mnist,optimizer=sgd,model=fc*",)
    (picture,), skipped = drawn(paper.folder, "compare", where, by="model")
    assert len(legend(picture)) == 6
    assert skipped == [
        f"compare of mnist · {model} · sgd: it has no target. Give --metric and --value."
        for model in ("fc_1024_1024", "fc_64_64_64")
    ]
    assert picture.figure.axes[0].get_ylabel() == "steps relative to batch size 1"
    (picture,), _ = drawn(paper.folder, "compare", ("model=resnet_50",), by="dataset")
    assert any(text.startswith("open_images_v4, validation average precision ≥ 0.31: ") for text in legend(picture))
    where = ("model=simple_cnn_base,dataset=*mnist,optimizer=nest*",)
    (picture,), _ = drawn(paper.folder, "compare", where, by="dataset")
    assert any(text.startswith("fashion_mnist, validation error ≤ 0.1: ") for text in legend(picture))


def test_what_has_nothing_to_be_compared_with_is_told(swept: Path) -> None:
    pictures, skipped = drawn(swept, "compare", ("optimizer=sgd",))
    assert pictures == []
    assert skipped == [
        "compare of digits · fully_connected_64: fewer than two optimizers have a curve. Use --by to compare others."
    ]


@pytest.mark.slow
def test_metaparameters_of_the_best_trial(paper: Any) -> None:
    (picture,), _ = drawn(paper.folder, "metaparameters", (f"{MNIST},optimizer=momentum",))
    assert [ax.get_ylabel() for ax in picture.figure.axes] == [
        "learning rate",
        "1 − momentum",
        "effective learning rate",
    ]
    (picture,), _ = drawn(paper.folder, "metaparameters", (f"{MNIST},optimizer=sgd",))
    assert [ax.get_ylabel() for ax in picture.figure.axes] == ["learning rate"]


def test_rules_of_thumb_start_at_the_smallest_batch_size(paper: Any) -> None:
    (picture,), _ = drawn(paper.folder, "metaparameters", (f"{MNIST},optimizer=momentum",))
    ax = picture.figure.axes[2]
    measured, linear, root = ax.get_lines()[:3]
    sizes, best = measured.get_xdata(), measured.get_ydata()
    np.testing.assert_allclose(linear.get_ydata(), best[0] * sizes / sizes[0])
    np.testing.assert_allclose(root.get_ydata(), best[0] * np.sqrt(sizes / sizes[0]))


def test_scatter_has_a_panel_per_batch_size(paper: Any) -> None:
    where = ("dataset=lm1b,model=transformer_base,batch_size=512", "model=transformer_base,batch_size=1024")
    (picture,), _ = drawn(paper.folder, "scatter", where, metric="validation_loss", values=(3.9,), steps=(25_000,))
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == ["batch size 512", "batch size 1,024"]
    assert {ax.get_xlim() for ax in picture.figure.axes} == {picture.figure.axes[0].get_xlim()}
    assert "the goal is validation loss ≤ 3.9 within 25,000 steps" in said(picture)
    infeasible, missed, reached, best = picture.figure.axes[0].get_lines()[-4:]
    count = [len(one.get_xdata()) for one in (infeasible, missed, reached, best)]
    assert count[0] > 0 and count[3] <= 1
    pictures, skipped = drawn(paper.folder, "scatter", (f"{MNIST},optimizer=sgd",))
    assert pictures == []
    assert skipped[0].endswith("its search space (learning_rate) lacks learning_rate or momentum")


def test_trials_are_split_by_values_or_by_thirds(paper: Any) -> None:
    (picture,), _ = drawn(paper.folder, "split", ("dataset=imagenet,model=resnet_50",))
    assert legend(picture) == [f"label smoothing = {value}" for value in ("0", "0.01", "0.1")]
    (picture,), _ = drawn(paper.folder, "split", (f"{MNIST},optimizer=momentum",), by="momentum")
    assert len(legend(picture)) == 3
    assert picture.names[-1] == "momentum"


def test_budgets_of_steps_and_examples(paper: Any, swept: Path) -> None:
    where = ("dataset=solution_quality/mnist",)
    (picture,), _ = drawn(paper.folder, "budget", where, steps=(1000, 10_000))
    assert legend(picture) == ["1,000 steps", "10,000 steps"]
    assert len(legend(picture, 1)) == 8
    (picture,), _ = drawn(swept, "budget", ("optimizer=sgd",))
    (words,) = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert words == "beyond the target, at which trials stopped (not comparable)"


def test_pruned_trials_tell_no_more_than_steps(folder: Path) -> None:
    for optimizer in ("sgd", "momentum"):
        for size in (1, 2, 4):
            study = plan(optimizer=optimizer, batch_size=size, pruning="exact")
            publish(
                folder, study, {0: Ran([(64 // size, 0.2), (99, 0.05)]), 1: Ran([(9, 0.2)], "INCOMPLETE", "pruned")}
            )
    for kind in ("scatter", "split", "budget"):
        pictures, skipped = drawn(folder, kind, ("optimizer=sgd",))
        assert pictures == []
        assert "pruned" in skipped[0] and "pruning=off" in skipped[0]
    for kind in ("steps", "targets", "compare"):
        assert drawn(folder, kind)[0]
    _, skipped = drawn(folder, "steps", rule=Rule("released", 100))
    assert "--rule minimum" in skipped[0]


def test_kinds_through_the_command(swept: Path, tmp_path: Path, cli: Any) -> None:
    line = ["figures", "--store", swept, "--out", tmp_path]
    code, out, err = cli(*line, "--kind", "steps", "--where", "optimizer=sgd")
    assert (code, err) == (0, "")
    stem = tmp_path / "steps-digits-fully_connected_64-sgd-test_error-0.1"
    assert out.splitlines() == [f"{stem}.png", f"{stem}.svg"]
    for more, message in (
        (["--kind", "step"], "unknown kind 'step'; did you mean 'steps'?"),
        (
            ["--kind", "steps", "--where", "optimiser=sgd"],
            "no field 'optimiser'; did you mean 'optimizer'?",
        ),
        (["--kind", "steps", "--where", "optimizer"], "--where takes FIELD=VALUE"),
        (
            ["--kind", "steps", "--where", "optimizer=adam"],
            "no study meets --where optimizer=adam. The store has digits/",
        ),
        (["--kind", "steps", "--metric", "test_eror"], "unknown metric 'test_eror'"),
        (["--kind", "steps", "--metric", "test_error", "--value", "-1"], "--value: test_error is never below 0"),
        (["--kind", "steps", "--value", "1"], "--value needs --metric"),
        (["--kind", "compare", "--by", "size"], "unknown --by 'size'"),
        (["--kind", "split", "--by", "width"], "no trial has a metaparameter 'width'; choices: learning_rate"),
        (["--kind", "budget", "--steps", "0"], "--steps must be at least 1"),
        (["--kind", "steps", "--name", "optimizers"], "--name and --kind exclude each other."),
        (["--where", "optimizer=sgd"], "--where needs --kind"),
        (["--rule", "released"], "--rule and --first need --kind"),
        (["--best-of", "2,4"], "--kind searches was removed. fit and payoff use the expected best of k trials."),
        (["--kind", "steps", "--first", "3"], "--first must be at least 1 and needs --rule released"),
    ):
        code, out, err = cli(*line, *more)
        assert (code, out) == (2, ""), more
        assert err.startswith("error: ") and message in err and len(err.splitlines()) == 1, err


def test_of_options_of_data_only_those_that_differ_are_told() -> None:
    options = {"label": "species", "seed": 0, "test": 0.2, "validation": 0.2}
    plans = {
        "a": {"seed": 0, "dataset_options": options},
        "b": {"seed": 0, "dataset_options": options | {"seed": 1, "test": 0.1}},
        "c": {"seed": 0},  # of data without options
    }
    assert distinction("a", {"a": plans["a"], "b": plans["b"]}) == "dataset.seed=0, dataset.test=0.2"
    assert distinction("c", plans) == ""
    assert distinction("b", {"b": plans["b"]}) == ""


def test_a_file_name_is_no_longer_than_file_systems_take() -> None:
    words = distinction("a", {"a": {"targets": TARGETS, "x": "y" * 200}, "b": {"targets": [], "x": ""}})
    names = [picture.slug(("steps_to_target", words, f"{last}")) for last in range(2)]
    taken: set[str] = set()
    stems = [picture.unique_stem(name, taken) for name in names]
    assert len(set(stems)) == 2
    assert max(len(f"{stem}.png".encode()) for stem in stems) < 200
    assert picture.slug(("short", "a/b")) == "short-a_b"
