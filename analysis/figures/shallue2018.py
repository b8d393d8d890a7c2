"""The eleven figures of Shallue et al. 2018 (arXiv 1811.03600, JMLR 20:112), drawn for the workloads in a store."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.artist import Artist

from analysis import text
from analysis.figures import paper_lines
from analysis.figures.paper_lines import PaperLine
from analysis.figures.paper_workloads import PaperWorkloads, rule, trial_filter
from analysis.fitting import curves
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import best, grid, steps_panels, tuning
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
    return any(paper.find(line) for line in _flatten(paper_lines.figures()[number]))


def has_any(paper: PaperWorkloads) -> bool:
    """Returns whether the store has any of the workloads in any figure."""
    return any(has_workloads(paper, number) for number in paper_lines.TITLES)


def figure(paper: PaperWorkloads, number: int) -> Pictures:
    """Yields one figure with all its panels, and ``Skipped`` for each missing panel or line.

    Args:
      paper: workloads in a store.
      number: figure number, 1 to 11.
    """
    what, panels = f"{NAME}/figure{number}", paper_lines.figures()[number]
    if not has_workloads(paper, number):
        yield Skipped(what, f"its workloads are not in the store: {_names(_flatten(panels))}")
        return
    if _flatten(panels)[0].draws == paper_lines.TRIALS:
        built = _planes(paper, panels)
    else:
        built = {position: _built(paper, members) for position, members in panels.items()}
    for position, panel in built.items():
        for problem in panel.problems:
            yield Skipped(f"{what}, panel {panels[position][0].title!r}", problem)
    if any(panel.panel for panel in built.values()):
        shown = {
            position: panel.panel or grid.empty(panels[position][0].title, panel.problems[0])
            for position, panel in built.items()
        }
        members = _flatten(panels)
        goals = [_goal(number, members, list(built.values()), _doubts(paper, members))]
        drawn = grid.grid(paper_lines.TITLES[number], goals, shown, _symbols(panels, built))
        yield Picture((NAME, f"figure{number}"), drawn)


def _built(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    """Builds a panel of any kind except planes of trials."""
    present = [line for line in members if paper.find(line)]
    missing = [line for line in members if line not in present]
    problems = [f"not in the store: {_names(missing)}"] if missing else []
    if not present:
        return BuiltPanel(None, problems)
    build = {paper_lines.STEPS: _steps, paper_lines.BEST: _best, paper_lines.METAPARAMETERS: _tuned}[present[0].draws]
    panel = build(paper, present)
    return panel._replace(problems=[*problems, *panel.problems])


def _steps(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    drawn, problems = _lines(paper, members)
    if not drawn:
        return BuiltPanel(None, problems)
    first, lines = members[0], [line for _, line in drawn]
    perfect = next(
        (line.label for paper_line, line in drawn if first.perfect in (paper_line.series, _data(paper_line))),
        first.perfect,
    )
    ordered = all(paper_line.workload == first.workload for paper_line in members) and first.split is None
    named = any(
        f"{paper_line.value:g}" in f"{paper_line.title} {paper_line.series}" for paper_line in members
    )  # goals are named elsewhere
    panel = steps_panels.panel(
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
    goals = {_line_goal(line) for line in lines}
    return goals.pop() if len(goals) == 1 else ""


def _line_goal(line: CurveFits) -> str:
    return line.curve.target_text.removeprefix("validation ")


def _data(line: PaperLine) -> str:
    """Returns the series name without the trailing target value, such as the 0.01 in ``MNIST, 0.01``."""
    if line.value is None:
        return line.series
    return line.series.removesuffix(f", {text.as_quality(line.metric, line.value)[1]:g}")


def _label(paper_line: PaperLine, line: CurveFits) -> str:
    """Returns the series name. Adds the metric and direction to a target value: ``MNIST, error < 0.01``."""
    return paper_line.series if _data(paper_line) == paper_line.series else f"{_data(paper_line)}, {_line_goal(line)}"


def _lines(paper: PaperWorkloads, members: Sequence[PaperLine]) -> tuple[list[tuple[PaperLine, CurveFits]], list[str]]:
    """Returns the lines that can be drawn, and the reasons why the others cannot."""
    lines = []
    problems = []
    for member in members:
        line = paper.curve(member)
        line = line._replace(label=_label(member, line))
        name = member.series or "its line"
        if not line.drawable:
            problems.append(f"{name}: {line.why_nothing} ({line.curve.target_text})")
        elif member.relative_to and math.isnan(line.steps_at(member.relative_to)):
            problems.append(f"{name}: no steps at the reference batch size {member.relative_to:,}")
        else:
            lines.append((member, line))
    return lines, problems


def _best(paper: PaperWorkloads, members: Sequence[PaperLine]) -> BuiltPanel:
    """Builds a panel of best errors. Lines with the same workload and group of trials are read together."""
    errors, problems, counts = [], [], []
    for group in grouped(members, lambda line: (line.workload, line.split)).values():
        workload = paper.find(group[0])
        assert workload is not None, "the caller checks this"
        of_study = trials.of_commits(workload.commits, Target(group[0].metric, 0.0))  # errors have no target
        per_study = []
        for commit in workload.commits:
            counted = curves.trials_by_rule(of_study[commit.name], rule(workload, group[0]), trial_filter(group[0]))
            steps_looked_at = [_budget(line, commit) for line in group]
            per_study.append(trials.best_within(commit, group[0].metric, set(counted["trial"]), steps_looked_at))
        counts += [best_trials.trials for best_trials in per_study if best_trials.trials]
        lowest = best.lowest_errors(per_study, [line.series for line in group])
        errors += lowest
        empty = [line.series for line in group if line.series not in {curve.label for curve in lowest}]
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
    for position, (line, *_) in panels.items():
        workload = paper.find(line)
        commits = [commit for commit in workload.commits if along(commit.study) == line.batch_size] if workload else []
        if not workload or not commits:
            built[position] = BuiltPanel(
                None, [f"not in the store: {_names([line])} at batch size {line.batch_size:,}"]
            )
            continue
        strict = rule(workload, line).strict
        (study, *_) = trials.of_commits(commits, line.target, strict=strict).values()
        points = tuning.place_trials(study.rows_in_k, across, up, _budget(line, commits[0]))
        if len(points.x):
            planes[position] = points
        else:
            built[position] = BuiltPanel(None, ["no trial has both a learning rate and a momentum"])
    limits = tuning.plane_limits(list(planes.values()), across, up) if planes else []
    return built | {
        position: BuiltPanel(tuning.plane_panel(panels[position][0].title, points, across, up, limits, contours=True))
        for position, points in planes.items()
    }


def _budget(line: PaperLine, commit: Commit) -> float:
    """Returns the budget in steps, or infinity if there is no budget."""
    if line.example_budget is not None:
        return line.example_budget / along(commit.study)
    return math.inf if line.step_budget is None else line.step_budget


def _doubts(paper: PaperWorkloads, members: Sequence[PaperLine]) -> set[str]:
    """Returns the reasons why the imported data of a figure may not be the published ones."""
    workloads = [paper.find(member) for member in members]
    commits = [commit for workload in workloads if workload and workload.recorded for commit in workload.commits]
    return {doubt for commit in commits for doubt in importer.doubts(commit)}


def _goal(number: int, members: Sequence[PaperLine], built: Sequence[BuiltPanel], doubts: set[str]) -> str:
    """Returns the text below the title."""
    first = members[0]
    firsts = sorted({member.first for member in members if member.first})
    if first.draws == paper_lines.TRIALS:
        which = "every trial that ended; the goal is " + text.goal(first.target, Rule("released"))
        if len({(member.batch_size, member.step_budget) for member in members}) == 1:
            which += f" within {first.step_budget:,.0f} steps of batch size {first.batch_size:,}"
    else:
        which = f"the first {' or '.join(map(str, firsts))} COMPLETE trials" if firsts else "all COMPLETE trials"
        counts = [count for panel in built for count in panel.trial_counts]
        counts += [line.selected.points.trials or 0 for panel in built for line in panel.lines]
        fewest, largest = min(counts, default=0), max(counts, default=0)
        span = text.span([fewest, largest], " to ")
        if first.draws == paper_lines.BEST and not firsts:
            which += f", {span} at a batch size"
        elif fewest < min(firsts, default=largest):
            which += f" ({span} because some batch sizes have fewer)"
        which = f"best of {which}"
    if {member.step_budget for member in members} != {None} and first.draws == paper_lines.BEST:
        which += ", at batch sizes whose trials were planned to run that long"
    goal = f"Figure {number} of Shallue et al. 2018, arXiv 1811.03600, redrawn: {which}."
    if any(panel.panel and panel.panel.goal for panel in built):
        goal += " Goals are to the right of the titles."
    for note in dict.fromkeys(f"{member.title}: {member.note}" for member in members if member.note):
        goal += f" {note}."
    if first.draws == paper_lines.STEPS:
        goal += " Steps are those of the first evaluation that reached the goal."
    if doubts:
        goal += f" Imported data: {', '.join(sorted(doubts))}."
    if any(not line.curve.rule.strict for panel in built for line in panel.lines):
        goal += " In studies measured here, all trials count, and equality reaches the target."
    return goal


def _symbols(panels: PanelLines, built: Mapping[GridPlace, BuiltPanel]) -> list[Artist]:
    lines = [line for panel in built.values() for line in panel.lines]
    draws = {line.draws for line in _flatten(panels)}
    if paper_lines.TRIALS in draws:
        return tuning.plane_symbols(contours=True)
    if paper_lines.METAPARAMETERS in draws:
        return tuning.symbols(lines, rates=True)
    if paper_lines.STEPS in draws:
        alone = max(len(panel.lines) for panel in built.values()) == 1
        return steps_panels.symbols(lines, alone=alone, perfect=any(line.perfect for line in _flatten(panels)))
    return []


def _flatten(panels: PanelLines) -> list[PaperLine]:
    return [line for members in panels.values() for line in members]


def _names(members: Sequence[PaperLine]) -> str:
    return text.first_few(list(dict.fromkeys("/".join(line.workload) for line in members)))
