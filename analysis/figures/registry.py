"""The registry of figures, each with its source, its drawing function and a description.

Functions are given as dotted names, and are imported when they are needed. Matplotlib and pyarrow are imported inside
the functions that need them, so `figures --list` starts quickly.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import kind_views
from analysis.figures import paper_lines
from analysis.kind_views import BATCH, PAPER, PUBLISHED, Figure
from results import durable, tables
from results.aliases import Strings
from results.bad_input import BadInput, check_choice
from results.located import located
from results.plans.study import TargetRequest

if TYPE_CHECKING:
    from analysis.figures.requests import FigureRequest
    from analysis.plotting.picture import Pictures, Skipped
    from results.durable import Folder
    from results.printing import Report

SHALLUE = "shallue2018"
ALX = "alx2022"  # figures of other factorizations with a credit in the title, drawn only on request
AFTER_ALX = "after ALX, Mehta et al. 2021"
WORKLOADS = "workloads"


FIGURES: dict[str, Figure] = {
    name: figure._replace(source=figure.source or row.source)
    for row in kind_views.PRESENTATIONS.values()
    for name, figure in row.figures.items()
}
FIGURES |= {
    "steps": Figure(
        "analysis.figures.workload_figures.steps", "steps to target against batch size, a panel per workload", WORKLOADS
    ),
    "targets": Figure(
        "analysis.figures.workload_figures.targets", "steps to several targets, a panel per workload", WORKLOADS
    ),
    "compare": Figure(
        "analysis.figures.workload_figures.compare",
        "optimizers of a workload, or models or data sets with --by model or --by dataset",
        WORKLOADS,
    ),
    "metaparameters": Figure(
        "analysis.figures.workload_figures.best_trials",
        "metaparameters of the best trial against batch size, with linear and square-root rules",
        WORKLOADS,
    ),
    "scatter": Figure(
        "analysis.figures.workload_figures.scatter",
        "trials over learning rate and 1 - momentum (or --by another) that reach the goal, miss it or diverge",
        WORKLOADS,
    ),
    "split": Figure(
        "analysis.figures.workload_figures.split",
        "trials split --by a metaparameter, such as label_smoothing",
        WORKLOADS,
    ),
    "budget": Figure(
        "analysis.figures.workload_figures.budget", "best error within budgets of steps and of examples", WORKLOADS
    ),
    "learning_curves": Figure(
        "analysis.figures.learning_curves.learning_curves",
        "all trials of each study, the best so far, and where it crosses the target",
        WORKLOADS,
    ),
}
FIGURES |= {
    f"{SHALLUE}/figure{number}": Figure(
        "analysis.figures.shallue2018.figure", f"Shallue et al. 2018: {title}", PAPER, (number,)
    )
    for number, title in paper_lines.TITLES.items()
}
FIGURES |= {
    f"{ALX}/{name}": FIGURES[name]._replace(shows=f"{AFTER_ALX}: {FIGURES[name].shows}", credit=AFTER_ALX)
    for name in ("epochs", "precision", "solvers", "tuning")
}
KINDS = [name for name, row in FIGURES.items() if row.source in (WORKLOADS, BATCH)]  # can be drawn with --where
# Functions that read a store, by the source of figures.
LOADERS = {row.source: row.load for row in kind_views.PRESENTATIONS.values() if row.load}
LOADERS[PAPER] = "analysis.figures.paper_workloads.of_store"


def draw(figure: Figure, *data: Any) -> "Pictures":
    """Yields the pictures of a figure, drawn from the data. For ``workloads``, pass both workloads and request."""
    from analysis.plotting import picture

    for item in pkgutil.resolve_name(figure.function)(*data, *figure.arguments):
        if figure.credit and isinstance(item, picture.Picture):
            picture.add_to_title(item.figure, figure.credit)
        yield item


def store_figures() -> list[str]:
    """Returns the names of the figures drawn from a whole store."""
    return [name for name, row in FIGURES.items() if row.source != WORKLOADS]


def listed() -> list[tuple[str, str]]:
    """Returns the names of all figures and then of all kinds, each with its description."""
    figures = [(name, row.shows) for name, row in FIGURES.items() if row.source != WORKLOADS]
    return figures + [(f"--kind {name}", row.shows) for name, row in FIGURES.items() if row.source == WORKLOADS]


def listing() -> str:
    """Formats ``listed`` as text."""
    header = ("", " ")
    lines = tables.table(header, listed(), left=header, prose=header[1:]).split("\n")
    return "\n".join(lines[1:])


@located
def write_all(
    folder: "Folder",
    out: str | Path,
    report: "Callable[[Path | Skipped], None]",
    name: str | None = None,
    target: TargetRequest = None,
    on_progress: "Report | None" = None,
) -> None:
    """Writes all figures of the store at ``folder`` to ``out``, or only the figures called ``name``.

    Args:
      folder: folder of the store.
      out: folder for the pictures. It is created if needed.
      report: called with each written file and each ``Skipped`` figure. If no name is given, skipped figures are
        summarized in one line.
      name: name of a figure, or of a paper for all its figures.
      target: metric and value to use instead of the studies' own targets.
      on_progress: called with progress lines.

    Raises:
      BadInput: the figure or the store does not exist, or ``out`` cannot be written.
    """
    from analysis.plotting.picture import Skipped
    from results import store

    if name is None:
        names = [
            figure_name
            for figure_name in store_figures()
            if not FIGURES[figure_name].credit and FIGURES[figure_name].source != PUBLISHED
        ]
    else:
        names = [figure_name for figure_name in store_figures() if name in (figure_name, figure_name.partition("/")[0])]
    if not names:
        check_choice("figure", name, store_figures())
    out = _checked(out)
    commits = store.catalogue(folder)
    present = kind_views.drawn(commits) if commits else {BATCH}
    if commits and BATCH in present:
        papers = _load(PAPER, folder, target)
        has_any = pkgutil.resolve_name("analysis.figures.shallue2018.has_any")
        if name is not None or not papers or has_any(papers):  # without a name, a missing paper is not reported
            present.add(PAPER)
    taken = set[str]()
    passed: dict[str, list[Skipped]] = {}
    for source in (*LOADERS, PUBLISHED):
        wanted = [figure_name for figure_name in names if FIGURES[figure_name].source == source]
        if not wanted:
            continue
        if source not in {*present, PUBLISHED}:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {BATCH if source == PAPER else source}"))
            continue
        try:
            data = (
                [papers if source == PAPER else _load(source, folder, target, on_progress)]
                if source != PUBLISHED
                else []
            )
        except BadInput as error:
            if present == {source} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of other kinds are still drawn
            continue
        for figure in wanted:
            prefix = () if source == PAPER else tuple(figure.split("/"))
            for item in _written(draw(FIGURES[figure], *data), prefix, out, taken):
                if name is None and isinstance(item, Skipped):
                    passed.setdefault(figure, []).append(item)
                else:
                    report(item)
    if passed:
        report(_summarized(passed))


def _load(source: str, folder: "Folder", target: TargetRequest, on_progress: "Report | None" = None) -> Any:
    """Reads the data from a source. The target and the progress are used only for curves."""
    load = pkgutil.resolve_name(LOADERS[source])
    return load(folder, target, on_progress) if source == BATCH else load(folder)


@located
def write_kind(
    folder: "Folder",
    out: str | Path,
    report: "Callable[[Path | Skipped], None]",
    request: "FigureRequest",
    on_progress: "Report | None" = None,
) -> None:
    """Writes figures of one kind for the requested studies.

    Args:
      folder, out, report, on_progress: see ``write_all``. Every ``Skipped`` figure is reported.
      request: the kind and its studies.

    Raises:
      BadInput: the kind or the studies do not exist, or ``out`` cannot be written.
    """
    check_choice("kind", request.kind, KINDS)
    prefix = (request.kind,) if FIGURES[request.kind].source == BATCH else ()
    for item in _written(draw_kind(folder, request, on_progress), prefix, _checked(out), set()):
        report(item)


@located
def draw_kind(folder: "Folder", request: "FigureRequest", on_progress: "Report | None" = None) -> "Pictures":
    """Yields pictures of one kind for the requested studies, and ``Skipped`` for studies that cannot be drawn.

    ``on_progress`` is called with progress lines.

    Raises:
      BadInput: the kind or the studies do not exist.
    """
    from analysis import workload_studies
    from analysis.figures import requests
    from analysis.fitting import curve_fits
    from results import progress

    check_choice("kind", request.kind, KINDS)
    selection, without = requests.with_targets(workload_studies.of_store(folder, request.where), request)
    yield from without
    figure = FIGURES[request.kind]
    if figure.source == BATCH:
        wanted = progress.track(list(requests.each(selection, request)), "fit", " curves", on_progress)
        lines = [curve_fits.of_workload(*goal, request.rule) for goal in wanted]
        yield from draw(figure, lines)
    else:
        yield from draw(figure, selection, request)


def _written(pictures: "Pictures", prefix: Strings, out: Path, taken: set[str]) -> "Iterator[Path | Skipped]":
    """Writes pictures to the folder ``out``, under names that are not yet taken. Yields files and skipped figures."""
    import matplotlib

    from analysis.plotting import picture

    with matplotlib.rc_context(picture.SETTINGS):
        for item in pictures:
            if isinstance(item, picture.Skipped):
                yield item
                continue
            stem = picture.unique_stem(picture.slug((*prefix, *item.names)), taken)
            for suffix in ("png", "svg"):
                yield picture.write(out / f"{stem}.{suffix}", item.figure)


def _summarized(passed: "Mapping[str, Sequence[Skipped]]") -> "Skipped":
    """Summarizes all skipped items in one line, with the command that shows the reasons. A single item is kept."""
    from analysis.plotting.picture import Skipped

    (first, items), *other_figures = passed.items()
    if not other_figures and len(items) == 1:
        return items[0]
    counts = ", ".join(
        f"{name} ({len(pictures)} pictures)" if len(pictures) > 1 else name for name, pictures in passed.items()
    )
    choice = f"--name {first}, or another of these" if other_figures else f"--name {first}"
    return Skipped(counts, f"for the reasons, add {choice}")


def _checked(out: str | Path) -> Path:
    """Returns the folder for pictures. Raises BadInput if it is a file."""
    folder = durable.local(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {out} is a file. Name a folder.")
    return folder
