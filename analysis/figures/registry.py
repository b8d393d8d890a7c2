"""The registry of figures, each with its source, its drawing function and a description.

Functions are given by name and imported when they draw, and matplotlib and pyarrow are imported inside the functions
that need them, so that `figures --list` starts quickly.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import kind_views
from analysis.figures import definitions
from analysis.kind_views import BATCH, CORES, LAYOUTS, PAPER
from results import durable, printing
from results.aliases import Strings
from results.bad_input import BadInput, check_choice
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
PUBLISHED = "published"  # numbers in results/papers, which do not need a store


class Figure(NamedTuple):
    """A row of the registry.

    Attributes:
      source: key of ``LOADERS``, ``published`` for numbers from a paper, or ``workloads`` for batch-size workloads that
        a request selects.
      function: dotted name of the function in ``analysis`` that yields the pictures.
      shows: description in the list of figures.
      arguments: arguments for the function, after the data.
      credit: credit to add to each picture's title.
    """

    source: str
    function: str
    shows: str
    arguments: tuple[Any, ...] = ()
    credit: str = ""

    def draw(self, *data: Any) -> "Pictures":
        """Yields pictures of the data. For ``workloads``, pass the workloads and the request."""
        from analysis.plotting import picture

        for item in _imported(self.function)(*data, *self.arguments):
            if self.credit and isinstance(item, picture.Picture):
                picture.add_to_title(item.figure, self.credit)
            yield item


FIGURES: dict[str, Figure] = {
    "steps_to_target": Figure(
        BATCH,
        "figures.batch_figures.steps_to_target",
        "steps to target against batch size with regimes, one picture per curve",
    ),
    "optimizers": Figure(
        BATCH, "figures.batch_figures.optimizers", "the curves of all optimizers of a workload in one picture"
    ),
    "summary": Figure(BATCH, "figures.summaries.summary", "summary page of a curve, with its trials and its fit"),
    "best_of": Figure(
        BATCH, "figures.best_of_figures.pays", "how far doubling pays off against the number of trials per point"
    ),
    "narrowing": Figure(
        BATCH,
        "figures.narrowing_figures.of_curves",
        "expected width of pays up to and efficient up to against the multiple of the trials",
    ),
    "payoff": Figure(
        BATCH,
        "figures.payoff_figures.of_curves",
        "time to target and device-hours against devices, with their Pareto front",
    ),
    "payoff_paper": Figure(
        PUBLISHED,
        "figures.forest_figures.of_paper",
        "the batch size up to which doubling pays off, one row per workload of Shallue et al. 2018",
    ),
    "payoff_cores": Figure(
        CORES,
        "figures.payoff_figures.of_factorizations",
        "time and device-hours of factorizations against cores, with their Pareto front",
    ),
    "epochs": Figure(
        CORES,
        "figures.scaling_figures.epochs_against_cores",
        "seconds per epoch of a factorization against cores, one picture per curve",
    ),
    "speedup": Figure(
        CORES, "figures.scaling_figures.speedup", "speed-up and efficiency against cores, all curves of a device"
    ),
    "recall": Figure(CORES, "figures.recall_figures.recall", "Recall@20 and @50 of all factorizations of a data set"),
    "precision": Figure(
        CORES, "figures.recall_figures.precision", "recall and objective against epochs, for each number format"
    ),
    "solvers": Figure(CORES, "figures.recall_figures.solvers", "recall and objective against seconds, for each solver"),
    "tuning": Figure(
        CORES, "figures.recall_figures.tuning", "recall over the plane of unobserved weight and norm penalty"
    ),
    "layout_cost": Figure(
        LAYOUTS, "figures.layout_figures.cost", "seconds per step of each layout against bytes sent, by redundancy"
    ),
    "layout_pareto": Figure(
        LAYOUTS,
        "figures.layout_figures.pareto",
        "seconds per step against bytes held, with the Pareto front of layouts",
    ),
    "layout_predicted": Figure(
        LAYOUTS,
        "figures.layout_figures.predicted",
        "predicted against measured seconds per step, with the spread of renamed twins",
    ),
    "layout_published": Figure(
        LAYOUTS, "figures.layout_figures.published", "utilization of published layouts against chips"
    ),
    "steps": Figure(
        WORKLOADS, "figures.workload_figures.steps", "steps to target against batch size, a panel per workload"
    ),
    "targets": Figure(WORKLOADS, "figures.workload_figures.targets", "steps to several targets, a panel per workload"),
    "compare": Figure(
        WORKLOADS,
        "figures.workload_figures.compare",
        "optimizers of a workload, or models or data sets with --by model or --by dataset",
    ),
    "metaparameters": Figure(
        WORKLOADS,
        "figures.workload_figures.best_trials",
        "metaparameters of the best trial against batch size, with linear and square-root rules",
    ),
    "scatter": Figure(
        WORKLOADS,
        "figures.workload_figures.scatter",
        "trials over learning rate and 1 - momentum (or --by another) that reach the goal, miss it or diverge",
    ),
    "split": Figure(
        WORKLOADS, "figures.workload_figures.split", "trials split --by a metaparameter, such as label_smoothing"
    ),
    "budget": Figure(
        WORKLOADS, "figures.workload_figures.budget", "best error within budgets of steps and of examples"
    ),
    "learning_curves": Figure(
        WORKLOADS,
        "figures.learning_curves.learning_curves",
        "all trials of each study, the best so far, and where it crosses the target",
    ),
    "searches": Figure(
        WORKLOADS,
        "figures.best_of_figures.searches",
        "steps to target of searches of --best-of trials, with 90 % bands, a picture per workload",
    ),
}
FIGURES |= {
    f"{SHALLUE}/figure{number}": Figure(PAPER, "figures.shallue2018.figure", f"Shallue et al. 2018: {title}", (number,))
    for number, title in definitions.TITLES.items()
}
FIGURES |= {
    f"{ALX}/{name}": FIGURES[name]._replace(shows=f"{AFTER_ALX}: {FIGURES[name].shows}", credit=AFTER_ALX)
    for name in ("epochs", "speedup", "recall", "precision", "solvers", "tuning")
}
KINDS = [name for name, row in FIGURES.items() if row.source in (WORKLOADS, BATCH)]  # can be drawn with --where
# Functions that read a store: batch-size curves with fits, factorizations, layouts, and a paper's workloads.
LOADERS = {
    BATCH: "fitting.curve_fits.of_store",
    CORES: "cores.factorizations.load",
    LAYOUTS: "measured_layouts.load",
    PAPER: "figures.shallue2018.of_store",
}


def _imported(name: str) -> Callable[..., Any]:
    """Imports a function in ``analysis`` by its dotted name."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"analysis.{module}"), function)


