"""The key of a study's compiled programs, for scheduling studies without importing JAX."""

import json
from typing import NamedTuple

from results.plans.batch_study import BatchStudy
from workloads import registry


class ProgramsKey(NamedTuple):
    """The key of a study's programs: studies with equal keys share them.

    Attributes:
      dataset, model: names.
      data: version and options of the data, as JSON.
      model_options: as JSON.
      optimizer: the first of those with the same update rule, since they share programs.
      precision: as in the plan.
      batch_size: studies that differ only in it share the programs that start and evaluate trials.
    """

    dataset: str
    data: str
    model: str
    model_options: str
    optimizer: str
    precision: str
    batch_size: int


def programs_key(study: BatchStudy) -> ProgramsKey:
    """The key of a study's programs."""
    update_rule = registry.OPTIMIZERS[study.optimizer].update_rule
    stand_in = next(name for name, row in registry.OPTIMIZERS.items() if row.update_rule is update_rule)
    options = json.dumps(dict(study.model_options), sort_keys=True)
    data = json.dumps([study.dataset_version, dict(study.dataset_options)], sort_keys=True)
    return ProgramsKey(study.dataset, data, study.model, options, stand_in, study.precision, study.batch_size)
