"""Gathered: everything the page is about, read once from a store or a release."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from analysis import studies
from analysis.cores import factorizations
from analysis.cores.factorizations import Measured
from analysis.plotting import picture
from analysis.report import filter_groups, targets
from analysis.report.filter_groups import Group
from analysis.report.targets import Goal
from results import progress, store
from results.bad_input import BadInput, check_choice
from results.durable import Folder
from results.storage.commits import Commit, read_table


class Gathered(NamedTuple):
    """What a store or a release holds.

    Attributes:
      commits: its visible studies, by name.
      groups: in the order of the page.
      goals: of studies over batch sizes, each with the place of its group.
      held: factorizations, each with the place of its group.
      runs: rows of the table of studies.
    """

    commits: Sequence[Commit]
    groups: Sequence[Group]
    goals: Sequence[tuple[int, Goal]]
    held: Sequence[tuple[int, Measured]]
    runs: Sequence[dict[str, Any]]


def gather(folder: Folder, asked: tuple[str, float] | None, report: Callable[[str], None]) -> Gathered:
    """Reads a store or a release.

    Args:
      folder: of the store.
      asked: metric and value of a target other than the studies' own.
      report: takes a line of progress.

    Raises:
      BadInput: there is no store, it is damaged, or nothing in it has run yet.
    """
    there = store.catalogue(folder)
    if not there:
        raise BadInput(f"no study in {folder} has run yet; fill it with `python -m sweeps store={folder}`")
    if asked:
        check_choice("metric", asked[0], sorted({metric for commit in there for metric in commit.metrics}))
    with progress.show_progress("report", len(there), " studies", report) as move:
        found = targets.of_store(folder, asked, move)
        held = factorizations.load(folder)
        # A store may grow while it is read: what counts is what was seen, and nothing visible ever vanishes.
        by_name = {commit.name: commit for commit in store.catalogue(folder)}
        of_goals, of_held = filter_groups.of_goals(found), filter_groups.of_factorizations(held, by_name)
        drawn = {commit.name for group in (*of_goals.values(), *of_held.values()) for commit in group.commits}
        of_others = filter_groups.of_others([commit for commit in there if commit.name not in drawn])
        every = [*of_goals.values(), *of_held.values(), *of_others.values()]
        commits = sorted((commit for group in every for commit in group.commits), key=lambda commit: commit.name)
        runs = [row for commit in commits for row in read_table(commit, "studies").to_pylist()]
        move(len(there))
    places = {name: place for place, name in enumerate([*of_goals, *of_held])}
    return Gathered(
        commits,
        _keyed(filter_groups.with_waiting(every, folder, commits)),
        [(places[goal.workload.commits[0].name], goal) for goal in found],
        [(places["/".join(studies.labels(one.study))], one) for one in held],
        runs,
    )


def _keyed(every: Sequence[Group]) -> list[Group]:
    """Groups with a key of their own each."""
    taken: set[str] = set()
    return [group._replace(key=picture.free(group.key, taken)) for group in every]
