"""Groups: what the page shows and hides together, a workload over batch sizes or a way to factorize."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis import studies
from analysis.cores.factorizations import Measured
from analysis.plotting import labels
from analysis.report import targets
from analysis.report.targets import Goal
from results import store
from results.durable import Folder
from results.plans.plan import Plan
from results.rules.ledger import Ledger, tally
from results.storage.commits import Commit


class Group(NamedTuple):
    """Studies that stand in one row of the ledger.

    Attributes:
      key: names it in the page's address.
      kind: of ``studies.KINDS``.
      dataset, model, optimizer: as filters call them.
      said: what a search for words looks through.
      commits: its studies.
      waiting: of those that were asked for and are not visible yet.
    """

    key: str
    kind: str
    dataset: str
    model: str
    optimizer: str
    said: str
    commits: Sequence[Commit] = ()
    waiting: Sequence[Plan] = ()

    @property
    def ledger(self) -> Ledger:
        """Of all its studies; of those that have not run all trials are missing."""
        asked = [tally(study.request, {}) for study in self.waiting]
        return summed([*(commit.ledger for commit in self.commits), *asked])


def summed(ledgers: Sequence[Ledger]) -> Ledger:
    """The sum of ledgers."""
    return Ledger(*map(sum, zip(*ledgers, strict=True)))


def of_goals(found: Sequence[Goal]) -> dict[str, Group]:
    """A group for every workload, by the name of its first study."""
    groups: dict[str, Group] = {}
    for goal in found:
        one = goal.workload
        told = [one.title, goal.sought, targets.critical(goal)]
        for _, judged in targets.answers(goal):
            told += [judged.verdict, *(words for _, words in targets.regimes_in_words(judged))]
        name = one.commits[0].name
        before = groups[name].said if name in groups else ""
        key = "/".join(filter(None, [one.dataset, one.model, one.optimizer, one.distinction]))
        said = " ".join([before, *told]).replace("_", " ")
        groups[name] = Group(key, goal.kind, one.dataset, one.model, one.optimizer, said, one.commits)
    return groups


def of_factorizations(held: Sequence[Measured], commits: Mapping[str, Commit]) -> dict[str, Group]:
    """A group for the factorizations of one data set with tables as long and one solver, by these."""
    members: dict[tuple[str, str, str], list[Measured]] = {}
    for one in held:
        members.setdefault(studies.labels(one.study), []).append(one)
    return {
        "/".join(names): Group(
            "/".join(names),
            own[0].study.kind,
            *names,
            " ".join(labels.title(one) for one in own).replace("_", " "),
            tuple(commits[one.study.name] for one in own),
        )
        for names, own in members.items()
    }


def of_others(commits: Sequence[Commit]) -> dict[str, Group]:
    """A group for all other studies that look alike, of kinds that have no sections of their own."""
    members: dict[tuple[str, str, str, str], list[Commit]] = {}
    for commit in commits:
        members.setdefault((commit.kind, *studies.labels(commit.study)), []).append(commit)
    return {
        "/".join(names): Group("/".join(names[1:]), *names, " ".join(names).replace("_", " "), tuple(own))
        for names, own in members.items()
    }


def with_waiting(groups: Sequence[Group], folder: Folder, seen: Sequence[Commit]) -> list[Group]:
    """The groups with what was asked for and is not visible yet; what belongs to none of them is in groups of its own.

    Args:
      groups: of what is visible.
      folder: of the store.
      seen: what is visible.
    """
    unseen = set(store.names(folder)) - {commit.name for commit in seen}
    plans = [plan for plan in (store.stored_plan(folder, name) for name in sorted(unseen)) if plan is not None]
    members: dict[tuple[str, str, str, str], list[Plan]] = {}
    for plan in plans:
        members.setdefault((plan.kind, *studies.labels(plan)), []).append(plan)
    found = []
    for group in groups:
        names = (group.kind, group.dataset, group.model, group.optimizer)
        found.append(group._replace(waiting=tuple(members.pop(names, ()))))
    return found + [
        Group("/".join(names[1:]), *names, " ".join(names).replace("_", " "), waiting=tuple(own))
        for names, own in members.items()
    ]
