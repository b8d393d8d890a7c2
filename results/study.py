"""Target, Trial and Study: the plan of a measurement, as plain data that is valid once built."""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from results.asked import APART, NO_REPEATS, Asked, Repeats, check_repeats
from results.bad_input import BadInput, check_choice
from results.search_space import SearchSpace, finite

# Major.Minor of the release whose results these are comparable with (CHANGELOG.md). Part of every plan.
COMPARABLE = "0.2"

# Kinds of errors; lower is better, always: a quality q in [0, 1] that is to grow is kept as the error 1 − q.
METRIC_KINDS = {
    "loss": "what training minimizes, without regularization",
    "error": "fraction of examples classified wrongly",
    "average_precision_error": "1 − average precision",
    "word_error_rate": "word errors per word of the reference",
    "ssim_error": "1 − structural similarity",
    "bleu_error": "1 − BLEU, with BLEU in [0, 1]",
    "recall_20_error": "1 − Recall@20 of held-out links",
    "recall_50_error": "1 − Recall@50 of held-out links",
    "objective": "what a factorization minimizes, with its ridge",
    "shortfall": "0 once a benchmark's own quality target is met; of sources that tell nothing else",
}
SPLITS = ("train", "validation", "test")
METRICS = tuple(f"{split}_{kind}" for split in SPLITS for kind in METRIC_KINDS)

REASONS = ("pruned", "time_limit", "lost", "failed", "unstated")  # unstated: a source that does not say why
# Trials that ended for one of these reasons are run again when the study is asked for again.
REASONS_TO_RERUN = ("time_limit", "lost", "failed")

MOST_STEPS = 2**31 - 1  # and most of whatever else is a column of whole numbers

SCHEDULES = ("constant", "linear", "cosine")
PRUNING = ("exact", "off")
STOPS = ("target", "budget")

DIGITS = (8, 16)  # hex digits of a plan's sha256 that end a study's name: those of older stores, and of today's
_ASKED = {"trials", "confirm", "confirm_top", "digits"}  # of a study, and no part of its identity
_DRAW_NOTHING = {"pruning", "stop"}  # they end trials, and change nothing in them
_NOT_IN_0_1 = {"stop"}  # plans of that software lack it: all trials end at their targets


