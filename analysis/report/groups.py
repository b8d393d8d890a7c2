"""Groups: what the page shows and hides together, a workload over batch sizes or a way to factorize."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.cores.factorizations import Measured
from analysis.drawing import labels
from analysis.report import goals
from analysis.report.goals import Goal
from results import store
from results.commits import Commit
from results.durable import Folder
from results.factorization import Factorization
from results.ledger import Ledger, tally
from results.plan import Plan
from results.recorded import Recorded

KINDS = {
    "batch": "batch sizes, measured by scaling-limits",
    "recorded": "batch sizes, published by others",
    "cores": "factorizations over cores",
}


class Group(NamedTuple):
    """Studies that stand in one row of the ledger.

    Attributes:
      key: names it in the page's address.
      kind: of ``KINDS``.
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
        asked = [tally(study.asked, {}) for study in self.waiting]
        return summed([*(commit.ledger for commit in self.commits), *asked])


def summed(ledgers: Sequence[Ledger]) -> Ledger:
    """The sum of ledgers."""
    return Ledger(*map(sum, zip(*ledgers, strict=True)))


def of_goals(found: Sequence[Goal]) -> dict[str, Group]:
    """A group for every workload, by the name of its first study."""
    groups: dict[str, Group] = {}
    for goal in found:
        one = goal.workload
        told = [one.title, goal.sought, goals.critical(goal)]
        for _, judged in goals.answers(goal):
            told += [judged.verdict, *(words for _, words in goals.regimes_in_words(judged))]
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
        members.setdefault(looks(one.study), []).append(one)
    return {
        "/".join(names): Group(
            "/".join(names),
            "cores",
            *names,
            " ".join(labels.title(one) for one in own).replace("_", " "),
            tuple(commits[one.study.name] for one in own),
        )
        for names, own in members.items()
    }


def looks(study: Plan) -> tuple[str, str, str]:
    """Data set, model and optimizer as filters call them."""
    rule = f"als, {study.solver}" if isinstance(study, Factorization) else study.optimizer
    return study.dataset, study.model_label, rule


def with_waiting(groups: Sequence[Group], folder: Folder, seen: Sequence[Commit]) -> list[Group]:
    """The groups with what was asked for and is not visible yet; what belongs to none of them is in groups of its own.

    Args:
      groups: of what is visible.
      folder: of the store.
      seen: what is visible.
    """
    unseen = set(store.names(folder)) - {commit.name for commit in seen}
    plans = [plan for plan in (store.planned(folder, name) for name in sorted(unseen)) if plan is not None]
    members: dict[tuple[str, str, str, str], list[Plan]] = {}
    for plan in plans:
        kind = "cores" if isinstance(plan, Factorization) else "recorded" if isinstance(plan, Recorded) else "batch"
        members.setdefault((kind, *looks(plan)), []).append(plan)
    found = []
    for group in groups:
        names = (group.kind, group.dataset, group.model, group.optimizer)
        found.append(group._replace(waiting=tuple(members.pop(names, ()))))
    return found + [
        Group("/".join(names[1:]), *names, " ".join(names).replace("_", " "), waiting=tuple(own))
        for names, own in members.items()
    ]
