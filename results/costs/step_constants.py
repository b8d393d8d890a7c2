"""The constants of ``step_model``, and the ranges that rows left out of their fit show.

They were fitted on 28 November 2026 by ``benchmarks/step_model.py`` to 87 dense steps on TPUs, of which 47 are in
``step_times.csv`` and 40 in ``layouts.csv``. The constant ``switched`` was fitted to 22 steps on GPUs.
"""

from results.costs.predictions import Seconds, around
from results.costs.step_model import Constants, Step, parts, terms

CONSTANTS = Constants(products=0.771, attention=2.13, activations=5.19, slices=0.0225, switched=0.463)
RANGE = 1.22  # nine of ten predictions of rows that were left out are within this factor
ANCHORED_RANGE = 1.2  # the same if another row of the same generation is the anchor


def seconds(step: Step) -> Seconds:
    """Returns the predicted seconds of a step with their 90 % range.

    Raises:
      KeyError: the hardware table has no row or no peak for the step.
    """
    return around(float(parts(terms(step), CONSTANTS).step), RANGE)
