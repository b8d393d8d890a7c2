"""What a plan may name is what there is: ``results`` and ``workloads`` each say it, as neither imports the other."""

import jax.numpy as jnp

from results import als
from results.plans import batch_study
from workloads import optimizers


def test_plans_name_the_schedules_that_there_are() -> None:
    assert tuple(optimizers.SCHEDULES) == batch_study.SCHEDULES


def test_plans_name_number_formats_as_jax_does() -> None:
    assert [jnp.dtype(name).name for name in als.DTYPES] == list(als.DTYPES)
