"""The kinds of figures for selected workloads: steps to target, metaparameters, planes of trials and budgets."""

import math
from collections.abc import Mapping, Sequence

from analysis import text
from analysis.figures import pages, requests
from analysis.figures.requests import PRUNED, FigureRequest
from analysis.fitting import curve_fits, curves
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import best, steps_panels as lines_of_steps, tuning
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Pictures, Skipped
from analysis.trials import metaparameters, trials
from analysis.trials.trials import StudyTrials
from analysis.workload_studies import WorkloadStudies
from results.bad_input import check_choice
from results.grouping import grouped
from results.plans.kinds import along
from results.plans.study import Target, decimal
from results.rules.answers import Rule

EASIER = (1.0, 1.25, 1.5, 2.0)  # multiples of the target, for workloads with only one target
DIGITS = 6
MOST_BUDGETS = 8


def steps(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields pages with one panel per workload and target."""
    goals = list(requests.each(selection, request))
    several = len({target for _, target in goals}) > 1
    entries = []
    for workload, target in goals:
        title = pages.panel_title(selection, workload)
        line = curve_fits.of_workload(workload, target, request.rule)
        for curve in (yield from pages.keep_drawable([(f"steps of {workload.title}", line)])):
            title += f", {curve.curve.target_text}" if several else ""
            entries.append((lines_of_steps.panel(title, [curve]), curve, workload))
    for page in pages.paginate(entries):
        panels, lines, workloads = zip(*page, strict=True)
        target_text = "" if several else lines[0].curve.target_text
        words = text.joined(pages.shared_words(workloads), target_text, pages.trial_counts(lines))
        symbols = lines_of_steps.symbols(lines, alone=True, perfect=True)
        names = _file_names(workloads, lines)
        yield pages.picture("Steps to target", [words], panels, symbols, names, request)


def targets(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields pages with one panel per workload and one line per target. If there is only one target, adds easier ones.

    Steps to easier targets are read from the same trials.
    """
    entries = []
    for workload in selection:
        goals = requests.targets(workload, request)
        if len(goals) == 1:
            goals = [Target(goals[0].metric, float(f"{goals[0].value * times:.{DIGITS}g}")) for times in EASIER]
        lines = [curve_fits.of_workload(workload, target, request.rule) for target in goals]
        labelled = [(f"targets of {workload.title}", line._replace(label=line.curve.target_text)) for line in lines]
        members = yield from pages.keep_drawable(labelled)
        if members:
            title = pages.panel_title(selection, workload)
            entries.append((lines_of_steps.panel(title, members, perfect="", ordered=True), members, workload))
    for page in pages.paginate(entries):
        panels, groups, workloads = zip(*page, strict=True)
        lines = [line for members in groups for line in members]
        words = [text.joined(pages.shared_words(workloads), pages.trial_counts(lines))]
        symbols = lines_of_steps.symbols(lines, alone=False, perfect=False)
        names = pages.file_names(workloads)
        yield pages.picture("Steps to several targets", words, panels, symbols, names, request)


def compare(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields pages with one panel per group of workloads that differ only in optimizer, model or data set."""
    field_compared = request.by or "optimizer"
    check_choice("--by", field_compared, pages.FIELDS)

    def shared(pair: tuple[WorkloadStudies, Target]) -> tuple[object, ...]:
        workload, target = pair
        names = [getattr(workload, field) for field in pages.FIELDS if field != field_compared]
        return *names, workload.unit, None if field_compared == "dataset" else target  # data sets have own targets

    entries = []
    for key, group in grouped(requests.each(selection, request), shared).items():
        title = " · ".join(map(str, key[:2]))
        labelled = []
        for workload, target in group:
            line = curve_fits.of_workload(workload, target, request.rule)
            name = getattr(workload, field_compared) + (f" ({workload.distinction})" if workload.distinction else "")
            line = line._replace(label=f"{name}, {line.curve.target_text}" if field_compared == "dataset" else name)
            labelled.append((f"{name} in compare of {title}", line))
        members = yield from pages.keep_drawable(labelled)
        if len(members) < 2:
            yield Skipped(
                f"compare of {title}", f"fewer than two {field_compared}s have a curve. Use --by to compare others."
            )
            continue
        title += f", {members[0].curve.target_text}" if field_compared != "dataset" else ""
        entries.append((_compared(title, members, field_compared), members))
    for page in pages.paginate(entries):
        lines = [line for _, members in page for line in members]
        symbols = lines_of_steps.symbols(lines, alone=False, perfect=True)
        title = {"optimizer": "Optimizers", "model": "Models", "dataset": "Data sets"}[field_compared]
        names = [field_compared, *_same(lines, field_compared)]
        panels = [panel for panel, _ in page]
        yield pages.picture(title, [pages.trial_counts(lines)], panels, symbols, names, request)


def _compared(title: str, members: Sequence[CurveFits], field_compared: str) -> Panel:
    """Returns a panel. As in the paper, models or data sets are relative to their smallest common batch size."""
    sizes = set.intersection(*(set(curve.selected.points.batch_size) for curve in members))
    relative = int(min(sizes)) if field_compared != "optimizer" and sizes else None
    return lines_of_steps.panel(title, members, perfect=members[0].label, relative_to=relative)


def _file_names(workloads: Sequence[WorkloadStudies], lines: Sequence[CurveFits]) -> list[str]:
    goals = {(line.curve.target.metric, decimal(line.curve.target.value)) for line in lines}
    names = pages.file_names(workloads)
    return names + list(goals.pop()) if len(goals) == 1 else names


def _same(members: Sequence[CurveFits], field_compared: str) -> list[str]:
    """Returns the names shared by all lines, except the names being compared."""
    fields = [field for field in pages.FIELDS if field != field_compared]
    values = [{getattr(line.curve, field) for line in members} for field in fields]
    return [names.pop() for names in values if len(names) == 1]


def best_trials(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields one picture per workload and target, with a panel for each metaparameter of the best trials."""
    for workload, target in requests.each(selection, request):
        what = f"metaparameters of {workload.title}"
        for line in (yield from pages.keep_drawable([(what, curve_fits.of_workload(workload, target, request.rule))])):
            space = workload.commits[-1].study.search.space
            shown = tuning.shared_quantities(line, metaparameters.quantities(line.curve.tuned, space))
            if not shown:
                yield Skipped(what, "no metaparameter differs between its trials")
                continue
            panels = [tuning.panel(quantity.label, line, quantity) for quantity in shown]
            symbols = tuning.symbols([line], rates=any(q.is_rate for q in shown))
            goals = [f"{workload.title} · {line.curve.target_text} · {pages.trial_counts([line])}"]
            names = _names(workload, target)
            yield pages.picture("Metaparameters of the best trial", goals, panels, symbols, names, request)


def scatter(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields pictures of trials in the plane of two metaparameters, with one panel per batch size."""
    vertical = request.by or metaparameters.MOMENTUM
    budget = float(request.steps[0]) if request.steps else math.inf
    for workload, target in requests.each(selection, request):
        what, space = f"scatter of {workload.title}", workload.commits[-1].study.search.space
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        if vertical not in space or metaparameters.LEARNING_RATE not in space:
            yield Skipped(what, f"its search space ({', '.join(space)}) lacks learning_rate or {vertical}")
            continue
        across, up = (metaparameters.on_its_scale(name, space) for name in (metaparameters.LEARNING_RATE, vertical))
        of_study = trials.of_commits(workload.commits, target, strict=request.rule.strict)
        planes = {
            along(commit.study): tuning.place_trials(of_study[commit.name].rows_in_k, across, up, budget)
            for commit in workload.commits
        }
        planes = {size: points for size, points in planes.items() if len(points.x)}
        if not planes:
            yield Skipped(what, "no trial has ended")
            continue
        limits = tuning.plane_limits(list(planes.values()), across, up)
        contours = vertical == metaparameters.MOMENTUM
        panels = [
            tuning.plane_panel(f"batch size {size:,}", plane, across, up, limits, contours)
            for size, plane in planes.items()
        ]
        limit = "" if math.isinf(budget) else f" within {budget:,.0f} steps"
        for page in pages.paginate(panels):
            goals = [f"{workload.title} · the goal is {text.goal(target, request.rule)}{limit}"]
            names = _names(workload, target)
            yield pages.picture(
                "Which trials reach the goal", goals, page, tuning.plane_symbols(contours), names, request
            )


def split(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields one picture per workload and target: best error and steps to target, grouped by a metaparameter."""
    for workload, target in requests.each(selection, request):
        what = f"split of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, target, strict=request.rule.strict)
        name = request.by or metaparameters.default_split(list(of_study.values()))
        groups = metaparameters.split(list(of_study.values()), name)
        if len(groups) < 2:
            yield Skipped(what, f"its trials do not differ in {name}. Use --by with another metaparameter.")
            continue
        lines = [curve_fits.of_workload(workload, target, request.rule, group.kept, group.label) for group in groups]
        members = yield from pages.keep_drawable((f"{line.label} in {what}", line) for line in lines)
        errors = []
        for group in groups:
            ids_by_study = _ids_by_study(workload, of_study, request.rule, group.kept)
            counted = zip(workload.commits, ids_by_study, strict=True)
            errors += best.lowest_errors(
                [trials.best_within(commit, target.metric, ids, [math.inf]) for commit, ids in counted], [group.label]
            )
        stop = pages.stops_at(workload, target.metric)
        if stop is not None and all((line.error <= stop).all() for line in errors):
            errors = []  # they would only show the error at which trials stopped
        panels = []
        if errors:
            panels.append(best.panel("best error of any trial", target.metric, errors, ordered=False, stop=stop))
        if members:
            panels.append(
                lines_of_steps.panel(f"steps to {members[0].curve.target_text}", members, perfect=members[0].label)
            )
        if panels:
            symbols = lines_of_steps.symbols(members, alone=False, perfect=True) if members else []
            symbols += best.symbols(stop) if errors else []
            goals = [workload.title + (f" · {pages.trial_counts(members)}" if members else "")]
            names = [*_names(workload, target), name]
            title = f"Trials split by {name.replace('_', ' ')}"
            yield pages.picture(title, goals, panels, symbols, names, request)


def _ids_by_study(
    workload: WorkloadStudies, of_study: Mapping[str, StudyTrials], rule: Rule, kept: curves.TrialFilter | None = None
) -> list[set[int]]:
    """Returns the ids of the trials that count in each study."""
    return [set(curves.trials_by_rule(of_study[commit.name], rule, kept)["trial"]) for commit in workload.commits]


def budget(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields one picture per workload and metric, with one panel for step budgets and one for example budgets."""
    for workload, metric in requests.metrics(selection, request):
        what = f"budget of {workload.title}"
        if workload.pruned:
            yield Skipped(what, PRUNED)
            continue
        of_study = trials.of_commits(workload.commits, Target(metric, 0.0), strict=request.rule.strict)
        ids_by_study = _ids_by_study(workload, of_study, request.rule)
        panels = _budget_panels(workload, metric, ids_by_study, request)
        if not panels:
            yield Skipped(what, f"no counted trial measured {metric}")
            continue
        count = text.span([len(ids) for ids in ids_by_study])
        goals = [f"{workload.title} · best of {count} trials that were planned to run that long"]
        names = [*pages.file_names([workload]), metric]
        symbols = best.symbols(pages.stops_at(workload, metric))
        yield pages.picture("Best error within a budget", goals, panels, symbols, names, request)


def _budget_panels(
    workload: WorkloadStudies, metric: str, ids_by_study: Sequence[set[int]], request: FigureRequest
) -> list[Panel]:
    sizes = [along(commit.study) for commit in workload.commits]
    planned = [trials.planned_steps(commit) for commit in workload.commits]
    of_steps = list(request.steps) or trials.budget_series(planned, MOST_BUDGETS)
    of_examples = trials.budget_series(
        [steps_planned * size for steps_planned, size in zip(planned, sizes, strict=True)], MOST_BUDGETS
    )
    panels = []
    for noun, all_budgets, per_step in (("steps", of_steps, [1 for _ in sizes]), ("examples", of_examples, sizes)):
        errors = [
            trials.best_within(commit, metric, ids, [budget / step_size for budget in all_budgets])
            for commit, ids, step_size in zip(workload.commits, ids_by_study, per_step, strict=True)
        ]
        members = best.lowest_errors(errors, [f"{budget:,} {noun}" for budget in all_budgets])
        if members:
            stop = pages.stops_at(workload, metric)
            panels.append(best.panel(f"budget of {noun}", metric, members, ordered=True, stop=stop))
    return panels


def _names(workload: WorkloadStudies, target: Target) -> list[str]:
    return [*pages.file_names([workload]), target.metric, decimal(target.value)]
