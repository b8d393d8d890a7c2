"""The eleven figures of Shallue et al. 2018 (arXiv 1811.03600, JMLR 20:112), as far as a store has their workloads."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist

from analysis import text, workloads
from analysis.figures import definitions
from analysis.figures.definitions import Defined
from analysis.fitting import curves, pairs
from analysis.fitting.curves import TrialFilter
from analysis.fitting.pairs import Fitted
from analysis.plotting import best, grid, plane, steps, tuning
from analysis.plotting.best import Errors
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.trials import budgets, metaparameters, trials
from analysis.workloads import WorkloadStudies
from results.durable import Folder
from results.plans.study import Target
from results.rules.answers import MINIMUM, Rule
from results.storage.commits import Commit

NAME = "shallue2018"
# What workloads of the paper are called where they are measured by this software.
OURS = {"cifar_10": "cifar10", "simple_cnn_base": "simple_cnn_32_64_1024", "nesterov_momentum": "nesterov"}
FULLY_CONNECTED = ("fc_", "fully_connected_")

Place = tuple[int, int]
Panels = Mapping[Place, Sequence[Defined]]


class Studies(NamedTuple):
    """The workloads of a store by the names that the archive gives them.

    Attributes:
      workloads: by data set, model and optimizer.
      lines: those worked out so far, by workload, target and trials that count: several figures show the same.
    """

    workloads: Mapping[tuple[str, str, str], WorkloadStudies]
    lines: dict[object, Fitted]


class Built(NamedTuple):
    """A panel with what has to be said about it.

    Attributes:
      panel: None if there is nothing to draw.
      problems: what is missing in it, a line each.
      lines: of steps to target in it.
      counts: the fewest and the most trials that count at a batch size.
    """

    panel: Panel | None
    problems: Sequence[str] = ()
    lines: Sequence[Fitted] = ()
    counts: Sequence[int] = ()


def of_store(folder: Folder) -> Studies:
    """The workloads of a store or a release."""
    return of(workloads.of_store(folder))


def of(held: Sequence[WorkloadStudies]) -> Studies:
    """Workloads by name; of those called alike, what others measured comes before what was measured here."""
    sources_last = sorted(held, key=lambda one: one.recorded)
    return Studies({(one.dataset, one.model, one.optimizer): one for one in sources_last}, {})


def is_there(studies: Studies, number: int) -> bool:
    """Whether any workload of a figure is in a store."""
    return any(_found(studies, one) for one in _all(definitions.figures()[number]))


def figure(studies: Studies, number: int) -> Iterator[Picture | Skipped]:
    """One figure with all its panels, and a line about each panel, or line of one, that is not there.

    Args:
      studies: of a store.
      number: 1 to 11.
    """
    what, panels = f"{NAME}/figure{number}", definitions.figures()[number]
    if not is_there(studies, number):
        yield Skipped(what, f"none of its workloads is in the store: {_names(_all(panels))}")
        return
    if _all(panels)[0].draws == definitions.TRIALS:
        built = _planes(studies, panels)
    else:
        built = {place: _built(studies, members) for place, members in panels.items()}
    for place, made in built.items():
        for problem in made.problems:
            yield Skipped(f"{what}, panel {panels[place][0].title!r}", problem)
    if any(made.panel for made in built.values()):
        shown = {
            place: made.panel or grid.absent(panels[place][0].title, made.problems[0]) for place, made in built.items()
        }
        goals = [_goal(number, _all(panels), list(built.values()))]
        yield Picture(
            (NAME, f"figure{number}"), grid.grid(definitions.TITLES[number], goals, shown, _symbols(panels, built))
        )


def _built(studies: Studies, members: Sequence[Defined]) -> Built:
    """One panel that is neither trials in a plane nor empty."""
    there = [one for one in members if _found(studies, one)]
    missing = [one for one in members if one not in there]
    problems = [f"not in the store: {_names(missing)}"] if missing else []
    if not there:
        return Built(None, problems)
    draw = {definitions.STEPS: _steps, definitions.BEST: _best, definitions.METAPARAMETERS: _tuned}[there[0].draws]
    made = draw(studies, there)
    return made._replace(problems=[*problems, *made.problems])


def _steps(studies: Studies, members: Sequence[Defined]) -> Built:
    drawn, problems = _lines(studies, members)
    if not drawn:
        return Built(None, problems)
    first = members[0]
    ordered = all(one.workload == first.workload for one in members) and first.split is None
    panel = steps.panel(
        first.title, drawn, perfect=first.perfect, relative_to=first.relative_to, ordered=ordered and len(drawn) > 1
    )
    return Built(panel, problems, drawn, [one.judged.points.trials or 0 for one in drawn])


def _tuned(studies: Studies, members: Sequence[Defined]) -> Built:
    drawn, problems = _lines(studies, members)
    quantity = metaparameters.effective_learning_rate()
    if not drawn:
        return Built(None, problems)
    if not tuning.present(drawn[0], [quantity]):
        return Built(None, [*problems, f"trials lack {metaparameters.LEARNING_RATE} or {metaparameters.MOMENTUM}"])
    panel = tuning.panel(members[0].title, drawn[0], quantity)
    return Built(panel, problems, drawn, [one.judged.points.trials or 0 for one in drawn])


def _lines(studies: Studies, members: Sequence[Defined]) -> tuple[list[Fitted], list[str]]:
    """The lines that have points, at the batch size that they are relative to, too; and why the others have not."""
    drawn, problems = [], []
    for one in members:
        workload = _found(studies, one)
        assert workload is not None, "the caller has looked"
        key = (one.workload, one.target, one.first, one.split)
        if key not in studies.lines:
            studies.lines[key] = pairs.of_workload(workload, one.target, _rule(workload, one), _kept(one))
        line = studies.lines[key]._replace(label=one.series)
        name = one.series or "its line"
        if not line.drawable:
            problems.append(f"{name}: {line.why_nothing} ({line.curve.sought})")
        elif one.relative_to and math.isnan(line.steps_at(one.relative_to)):
            problems.append(f"{name}: no steps at batch size {one.relative_to:,}, which all are relative to")
        else:
            drawn.append(line)
    return drawn, problems


def _best(studies: Studies, members: Sequence[Defined]) -> Built:
    """Best errors; all lines of one workload and group of trials are read at once."""
    groups: dict[object, list[Defined]] = {}
    for one in members:
        groups.setdefault((one.workload, one.split), []).append(one)
    found: list[Errors] = []
    problems: list[str] = []
    counts: list[int] = []
    for group in groups.values():
        workload = _found(studies, group[0])
        assert workload is not None, "the caller has looked"
        of_study = trials.of_commits(workload.commits, Target(group[0].metric, 0.0))  # of errors there is no target
        per_study = []
        for commit in workload.commits:
            own = curves.counting_trials(of_study[commit.name], _rule(workload, group[0]), _kept(group[0]))
            steps_looked_at = [_budget(one, commit) for one in group]
            per_study.append(budgets.best_within(commit, group[0].metric, set(own["trial"]), steps_looked_at))
        counts += [own.trials for own in per_study if own.trials]
        made = best.of(per_study, [one.series for one in group])
        found += made
        empty = [one.series for one in group if one.series not in {own.label for own in made}]
        problems += [f"{series}: no trial that counts was planned to run that long" for series in empty]
    if not found:
        return Built(None, problems)
    first = members[0]
    panel = best.panel(first.title, first.metric, found, ordered=first.split is None)
    return Built(panel, problems, (), counts)


def _planes(studies: Studies, panels: Panels) -> dict[Place, Built]:
    """Trials at one batch size each, all in the same plane."""
    across = metaparameters.metaparameter(metaparameters.LEARNING_RATE, log=True)
    up = metaparameters.complement(metaparameters.MOMENTUM)
    found: dict[Place, plane.Ended] = {}
    problems: dict[Place, str] = {}
    for place, (one, *_) in panels.items():
        workload = _found(studies, one)
        commits = (
            [commit for commit in workload.commits if commit.study.batch_size == one.batch_size] if workload else []
        )
        if not workload or not commits:
            problems[place] = f"not in the store: {_names([one])} at batch size {one.batch_size:,}"
            continue
        strict = _rule(workload, one).strict
        (own, *_) = trials.of_commits(commits, one.target, strict=strict).values()
        found[place] = plane.ended(own.counting, across, up, _budget(one, commits[0]))
        if not len(found[place].x):
            problems[place] = "no trial has both a learning rate and a momentum"
            del found[place]
    if not found:
        return {place: Built(None, [problem]) for place, problem in problems.items()}
    limits = plane.limits(list(found.values()), across, up)
    return {place: Built(None, [problem]) for place, problem in problems.items()} | {
        place: Built(plane.panel(panels[place][0].title, ended, across, up, limits, contours=True))
        for place, ended in found.items()
    }


def _budget(one: Defined, commit: Commit) -> float:
    """The most steps that are looked at; infinite where there is no budget."""
    if one.example_budget is not None:
        return one.example_budget / (commit.study.batch_size or 1)
    return math.inf if one.step_budget is None else one.step_budget


def _rule(workload: WorkloadStudies, one: Defined) -> Rule:
    return Rule("released", one.first) if workload.recorded else MINIMUM


def _kept(one: Defined) -> TrialFilter | None:
    """The trials with a value of a metaparameter; one that lacks it has 0."""
    if one.split is None:
        return None
    name, value = one.split

    def kept(rows: pd.DataFrame) -> np.ndarray:
        drawn = rows[name].fillna(0.0).to_numpy() if name in rows else np.zeros(len(rows))
        return np.isclose(drawn, value)

    return kept


def _goal(number: int, members: Sequence[Defined], built: Sequence[Built]) -> str:
    """The line under the title."""
    first = members[0]
    firsts = sorted({one.first for one in members if one.first})
    if first.draws == definitions.TRIALS:
        which = "every trial that ended; the goal is " + text.goal(first.target, Rule("released"))
        if len({(one.batch_size, one.step_budget) for one in members}) == 1:
            which += f" within {first.step_budget:,.0f} steps of batch size {first.batch_size:,}"
    else:
        which = f"the first {' or '.join(map(str, firsts))} COMPLETE trials" if firsts else "all COMPLETE trials"
        counts = [count for one in built for count in one.counts]
        fewest, most = min(counts, default=0), max(counts, default=0)
        span = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        if first.draws == definitions.BEST and not firsts:
            which += f", {span} at a batch size"
        elif fewest < min(firsts, default=most):
            which += f" ({span} where some batch sizes have fewer)"
        which = f"the best of {which}"
    if {one.step_budget for one in members} != {None} and first.draws == definitions.BEST:
        which += ", of batch sizes whose trials were planned to run that long"
    told = f"Figure {number} of Shallue et al. 2018, arXiv 1811.03600, drawn anew: {which}."
    if any(not line.curve.rule.strict for one in built for line in one.lines):
        told += " Of studies measured here all trials count, and to be at the target is to have reached it."
    return told


def _symbols(panels: Panels, built: Mapping[Place, Built]) -> list[Artist]:
    drawn = [one for made in built.values() for one in made.lines]
    draws = {one.draws for one in _all(panels)}
    if definitions.TRIALS in draws:
        return plane.symbols(contours=True)
    if definitions.METAPARAMETERS in draws:
        return tuning.symbols(rates=True, critical=any(one.judged.verdict == "identified" for one in drawn))
    if definitions.STEPS in draws:
        alone = max(len(made.lines) for made in built.values()) == 1
        return steps.symbols(drawn, alone=alone, perfect=any(one.perfect for one in _all(panels)))
    return []


def _found(studies: Studies, one: Defined) -> WorkloadStudies | None:
    ours = [OURS.get(name, name.replace(*FULLY_CONNECTED)) for name in one.workload]
    return studies.workloads.get(one.workload) or studies.workloads.get((ours[0], ours[1], ours[2]))


def _all(panels: Panels) -> list[Defined]:
    return [one for members in panels.values() for one in members]


def _names(members: Sequence[Defined]) -> str:
    return text.first_few(list(dict.fromkeys("/".join(one.workload) for one in members)))
