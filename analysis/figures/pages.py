"""Pages: panels of one kind under a title and a subtitle that describes their trials."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from matplotlib.artist import Artist

from analysis import text
from analysis.figures.requests import FigureRequest
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import grid
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.workload_studies import WorkloadStudies

T = TypeVar("T")

MOST = 12  # maximum panels per page
FIELDS = ("dataset", "model", "optimizer")


def paginate(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """Splits a sequence into pages of ``MOST`` panels."""
    for first in range(0, len(several), MOST):
        yield several[first : first + MOST]


def keep_drawable(lines: Iterable[tuple[str, CurveFits]]) -> Generator[Skipped, None, list[CurveFits]]:
    """Yields ``Skipped``, with a description, for each line that cannot be drawn. Returns the others."""
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
    """Returns a picture with up to three panels per row. Its file name contains the kind and ``names``."""
    return Picture((request.kind, *names), grid.grid(title, list(filter(None, goals)), grid.positions(panels), symbols))


def file_names(workloads: Sequence[WorkloadStudies]) -> list[str]:
    """Returns the names shared by all workloads, as parts of a file name."""
    return _shared(workloads) or ["all"]


def shared_words(workloads: Sequence[WorkloadStudies]) -> str:
    """Returns the names shared by all workloads, joined on one line, or an empty string."""
    return " · ".join(_shared(workloads))


def _shared(workloads: Sequence[WorkloadStudies]) -> list[str]:
    values = [list(dict.fromkeys(getattr(workload, field) for workload in workloads)) for field in FIELDS]
    return [names[0] for names in values if len(names) == 1]


def panel_title(workloads: Sequence[WorkloadStudies], workload: WorkloadStudies) -> str:
    """Returns the panel title for ``workload``: the names that distinguish it from the other workloads."""
    differing = [
        getattr(workload, field) for field in FIELDS if len({getattr(workload, field) for workload in workloads}) > 1
    ]
    return text.joined(*differing, workload.distinction) or workload.title


def trial_counts(lines: Sequence[CurveFits]) -> str:
    """Returns the subtitle with the number of trials per point, the rule, and whether trials were pruned."""
    span = text.span([line.selected.points.trials or 0 for line in lines])
    which = "COMPLETE trials" if lines[0].curve.rule.strict else "trials"
    return f"best of {span} {which} at every batch size, {pruning_words([line.curve.pruned for line in lines])}"


def pruning_words(pruned: Sequence[bool]) -> str:
    """Describes whether all, some or no searches were pruned."""
    if all(pruned):
        return "pruned"
    return "some pruned" if any(pruned) else "not pruned"


def stops_at(workload: WorkloadStudies, metric: str) -> float | None:
    """Returns the value at which a workload's trials stop: that of its only target if it has this metric, else None."""
    targets = workload.commits[0].study.search.targets
    return targets[0].value if len(targets) == 1 and targets[0].metric == metric else None
