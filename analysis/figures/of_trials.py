"""Kinds of figures of trials and their metaparameters: the best ones, all of them in a plane, groups of them."""

import math
from collections.abc import Iterator, Mapping, Sequence

from analysis import text
from analysis.figures import asked as asking
from analysis.figures import pages
from analysis.figures.asked import PRUNED, Asked
from analysis.fitting import curves, pairs
from analysis.plotting import best, plane, steps, tuning
from analysis.plotting.picture import Picture, Skipped
from analysis.trials import budgets, metaparameters, splits, trials
from analysis.trials.trials import StudyTrials
from analysis.workloads import WorkloadStudies
from results.plans.study import Target

Made = Iterator[Picture | Skipped]


def best_ones(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One picture per workload and target, a panel per metaparameter of the best trials."""
    for workload, target in asking.each(found, asked):
        what = f"metaparameters of {workload.title}"
        line = pairs.of_workload(workload, target, asked.rule)
        if not line.drawable:
            yield Skipped(what, f"{line.why_nothing} ({line.curve.sought})")
            continue
        space = workload.commits[-1].study.space
        shown = tuning.present(line, metaparameters.quantities(line.curve.tuned, space))
        if not shown:
            yield Skipped(what, "no metaparameter differs between its trials")
            continue
        panels = [tuning.panel(quantity.label, line, quantity) for quantity in shown]
        critical = line.judged.verdict == "identified"
        symbols = tuning.symbols(rates=any(q.is_rate for q in shown), critical=critical)
        goals = [f"{workload.title} · {line.curve.sought} · {pages.counted([line])}"]
        names = [*pages.names([workload]), *_target(target)]
        yield pages.picture("Metaparameters of the best trial", goals, panels, symbols, names, asked)


def scatter(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One picture per workload and target, a panel per batch size: its trials in the plane of two metaparameters."""
    vertical = asked.by or metaparameters.MOMENTUM
    budget = float(asked.steps[0]) if asked.steps else math.inf
    for workload, target in asking.each(found, asked):
        what, space = f"scatter of {workload.title}", workload.commits[-1].study.space
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        if vertical not in space or metaparameters.LEARNING_RATE not in space:
            yield Skipped(what, f"its search is over {', '.join(space)}, not over learning_rate and {vertical}")
            continue
        across, up = (metaparameters.on_its_scale(name, space) for name in (metaparameters.LEARNING_RATE, vertical))
        of_study = trials.of_commits(workload.commits, target, strict=asked.rule.strict)
        ended = {
            commit.study.batch_size or 0: plane.ended(of_study[commit.name].counting, across, up, budget)
            for commit in workload.commits
        }
        ended = {size: one for size, one in ended.items() if len(one.x)}
        if not ended:
            yield Skipped(what, "no trial has ended")
            continue
        limits = plane.limits(list(ended.values()), across, up)
        contours = vertical == metaparameters.MOMENTUM
        panels = [plane.panel(f"batch size {size:,}", own, across, up, limits, contours) for size, own in ended.items()]
        within = "" if math.isinf(budget) else f" within {budget:,.0f} steps"
        for page in pages.of(panels):
            goals = [f"{workload.title} · the goal is {text.goal(target, asked.rule)}{within}"]
            names = [*pages.names([workload]), *_target(target)]
            yield pages.picture("Which trials reach the goal", goals, page, plane.symbols(contours), names, asked)


def split(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One picture per workload and target: best error and steps to target of trials split by a metaparameter."""
    for workload, target in asking.each(found, asked):
        what = f"split of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, target, strict=asked.rule.strict)
        name = asked.by or splits.default(list(of_study.values()))
        groups = splits.groups(list(of_study.values()), name)
        if len(groups) < 2:
            yield Skipped(what, f"its trials do not differ in {name}; name another metaparameter with --by")
            continue
        members = []
        for group in groups:
            line = pairs.of_workload(workload, target, asked.rule, group.kept, group.label)
            if line.drawable:
                members.append(line)
            else:
                yield Skipped(f"{group.label} in {what}", f"{line.why_nothing} ({line.curve.sought})")
        errors = [one for group in groups for one in _errors(workload, of_study, target, asked, group)]
        stop = pages.stops_at(workload, target.metric)
        title = "best error of any trial"
        if stop is not None and all((one.error <= stop).all() for one in errors):
            errors = []  # all that can be seen is where trials stopped
        panels = [best.panel(title, target.metric, errors, ordered=False, stop=stop)] if errors else []
        if members:
            panels.append(steps.panel(f"steps to {members[0].curve.sought}", members, perfect=members[0].label))
        if panels:
            symbols = steps.symbols(members, alone=False, perfect=True) if members else []
            symbols += best.symbols(stop) if errors else []
            told = f" · {pages.counted(members)}" if members else ""
            goals = [workload.title + told]
            names = [*pages.names([workload]), *_target(target), name]
            yield pages.picture(f"Trials split by {name.replace('_', ' ')}", goals, panels, symbols, names, asked)


def _errors(
    workload: WorkloadStudies,
    of_study: Mapping[str, StudyTrials],
    target: Target,
    asked: Asked,
    group: splits.TrialGroup,
) -> list[best.Errors]:
    """The best errors of a group of trials at every batch size."""
    found = []
    for commit in workload.commits:
        ids = set(curves.counting_trials(of_study[commit.name], asked.rule, group.kept)["trial"])
        found.append(budgets.best_within(commit, target.metric, ids, [math.inf]))
    return best.of(found, [group.label])


def _target(target: Target) -> tuple[str, str]:
    return target.metric, f"{target.value:g}"
