"""The constants of ``step_model``, and the ranges of errors for rows left out of the fit.

The constants were fitted on 28 November 2026 by ``benchmarks/step_model.py`` to 87 dense steps on TPUs: 47 in
``step_times.csv`` and 40 in ``layouts.csv``. The constant ``switched`` was fitted to 22 steps on GPUs.
"""

from results.costs.step_model import Constants

CONSTANTS = Constants(products=0.771, attention=2.13, activations=5.19, slices=0.0225, switched=0.463)
RANGE = 1.22  # nine of ten predictions of rows that were left out are within this factor
ANCHORED_RANGE = 1.2  # the same if another row of the same generation is the anchor
PUBLISHED = ("v4p", "v5e", "v5p", "v6e", "tpu7x", "a100", "h100")  # rows of the hardware table with published steps
SHORTEST = 0.45  # seconds of the shortest published step
