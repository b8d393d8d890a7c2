"""ALS: the options of an implicit factorization, declared here and nowhere else."""

import dataclasses

from results.bad_input import BadInput, check_choice

SOLVERS = ("cg", "rotated_cg", "cholesky", "lu", "qr")
DTYPES = ("float32", "bfloat16")
RIDGES = ("frequency", "constant")
GATHERS = ("auto", "all_gather", "all_to_all")
KERNELS = ("xla", "fused")
_FUSED = ("rotated_cg", "float32", "float32")  # solver and dtypes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Als:
    """Everything about a factorization but its data, its cores and what is tuned.

    Attributes:
      dim: length of a row of both tables.
      solver: of a row's least squares: cg (conjugate gradients from where the row was), rotated_cg (on tables rotated
        to a diagonal Gramian), cholesky, lu or qr.
      cg_steps: of the first two.
      table_dtype, solver_dtype: float32 or bfloat16; the latter of everything a solver computes.
      ridge: frequency, λ · (links of the row + α · rows of the other table), or constant, λ.
      gather: all_gather (every core copies the other table), all_to_all (cores exchange what a block of work needs), or
        auto: the copy unless it is too large.
      kernel: what computes a row's sums over its links: programs of XLA, or, on CPUs, a fused one of C++.
      epochs: of every trial; one solves all rows, then all columns.
      evaluate_every: epochs from one evaluation to the next; the last one is evaluated, too.
      evaluation_rows: how many rows with held-out links are evaluated, half of them validation, half test; a sample at
        random, but always the same of the same data. None takes all.

    Raises:
      BadInput: for a name that there is not, and a kernel that does not go with the solver.
    """

    dim: int
    solver: str = "rotated_cg"
    cg_steps: int = 2
    table_dtype: str = "float32"
    solver_dtype: str = "float32"
    ridge: str = "frequency"
    gather: str = "auto"
    kernel: str = "xla"
    epochs: int
    evaluate_every: int = 1
    evaluation_rows: int | None = None

    def __post_init__(self) -> None:
        for field, choices in (
            ("solver", SOLVERS),
            ("table_dtype", DTYPES),
            ("solver_dtype", DTYPES),
            ("ridge", RIDGES),
            ("gather", GATHERS),
            ("kernel", KERNELS),
        ):
            check_choice(field, getattr(self, field), choices)
        if self.kernel == "fused" and (self.solver, self.table_dtype, self.solver_dtype) != _FUSED:
            raise BadInput(f"kernel=fused supports only {_FUSED[0]} in float32; use kernel=xla for others")


OPTIONS = tuple(field.name for field in dataclasses.fields(Als))
EVALUATION = ("evaluate_every", "evaluation_rows")
COMPUTATION = tuple(name for name in OPTIONS if name not in EVALUATION)
