"""Kinds of figures of trials: metaparameters of the best, all in a plane, groups of them, best errors in budgets."""

import math
from collections.abc import Mapping, Sequence

from analysis import text
from analysis.figures import pages, requests
from analysis.figures.requests import PRUNED, FigureRequest
from analysis.fitting import curve_fits, curves
from analysis.plotting import best, plane, steps, tuning
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Pictures, Skipped
from analysis.trials import budgets, metaparameters, trials
from analysis.trials.trials import StudyTrials
from analysis.workload_studies import WorkloadStudies
from results.plans.study import Target

MOST_BUDGETS = 8


def best_trials(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One picture per workload and target, a panel per metaparameter of the best trials."""
    for workload, target in requests.each(selection, request):
        what = f"metaparameters of {workload.title}"
        for line in (yield from pages.keep_drawable([(what, curve_fits.of_workload(workload, target, request.rule))])):
            space = workload.commits[-1].study.space
            shown = tuning.shared_quantities(line, metaparameters.quantities(line.curve.tuned, space))
            if not shown:
                yield Skipped(what, "no metaparameter differs between its trials")
                continue
            panels = [tuning.panel(quantity.label, line, quantity) for quantity in shown]
            critical = line.selected.verdict == "identified"
            symbols = tuning.symbols(rates=any(q.is_rate for q in shown), critical=critical)
            goals = [f"{workload.title} · {line.curve.target_text} · {pages.trial_counts([line])}"]
            names = [*pages.file_names([workload]), *_target(target)]
            yield pages.picture("Metaparameters of the best trial", goals, panels, symbols, names, request)


def scatter(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One picture per workload and target, a panel per batch size: its trials in the plane of two metaparameters."""
    vertical = request.by or metaparameters.MOMENTUM
    budget = float(request.steps[0]) if request.steps else math.inf
    for workload, target in requests.each(selection, request):
        what, space = f"scatter of {workload.title}", workload.commits[-1].study.space
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        if vertical not in space or metaparameters.LEARNING_RATE not in space:
            yield Skipped(what, f"its search is over {', '.join(space)}, not over learning_rate and {vertical}")
            continue
        across, up = (metaparameters.on_its_scale(name, space) for name in (metaparameters.LEARNING_RATE, vertical))
        of_study = trials.of_commits(workload.commits, target, strict=request.rule.strict)
        planes = {
            commit.study.batch_size or 0: plane.place_trials(of_study[commit.name].rows_in_k, across, up, budget)
            for commit in workload.commits
        }
        planes = {size: points for size, points in planes.items() if len(points.x)}
        if not planes:
            yield Skipped(what, "no trial has ended")
            continue
        limits = plane.limits(list(planes.values()), across, up)
        contours = vertical == metaparameters.MOMENTUM
        panels = [
            plane.panel(f"batch size {size:,}", own, across, up, limits, contours) for size, own in planes.items()
        ]
        within = "" if math.isinf(budget) else f" within {budget:,.0f} steps"
        for page in pages.paginate(panels):
            goals = [f"{workload.title} · the goal is {text.goal(target, request.rule)}{within}"]
            names = [*pages.file_names([workload]), *_target(target)]
            yield pages.picture("Which trials reach the goal", goals, page, plane.symbols(contours), names, request)


def split(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One picture per workload and target: best error and steps to target of trials split by a metaparameter."""
    for workload, target in requests.each(selection, request):
        what = f"split of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, target, strict=request.rule.strict)
        name = request.by or metaparameters.default_split(list(of_study.values()))
        groups = metaparameters.split(list(of_study.values()), name)
        if len(groups) < 2:
            yield Skipped(what, f"its trials do not differ in {name}; name another metaparameter with --by")
            continue
        lines = [curve_fits.of_workload(workload, target, request.rule, group.kept, group.label) for group in groups]
        members = yield from pages.keep_drawable((f"{line.label} in {what}", line) for line in lines)
        errors = [one for group in groups for one in _errors(workload, of_study, target, request, group)]
        stop = pages.stops_at(workload, target.metric)
        if stop is not None and all((one.error <= stop).all() for one in errors):
            errors = []  # all that can be seen is where trials stopped
        panels = []
        if errors:
            panels.append(best.panel("best error of any trial", target.metric, errors, ordered=False, stop=stop))
        if members:
            panels.append(steps.panel(f"steps to {members[0].curve.target_text}", members, perfect=members[0].label))
        if panels:
            symbols = steps.symbols(members, alone=False, perfect=True) if members else []
            symbols += best.symbols(stop) if errors else []
            goals = [workload.title + (f" · {pages.trial_counts(members)}" if members else "")]
            names = [*pages.file_names([workload]), *_target(target), name]
            title = f"Trials split by {name.replace('_', ' ')}"
            yield pages.picture(title, goals, panels, symbols, names, request)


def _errors(
    workload: WorkloadStudies,
    of_study: Mapping[str, StudyTrials],
    target: Target,
    request: FigureRequest,
    group: metaparameters.TrialGroup,
) -> list[best.Errors]:
    """The best errors of a group of trials at every batch size."""
    ids_by_study = (
        set(curves.trials_by_rule(of_study[c.name], request.rule, group.kept)["trial"]) for c in workload.commits
    )
    errors = [
        budgets.best_within(commit, target.metric, ids, [math.inf])
        for commit, ids in zip(workload.commits, ids_by_study, strict=True)
    ]
    return best.lowest_errors(errors, [group.label])


def budget(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One picture per workload and metric, a panel for budgets of steps and one for budgets of examples."""
    for workload, metric in requests.metrics(selection, request):
        what = f"budget of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, Target(metric, 0.0), strict=request.rule.strict)
        ids_by_study = [
            set(curves.trials_by_rule(of_study[commit.name], request.rule)["trial"]) for commit in workload.commits
        ]
        panels = _budget_panels(workload, metric, ids_by_study, request)
        if not panels:
            yield Skipped(what, f"no trial that counts measured {metric}")
            continue
        fewest, most = min(map(len, ids_by_study)), max(map(len, ids_by_study))
        count = f"{most:,}" if fewest == most else f"{fewest:,}–{most:,}"
        goals = [f"{workload.title} · best of {count} trials, where they were planned to run that long"]
        names = [*pages.file_names([workload]), metric]
        symbols = best.symbols(pages.stops_at(workload, metric))
        yield pages.picture("Best error within a budget", goals, panels, symbols, names, request)


def _budget_panels(
    workload: WorkloadStudies, metric: str, ids_by_study: Sequence[set[int]], request: FigureRequest
) -> list[Panel]:
    sizes = [commit.study.batch_size or 1 for commit in workload.commits]
    planned = [budgets.planned_steps(commit) for commit in workload.commits]
    of_steps = list(request.steps) or budgets.series(planned, MOST_BUDGETS)
    of_examples = budgets.series([own * size for own, size in zip(planned, sizes, strict=True)], MOST_BUDGETS)
    panels = []
    for noun, all_budgets, per_step in (("steps", of_steps, [1] * len(sizes)), ("examples", of_examples, sizes)):
        errors = [
            budgets.best_within(commit, metric, own, [budget / each for budget in all_budgets])
            for commit, own, each in zip(workload.commits, ids_by_study, per_step, strict=True)
        ]
        members = best.lowest_errors(errors, [f"{budget:,} {noun}" for budget in all_budgets])
        if members:
            stop = pages.stops_at(workload, metric)
            panels.append(best.panel(f"budget of {noun}", metric, members, ordered=True, stop=stop))
    return panels


def _target(target: Target) -> tuple[str, str]:
    return target.metric, f"{target.value:g}"
