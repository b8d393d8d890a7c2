"""Computes the key of a study's compiled programs, which is used to schedule studies without importing JAX."""

import json
from typing import NamedTuple

from results.plans.batch_study import BatchStudy
from workloads import registry


class ProgramsKey(NamedTuple):
    """A key of compiled programs. Studies with equal keys share their programs.

    Attributes:
      dataset, model: names of the data set and the model.
      data: version and options of the data set, and the code of other packages, as JSON.
      model_options: options of the model, as JSON.
      optimizer: name of the first registered optimizer with the same update rule that is evaluated at the same
        parameters. Such optimizers share programs.
      precision: matmul precision, as in the plan.
      batch_size: batch size. Studies that differ only in the batch size share the programs that start and evaluate
        trials.
    """

    dataset: str
    data: str
    model: str
    model_options: str
    optimizer: str
    precision: str
    batch_size: int


def programs_key(study: BatchStudy) -> ProgramsKey:
    """Returns the key of a study's programs."""
    optimizer = registry.get_optimizer(study.optimizer)
    alike = (
        name
        for name, row in registry.OPTIMIZERS.items()
        if (row.update_rule, row.evaluated) == (optimizer.update_rule, optimizer.evaluated)
    )
    stand_in = next(alike, study.optimizer)
    options = json.dumps(dict(study.model_options), sort_keys=True)
    data = json.dumps([study.dataset_version, dict(study.dataset_options), dict(study.packages)], sort_keys=True)
    return ProgramsKey(study.dataset, data, study.model, options, stand_in, study.precision, study.batch_size)


def family(study: BatchStudy) -> ProgramsKey:
    """Returns the key of a study without its batch size."""
    return programs_key(study)._replace(batch_size=0)