def store_figures() -> list[str]:
    """Returns the names of the figures drawn from a whole store."""
    return [name for name, row in FIGURES.items() if row.source != WORKLOADS]


def listed() -> list[tuple[str, str]]:
    """Returns the names of all figures, then of the kinds, each with its description."""
    figures = [(name, row.shows) for name, row in FIGURES.items() if row.source != WORKLOADS]
    return figures + [(f"--kind {name}", row.shows) for name, row in FIGURES.items() if row.source == WORKLOADS]


def listing() -> str:
    """Formats ``listed`` as text."""
    header = ("", " ")
    lines = printing.table(header, listed(), left=header, prose=header[1:]).split("\n")
    return "\n".join(lines[1:])


@durable.located
def write_all(
    folder: "Folder",
    out: str | Path,
    report: "Callable[[Path | Skipped], None]",
    name: str | None = None,
    target: TargetRequest = None,
    on_progress: "Report | None" = None,
) -> None:
    """Writes all figures of the store at ``folder``, or those called ``name``, to ``out``.

    Args:
      folder: folder of the store.
      out: folder for the pictures. It is created if needed.
      report: called with each written file and each ``Skipped`` figure. Without a name, skipped figures are summarized
        in one line.
      name: name of a figure, or of a paper for all its figures.
      target: metric and value to use instead of the studies' own targets.
      on_progress: called with progress lines.

    Raises:
      BadInput: the figure or the store does not exist, or ``out`` cannot be written.
    """
    from analysis.plotting.picture import Skipped
    from results import store

    if name is None:
        names = [each for each in store_figures() if not FIGURES[each].credit and FIGURES[each].source != PUBLISHED]
    else:
        names = [each for each in store_figures() if name in (each, each.partition("/")[0])]
    if not names:
        check_choice("figure", name, store_figures())
    out = _checked(out)
    commits = store.catalogue(folder)
    present = kind_views.drawn(commits)
    if not commits:
        present.add(BATCH)
    papers = _load(PAPER, folder, target) if PAPER in present else None
    if papers and name is None and not _imported("figures.shallue2018.has_any")(papers):
        present.remove(PAPER)  # a missing paper is reported only if it was requested by name
    taken = set[str]()
    passed: dict[str, list[Skipped]] = {}
    for source in (*LOADERS, PUBLISHED):
        wanted = [each for each in names if FIGURES[each].source == source]
        if not wanted:
            continue
        if source not in {*present, PUBLISHED}:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {kind_views.kinds_drawn_as(source)[0]}"))
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
            for item in _written(FIGURES[figure].draw(*data), prefix, out, taken):
                if name is None and isinstance(item, Skipped):
                    passed.setdefault(figure, []).append(item)
                else:
                    report(item)
    if passed:
        report(_summarized(passed))


