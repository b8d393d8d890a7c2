"""Options of ALS (alternating least squares) for implicit matrix factorization, declared in this module only."""

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
    """Factorization options other than the data, the cores and the metaparameters.

    Attributes:
      dim: embedding dimension, which is the row length of both tables.
      solver: solver for the least-squares problem of each row: cg (conjugate gradients, warm-started from the row),
        rotated_cg (cg on tables rotated to a diagonal Gramian), cholesky, lu or qr.
      cg_steps: number of iterations of cg and rotated_cg.
      table_dtype, solver_dtype: dtypes of the tables and of all solver arithmetic, float32 or bfloat16.
      ridge: frequency for a ridge of λ · (links in the row + α · rows in the other table), or constant for λ.
      gather: all_gather (every core copies the other table), all_to_all (cores exchange only the rows that each block
        of work needs), or auto (all_gather unless the copy is too large).
      kernel: implementation of the sums over a row's links: xla, or fused (C++, CPUs only).
      epochs: number of epochs in each trial. An epoch solves all rows, then all columns.
      evaluate_every: number of epochs between evaluations. The last epoch is always evaluated.
      evaluation_rows: number of rows with held-out links to evaluate, half for validation and half for test. The sample
        is random, but fixed for each data set. None evaluates all rows.
      fold_in_ridge: ridge of rows that are folded in for evaluation, frequency or constant. ALX's code uses constant.
        The default is ``ridge``.

    Raises:
      BadInput: an option is unknown, or the kernel does not support the solver.
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
    fold_in_ridge: str | None = None

    def __post_init__(self) -> None:
        choices = {"solver": SOLVERS, "table_dtype": DTYPES, "solver_dtype": DTYPES, "ridge": RIDGES, "gather": GATHERS}
        for field, names in (choices | {"kernel": KERNELS}).items():
            check_choice(field, getattr(self, field), names)
        if self.fold_in_ridge is not None:
            check_choice("fold_in_ridge", self.fold_in_ridge, RIDGES)
        if self.kernel == "fused" and (self.solver, self.table_dtype, self.solver_dtype) != _FUSED:
            raise BadInput(f"kernel=fused supports only {_FUSED[0]} in float32. Use kernel=xla.")


OPTIONS = tuple(field.name for field in dataclasses.fields(Als))
EVALUATION = ("evaluate_every", "evaluation_rows", "fold_in_ridge")
COMPUTATION = tuple(name for name in OPTIONS if name not in EVALUATION)
