"""Factorization: the plan of a study of kind ``cores``, implicit ALS of a matrix of links on so many cores."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from results.bad_input import BadInput, check_choice
from results.plans.asked import APART
from results.plans.plan import Plan
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, whole

SOLVERS = ("cg", "rotated_cg", "cholesky", "lu", "qr")
DTYPES = ("float32", "bfloat16")
RIDGES = ("frequency", "constant")
GATHERS = ("auto", "all_gather", "all_to_all")
KERNELS = ("xla", "fused")
_FUSED = ("rotated_cg", "float32", "float32")  # solver and dtypes
METAPARAMETERS = ("unobserved_weight", "norm_penalty")  # α and λ of ALX


@dataclasses.dataclass(frozen=True)
class Factorization(Plan):
    """The trials of one factorization on one number of cores: everything that decides a result, and nothing else.

    The objective is that of ALX (Mehta et al. 2021, arXiv 2112.02194): squared error 1 − score on the links that are
    there, α · score² on all pairs, and a ridge.

    Attributes:
      dataset: name of the ratings.
      dataset_version: hash of their content.
      dataset_options: numbers they were generated from; empty for data that were not.
      dim: length of a row of both tables.
      solver: of a row's least squares: cg (conjugate gradients from where the row was), rotated_cg (on tables rotated
        to a diagonal Gramian), cholesky, lu or qr.
      cg_steps: of the first two.
      table_dtype, solver_dtype: float32 or bfloat16.
      ridge: frequency, λ · (links of the row + α · rows of the other table), or constant, λ.
      gather: all_gather (every core copies the other table), all_to_all (cores exchange what they need), or auto.
      kernel: what computes a row's sums over its links: programs of XLA, or, on CPUs, a fused one of C++.
      cores: devices the tables and the work are spread over.
      epochs: of every trial; one solves all rows, then all columns.
      space: ranges of ``METAPARAMETERS``.
      seed: of the search and of every trial.
      trials: how many are asked for. Not part of the identity: asking for more later adds only the new ones.
      comparable: Major.Minor of the software; results of different ones are not comparable.
      evaluate_every: epochs from one evaluation to the next; the last one is evaluated, too.
      evaluation_rows: how many rows with held-out links are evaluated, half of them validation, half test; a sample at
        random, but always the same of the same data. None takes all.
      digits: how many hex digits of the plan's hash its name has. Not part of the identity.
    """

    dataset: str
    dataset_version: str
    dataset_options: Mapping[str, Any]
    dim: int
    solver: str
    cg_steps: int
    table_dtype: str
    solver_dtype: str
    ridge: str
    gather: str
    kernel: str
    cores: int
    epochs: int
    space: SearchSpace
    seed: int
    trials: int
    comparable: str = COMPARABLE
    evaluate_every: int = 1
    evaluation_rows: int | None = None
    digits: int = DIGITS[-1]

    kind: ClassVar[str] = "cores"
    UNLESS: ClassVar[Mapping[str, object]] = {"evaluate_every": 1, "evaluation_rows": None}
    # Of the stream are data, search and seed alone, so that cores and solvers share trials.
    NOT_IN_STREAM: ClassVar[frozenset[str]] = frozenset(
        {
            *("dim", "solver", "cg_steps", "table_dtype", "solver_dtype", "gather", "kernel", "cores", "epochs"),
            *("evaluate_every", "evaluation_rows"),
        }
    )
    targets: ClassVar[tuple[Target, ...]] = ()
    ends_at: ClassVar[tuple[Target, ...]] = ()
    stop: ClassVar[str] = "target"
    pruning: ClassVar[str] = "off"
    source: ClassVar[None] = None
    batch_size: ClassVar[None] = None  # an epoch takes all data at once
    optimizer: ClassVar[str] = "als"

    def __post_init__(self) -> None:
        for field in ("dim", "cg_steps", "cores", "epochs", "evaluate_every"):
            whole(field, getattr(self, field), 1, MOST_STEPS)
        whole("trials", self.trials, 1, APART)
        if self.evaluation_rows is not None:
            whole("evaluation_rows", self.evaluation_rows, 2, MOST_STEPS)
        whole("seed", self.seed, 0)
        for field, choices in (("solver", SOLVERS), ("table_dtype", DTYPES), ("solver_dtype", DTYPES)):
            check_choice(field, getattr(self, field), choices)
        check_choice("ridge", self.ridge, RIDGES)
        check_choice("gather", self.gather, GATHERS)
        check_choice("kernel", self.kernel, KERNELS)
        if self.kernel == "fused" and (self.solver, self.table_dtype, self.solver_dtype) != _FUSED:
            raise BadInput(f"kernel=fused supports only {_FUSED[0]} in float32; use kernel=xla for others")
        if sorted(self.space) != sorted(METAPARAMETERS):
            raise BadInput(f"a factorization tunes {' and '.join(METAPARAMETERS)}, not {', '.join(sorted(self.space))}")
        for name in self.space:
            least = self.space[name].at(0.0) if self.space[name].scale != "DISCRETE" else min(self.space[name].values)
            if not least > 0:
                raise BadInput(f"{name} must be above 0, not {least:g}")

    @property
    def slug(self) -> str:
        """The readable part of its name."""
        return f"{self.dataset}-als-{self.solver}-d{self.dim}-c{self.cores}"

    @property
    def devices(self) -> int:
        """How many devices it is measured on."""
        return self.cores

    @property
    def model_label(self) -> str:
        """The model's name followed by its options, as tables show it: matrix_factorization_64."""
        return f"matrix_factorization_{self.dim}"

    @property
    def budget_steps(self) -> int:
        """The most steps of a trial: an epoch is one."""
        return self.epochs

    @property
    def most_evaluations(self) -> int:
        """Of a trial: an epoch has one."""
        return self.epochs
