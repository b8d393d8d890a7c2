"""BatchStudy: the plan of a ``batch`` study, which tunes a workload at one batch size."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from results.aliases import Fields, Json
from results.bad_input import BadInput, check_choice
from results.plans.plan import Labels, Plan, Search
from results.plans.search_space import SearchSpace, finite
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, check_int
from results.plans.trial_request import MOST_TRIALS, NO_REPEATS, Repeats, TrialRequest, check_repeats

SCHEDULES = ("constant", "linear", "cosine")
PRUNING = ("exact", "off")
STOPS = ("target", "budget")
PRECISIONS = ("float32", "bfloat16")
CHOICES = {"schedule": SCHEDULES, "pruning": PRUNING, "stop": STOPS, "precision": PRECISIONS}


@dataclasses.dataclass(frozen=True)
class BatchStudy(Plan):
    """The trials of one workload at one batch size. The fields are exactly those that determine the results.

    Attributes:
      dataset, model, optimizer: names in the registries of ``workloads``.
      dataset_version: version of the data, if the name does not determine it.
      model_options: model options, such as ``{"widths": [64]}``.
      schedule: learning-rate decay over a trial: constant, linear or cosine.
      batch_size: global batch size, in examples.
      space: ranges of the metaparameters.
      targets: targets to reach. If empty, every trial uses its full budget.
      budget_steps: maximum number of steps per trial.
      evaluation_ratio: ratio between successive evaluation steps. It bounds the relative error of steps to target.
      evaluation_spacing: minimum average number of steps per evaluation. It bounds the cost of evaluations. 0 means no
        bound.
      seed: seed of the search and of every trial.
      pruning: ``exact`` stops a trial once it cannot change any answer. ``off`` disables pruning.
      trials: number of requested trials. Not part of the identity: a larger request adds only the new trials.
      comparable: Major.Minor version of the software. Results from different versions are not comparable.
      stop: ``target`` ends a trial once it has reached all its targets. ``budget`` trains for the full budget, so that
        any target can be read from the curve.
      confirm: number of repeats of the best trial with new seeds (see ``results.rules.confirmation``). Not part of the
        identity.
      confirm_top: number of best trials that are candidates. If there are several, half of the repeats are used to
        choose one of them. Not part of the identity.
      digits: number of hex digits of the plan's hash in the study's name (see ``results.store.with_stored_name``). Not
        part of the identity.
      dataset_options: options of your own data that are not covered by ``dataset_version``: label, task and split.
      precision: float32 or bfloat16, for activations and matmuls on every machine.
      packages: version and module of each name defined by another package, such as ``mine:net``.
      evaluation_spacings: steps between evaluations, each with the step up to which it applies, such as ``((50, 1000),
        (500, 20000))``. The last one applies up to the budget. If this is not empty, ``evaluation_ratio`` and
        ``evaluation_spacing`` are ignored.
    """

    dataset: str
    dataset_version: str
    model: str
    model_options: Fields
    optimizer: str
    schedule: str
    batch_size: int
    space: SearchSpace
    targets: tuple[Target, ...]
    budget_steps: int
    evaluation_ratio: float
    evaluation_spacing: float
    seed: int
    pruning: str
    trials: int
    comparable: str = COMPARABLE
    stop: str = "target"
    confirm: int = 0
    confirm_top: int = 1
    digits: int = DIGITS[-1]
    dataset_options: Fields = dataclasses.field(default_factory=dict)
    precision: str = "float32"
    packages: Fields = dataclasses.field(default_factory=dict)
    evaluation_spacings: tuple[tuple[int, int], ...] = ()

    kind = "batch"
    OMITTED_AT: ClassVar = {
        "dataset_options": {},
        "precision": "float32",
        "packages": {},
        "evaluation_spacings": [],
    }
    NOT_IN_IDENTITY = frozenset({"trials", "confirm", "confirm_top", "digits"})
    NOT_IN_STREAM = frozenset({"pruning", "stop"})  # they only end trials

    def __post_init__(self) -> None:
        check_int("batch_size", self.batch_size, 1, MOST_STEPS)
        check_int("budget_steps", self.budget_steps, 1, MOST_STEPS)
        check_int("trials", self.trials, 1, MOST_TRIALS)
        check_int("confirm", self.confirm, 0)
        check_int("confirm_top", self.confirm_top, 1)
        check_int("seed", self.seed, 0)
        check_repeats(self.confirm, self.confirm_top, pruned=self.pruning == "exact")
        for field, choices in CHOICES.items():
            check_choice(field, getattr(self, field), choices)
        for field in ("evaluation_ratio", "evaluation_spacing"):
            object.__setattr__(self, field, finite(field, getattr(self, field)))
        ratio, spacing, is_exact = self.evaluation_ratio, self.evaluation_spacing, self.pruning == "exact"
        if not 1 < ratio <= 2:
            raise BadInput(f"evaluation_ratio must be above 1 and at most 2, not {ratio:g}")
        if spacing < 0:
            raise BadInput(f"evaluation_spacing must be at least 0, not {spacing:g}")
        object.__setattr__(self, "evaluation_spacings", _spacings(self.evaluation_spacings, self.budget_steps))
        if len({(t.metric, t.value) for t in self.targets}) < len(self.targets):
            raise BadInput("a target is given twice. Keep one of them.")
        if is_exact and not self.targets:
            raise BadInput("pruning=exact needs a target to prune against. Give one, or use pruning=off.")
        if is_exact and self.stop == "budget":
            raise BadInput("pruning=exact ends trials before their budget. Use stop=target or pruning=off.")
        if self.confirm and not self.targets:
            raise BadInput("confirm needs a target, which determines the best trial. Give one, or use confirm=0.")

    @classmethod
    def request_fields(cls, request: TrialRequest) -> Json:
        """Returns the fields that are set by a request."""
        return {"trials": request.trials, "confirm": request.repeats.confirm, "confirm_top": request.repeats.top}

    @property
    def request(self) -> TrialRequest:
        """The requested trials and repeats."""
        return TrialRequest(self.trials, Repeats(self.confirm_top, self.confirm) if self.confirm else NO_REPEATS)

    @property
    def search(self) -> Search:
        """The search settings for the study's trials."""
        ends_at = self.targets if self.stop == "target" else ()
        return Search(self.space, self.targets, ends_at, self.stop, self.pruning)

    @property
    def batch_unit(self) -> tuple[str, None]:
        """The unit of the batch size."""
        return "examples", None

    @property
    def slug(self) -> str:
        """The readable part of the study's name."""
        return f"{self.dataset}-{self.model}-{self.optimizer}-b{self.batch_size}".replace(":", ".")

    @property
    def labels(self) -> Labels:
        """The study's names in tables. Model options follow the model, sorted by name, as in fully_connected_64."""
        values = [self.model_options[name] for name in sorted(self.model_options)]
        numbers = [n for v in values for n in (v if isinstance(v, list | tuple) else [v])]
        return Labels(self.dataset, "_".join([self.model, *map(str, numbers)]), self.optimizer)

    @property
    def evaluations(self) -> np.ndarray:
        """The steps at which trials are evaluated, int32[evaluations]."""
        if self.evaluation_spacings:
            return spaced_steps(self.evaluation_spacings)
        return evaluation_steps(self.budget_steps, self.evaluation_ratio, self.evaluation_spacing)

    @property
    def most_evaluations(self) -> int:
        """An upper bound on the number of evaluations in a trial. It is fast to compute for any plan."""
        if self.evaluation_spacings:
            return sum((until - start) // spacing for start, (spacing, until) in _runs(self.evaluation_spacings))
        growing = 1 / (self.evaluation_ratio - 1)  # after this step, evaluations are more than one step apart
        every_step = min(self.budget_steps, growing + 1)
        return int(every_step + math.log(self.budget_steps / every_step) / math.log(self.evaluation_ratio)) + 2


def evaluation_steps(budget_steps: int, ratio: float, spacing: float = 0.0) -> np.ndarray:
    """Returns the evaluation steps. Each step is the first integer at or above ``ratio`` times the previous one.

    The k-th evaluation is at step k · ``spacing`` or later. The cost of evaluations is therefore at most a fixed
    fraction of the cost of training so far, even if a trial stops early. The last evaluation is at ``budget_steps``.

    Returns:
      int32[evaluations], strictly increasing, at most ``budget_steps``.
    """
    steps = [0]
    while steps[-1] < budget_steps:
        after = max(steps[-1] + 1, math.ceil(steps[-1] * ratio), math.ceil(len(steps) * spacing))
        steps.append(min(budget_steps, after))
    return np.asarray(steps[1:], np.int32)


def spaced_steps(spacings: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the evaluation steps of ``evaluation_spacings``, int32[evaluations], strictly increasing."""
    runs = [np.arange(start + spacing, until + 1, spacing) for start, (spacing, until) in _runs(spacings)]
    return np.concatenate(runs).astype(np.int32)


def _runs(spacings: Sequence[tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    """Returns each pair of ``evaluation_spacings`` with the step at which it starts."""
    starts = [0, *(until for _, until in spacings)]
    return list(zip(starts, spacings, strict=False))


def _spacings(given: Sequence[Sequence[int]], budget_steps: int) -> tuple[tuple[int, int], ...]:
    """Returns ``evaluation_spacings`` as tuples. Raises BadInput if they do not reach the budget."""
    if not isinstance(given, list | tuple) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in given
    ):
        raise BadInput(f"evaluation_spacings must be pairs of a spacing and a last step, not {str(given)[:60]}")
    pairs = []
    start = 0
    for pair in given:
        spacing, until = (check_int("evaluation_spacings", value, 1, MOST_STEPS) for value in pair)
        if until <= start or (until - start) % spacing:
            raise BadInput(f"evaluation_spacings: {until} is not a multiple of {spacing} steps after {start}")
        pairs.append((spacing, until))
        start = until
    if pairs and start != budget_steps:
        raise BadInput(f"evaluation_spacings end at step {start}, not at the budget of {budget_steps} steps")
    return tuple(pairs)
