"""Plan: the protocol of studies of every kind, with identity, name and stream derived from the fields."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from results.bad_input import BadInput
from results.plans.search_space import SearchSpace
from results.plans.study import DIGITS, Target, canonical, digest, unreadable
from results.plans.trial_request import TrialRequest


class Plan(Protocol):
    """A study of any kind: a frozen dataclass that holds everything that decides a result.

    Its *identity* is its fields but those of ``NOT_IN_IDENTITY``; its name, its stream and its plain data derive from
    that, here and nowhere else. Each kind is a row of ``results.plans.kinds.KINDS``.

    Attributes:
      kind: its key in ``results.plans.kinds.KINDS``, and in its plan.
      NOT_IN_IDENTITY: fields outside its identity: how many trials are requested, and how long its name is.
      OMITTED_AT: fields, with the values at which they are left out of its plan.
      NOT_IN_STREAM: fields of its plan that change no number in its trials.
      dataset, optimizer: names, as tables show them.
      batch_size: global, in examples; None where all data are taken at once.
      space: the ranges that metaparameters are drawn from.
      targets: what trials are to reach.
      ends_at: the targets that end a trial once it has reached all of them.
      stop: ``target`` or ``budget``, what ends its trials.
      pruning: ``exact`` where losing trials are cut short, else ``off``.
      source: who published it; None of studies that are measured here.
      budget_steps: the most steps of a trial; of what others measured the most that there can be.
      most_evaluations: of a trial; likewise.
      trials: how many are asked for.
      digits: how many hex digits of the plan's hash its name has.
    """

    kind: ClassVar[str]
    NOT_IN_IDENTITY: ClassVar[frozenset[str]] = frozenset({"trials", "digits"})
    OMITTED_AT: ClassVar[Mapping[str, object]] = {}
    NOT_IN_STREAM: ClassVar[frozenset[str]] = frozenset()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    if TYPE_CHECKING:  # at run time a property here would become the default of a dataclass's field

        @property
        def dataset(self) -> str: ...
        @property
        def optimizer(self) -> str: ...
        @property
        def batch_size(self) -> int | None: ...
        @property
        def space(self) -> SearchSpace: ...
        @property
        def targets(self) -> tuple[Target, ...]: ...
        @property
        def ends_at(self) -> tuple[Target, ...]: ...
        @property
        def stop(self) -> str: ...
        @property
        def pruning(self) -> str: ...
        @property
        def source(self) -> str | None: ...
        @property
        def budget_steps(self) -> int: ...
        @property
        def most_evaluations(self) -> int: ...
        @property
        def trials(self) -> int: ...
        @property
        def digits(self) -> int: ...

    @property
    def slug(self) -> str:
        """The readable part of its name."""
        ...

    @property
    def model_label(self) -> str:
        """The model's name, then its options, as tables show it."""
        ...

    @classmethod
    def identity_fields(cls) -> list[str]:
        """Names of the fields that make up the identity."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in cls.NOT_IN_IDENTITY]

    @classmethod
    def request_fields(cls, request: TrialRequest) -> dict[str, Any]:
        """The fields that say what is asked of it; BadInput if that cannot be asked of this kind."""
        if request.repeats.confirm:
            raise BadInput(f"a study of kind {cls.kind} has nothing to confirm")
        return {"trials": request.trials}

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any], request: TrialRequest, digits: int = DIGITS[-1]) -> Self:
        """The study that ``plan()`` described, with what is asked of it; BadInput if another software wrote it."""
        fields = {name: value for name, value in plan.items() if name != "kind"}
        left_out = {name for name, value in cls.OMITTED_AT.items() if fields.get(name, value) == value}
        known = set(cls.identity_fields()) - left_out
        if plan.get("kind") != cls.kind or fields.keys() != known:
            differing = ", ".join(sorted(fields.keys() ^ known)) or f"kind={plan.get('kind')}"
            raise BadInput(unreadable(plan, differing))
        fields["space"] = SearchSpace.from_plan(plan["space"])
        if "targets" in fields:
            fields["targets"] = tuple(Target(**target) for target in plan["targets"])
        return cls(**fields | cls.request_fields(request) | {"digits": digits})

    def plan(self) -> dict[str, Any]:
        """The identity as plain JSON data: every field but those that are ``NOT_IN_IDENTITY``."""
        fields = {name: _plain(getattr(self, name)) for name in self.identity_fields()}
        content = {
            name: value
            for name, value in fields.items()
            if name not in self.OMITTED_AT or value != self.OMITTED_AT[name]
        }
        return {"kind": self.kind} | content

    @property
    def request(self) -> TrialRequest:
        """The trials and repeats requested of it."""
        return TrialRequest(self.trials)

    def with_request(self, request: TrialRequest) -> Self:
        """The same study, of which something else is asked."""
        return dataclasses.replace(self, **self.request_fields(request))

    @property
    def devices(self) -> int | None:
        """The number of devices it is measured on; None: all there are, as their number changes no result."""
        return None

    @functools.cached_property
    def name(self) -> str:
        """A readable slug and ``digits`` of the plan's sha256; the study's folder in a store."""
        return f"{self.slug}-{hashlib.sha256(self.plan_json.encode()).hexdigest()[: self.digits]}"

    @functools.cached_property
    def plan_json(self) -> str:
        """The identity in its one canonical JSON form."""
        return canonical(self.plan())

    @property
    def stream(self) -> str:
        """The source of all randomness of the study: a hash of the identity without ``NOT_IN_STREAM``."""
        return digest({name: value for name, value in self.plan().items() if name not in self.NOT_IN_STREAM})


def _plain(value: Any) -> Any:
    """A field as plain JSON data."""
    if isinstance(value, SearchSpace):
        return value.plan()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [dataclasses.asdict(each) if isinstance(each, Target) else each for each in value]
    return value