def whole(what: str, value: object, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadInput(f"{what} must be a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise BadInput(f"{what} must be at most {most}, not {str(value)[:20]}")
    return int(value)


@dataclasses.dataclass(frozen=True)
class Target:
    """A metric and the value to reach; every metric is an error, so reaching is being at or below ``value``."""

    metric: str
    value: float

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        object.__setattr__(self, "value", finite(f"target on {self.metric}", self.value))

    def reached(self, measured: np.ndarray) -> np.ndarray:
        """Whether each measured value is at or below the target, compared in the column's own type; NaN never is.

        Args:
          measured: values of the metric, any shape, float32 or float64.

        Returns:
          bool array of the same shape.
        """
        measured = np.asarray(measured)
        return measured <= measured.dtype.type(self.value)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training run: its number within the study, its seed (uint32) and its choice of metaparameters."""

    id: int
    seed: int
    metaparameters: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Study:
    """The trials of one workload at one batch size: everything that decides a result, and nothing else.

    Attributes:
      dataset, model, optimizer: names in the registries of ``workloads``.
      dataset_version: which data these are, where their name does not say it.
      model_options: the model's own numbers, such as ``{"widths": [64]}``.
      schedule: how the learning rate decays over a trial: constant, linear or cosine.
      batch_size: global, in examples.
      space: the ranges metaparameters are drawn from.
      targets: what to reach; None: every trial runs to its budget.
      budget_steps: the most steps a trial takes.
      evaluation_ratio: evaluations are at steps growing by this factor, which bounds the relative error of
        steps to target.
      evaluation_spacing: steps there are for every evaluation so far, which bounds their cost; 0 is no bound.
      seed: of the search and of every trial.
      pruning: ``exact`` stops a trial once it cannot change any answer; ``off`` does not.
      trials: how many trials are asked for. Not part of the identity: asking for more later adds only the new ones.
      comparable: Major.Minor of the software; results of different ones are not comparable.
      stop: a trial ends once it reached all of its targets (``target``), or goes on to its budget (``budget``), so that
        any target can be read from its curve.
      confirm: how often the best is run again on fresh seeds, see ``results.confirmation``. Not part of the identity,
        like ``trials``.
      confirm_top: among how many of the best half of these repeats choose. Likewise.
      digits: how many hex digits of the plan's hash its name has. Likewise; see ``results.store.called``.
    """

    dataset: str
    dataset_version: str
    model: str
    model_options: Mapping[str, Any]
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

    def __post_init__(self) -> None:
        whole("batch_size", self.batch_size, 1, MOST_STEPS)
        whole("trials", self.trials, 1, APART)
        whole("confirm", self.confirm, 0)
        whole("confirm_top", self.confirm_top, 1)
        check_repeats(self.confirm, self.confirm_top, pruned=self.pruning == "exact")
        whole("budget_steps", self.budget_steps, 1, MOST_STEPS)
        whole("seed", self.seed, 0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("pruning", self.pruning, PRUNING)
        check_choice("stop", self.stop, STOPS)
        object.__setattr__(self, "evaluation_ratio", finite("evaluation_ratio", self.evaluation_ratio))
        if not 1 < self.evaluation_ratio <= 2:
            raise BadInput(f"evaluation_ratio must be above 1 and at most 2, not {self.evaluation_ratio:g}")
        spacing = finite("evaluation_spacing", self.evaluation_spacing)
        object.__setattr__(self, "evaluation_spacing", spacing)
        if spacing < 0:
            raise BadInput(f"evaluation_spacing must be at least 0, not {spacing:g}")
        if len({(t.metric, t.value) for t in self.targets}) < len(self.targets):
            raise BadInput("a target is given twice; keep one of them")
        if self.pruning == "exact" and not self.targets:
            raise BadInput("pruning=exact needs a target to prune against; give one or use pruning=off")
        if self.pruning == "exact" and self.stop == "budget":
            raise BadInput("pruning=exact ends trials before their budget; use stop=target or pruning=off")
        if self.confirm and not self.targets:
            raise BadInput("confirm needs a target, which says what trial is the best; give one or use confirm=0")

    def plan(self) -> dict[str, Any]:
        """The identity as plain JSON data: every field but what is ``asked``."""
        fields = {name: getattr(self, name) for name in _identity(self.comparable)}
        fields["model_options"] = dict(self.model_options)
        fields["space"] = self.space.plan()
        fields["targets"] = [dataclasses.asdict(t) for t in self.targets]
        return {"kind": "batch"} | fields

    @classmethod
    def from_plan(
        cls, plan: Mapping[str, Any], trials: int, repeats: Repeats = NO_REPEATS, digits: int = DIGITS[-1]
    ) -> "Study":
        """The study that ``plan()`` described, with what is asked of it; BadInput if another software wrote it."""
        fields = {k: v for k, v in plan.items() if k != "kind"}
        known = set(_identity(plan.get("comparable")))
        if plan.get("kind") != "batch" or fields.keys() != known:
            odd = ", ".join(sorted(fields.keys() ^ known)) or f"kind={plan.get('kind')}"
            raise BadInput(f"a plan of scaling-limits {plan.get('comparable')} is not one of {COMPARABLE}: {odd}")
        fields["space"] = SearchSpace.from_plan(plan["space"])
        fields["targets"] = tuple(Target(**t) for t in plan["targets"])
        return cls(**fields, trials=trials, confirm=repeats.confirm, confirm_top=repeats.top, digits=digits)

    @property
    def asked(self) -> Asked:
        """What is asked of it beside its plan."""
        return Asked(self.trials, Repeats(self.confirm_top, self.confirm) if self.confirm else NO_REPEATS)

    @property
    def ends_at(self) -> tuple[Target, ...]:
        """The targets that end a trial once it reached them all."""
        return self.targets if self.stop == "target" else ()

    @functools.cached_property
    def name(self) -> str:
        """A readable slug and ``digits`` of the plan's sha256; the study's folder in a store."""
        words = f"{self.dataset}-{self.model}-{self.optimizer}-b{self.batch_size}"
        return f"{words}-{digest(self.plan())[: self.digits]}"

    @functools.cached_property
    def plan_json(self) -> str:
        """The identity in its one canonical JSON form."""
        return canonical(self.plan())

    @property
    def model_label(self) -> str:
        """The model's name, then its options in the order of their names, as tables show it: fully_connected_64."""
        values = [self.model_options[name] for name in sorted(self.model_options)]
        numbers = [n for v in values for n in (v if isinstance(v, list | tuple) else [v])]
        return "_".join([self.model, *map(str, numbers)])

    @property
    def evaluations(self) -> np.ndarray:
        """The steps a trial is evaluated at, int32[evaluations]."""
        return evaluation_steps(self.budget_steps, self.evaluation_ratio, self.evaluation_spacing)

    @property
    def most_evaluations(self) -> int:
        """No fewer than there are of a trial, told in no time whatever the plan says."""
        growing = 1 / (self.evaluation_ratio - 1)  # the step from which on each is further off than the next step
        alone = min(self.budget_steps, growing + 1)
        return int(alone + math.log(self.budget_steps / alone) / math.log(self.evaluation_ratio)) + 2

    @property
    def stream(self) -> str:
        """What all randomness of the study derives from: the identity without ``pruning`` and ``stop``."""
        return digest({k: v for k, v in self.plan().items() if k not in _DRAW_NOTHING})


def _identity(comparable: object) -> list[str]:
    """Names of the fields of a plan that software of ``comparable`` wrote."""
    left_out = _ASKED | (_NOT_IN_0_1 if comparable == "0.1" else set())
    return [field.name for field in dataclasses.fields(Study) if field.name not in left_out]


def canonical(plan: Mapping[str, Any]) -> str:
    """Plain data as JSON with sorted keys and no spaces."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def digest(plan: Mapping[str, Any]) -> str:
    """sha256 of plain data in its canonical form, as hex."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()


def evaluation_steps(budget_steps: int, ratio: float, spacing: float = 0.0) -> np.ndarray:
    """The steps a trial is evaluated at: each the next whole step at or past ``ratio`` times the last.

    The k-th is at step k · ``spacing`` or later, so that evaluations never cost more than a share of the training so
    far, wherever a trial stops. The last is the budget's end.

    Returns:
      int32[evaluations], strictly increasing, at most ``budget_steps``.
    """
    steps = [0]
    while steps[-1] < budget_steps:
        after = max(steps[-1] + 1, math.ceil(steps[-1] * ratio), math.ceil(len(steps) * spacing))
        steps.append(min(budget_steps, after))
    return np.asarray(steps[1:], np.int32)
