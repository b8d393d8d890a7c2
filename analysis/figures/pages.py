"""Pages: panels of a kind under one title, and what is said about the trials in them."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from matplotlib.artist import Artist

from analysis.figures.requests import FigureRequest
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import grid
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.workload_studies import WorkloadStudies

T = TypeVar("T")

MOST = 12  # panels on a page
FIELDS = ("dataset", "model", "optimizer")


def paginate(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """``several`` in as many pages as they need."""
    for first in range(0, len(several), MOST):
        yield several[first : first + MOST]


def keep_drawable(lines: Iterable[tuple[str, CurveFits]]) -> Generator[Skipped, None, list[CurveFits]]:
    """Yields why a line cannot be drawn, under the words that come with it; returns the others."""
    members = []
    for words, line in lines:
        if line.drawable:
            members.append(line)
        else:
            yield Skipped(words, f"{line.why_nothing} ({line.curve.target_text})")
    return members


def picture(
    title: str,
    goals: Sequence[str],
    panels: Sequence[Panel],
    symbols: Sequence[Artist],
    names: Sequence[str],
    request: FigureRequest,
) -> Picture:
    """Panels in rows of up to three; ``names`` become the file's, after the kind."""
    return Picture((request.kind, *names), grid.grid(title, list(filter(None, goals)), grid.positions(panels), symbols))


def file_names(workloads: Sequence[WorkloadStudies]) -> list[str]:
    """The names that all workloads agree on, as parts of a file name."""
    return _shared(workloads) or ["all"]


def shared_words(workloads: Sequence[WorkloadStudies]) -> str:
    """The names that all workloads agree on, as a line says them; empty if there are none."""
    return " · ".join(_shared(workloads))


def _shared(workloads: Sequence[WorkloadStudies]) -> list[str]:
    values = [list(dict.fromkeys(getattr(one, field) for one in workloads)) for field in FIELDS]
    return [own[0] for own in values if len(own) == 1]


def panel_title(workloads: Sequence[WorkloadStudies], one: WorkloadStudies) -> str:
    """The title of the panel of ``one``: whatever is not the same for all workloads."""
    differing = [getattr(one, field) for field in FIELDS if len({getattr(other, field) for other in workloads}) > 1]
    return " · ".join([*differing, one.distinction] if one.distinction else differing) or one.title


def trial_counts(lines: Sequence[CurveFits]) -> str:
    """The number of trials that points are the best of, by which rule, and whether they were pruned."""
    counts = sorted({one.selected.points.trials or 0 for one in lines})
    span = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
    which = "COMPLETE trials" if lines[0].curve.rule.strict else "trials"
    pruned = {one.curve.pruned for one in lines}
    cut = "pruned" if pruned == {True} else "some pruned" if True in pruned else "not pruned"
    return f"best of {span} {which} at every batch size, {cut}"


def stops_at(workload: WorkloadStudies, metric: str) -> float | None:
    """The error at which trials of a workload stopped, as it was their only target; None if they went on."""
    own = workload.commits[0].study.targets
    return own[0].value if len(own) == 1 and own[0].metric == metric else None
