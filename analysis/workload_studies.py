"""Workloads: groups of visible studies that differ only in batch size, and the fields that distinguish similar ones."""

import fnmatch
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import pandas as pd

from analysis import kind_views, text
from results import store
from results.aliases import Fields, Json, StringMap
from results.bad_input import BadInput, nearest
from results.catalog.overview import Overview
from results.durable import Folder
from results.grouping import grouped
from results.located import located
from results.plans import kinds
from results.plans.kinds import KINDS, along, place
from results.plans.plan import Plan
from results.plans.plan_columns import unit_in_words
from results.plans.study import canonical, decimal, digest
from results.store import Commit

T = TypeVar("T")

FIELDS = ("dataset", "model", "optimizer", "batch_size", "schedule", "seed", "pruning", "stop", "source", "unit")

# Plan fields that may vary along a curve, besides its axis: budgets and search spaces may have to follow the batch
# size, and so may the details from a source.
VARIED = ("budget_steps", "evaluation_spacing", "evaluation_spacings", "space", "details")
CURVE_COLUMNS = ("dataset", "model", "optimizer", "target_metric", "target_value")
ALONG = "batch_size"  # shown as a column in tables
LONGEST = 24  # maximum characters of a printed value


class WorkloadStudies(NamedTuple):
    """Studies that differ only in batch size and ``VARIED``.

    Attributes:
      dataset, model, optimizer: names in tables.
      distinction: fields that distinguish this workload from similar ones, such as ``seed=1``, or empty.
      commits: the studies, sorted by batch size.
    """

    dataset: str
    model: str
    optimizer: str
    distinction: str
    commits: tuple[Commit, ...]

    @property
    def title(self) -> str:
        """The workload's name in pictures."""
        words = f"{self.dataset} · {self.model} · {self.optimizer}"
        return f"{words} · {self.distinction}" if self.distinction else words

    @property
    def unit(self) -> str:
        """The unit of the batch sizes, as text. Workloads in different units are never fitted or drawn together."""
        return unit_in_words(self.commits[0].study) if self.commits else ""

    @property
    def pruned(self) -> bool:
        """Whether trials that could no longer win were stopped early."""
        return self.commits[0].plan.get("pruning") == "exact"

    @property
    def recorded(self) -> bool:
        """Whether the studies were measured by others."""
        return kinds.KINDS[self.commits[0].kind].recorded


@located
def of_store(folder: Folder, where: Sequence[str] = ()) -> list[WorkloadStudies]:
    """Returns the batch-size workloads in a store or a release, sorted.

    Args:
      folder: folder of the store.
      where: conditions such as ``model=fully_connected*,optimizer=momentum``. A study is selected if it meets all
        conditions in at least one item. If there are no items, all studies are selected.

    Raises:
      BadInput: there is no store, a condition is invalid, or no study meets the conditions.
    """
    conditions = [_conditions(condition_text) for condition_text in where]
    commits = kind_views.drawn_as(kind_views.BATCH, store.catalogue(folder))
    matches = [
        commit for commit in commits if not where or any(_meets(commit.study, condition) for condition in conditions)
    ]
    if where and not matches:
        raise BadInput(f"no study meets --where {' --where '.join(where)}. {_available(commits)}")
    return group(matches)


def group(commits: Iterable[Commit]) -> list[WorkloadStudies]:
    """Returns the workloads of batch-size studies, sorted."""

    def names(commit: Commit) -> tuple[str, str, str]:
        return commit.study.labels

    groups = alike(commits, names, lambda commit: shared_plan(commit.study))
    by_names = sorted(groups, key=lambda workload_group: (names(workload_group.members[0]), workload_group.key))
    return [
        WorkloadStudies(
            *names(workload_group.members[0]),
            workload_group.distinction,
            tuple(sorted(workload_group.members, key=lambda commit: (along(commit.study), commit.name))),
        )
        for workload_group in by_names
    ]


class Alike(NamedTuple, Generic[T]):
    """A group of items with the same names and the same shared plan, such as the studies of a curve.

    Attributes:
      key: digest of the shared plan.
      members: the items, in order.
      distinction: fields that distinguish the group from other groups with the same names, or empty.
    """

    key: str
    members: list[T]
    distinction: str


def alike(
    items: Iterable[T],
    names: Callable[[T], Hashable],
    shared: Callable[[T], Fields],
    in_words: Callable[[Fields], Fields] = dict,
) -> list[Alike[T]]:
    """Groups items with the same names and the same shared plan, in order of first appearance by name.

    Args:
      items: studies or curves.
      names: function that returns the fields of an item that are always shown.
      shared: function that returns the plan of an item, without the fields that may vary within a group.
      in_words: function that returns the possible distinguishing fields of a shared plan.
    """
    by_names: dict[Hashable, dict[str, list[T]]] = {}
    words = {}
    for item in items:
        plan = shared(item)
        key = digest(plan)
        words[key] = in_words(plan)
        by_names.setdefault(names(item), {}).setdefault(key, []).append(item)
    return [
        Alike(key, members, distinction(key, {sibling: words[sibling] for sibling in groups}))
        for groups in by_names.values()
        for key, members in groups.items()
    ]


def shared_plan(study: Plan, varied: Sequence[str] = VARIED) -> Json:
    """Returns the plan shared by all studies of a curve, without the axes and other fields that vary along it."""
    return {field: value for field, value in study.plan().items() if field not in (*varied, *KINDS[study.kind].axes)}


