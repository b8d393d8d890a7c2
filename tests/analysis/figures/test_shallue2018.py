"""The eleven figures of Shallue et al. 2018, from an archive in the published format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis import workload_studies
from analysis.figures import paper_lines, paper_workloads, registry, shallue2018
from analysis.fitting import curve_fits
from analysis.plotting import steps_panels
from analysis.plotting.picture import Picture, Skipped
from results import store
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.rules.answers import Rule
from sweeps import choices, overrides, planning

from ..conftest import Ran, plan, publish


@pytest.fixture(scope="module")
def held(paper: Any) -> list[workload_studies.WorkloadStudies]:
    return workload_studies.of_store(paper.folder)


def has_data(ax: Axes) -> bool:
    """Whether anything is drawn at a place of its own in the data."""
    drawn = [line for line in ax.get_lines() if line.get_transform() == ax.transData and line.get_marker() != "None"]
    return any(np.isfinite(np.asarray(line.get_xydata(), float)).any() for line in drawn)


def below_title(picture: Picture) -> str:
    return " ".join(text.get_text() for text in picture.figure.texts).replace("\n", " ")


def test_the_table_of_figures_is_that_of_the_notebook() -> None:
    figures = paper_lines.figures()
    assert {number: len(panels) for number, panels in figures.items()} == {
        1: 9, 2: 3, 3: 6, 4: 3, 5: 3, 6: 2, 7: 2, 8: 9, 9: 12, 10: 4, 11: 8,
    }  # fmt: skip
    every = [one for panels in figures.values() for members in panels.values() for one in members]
    assert len(every) == 163
    precision = {one.value for one in every if "precision" in one.metric and one.value is not None}
    assert precision == {0.69}
    assert paper_lines.targets("imagenet", "vgg_11", "nesterov_momentum") == [Target("validation_error", 0.35)]
    (epoch,) = {one.example_budget for one in figures[9][0, 0]}
    assert epoch == 30_301_028


@pytest.mark.slow
def test_every_line_is_found_where_its_preset_was_run(tmp_path: Path) -> None:
    for preset in choices.united("shallue2018/all"):
        line = [f"+experiment={preset}", "batch_size=64", "trials=1", "-m", f"store={tmp_path}"]
        (study,) = planning.request(overrides.command_line(line)).studies
        assert isinstance(study, BatchStudy)
        drawn = dict.fromkeys(study.space, (0.5,))
        publish(tmp_path, study, {0: Ran([(1, 0.5)])}, (study.targets[0].metric,), drawn)
    ours = paper_workloads.PaperWorkloads(workload_studies.of_store(tmp_path))
    every = [one for panels in paper_lines.figures().values() for members in panels.values() for one in members]
    found = {one.workload: ours.find(one) for one in every}
    assert [workload for workload, studies in found.items() if studies is None] == []
    assert len({id(studies) for studies in found.values()}) == len(found)  # each its own
    name = ("simple_cnn_base", "nesterov_momentum")
    longer, plain = found["solution_quality/mnist", *name], found["mnist", *name]
    assert longer and plain
    assert longer.commits[0].plan["budget_steps"] > plain.commits[0].plan["budget_steps"]


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in (1, 8) else pytest.mark.slow) for n in sorted(paper_lines.TITLES)]
)
def test_every_panel_is_drawn_with_every_line(held: list[workload_studies.WorkloadStudies], number: int) -> None:
    (picture,) = shallue2018.figure(paper_workloads.PaperWorkloads(held), number)
    assert not isinstance(picture, Skipped)
    panels = paper_lines.figures()[number]
    axes = picture.figure.axes
    assert len(axes) == len(panels)
    assert all(has_data(ax) for ax in axes)
    by_title: dict[str, Axes] = {ax.get_title(loc="left"): ax for ax in axes}
    for members in panels.values():
        ax = by_title[members[0].title]
        legend = ax.get_legend()
        named = [text.get_text() for text in legend.get_texts()] if legend else []
        assert len(named) == (len(members) if len(members) > 1 else 0)
        series = [one.series.rpartition(",")[0] if number in (5, 6) else one.series for one in members]
        assert all(any(text.startswith(each) for text in named) for each in series if len(members) > 1)


def test_points_are_those_of_the_released_analysis(paper: Any, held: list[workload_studies.WorkloadStudies]) -> None:
    target = Target("validation_error", 0.01)
    known = {answer.path: (answer.steps, answer.trial) for answer in paper.answers if answer.value == target.value}
    found = {}
    for workload in held:
        for commit in workload.commits:
            path = f"{workload.dataset}/{workload.model}/{workload.optimizer}/{commit.study.batch_size}"
            if path in known:
                line = curve_fits.of_workload(*workload_studies.group([commit]), target, Rule("released", 100))
                best = list(line.best.values())
                found[path] = (int(best[0]["steps_high"]), int(best[0]["trial"])) if best else (None, None)
                assert line.selected.points.high.tolist() == [steps for steps in found[path][:1] if steps]
    assert found == known
    assert sum(steps is not None for steps, _ in known.values()) > 30


def test_a_line_takes_equally_many_trials_at_every_batch_size(held: list[workload_studies.WorkloadStudies]) -> None:
    workload = next(one for one in held if one.dataset == "mnist" and one.optimizer == "nesterov_momentum")
    line = curve_fits.of_workload(workload, Target("validation_error", 0.01), Rule("released", 5))
    assert {len(rows) for rows in line.trials.values()} == {5}
    best = line.best
    points = line.selected.points
    assert points.trials == 5
    assert points.high.tolist() == [best[int(size)]["steps_high"] for size in points.batch_size]
    more = curve_fits.of_workload(workload, Target("validation_error", 0.01), Rule("released", 100))
    assert {len(rows) for rows in more.trials.values()} == {more.selected.points.trials}
    assert (more.selected.points.trials or 0) > 5


def test_an_average_precision_is_turned_back(held: list[workload_studies.WorkloadStudies]) -> None:
    (workload,) = [one for one in held if one.dataset == "open_images_v4"]
    target = Target("validation_average_precision_error", 0.69)
    line = curve_fits.of_workload(workload, target, Rule("released", 100))
    assert line.curve.target_text == "validation average precision > 0.31"
    sizes, published = steps_panels.published_steps(line)
    assert (len(sizes), published[0]) == (10, pytest.approx(773_468.7, rel=1e-3))


def test_what_is_missing_is_named_a_line_each(paper: Any, held: list[workload_studies.WorkloadStudies]) -> None:
    some = [one for one in held if one.optimizer == "nesterov_momentum" and one.dataset in ("mnist", "cifar_10")]
    made = list(shallue2018.figure(paper_workloads.PaperWorkloads(some), 4))
    told = [str(one) for one in made if isinstance(one, Skipped)]
    assert told == [
        "shallue2018/figure4, panel 'Simple CNN on MNIST': not in the store: mnist/simple_cnn_base/sgd, "
        "mnist/simple_cnn_base/momentum",
        "shallue2018/figure4, panel 'Transformer Shallow on LM1B': not in the store: lm1b/transformer_shallow/sgd, "
        "lm1b/transformer_shallow/momentum, lm1b/transformer_shallow/nesterov_momentum",
        "shallue2018/figure4, panel 'ResNet-8 on CIFAR-10': not in the store: cifar_10/resnet_8/sgd",
    ]
    picture = made[-1]
    assert not isinstance(picture, Skipped)
    assert [has_data(ax) for ax in picture.figure.axes] == [True, False, True]
    (missing,) = map(str, shallue2018.figure(paper_workloads.PaperWorkloads(some), 10))
    assert missing.startswith("shallue2018/figure10: its workloads are not in the store: lm1b/transformer_wide/")


def test_figures_by_name_through_the_command(paper: Any, tmp_path: Any, cli: Any) -> None:
    code, out, err = cli("figures", "--store", paper.folder, "--out", tmp_path, "--name", "shallue2018/figure5")
    assert (code, err) == (0, "")
    assert [line.rpartition("/")[2] for line in out.splitlines()] == [
        "shallue2018-figure5.png",
        "shallue2018-figure5.svg",
    ]
    assert "Fashion MNIST, error &lt; 0.1: " in (tmp_path / "shallue2018-figure5.svg").read_text()


def test_published_trials_alone_give_the_figures_of_the_paper(
    paper: Any, tmp_path: Any, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_lines, "TITLES", {5: "Data sets"})
    monkeypatch.setattr(
        registry, "FIGURES", {name: registry.FIGURES[name] for name in ("optimizers", "shallue2018/figure5")}
    )
    code, out, err = cli("figures", "--store", paper.folder, "--out", tmp_path)
    assert (code, len(out.splitlines())) == (0, 2)
    assert err.startswith("not drawn: optimizers: no study has a target. Set one with --metric and --value")


def test_own_measurements_are_drawn_under_the_names_of_the_paper(folder: Any) -> None:
    options = {"channels": [32, 64], "width": 1024}
    target = Target("validation_error", 0.01)
    for size in (1, 2, 8, 32, 128, 512):
        study = plan(
            dataset="mnist", model="simple_cnn", model_options=options, optimizer="nesterov", batch_size=size,
            targets=(target,),
        )  # fmt: skip
        publish(folder, study, {0: Ran([(9, 0.5), (10 + 1024 // size, 0.01)])}, ["validation_error"])
    *told, picture = shallue2018.figure(paper_workloads.PaperWorkloads(workload_studies.of_store(folder)), 1)
    assert len(told) == 8
    assert not isinstance(picture, Skipped)
    assert [has_data(ax) for ax in picture.figure.axes] == [True] + 8 * [False]
    assert "In studies measured here, all trials count" in " ".join(text.get_text() for text in picture.figure.texts)


def test_without_the_paper_nothing_is_said_of_it_unless_asked(swept: Any, tmp_path: Any, cli: Any) -> None:
    code, out, err = cli("figures", "--store", swept, "--out", tmp_path, "--name", "shallue2018")
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert len(lines) == 11
    assert all(line.startswith("not drawn: shallue2018/figure") and "its workloads are not" in line for line in lines)


def test_a_batch_size_that_all_are_relative_to_may_be_missing(
    paper: Any, held: list[workload_studies.WorkloadStudies]
) -> None:
    (mnist,) = [one for one in held if one.title == "mnist · fc_1024 · sgd"]
    cut = mnist._replace(commits=tuple(commit for commit in mnist.commits if commit.study.batch_size != 2))
    others = [one for one in held if one.dataset == "mnist" and one.model.startswith("fc") and one is not mnist]
    told = [
        str(one)
        for one in shallue2018.figure(paper_workloads.PaperWorkloads([cut, *others]), 3)
        if isinstance(one, Skipped)
    ]
    assert (
        "shallue2018/figure3, panel 'Fully Connected sizes on MNIST': FC-1024: no steps at the reference "
        "batch size 2" in told
    )


@pytest.mark.parametrize("number", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4)), 8])
def test_every_panel_says_its_goal(held: list[workload_studies.WorkloadStudies], number: int) -> None:
    (picture,) = shallue2018.figure(paper_workloads.PaperWorkloads(held), number)
    assert not isinstance(picture, Skipped)
    for ax in picture.figure.axes:
        (lines,) = [own for own in paper_lines.figures()[number].values() if own[0].title == ax.get_title(loc="left")]
        (value,) = {one.value for one in lines}
        told = 1 - (value or 0) if "precision" in lines[0].metric else value
        assert ax.get_title(loc="right").endswith((f"< {told:g}", f"> {told:g}"))
    assert ("Fashion MNIST: target 0.3 here" in below_title(picture)) == (number == 8)


@pytest.mark.parametrize("number", [pytest.param(5, marks=pytest.mark.slow), 6])
def test_legends_say_what_is_goal_and_what_pays_up_to(
    held: list[workload_studies.WorkloadStudies], number: int
) -> None:
    (picture,) = shallue2018.figure(paper_workloads.PaperWorkloads(held), number)
    assert not isinstance(picture, Skipped)
    for ax in picture.figure.axes:
        legend = ax.get_legend()
        assert legend.get_title().get_text() == "data, goal: pays up to [90 % interval]"
        (members,) = [own for own in paper_lines.figures()[number].values() if own[0].title == ax.get_title(loc="left")]
        for one, entry in zip(members, legend.get_texts(), strict=True):
            data, _, value = one.series.rpartition(", ")
            goal = {"validation_error": "error <", "validation_loss": "loss <"}.get(one.metric, "average precision >")
            assert entry.get_text().startswith(f"{data}, {goal} {value}: ")
        assert [line for line in ax.get_lines() if line.get_label() == "perfect scaling"]
    labels = [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]
    assert [label for label in labels if "with fit" in label] == ["imported, with fit"]
    assert "Imported data: not the published archive, but sha256 " in below_title(picture)


@pytest.mark.parametrize(
    ("number", "title"),
    [pytest.param(1, "Simple CNN on MNIST", marks=pytest.mark.slow), (6, "Simple CNN on MNIST subsets")],
)
def test_steps_are_drawn_at_the_first_evaluation(
    paper: Any, held: list[workload_studies.WorkloadStudies], number: int, title: str
) -> None:
    """The notebook takes the first evaluated step, and divides it by that of the reference batch size."""
    (picture,) = shallue2018.figure(paper_workloads.PaperWorkloads(held), number)
    assert not isinstance(picture, Skipped)
    (ax,) = [ax for ax in picture.figure.axes if ax.get_title(loc="left") == title]
    (members,) = [own for own in paper_lines.figures()[number].values() if own[0].title == title]
    member = members[-1]
    released = {}
    for commit in next(one.commits for one in held if (one.dataset, one.model, one.optimizer) == member.workload):
        tables = store.read(paper.folder, commit.name)
        complete = tables.trials.loc[tables.trials["status"] == "COMPLETE", "trial"].sort_values()[: member.first]
        rows = tables.measurements[tables.measurements["trial"].isin(complete)]
        if (rows[member.metric] < member.value).any():
            released[commit.study.batch_size] = int(rows.loc[rows[member.metric] < member.value, "step"].min())
    unit = released[member.relative_to] if member.relative_to else 1
    markers = ax.containers[-1].lines[0]
    drawn = dict(zip(markers.get_xdata(), markers.get_ydata(), strict=True))
    assert len(drawn) >= 3 and drawn == pytest.approx({size: steps / unit for size, steps in released.items()})
