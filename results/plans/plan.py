"""Plan: the protocol for studies of all kinds. It derives the identity, the name and the seed from the fields."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from results.aliases import Fields, Json
from results.bad_input import BadInput
from results.plans.search_space import SearchSpace
from results.plans.study import DIGITS, Target, canonical, digest, unreadable
from results.plans.trial_request import TrialRequest


class HasKind(Protocol):
    """Any object with a study kind."""

    @property
    def kind(self) -> str: ...


class Labels(NamedTuple):
    """The names of a study in tables."""

    dataset: str
    model: str  # with its options
    optimizer: str


class Search(NamedTuple):
    """The search settings for a study's trials. By default, there are no metaparameters.

    Attributes:
      space: ranges of the metaparameters.
      targets: targets for the trials.
      ends_at: targets that end a trial once all of them are reached.
      stop: condition that ends trials, ``target`` or ``budget``.
      pruning: ``exact`` if trials that can no longer win are stopped early, else ``off``.
    """

    space: SearchSpace = SearchSpace({})
    targets: tuple[Target, ...] = ()
    ends_at: tuple[Target, ...] = ()
    stop: str = "budget"
    pruning: str = "off"


class Plan(Protocol):
    """A study of any kind: a frozen dataclass whose fields determine the results.

    The *identity* of a study consists of all fields except ``NOT_IN_IDENTITY``. This class derives the name, the seed
    and plain data from the identity. Each kind is an entry in ``results.plans.kinds.KINDS``.

    Attributes:
      kind: key in ``results.plans.kinds.KINDS``, which is also stored in the plan.
      NOT_IN_IDENTITY: fields outside the identity: the request, and the length of the name.
      OMITTED_AT: fields that the plan omits if they have certain values, with these values.
      NOT_IN_STREAM: plan fields that do not affect the random numbers of the trials.
      budget_steps: maximum number of steps per trial, or the largest possible number for published studies.
      trials: number of requested trials.
      digits: number of hex digits of the plan's hash in the study's name.
    """

    kind: ClassVar[str]
    NOT_IN_IDENTITY: ClassVar[frozenset[str]] = frozenset({"trials", "digits"})
    OMITTED_AT: ClassVar[Mapping[str, object]] = {}
    NOT_IN_STREAM: ClassVar[frozenset[str]] = frozenset()
    __dataclass_fields__: ClassVar[Json]

    if TYPE_CHECKING:  # at run time, a property here would become the default of a dataclass field

        @property
        def budget_steps(self) -> int: ...
        @property
        def trials(self) -> int: ...
        @property
        def digits(self) -> int: ...

    @property
    def slug(self) -> str:
        """The readable part of the study's name."""
        ...

    @property
    def labels(self) -> Labels:
        """The data set, the model with its options and the optimizer, for tables."""
        ...

    @property
    def search(self) -> Search:
        """The search settings for the study's trials."""
        return Search()

    @property
    def batch_unit(self) -> tuple[str | None, int | None]:
        """The unit of the batch size, if there is one, and the tokens per sequence, if they are known."""
        return None, None

    @property
    def most_evaluations(self) -> int:
        """An upper bound on the number of evaluations per trial."""
        return self.budget_steps

    @classmethod
    def identity_fields(cls) -> list[str]:
        """Returns the names of the identity fields."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in cls.NOT_IN_IDENTITY]

    @classmethod
    def request_fields(cls, request: TrialRequest) -> Json:
        """Returns the fields that are set by a request. Raises BadInput if this kind does not support the request."""
        if request.repeats.confirm:
            raise BadInput(f"a study of kind {cls.kind} does not support repeats of the best trials")
        return {"trials": request.trials}

    @classmethod
    def from_plan(cls, plan: Fields, request: TrialRequest, digits: int = DIGITS[-1]) -> Self:
        """Restores a study from its ``plan()`` and its request. Raises BadInput if other software wrote the plan."""
        fields = {name: value for name, value in plan.items() if name != "kind"}
        left_out = {name for name, value in cls.OMITTED_AT.items() if fields.get(name, value) == value}
        expected = set(cls.identity_fields()) - left_out
        if plan.get("kind") != cls.kind or fields.keys() != expected:
            differing = ", ".join(sorted(fields.keys() ^ expected)) or f"kind={plan.get('kind')}"
            raise BadInput(unreadable(plan, differing))
        fields["space"] = SearchSpace.from_plan(plan["space"])
        if "targets" in fields:
            fields["targets"] = tuple(Target(**target) for target in plan["targets"])
        return cls(**fields | cls.request_fields(request) | {"digits": digits})

    def plan(self) -> Json:
        """Returns the identity of the study as plain JSON data."""
        fields = {name: _plain(getattr(self, name)) for name in self.identity_fields()}
        content = {
            name: value
            for name, value in fields.items()
            if name not in self.OMITTED_AT or value != self.OMITTED_AT[name]
        }
        return {"kind": self.kind} | content

    @property
    def request(self) -> TrialRequest:
        """The requested trials and repeats."""
        return TrialRequest(self.trials)

    def with_request(self, request: TrialRequest) -> Self:
        """Returns the study with a different request."""
        return dataclasses.replace(self, **self.request_fields(request))

    @property
    def devices(self) -> int | None:
        """The number of devices to measure on, or None to use all devices if their number does not affect results."""
        return None

    @functools.cached_property
    def name(self) -> str:
        """The slug followed by ``digits`` of the plan's sha256. The study's folder in a store has the same name."""
        return f"{self.slug}-{hashlib.sha256(self.plan_json.encode()).hexdigest()[: self.digits]}"

    @functools.cached_property
    def plan_json(self) -> str:
        """The identity in canonical JSON form."""
        return canonical(self.plan())

    @property
    def stream(self) -> str:
        """The seed of all randomness in the study: a hash of the identity without ``NOT_IN_STREAM``."""
        return digest({name: value for name, value in self.plan().items() if name not in self.NOT_IN_STREAM})


def _plain(value: Any) -> Any:
    """Returns a field's value as plain JSON data."""
    if isinstance(value, SearchSpace):
        return value.plan()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [dataclasses.asdict(member) if isinstance(member, Target) else _plain(member) for member in value]
    return value
