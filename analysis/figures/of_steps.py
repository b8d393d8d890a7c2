"""Kinds of figures of steps to target: one workload a panel, several targets, several workloads."""

from collections.abc import Iterator, Sequence

from analysis.figures import asked as asking
from analysis.figures import pages
from analysis.figures.asked import Asked
from analysis.fitting import pairs
from analysis.fitting.pairs import Fitted
from analysis.plotting import steps
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.workloads import WorkloadStudies
from results.bad_input import check_choice
from results.plans.study import Target

Made = Iterator[Picture | Skipped]
EASIER = (1.0, 1.25, 1.5, 2.0)  # times the target, of a workload that has one only
DIGITS = 6


def one_by_one(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One panel per workload and target."""
    drawn: list[tuple[Panel, Fitted, WorkloadStudies]] = []
    wanted = list(asking.each(found, asked))
    several = len({target for _, target in wanted}) > 1
    for workload, target in wanted:
        line = pairs.of_workload(workload, target, asked.rule)
        title = pages.apart(found, workload) + (f", {line.curve.sought}" if several else "")
        if line.drawable:
            drawn.append((steps.panel(title, [line]), line, workload))
        else:
            yield Skipped(f"steps of {workload.title}", f"{line.why_nothing} ({line.curve.sought})")
    for page in pages.of(drawn):
        own, workloads = [line for _, line, _ in page], [workload for _, _, workload in page]
        told = [pages.shared(workloads), "" if several else own[0].curve.sought, pages.counted(own)]
        symbols = steps.symbols(own, alone=True, perfect=True)
        goals = [" · ".join(filter(None, told))]
        yield pages.picture(
            "Steps to target", goals, [panel for panel, _, _ in page], symbols, _names(workloads, own), asked
        )


def targets(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One panel per workload with a line per target; of one target also easier ones, which the same trials tell."""
    drawn: list[tuple[Panel, list[Fitted], WorkloadStudies]] = []
    for workload in found:
        own = asking.targets(workload, asked)
        if len(own) == 1:
            own = [Target(own[0].metric, float(f"{own[0].value * times:.{DIGITS}g}")) for times in EASIER]
        members = []
        for target in own:
            line = pairs.of_workload(workload, target, asked.rule)
            if line.drawable:
                members.append(line._replace(label=line.curve.sought))
            else:
                yield Skipped(f"targets of {workload.title}", f"{line.why_nothing} ({line.curve.sought})")
        if members:
            panel = steps.panel(pages.apart(found, workload), members, perfect="", ordered=True)
            drawn.append((panel, members, workload))
    for page in pages.of(drawn):
        every, workloads = [line for _, members, _ in page for line in members], [one for _, _, one in page]
        goals = [" · ".join(filter(None, [pages.shared(workloads), pages.counted(every)]))]
        symbols = steps.symbols(every, alone=False, perfect=False)
        panels = [panel for panel, _, _ in page]
        yield pages.picture("Steps to several targets", goals, panels, symbols, pages.names(workloads), asked)


def compare(found: Sequence[WorkloadStudies], asked: Asked) -> Made:
    """One panel per group of workloads that differ in one thing: their optimizer, their model or their data set."""
    by = asked.by or "optimizer"
    check_choice("--by", by, pages.FIELDS)
    groups: dict[tuple[object, ...], list[tuple[WorkloadStudies, Target]]] = {}
    for workload, target in asking.each(found, asked):
        same = tuple(getattr(workload, field) for field in pages.FIELDS if field != by)
        goal = None if by == "dataset" else target  # as every data set has a target of its own
        groups.setdefault((*same, goal), []).append((workload, target))
    drawn: list[tuple[Panel, list[Fitted]]] = []
    for key, group in groups.items():
        title = " · ".join(map(str, key[:2]))
        members = []
        for workload, target in group:
            line = pairs.of_workload(workload, target, asked.rule)
            name = getattr(workload, by) + (f" ({workload.distinction})" if workload.distinction else "")
            line = line._replace(label=f"{name}, {line.curve.sought}" if by == "dataset" else name)
            if line.drawable:
                members.append(line)
            else:
                yield Skipped(f"{name} in compare of {title}", f"{line.why_nothing} ({line.curve.sought})")
        if len(members) < 2:
            yield Skipped(f"compare of {title}", f"fewer than two {by}s have a curve; --by tells what is compared")
            continue
        if by != "dataset":
            title += f", {members[0].curve.sought}"
        drawn.append((_compared(title, members, by), members))
    for page in pages.of(drawn):
        every = [line for _, members in page for line in members]
        goals = [pages.counted(every)]
        symbols = steps.symbols(every, alone=False, perfect=True)
        title = {"optimizer": "Optimizers", "model": "Models", "dataset": "Data sets"}[by]
        yield pages.picture(title, goals, [panel for panel, _ in page], symbols, [by, *_same(every, by)], asked)


def _compared(title: str, members: Sequence[Fitted], by: str) -> Panel:
    """As in the paper, models and data sets are compared relative to the smallest batch size that all have."""
    sizes = set.intersection(*(set(one.judged.points.batch_size) for one in members))
    relative = int(min(sizes)) if by != "optimizer" and sizes else None
    return steps.panel(title, members, perfect=members[0].label, relative_to=relative)


def _names(workloads: Sequence[WorkloadStudies], drawn: Sequence[Fitted]) -> list[str]:
    targets = {(line.curve.target.metric, f"{line.curve.target.value:g}") for line in drawn}
    return [*pages.names(workloads), *(targets.pop() if len(targets) == 1 else ())]


def _same(members: Sequence[Fitted], by: str) -> list[str]:
    """What all lines agree on."""
    fields = [field for field in pages.FIELDS if field != by]
    values = [{getattr(line.curve, field) for line in members} for field in fields]
    return [own.pop() for own in values if len(own) == 1]
