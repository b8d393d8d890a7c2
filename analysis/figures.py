"""Figures by name: what draws each, from which kind of study."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

from analysis import batch_figures, curves, factorizations, fits, picture, recall_figures, scaling_figures
from analysis import steps as steps_table
from analysis.batch_figures import Fitted
from analysis.picture import Picture, Skipped
from results import store
from results.bad_input import BadInput, check_choice

CORES, BATCH = factorizations.KIND, "batch"


class Row(NamedTuple):
    """A figure of the registry: of which kind of study it is, what draws it from all of them, and what it shows."""

    kind: str
    pictures: Callable[[Any], Iterator[Picture | Skipped]]
    shows: str


FIGURES = {
    "steps_to_target": Row(
        BATCH,
        batch_figures.steps_to_target,
        "steps to target against batch size, one picture per curve, with its regimes",
    ),
    "optimizers": Row(BATCH, batch_figures.optimizers, "the curves of all optimizers of a workload in one picture"),
    "epochs": Row(
        CORES,
        scaling_figures.epochs_against_cores,
        "seconds per epoch of a factorization against cores, one picture per curve",
    ),
    "speedup": Row(CORES, scaling_figures.speedup, "speed-up and efficiency against cores, all curves of a device"),
    "recall": Row(CORES, recall_figures.recall, "Recall@20 and @50 of all factorizations of a data set"),
    "precision": Row(CORES, recall_figures.precision, "recall and objective epoch by epoch in every number format"),
    "solvers": Row(CORES, recall_figures.solvers, "recall and objective against seconds with every solver"),
    "tuning": Row(CORES, recall_figures.tuning, "recall over the plane of unobserved weight and norm penalty"),
}


def listing() -> str:
    """The names of all figures with what they show."""
    width = max(map(len, FIGURES)) + 2
    return "\n".join(f"{name:{width}}{row.shows}" for name, row in FIGURES.items())


def write_all(
    folder: Path,
    out: Path,
    report: Callable[[Path | Skipped], None],
    name: str | None = None,
    asked: tuple[str, float] | None = None,
) -> None:
    """Writes the figures (or the one called ``name``) of the store at ``folder`` into ``out``.

    Args:
      report: called with every file written and with everything that could not be drawn.
      asked: metric and value of a target other than the studies' own.

    Raises:
      BadInput: there is no such figure or store, or ``out`` cannot be written.
    """
    if name is not None:
        check_choice("figure", name, FIGURES)
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder")
    commits = store.catalogue(folder)
    of_cores = len(factorizations.of_kind(commits))
    there = {kind for kind, count in ((CORES, of_cores), (BATCH, len(commits) - of_cores)) if count} or {BATCH}
    taken: set[str] = set()
    for kind in (BATCH, CORES):
        wanted = [n for n, row in FIGURES.items() if row.kind == kind and name in (None, n)]
        if kind not in there:
            if name in wanted:
                report(Skipped(name, f"{folder} has no study of kind {kind}"))
            continue
        if not wanted:
            continue
        try:
            found = _curves(folder, asked) if kind == BATCH else factorizations.load(folder)
        except BadInput as error:
            if there == {kind} or name in wanted:
                raise
            report(Skipped(", ".join(wanted), str(error)))  # studies of the other kind are drawn all the same
            continue
        with matplotlib.rc_context(picture.SETTINGS):
            for figure in wanted:
                for made in FIGURES[figure].pictures(found):
                    _hand_over(made, figure, out, taken, report)


def _curves(folder: Path, asked: tuple[str, float] | None) -> list[Fitted]:
    held, target = steps_table.load(folder, asked)
    return [Fitted(curve, fits.of_curve(curve)) for curve in curves.curves(held, target)]


def _hand_over(
    made: Picture | Skipped, figure: str, out: Path, taken: set[str], report: Callable[[Path | Skipped], None]
) -> None:
    if isinstance(made, Skipped):
        report(made)
        return
    stem = picture.free(picture.slug((figure, *made.names)), taken)
    for suffix in ("png", "svg"):
        report(picture.write(out / f"{stem}.{suffix}", made.figure))
