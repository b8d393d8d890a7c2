"""The contents of the page, read once from a store or a release, in groups that the filters show or hide."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from analysis import kind_views, measured_layouts as layouts
from analysis.cores import factorizations
from analysis.cores.factorizations import MeasuredFactorization
from analysis.measured_layouts import MeasuredLayout
from analysis.plotting import labels, picture
from analysis.report import workload_rows
from analysis.report.workload_rows import WorkloadRow
from results import progress, store
from results.aliases import Row
from results.bad_input import BadInput, check_choice
from results.durable import Folder, located
from results.grouping import grouped
from results.plans.plan import Plan
from results.plans.study import TargetRequest
from results.printing import Report, quoted
from results.rules.ledger import Ledger, tally, total
from results.storage.commits import Commit, read_table

T = TypeVar("T")
Run = Row  # a row of the studies table


class FilterGroup(NamedTuple):
    """Studies that the page shows and hides together, with a common row in the ledger.

    Attributes:
      key: name in the page's address.
      kind: a kind in ``kind_views.PRESENTATIONS``.
      dataset, model, optimizer: names in the filters.
      search_text: words that the search field matches.
      commits: visible studies.
      waiting: plans of requested studies that are not visible yet.
    """

    key: str
    kind: str
    dataset: str
    model: str
    optimizer: str
    search_text: str
    commits: Sequence[Commit] = ()
    waiting: Sequence[Plan] = ()

    @property
    def ledger(self) -> Ledger:
        """The ledger of all studies. Trials of studies that have not run count as missing."""
        missing = [tally(study.request, {}) for study in self.waiting]
        return total([*(commit.ledger for commit in self.commits), *missing])


class PageContents(NamedTuple):
    """The contents of a store or a release.

    Attributes:
      commits: visible studies, sorted by name.
      groups: groups, in page order.
      goals: batch-size workloads, each with the number of its group.
      factorizations, layouts: studies, each with the number of its group.
      runs: rows of the studies table.
    """

    commits: Sequence[Commit]
    groups: Sequence[FilterGroup]
    goals: Sequence[tuple[int, WorkloadRow]]
    factorizations: Sequence[tuple[int, MeasuredFactorization]]
    layouts: Sequence[tuple[int, MeasuredLayout]]
    runs: Sequence[Run]


@located
def gather(folder: Folder, target: TargetRequest, report: Report) -> PageContents:
    """Reads a store or a release.

    Args:
      folder: folder of the store.
      target: metric and value to use instead of the studies' own targets.
      report: called with progress lines.

    Raises:
      BadInput: the store is missing or damaged, or no study has run yet.
    """
    visible = store.catalogue(folder)
    if not visible:
        raise BadInput(f"no study in {folder} has run yet. Fill it with `python -m sweeps store={quoted(folder)}`.")
    if target:
        check_choice("metric", target[0], sorted({metric for commit in visible for metric in commit.metrics}))
    with progress.show_progress("report", len(visible), " studies", report) as move:
        goals = workload_rows.read_goals(folder, target, move)
        measured = factorizations.load(folder)
        laid = layouts.load(folder)
        # The store may grow while it is being read. The page shows the studies that were read; visible ones never
        # vanish.
        by_name = {commit.name: commit for commit in store.catalogue(folder)}
        groups = goal_groups(goals) | factorization_groups(measured, by_name) | layout_groups(laid, by_name)
        grouped = {commit.name for group in groups.values() for commit in group.commits}
        others = _by_looks((commit for commit in visible if commit.name not in grouped), lambda commit: commit.study)
        every = [*groups.values(), *(_group(names, commits=tuple(own)) for names, own in others.items())]
        commits = sorted((commit for group in every for commit in group.commits), key=lambda commit: commit.name)
        runs = [row for commit in commits for row in read_table(commit, "studies").to_pylist()]
        move(len(visible))
    group_numbers = {name: group_number for group_number, name in enumerate(groups)}
    taken: set[str] = set()
    return PageContents(
        commits,
        [group._replace(key=picture.unique_stem(group.key, taken)) for group in add_waiting(every, folder, commits)],
        [(group_numbers[goal.workload.commits[0].name], goal) for goal in goals],
        [(group_numbers["/".join(kind_views.labels(one.study))], one) for one in measured],
        [(group_numbers["/".join(kind_views.labels(one.study))], one) for one in laid],
        runs,
    )


def goal_groups(goals: Sequence[WorkloadRow]) -> dict[str, FilterGroup]:
    """Returns a group for each workload, by the name of its first study."""
    groups: dict[str, FilterGroup] = {}
    for goal in goals:
        one = goal.workload
        words = [one.title, goal.target_text, workload_rows.pays(goal)]
        for _, points_fit in workload_rows.answers(goal):
            words += [points_fit.verdict, *(regime for _, regime in workload_rows.regimes_in_words(points_fit))]
        name = one.commits[0].name
        before = groups[name].search_text if name in groups else ""
        key = "/".join(filter(None, [one.dataset, one.model, one.optimizer, one.distinction]))
        search_text = " ".join([before, *words]).replace("_", " ")
        groups[name] = FilterGroup(key, goal.kind, one.dataset, one.model, one.optimizer, search_text, one.commits)
    return groups


def factorization_groups(
    measured: Sequence[MeasuredFactorization], commits: Mapping[str, Commit]
) -> dict[str, FilterGroup]:
    """Returns groups of factorizations with equal data set, dimension and solver, by key."""
    groups = (
        _group(names, map(labels.title, own), commits=tuple(commits[one.study.name] for one in own))
        for names, own in _by_looks(measured, lambda one: one.study).items()
    )
    return {group.key: group for group in groups}


def layout_groups(laid: Sequence[MeasuredLayout], commits: Mapping[str, Commit]) -> dict[str, FilterGroup]:
    """Returns groups of layouts with equal model and batch, by key. The search also matches meshes and layouts."""
    groups = (
        _group(
            names,
            {each: None for one in own for each in (*names, one.study.engine, one.study.mesh, one.study.layout)},
            commits=tuple(commits[one.study.name] for one in own),
        )
        for names, own in _by_looks(laid, lambda one: one.study).items()
    )
    return {group.key: group for group in groups}


def add_waiting(groups: Sequence[FilterGroup], folder: Folder, seen: Sequence[Commit]) -> list[FilterGroup]:
    """Adds requested studies that are not visible yet to their groups, or to new groups.

    Args:
      groups: groups of visible studies.
      folder: folder of the store.
      seen: visible studies.
    """
    unseen = set(store.names(folder)) - {commit.name for commit in seen}
    plans = [plan for plan in (store.stored_plan(folder, name) for name in sorted(unseen)) if plan is not None]
    members = _by_looks(plans, lambda plan: plan)
    names_of = [(group.kind, group.dataset, group.model, group.optimizer) for group in groups]
    filled = [
        group._replace(waiting=tuple(members.pop(names, ()))) for group, names in zip(groups, names_of, strict=True)
    ]
    return filled + [_group(names, waiting=tuple(own)) for names, own in members.items()]


def _by_looks(items: Iterable[T], study_of: Callable[[T], Plan]) -> dict[tuple[str, str, str, str], list[T]]:
    """Groups items by their study's kind and its names in the filters."""
    return grouped(items, lambda item: (study_of(item).kind, *kind_views.labels(study_of(item))))


def _group(
    names: tuple[str, str, str, str],
    words: Iterable[str] = (),
    commits: Sequence[Commit] = (),
    waiting: Sequence[Plan] = (),
) -> FilterGroup:
    """Returns a group that the search finds by ``words`` or, without any, by its names."""
    search_text = " ".join(list(words) or names).replace("_", " ")
    return FilterGroup("/".join(names[1:]), *names, search_text, commits, waiting)
