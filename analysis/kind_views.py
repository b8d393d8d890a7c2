"""How each kind of study is presented in tables, figures and reports, and the functions that read and show them."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from analysis import columns, help_text
from results.aliases import StringMap
from results.plans.plan import HasKind, Plan

K = TypeVar("K", bound=HasKind)

# Figure sources.
BATCH, CORES, LAYOUTS, PAPER = "batch", "cores", "layout", "paper"
PUBLISHED = "published"  # numbers in results/papers, which do not need a store


class Figure(NamedTuple):
    """A figure in ``figures.registry.FIGURES``.

    Attributes:
      function: dotted name of the function that yields the pictures.
      shows: description in the list of figures.
      source: source of the data: that of the kind whose row has the figure (the default), ``paper``, ``published``
        (numbers from a paper) or ``workloads`` (batch-size workloads selected by a request).
      arguments: arguments passed to the function, after the data.
      credit: credit to add to each picture's title.
    """

    function: str
    shows: str
    source: str = ""
    arguments: tuple[Any, ...] = ()
    credit: str = ""


class Section(NamedTuple):
    """A section of the report page.

    Attributes:
      name: name in the page's address.
      title: title in the navigation.
      module: dotted name of a module with two functions. ``section`` takes the studies, each with its group number, and
        the number of preceding charts, and returns HTML and charts. ``words`` returns the search terms for the studies
        in a group.
    """

    name: str
    title: str
    module: str


class Command(NamedTuple):
    """A command of ``python -m analysis`` that prints a table with one row per study.

    Attributes:
      name: name of the command.
      summary: one-line description of the command.
      help: help text of the command.
      module: dotted name of a module with the functions ``table``, ``as_text`` and ``remarks``, which take the studies,
        and ``absent``, which returns the error for a store without such studies.
      fits: dotted name of the function that returns the table and the text for ``--fit``, if the command has this
        option.
      fit_help: help text of ``--fit`` or ``--published``.
      published: dotted name of the function that takes an anchor and returns the table and the text for
        ``--published``, if the command has this option.
      further_columns: text that lists the columns of the tables of ``--fit`` or ``--published``.
    """

    name: str
    summary: str
    help: str
    module: str
    fits: str = ""
    fit_help: str = ""
    published: str = ""
    further_columns: str = ""


class Presentation(NamedTuple):
    """The presentation of studies of one kind.

    Attributes:
      title: title in the report.
      question: question answered by the studies, as a full sentence.
      answers: whether tables list steps to target for these studies.
      optimizer_label: function that returns a plan's optimizer, for the report's filters.
      load: dotted name of the function that reads the studies of a store. Except for source ``batch``, it returns
        objects with the attribute ``study``.
      source: source of the figures, which is the name of a kind. Kinds with the same source are drawn together.
      columns: columns of the table and their meanings.
      figures: figures of the kind, by name.
      section: section of the report page.
      command: command that prints the table.
    """

    title: str
    question: str
    answers: bool = False
    optimizer_label: Callable[[Any], str] = lambda study: str(study.labels.optimizer)
    load: str = ""
    source: str = ""
    columns: StringMap = MappingProxyType({})
    figures: Mapping[str, Figure] = MappingProxyType({})
    section: Section | None = None
    command: Command | None = None


OVER_BATCHES = Presentation(
    "batch sizes, measured by scaling-limits",
    "Steps to a target error against batch size, with metaparameters tuned separately at every batch size.",
    answers=True,
    load="analysis.fitting.curve_fits.of_store",
    source=BATCH,
    figures={
        "steps_to_target": Figure(
            "analysis.figures.batch_figures.steps_to_target",
            "steps to target against batch size with regimes, one picture per curve",
        ),
        "optimizers": Figure(
            "analysis.figures.batch_figures.optimizers", "the curves of all optimizers of a workload in one picture"
        ),
        "summary": Figure("analysis.figures.summaries.summary", "summary page of a curve, with its trials and its fit"),
        "narrowing": Figure(
            "analysis.figures.narrowing_figures.of_curves",
            "expected width of pays up to and efficient up to against the multiple of the trials",
        ),
        "payoff": Figure(
            "analysis.figures.payoff_figures.of_curves",
            "time to target and device-hours against devices, with their Pareto front",
        ),
        "payoff_paper": Figure(
            "analysis.figures.forest_figures.of_paper",
            "the batch size up to which doubling pays off, one row per workload of Shallue et al. 2018",
            source=PUBLISHED,
        ),
        "payoff_gpt3": Figure(
            "analysis.figures.run_figures.of_gpt3",
            "minutes and chip-hours against chips, in published runs of GPT-3 175B",
            source=PUBLISHED,
        ),
    },
)

PRESENTATIONS = {
    "batch": OVER_BATCHES,
    "recorded": OVER_BATCHES._replace(
        title="batch sizes, recorded elsewhere", question="Results that were recorded elsewhere, in the same tables."
    ),
    "cores": Presentation(
        "factorizations over cores",
        "Seconds per epoch and recall of implicit factorizations against cores.",
        answers=True,
        optimizer_label=lambda study: f"als, {study.solver}",
        load="analysis.cores.measured_factorizations.load",
        source=CORES,
        columns=columns.EPOCHS,
        figures={
            "payoff_cores": Figure(
                "analysis.figures.payoff_figures.of_factorizations",
                "time and device-hours of factorizations against cores, with their Pareto front",
            ),
            "epochs": Figure(
                "analysis.figures.scaling_figures.epochs_against_cores",
                "seconds per epoch of a factorization against cores, one picture per curve",
            ),
            "precision": Figure(
                "analysis.figures.recall_figures.precision",
                "recall and objective against epochs, for each number format",
            ),
            "solvers": Figure(
                "analysis.figures.recall_figures.solvers",
                "recall and objective against seconds, for each solver",
            ),
            "tuning": Figure(
                "analysis.figures.recall_figures.tuning",
                "recall over the plane of unobserved weight and norm penalty",
            ),
        },
        section=Section("factorizations", "Factorizations", "analysis.report.factorizations_html"),
        command=Command(
            "epochs",
            "seconds per epoch and recall of factorizations over cores",
            help_text.EPOCHS,
            "analysis.cores.measured_factorizations",
            "analysis.cores.core_counts.fits",
            help_text.EPOCHS_FIT,
            further_columns=help_text.EPOCHS_FIT_COLUMNS + help_text.meanings(columns.CORE_COUNTS),
        ),
    ),
    "layout": Presentation(
        "layouts of one step on meshes of devices",
        "The cost of one training step for each mesh and layout, which do not change its result.",
        load="analysis.measured_layouts.load",
        source=LAYOUTS,
        columns=columns.LAYOUTS,
        figures={
            "layout_cost": Figure(
                "analysis.figures.layout_figures.cost",
                "seconds per step of each layout against bytes sent, by redundancy",
            ),
            "layout_pareto": Figure(
                "analysis.figures.layout_figures.pareto",
                "seconds per step against bytes held, with the Pareto front of layouts",
            ),
            "layout_predicted": Figure(
                "analysis.figures.layout_figures.predicted",
                "predicted against measured seconds per step, with the spread of renamed twins",
            ),
            "layout_published": Figure(
                "analysis.figures.layout_figures.published",
                "utilization of published layouts against chips",
            ),
            "layout_published_steps": Figure(
                "analysis.figures.layout_figures.published_steps",
                "predicted over published seconds of published steps, by generation",
            ),
        },
        section=Section("layouts", "Layouts", "analysis.report.layouts_html"),
        command=Command(
            "layouts",
            "the costs of each layout of a step on a mesh",
            help_text.LAYOUTS,
            "analysis.measured_layouts",
            fit_help=help_text.LAYOUTS_PUBLISHED,
            published="analysis.published_steps.of_options",
            further_columns=help_text.LAYOUTS_PUBLISHED_COLUMNS + help_text.meanings(columns.PUBLISHED_STEPS),
        ),
    ),
}


def drawn_as(source: str, commits: Iterable[K]) -> list[K]:
    """Returns the studies whose figures use this source."""
    return [commit for commit in commits if PRESENTATIONS[commit.kind].source == source]


def drawn(commits: Iterable[HasKind]) -> set[str]:
    """Returns the figure sources of the kinds of these studies."""
    return {PRESENTATIONS[commit.kind].source for commit in commits} - {""}


def commands() -> dict[str, tuple[Command, Presentation]]:
    """Returns the commands of all kinds by name, each with the presentation of its kind."""
    return {row.command.name: (row.command, row) for row in PRESENTATIONS.values() if row.command}


def labels(study: Plan) -> tuple[str, str, str]:
    """Returns the data set, model and optimizer of a study, for filters."""
    return study.labels.dataset, study.labels.model, PRESENTATIONS[study.kind].optimizer_label(study)