def distinction(key: str, plans: Mapping[str, Fields]) -> str:
    """Returns the fields, with values, in which the plan ``key`` differs from the others in ``plans``.

    Data options are separate fields.
    """
    own_plan, *other_plans = (_with_options(plan) for plan in (plans[key], *plans.values()))
    fields = [field for field in own_plan if any(plan.get(field) != own_plan[field] for plan in other_plans)]
    return ", ".join(f"{field}={_brief(field, own_plan[field])}" for field in fields)


def _conditions(text: str) -> StringMap:
    conditions = {}
    for condition in text.split(","):
        field, equals, value = condition.partition("=")
        if not (equals and value):
            raise BadInput(f"--where takes FIELD=VALUE, such as optimizer=momentum, not {condition!r}")
        if field not in FIELDS:
            raise BadInput(f"--where has no field {field!r}; {nearest(field, FIELDS)}")
        conditions[field] = value
    return conditions


def _meets(study: Plan, conditions: StringMap) -> bool:
    return all(
        any(fnmatch.fnmatchcase(name, value) for name in _names(study, field)) for field, value in conditions.items()
    )


def _names(study: Plan, field: str) -> list[str]:
    values = study.plan() | {"pruning": study.search.pruning, "unit": study.batch_unit[0]}
    choices = [str(values.get(field, ""))]
    return [*choices, study.labels.model] if field == "model" else choices


def _available(commits: Sequence[Commit]) -> str:
    names = {"/".join(commit.study.labels) for commit in commits}
    return f"The store has {text.first_few(sorted(names))}." if names else "The store has no study over batch sizes."


def _with_options(plan: Fields) -> Json:
    """Returns a plan with data options as separate fields, such as ``dataset.seed`` next to the study's ``seed``."""
    options = plan.get("dataset_options", {})
    fields = {name: value for name, value in plan.items() if name != "dataset_options"}
    return fields | {f"dataset.{name}": value for name, value in options.items()}


def _brief(field: str, value: Any) -> str:
    if field == "targets":
        return " and ".join(f"{target['metric']} ≤ {decimal(target['value'])}" for target in value) or "none"
    return value if isinstance(value, str) else canonical(value)


def add_distinctions(table: pd.DataFrame, overview: Overview) -> pd.DataFrame:
    """Adds ``unit``, ``columns.DIFFERS`` and ``apart`` to a table of answers, and sorts the rows of a curve together.

    Fields that distinguish curves are in both columns. Fields that may vary along a curve, such as the search space,
    are only in ``apart``, and only if the curve has several studies at one batch size.

    Args:
      table: rows (``CURVE_COLUMNS``, batch_size, study, ...).
      overview: the store.
    """
    names = set(table["study"])
    plans = {commit.name: commit.study for commit in store.catalogue(overview.folder) if commit.name in names}
    differs, distinctions = dict[Hashable, str](), dict[Hashable, str]()
    for _, rows in table.groupby(list(CURVE_COLUMNS), sort=False):
        studies = {row: plans[name] for row, name in rows["study"].items() if name in plans}
        keys = {row: digest(_shared(study)) for row, study in studies.items()}
        curves = {keys[row]: _shared(study) for row, study in studies.items()}
        differs |= {row: distinction(key, curves) for row, key in keys.items()}
        places = {row: (keys[row], place(study)) for row, study in studies.items()}
        for members in grouped(studies, places.__getitem__).values():
            separations = _separations([_varied(studies[row]) for row in members])
            for row, words in zip(members, separations, strict=True):
                distinctions[row] = ", ".join(filter(None, (differs[row], words)))
    return table.assign(
        differs=[differs.get(row, "") for row in table.index],
        apart=[distinctions.get(row, "") for row in table.index],
        unit=[unit_in_words(plans[name]) if name in plans else "" for name in table["study"]],
    ).sort_values([*CURVE_COLUMNS, "differs", ALONG, "study"], ignore_index=True)


def _separations(contents: Sequence[Fields]) -> list[str]:
    """Returns, for each of ``contents``, the values of the fewest fields that distinguish them."""
    all_fields = dict.fromkeys(field for content in contents for field in content)
    words = [{field: json.dumps(content.get(field), sort_keys=True) for field in all_fields} for content in contents]
    chosen = text.separating(words)
    return [", ".join(f"{field}={fields[field][:LONGEST]}" for field in chosen) for fields in words]


def _shared(study: Plan) -> dict[str, object]:
    """Returns the plan shared by all studies of a curve, and the axes that the table does not show."""
    plan = study.plan()
    return shared_plan(study) | {axis: plan[axis] for axis in KINDS[study.kind].axes if axis != ALONG}


def _varied(study: Plan) -> Json:
    """Returns the fields that may vary along a curve. Nested names look like space.learning_rate.low."""
    plan = study.plan()
    return _leaves({field: plan[field] for field in VARIED if field in plan})


def _leaves(content: Fields) -> Json:
    leaves: Json = {}
    for name, value in content.items():
        nested = _leaves(value) if isinstance(value, Mapping) else None
        leaves |= {name: value} if nested is None else {f"{name}.{inner}": leaf for inner, leaf in nested.items()}
    return leaves
