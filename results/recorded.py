"""Recorded: the plan of a study that somebody else measured and published."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from results.asked import APART, Asked
from results.bad_input import BadInput
from results.search_space import SearchSpace
from results.study import DIGITS, MOST_STEPS, Target, canonical, digest, whole

_NO_IDENTITY = {"trials", "digits"}
SOURCE_LISTS = "source_lists"  # a column of trials of studies that join lists of their source: how many hold the run
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,79}")


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A study somebody else measured and published: what its source tells of it.

    Attributes:
      source: where it is from: shallue2018, mlperf-rcp, algoperf.
      dataset, model, optimizer: as the source names them; ``/`` is allowed.
      batch_size: global, in examples.
      space: the ranges metaparameters were drawn from; empty where the source does not tell.
      details: whatever else tells this study from others or is needed to read it, as plain JSON data.
      trials: how many trials the source holds. Not part of the identity.
      digits: how many hex digits of the plan's hash its name has. Likewise.
    """

    source: str
    dataset: str
    model: str
    optimizer: str
    batch_size: int
    space: SearchSpace
    details: Mapping[str, Any]
    trials: int
    digits: int = DIGITS[-1]

    targets: ClassVar[tuple[Target, ...]] = ()
    ends_at: ClassVar[tuple[Target, ...]] = ()
    pruning: ClassVar[str] = "off"

    def __post_init__(self) -> None:
        for field in ("source", "dataset", "model", "optimizer"):
            if not _NAME.fullmatch(getattr(self, field)):
                raise BadInput(
                    f"{field} must be a name of letters, digits, _ . + - and /, not {getattr(self, field)!r}"
                )
        whole("batch_size", self.batch_size, 1, MOST_STEPS)
        whole("trials", self.trials, 0, APART)

    def plan(self) -> dict[str, Any]:
        """The identity as plain JSON data: every field but ``trials`` and ``digits``."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _NO_IDENTITY}
        return {"kind": "recorded"} | fields | {"details": dict(self.details), "space": self.space.plan()}

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any], trials: int, digits: int = DIGITS[-1]) -> "Recorded":
        """The study that ``plan()`` described, with a number of trials."""
        fields = {k: v for k, v in plan.items() if k != "kind"}
        if fields.keys() != {field.name for field in dataclasses.fields(cls)} - _NO_IDENTITY:
            raise BadInput(f"not the plan of a recorded study: {', '.join(sorted(fields))}")
        fields["space"] = SearchSpace.from_plan(plan["space"])
        return cls(**fields, trials=trials, digits=digits)

    @property
    def asked(self) -> Asked:
        """What is asked of it beside its plan."""
        return Asked(self.trials)

    @functools.cached_property
    def name(self) -> str:
        """A readable slug and ``digits`` of the plan's sha256; the study's folder in a store."""
        words = f"{self.dataset}-{self.model}-{self.optimizer}".replace("/", "-")
        return f"{words}-b{self.batch_size}-{digest(self.plan())[: self.digits]}"

    @property
    def model_label(self) -> str:
        """The model's name."""
        return self.model

    @functools.cached_property
    def plan_json(self) -> str:
        """The identity in its one canonical JSON form."""
        return canonical(self.plan())


def same_runs(studies: Iterable[Recorded]) -> list[list[str]]:
    """Names of studies that a source lists with the very same runs, as far as it tells: those of each list together."""
    found: dict[tuple[object, ...], list[str]] = {}
    for study in studies:
        if isinstance(runs := study.details.get("runs"), str):
            found.setdefault((study.source, study.dataset, study.model, study.batch_size, runs), []).append(study.name)
    return [names for names in found.values() if len(names) > 1]
