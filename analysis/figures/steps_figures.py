"""Kinds of figures of steps to target: one workload a panel, several targets, several workloads."""

from collections.abc import Sequence

from analysis.figures import pages, requests
from analysis.figures.requests import FigureRequest
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import steps as lines_of_steps
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Pictures, Skipped
from analysis.workload_studies import WorkloadStudies
from results.bad_input import check_choice
from results.plans.study import Target

EASIER = (1.0, 1.25, 1.5, 2.0)  # times the target, of a workload that has one only
DIGITS = 6


def steps(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One panel per workload and target."""
    goals = list(requests.each(selection, request))
    several = len({target for _, target in goals}) > 1
    entries: list[tuple[Panel, CurveFits, WorkloadStudies]] = []
    for workload, target in goals:
        title = pages.panel_title(selection, workload)
        line = curve_fits.of_workload(workload, target, request.rule)
        for one in (yield from pages.keep_drawable([(f"steps of {workload.title}", line)])):
            title += f", {one.curve.target_text}" if several else ""
            entries.append((lines_of_steps.panel(title, [one]), one, workload))
    for page in pages.paginate(entries):
        panels, lines, workloads = zip(*page, strict=True)
        words = [
            pages.shared_words(workloads),
            "" if several else lines[0].curve.target_text,
            pages.trial_counts(lines),
        ]
        symbols = lines_of_steps.symbols(lines, alone=True, perfect=True)
        names = _file_names(workloads, lines)
        yield pages.picture("Steps to target", [" · ".join(filter(None, words))], panels, symbols, names, request)


def targets(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One panel per workload with a line per target; of one target also easier ones, which the same trials tell."""
    entries: list[tuple[Panel, list[CurveFits], WorkloadStudies]] = []
    for workload in selection:
        goals = requests.targets(workload, request)
        if len(goals) == 1:
            goals = [Target(goals[0].metric, float(f"{goals[0].value * times:.{DIGITS}g}")) for times in EASIER]
        lines = [curve_fits.of_workload(workload, target, request.rule) for target in goals]
        labelled = [(f"targets of {workload.title}", line._replace(label=line.curve.target_text)) for line in lines]
        if members := (yield from pages.keep_drawable(labelled)):
            title = pages.panel_title(selection, workload)
            entries.append((lines_of_steps.panel(title, members, perfect="", ordered=True), members, workload))
    for page in pages.paginate(entries):
        panels, groups, workloads = zip(*page, strict=True)
        lines = [line for members in groups for line in members]
        words = [" · ".join(filter(None, [pages.shared_words(workloads), pages.trial_counts(lines)]))]
        symbols = lines_of_steps.symbols(lines, alone=False, perfect=False)
        names = pages.file_names(workloads)
        yield pages.picture("Steps to several targets", words, panels, symbols, names, request)


def compare(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """One panel per group of workloads that differ in one thing: their optimizer, their model or their data set."""
    by = request.by or "optimizer"
    check_choice("--by", by, pages.FIELDS)
    groups: dict[tuple[object, ...], list[tuple[WorkloadStudies, Target]]] = {}
    for workload, target in requests.each(selection, request):
        same = tuple(getattr(workload, field) for field in pages.FIELDS if field != by)
        goal = None if by == "dataset" else target  # as every data set has a target of its own
        groups.setdefault((*same, goal), []).append((workload, target))
    entries: list[tuple[Panel, list[CurveFits]]] = []
    for key, group in groups.items():
        title = " · ".join(map(str, key[:2]))
        labelled = []
        for workload, target in group:
            line = curve_fits.of_workload(workload, target, request.rule)
            name = getattr(workload, by) + (f" ({workload.distinction})" if workload.distinction else "")
            line = line._replace(label=f"{name}, {line.curve.target_text}" if by == "dataset" else name)
            labelled.append((f"{name} in compare of {title}", line))
        members = yield from pages.keep_drawable(labelled)
        if len(members) < 2:
            yield Skipped(f"compare of {title}", f"fewer than two {by}s have a curve; --by tells what is compared")
            continue
        title += f", {members[0].curve.target_text}" if by != "dataset" else ""
        entries.append((_compared(title, members, by), members))
    for page in pages.paginate(entries):
        lines = [line for _, members in page for line in members]
        symbols = lines_of_steps.symbols(lines, alone=False, perfect=True)
        title = {"optimizer": "Optimizers", "model": "Models", "dataset": "Data sets"}[by]
        names = [by, *_same(lines, by)]
        panels = [panel for panel, _ in page]
        yield pages.picture(title, [pages.trial_counts(lines)], panels, symbols, names, request)


def _compared(title: str, members: Sequence[CurveFits], by: str) -> Panel:
    """Steps relative to the smallest batch size that all have, as the paper compares models and data sets."""
    sizes = set.intersection(*(set(one.selected.points.batch_size) for one in members))
    relative = int(min(sizes)) if by != "optimizer" and sizes else None
    return lines_of_steps.panel(title, members, perfect=members[0].label, relative_to=relative)


def _file_names(workloads: Sequence[WorkloadStudies], lines: Sequence[CurveFits]) -> list[str]:
    goals = {(line.curve.target.metric, f"{line.curve.target.value:g}") for line in lines}
    return [*pages.file_names(workloads), *(goals.pop() if len(goals) == 1 else ())]


def _same(members: Sequence[CurveFits], by: str) -> list[str]:
    """The names that all lines agree on, but for what they are compared by."""
    fields = [field for field in pages.FIELDS if field != by]
    values = [{getattr(line.curve, field) for line in members} for field in fields]
    return [own.pop() for own in values if len(own) == 1]
