"""The key of a study's compiled programs, for those who schedule studies and never import JAX."""

import json

from results.plans.batch_study import BatchStudy
from workloads import registry


def programs_key(study: BatchStudy) -> tuple[str, str, str, str, str, int]:
    """The key of a study's programs: studies with equal keys share them.

    Optimizers that share an update rule share programs; the first of them by name stands for all. The last part is the
    batch size; studies that differ in nothing else share the programs that start and evaluate trials.
    """
    update_rule = registry.OPTIMIZERS[study.optimizer].update_rule
    stand_in = next(name for name, row in registry.OPTIMIZERS.items() if row.update_rule is update_rule)
    options = json.dumps(dict(study.model_options), sort_keys=True)
    data = json.dumps([study.dataset_version, dict(study.dataset_options)], sort_keys=True)
    return study.dataset, data, study.model, options, stand_in, study.batch_size
