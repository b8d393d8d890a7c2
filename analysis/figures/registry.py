"""Figures: one registry of all that is drawn, by whom and from what.

A figure is a function here, of the figure's name. To list them takes no time, as each imports what draws it once it is
to draw.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from analysis import studies
from analysis.figures import definitions
from analysis.studies import BATCH, CORES, PAPER
from results.bad_input import BadInput, check_choice

if TYPE_CHECKING:
    from analysis.cores.factorizations import Measured
    from analysis.figures.asked import Asked
    from analysis.figures.shallue2018 import Studies
    from analysis.fitting.pairs import Fitted
    from analysis.plotting.picture import Picture, Skipped
    from analysis.workloads import WorkloadStudies
    from results.durable import Folder

    Made = Iterator[Picture | Skipped]

SHALLUE = "shallue2018"
ASKED = "asked"


class Figure(NamedTuple):
    """A figure of the registry.

    Attributes:
      of: what it is drawn from: ``batch``, curves of batch sizes with their fits, of a whole store or of the workloads
        that are asked for; ``cores``, factorizations; ``paper``, the workloads of a paper; ``asked``, workloads over
        batch sizes, of which more may be asked.
      draw: yields its pictures of these; of ``asked`` it also takes what is asked.
      shows: what it shows.
    """

    of: str
    draw: "Callable[..., Made]"
    shows: str


FIGURES: dict[str, Figure] = {}
Draw = TypeVar("Draw", bound="Callable[..., Made]")


def _figure(of: str, shows: str) -> Callable[[Draw], Draw]:
    """Adds a function to the figures under its name; ``of`` and ``shows`` as in ``Figure``."""

    def add(draw: Draw) -> Draw:
        FIGURES[draw.__name__] = Figure(of, draw, shows)
        return draw

    return add


@_figure(BATCH, "steps to target against batch size, one picture per curve, with its regimes")
def steps_to_target(found: "Sequence[Fitted]") -> "Made":
    from analysis.figures import batch_figures

    return batch_figures.steps_to_target(found)


@_figure(BATCH, "the curves of all optimizers of a workload in one picture")
def optimizers(found: "Sequence[Fitted]") -> "Made":
    from analysis.figures import batch_figures

    return batch_figures.optimizers(found)


@_figure(BATCH, "all there is on a workload: a page per curve, with its trials and its fit")
def summary(found: "Sequence[Fitted]") -> "Made":
    from analysis.figures import summaries

    return summaries.summary(found)


@_figure(BATCH, "how the critical batch size moves with the number of trials")
def best_of(found: "Sequence[Fitted]") -> "Made":
    from analysis.figures import best_of_figures

    return best_of_figures.knees(found)


@_figure(CORES, "seconds per epoch of a factorization against cores, one picture per curve")
def epochs(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import scaling_figures

    return scaling_figures.epochs_against_cores(found)


@_figure(CORES, "speed-up and efficiency against cores, all curves of a device")
def speedup(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import scaling_figures

    return scaling_figures.speedup(found)


@_figure(CORES, "Recall@20 and @50 of all factorizations of a data set")
def recall(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import recall_figures

    return recall_figures.recall(found)


@_figure(CORES, "recall and objective epoch by epoch in every number format")
def precision(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import recall_figures

    return recall_figures.precision(found)


@_figure(CORES, "recall and objective against seconds with every solver")
def solvers(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import recall_figures

    return recall_figures.solvers(found)


@_figure(CORES, "recall over the plane of unobserved weight and norm penalty")
def tuning(found: "Sequence[Measured]") -> "Made":
    from analysis.figures import recall_figures

    return recall_figures.tuning(found)


@_figure(ASKED, "steps to target against batch size, a panel per workload")
def steps(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_steps

    return of_steps.one_by_one(found, asked)


@_figure(ASKED, "steps to several targets, a panel per workload")
def targets(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_steps

    return of_steps.targets(found, asked)


@_figure(ASKED, "optimizers of a workload; with --by model or --by dataset, those")
def compare(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_steps

    return of_steps.compare(found, asked)


@_figure(ASKED, "metaparameters of the best trial against batch size, with linear and square-root rules")
def metaparameters(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_trials

    return of_trials.best_ones(found, asked)


@_figure(ASKED, "trials over learning rate and 1 - momentum, or --by another: goal reached, not, infeasible")
def scatter(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_trials

    return of_trials.scatter(found, asked)


@_figure(ASKED, "trials split --by a metaparameter, such as label_smoothing")
def split(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_trials

    return of_trials.split(found, asked)


@_figure(ASKED, "best error within budgets of steps and of examples")
def budget(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import of_budgets

    return of_budgets.within(found, asked)


@_figure(ASKED, "every trial of each study, the best so far, and when it crosses the target")
def learning_curves(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import learning_curves

    return learning_curves.of_workloads(found, asked)


@_figure(ASKED, "what searches of --best-of trials find, with 90 % bands, a picture per workload")
def searches(found: "Sequence[WorkloadStudies]", asked: "Asked") -> "Made":
    from analysis.figures import best_of_figures

    return best_of_figures.of_workloads(found, asked)


def _shallue(number: int, found: "Studies") -> "Made":
    from analysis.figures import shallue2018

    return shallue2018.figure(found, number)


FIGURES |= {
    f"{SHALLUE}/figure{number}": Figure(PAPER, functools.partial(_shallue, number), f"Shallue et al. 2018: {title}")
    for number, title in definitions.TITLES.items()
}
KINDS = [name for name, row in FIGURES.items() if row.of in (ASKED, BATCH)]  # drawn of what --where asks for


def _curves(folder: "Folder", asked: tuple[str, float] | None) -> Any:
    from analysis.fitting import pairs

    return pairs.of_store(folder, asked)


def _factorizations(folder: "Folder", asked: tuple[str, float] | None) -> Any:
    from analysis.cores import factorizations

    return factorizations.load(folder)


def _paper(folder: "Folder", asked: tuple[str, float] | None) -> Any:
    from analysis.figures import shallue2018

    return shallue2018.of_store(folder)


# What figures are drawn from, of the store in a folder, for a target (metric, value) other than the studies' own.
LOADERS: "dict[str, Callable[[Folder, tuple[str, float] | None], Any]]" = {
    BATCH: _curves,
    CORES: _factorizations,
    PAPER: _paper,
}


def named() -> list[str]:
    """The figures that are drawn of a whole store, by name."""
    return [name for name, row in FIGURES.items() if row.of != ASKED]


def listing() -> str:
    """The names of all figures, and the kinds, with what they show."""
    shows = {name if name in named() else f"--kind {name}": row.shows for name, row in FIGURES.items()}
    shows = dict(sorted(shows.items(), key=lambda item: item[0].startswith("--")))
    width = max(map(len, shows)) + 2
    return "\n".join(f"{name:{width}}{words}" for name, words in shows.items())


def write_all(
    folder: "Folder",
    out: Path,
    report: "Callable[[Path | Skipped], None]",
    name: str | None = None,
    asked: tuple[str, float] | None = None,
) -> None:
    """Writes the figures (or the one called ``name``) of the store at ``folder`` into ``out``.

    Args:
      report: called with every file written and with everything that could not be drawn.
      name: of a figure, or of a paper, for all its figures.
      asked: metric and value of a target other than the studies' own.

    Raises:
      BadInput: there is no such figure or store, or ``out`` cannot be written.
    """
    from analysis.plotting.picture import Skipped
    from results import store

    names = [each for each in named() if name in (None, each, each.partition("/")[0])]
    if not names:
        check_choice("figure", name, named())
    _check(out)
    commits = store.catalogue(folder)
    there = {of for commit in commits for of in studies.KINDS[commit.kind].figures}
    there |= set() if commits else {BATCH}
    papers = LOADERS[PAPER](folder, asked) if PAPER in there else None
    if papers and name is None and not _has_paper(papers):
        there.remove(PAPER)  # which is said to those alone who ask for it
    write = _Writer(out, report)
    for of in LOADERS:
        wanted = [each for each in names if FIGURES[each].of == of]
        if not wanted:
            continue
        if of not in there:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {studies.kinds_drawn_as(of)[0]}"))
            continue
        try:
            found = papers if of == PAPER else LOADERS[of](folder, asked)
        except BadInput as error:
            if there == {of} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of other kinds are drawn all the same
            continue
        for figure in wanted:
            write(FIGURES[figure].draw(found), figure if of != PAPER else None)


def write_kind(folder: "Folder", out: Path, report: "Callable[[Path | Skipped], None]", asked: "Asked") -> None:
    """Writes the figures of one kind, of the studies asked for.

    Args:
      folder, out, report: as in ``write_all``.
      asked: which kind, of which studies.

    Raises:
      BadInput: there is no such kind or study, or ``out`` cannot be written.
    """
    check_choice("kind", asked.kind, KINDS)
    _check(out)
    _Writer(out, report)(of_kind(folder, asked), asked.kind if FIGURES[asked.kind].of == BATCH else None)


def of_kind(folder: "Folder", asked: "Asked") -> "Iterator[Picture | Skipped]":
    """The pictures of one kind, of the studies asked for, and what of them could not be drawn.

    Raises:
      BadInput: there is no such kind or study.
    """
    from analysis import workloads
    from analysis.figures import asked as asking
    from analysis.fitting import pairs

    check_choice("kind", asked.kind, KINDS)
    found, without = asking.with_targets(workloads.of_store(folder, asked.where), asked)
    yield from without
    figure = FIGURES[asked.kind]
    if figure.of == BATCH:
        yield from figure.draw([pairs.of_workload(*each, asked.rule) for each in asking.each(found, asked)])
    else:
        yield from figure.draw(found, asked)


class _Writer:
    """Writes pictures into a folder, each name once, and reports everything."""

    def __init__(self, out: Path, report: "Callable[[Path | Skipped], None]"):
        self._out, self._report, self._taken = out, report, set[str]()

    def __call__(self, pictures: "Iterator[Picture | Skipped]", named: str | None) -> None:
        import matplotlib

        from analysis.plotting import picture
        from analysis.plotting.picture import Skipped

        with matplotlib.rc_context(picture.SETTINGS):
            for made in pictures:
                if isinstance(made, Skipped):
                    self._report(made)
                    continue
                names: Sequence[str] = made.names if named is None else (named, *made.names)
                stem = picture.free(picture.slug(names), self._taken)
                for suffix in ("png", "svg"):
                    self._report(picture.write(self._out / f"{stem}.{suffix}", made.figure))


def _check(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder")


def _has_paper(found: Any) -> bool:
    from analysis.figures import shallue2018

    return any(shallue2018.is_there(found, number) for number in definitions.TITLES)
