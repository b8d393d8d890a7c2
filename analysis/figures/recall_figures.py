"""Figures of factorization quality: recall and objective by number format, solver and tuning."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis import text
from analysis.cores import core_counts
from analysis.cores.measured_factorizations import SPLITS, TEST, MeasuredFactorization
from analysis.plotting import draw, labels
from analysis.plotting.draw import GRID, INK, Look, Style
from analysis.plotting.picture import Picture, Pictures, Skipped, panels
from results.aliases import Fields
from results.grouping import grouped
from results.plans.study import canonical

FEWEST_TRIALS = 3  # minimum trials for a plane of metaparameters
FORMATS, SOLVERS = ("table_dtype", "solver_dtype"), ("solver", "cg_steps")
STEEP = 3.0  # the axis of the objective is logarithmic if it spans more than this factor
APART = 5.0  # the axis of seconds is logarithmic if the slowest curve takes over this multiple of the fastest
DIVERGED = "#D55E00"
WHITE: Look = {"markeredgecolor": "white", "markeredgewidth": 0.6}
MARK: Look = {"linestyle": "none", "markersize": 8, "markeredgewidth": 1.5}


class Axis(NamedTuple):
    """The horizontal axis of curves over epochs: values for a trial's epochs, the label, and whether it shows time."""

    values: Callable[[pd.DataFrame], pd.Series]
    label: str
    timed: bool


EPOCHS = Axis(lambda frame: frame["epoch"], "epoch", False)
SECONDS = Axis(lambda frame: frame["elapsed"], "seconds of solving", True)


def precision(studies: Sequence[MeasuredFactorization]) -> Pictures:
    """Yields one picture per factorization: recall and objective against epochs, with a line per number format."""
    several = by_format(studies)
    if not several:
        yield Skipped("precision", "no two factorizations differ only in number format")
    for group in several:
        first = group[0]
        title = f"{first.study.dataset} · d = {first.study.dim} · {labels.solver(first)}"
        names = (first.study.dataset, f"d{first.study.dim}", first.study.solver)
        yield Picture(names, _courses(title, group, labels.formats, EPOCHS))


def solvers(studies: Sequence[MeasuredFactorization]) -> Pictures:
    """Yields one picture per factorization: recall and objective against seconds, with a line per solver.

    The picture uses the smallest number of real cores on which several solvers ran.
    """
    groups = _differing(studies, SOLVERS)
    several = by_solver(studies)
    if groups and not several:
        yield labels.skip_emulated("solvers", [factorization for group in groups for factorization in group])
    elif not groups:
        yield Skipped("solvers", "no two factorizations differ only in solver")
    for group in several:
        first = group[0]
        cores = labels.span([first.study.cores], "core")
        title = f"{first.study.dataset} · d = {first.study.dim} · {labels.formats(first)} · {cores}"
        yield Picture(labels.names(first, with_solver=False), _courses(title, group, labels.solver, SECONDS))


def tuning(studies: Sequence[MeasuredFactorization]) -> Pictures:
    """Yields one picture per factorization: the recall by which the best trial is selected, over two metaparameters."""
    several = by_trial(studies)
    if not several:
        yield Skipped("tuning", f"no factorization has {FEWEST_TRIALS} trials. Run more with trials=16.")
    for members in several:
        first = members[0]  # the trials are the same for all core counts
        last, study = first.last, first.study
        feasible = last[(last["status"] != "INFEASIBLE") & last[first.chosen_by].notna()]
        lost = first.trials[first.trials["status"] == "INFEASIBLE"]
        goal = text.joined(labels.size(first), f"{len(first.trials)} trials of {labels.span([study.epochs], 'epoch')}")
        figure, (ax,) = panels(labels.title(first), goal, (1.0,))
        ax.set_position((0.115, 0.115, 0.66, 0.70))
        for set_scale, name in ((ax.set_xscale, "unobserved_weight"), (ax.set_yscale, "norm_penalty")):
            set_scale("linear" if study.space[name].scale in ("LINEAR", "INTEGER") else "log")
        where = (feasible["unobserved_weight"], feasible["norm_penalty"])
        dots = ax.scatter(
            *where, c=feasible[first.chosen_by], cmap="cividis", s=50, edgecolors="white", linewidths=0.6, zorder=3
        )
        if first.chosen is not None:
            best = last.loc[first.chosen]
            alpha, penalty = best["unobserved_weight"], best["norm_penalty"]
            label = f"best: α = {alpha:.2g}, λ = {penalty:.2g}, {recalls(first, 'Recall@20')}"
            ring: Look = MARK | {"markersize": 12, "markerfacecolor": "none", "markeredgecolor": INK}
            ax.plot([alpha], [penalty], marker="o", label=label, zorder=4, **ring)
        if len(lost):
            x, y = lost["unobserved_weight"], lost["norm_penalty"]
            ax.plot(x, y, marker="x", color=DIVERGED, label=f"diverged ({len(lost)})", zorder=4, **MARK)
        if len(feasible):
            bar = figure.colorbar(dots, cax=figure.add_axes((0.80, 0.115, 0.025, 0.70)))
            bar.set_label(f"Recall@20 of {SPLITS[first.chosen_by]} at the last epoch")
        ax.set(xlabel="unobserved weight α", ylabel="norm penalty λ")
        ax.margins(0.08)
        ax.grid(**GRID)
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2, columnspacing=1.2)
        yield Picture(labels.names(first), figure)


