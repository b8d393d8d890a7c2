"""The contents of the page, read once from a store or a release, and grouped for the filters."""

import importlib
import pkgutil
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from analysis import kind_views
from analysis.plotting import picture
from analysis.report import workload_rows
from analysis.report.workload_rows import WorkloadRow
from results import progress, store
from results.aliases import Row
from results.bad_input import BadInput, check_choice
from results.durable import Folder
from results.grouping import grouped
from results.located import located
from results.plans.plan import Plan
from results.plans.study import TargetRequest
from results.printing import Report, quoted
from results.rules.ledger import Ledger, tally, total
from results.store import Commit, read_table

T = TypeVar("T")
Run = Row  # a row of the studies table
Looks = tuple[str, str, str, str]  # kind, data set, model and optimizer


class FilterGroup(NamedTuple):
    """Studies that the page shows or hides together. They share a row in the ledger.

    Attributes:
      key: name in the page's address.
      kind: a kind in ``kind_views.PRESENTATIONS``.
      dataset, model, optimizer: names shown in the filters.
      search_text: text that the search field is matched against.
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
      goals: batch-size workloads with their targets, each with the number of its group.
      measured: studies of the other kinds that have a section, by kind, each with the number of its group.
      runs: rows of the studies table.
    """

    commits: Sequence[Commit]
    groups: Sequence[FilterGroup]
    goals: Sequence[tuple[int, WorkloadRow]]
    measured: Mapping[str, Sequence[tuple[int, Any]]]
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
    sections = {kind: row for kind, row in kind_views.PRESENTATIONS.items() if row.section}
    with progress.show_progress("report", len(visible), " studies", report) as move:
        goals = workload_rows.read_goals(folder, target, move)
        measured = {kind: pkgutil.resolve_name(row.load)(folder) for kind, row in sections.items()}
        # The store may grow while it is being read. The page shows the studies that were read; visible ones never
        # vanish.
        by_name = {commit.name: commit for commit in store.catalogue(folder)}
        groups = goal_groups(goals)
        for kind, items in measured.items():
            groups |= section_groups(kind, items, by_name)
        grouped = {commit.name for group in groups.values() for commit in group.commits}
        ungrouped = _by_looks((commit for commit in visible if commit.name not in grouped), lambda commit: commit.study)
        all_groups = [
            *groups.values(),
            *(_group(names, commits=tuple(members)) for names, members in ungrouped.items()),
        ]
        commits = sorted((commit for group in all_groups for commit in group.commits), key=lambda commit: commit.name)
        runs = [row for commit in commits for row in read_table(commit, "studies").to_pylist()]
        move(len(visible))
    group_numbers = {name: group_number for group_number, name in enumerate(groups)}
    taken: set[str] = set()
    return PageContents(
        commits,
        [
            group._replace(key=picture.unique_stem(group.key, taken))
            for group in add_waiting(all_groups, folder, commits)
        ],
        [(group_numbers[goal.workload.commits[0].name], goal) for goal in goals],
        {kind: [(group_numbers[_looks(study.study)], study) for study in items] for kind, items in measured.items()},
        runs,
    )


def goal_groups(goals: Sequence[WorkloadRow]) -> dict[Hashable, FilterGroup]:
    """Returns one group per workload, by the name of its first study."""
    groups: dict[Hashable, FilterGroup] = {}
    for goal in goals:
        workload = goal.workload
        words = [workload.title, goal.target_text, workload_rows.pays(goal)]
        for _, points_fit in workload_rows.answers(goal):
            words += [points_fit.verdict, *(regime for _, regime in workload_rows.regimes_in_words(points_fit))]
        name = workload.commits[0].name
        before = groups[name].search_text if name in groups else ""
        key = "/".join(filter(None, [workload.dataset, workload.model, workload.optimizer, workload.distinction]))
        search_text = " ".join([before, *words]).replace("_", " ")
        groups[name] = FilterGroup(
            key, goal.kind, workload.dataset, workload.model, workload.optimizer, search_text, workload.commits
        )
    return groups


def section_groups(kind: str, studies: Sequence[Any], commits: Mapping[str, Commit]) -> dict[Hashable, FilterGroup]:
    """Returns groups of studies of one kind that have equal names in the filters. Each group also has search terms."""
    section = kind_views.PRESENTATIONS[kind].section
    assert section is not None
    words = importlib.import_module(section.module).words
    return {
        names: _group(names, words(members), [commits[study.study.name] for study in members])
        for names, members in _by_looks(studies, lambda study: study.study).items()
    }


def add_waiting(groups: Sequence[FilterGroup], folder: Folder, seen: Sequence[Commit]) -> list[FilterGroup]:
    """Adds requested studies that are not visible yet to their groups, or to new groups.

    Args:
      groups: groups of visible studies.
      folder: folder of the store.
      seen: visible studies.
    """
    plans = store.waiting(folder, [commit.name for commit in seen])
    members = _by_looks(plans, lambda plan: plan)
    names_of = [(group.kind, group.dataset, group.model, group.optimizer) for group in groups]
    filled = [
        group._replace(waiting=tuple(members.pop(names, ()))) for group, names in zip(groups, names_of, strict=True)
    ]
    return filled + [_group(names, waiting=tuple(plans_of_group)) for names, plans_of_group in members.items()]


def _by_looks(items: Iterable[T], study_of: Callable[[T], Plan]) -> dict[Looks, list[T]]:
    """Groups items by the kind of their study and its names in the filters."""
    return grouped(items, lambda item: _looks(study_of(item)))


def _looks(study: Plan) -> Looks:
    return study.kind, *kind_views.labels(study)


def _group(
    names: Looks,
    words: Iterable[str] = (),
    commits: Sequence[Commit] = (),
    waiting: Sequence[Plan] = (),
) -> FilterGroup:
    """Returns a group with the search terms ``words`` or, by default, its names."""
    search_text = " ".join(list(words) or names).replace("_", " ")
    return FilterGroup("/".join(names[1:]), *names, search_text, commits, waiting)
