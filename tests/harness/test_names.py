"""What a plan may name is what there is: ``results`` and ``workloads`` each say it, as neither imports the other."""

import jax.numpy as jnp

from results.plans import batch_study, factorization
from workloads import schedules
from workloads.factorization import solvers


def test_plans_name_the_schedules_that_there_are() -> None:
    assert tuple(schedules.SCHEDULES) == batch_study.SCHEDULES


def test_plans_name_the_solvers_that_there_are() -> None:
    assert factorization.SOLVERS == solvers.NAMES


def test_plans_name_number_formats_as_jax_does() -> None:
    assert [jnp.dtype(name).name for name in factorization.DTYPES] == list(factorization.DTYPES)