def by_format(studies: Sequence[MeasuredFactorization]) -> list[list[MeasuredFactorization]]:
    """Groups factorizations that differ only in number format."""
    return _differing([members[0] for members in _grouped(studies, ("cores",))], (*FORMATS, "cores"))


def by_solver(studies: Sequence[MeasuredFactorization]) -> list[list[MeasuredFactorization]]:
    """Groups factorizations that differ only in solver, on the fewest real cores with several solvers."""
    several = _differing([study for study in studies if core_counts.is_real(study)], SOLVERS)
    fewest = {canonical(_without(group[0], (*SOLVERS, "cores"))): group for group in reversed(several)}
    return list(reversed(fewest.values()))


def by_trial(studies: Sequence[MeasuredFactorization]) -> list[list[MeasuredFactorization]]:
    """Groups factorizations that differ only in the number of cores and have enough trials for a plane of points."""
    return _grouped([study for study in studies if len(study.trials) >= FEWEST_TRIALS], ("cores",))


def best_of(group: Sequence[MeasuredFactorization]) -> MeasuredFactorization:
    """Returns the factorization with the best Recall@20 on the rows used to select trials."""
    return max(
        group,
        key=lambda factorization: (
            -1.0 if factorization.chosen is None else factorization.result(factorization.chosen_by)
        ),
    )


def recalls(factorization: MeasuredFactorization, name: str) -> str:
    """Describes the best trial's Recall@20 on the rows used to select it and on the test rows."""
    splits = [
        f"{factorization.result(column):.4f} of {SPLITS[column]}"
        for column in dict.fromkeys((factorization.chosen_by, TEST))
    ]
    return f"{name} {', '.join(splits)}"


def trial_of(best: MeasuredFactorization) -> int:
    """Returns the number of the best trial, or of the first trial if all diverged."""
    return int(best.trials.index[0]) if best.chosen is None else best.chosen


def _courses(
    title: str, group: Sequence[MeasuredFactorization], label: Callable[[MeasuredFactorization], str], axis: Axis
) -> Figure:
    """Draws the recall and objective of one trial, the best member's best trial, for each member of ``group``."""
    best = best_of(group)
    trial = trial_of(best)
    row = best.trials.loc[trial]
    choice = f"trial {trial}: α = {row['unobserved_weight']:.2g}, λ = {row['norm_penalty']:.2g}"
    if len(best.trials) > 1:
        choice += f", best of {len(best.trials)}"
    figure, (left, right) = panels(title, text.joined(labels.size(best), choice), (1.0, 1.0))
    objectives = pd.concat([factorization.epochs_of(trial)["objective"] for factorization in group])
    for factorization, style in zip(group, draw.styles(), strict=False):
        _course(left, right, factorization, trial, style, label(factorization), axis)
    left.set_ylabel("Recall@20, test rows")
    left.set_ylim(bottom=0)
    right.set_ylabel("objective")
    if objectives.max() > STEEP * objectives.min() > 0:
        right.set_yscale("log")
        right.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        right.yaxis.set_minor_locator(NullLocator())
    right.yaxis.set_major_formatter(EngFormatter(sep=""))
    ends = [
        axis.values(factorization.epochs_of(trial)).max()
        for factorization in group
        if len(factorization.epochs_of(trial))
    ]
    spread = axis.timed and ends and max(ends) > APART * min(ends) > 0
    for ax in (left, right):
        ax.set_xlabel(axis.label)
        if spread:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        else:
            ax.set_xlim(left=0)
        ax.grid(**GRID)
        if not axis.timed:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(loc="best")
    return figure


def _course(
    left: Axes, right: Axes, factorization: MeasuredFactorization, trial: int, style: Style, label: str, axis: Axis
) -> None:
    """Draws the recall and objective of a trial. If the trial diverged, crosses mark the last finite values."""
    frame = factorization.epochs_of(trial)
    notes = []
    if axis.timed and len(frame):
        notes.append(f"{text.number(frame['seconds'].median())} s per epoch")
    if factorization.trials["status"].get(trial) == "INFEASIBLE":
        notes.append("diverged")
    shown = f"{label}: {', '.join(notes)}" if notes else label
    x = axis.values(frame).to_numpy(float)
    for ax, name in ((left, "recall_20"), (right, "objective")):
        y = frame[name].to_numpy()
        ax.plot(x, y, markersize=5, zorder=3, linewidth=1.4, label=shown, **style.look, **WHITE)
        finite = np.flatnonzero(np.isfinite(y))
        if len(finite) and len(finite) < len(y):
            last = finite[-1:]
            ax.plot(x[last], y[last], marker="x", color=style.color, zorder=5, **(MARK | {"markersize": 10}))


def _differing(studies: Sequence[MeasuredFactorization], fields: Sequence[str]) -> list[list[MeasuredFactorization]]:
    """Returns groups of two or more studies that differ only in ``fields``."""
    return [group for group in _grouped(studies, fields) if len(group) > 1]


def _grouped(studies: Sequence[MeasuredFactorization], fields: Sequence[str]) -> list[list[MeasuredFactorization]]:
    """Returns groups of studies that differ only in ``fields``."""
    return list(grouped(studies, lambda factorization: canonical(_without(factorization, fields))).values())


def _without(factorization: MeasuredFactorization, fields: Sequence[str]) -> Fields:
    return {field: value for field, value in factorization.study.plan().items() if field not in fields}
