"""Figures: one registry of all that is drawn, by which function and from what.

A figure is a function here, of the figure's name. To list them takes no time, as each imports the module that draws it
once it is to draw.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from analysis import kind_views
from analysis.figures import definitions
from analysis.kind_views import BATCH, CORES, LAYOUTS, PAPER
from results import cli, durable
from results.bad_input import BadInput, check_choice

if TYPE_CHECKING:
    from analysis.cores.factorizations import MeasuredFactorization
    from analysis.figures.requests import FigureRequest
    from analysis.figures.shallue2018 import PaperWorkloads
    from analysis.fitting.curve_fits import CurveFits
    from analysis.measured_layouts import MeasuredLayout
    from analysis.plotting.picture import Pictures, Skipped
    from analysis.workload_studies import WorkloadStudies
    from results.durable import Folder

SHALLUE = "shallue2018"
ALX = "alx2022"  # whose figures are the same as of any factorizations, and drawn under its name when asked for
AFTER_ALX = "after ALX, Mehta et al. 2021"
WORKLOADS = "workloads"
PUBLISHED = "published"  # numbers in results/papers, so no store is read


class Figure(NamedTuple):
    """A figure of the registry.

    Attributes:
      source: what it is drawn from: ``batch``, curves of batch sizes with their fits, of a whole store or of the
        workloads of a request; ``cores``, factorizations; ``layouts``, layouts on meshes; ``paper``, the workloads of a
        paper; ``workloads``, those over batch sizes that a request names.
      draw: yields its pictures of these; of ``workloads`` it also takes the request.
      shows: what it shows.
    """

    source: str
    draw: "Callable[..., Pictures]"
    shows: str


FIGURES: dict[str, Figure] = {}
Draw = TypeVar("Draw", bound="Callable[..., Pictures]")


def _figure(source: str, shows: str) -> Callable[[Draw], Draw]:
    """Adds a function to the figures under its name; ``source`` and ``shows`` as in ``Figure``."""

    def add(draw: Draw) -> Draw:
        FIGURES[draw.__name__] = Figure(source, draw, shows)
        return draw

    return add


@_figure(BATCH, "steps to target against batch size, one picture per curve, with its regimes")
def steps_to_target(curves: "Sequence[CurveFits]") -> "Pictures":
    from analysis.figures import batch_figures

    return batch_figures.steps_to_target(curves)


@_figure(BATCH, "the curves of all optimizers of a workload in one picture")
def optimizers(curves: "Sequence[CurveFits]") -> "Pictures":
    from analysis.figures import batch_figures

    return batch_figures.optimizers(curves)


@_figure(BATCH, "all there is on a workload: a page per curve, with its trials and its fit")
def summary(curves: "Sequence[CurveFits]") -> "Pictures":
    from analysis.figures import summaries

    return summaries.summary(curves)


@_figure(BATCH, "how the critical batch size moves with the number of trials")
def best_of(curves: "Sequence[CurveFits]") -> "Pictures":
    from analysis.figures import best_of_figures

    return best_of_figures.knees(curves)


@_figure(BATCH, "time to target and device-hours against devices, and their Pareto front")
def payoff(curves: "Sequence[CurveFits]") -> "Pictures":
    from analysis.figures import payoff_figures

    return payoff_figures.of_curves(curves)


@_figure(PUBLISHED, "the batch size up to which doubling pays off, one row per workload of Shallue et al. 2018")
def payoff_paper(_: None) -> "Pictures":
    from analysis.figures import forest_figures

    return forest_figures.of_paper()


@_figure(CORES, "the same of factorizations against cores")
def payoff_cores(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import payoff_figures

    return payoff_figures.of_factorizations(factorizations)


@_figure(CORES, "seconds per epoch of a factorization against cores, one picture per curve")
def epochs(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import scaling_figures

    return scaling_figures.epochs_against_cores(factorizations)


@_figure(CORES, "speed-up and efficiency against cores, all curves of a device")
def speedup(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import scaling_figures

    return scaling_figures.speedup(factorizations)


@_figure(CORES, "Recall@20 and @50 of all factorizations of a data set")
def recall(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import recall_figures

    return recall_figures.recall(factorizations)


@_figure(CORES, "recall and objective epoch by epoch in every number format")
def precision(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import recall_figures

    return recall_figures.precision(factorizations)


@_figure(CORES, "recall and objective against seconds with every solver")
def solvers(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import recall_figures

    return recall_figures.solvers(factorizations)


@_figure(CORES, "recall over the plane of unobserved weight and norm penalty")
def tuning(factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.figures import recall_figures

    return recall_figures.tuning(factorizations)


@_figure(LAYOUTS, "seconds of a step of every layout against bytes sent, split by redundancy")
def layout_cost(layouts: "Sequence[MeasuredLayout]") -> "Pictures":
    from analysis.figures import layout_figures

    return layout_figures.cost(layouts)


@_figure(LAYOUTS, "seconds of a step against bytes held, and the layouts that none beats in both")
def layout_pareto(layouts: "Sequence[MeasuredLayout]") -> "Pictures":
    from analysis.figures import layout_figures

    return layout_figures.pareto(layouts)


@_figure(LAYOUTS, "predicted against measured seconds of a step, with the spread of renamed twins")
def layout_predicted(layouts: "Sequence[MeasuredLayout]") -> "Pictures":
    from analysis.figures import layout_figures

    return layout_figures.predicted(layouts)


@_figure(LAYOUTS, "utilization of the layouts that others published, against chips")
def layout_published(layouts: "Sequence[MeasuredLayout]") -> "Pictures":
    from analysis.figures import layout_figures

    return layout_figures.published(layouts)


@_figure(WORKLOADS, "steps to target against batch size, a panel per workload")
def steps(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.steps(workloads, request)


@_figure(WORKLOADS, "steps to several targets, a panel per workload")
def targets(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.targets(workloads, request)


@_figure(WORKLOADS, "optimizers of a workload; with --by model or --by dataset, those")
def compare(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.compare(workloads, request)


@_figure(WORKLOADS, "metaparameters of the best trial against batch size, with linear and square-root rules")
def metaparameters(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.best_trials(workloads, request)


@_figure(WORKLOADS, "trials over learning rate and 1 - momentum, or --by another: goal reached, not, infeasible")
def scatter(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.scatter(workloads, request)


@_figure(WORKLOADS, "trials split --by a metaparameter, such as label_smoothing")
def split(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.split(workloads, request)


@_figure(WORKLOADS, "best error within budgets of steps and of examples")
def budget(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import workload_figures

    return workload_figures.budget(workloads, request)


@_figure(WORKLOADS, "every trial of each study, the best so far, and when it crosses the target")
def learning_curves(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import learning_curves

    return learning_curves.learning_curves(workloads, request)


@_figure(WORKLOADS, "what searches of --best-of trials find, with 90 % bands, a picture per workload")
def searches(workloads: "Sequence[WorkloadStudies]", request: "FigureRequest") -> "Pictures":
    from analysis.figures import best_of_figures

    return best_of_figures.searches(workloads, request)


def _shallue(number: int, workloads: "PaperWorkloads") -> "Pictures":
    from analysis.figures import shallue2018

    return shallue2018.figure(workloads, number)


def _alx(name: str, factorizations: "Sequence[MeasuredFactorization]") -> "Pictures":
    from analysis.plotting import picture

    for one in FIGURES[name].draw(factorizations):
        if isinstance(one, picture.Picture):
            picture.add_to_title(one.figure, AFTER_ALX)
        yield one


FIGURES |= {
    f"{SHALLUE}/figure{number}": Figure(PAPER, functools.partial(_shallue, number), f"Shallue et al. 2018: {title}")
    for number, title in definitions.TITLES.items()
}
FIGURES |= {
    f"{ALX}/{name}": Figure(CORES, functools.partial(_alx, name), f"{AFTER_ALX}: {FIGURES[name].shows}")
    for name in ("epochs", "speedup", "recall", "precision", "solvers", "tuning")
}
KINDS = [name for name, row in FIGURES.items() if row.source in (WORKLOADS, BATCH)]  # drawn of what --where selects


def _curves(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis.fitting import curve_fits

    return curve_fits.of_store(folder, target)


def _factorizations(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis.cores import factorizations

    return factorizations.load(folder)


def _layouts(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis import measured_layouts

    return measured_layouts.load(folder)


def _paper(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis import workload_studies
    from analysis.figures import shallue2018

    return shallue2018.name_workloads(workload_studies.of_store(folder))


# Readers of what figures are drawn from: of a store, for a target (metric, value) other than the studies' own.
LOADERS: "dict[str, Callable[[Folder, tuple[str, float] | None], Any]]" = {
    BATCH: _curves,
    CORES: _factorizations,
    LAYOUTS: _layouts,
    PAPER: _paper,
    PUBLISHED: lambda folder, target: None,
}


def store_figures() -> list[str]:
    """The figures that are drawn of a whole store, by name."""
    return [name for name, row in FIGURES.items() if row.source != WORKLOADS]


def listed() -> list[tuple[str, str]]:
    """The names of all figures, and then the kinds, each with what it shows."""
    shows = {name if name in store_figures() else f"--kind {name}": row.shows for name, row in FIGURES.items()}
    return sorted(shows.items(), key=lambda one: one[0].startswith("--"))


def listing() -> str:
    """What ``listed`` gives, for a reader."""
    lines = cli.table(header := ("", " "), listed(), left=header, prose=header[1:]).split("\n")
    return "\n".join(lines[1:])


@durable.located
def write_all(
    folder: "Folder",
    out: str | Path,
    report: "Callable[[Path | Skipped], None]",
    name: str | None = None,
    target: tuple[str, float] | None = None,
) -> None:
    """Writes the figures (or the one called ``name``) of the store at ``folder`` into ``out``.

    Args:
      report: called with every file written and with everything that could not be drawn; of all figures at once, with
        one line on all that their store is too little for.
      name: of a figure, or of a paper, for all its figures.
      target: metric and value of a target other than the studies' own.

    Raises:
      BadInput: there is no such figure or store, or ``out`` cannot be written.
    """
    from analysis.plotting.picture import Skipped
    from results import store

    unasked = [each for each in store_figures() if each.partition("/")[0] != ALX and FIGURES[each].source != PUBLISHED]
    names = unasked if name is None else [each for each in store_figures() if name in (each, each.partition("/")[0])]
    if not names:
        check_choice("figure", name, store_figures())
    out = _checked(out)
    commits = store.catalogue(folder)
    present = {source for commit in commits for source in kind_views.PRESENTATIONS[commit.kind].figures}
    present |= set() if commits else {BATCH}
    papers = LOADERS[PAPER](folder, target) if PAPER in present else None
    if papers and name is None and not _has_paper(papers):
        present.remove(PAPER)  # only a request for it by name is told that it is missing
    taken = set[str]()
    passed: dict[str, list[Skipped]] = {}
    for source, load in LOADERS.items():
        wanted = [each for each in names if FIGURES[each].source == source]
        if not wanted:
            continue
        if source not in {*present, PUBLISHED}:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {kind_views.kinds_drawn_as(source)[0]}"))
            continue
        try:
            subject = papers if source == PAPER else load(folder, target)
        except BadInput as error:
            if present == {source} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of other kinds are drawn all the same
            continue
        for figure in wanted:
            prefix = () if source == PAPER else tuple(figure.split("/"))
            told = report if name is not None else _without_skipped(report, passed.setdefault(figure, []))
            _write(FIGURES[figure].draw(subject), prefix, out, taken, told)
    if any(passed.values()):
        report(_in_one({figure: items for figure, items in passed.items() if items}))


@durable.located
def write_kind(
    folder: "Folder", out: str | Path, report: "Callable[[Path | Skipped], None]", request: "FigureRequest"
) -> None:
    """Writes the figures of one kind, of the requested studies.

    Args:
      folder, out, report: as in ``write_all``.
      request: the kind, and its studies.

    Raises:
      BadInput: there is no such kind or study, or ``out`` cannot be written.
    """
    check_choice("kind", request.kind, KINDS)
    out = _checked(out)
    prefix = (request.kind,) if FIGURES[request.kind].source == BATCH else ()
    _write(draw_kind(folder, request), prefix, out, set(), report)


@durable.located
def draw_kind(folder: "Folder", request: "FigureRequest") -> "Pictures":
    """The pictures of one kind, of the requested studies, and a line about each that could not be drawn.

    Raises:
      BadInput: there is no such kind or study.
    """
    from analysis import workload_studies
    from analysis.figures import requests
    from analysis.fitting import curve_fits

    check_choice("kind", request.kind, KINDS)
    selection, without = requests.with_targets(workload_studies.of_store(folder, request.where), request)
    yield from without
    figure = FIGURES[request.kind]
    if figure.source == BATCH:
        yield from figure.draw(
            [curve_fits.of_workload(*each, request.rule) for each in requests.each(selection, request)]
        )
    else:
        yield from figure.draw(selection, request)


def _write(
    pictures: "Pictures",
    prefix: tuple[str, ...],
    out: Path,
    taken: set[str],
    report: "Callable[[Path | Skipped], None]",
) -> None:
    """Writes pictures into the folder ``out``, each under a name that is not ``taken``, and reports everything."""
    import matplotlib

    from analysis.plotting import picture
    from analysis.plotting.picture import Skipped

    with matplotlib.rc_context(picture.SETTINGS):
        for item in pictures:
            if isinstance(item, Skipped):
                report(item)
                continue
            stem = picture.unique_stem(picture.slug((*prefix, *item.names)), taken)
            for suffix in ("png", "svg"):
                report(picture.write(out / f"{stem}.{suffix}", item.figure))


def _without_skipped(report: "Callable[[Path | Skipped], None]", into: "list[Skipped]") -> Any:
    """As ``report``, but what could not be drawn is put ``into`` a list."""
    return lambda item: report(item) if isinstance(item, Path) else into.append(item)


def _in_one(passed: "Mapping[str, Sequence[Skipped]]") -> "Skipped":
    """All that could not be drawn of some figures as one; how to be told why, unless it is but one thing."""
    from analysis.plotting.picture import Skipped

    (first, items), *others = passed.items()
    if not others and len(items) == 1:
        return items[0]
    counts = ", ".join(f"{name} ({len(own)})" if len(own) > 1 else name for name, own in passed.items())
    return Skipped(counts, f"--name {first}{', or another of these,' * bool(others)} says why")


def _checked(out: str | Path) -> Path:
    """The folder for pictures; BadInput if it is a file."""
    folder = durable.local(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder")
    return folder


def _has_paper(papers: Any) -> bool:
    from analysis.figures import shallue2018

    return any(shallue2018.has_workloads(papers, number) for number in definitions.TITLES)
