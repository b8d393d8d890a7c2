"""Figures by name and by kind: what draws each, and from what.

To list them takes no time: what draws them is imported once it is to draw.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis import studies
from analysis.figures import definitions
from analysis.studies import BATCH, CORES, PAPER
from results.bad_input import BadInput, check_choice

if TYPE_CHECKING:
    from analysis.figures.asked import Asked
    from analysis.plotting.picture import Picture, Skipped
    from results.durable import Folder

SHALLUE = "shallue2018"


class Row(NamedTuple):
    """A figure of the registry.

    Attributes:
      of: what it is drawn from: ``batch``, curves of batch sizes with their fits; ``cores``, factorizations; ``paper``,
        the workloads of a paper.
      drawn_by: MODULE.FUNCTION of ``analysis`` that yields its pictures.
      shows: what it shows.
      number: of the figure in a paper.
    """

    of: str
    drawn_by: str
    shows: str
    number: int | None = None

    def pictures(self, found: Any) -> "Iterator[Picture | Skipped]":
        """Draws it from everything of its kind in a store."""
        numbered = () if self.number is None else (self.number,)
        return _function(self.drawn_by)(found, *numbered)


FIGURES = {
    "steps_to_target": Row(
        BATCH,
        "figures.batch_figures.steps_to_target",
        "steps to target against batch size, one picture per curve, with its regimes",
    ),
    "optimizers": Row(
        BATCH, "figures.batch_figures.optimizers", "the curves of all optimizers of a workload in one picture"
    ),
    "summary": Row(
        BATCH, "figures.summaries.summary", "all there is on a workload: a page per curve, with its trials and its fit"
    ),
    "best_of": Row(
        BATCH, "figures.best_of_figures.knees", "how the critical batch size moves with the number of trials"
    ),
    "epochs": Row(
        CORES,
        "figures.scaling_figures.epochs_against_cores",
        "seconds per epoch of a factorization against cores, one picture per curve",
    ),
    "speedup": Row(
        CORES, "figures.scaling_figures.speedup", "speed-up and efficiency against cores, all curves of a device"
    ),
    "recall": Row(CORES, "figures.recall_figures.recall", "Recall@20 and @50 of all factorizations of a data set"),
    "precision": Row(
        CORES, "figures.recall_figures.precision", "recall and objective epoch by epoch in every number format"
    ),
    "solvers": Row(CORES, "figures.recall_figures.solvers", "recall and objective against seconds with every solver"),
    "tuning": Row(
        CORES, "figures.recall_figures.tuning", "recall over the plane of unobserved weight and norm penalty"
    ),
} | {
    f"{SHALLUE}/figure{number}": Row(PAPER, "figures.shallue2018.figure", f"Shallue et al. 2018: {title}", number)
    for number, title in definitions.TITLES.items()
}

# Of any workloads over batch sizes: MODULE.FUNCTION, and what it shows.
KINDS = {
    "steps": ("figures.of_steps.one_by_one", "steps to target against batch size, a panel per workload"),
    "targets": ("figures.of_steps.targets", "steps to several targets, a panel per workload"),
    "compare": ("figures.of_steps.compare", "optimizers of a workload; with --by model or --by dataset, those"),
    "metaparameters": (
        "figures.of_trials.best_ones",
        "metaparameters of the best trial against batch size, with linear and square-root rules",
    ),
    "scatter": (
        "figures.of_trials.scatter",
        "trials over learning rate and 1 - momentum, or --by another: goal reached, not, infeasible",
    ),
    "split": ("figures.of_trials.split", "trials split --by a metaparameter, such as label_smoothing"),
    "budget": ("figures.of_budgets.within", "best error within budgets of steps and of examples"),
}


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


def listing() -> str:
    """The names of all figures, and the kinds, with what they show."""
    shows = {name: row.shows for name, row in FIGURES.items()}
    kinds = {f"--kind {kind}": words for kind, (_, words) in KINDS.items()}
    width = max(map(len, shows | kinds)) + 2
    return "\n".join(f"{name:{width}}{words}" for name, words in (shows | kinds).items())


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

    names = [each for each in FIGURES if name in (None, each, each.partition("/")[0])]
    if not names:
        check_choice("figure", name, FIGURES)
    _check(out)
    commits = store.catalogue(folder)
    there = {of for commit in commits for of in studies.KINDS[commit.kind].figures}
    there |= set() if commits else {BATCH}
    papers = LOADERS[PAPER](folder, asked) if PAPER in there else None
    if papers and name is None and not _has_paper(papers):
        there.remove(PAPER)  # which is said to those alone who ask for it
    write = _Writer(out, report)
    for of in dict.fromkeys(row.of for row in FIGURES.values()):
        wanted = [each for each in names if FIGURES[each].of == of]
        if not wanted:
            continue
        if of not in there:
            if name is not None:
                report(Skipped(name, f"{folder} has no study of kind {studies.drawn_as(of)[0]}"))
            continue
        try:
            found = papers if of == PAPER else LOADERS[of](folder, asked)
        except BadInput as error:
            if there == {of} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of other kinds are drawn all the same
            continue
        for figure in wanted:
            write(FIGURES[figure].pictures(found), figure if of != PAPER else None)


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
    _Writer(out, report)(of_kind(folder, asked), None)


def of_kind(folder: "Folder", asked: "Asked") -> "Iterator[Picture | Skipped]":
    """The pictures of one kind, of the studies asked for, and what of them could not be drawn.

    Raises:
      BadInput: there is no such kind or study.
    """
    from analysis import workloads
    from analysis.figures import asked as asking

    check_choice("kind", asked.kind, KINDS)
    found, without = asking.with_targets(workloads.of_store(folder, asked.where), asked)
    yield from without
    yield from _function(KINDS[asked.kind][0])(found, asked)


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
    there = _function("figures.shallue2018.is_there")
    return any(there(found, number) for number in definitions.TITLES)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"analysis.{module}"), function)
