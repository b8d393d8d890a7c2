"""The eleven figures of Shallue et al. 2018 (arXiv 1811.03600, JMLR 20:112), drawn for the workloads in a store."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.artist import Artist

from analysis import text
from analysis.figures import definitions
from analysis.figures.definitions import PaperLine
from analysis.figures.paper_workloads import PaperWorkloads, rule, trial_filter
from analysis.fitting import curves
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import best, grid, steps, tuning
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Pictures, Skipped
from analysis.trials import metaparameters, trials
from results.grouping import grouped
from results.importers import shallue2018 as importer
from results.plans.kinds import along
from results.plans.study import Target
from results.rules.answers import Rule
from results.store import Commit

NAME = "shallue2018"
GridPlace = tuple[int, int]
PanelLines = Mapping[GridPlace, Sequence[PaperLine]]


class BuiltPanel(NamedTuple):
    """A panel with its problems, lines and trial counts.

    Attributes:
      panel: the panel, or None if there are no data.
      problems: one message for each missing part.
      lines: lines of steps to target.
      trial_counts: number of counted trials for each batch size, for a panel without lines.
    """

    panel: Panel | None
    problems: Sequence[str] = ()
    lines: Sequence[CurveFits] = ()
    trial_counts: Sequence[int] = ()


def has_workloads(paper: PaperWorkloads, number: int) -> bool:
    """Returns whether the store has any of the workloads in a figure."""
    return any(paper.find(one) for one in _flatten(definitions.figures()[number]))


def has_any(paper: PaperWorkloads) -> bool:
    """Returns whether the store has any of the workloads in any figure."""
    return any(has_workloads(paper, number) for number in definitions.TITLES)


def figure(paper: PaperWorkloads, number: int) -> Pictures:
    """Yields one figure with all its panels, and ``Skipped`` for each missing panel or line.

    Args:
      paper: workloads in a store.
      number: figure number, 1 to 11.
    """
    what, panels = f"{NAME}/figure{number}", definitions.figures()[number]
    if not has_workloads(paper, number):
        yield Skipped(what, f"its workloads are not in the store: {_names(_flatten(panels))}")
        return
    if _flatten(panels)[0].draws == definitions.TRIALS:
        built = _planes(paper, panels)
    else:
        built = {position: _built(paper, members) for position, members in panels.items()}
    for position, one in built.items():
        for problem in one.problems:
            yield Skipped(f"{what}, panel {panels[position][0].title!r}", problem)
    if any(one.panel for one in built.values()):
        shown = {
            position: one.panel or grid.empty(panels[position][0].title, one.problems[0])
            for position, one in built.items()
        }
        members = _flatten(panels)
        goals = [_goal(number, members, list(built.values()), _doubts(paper, members))]
        drawn = grid.grid(definitions.TITLES[number], goals, shown, _symbols(panels, built))
        yield Picture((NAME, f"figure{number}"), drawn)


def _built(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    """Builds a panel of any kind except planes of trials."""
    present = [one for one in members if paper.find(one)]
    missing = [one for one in members if one not in present]
    problems = [f"not in the store: {_names(missing)}"] if missing else []
    if not present:
        return BuiltPanel(None, problems)
    build = {definitions.STEPS: _steps, definitions.BEST: _best, definitions.METAPARAMETERS: _tuned}[present[0].draws]
    panel = build(paper, present)
    return panel._replace(problems=[*problems, *panel.problems])


def _steps(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    drawn, problems = _lines(paper, members)
    if not drawn:
        return BuiltPanel(None, problems)
    first, lines = members[0], [line for _, line in drawn]
    perfect = next((line.label for one, line in drawn if first.perfect in (one.series, _data(one))), first.perfect)
    ordered = all(one.workload == first.workload for one in members) and first.split is None
    named = any(f"{one.value:g}" in f"{one.title} {one.series}" for one in members)  # goals are named elsewhere
    panel = steps.panel(
        first.title,
        lines,
        perfect=perfect,
        relative_to=first.relative_to,
        ordered=ordered and len(lines) > 1,
        goal="" if named else _panel_goal(lines),
        named_by="data, goal" if _data(first) != first.series else "",
        evaluated=True,
    )
    return BuiltPanel(panel, problems, lines)


def _tuned(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    drawn, problems = _lines(paper, members)
    lines = [line for _, line in drawn]
    quantity = metaparameters.effective_learning_rate()
    if not lines:
        return BuiltPanel(None, problems)
    if not tuning.shared_quantities(lines[0], [quantity]):
        return BuiltPanel(None, [*problems, f"trials lack {metaparameters.LEARNING_RATE} or {metaparameters.MOMENTUM}"])
    panel = tuning.panel(members[0].title, lines[0], quantity)._replace(goal=_panel_goal(lines))
    return BuiltPanel(panel, problems, lines)


def _panel_goal(lines: Sequence[CurveFits]) -> str:
    """Returns the goal shared by all lines in a panel, such as ``error < 0.01``, or an empty string if goals differ."""
    goals = {_line_goal(one) for one in lines}
    return goals.pop() if len(goals) == 1 else ""


def _line_goal(line: CurveFits) -> str:
    return line.curve.target_text.removeprefix("validation ")


def _data(one: PaperLine) -> str:
    """Returns the series name without the trailing target value, such as the 0.01 in ``MNIST, 0.01``."""
    if one.value is None:
        return one.series
    return one.series.removesuffix(f", {text.as_quality(one.metric, one.value)[1]:g}")


def _label(one: PaperLine, line: CurveFits) -> str:
    """Returns the series name. Adds the metric and direction to a target value: ``MNIST, error < 0.01``."""
    return one.series if _data(one) == one.series else f"{_data(one)}, {_line_goal(line)}"


def _lines(paper: PaperWorkloads, members: Sequence[PaperLine]) -> tuple[list[tuple[PaperLine, CurveFits]], list[str]]:
    """Returns the lines that can be drawn, and the reasons why the others cannot."""
    lines = []
    problems = []
    for one in members:
        line = paper.curve(one)
        line = line._replace(label=_label(one, line))
        name = one.series or "its line"
        if not line.drawable:
            problems.append(f"{name}: {line.why_nothing} ({line.curve.target_text})")
        elif one.relative_to and math.isnan(line.steps_at(one.relative_to)):
            problems.append(f"{name}: no steps at the reference batch size {one.relative_to:,}")
        else:
            lines.append((one, line))
    return lines, problems


def _best(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    """Builds a panel of best errors. Lines with the same workload and group of trials are read together."""
    errors = []
    problems = []
    counts = []
    for group in grouped(members, lambda one: (one.workload, one.split)).values():
        workload = paper.find(group[0])
        assert workload is not None, "the caller checks this"
        of_study = trials.of_commits(workload.commits, Target(group[0].metric, 0.0))  # errors have no target
        per_study = []
        for commit in workload.commits:
            own = curves.trials_by_rule(of_study[commit.name], rule(workload, group[0]), trial_filter(group[0]))
            steps_looked_at = [_budget(one, commit) for one in group]
            per_study.append(trials.best_within(commit, group[0].metric, set(own["trial"]), steps_looked_at))
        counts += [own.trials for own in per_study if own.trials]
        lowest = best.lowest_errors(per_study, [one.series for one in group])
        errors += lowest
        empty = [one.series for one in group if one.series not in {own.label for own in lowest}]
        problems += [f"{series}: no counted trial was planned to run that long" for series in empty]
    if not errors:
        return BuiltPanel(None, problems)
    first = members[0]
    panel = best.panel(first.title, first.metric, errors, ordered=first.split is None)
    return BuiltPanel(panel, problems, (), counts)


def _planes(paper: PaperWorkloads, panels: PanelLines) -> dict[GridPlace, BuiltPanel]:
    """Builds one panel of trials per batch size. All panels show the same plane of metaparameters."""
    across = metaparameters.metaparameter(metaparameters.LEARNING_RATE, log=True)
    up = metaparameters.complement(metaparameters.MOMENTUM)
    planes = {}
    built = {}
    for position, (one, *_) in panels.items():
        workload = paper.find(one)
        commits = [each for each in workload.commits if along(each.study) == one.batch_size] if workload else []
        if not workload or not commits:
            built[position] = BuiltPanel(None, [f"not in the store: {_names([one])} at batch size {one.batch_size:,}"])
            continue
        strict = rule(workload, one).strict
        (own, *_) = trials.of_commits(commits, one.target, strict=strict).values()
        points = tuning.place_trials(own.rows_in_k, across, up, _budget(one, commits[0]))
        if len(points.x):
            planes[position] = points
        else:
            built[position] = BuiltPanel(None, ["no trial has both a learning rate and a momentum"])
    limits = tuning.plane_limits(list(planes.values()), across, up) if planes else []
    return built | {
        position: BuiltPanel(tuning.plane_panel(panels[position][0].title, points, across, up, limits, contours=True))
        for position, points in planes.items()
    }


def _budget(one: PaperLine, commit: Commit) -> float:
    """Returns the budget in steps, or infinity if there is no budget."""
    if one.example_budget is not None:
        return one.example_budget / along(commit.study)
    return math.inf if one.step_budget is None else one.step_budget


def _doubts(paper: PaperWorkloads, members: Sequence[PaperLine]) -> set[str]:
    """Returns the reasons why the imported data of a figure may not be the published ones."""
    workloads = [paper.find(member) for member in members]
    commits = [commit for workload in workloads if workload and workload.recorded for commit in workload.commits]
    return {doubt for commit in commits for doubt in importer.doubts(commit)}


def _goal(number: int, members: Sequence[PaperLine], built: Sequence[BuiltPanel], doubts: set[str]) -> str:
    """Returns the text below the title."""
    first = members[0]
    firsts = sorted({one.first for one in members if one.first})
    if first.draws == definitions.TRIALS:
        which = "every trial that ended; the goal is " + text.goal(first.target, Rule("released"))
        if len({(one.batch_size, one.step_budget) for one in members}) == 1:
            which += f" within {first.step_budget:,.0f} steps of batch size {first.batch_size:,}"
    else:
        which = f"the first {' or '.join(map(str, firsts))} COMPLETE trials" if firsts else "all COMPLETE trials"
        counts = [count for one in built for count in one.trial_counts]
        counts += [line.selected.points.trials or 0 for one in built for line in one.lines]
        fewest, most = min(counts, default=0), max(counts, default=0)
        span = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        if first.draws == definitions.BEST and not firsts:
            which += f", {span} at a batch size"
        elif fewest < min(firsts, default=most):
            which += f" ({span} because some batch sizes have fewer)"
        which = f"best of {which}"
    if {one.step_budget for one in members} != {None} and first.draws == definitions.BEST:
        which += ", at batch sizes whose trials were planned to run that long"
    goal = f"Figure {number} of Shallue et al. 2018, arXiv 1811.03600, redrawn: {which}."
    if any(one.panel and one.panel.goal for one in built):
        goal += " Goals are to the right of the titles."
    for note in dict.fromkeys(f"{one.title}: {one.note}" for one in members if one.note):
        goal += f" {note}."
    if first.draws == definitions.STEPS:
        goal += " Steps are those of the first evaluation that reached the goal."
    if doubts:
        goal += f" Imported data: {', '.join(sorted(doubts))}."
    if any(not line.curve.rule.strict for one in built for line in one.lines):
        goal += " In studies measured here, all trials count, and equality reaches the target."
    return goal


def _symbols(panels: PanelLines, built: Mapping[GridPlace, BuiltPanel]) -> list[Artist]:
    lines = [one for panel in built.values() for one in panel.lines]
    draws = {one.draws for one in _flatten(panels)}
    if definitions.TRIALS in draws:
        return tuning.plane_symbols(contours=True)
    if definitions.METAPARAMETERS in draws:
        return tuning.symbols(lines, rates=True)
    if definitions.STEPS in draws:
        alone = max(len(panel.lines) for panel in built.values()) == 1
        return steps.symbols(lines, alone=alone, perfect=any(one.perfect for one in _flatten(panels)))
    return []


def _flatten(panels: PanelLines) -> list[PaperLine]:
    return [one for members in panels.values() for one in members]


def _names(members: Sequence[PaperLine]) -> str:
    return text.first_few(list(dict.fromkeys("/".join(one.workload) for one in members)))
