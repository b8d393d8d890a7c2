"""The constants of ``step_model``, and the ranges of predictions.

The constants were fitted on 28 November 2026 by ``benchmarks/step_model.py`` to 87 dense steps on TPUs: 47 in
``step_times.csv`` and 40 in ``layouts.csv``. The constant ``switched`` was fitted to 22 steps on GPUs.
"""

from results.costs.step_model import Constants

CONSTANTS = Constants(products=0.771, attention=2.13, activations=5.19, slices=0.0225, switched=0.471)
# Factors of the 90 % ranges of steps on accelerators, by class. ``docs/predictions.md`` has the share of published
# steps that each range holds.
DENSE, MIXTURE, OTHER = "dense", "mixture", "other"
RANGES = {DENSE: 1.5, MIXTURE: 3.4, OTHER: 3.0}
ANCHORED_RANGE = 1.25  # of dense steps, if a step of the same framework on the same device is the anchor
# Rows of the hardware table with published dense steps in 16 bits.
PUBLISHED = ("v4p", "v5e", "v5p", "v6e", "tpu7x", "a100", "a100_40gb", "h100")
SHORTEST = 0.45  # seconds of the shortest published step on these devices
