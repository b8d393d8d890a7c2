"""Definitions of the printed answers, in words. All commands, pages, figures and the data dictionary use these."""

PAYS_UP_TO = (  # format with gain, in percent
    "the batch size after the last doubling of batch and devices that still trains at least {gain} % faster, if a step "
    "takes the same time"
)
EFFICIENT_UP_TO = "the largest batch size that needs at most 1.2 times the fewest examples of any batch size tried"
CRITICAL_BATCH_SIZE = "the batch size at which the line of perfect scaling meets the plateau"
CRITICAL_CORES = (
    "the number of cores at which an epoch takes twice as long as with perfect scaling from the fewest cores timed"
)
STEPS_TO_TARGET = (
    "the interval that contains the first step at which the metric is at or below the target: after the last "
    "evaluation before it, and at or before the first evaluation there"
)
REGIMES = {
    "perfect scaling": "the regime in which at most 20 % more examples are needed than on the line of perfect scaling",
    "diminishing returns": "the regime between perfect scaling and maximal data parallelism",
    "maximal data parallelism": "the regime in which at most 20 % more steps are needed than on the plateau",
}
