"""Figures: one registry of all that is drawn, by which function and from what.

To list them takes no time, as the module that draws one is imported once it is to draw.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import studies
from analysis.figures import definitions
from analysis.studies import BATCH, CORES, PAPER
from results.bad_input import BadInput, check_choice

if TYPE_CHECKING:
    from analysis.figures.requests import FigureRequest
    from analysis.plotting.picture import Pictures, Skipped
    from results.durable import Folder

SHALLUE = "shallue2018"
WORKLOADS = "workloads"


class Figure(NamedTuple):
    """A figure of the registry.

    Attributes:
      source: what it is drawn from: ``batch``, curves of batch sizes with their fits, of a whole store or of the
        workloads of a request; ``cores``, factorizations; ``paper``, the workloads of a paper; ``workloads``, those
        over batch sizes that a request names.
      function: draws it: a module below ``analysis``, and a function there that yields pictures. It takes what the
        figure is drawn from; of ``workloads`` also the request.
      shows: what it shows.
      arguments: of the function, after the others.
    """

    source: str
    function: str
    shows: str
    arguments: tuple[int, ...] = ()

    def draw(self, *subject: Any) -> "Pictures":
        """Yields its pictures of ``subject``."""
        module, _, name = self.function.rpartition(".")
        pictures: Pictures = getattr(importlib.import_module(f"analysis.{module}"), name)(*subject, *self.arguments)
        return pictures


FIGURES = {
    "steps_to_target": Figure(
        BATCH,
        "figures.batch_figures.steps_to_target",
        "steps to target against batch size, one picture per curve, with its regimes",
    ),
    "optimizers": Figure(
        BATCH,
        "figures.batch_figures.optimizers",
        "the curves of all optimizers of a workload in one picture",
    ),
    "summary": Figure(
        BATCH,
        "figures.summaries.summary",
        "all there is on a workload: a page per curve, with its trials and its fit",
    ),
    "best_of": Figure(
        BATCH,
        "figures.best_of_figures.knees",
        "how the critical batch size moves with the number of trials",
    ),
    "epochs": Figure(
        CORES,
        "figures.scaling_figures.epochs_against_cores",
        "seconds per epoch of a factorization against cores, one picture per curve",
    ),
    "speedup": Figure(
        CORES,
        "figures.scaling_figures.speedup",
        "speed-up and efficiency against cores, all curves of a device",
    ),
    "recall": Figure(
        CORES,
        "figures.recall_figures.recall",
        "Recall@20 and @50 of all factorizations of a data set",
    ),
    "precision": Figure(
        CORES,
        "figures.recall_figures.precision",
        "recall and objective epoch by epoch in every number format",
    ),
    "solvers": Figure(
        CORES,
        "figures.recall_figures.solvers",
        "recall and objective against seconds with every solver",
    ),
    "tuning": Figure(
        CORES,
        "figures.recall_figures.tuning",
        "recall over the plane of unobserved weight and norm penalty",
    ),
    "steps": Figure(
        WORKLOADS,
        "figures.steps_figures.steps",
        "steps to target against batch size, a panel per workload",
    ),
    "targets": Figure(
        WORKLOADS,
        "figures.steps_figures.targets",
        "steps to several targets, a panel per workload",
    ),
    "compare": Figure(
        WORKLOADS,
        "figures.steps_figures.compare",
        "optimizers of a workload; with --by model or --by dataset, those",
    ),
    "metaparameters": Figure(
        WORKLOADS,
        "figures.trial_figures.best_trials",
        "metaparameters of the best trial against batch size, with linear and square-root rules",
    ),
    "scatter": Figure(
        WORKLOADS,
        "figures.trial_figures.scatter",
        "trials over learning rate and 1 - momentum, or --by another: goal reached, not, infeasible",
    ),
    "split": Figure(
        WORKLOADS,
        "figures.trial_figures.split",
        "trials split --by a metaparameter, such as label_smoothing",
    ),
    "budget": Figure(
        WORKLOADS,
        "figures.trial_figures.budget",
        "best error within budgets of steps and of examples",
    ),
    "learning_curves": Figure(
        WORKLOADS,
        "figures.learning_curves.learning_curves",
        "every trial of each study, the best so far, and when it crosses the target",
    ),
    "searches": Figure(
        WORKLOADS,
        "figures.best_of_figures.searches",
        "what searches of --best-of trials find, with 90 % bands, a picture per workload",
    ),
} | {
    f"{SHALLUE}/figure{number}": Figure(PAPER, "figures.shallue2018.figure", f"Shallue et al. 2018: {title}", (number,))
    for number, title in definitions.TITLES.items()
}
KINDS = [name for name, row in FIGURES.items() if row.source in (WORKLOADS, BATCH)]  # drawn of what --where selects


def _curves(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis.fitting import pairs

    return pairs.of_store(folder, target)


def _factorizations(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis.cores import factorizations

    return factorizations.load(folder)


def _paper(folder: "Folder", target: tuple[str, float] | None) -> Any:
    from analysis import workloads
    from analysis.figures import shallue2018

    return shallue2018.name_workloads(workloads.of_store(folder))


# Readers of what figures are drawn from: of a store, for a target (metric, value) other than the studies' own.
LOADERS: "dict[str, Callable[[Folder, tuple[str, float] | None], Any]]" = {
    BATCH: _curves,
    CORES: _factorizations,
    PAPER: _paper,
}


def store_figures() -> list[str]:
    """The figures that are drawn of a whole store, by name."""
    return [name for name, row in FIGURES.items() if row.source != WORKLOADS]


def listing() -> str:
    """The names of all figures, and the kinds, with what they show."""
    shows = {name if name in store_figures() else f"--kind {name}": row.shows for name, row in FIGURES.items()}
    width = max(map(len, shows)) + 2
    return "\n".join(f"{name:{width}}{shows[name]}" for name in sorted(shows, key=lambda name: name.startswith("--")))


def write_all(
    folder: "Folder",
    out: Path,
    report: "Callable[[Path | Skipped], None]",
    name: str | None = None,
    target: tuple[str, float] | None = None,
) -> None:
    """Writes the figures (or the one called ``name``) of the store at ``folder`` into ``out``.

    Args:
      report: called with every file written and with everything that could not be drawn.
      name: of a figure, or of a paper, for all its figures.
      target: metric and value of a target other than the studies' own.

    Raises:
      BadInput: there is no such figure or store, or ``out`` cannot be written.
    """
    from analysis.plotting.picture import Skipped
    from results import store

    names = [each for each in store_figures() if name in (None, each, each.partition("/")[0])]
    if not names:
        check_choice("figure", name, store_figures())
    _check(out)
    commits = store.catalogue(folder)
    present = {source for commit in commits for source in studies.KINDS[commit.kind].figures}
    present |= set() if commits else {BATCH}
    papers = LOADERS[PAPER](folder, target) if PAPER in present else None
    if papers and name is None and not _has_paper(papers):
        present.remove(PAPER)  # only a request for it by name is told that it is missing
    taken = set[str]()
    for source, load in LOADERS.items():
        wanted = [each for each in names if FIGURES[each].source == source]
        if not wanted:
            continue
        if source not in present:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {studies.kinds_drawn_as(source)[0]}"))
            continue
        try:
            subject = papers if source == PAPER else load(folder, target)
        except BadInput as error:
            if present == {source} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of other kinds are drawn all the same
            continue
        for figure in wanted:
            _write(FIGURES[figure].draw(subject), () if source == PAPER else (figure,), out, taken, report)


def write_kind(
    folder: "Folder", out: Path, report: "Callable[[Path | Skipped], None]", request: "FigureRequest"
) -> None:
    """Writes the figures of one kind, of the requested studies.

    Args:
      folder, out, report: as in ``write_all``.
      request: the kind, and its studies.

    Raises:
      BadInput: there is no such kind or study, or ``out`` cannot be written.
    """
    check_choice("kind", request.kind, KINDS)
    _check(out)
    prefix = (request.kind,) if FIGURES[request.kind].source == BATCH else ()
    _write(draw_kind(folder, request), prefix, out, set(), report)


def draw_kind(folder: "Folder", request: "FigureRequest") -> "Pictures":
    """The pictures of one kind, of the requested studies, and a line about each that could not be drawn.

    Raises:
      BadInput: there is no such kind or study.
    """
    from analysis import workloads
    from analysis.figures import requests
    from analysis.fitting import pairs

    check_choice("kind", request.kind, KINDS)
    selection, without = requests.with_targets(workloads.of_store(folder, request.where), request)
    yield from without
    figure = FIGURES[request.kind]
    if figure.source == BATCH:
        yield from figure.draw([pairs.of_workload(*each, request.rule) for each in requests.each(selection, request)])
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


def _check(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder")


def _has_paper(papers: Any) -> bool:
    from analysis.figures import shallue2018

    return any(shallue2018.has_workloads(papers, number) for number in definitions.TITLES)
