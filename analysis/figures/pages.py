"""Pages: panels of a kind under one title, and what is said about the trials in them."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from matplotlib.artist import Artist

from analysis.figures.asked import Asked
from analysis.fitting.pairs import Fitted
from analysis.plotting import grid
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture
from analysis.workloads import WorkloadStudies

T = TypeVar("T")

MOST = 12  # panels on a page
FIELDS = ("dataset", "model", "optimizer")


def of(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """``several`` in as many pages as they need."""
    for first in range(0, len(several), MOST):
        yield several[first : first + MOST]


def picture(
    title: str,
    goals: Sequence[str],
    panels: Sequence[Panel],
    symbols: Sequence[Artist],
    names: Sequence[str],
    asked: Asked,
) -> Picture:
    """Panels in rows of up to three; ``names`` become the file's, after the kind."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    places = {divmod(i, columns): panel for i, panel in enumerate(panels)}
    return Picture((asked.kind, *names), grid.grid(title, [goal for goal in goals if goal], places, symbols))


def names(found: Sequence[WorkloadStudies]) -> list[str]:
    """What all of these workloads agree on, as parts of a file name."""
    values = [list(dict.fromkeys(getattr(one, field) for one in found)) for field in FIELDS]
    return [own[0] for own in values if len(own) == 1] or ["all"]


def shared(found: Sequence[WorkloadStudies]) -> str:
    """What all of these workloads agree on, as a line says it; empty if nothing."""
    values = [list(dict.fromkeys(getattr(one, field) for one in found)) for field in FIELDS]
    return " · ".join(own[0] for own in values if len(own) == 1)


def apart(found: Sequence[WorkloadStudies], one: WorkloadStudies) -> str:
    """What a panel is called: whatever is not the same for all workloads."""
    differing = [getattr(one, field) for field in FIELDS if len({getattr(other, field) for other in found}) > 1]
    return " · ".join([*differing, one.distinction] if one.distinction else differing) or one.title


def counted(drawn: Sequence[Fitted]) -> str:
    """Of how many trials points are the best, by which rule, and whether they were pruned."""
    counts = sorted({one.judged.points.trials or 0 for one in drawn})
    span = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
    which = "COMPLETE trials" if drawn[0].curve.rule.strict else "trials"
    pruned = {one.curve.pruned for one in drawn}
    cut = "pruned" if pruned == {True} else "some pruned" if True in pruned else "not pruned"
    return f"best of {span} {which} at every batch size, {cut}"


def stops_at(workload: WorkloadStudies, metric: str) -> float | None:
    """The error at which trials of a workload stopped, as it was their only target; None if they went on."""
    own = workload.commits[0].study.targets
    return own[0].value if len(own) == 1 and own[0].metric == metric else None