def _load(source: str, folder: "Folder", target: TargetRequest, on_progress: "Report | None" = None) -> Any:
    """Reads the data from a source. Only curves use a target and show progress."""
    load = _imported(LOADERS[source])
    return load(folder, target, on_progress) if source == BATCH else load(folder)


@durable.located
def write_kind(
    folder: "Folder",
    out: str | Path,
    report: "Callable[[Path | Skipped], None]",
    request: "FigureRequest",
    on_progress: "Report | None" = None,
) -> None:
    """Writes figures of one kind for the requested studies.

    Args:
      folder, out, report, on_progress: as in ``write_all``. Every ``Skipped`` figure is reported.
      request: the kind and its studies.

    Raises:
      BadInput: the kind or the studies do not exist, or ``out`` cannot be written.
    """
    check_choice("kind", request.kind, KINDS)
    prefix = (request.kind,) if FIGURES[request.kind].source == BATCH else ()
    for item in _written(draw_kind(folder, request, on_progress), prefix, _checked(out), set()):
        report(item)


@durable.located
def draw_kind(folder: "Folder", request: "FigureRequest", on_progress: "Report | None" = None) -> "Pictures":
    """Yields pictures of one kind for the requested studies, and ``Skipped`` for those that cannot be drawn.

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
        lines = [curve_fits.of_workload(*each, request.rule) for each in wanted]
        yield from figure.draw(lines)
    else:
        yield from figure.draw(selection, request)


def _written(pictures: "Pictures", prefix: Strings, out: Path, taken: set[str]) -> "Iterator[Path | Skipped]":
    """Writes pictures to the folder ``out``, under names that are not ``taken``. Yields files and skipped figures."""
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
    """Summarizes all skipped items in one line, with the command that shows the reasons. Keeps a single item."""
    from analysis.plotting.picture import Skipped

    (first, items), *others = passed.items()
    if not others and len(items) == 1:
        return items[0]
    counts = ", ".join(f"{name} ({len(own)})" if len(own) > 1 else name for name, own in passed.items())
    choice = f"--name {first} or another of these" if others else f"--name {first}"
    return Skipped(counts, f"run it with {choice} for the reasons")


def _checked(out: str | Path) -> Path:
    """Returns the folder for pictures. Raises BadInput if it is a file."""
    folder = durable.local(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {out} is a file. Name a folder.")
    return folder
