"""The constants of ``step_model``, and the ranges that rows left out of their fit show.

They were fitted on 28 November 2026 by ``benchmarks/step_model.py``: to 87 dense steps on TPUs (47 of step_times.csv and
40 of MaxText in layouts.csv), and the last one to 22 steps on GPUs.
"""

from results.costs.step_model import Constants

CONSTANTS = Constants(products=0.771, attention=2.13, activations=5.19, slices=0.0225, switched=0.463)
RANGE = 1.22  # nine of ten predictions of rows that were left out are within this factor
ANCHORED_RANGE = 1.2  # the same if another row of the same generation is the anchor
